"""Data files that are written again without some of their rows: how much memory that takes, and what is left when it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile

from tablecrypt import parquet
from tablecrypt.errors import TamperedFileError
from tablecrypt.maintenance import share
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.table.table import EncryptedTable
from tests.support.peak_memory import measured
from tests.support.tables import MASTER_KEY, data_files, files_below, flip, folder_of, memory_catalog, memory_kms, new_table, path_of

ROWS: Final = 500_000
BATCHES: Final = 16
PARTNER: Final = "partner"
NAMES: Final = ("id", "a", "b", "c", "d", "e")
LENGTH: Final = ROWS * BATCHES * len(NAMES) * 8

CHANGES: Final[dict[str, Callable[[EncryptedTable], object]]] = {
    "delete": lambda table: table.delete("id = 1"),
    "overwrite": lambda table: table.overwrite(_rows(BATCHES).slice(0, 10), "id = 1"),
    "share": lambda table: share(table, PARTNER, f"{table.location()}-shared", f"id < {BATCHES // 2 * ROWS}", rewrite=True),
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
    folder = tmp_path_factory.mktemp("long")
    table = new_table(memory_catalog(folder, memory_kms(folder, MASTER_KEY, PARTNER)), schema=_rows(0).schema)
    table.append(pa.RecordBatchReader.from_batches(_rows(0).schema, _batches()))
    return table


OF_EACH_FILE: Final[dict[str, Callable[[EncryptedTable], object]]] = {
    "delete": lambda table: table.delete("id in (1, 11, 21)"),
    "overwrite": lambda table: table.overwrite(_rows(BATCHES).slice(0, 10), "id in (1, 11, 21)"),
    "upsert": lambda table: table.upsert(_rows(1).slice(0, 3).set_column(0, "id", pa.array([1, 11, 21])), ["id"]),
}


def _part(rows: pa.Table, number: int) -> pa.Table:
    return rows.set_column(0, "id", pa.array(range(number * 10, number * 10 + 10)))


def _damage(file: DataFile, column: str) -> None:
    """Change a bit of the last page of a column."""
    key = key_metadata_of(file)
    assert key is not None
    keys = parquet.FileKeys(footer_key=key.encryption_key, aad_prefix=key.aad_prefix)
    (row_group,) = parquet.inspect(str(path_of(file.file_path)), keys).row_groups or ()
    (chunk,) = (each for each in row_group.chunks if each.path == column)
    page = max(chunk.modules, key=lambda module: (module.type == "data page", module.offset or 0))
    assert page.offset is not None
    flip(path_of(file.file_path), page.offset + page.size - 1)


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_a_long_file_is_never_whole_in_memory(table: EncryptedTable, tmp_path: Path, change: str) -> None:
    (file,) = data_files(table)
    assert file.file_size_in_bytes > LENGTH / 2

    outcome = measured(lambda: CHANGES[change](table), tmp_path / "outcome")

    assert outcome.error is None
    assert outcome.peak < LENGTH


@pytest.mark.parametrize("change", OF_EACH_FILE)
def test_a_change_that_fails_at_its_last_file_leaves_nothing_of_the_others(tmp_path: Path, change: str) -> None:
    first = _rows(0).slice(0, 10)
    table = new_table(memory_catalog(tmp_path), schema=first.schema, appends=[_part(first, number) for number in range(3)])
    _damage(list(table.scan().plan_files())[-1].file, "a")
    before = files_below(folder_of(table) / "data")

    with pytest.raises(TamperedFileError):
        OF_EACH_FILE[change](table)

    assert files_below(folder_of(table) / "data") == before
