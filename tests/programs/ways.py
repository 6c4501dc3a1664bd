"""Runs the ways in which one program uses an encrypted table, in a process of that program's environment.

    tablecrypt run python -m tests.programs.pandas_ways ANSWERS.json

A module `…_ways` gives `main` a function for each call of tests/programs/programs.py, named as that names it. Each checks the rows that it
gets. ANSWERS.json says of each call "works", or how it ended: the class of the error and its text.

The catalog `prod` and the table db.orders, with the rows of `FIRST_ROWS`, are there before.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

WORKS: Final = "works"
CANARY: Final = "c4nary-plaintext-must-not-appear"
"""That of tablecrypt.testing.plaintext, which needs packages that these environments lack: a test compares them."""

FIRST_ROWS: Final = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": [CANARY] * 3})
NEXT_ROWS: Final = pa.table({"id": pa.array([4, 5], pa.int64()), "name": [CANARY] * 2})

Ways = Mapping[str, Callable[[], object]]


def main(ways: Ways) -> None:
    """Run each way, whatever became of those before it, and write the answers into the file that the command line names."""
    answers = {call: _answer(way) for call, way in ways.items()}
    Path(sys.argv[1]).write_text(json.dumps(answers), encoding="utf-8")


def _answer(way: Callable[[], object]) -> str:
    try:
        way()
    except (Exception, SystemExit) as error:  # noqa: BLE001  whatever the program makes of it is the answer
        return f"{type(error).__name__}: {error}"
    return WORKS


def expect_ids(found: Any, *ids: int) -> None:
    """Raise AssertionError unless these are the ids of some rows: an Arrow table, or a list."""
    listed = found["id"].to_pylist() if isinstance(found, pa.Table) else list(found)
    if sorted(listed) != sorted(ids):
        raise AssertionError(f"ids {sorted(listed)}, not {sorted(ids)}")
