"""What a micro-batch of a stream holds: every appended file once, as many at a time as the limits allow."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tablecrypt import maintenance
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.maintenance.expiry import expire_snapshots
from tablecrypt.spark.sql.planner import LoadedTable, Planner
from tablecrypt.spark.sql.streams.history import Position, StreamRules, unread
from tablecrypt.spark.sql.streams.requests import stream_end, stream_latest, stream_start
from tablecrypt.spark.tables import LocatedTable
from tablecrypt.table.table import EncryptedTable
from tests.support.planner_requests import respond
from tests.support.tables import new_table


class Stream:
    """A query on a table, which reads on from its last offset."""

    def __init__(self, table: EncryptedTable, **options: object) -> None:
        self.options = {name.replace("_", "-"): str(value) for name, value in options.items()}
        self.located = LocatedTable(table.catalog, ".".join(table.name()), table)
        self.planner = Planner()
        self.table = self.planner.tables.add(LoadedTable(self.located, "prod", "main", None, is_writable=True))
        self.offset: Mapping[str, Any] = self.ask(stream_start)

    def ask(self, operation: Any, **fields: Any) -> Mapping[str, Any]:
        response = respond(self.planner, operation, table=self.table, options=self.options, **fields)
        offset: Mapping[str, Any] = response.fields["offset"]
        return offset

    def batches(self, until: Mapping[str, Any] | None = None) -> list[int]:
        """How many files each micro-batch has, until there is nothing new."""
        return [len(files) for files in self.read(until)]

    def read(self, until: Mapping[str, Any] | None = None) -> Iterator[list[str]]:
        while (latest := self.ask(stream_latest, after=self.offset, until=until, unlimited=False)) != self.offset:
            after, end = (Position(each["snapshot-id"], each.get("files")) for each in (self.offset, latest))
            now = replace(self.located, table=self.located.reloaded())
            parts = [part for part in unread(now, "main", after, end) if StreamRules().reads(part.snapshot)]
            yield [task.file.file_path for part in parts for task in part.tasks(now.table)]
            self.offset = latest


def append(table: Table, *regions: str) -> None:
    """Append a file with two rows for each region."""
    table.append(pa.table({"id": pa.array(range(2 * len(regions)), pa.int64()), "region": [*regions, *regions]}))


@pytest.fixture
def table(catalog: Catalog) -> EncryptedTable:
    schema = pa.schema([("id", pa.int64()), ("region", pa.string())])
    table = new_table(catalog, schema=schema)
    with table.update_spec() as update:
        update.add_identity("region")
    return table


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, [6]),
        ({"streaming_max_files_per_micro_batch": 1}, [1, 1, 1, 1, 1, 1]),
        ({"streaming_max_files_per_micro_batch": 2}, [2, 2, 2]),
        ({"streaming_max_files_per_micro_batch": 4}, [4, 2]),
        ({"streaming_max_rows_per_micro_batch": 1}, [1, 1, 1, 1, 1, 1]),
        ({"streaming_max_rows_per_micro_batch": 7}, [4, 2]),
        ({"streaming_max_rows_per_micro_batch": 8, "streaming_max_files_per_micro_batch": 5}, [4, 2]),
    ],
)
def test_each_file_is_in_one_batch_and_no_batch_is_above_the_limits(
    table: EncryptedTable, options: dict[str, int], sizes: list[int]
) -> None:
    append(table, "a", "b", "c")
    append(table, "a")
    append(table, "b", "c")

    read = list(Stream(table, **options).read())

    assert [len(files) for files in read] == sizes
    files = [file for batch in read for file in batch]
    assert len(set(files)) == len(files) == 6
    assert set(files) == {task.file.file_path for task in table.refresh().scan().plan_files()}


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("max_files_per_batch", "streaming-max-files-per-micro-batch"),
        ("max_snapshots_per_batch", "streaming-max-files-per-micro-batch"),
        ("skip_overwrite_snapshots", "streaming-skip-overwrite-snapshots"),
        ("skip_delete_snapshots", "streaming-skip-delete-snapshots"),
        ("starting", "stream-from-timestamp"),
    ],
)
def test_an_option_of_streams_of_format_tablecrypt_is_refused_with_the_one_that_is_meant(
    table: EncryptedTable, option: str, instead: str
) -> None:
    with pytest.raises(ConfigurationError, match=instead):
        Stream(table, **{option: 1})


def test_a_snapshot_that_adds_no_rows_makes_no_batch_and_ends_none(table: EncryptedTable) -> None:
    stream = Stream(table, streaming_max_files_per_micro_batch=2)
    append(table, "a", "b", "c")
    maintenance.compact(table.refresh(), rewrite_all=True)
    assert stream.batches() == [2, 1]
    assert stream.batches() == []
    append(table.refresh(), "d")
    assert stream.batches() == [1]


def test_a_query_that_reads_what_is_there_stops_at_what_came_later(table: EncryptedTable) -> None:
    stream = Stream(table, streaming_max_files_per_micro_batch=2)
    append(table, "a", "b", "c")
    until = stream.ask(stream_end)
    append(table, "d")

    assert stream.batches(until) == [2, 1]
    assert stream.batches() == [1]


def test_what_is_written_before_the_moment_that_a_stream_begins_is_passed_over(table: EncryptedTable) -> None:
    append(table, "a")
    last = table.refresh().metadata.snapshots[-1].timestamp_ms
    future, now = Stream(table, stream_from_timestamp=last + 3_600_000), Stream(table, stream_from_timestamp=last)
    append(table, "b", "c")

    assert future.batches() == []
    assert now.batches() == [3]


@pytest.mark.parametrize("is_compacted", [True, False])
def test_a_stream_does_not_begin_behind_rows_whose_snapshots_expired(table: EncryptedTable, is_compacted: bool) -> None:
    append(table, "a")
    append(table, "b")
    if is_compacted:
        maintenance.compact(table.refresh(), rewrite_all=True)
    assert Stream(table).batches() == [2]

    expire_snapshots(table.refresh(), dt.datetime(2100, 1, 1, tzinfo=dt.UTC))

    with pytest.raises(ConfigurationError, match="expired, so a stream cannot begin with the first row"):
        Stream(table)


@pytest.mark.parametrize("files", [0, -1, "2", 1.5, True, None])
def test_an_offset_with_a_count_of_files_that_is_none_is_refused(table: EncryptedTable, files: object) -> None:
    append(table, "a")
    stream = Stream(table)
    with pytest.raises(FormatError, match="does not belong to a stream"):
        stream.ask(stream_latest, after={**stream.offset, "files": files}, until=None, unlimited=False)


def test_a_part_of_a_snapshot_that_was_rolled_back_is_not_read_on(table: EncryptedTable) -> None:
    append(table, "a")
    stream = Stream(table, streaming_max_files_per_micro_batch=1)
    append(table, "b", "c")
    read = stream.read()
    next(read), next(read)
    first = table.refresh().metadata.snapshots[0].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()

    with pytest.raises(ConfigurationError, match="is not in the history"):
        list(read)
