"""Changes of rows in a long data file take memory for a few row groups, however long the file is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pytest

from tablecrypt.table.table import EncryptedTable
from tests.support.peak_memory import measured
from tests.support.tables import data_files, memory_catalog, new_table

ROWS: Final = 500_000
BATCHES: Final = 16
NAMES: Final = ("id", "a", "b", "c", "d", "e")
LENGTH: Final = ROWS * BATCHES * len(NAMES) * 8

CHANGES: Final[dict[str, Callable[[EncryptedTable], object]]] = {
    "delete": lambda table: table.delete("id = 1"),
    "overwrite": lambda table: table.overwrite(_rows(BATCHES).slice(0, 10), "id = 1"),
    "upsert": lambda table: table.upsert(_rows(0).slice(0, 10).set_column(1, "a", pa.array(np.ones(10))), ["id"]),
}


def _rows(number: int) -> pa.Table:
    random = np.random.default_rng(number)
    first = number * ROWS
    return pa.table({"id": np.arange(first, first + ROWS), **{name: random.random(ROWS) for name in NAMES[1:]}})


def _batches() -> Iterator[pa.RecordBatch]:
    for number in range(BATCHES):
        yield from _rows(number).to_batches()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> EncryptedTable:
    table = new_table(memory_catalog(tmp_path_factory.mktemp("long")), schema=_rows(0).schema)
    table.append(pa.RecordBatchReader.from_batches(_rows(0).schema, _batches()))
    return table


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_a_long_file_is_never_whole_in_memory(table: EncryptedTable, tmp_path: Path, change: str) -> None:
    (file,) = data_files(table)
    assert file.file_size_in_bytes > LENGTH / 2

    outcome = measured(lambda: CHANGES[change](table), tmp_path / "outcome")

    assert outcome.error is None
    assert outcome.peak < LENGTH
