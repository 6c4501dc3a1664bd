"""Rows of tables with protected columns that Spark SQL writes: Python puts the columns under their keys, in the process where a task runs.

The adversary exchanges what a task reports, or shreds a column meanwhile. The careless user writes what he may not read, or kills tasks.
"""

from __future__ import annotations

import base64
import json
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.exceptions import CommitFailedException

from tablecrypt import maintenance
from tablecrypt.errors import ColumnKeyDeniedError, ConfigurationError, FormatError
from tablecrypt.spark.sql.calls import Call
from tablecrypt.spark.sql.local_rows import arrow_stream
from tablecrypt.spark.sql.planner import Planner
from tablecrypt.spark.sql.procedures import PROCEDURES
from tablecrypt.spark.tables import LocatedTable
from tablecrypt.spark.write import WriteOptions, prepare
from tablecrypt.table.protection.writing import StaleWriteError
from tablecrypt.table.table import EncryptedTable
from tests.spark.conftest import Lake
from tests.spark.sql.test_plan import Asked
from tests.spark.test_jvm_written_files import encrypted, sized
from tests.support.aws import AwsServer
from tests.support.plaintext import CANARY
from tests.support.planner_requests import respond
from tests.support.protected_tables import counted_columns, opened_by_table_key
from tests.support.tables import metadata_of
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: Final = pa.table({"id": [1, 2, 3], "ssn": [f"{CANARY}-1", None, f"{CANARY}-3"], "note": ["a", "b", "a"]})
NO_ROWS: Final = pa.RecordBatch.from_pylist([], ROWS.schema)
SSN: Final = 2
TABLE_KEY_ALONE: Final = {"encryption.allowed-key-ids": "alias/orders"}
ATTEMPT: Final = 17
COLUMNS: Final = (
    "id BIGINT NOT NULL, ssn STRING, person STRUCT<email: STRING, age: INT>, salary DECIMAL(9, 2), born DATE, seen TIMESTAMP, "
    "tags ARRAY<STRING>, props MAP<STRING, DOUBLE>, part STRING"
)
PROTECTED: Final = {"ssn", "person.email", "salary", "tags", "born"}
ROW: Final = (
    f"concat('{CANARY}-', {{id}}) AS ssn, "
    f"IF({{id}} % 5 = 0, NULL, named_struct('email', concat('{CANARY}@', {{id}}), 'age', CAST({{id}} AS INT))) AS person, "
    "CAST({id} AS DECIMAL(9, 2)) AS salary, DATE'2020-01-01' + CAST({id} AS INT) AS born, timestamp_seconds({id}) AS seen, "
    f"IF({{id}} % 3 = 0, NULL, array('{CANARY}', CAST({{id}} AS STRING))) AS tags, map('m', CAST({{id}} AS DOUBLE)) AS props, "
    "IF({id} % 2 = 0, 'even', 'odd') AS part"
)
STATEMENTS: Final = (
    "INSERT INTO {t} SELECT id, {row} FROM range(0, 20, 1, 2)",
    "INSERT INTO {t} SELECT id + 100, ssn, person, salary, born, seen, tags, props, part FROM {t} WHERE ssn LIKE '%-1%'",
    "INSERT INTO {t} BY NAME SELECT id, IF(id = 200, NULL, 'x') AS ssn, NULL AS person, NULL AS salary, NULL AS born, NULL AS seen, "
    "NULL AS tags, NULL AS props, NULL AS part FROM range(200, 202)",
    f"UPDATE {{t}} SET ssn = concat(ssn, '-new'), salary = salary + 1 WHERE ssn = '{CANARY}-3' OR id > 110",
    "UPDATE {t} SET person.age = 7, part = 'moved' WHERE id = 4",
    "MERGE INTO {t} t USING (SELECT id, {row} FROM range(15, 25)) s ON t.id = s.id WHEN MATCHED AND s.id = 15 THEN DELETE "
    "WHEN MATCHED THEN UPDATE SET ssn = 'merged', tags = NULL WHEN NOT MATCHED THEN INSERT * "
    "WHEN NOT MATCHED BY SOURCE AND t.id = 1 THEN UPDATE SET person = NULL",
    "INSERT OVERWRITE {t} PARTITION (part = 'moved') SELECT id + 300, ssn, person, salary, born, seen, tags, props FROM {t} WHERE id = 4",
    "DELETE FROM {t} WHERE salary = 6",
)
"""In them {t} is a table, and {row} stands for all columns but the id."""


