"""Scans of many small files: which are read together, and that their rows come whole and in order."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import ALWAYS_TRUE, FileScanTask

from tablecrypt.errors import TamperedFileError
from tablecrypt.table.reader import LOCAL_TOGETHER, TaskReader
from tablecrypt.table.table import EncryptedTable
from tests.support.manifests import data_file
from tests.support.tables import flip, memory_catalog, new_table, path_of

FILES = 12
ROWS = 50


@pytest.fixture
def table(unwatched_warehouse: Path) -> EncryptedTable:
    """Small files of one append, in the order of their rows."""
    rows = pa.table({"id": pa.array(range(FILES * ROWS), pa.int64()), "text": [f"row {number}" for number in range(FILES * ROWS)]})
    # A file ends at this size, of Arrow memory.
    properties = {"write.target-file-size-bytes": str(rows.slice(0, ROWS).nbytes)}
    appended = pa.Table.from_batches(rows.to_batches(max_chunksize=ROWS))
    return new_table(memory_catalog(unwatched_warehouse), appends=[appended], properties=properties)


def reader_of(table: EncryptedTable) -> TaskReader:
    return table.scan().reader_of(table.schema())


def tasks_of(table: EncryptedTable) -> list[FileScanTask]:
    return sorted(table.scan().plan_files(), key=lambda task: task.file.file_path)


def stored_at(locations: str, sizes: list[int]) -> list[FileScanTask]:
    return [FileScanTask(data_file(f"{locations}{number}", file_size_in_bytes=size)) for number, size in enumerate(sizes)]


def test_rows_of_many_files_come_whole_and_in_the_order_of_the_files(table: EncryptedTable) -> None:
    tasks = tasks_of(table)
    assert len(tasks) >= FILES
    (source,) = reader_of(table).sources(tasks)
    by_file = [batch.column("id").to_pylist() for task in tasks for batch in reader_of(table).batches(task)]
    assert [batch.column("id").to_pylist() for batch in source.start()] == by_file
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == list(range(FILES * ROWS))


def test_small_local_files_are_read_together_and_files_of_a_store_alone(table: EncryptedTable) -> None:
    reader = reader_of(table)
    small = stored_at("file:///t/", [LOCAL_TOGETHER // 2 - 1] * 5)
    assert len(list(reader.sources(small))) == 3
    assert len(list(reader.sources(stored_at("/t/", [LOCAL_TOGETHER] * 5)))) == 5
    remote = stored_at("s3://b/", [0, 10, 20])
    assert [source.size for source in reader.sources(remote)] == [0, 10, 20]
    assert len(list(reader.sources([*small[:2], *remote, *small[2:4]]))) == 5
    assert list(reader.sources([])) == []


def test_files_of_which_little_is_read_are_read_together(unwatched_warehouse: Path) -> None:
    columns = {f"c{number}": pa.array([number]) for number in range(100)}
    table = new_table(memory_catalog(unwatched_warehouse), appends=[pa.table(columns)])
    files = stored_at("file:///t/", [LOCAL_TOGETHER] * 60)
    assert len(list(reader_of(table).sources(files))) == 60
    assert len(list(table.scan().reader_of(table.schema().select("c7")).sources(files))) == 1
    assert len(list(table.scan("c8 = 8").reader_of(table.schema().select("c7")).sources(files))) == 2


@pytest.mark.parametrize("row_filter", [ALWAYS_TRUE, "id >= 0", "text != 'x'"], ids=str)
def test_a_changed_file_among_many_fails_the_scan(table: EncryptedTable, row_filter: str) -> None:
    changed = path_of(tasks_of(table)[FILES // 2].file.file_path)
    flip(changed, 60)
    with pytest.raises(TamperedFileError, match=changed.name):
        table.scan(row_filter).to_arrow()
    with pytest.raises(TamperedFileError, match=changed.name):
        table.scan(row_filter).to_arrow_batch_reader().read_all()
