"""A stream of rows holds a few files at a time, and plans as it goes: its memory does not grow with the files of the table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tablecrypt.manifests.entries import BATCH_BYTES, CACHE
from tablecrypt.parquet.uniform import SMALL_FILE_LENGTH
from tablecrypt.table.reader import LOCAL_TOGETHER
from tablecrypt.table.table import EncryptedTable
from tests.support.manifests import data_file
from tests.support.tables import current_snapshot, memory_catalog, new_table, path_of

FILES = 36
"""More than a dataset opens ahead."""
ROWS = 2 * max(SMALL_FILE_LENGTH, LOCAL_TOGETHER) // 15
"""So long a file is neither read whole nor together with others."""
AT_ONCE = 24
"""Files whose rows are in memory, at most: those that are read, that wait to be taken, and that Arrow reads ahead."""

Stream = Callable[[EncryptedTable], Iterator[pa.RecordBatch]]
STREAMS: dict[str, Stream] = {
    "a stream": lambda table: iter(table.scan().to_arrow_batch_reader()),
    "a filter": lambda table: iter(table.scan("id >= 0").to_arrow_batch_reader()),
    "an Arrow dataset": lambda table: table.scan().to_arrow_dataset().scanner().to_batches(),
    "its fragments": lambda table: (batch for each in table.scan().to_arrow_dataset().get_fragments() for batch in each.to_batches()),
    "the rows of appends": lambda table: iter(table.incremental_append_scan().to_arrow_batch_reader()),
}


@pytest.fixture
def table(unwatched_warehouse: Path) -> EncryptedTable:
    """Three manifests, the newest first: of many files; one that is long, of a file without rows; of one file, planned after the others."""
    random = np.random.default_rng(1)
    ids = pa.table({"id": random.integers(0, 2**62, FILES * ROWS)})
    properties = {"write.target-file-size-bytes": str(ROWS * 8)}
    table = new_table(memory_catalog(unwatched_warehouse), appends=[ids.slice(0, 10)], properties=properties)
    long = data_file(f"{table.location()}/data/empty.parquet", record_count=0, lower_bounds={1: random.bytes(BATCH_BYTES)})
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(long)
    table.append(pa.Table.from_batches(ids.to_batches(max_chunksize=ROWS)))
    CACHE.clear()
    return table


def manifests_of(table: EncryptedTable) -> list[Path]:
    return [path_of(each.manifest_path) for each in current_snapshot(table).manifests(table.io)]


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_a_stream_gives_rows_before_it_has_read_all_manifests(table: EncryptedTable, stream: Stream) -> None:
    rows = stream(table)
    assert len(next(rows)) > 0
    for manifest in manifests_of(table):
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

    assert rows == FILES * ROWS + 10
    assert held < AT_ONCE * ROWS * 8


def test_a_plan_yields_tasks_as_manifests_are_read_and_counts_them_all(table: EncryptedTable) -> None:
    assert [len(tasks) for tasks in table.scan().task_batches()] == [FILES, 1]
    assert table.scan().count() == FILES * ROWS + 10
    assert table.scan("id >= 0").count() == FILES * ROWS + 10


def test_a_limit_reads_no_manifest_that_it_does_not_need(table: EncryptedTable) -> None:
    manifests_of(table)[-1].unlink()
    assert table.scan(limit=5).to_arrow().num_rows == 5
    with pytest.raises(FileNotFoundError):
        table.scan().to_arrow()


def test_a_plan_that_fails_at_once_fails_before_a_row_is_asked_for(table: EncryptedTable) -> None:
    manifests_of(table)[0].unlink()
    with pytest.raises(FileNotFoundError):
        table.scan().to_arrow_batch_reader()
