"""Writing .pyiceberg.yaml, and Python programs that find it and this repository's packages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strictyaml import as_document

from tests.support.command import environment


def configure(home: Path, catalogs: Mapping[str, Mapping[str, Any]], **more: str) -> None:
    """Describe catalogs, and other things, in the configuration file of a folder."""
    document = {"catalog": {name: dict(properties) for name, properties in catalogs.items()}, **more}
    (home / ".pyiceberg.yaml").write_text(as_document(document).as_yaml())


def fails_closed(properties: Mapping[str, str]) -> dict[str, str]:
    """The form that PyIceberg refuses: a type that it does not know in place of a class that it overlooks."""
    return {"type": "tablecrypt", **{name: value for name, value in properties.items() if name != "py-catalog-impl"}}


def run_python(*arguments: str, cwd: Path | None = None, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python with this repository's packages."""
    given = environment() | dict(variables or {})
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=120, cwd=cwd, env=given)
