"""The end of a write, as tasks and the driver ask for it: whoever forges a result commits nothing, and no file of the write stays."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import uuid
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField
from pyroaring import BitMap

from tablecrypt.errors import AuthenticationError, ConfigurationError, FormatError
from tablecrypt.spark.shared.task_keys import ResultKey
from tablecrypt.spark.sql.messages import SentRequest
from tablecrypt.spark.sql.planner import LoadedTable, Planner
from tablecrypt.spark.sql.writes.commits import abort_write, begin_write, commit_write, file_location
from tablecrypt.spark.sql.writes.programs import PlannedWrite, Statement
from tablecrypt.spark.sql.writes.row_level import can_delete_where, delete_where, row_change
from tablecrypt.spark.tables import LocatedTable
from tablecrypt.table.metadata import changed_metadata
from tablecrypt.table.table import EncryptedTable
from tests.spark.test_jvm_written_files import encrypted, sized
from tests.support.aws import AwsServer
from tests.support.plaintext_scan import unwatch
from tests.support.planner_requests import respond
from tests.support.tables import MASTER_KEY, encrypted_sql_catalog, path_of

TASK: Final = 0
ATTEMPT: Final = 17
LOCAL: Final = {"spark.master": "local[2]"}
BEGUN: Final = {"mode": "append", "filter": [], "options": {}, "case_sensitive": False}
"""What Java says of a plain append."""


@pytest.fixture(scope="module")
def table(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Table:
    folder = tmp_path_factory.mktemp("written")
    unwatch(folder)
    schema = Schema(NestedField(1, "id", LongType()))
    table = encrypted_sql_catalog(folder, aws).create_table("db.rows", schema, properties={"encryption.key-id": MASTER_KEY})
    table.append(pa.table({"id": [1, 2, 3]}))
    return table


class Write:
    """One write, with a file that its only task has put where it was told."""

    def __init__(self, table: Table, mode: str = "append", *, planner: Planner | None = None, **fields: Any) -> None:
        assert isinstance(table, EncryptedTable)
        self.planner = planner or Planner()
        loaded = LoadedTable(LocatedTable.of_table(table), "prod", "main", table.metadata.current_snapshot_id, is_writable=True)
        self.table = self.planner.tables.add(loaded)
        asked = {**BEGUN, "table": self.table, "mode": mode, **fields}
        self.handle = respond(self.planner, begin_write, **asked).fields["write"]
        self.location = self.asked_for(json.dumps(self.request()))
        self.path = path_of(self.location)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(b"ciphertext")

    def request(self) -> dict[str, Any]:
        return {"request": "location", "task": TASK, "attempt": ATTEMPT, "unique": str(uuid.uuid4()), "number": 0, "partition": ""}

    def asked_for(self, text: str) -> str:
        return str(respond(self.planner, file_location, write=self.handle, request=text).fields["location"])

    @property
    def key(self) -> ResultKey:
        return self.planner.writes[self.handle].key

    def commit(self, *results: bytes, **fields: Any) -> None:
        respond(self.planner, commit_write, b"".join(map(sized, results)), write=self.handle, **fields)


def report(location: str | None = None, attempt: int = ATTEMPT, deleted: dict[str, list[int]] | None = None, *, times: int = 1) -> bytes:
    """A task's result before it is encrypted, of one file at most, which it may name several times."""
    files = b""
    if location is not None:
        files = b"\x00" + sized(location.encode()) + struct.pack(">Q", 10) + sized(bytes(16)) + sized(bytes(16)) + sized(b"")
        files += struct.pack(">I", 0) + sized(b"no footer")
    deletes = b"".join(sized(name.encode()) + sized(BitMap(positions).serialize()) for name, positions in (deleted or {}).items())
    return struct.pack(">QI", attempt, times if files else 0) + files * times + struct.pack(">I", len(deleted or {})) + deletes


