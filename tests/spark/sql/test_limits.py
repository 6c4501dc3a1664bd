"""What the planner gives up where more is open than it keeps: it is ended, its files go, and its owner hears of it.

Limits are small here. Those that hold are of handles that crashed queries leave behind; a write that goes on is used again and again.
"""

from __future__ import annotations

import gc
import json
import uuid
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from tablecrypt import maintenance
from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.sql.planner import Handles, Limits, Planner
from tablecrypt.spark.sql.scans.python_reads import TaskRows
from tablecrypt.spark.sql.staging import StagedTable
from tablecrypt.spark.sql.writes.commits import abort_write
from tablecrypt.table.transaction import EncryptedTransaction
from tests.spark.conftest import Lake
from tests.spark.sql.test_commits import TASK, Write, report
from tests.spark.sql.test_plan import Asked
from tests.spark.sql.test_protected_columns import ROWS, protected
from tests.spark.sql.test_protected_writes import Write as ProtectedWrite
from tests.spark.sql.test_protected_writes import files_in
from tests.spark.test_jvm_written_files import encrypted
from tests.support.aws import AwsServer
from tests.support.planner_requests import respond

SCHEMA = Schema(NestedField(1, "id", LongType()))
GIVEN_UP = "the planner gave up this {}, because 1 newer ones are open: .*Run the statement again"


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.catalog.create_table("db.rows", SCHEMA, properties={"encryption.key-id": "alias/orders"})


class TestHandles:
    def test_the_value_that_was_used_longest_ago_is_ended_and_its_owner_is_told_each_time(self) -> None:
        ended: list[str] = []
        handles = Handles("thing", 2, ended.append, "it is gone")
        first, second = handles.add("first"), handles.add("second")
        assert handles[first] == "first"
        third = handles.add("third")
        assert (ended, len(handles)) == (["second"], 2)
        for asked in (handles.__getitem__, handles.pop, handles.pop):
            with pytest.raises(ConfigurationError, match="gave up this thing, because 2 newer ones are open: it is gone"):
                asked(second)
        assert ended == ["second"] * 3, "what its tasks left in the meantime goes when the owner asks for the end"
        assert (handles.pop(first), handles.pop(third)) == ("first", "third")
        with pytest.raises(ConfigurationError, match="run the query again"):
            handles.pop(first)

    def test_of_a_value_without_an_end_only_the_handle_is_remembered_and_no_log_warns(self, caplog: pytest.LogCaptureFixture) -> None:
        """Nobody gives tables and plans back: a long session gives one up with each that it loads."""
        handles: Handles[Planner] = Handles("plan", 1)
        value = Planner()
        memory, first = weakref.ref(value), handles.add(value)
        handles.add(Planner())

        del value
        gc.collect()

        assert memory() is None
        assert not caplog.records
        for asked in (handles.__getitem__, handles.pop):
            with pytest.raises(ConfigurationError, match="gave up this plan"):
                asked(first)

    def test_a_value_that_cannot_be_ended_does_not_stop_another_owner(self) -> None:
        def fails(value: str) -> None:
            raise OSError(value)

        handles = Handles("thing", 1, fails)
        handles.add("first")
        assert handles[handles.add("second")] == "second"
        handles.end_all()
        assert not len(handles)


class TestWrites:
    def test_a_write_that_is_given_up_leaves_no_file_and_is_never_committed(self, table: Table) -> None:
        planner = Planner(Limits(writes=1))
        first = Write(table, planner=planner)
        key, before = first.key, table.metadata_location

        second = Write(table, planner=planner)

        assert not first.path.exists()
        assert second.path.exists()
        with pytest.raises(ConfigurationError, match=GIVEN_UP.format("write")):
            first.asked_for(json.dumps(first.request()))
        # An executor that had the location, and had not finished its file.
        first.path.write_bytes(b"ciphertext")
        with pytest.raises(ConfigurationError, match="its files are deleted, and nothing of it is committed"):
            first.commit(encrypted(key, TASK, report(first.location)))
        assert not first.path.exists()
        assert table.refresh().metadata_location == before
        assert second.path.exists()

    def test_its_owner_may_abort_it_after_its_last_task(self, table: Table) -> None:
        planner = Planner(Limits(writes=1))
        first, _ = Write(table, planner=planner), Write(table, planner=planner)
        first.path.write_bytes(b"ciphertext")
        with pytest.raises(ConfigurationError, match=GIVEN_UP.format("write")):
            respond(planner, abort_write, write=first.handle)
        assert not first.path.exists()

    def test_a_write_whose_tasks_ask_for_files_is_not_the_one_to_go(self, table: Table) -> None:
        planner = Planner(Limits(writes=2))
        first, second = Write(table, planner=planner), Write(table, planner=planner)
        first.asked_for(json.dumps(first.request() | {"number": 1}))
        Write(table, planner=planner)
        assert first.path.exists()
        assert not second.path.exists()

    def test_what_executors_left_of_writes_that_were_given_up_goes_with_the_driver(self, table: Table) -> None:
        planner = Planner(Limits(writes=1))
        first, second = Write(table, planner=planner), Write(table, planner=planner)
        first.path.write_bytes(b"ciphertext")
        planner.abandon_writes()
        assert not first.path.exists()
        assert not second.path.exists()

    def test_no_location_is_given_once_a_write_is_ended(self, table: Table) -> None:
        """A task that asks at the same moment: what it would put there nobody would delete."""
        write = Write(table)
        opened = write.planner.writes[write.handle]
        opened.remove_files_except(())
        with pytest.raises(ConfigurationError, match="the write has ended"):
            opened.locations.respond(json.dumps(write.request()))


