"""Writing a file that is there whole or not at all: under another name first, readable by its owner alone, then renamed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from tablecrypt.errors import ConfigurationError

_MODE: Final = 0o600


def check_target(source: Path, target: Path) -> None:
    """Refuse a target that is no file of its own.

    Raises:
        ConfigurationError: it is -, the source itself, or in a folder that is not there.
    """
    if str(target) == "-":
        raise ConfigurationError("- is no file: name one, or use tablecrypt cat, which prints to stdout")
    if not target.absolute().parent.is_dir():
        raise ConfigurationError(f"{target}: there is no folder {target.parent}")
    if target.exists() and target.samefile(source):
        raise ConfigurationError(f"{target} is the source, which stays as it is: name another file")


@contextmanager
def whole_file(path: Path, replace: bool) -> Iterator[BinaryIO]:
    """Yield an open file that gets its name when the block ends without an error, and is gone when it does not.

    Args:
        path: the file's name in the end.
        replace: whether a file of that name may be there already.

    Raises:
        ConfigurationError: it is there.
    """
    if path.exists() and not replace:
        raise ConfigurationError(f"{path} is there already: name another file, or say --force")
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "wb") as file:
            yield file
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
