"""A stream of rows holds a few files at a time, and plans as it goes: its memory does not grow with the files of the table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from tablecrypt.manifests.manifest_cache import CACHE, read_in_columns
from tablecrypt.table import reader
from tablecrypt.table.datasets import engine_read
from tablecrypt.table.planning import planner
from tablecrypt.table.table import EncryptedTable
from tests.support.tables import current_snapshot, memory_catalog, new_table, path_of

FILES = 40
ROWS = 20_000
AT_ONCE = 16
"""Files whose rows are in memory, at most: those that are read, that wait to be taken, and that Arrow has not given back yet."""

Stream = Callable[[EncryptedTable], Iterator[pa.RecordBatch]]
STREAMS: dict[str, Stream] = {
    "a stream": lambda table: iter(table.scan().to_arrow_batch_reader()),
    "a filter": lambda table: iter(table.scan("id >= 0").to_arrow_batch_reader()),
    "an Arrow dataset": lambda table: table.scan().to_arrow_dataset().scanner().to_batches(),
    "its fragments": lambda table: (batch for each in table.scan().to_arrow_dataset().get_fragments() for batch in each.to_batches()),
    "the rows of appends": lambda table: iter(table.incremental_append_scan().to_arrow_batch_reader()),
}


@pytest.fixture
def table(unwatched_warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> EncryptedTable:
    """A manifest for each file, planned by itself, and no file so small that many are read together."""
    monkeypatch.setattr(planner, "read_in_columns", partial(read_in_columns, batch_bytes=1))
    monkeypatch.setattr(reader, "LOCAL_TOGETHER", 1)
    monkeypatch.setattr(engine_read, "FILES_OPEN", 4)
    appends = [pa.table({"id": pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64())}) for number in range(FILES)]
    table = new_table(memory_catalog(unwatched_warehouse), appends=appends)
    CACHE.clear()
    return table


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_a_stream_gives_rows_before_it_has_read_all_manifests(table: EncryptedTable, stream: Stream) -> None:
    manifests = [path_of(each.manifest_path) for each in current_snapshot(table).manifests(table.io)]
    rows = stream(table)
    assert len(next(rows)) > 0
    for manifest in manifests:
        manifest.unlink()
    with pytest.raises(FileNotFoundError):
        list(rows)


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_a_stream_holds_the_rows_of_a_few_files_however_many_there_are(table: EncryptedTable, stream: Stream) -> None:
    before = pa.total_allocated_bytes()
    held, rows = 0, 0
    for batch in stream(table):
        rows += len(batch)
        # Long enough for all that may be read ahead.
        time.sleep(0.005)
        held = max(held, pa.total_allocated_bytes() - before)

    assert rows == FILES * ROWS
    assert held < AT_ONCE * ROWS * 8 < FILES * ROWS * 8


def test_a_count_reads_manifests_one_after_another(table: EncryptedTable) -> None:
    assert table.scan().count() == FILES * ROWS
    assert table.scan(f"id < {FILES * ROWS // 2 + 1}").count() == FILES * ROWS // 2 + 1
    assert [len(tasks) for tasks in table.scan().task_batches()] == [1] * FILES


def test_a_plan_that_fails_at_once_fails_before_a_row_is_asked_for(table: EncryptedTable) -> None:
    path_of(current_snapshot(table).manifests(table.io)[0].manifest_path).unlink()
    with pytest.raises(FileNotFoundError):
        table.scan().to_arrow_batch_reader()