@pytest.fixture
def people(lake: Lake, aws: AwsServer) -> EncryptedTable:
    declared = {"encryption.key-id": "alias/orders", "encryption.column-keys": f"{aws.new_key()}: ssn"}
    return cast("EncryptedTable", lake.catalog.create_table("db.people", ROWS.schema, properties=declared))


@pytest.fixture
def payroll(lake: Lake, people: EncryptedTable) -> Asked:
    return Asked(lake, "db.people")


@pytest.fixture
def analyst(lake: Lake, people: EncryptedTable) -> Asked:
    return Asked(replace(lake, properties=lake.properties | TABLE_KEY_ALONE), "db.people")


class Write:
    """A write, as the driver's JVM begins it, and its one task, in an executor's process: without a catalog or a key service."""

    def __init__(self, driver: Asked, mode: str = "append", *, options: dict[str, str] | None = None, **fields: Any) -> None:
        self.driver, self.executor = driver, Planner()
        begun = driver("begin_write", table=driver.table, mode=mode, filter=[], options=options or {}, case_sensitive=False, **fields)
        self.handle, self.fields, self.content = begun.fields["write"], begun.fields, begun.content
        self.key = driver.planner.writes[self.handle].key
        self.reported: list[bytes] = []

    def in_task(self, operation: str, content: bytes = b"", /, **fields: Any) -> Any:
        return respond(self.executor, operation, content, **fields)

    def start(self, rows: pa.RecordBatch = NO_ROWS) -> str:
        return str(self.in_task("start_writing", sized(self.content) + arrow_stream(rows)).fields["writer"])

    def location(self, number: int = 0, partition: bytes = b"") -> str:
        asked = {"request": "location", "task": 0, "attempt": ATTEMPT, "unique": str(uuid.uuid4()), "number": number}
        text = json.dumps(asked | {"partition": base64.b64encode(partition).decode()})
        return str(self.driver("file_location", write=self.handle, request=text).fields["location"])

    def write(self, writer: str, rows: pa.Table, number: int = 0, partition: bytes = b"") -> str:
        """Write a file, and remember what the task reports of it. Return its location."""
        location = self.location(number, partition)
        self.in_task("start_file", partition, writer=writer, location=location)
        for batch in rows.to_batches():
            self.in_task("write_rows", arrow_stream(batch), writer=writer)
        entry = self.in_task("finish_file", writer=writer).content
        self.reported.append(b"\x01" + sized(location.encode()) + sized(entry))
        return location

    def commit(self, files: Sequence[bytes] | None = None) -> None:
        reported = self.reported if files is None else files
        result = struct.pack(">QI", ATTEMPT, len(reported)) + b"".join(reported) + struct.pack(">I", 0)
        respond(self.driver.planner, "commit_write", sized(encrypted(self.key, 0, result)), write=self.handle, scans=[])


def rows_of(table: EncryptedTable) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.refresh().scan().to_arrow().sort_by("id").to_pylist()
    return found


def files_in(lake: Lake, name: str = "") -> set[str]:
    folder = f"{name.replace('.', '/')}/"
    return {str(path) for path in lake.warehouse.rglob("*.parquet") if folder in str(path)}


def test_a_task_writes_what_the_table_holds_and_nothing_of_it_opens_with_the_table_s_key(payroll: Asked, people: EncryptedTable) -> None:
    write = Write(payroll)
    writer = write.start()
    write.write(writer, ROWS)
    write.write(writer, ROWS.slice(0, 1), 1)
    write.in_task("stop_writing", writer=writer, keep=True)
    write.commit()

    assert rows_of(people) == [ROWS.to_pylist()[0], *ROWS.to_pylist()]
    assert people.scan(f"ssn = '{CANARY}-3'").to_arrow().num_rows == 1
    assert counted_columns(people) == {1, 3}
    assert not [found for found in opened_by_table_key(people) if CANARY.encode() in found]
    assert not maintenance.audit(people).findings