FORGERIES: Final[dict[str, tuple[Callable[[Write], bytes], type[Exception]]]] = {
    "bytes of nobody": (lambda write: bytes(200), AuthenticationError),
    "of another write": (lambda write: encrypted(ResultKey(), TASK, report(write.location)), AuthenticationError),
    "of another task": (lambda write: encrypted(write.key, TASK + 1, report(write.location)), AuthenticationError),
    "a file elsewhere": (lambda write: encrypted(write.key, TASK, report(write.location + "x")), AuthenticationError),
    "a file of another attempt": (lambda write: encrypted(write.key, TASK, report(write.location, ATTEMPT + 1)), AuthenticationError),
    "a file twice": (lambda write: encrypted(write.key, TASK, report(write.location, times=2)), AuthenticationError),
    "a file without footer": (lambda write: encrypted(write.key, TASK, report(write.location)), FormatError),
    "deleted rows in an append": (lambda write: encrypted(write.key, TASK, report(deleted={"file:///x": [1]})), FormatError),
    "no result": (lambda write: encrypted(write.key, TASK, b""), FormatError),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_result_commits_nothing_and_the_files_of_the_write_go(table: Table, forgery: str) -> None:
    forged, error = FORGERIES[forgery]
    before = table.refresh().metadata_location
    write = Write(table)

    with pytest.raises(error):
        write.commit(forged(write))

    assert table.refresh().metadata_location == before
    assert not write.path.exists()
    with pytest.raises(ConfigurationError, match="run the query again"):
        write.asked_for(json.dumps(write.request()))


@pytest.mark.parametrize("scans", [None, [], [{"plan": "f00", "files": [0]}]], ids=str)
def test_a_change_of_rows_that_its_query_did_not_read_is_refused(table: Table, scans: Any) -> None:
    before = table.refresh().metadata_location
    [path, *_] = [task.file.file_path for task in table.scan().plan_files()]
    write = Write(table, "delta", command="delete")

    with pytest.raises((FormatError, ConfigurationError)):
        write.commit(encrypted(write.key, TASK, report(deleted={path: [0]})), scans=scans)

    assert table.refresh().metadata_location == before
    assert not write.path.exists()


@pytest.mark.parametrize("scans", [[{}], "none", [3]], ids=str)
def test_a_commit_that_is_not_understood_leaves_the_write_to_its_owner(table: Table, scans: Any) -> None:
    before = table.refresh().metadata_location
    write = Write(table, "delta", command="delete")

    with pytest.raises(FormatError, match=r"commit_write .*scans"):
        write.commit(encrypted(write.key, TASK, report()), scans=scans)

    assert table.refresh().metadata_location == before
    respond(write.planner, abort_write, write=write.handle)
    assert not write.path.exists()


def test_a_commit_that_does_not_say_which_batch_it_is_leaves_no_file(table: Table) -> None:
    before = table.refresh().metadata_location
    write = Write(table, query_id="q")

    with pytest.raises(FormatError, match="the commit of a micro-batch does not say which one it is"):
        write.commit(encrypted(write.key, TASK, report(write.location)))

    assert table.refresh().metadata_location == before
    assert not write.path.exists()


def test_an_attempt_that_did_not_win_leaves_no_file_and_a_write_of_no_rows_no_snapshot(table: Table) -> None:
    before = table.refresh().metadata_location
    write = Write(table)

    write.commit(encrypted(write.key, TASK, report()))

    assert not write.path.exists()
    assert table.refresh().metadata_location == before


def test_a_write_ends_once(table: Table) -> None:
    write = Write(table)
    kept = encrypted(write.key, TASK, report())

    respond(write.planner, abort_write, write=write.handle)

    assert not write.path.exists()
    for end in (lambda: write.commit(kept), lambda: respond(write.planner, abort_write, write=write.handle)):
        with pytest.raises(ConfigurationError, match="run the query again"):
            end()


def test_what_a_request_for_a_location_says_is_not_shown(table: Table) -> None:
    write = Write(table)

    for text in ("{}", "s3cret", json.dumps({**write.request(), "partition": "s3cret!"}), json.dumps({**write.request(), "task": -1})):
        with pytest.raises(FormatError) as raised:
            write.asked_for(text)
        assert "s3cret" not in str(raised.value)


def test_modes_and_tables_that_cannot_be_written_are_refused_before_a_task_runs(table: Table) -> None:
    with pytest.raises(FormatError, match="'sideways' is not known"):
        Write(table, "sideways")
    assert isinstance(table, EncryptedTable)
    planner = Planner()
    tagged = planner.tables.add(LoadedTable(LocatedTable.of_table(table), "prod", "main", None, is_writable=False))
    for operation, fields in ((begin_write, BEGUN), (row_change, {"command": "delete"}), (delete_where, {"filter": []})):
        with pytest.raises(ConfigurationError, match="which cannot change"):
            respond(planner, operation, table=tagged, **fields)
    lost = planner.tables.add(LoadedTable(LocatedTable.of_table(table), "prod", "nowhere", None, is_writable=True))
    with pytest.raises(ConfigurationError, match="no branch 'nowhere'"):
        respond(planner, begin_write, table=lost, **BEGUN)


@pytest.mark.parametrize(
    ("properties", "command", "named"),
    [
        ({"write.update.mode": "sometimes"}, "update", "it must be copy-on-write or merge-on-read"),
        ({}, "upsert", "'upsert' is not known"),
    ],
    ids=["mode", "command"],
)
def test_row_changes_of_no_known_kind_are_refused(table: Table, properties: dict[str, str], command: str, named: str) -> None:
    assert isinstance(table, EncryptedTable)
    write = Write(table)
    # As another client may have stored it: none of ours does.
    table.metadata = changed_metadata(table.metadata, {"properties": {**table.metadata.properties, **properties}})
    changed = write.planner.tables.add(LoadedTable(LocatedTable.of_table(table), "prod", "main", None, is_writable=True))

    with pytest.raises((ConfigurationError, FormatError), match=named):
        respond(write.planner, row_change, table=changed, command=command)


def test_a_condition_that_has_no_exact_meaning_is_not_taken_for_one_on_whole_files(table: Table) -> None:
    write = Write(table)

    for predicate in ({"op": "?"}, {"op": "=", "args": [{"column": ["no such column"]}, {"value": 1, "type": "bigint"}]}):
        assert respond(write.planner, can_delete_where, table=write.table, filter=[predicate]).fields == {"whole": False}
        with pytest.raises(ConfigurationError, match="use DELETE, UPDATE or MERGE"):
            respond(write.planner, delete_where, table=write.table, filter=[predicate])
    assert respond(write.planner, can_delete_where, table=write.table, filter=[]).fields == {"whole": True}


def test_the_files_of_open_writes_go_with_the_driver_and_those_of_ended_ones_stay(table: Table) -> None:
    ended, left = Write(table), Write(table)
    ended.planner.writes.pop(ended.handle)

    for write in (ended, left):
        write.planner.abandon_writes()

    assert ended.path.exists() and not left.path.exists()
    ended.path.unlink()


def test_a_planner_whose_driver_is_gone_deletes_what_its_open_writes_wrote(table: Table, aws: AwsServer) -> None:
    catalog = {name: value for name, value in table.catalog.properties.items() if name != "name"}
    before = table.refresh().metadata_location
    with subprocess.Popen([sys.executable, "-P", "-m", "tablecrypt.spark.sql"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as planner:
        opened = asked(
            planner, {"operation": "open_catalog", "name": "prod", "properties": catalog, "in_spark": [], "of_session": [], "spark": LOCAL}
        )
        named = {"catalog": opened["catalog"], "namespace": ["db"], "name": "rows"}
        loaded = asked(planner, {"operation": "load_table", **named})
        handle = asked(planner, {"operation": "begin_write", "table": loaded["table"], **BEGUN})["write"]
        location = {"request": "location", "task": 0, "attempt": 1, "unique": str(uuid.uuid4()), "number": 0, "partition": ""}
        told = asked(planner, {"operation": "file_location", "write": handle, "request": json.dumps(location)})
        path = path_of(told["location"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"ciphertext")

        assert planner.stdin is not None
        planner.stdin.close()
        assert planner.wait(60) == 0

    assert not path.exists()
    assert table.refresh().metadata_location == before


def asked(planner: subprocess.Popen[bytes], fields: dict[str, Any]) -> dict[str, Any]:
    """Send a request to a planner's process as the JVM does, and return the fields of the response."""
    assert planner.stdin is not None and planner.stdout is not None
    encoded = json.dumps(fields).encode()
    planner.stdin.write(struct.pack(">III", 8 + len(encoded), 1, len(encoded)) + encoded)
    planner.stdin.flush()
    length, _, size = struct.unpack(">III", planner.stdout.read(12))
    found: dict[str, Any] = json.loads(planner.stdout.read(length - 8)[:size])
    assert "error" not in found, found
    return found


def test_the_write_of_a_program_gives_what_a_write_asks_for_and_nothing_else(table: Table) -> None:
    assert isinstance(table, EncryptedTable)
    nothing: Any = None
    statement = Statement(PlannedWrite(nothing, LocatedTable.of_table(table), nothing, by_partition=False, sort_by=("id",)))

    ordering = statement.respond(SentRequest("write_layout", {"table": statement.table["table"], "rows": True, **BEGUN})).fields["ordering"]

    assert [(each["column"], each["nulls_first"]) for each in ordering] == [(["id"], True)]
    with pytest.raises(FormatError, match="a write asks for 'drop_table'"):
        statement.respond(SentRequest("drop_table", {}))
    assert statement.refusal is None
