"""docs/compliance.md names only code and tests that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]


def _clause_rows(text: str) -> Iterator[list[str]]:
    """The rows of the tables that go from clauses to code and tests."""
    of_clauses = False
    for line in text.splitlines():
        of_clauses = line.startswith("| clause ") or (of_clauses and line.startswith("|"))
        if of_clauses and line.startswith("| ") and not line.startswith("| clause "):
            yield [cell.strip() for cell in line.strip("|").split("|")]


TABLE_ROWS: Final = list(_clause_rows((ROOT / "docs" / "compliance.md").read_text(encoding="utf-8")))
CODE: Final = sorted({name for row in TABLE_ROWS for name in re.findall(r"`([^`]+)`", row[1])})
TESTS: Final = sorted({name for row in TABLE_ROWS for name in re.findall(r"`([^`]+)`", row[2])})


def test_every_clause_has_code_and_a_test() -> None:
    assert len(TABLE_ROWS) > 40
    assert not [row[0] for row in TABLE_ROWS if len(row) != 3 or not re.search(r"`.+`", row[1]) or not re.search(r"`.+::.+`", row[2])]


@pytest.mark.parametrize("name", CODE)
def test_the_code_exists(name: str) -> None:
    folder = ROOT if name.startswith("catalog/") else ROOT / "tablecrypt"

    assert (folder / name).is_file()


@pytest.mark.parametrize("name", TESTS)
def test_the_test_exists(name: str) -> None:
    file, _, function = name.partition("::")
    folder = ROOT if file.startswith("tablecrypt/") else ROOT / "tests"
    tree = ast.parse((folder / file).read_text(encoding="utf-8"))

    assert function in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