def test_files_are_of_one_partition_that_no_name_shows_and_are_written_as_the_options_say(lake: Lake, people: EncryptedTable) -> None:
    with people.update_spec() as change:
        change.add_identity("note")
    write = Write(Asked(lake, "db.people"), options={"target-file-size-bytes": "1048576"})
    assert write.fields["settings"] == {"tablecrypt.target-file-size": "1048576"}
    writer = write.start()
    for number, note in enumerate("ab"):
        rows = ROWS.filter(pc.equal(ROWS["note"], note))
        assert "note=" not in write.write(writer, rows, number, b"\x01" + sized(note.encode()))
    write.commit()

    assert rows_of(people) == ROWS.to_pylist()
    assert [task.file.partition[0] for task in people.scan("note = 'b'").plan_files()] == ["b"]


def _a_row_group() -> pa.RecordBatch:
    """Rows that fill a row group of the smallest file that a table with protected columns has."""
    [few] = ROWS.to_batches()
    return pa.record_batch({**few.to_pydict(), "ssn": ["x" * 500_000] * len(few)}, schema=few.schema)


def test_a_file_tells_of_its_size_as_soon_as_a_row_group_is_full(payroll: Asked) -> None:
    for rows, is_stored in ((_a_row_group(), True), (ROWS.to_batches()[0], False)):
        write = Write(payroll, options={"target-file-size-bytes": "1048576"})
        writer = write.start()
        write.in_task("start_file", writer=writer, location=write.location())
        told = write.in_task("write_rows", arrow_stream(rows), writer=writer).fields["length"]
        assert (told > 0) is is_stored
        write.in_task("stop_writing", writer=writer, keep=False)


def test_rows_that_move_keep_their_lineage(payroll: Asked, people: EncryptedTable) -> None:
    write = Write(payroll, "delta", command="update")
    lineage = {"_row_id": pa.array([40, None, 42], pa.int64()), "_last_updated_sequence_number": pa.nulls(3, pa.int64())}
    moved = pa.table({**dict(zip(ROWS.column_names, ROWS.columns, strict=True)), **lineage})
    write.write(write.start(pa.RecordBatch.from_pylist([], moved.schema)), moved)
    write.commit()

    found = people.refresh().scan("id != 2", selected_fields=("id", "_row_id")).to_arrow().sort_by("id")
    assert found["_row_id"].to_pylist() == [40, 42]
    assert rows_of(people) == ROWS.to_pylist()


def test_an_attempt_that_is_stopped_leaves_no_file_and_writes_no_more(payroll: Asked, lake: Lake) -> None:
    write = Write(payroll, options={"target-file-size-bytes": "1048576"})
    writer, batch = write.start(), _a_row_group()
    write.write(writer, ROWS)
    write.in_task("start_file", writer=writer, location=write.location(1))
    write.in_task("write_rows", arrow_stream(batch), writer=writer)
    attempt = write.executor.attempts[writer]
    assert len(files_in(lake)) == 2

    write.in_task("stop_writing", writer=writer, keep=False)
    assert not files_in(lake)
    for late in (lambda: attempt.write(batch), lambda: attempt.start_file("file:///x", b""), attempt.finish_file):
        with pytest.raises(ConfigurationError, match="has ended"):
            late()


def test_the_files_of_attempts_go_with_the_executor(payroll: Asked, lake: Lake) -> None:
    write = Write(payroll)
    write.write(write.start(), ROWS)
    assert files_in(lake)
    write.executor.abandon_writes()
    assert not files_in(lake)


def test_columns_of_another_type_fail_the_task(payroll: Asked) -> None:
    wrong = pa.RecordBatch.from_pydict({"id": [1], "ssn": [1], "note": ["a"]})
    with pytest.raises(ConfigurationError, match="'ssn' is"):
        Write(payroll).start(wrong)


@pytest.mark.parametrize("cut", [0, 3, 40])
def test_content_for_tasks_that_is_not_whole_is_refused(payroll: Asked, cut: int) -> None:
    write = Write(payroll)
    for content in (sized(write.content)[:cut], sized(write.content[:cut]) + arrow_stream(NO_ROWS), sized(write.content)):
        with pytest.raises(FormatError):
            write.in_task("start_writing", content)