class TestAttemptsOfExecutors:
    def test_an_attempt_that_is_given_up_leaves_no_file(self, lake: Lake, aws: AwsServer) -> None:
        table = protected(lake, aws, "db.people")
        before = files_in(lake)
        write = ProtectedWrite(Asked(lake, "db.people"))
        write.executor = Planner(Limits(attempts=1))
        first = write.start()
        write.write(first, ROWS)
        assert files_in(lake) > before

        second = write.start()

        assert files_in(lake) == before
        for late, fields in (("finish_file", {}), ("stop_writing", {"keep": True})):
            with pytest.raises(ConfigurationError, match=GIVEN_UP.format("attempt at a task")):
                write.in_task(late, writer=first, **fields)
        # The task fails with that, and reports nothing.
        write.reported.clear()
        write.write(second, ROWS, 1)
        write.in_task("stop_writing", writer=second, keep=True)
        write.commit()
        assert maintenance.verify(table.refresh()).is_good
        assert table.scan().to_arrow().num_rows == 2 * ROWS.num_rows


class TestReads:
    def test_a_read_that_is_given_up_stops_reading_ahead_and_does_not_look_like_its_end(self) -> None:
        stopped: list[str] = []

        def endless() -> Iterator[pa.RecordBatch]:
            try:
                while True:
                    yield pa.RecordBatch.from_pydict({"id": [1]})
            finally:
                stopped.append("first")

        planner = Planner(Limits(readers=1))
        rows = TaskRows(endless())
        first = planner.readers.add(rows)
        assert respond(planner, "next_rows", reader=first).fields == {"end": False}

        planner.readers.add(TaskRows(iter(())))

        for late in ("next_rows", "stop_reading"):
            with pytest.raises(ConfigurationError, match=GIVEN_UP.format("read of a file")):
                respond(planner, late, reader=first)
        with pytest.raises(ConfigurationError, match="closed before its end"):
            rows.next()


class TestStagedTables:
    def test_a_table_that_is_given_up_is_not_made_and_leaves_no_file(self, lake: Lake) -> None:
        planner = Planner(Limits(staged=1))
        staged = staged_table(lake, "db.first")
        data = Path(urlsplit(staged.transaction.table.location()).path) / "data"
        kept, late = (file_at(data / f"00000-0-{uuid.uuid4()}-{number:05d}.parquet") for number in range(2))
        first = planner.staged.add(staged)
        staged.keep([kept], {})

        planner.staged.add(staged_table(lake, "db.second"))

        with pytest.raises(ConfigurationError, match="was given up"):
            staged.keep([late], {})
        assert not list(data.iterdir())
        for end in ("commit_staged", "abort_staged"):
            with pytest.raises(ConfigurationError, match=GIVEN_UP.format("new table")):
                respond(planner, end, staged=first)
        with pytest.raises(NoSuchTableError):
            lake.catalog.load_table("db.first")


@pytest.mark.parametrize(
    ("kept", "handle", "asked", "fields"),
    [("tables", "table", "answered", {"filter": []}), ("plans", "plan", "open_files", {"portable": [], "with_deleted": False})],
)
def test_a_query_whose_plan_was_given_up_says_so(kept: str, handle: str, asked: str, fields: dict[str, Any]) -> None:
    planner = Planner(Limits(**{kept: 1}))
    values: Any = getattr(planner, kept)
    first = values.add(object())
    values.add(object())
    with pytest.raises(ConfigurationError, match=r"gave up this .*nothing was changed"):
        respond(planner, asked, **{handle: first}, **fields)


def staged_table(lake: Lake, name: str) -> StagedTable:
    transaction = lake.catalog.create_table_transaction(name, SCHEMA, properties={"encryption.key-id": "alias/orders"})
    assert isinstance(transaction, EncryptedTransaction)
    return StagedTable(transaction, replaces=False)


def file_at(path: Path) -> DataFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"ciphertext")
    return DataFile.from_args(file_path=path.as_uri())
