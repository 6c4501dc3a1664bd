"""The bytes by which file formats are told apart, and the version of the table format, are written once."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

from tablecrypt import _magics as magics

ROOT: Final = Path(__file__).parents[1]
SOURCES: Final = sorted([*(ROOT / "tablecrypt").rglob("*.py"), *(ROOT / "catalog").rglob("*.py")])
MAGICS: Final = {name: value for name, value in vars(magics).items() if isinstance(value, bytes)}


@pytest.mark.parametrize("name", MAGICS)
def test_a_magic_is_written_once(name: str) -> None:
    places = [path.name for path in SOURCES for node in ast.walk(ast.parse(path.read_text())) if _is(node, MAGICS[name])]
    assert places == ["_magics.py"]


def test_the_format_version_is_set_once() -> None:
    assert sum(path.read_text().count("\nFORMAT_VERSION: Final = ") for path in SOURCES) == 1


def _is(node: ast.AST, value: bytes) -> bool:
    return isinstance(node, ast.Constant) and node.value == value
