"""The bytes by which file formats are told apart, and the version of the table format, are written once."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

from tablecrypt import _magics as magics
from tablecrypt._magics import HEAD_LENGTH, looks_like

ROOT: Final = Path(__file__).parents[1]
SOURCES: Final = sorted([*(ROOT / "tablecrypt").rglob("*.py"), *(ROOT / "catalog").rglob("*.py")])
MAGICS: Final = {name: value for name, value in vars(magics).items() if isinstance(value, bytes)}


def test_a_magic_is_written_once() -> None:
    places: dict[str, list[str]] = {name: [] for name in MAGICS}
    for path in SOURCES:
        found = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        for name, magic in MAGICS.items():
            places[name] += [path.name for value in found if value == magic]

    assert places == {name: ["_magics.py"] for name in MAGICS}


def test_the_format_version_is_set_once() -> None:
    assert sum(path.read_text().count("\nFORMAT_VERSION: Final = ") for path in SOURCES) == 1


@pytest.mark.parametrize(
    ("head", "description"),
    [
        (b"", "is empty"),
        (b"PARE\x15\x00\x15\x10", "begins like an encrypted Parquet file"),
        (b"PAR1", "begins like a Parquet file"),
        (b"AGS1\x00\x00\x10\x00", "begins like an AGS1 file"),
        (b"ORC\x11\x00\x00\x0a\x12", "begins like an ORC file"),
        (b"Obj\x01\x04\x14av", "begins like an Avro file"),
        (b"PFA1PFA1", "begins like a Puffin file"),
        (b"ARROW1\x00\x00", "begins like an Arrow file"),
        (b"PK\x03\x04\x14\x00\x00\x00", "begins like a ZIP file"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "begins like a gzip file"),
        (b"{", "begins like a JSON file"),
        (b"PAR", "begins with b'PAR'"),
        (b" {", "begins with b' {'"),
    ],
)
def test_a_file_is_described_by_its_first_bytes(head: bytes, description: str) -> None:
    assert looks_like(head) == description


def test_of_a_file_of_no_known_kind_eight_bytes_are_shown_as_python_writes_them() -> None:
    assert HEAD_LENGTH == 8
    assert looks_like(b"\x1b[2J\n\xff12secret") == r"begins with b'\x1b[2J\n\xff12'"
