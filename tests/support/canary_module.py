"""A module that must not be imported, and classes of the interpreter that must not be called: what hostile properties name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

NAME: Final = "tablecrypt_canary_module"
CLASS: Final = f"{NAME}.Canary"


@contextmanager
def canary_module(folder: Path) -> Iterator[str]:
    """Put the module on the path; yield the path of its class. Leaving fails where it was imported."""
    marker = folder / "imported"
    (folder / f"{NAME}.py").write_text(
        f"open({str(marker)!r}, 'w').close()\n\n\nclass Canary:\n    def __init__(self, *given):\n        raise SystemError('called')\n",
        encoding="utf-8",
    )
    sys.path.insert(0, str(folder))
    try:
        yield CLASS
    finally:
        sys.path.remove(str(folder))
        imported = NAME in sys.modules or marker.exists()
        sys.modules.pop(NAME, None)
    assert not imported, f"{NAME} was imported"