def test_what_a_task_reports_of_another_file_is_not_committed(payroll: Asked, people: EncryptedTable, lake: Lake) -> None:
    write = Write(payroll)
    writer = write.start()
    first, _ = write.write(writer, ROWS), write.write(writer, ROWS, 1)
    entry_of_second = write.reported[1][1 + 4 + len(first) :]
    with pytest.raises(FormatError, match="that of another file"):
        write.commit([b"\x01" + sized(first.encode()) + entry_of_second])
    assert not people.refresh().metadata.snapshots
    assert not files_in(lake)


def test_a_file_of_spark_s_own_writer_which_knows_no_column_keys_is_not_committed(payroll: Asked, people: EncryptedTable) -> None:
    write = Write(payroll)
    described = sized(write.location().encode()) + struct.pack(">Q", 4) + sized(bytes(16)) + sized(bytes(16)) + sized(b"")
    with pytest.raises(FormatError, match="another writer wrote it"):
        write.commit([b"\x00" + described + struct.pack(">I", 0) + sized(b"")])
    assert not people.refresh().metadata.snapshots


def test_keys_for_tasks_are_in_nothing_that_the_driver_shows(payroll: Asked) -> None:
    write = Write(payroll)
    assert b"opened_keks" in write.content
    shown = json.dumps(write.fields) + repr(payroll.planner.writes[write.handle])
    assert "opened_keks" not in shown


@pytest.mark.parametrize("mode", ["append", "overwrite", "overwrite_partitions", "groups", "delta"])
def test_who_may_not_read_a_column_begins_no_write_of_rows(analyst: Asked, people: EncryptedTable, mode: str) -> None:
    before = people.refresh().metadata_location
    with pytest.raises(ColumnKeyDeniedError):
        Write(analyst, mode, command="update")
    assert people.refresh().metadata_location == before


def test_a_change_that_only_deletes_needs_no_right_and_gets_no_location_for_a_file(analyst: Asked) -> None:
    for command, refused in (("merge", ColumnKeyDeniedError), ("delete", ConfigurationError)):
        write = Write(analyst, "delta", command=command)
        assert not write.content
        with pytest.raises(refused):
            write.location()
        analyst("abort_write", write=write.handle)


def test_a_delete_commits_no_column_keys(payroll: Asked, people: EncryptedTable) -> None:
    before = metadata_of(people).key_ring.column_keys
    Write(payroll, "delta", command="delete")
    assert metadata_of(people.refresh()).key_ring.column_keys == before


def test_column_keys_are_committed_with_the_first_write_alone(payroll: Asked, lake: Lake, people: EncryptedTable) -> None:
    Write(payroll)
    once = people.refresh().metadata_location
    assert len(metadata_of(people).key_ring.column_keys) == 1

    Write(payroll)
    Write(Asked(lake, "db.people"))
    assert people.refresh().metadata_location == once


def test_a_write_for_which_keys_are_made_while_others_commit_is_to_be_run_again(lake: Lake, people: EncryptedTable) -> None:
    maintenance.shred_column(people, "ssn", delete_below=[people.location()])
    payroll = Asked(lake, "db.people")
    people.append(ROWS.slice(0, 1))
    with pytest.raises(CommitFailedException, match="run the statement again"):
        Write(payroll, "overwrite")


def declare(people: EncryptedTable, **properties: str) -> None:
    with people.refresh().transaction() as transaction:
        transaction.set_properties({f"encryption.{name.replace('_', '-')}": value for name, value in properties.items()})


CHANGES: Final[dict[str, Callable[[EncryptedTable, AwsServer], object]]] = {
    "a column was declared": lambda people, aws: declare(people, column_keys=f"{aws.new_key()}: ssn; {aws.new_key()}: note"),
    "another master key": lambda people, aws: declare(people, column_keys=f"{aws.new_key()}: ssn"),
    "a column was shredded": lambda people, aws: maintenance.shred_column(people.refresh(), "ssn", delete_below=[people.location()]),
}


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_rows_that_tasks_wrote_before_columns_were_protected_otherwise_are_not_committed(
    payroll: Asked, people: EncryptedTable, lake: Lake, aws: AwsServer, change: Callable[[EncryptedTable, AwsServer], object], mode: str
) -> None:
    write = Write(payroll, mode)
    write.write(write.start(), ROWS)
    change(people, aws)
    with pytest.raises(StaleWriteError, match="since the rows were written; nothing was committed"):
        write.commit()
    assert not people.refresh().metadata.snapshots
    assert not files_in(lake)


def declared(aws: AwsServer, columns: str, **properties: str) -> str:
    """TBLPROPERTIES of a table with these protected columns."""
    given = {"encryption.key-id": "alias/orders", "encryption.column-keys": f"{aws.new_key()}: {columns}", **properties}
    return f"TBLPROPERTIES ({', '.join(f'{name!r} = {value!r}' for name, value in given.items())})"


def loaded(lake: Lake, name: str) -> EncryptedTable:
    return cast("EncryptedTable", lake.catalog.load_table(name))


def protected_ids(table: EncryptedTable) -> set[int]:
    return {table.schema().find_field(name).field_id for name in PROTECTED}


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_statements_leave_the_rows_that_they_leave_in_a_table_without_protected_columns(
    spark: SparkSession, prod: Lake, aws: AwsServer, new_name: str, mode: str
) -> None:
    # Imported here: most of these tests need no Spark.
    from pyspark.sql import functions

    modes = {f"write.{command}.mode": mode for command in ("delete", "update", "merge")}
    name, other = f"prod.{new_name}", f"prod.{new_name}_other"
    properties = declared(aws, ", ".join(sorted(PROTECTED)), **modes, **{"encryption.column-guard": "false"})
    spark.sql(f"CREATE TABLE {name} ({COLUMNS}) PARTITIONED BY (part) {properties}")
    spark.sql(f"CREATE TABLE {other} ({COLUMNS}) PARTITIONED BY (part) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')")
    table, expected = loaded(prod, new_name), loaded(prod, f"{new_name}_other")
    assert {table.metadata.properties[each] for each in modes} == {mode}

    for statement in STATEMENTS:
        kept = identities(table)
        for each in (name, other):
            spark.sql(statement.format(t=each, row=ROW.format(id="id")))
        assert rows_of(table) == rows_of(expected), statement
        if statement.startswith("UPDATE"):
            assert identities(table) == kept
    for each in (name, other):
        rows = spark.sql(f"SELECT id, {ROW.format(id='id')} FROM range(400, 410)").withColumn("part", functions.lit("z"))
        rows.writeTo(each).append()
        rows.filter("id < 403").writeTo(each).overwrite(functions.col("part") == "z")
        rows.filter("id > 407").writeTo(each).overwritePartitions()
    assert rows_of(table) == rows_of(expected)

    assert not counted_columns(table) & protected_ids(table)
    assert not [found for found in opened_by_table_key(table) if CANARY.encode() in found]
    assert not [finding for finding in maintenance.audit(table).findings if finding.kind.name.startswith("COLUMN_")]
    assert not maintenance.verify(table).bad


def identities(table: EncryptedTable) -> dict[int, int]:
    """The row id of each row, by its id."""
    found = table.refresh().scan(selected_fields=("id", "_row_id")).to_arrow()
    return dict(zip(found["id"].to_pylist(), found["_row_id"].to_pylist(), strict=True))


@pytest.mark.java
@pytest.mark.slow
def test_tables_are_made_and_replaced_with_their_rows_under_column_keys(
    spark: SparkSession, of_analyst: SparkSession, prod: Lake, aws: AwsServer, new_name: str
) -> None:
    name, select = f"prod.{new_name}", f"SELECT id, {ROW.format(id='id')} FROM range(6)"
    properties = declared(aws, "ssn, tags, person")
    with pytest.raises(Exception, match=r"which this client does not allow|does not let you use"):
        of_analyst.sql(f"CREATE TABLE {name} {properties} AS {select}")
    assert not prod.catalog.table_exists(new_name)
    assert not files_in(prod, new_name)

    spark.sql(f"CREATE TABLE {name} PARTITIONED BY (part) {properties} AS {select}")
    first = rows_of(loaded(prod, new_name))
    spark.sql(f"CREATE OR REPLACE TABLE {name} {properties} AS SELECT * FROM {name} WHERE id > 2")
    table = loaded(prod, new_name)
    assert rows_of(table) == first[3:]
    assert not counted_columns(table) & {table.schema().find_field(each).field_id for each in ("ssn", "tags", "person")}
    assert not [found for found in opened_by_table_key(table) if CANARY.encode() in found]

    with pytest.raises(Exception, match=r"which this client does not allow|does not let you use"):
        of_analyst.sql(f"CREATE OR REPLACE TABLE {name} {properties} AS SELECT id, ssn, tags, person FROM {name}")
    assert rows_of(table) == first[3:]


@pytest.mark.java
@pytest.mark.slow
def test_a_stream_writes_each_batch_once(spark: SparkSession, prod: Lake, aws: AwsServer, new_name: str, tmp_path: Path) -> None:
    source, name = f"prod.{new_name}_source", f"prod.{new_name}"
    spark.sql(f"CREATE TABLE {source} (id BIGINT, ssn STRING) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')")
    spark.sql(f"CREATE TABLE {name} (id BIGINT, ssn STRING) {declared(aws, 'ssn')}")
    for first in (0, 3):
        spark.sql(f"INSERT INTO {source} SELECT id, concat('{CANARY}-', id) FROM range({first}, {first + 3})")
        stream = spark.readStream.table(source).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        stream.trigger(availableNow=True).toTable(name).awaitTermination()

    table = loaded(prod, new_name)
    assert rows_of(table) == [{"id": each, "ssn": f"{CANARY}-{each}"} for each in range(6)]
    assert not [found for found in opened_by_table_key(table) if CANARY.encode() in found]


@pytest.mark.java
@pytest.mark.slow
def test_a_task_that_fails_and_those_that_are_killed_with_it_leave_no_file(
    spark: SparkSession, prod: Lake, aws: AwsServer, new_name: str
) -> None:
    name, small = f"prod.{new_name}", {"write.target-file-size-bytes": "1048576"}
    spark.sql(f"CREATE TABLE {name} (id BIGINT, ssn STRING) {declared(aws, 'ssn', **small)}")
    rows = f"SELECT id, concat('{CANARY}', CAST(rand(1) AS STRING)) AS ssn FROM range(0, 1000000, 1, 4)"
    spark.sql(f"INSERT INTO {name} {rows}")
    written, before = files_in(prod, new_name), loaded(prod, new_name).metadata_location
    assert len(written) > 8

    with pytest.raises(Exception, match="no more rows"):
        spark.sql(f"INSERT INTO {name} SELECT id, IF(id = 400000, CAST(raise_error('no more rows') AS STRING), ssn) FROM ({rows})")
    wait_until(lambda: files_in(prod, new_name) == written)
    assert loaded(prod, new_name).metadata_location == before


@pytest.mark.parametrize("name", ["ssn", "SSN"])
def test_rows_that_a_data_frame_writes_are_not_sorted_by_a_protected_column(people: EncryptedTable, name: str) -> None:
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    columns = StructType([StructField("id", LongType()), StructField("ssn", StringType()), StructField("note", StringType())])
    before = people.metadata_location
    with pytest.raises(ConfigurationError, match="cannot be sorted by"):
        prepare(columns, LocatedTable.of_table(people), WriteOptions(sort_by=["note", name]))
    assert people.refresh().metadata_location == before


@pytest.mark.parametrize("order", ["ssn ASC", "id, `ssn` DESC NULLS LAST", "zorder(id, ssn)"])
def test_rewrite_data_files_does_not_sort_by_a_protected_column(lake: Lake, people: EncryptedTable, order: str) -> None:
    before = people.metadata_location
    arguments = {"table": "db.people", "strategy": "sort", "sort_order": order, "options": {"rewrite-all": "true"}}
    with pytest.raises(ConfigurationError, match="cannot be sorted by"):
        list(PROCEDURES["rewrite_data_files"].run(Call(lake.catalog, "prod", (), arguments)))
    assert people.refresh().metadata_location == before
