"""Who may wrap under a column's master key and not unwrap inserts rows by Spark SQL, and no statement of his turns masks into values.

The adversary carries masks to the table by names, caches, functions, subqueries and RDDs, and takes keys out of his tasks. The careless
user overwrites the table by itself, or streams into it what he reads of it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tablecrypt.spark as tcs
from tablecrypt import maintenance
from tablecrypt.engines.access import TableAccess
from tablecrypt.errors import ColumnKeyDeniedError
from tablecrypt.keys.key_ring import EncryptedKey
from tablecrypt.spark.sql.planner import LoadedTable, Planner
from tablecrypt.spark.tables import LocatedTable
from tablecrypt.table.protection.policy import column_keys
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.spark.conftest import Lake
from tests.spark.sql.test_plan import Asked
from tests.spark.sql.test_protected_writes import Write, rows_of
from tests.support.aws import AwsServer
from tests.support.bound_schemas import OF_TEXT
from tests.support.driver_only_kms import for_this_process
from tests.support.plaintext import CANARY
from tests.support.protected_tables import SSN, TABLE_KEY, Clients, commit_column_keys, opened_by_table_key, write_only
from tests.support.spark_release import FILLS_COLUMNS
from tests.support.tables import metadata_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS: Final = pa.table({"id": [1, 2], "ssn": [f"{CANARY}-1", f"{CANARY}-2"], "note": ["a", "b"]})
NO_MASKS: Final = ""
REFUSED: Final = "may write masks as values"


class Driver(Asked):
    """The planner of one client of a catalog."""

    def __init__(self, catalog: EncryptedSqlCatalog) -> None:
        self.planner = Planner()
        located = LocatedTable.of_table(cast("EncryptedTable", catalog.load_table("db.people")))
        self.table = self.planner.tables.add(LoadedTable(located, "prod", "main", None, is_writable=True))


@pytest.fixture
def people(both: Clients) -> EncryptedTable:
    """The table, for who may use every key."""
    return make(both)


def make(both: Clients, **properties: str) -> EncryptedTable:
    declared = {"encryption.key-id": TABLE_KEY, "encryption.column-keys": "pii: ssn", **properties}
    return cast("EncryptedTable", both.payroll.create_table("db.people", ROWS.schema, properties=declared))


def run(write: Write, rows: pa.Table = ROWS) -> None:
    """Write rows in a task, and commit them."""
    write.write(write.start(), rows)
    write.commit()


def keys(table: EncryptedTable) -> tuple[list[EncryptedKey], list[EncryptedKey]]:
    """The column keys that one process alone writes under, and those of everybody."""
    ring = metadata_of(table.refresh()).key_ring
    return [key for key in ring.column_keys if key.is_write_only], [key for key in ring.column_keys if not key.is_write_only]


@pytest.mark.parametrize("mode", ["append", "overwrite", "overwrite_partitions"])
def test_he_writes_rows_that_hold_no_masks_under_one_key_of_his_own(both: Clients, people: EncryptedTable, mode: str) -> None:
    driver = Driver(write_only(both))
    run(Write(driver, masks=NO_MASKS))
    run(Write(Driver(driver.planner.tables[driver.table].located.catalog), mode, masks=NO_MASKS))  # type: ignore[arg-type]

    assert rows_of(people) == sorted(ROWS.to_pylist() * (2 if mode == "append" else 1), key=lambda row: row["id"])
    assert [len(each) for each in keys(people)] == [1, 1]
    assert not [found for found in opened_by_table_key(people) if CANARY.encode() in found]
    assert not maintenance.audit(people).findings
    assert rows_of(cast("EncryptedTable", write_only(both).load_table("db.people")))[0]["ssn"] is None


@pytest.mark.parametrize(
    ("mode", "said"),
    [("append", {}), ("append", {"masks": "it reads masks of ssn"}), ("groups", {"masks": NO_MASKS}), ("delta", {"masks": NO_MASKS})],
    ids=["nobody looked", "masks", "copy-on-write", "merge-on-read"],
)
def test_rows_that_may_hold_masks_are_refused_before_a_task_runs(
    both: Clients, people: EncryptedTable, mode: str, said: dict[str, Any]
) -> None:
    before = people.metadata_location
    with pytest.raises(ColumnKeyDeniedError, match=REFUSED):
        Write(Driver(write_only(both)), mode, command="update", **said)
    assert people.refresh().metadata_location == before


def test_without_permission_to_wrap_he_writes_nothing(both: Clients, people: EncryptedTable) -> None:
    before = people.metadata_location
    with pytest.raises(ColumnKeyDeniedError) as denied:
        Write(Driver(both.analyst), masks=NO_MASKS)
    assert REFUSED not in str(denied.value)
    assert people.refresh().metadata_location == before


def test_a_mask_that_takes_the_column_s_key_is_not_made_by_him(both: Clients) -> None:
    people = make(both, **{"encryption.column-mask.ssn": "hash"})
    run(Write(Driver(both.payroll)))
    before = people.refresh().metadata_location
    with pytest.raises(ColumnKeyDeniedError):
        Write(Driver(write_only(both)), masks=NO_MASKS)
    assert people.refresh().metadata_location == before


def test_his_tasks_open_no_column(both: Clients, people: EncryptedTable) -> None:
    run(Write(Driver(both.payroll)))
    write = Write(Driver(write_only(both)), masks=NO_MASKS)
    run(write)
    [stored] = commit_column_keys(people, SSN)
    access: TableAccess = pickle.loads(write.content)
    assert access.columns is not None
    assert (access.columns.readable, access.columns.opened_keks, len(access.columns.own_keys)) == (frozenset(), {}, 1)
    assert not [secret for secret in access.columns.own_keys.values() if repr(secret) in repr(access)]
    in_task = column_keys(metadata_of(people.refresh()), access.io())  # type: ignore[arg-type]
    own = in_task.generate([SSN], stored.aad_prefix)[SSN]
    for key_metadata in (stored.key_metadata, own.key_metadata(OF_TEXT)):
        with pytest.raises(ColumnKeyDeniedError):
            in_task.unwrap(SSN, key_metadata, stored.aad_prefix, OF_TEXT, 1)


def test_what_others_write_is_under_a_key_that_he_does_not_know(both: Clients, people: EncryptedTable) -> None:
    run(Write(Driver(write_only(both)), masks=NO_MASKS))
    (own,), (shared,) = keys(people)
    run(Write(Driver(both.payroll)))
    assert keys(people) == ([own], [shared])
    named = [key_id for found in opened_by_table_key(people) for key_id in (own.key_id, shared.key_id) if key_id.encode() in found]
    assert {own.key_id, shared.key_id} <= set(named)


def test_a_rotation_while_his_tasks_write_loses_no_row(both: Clients, people: EncryptedTable) -> None:
    write = Write(Driver(write_only(both)), masks=NO_MASKS)
    write.write(write.start(), ROWS)
    maintenance.rotate_column_keks(people.refresh())
    write.commit()
    assert rows_of(people) == ROWS.to_pylist()


@pytest.fixture
def column_key(aws: AwsServer) -> str:
    return aws.new_key()


@pytest.fixture
def of_writer(spark: SparkSession, prod: Lake, column_key: str) -> SparkSession:
    """A session whose catalog `prod` may wrap under the column's master key and not unwrap."""
    session = spark.newSession()
    tcs.catalog(session, "prod", for_this_process(prod.properties, column_key))
    return session


@pytest.fixture
def in_sql(prod: Lake, column_key: str, new_name: str) -> EncryptedTable:
    properties = {"encryption.key-id": "alias/orders", "encryption.column-keys": f"{column_key}: ssn, person.email"}
    person = pa.array([{"email": f"{CANARY}@x", "age": 1}] * 2)
    table = cast("EncryptedTable", prod.catalog.create_table(new_name, ROWS.append_column("person", person).schema, properties=properties))
    table.append(ROWS.append_column("person", person))
    return table


NEW: Final = f"concat('{CANARY}-', {{id}}) AS ssn, 'new' AS note, named_struct('email', '{CANARY}', 'age', {{id}}) AS person"
INSERTS: Final = {
    "values": "INSERT INTO {t} VALUES (10, '{canary}-10', 'new', NULL)",
    "some columns": "INSERT INTO {t} (id, ssn) VALUES (11, '{canary}-11')"
    if FILLS_COLUMNS
    else "INSERT INTO {t} VALUES (11, '{canary}-11', NULL, NULL)",
    "rows that are made": "INSERT INTO {t} SELECT id + 12, {new} FROM range(2)",
    "files": "INSERT INTO {t} SELECT id, ssn, note, NULL FROM parquet.`{files}`",
    "columns of the table that it shows": "INSERT INTO {t} SELECT id + 19, '{canary}', note, "
    "named_struct('email', 'x', 'age', person.age) FROM {t} WHERE id = 1",
    "a common expression": "WITH w AS (SELECT id, note, rand() AS r FROM {t}) INSERT INTO {t} "
    "SELECT a.id + 20, b.note, 'x', NULL FROM w a JOIN w b ON a.r = b.r WHERE a.id = 1",
    "a subquery": "INSERT INTO {t} SELECT 22, (SELECT max(note) FROM {t}), 'x', NULL",
    "another table": "INSERT INTO {t} SELECT * FROM {other}",
    "a cached table": "INSERT INTO {t} SELECT id + 10, ssn, note, person FROM cached_other",
}
"""Statements that read no mask. The table is {t}, {other} one without protected columns, and {new} stands for all columns but the id."""
COPIES: Final = {
    "itself": "INSERT INTO {t} SELECT * FROM {t}",
    "itself, overwritten": "INSERT OVERWRITE {t} SELECT * FROM {t}",
    "a field": "INSERT INTO {t} SELECT id, 'x', note, person FROM {t}",
    "a view": "INSERT INTO {t} SELECT id, s, note, NULL FROM seen",
    "a cache": "INSERT INTO {t} SELECT * FROM cached",
    "a subquery": "INSERT INTO {t} SELECT 9, (SELECT max(ssn) FROM {t}), 'x', NULL",
    "a union": "INSERT INTO {t} SELECT id, note, note, NULL FROM {t} UNION ALL SELECT id, ssn, note, NULL FROM {t}",
    "a function": "INSERT INTO {t} SELECT id, shown(ssn), note, NULL FROM {t}",
    "another column": "INSERT INTO {t} SELECT id, 'x', coalesce(ssn, 'mask'), NULL FROM {t}",
    "a count": "INSERT INTO {t} SELECT count(ssn), 'x', 'x', NULL FROM {t}",
    "an older snapshot": "INSERT INTO {t} SELECT * FROM {t} VERSION AS OF {first}",
    "a lateral view": "INSERT INTO {t} SELECT id, part, note, NULL FROM {t} LATERAL VIEW explode(split(ssn, '-')) AS part",
    "a window": "INSERT INTO {t} SELECT id, lead(ssn) OVER (ORDER BY id), note, NULL FROM {t}",
    "metadata": "INSERT INTO {t} SELECT pos, file_path, 'x', NULL FROM {t}.position_deletes",
}
"""Statements that read masks, or may."""
CHANGES: Final = (
    "UPDATE {t} SET note = 'x' WHERE id = 1",
    "MERGE INTO {t} t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET note = 'x'",
)
"""Statements that write rows again."""


def statement_of(text: str, table: EncryptedTable, other: str, files: Path) -> str:
    name = f"prod.{'.'.join(table.name())}"
    first = table.metadata.snapshots[0].snapshot_id
    return text.format(t=name, other=other, new=NEW.format(id="id"), canary=CANARY, files=files, first=first)


@pytest.mark.java
def test_he_inserts_what_holds_no_mask_and_no_way_to_copy_masks_is_open(
    spark: SparkSession, of_writer: SparkSession, prod: Lake, in_sql: EncryptedTable, tmp_path: Path
) -> None:
    name, other, files = f"prod.{'.'.join(in_sql.name())}", f"prod.{'.'.join(in_sql.name())}_other", tmp_path / "rows.parquet"
    pq.write_table(ROWS.set_column(0, "id", pa.array([15, 16])), files)
    spark.sql(
        f"CREATE TABLE {other} TBLPROPERTIES ('encryption.key-id' = 'alias/orders') AS "
        f"SELECT id + 30 AS id, {NEW.format(id='id')} FROM range(2)"
    )
    of_writer.udf.register("shown", str)
    of_writer.sql(f"SELECT id, ssn AS s, note FROM {name}").createOrReplaceTempView("seen")
    of_writer.sql(f"CACHE TABLE cached AS SELECT * FROM {name}")
    of_writer.sql(f"CACHE TABLE cached_other AS SELECT * FROM {other}")

    refused = {}
    for what, text in COPIES.items():
        refused[what] = error_of(lambda text=text: of_writer.sql(statement_of(text, in_sql, other, files)))  # type: ignore[misc]
    for what, copy in copies_of_frames(of_writer, name, prod).items():
        refused[what] = error_of(lambda copy=copy: copy().writeTo(name).append())  # type: ignore[misc]
    refused["another catalog"] = error_of(lambda: of_another_catalog(of_writer, files).writeTo(name).append())
    assert {what: error for what, error in refused.items() if REFUSED not in error} == {}
    unread = {what for what, error in refused.items() if "Spark does not say where its rows come from" in error}
    assert unread == set(), {what: error.partition("as values: ")[2][:80] for what, error in refused.items()}
    for text in CHANGES:
        with pytest.raises(Exception, match="does not let you use"):
            of_writer.sql(text.format(t=name))
    assert [row["id"] for row in rows_of(in_sql)] == [1, 2]

    for text in INSERTS.values():
        of_writer.sql(statement_of(text, in_sql, other, files))
    columns = "id bigint, ssn string, note string, person struct<email: string, age: bigint>"
    of_writer.createDataFrame([(50, f"{CANARY}-50", "x", (CANARY, 5))], columns).writeTo(name).append()
    of_writer.sql(f"DELETE FROM {name} WHERE id = 2")
    written = {row["id"]: row["ssn"] for row in rows_of(in_sql)}
    assert sorted(written) == [1, 10, 11, 12, 13, 15, 16, 20, 21, 22, 30, 31, 40, 41, 50]
    assert {each: ssn for each, ssn in written.items() if not str(ssn).startswith(CANARY)} == {21: "a", 22: "x"}, "other columns' values"
    assert len(keys(in_sql)[0]) == 2, "one for each column, however many statements"
    assert {row["ssn"] for row in of_writer.table(name).collect()} == {None}
    of_writer.sql(f"INSERT OVERWRITE {name} SELECT id, '{CANARY}', note, NULL FROM {name} WHERE id < 12")
    assert [(row["id"], row["ssn"]) for row in rows_of(in_sql)] == [(1, CANARY), (10, CANARY), (11, CANARY)]
    assert not [found for found in opened_by_table_key(in_sql) if CANARY.encode() in found]


def copies_of_frames(session: SparkSession, name: str, prod: Lake) -> dict[str, Callable[[], DataFrame]]:
    """DataFrames that hold masks, in the table's columns."""
    masks = session.table(name)
    kept = masks.localCheckpoint()
    properties = {**prod.properties, "encryption.allowed-key-ids": "alias/orders"}
    tcs.register(session, {"prod": properties})
    return {
        "a frame that was made before": lambda: masks,
        "an RDD": lambda: session.createDataFrame(masks.rdd, masks.schema),
        "a checkpoint": lambda: kept,
        "mapInArrow": lambda: masks.mapInArrow(lambda batches: batches, masks.schema),
        "a data source": lambda: session.read.format("tablecrypt").load(name),
        "read_table": lambda: tcs.read_table(session, name, catalog_properties=properties),
        "an RDD of read_table": lambda: session.createDataFrame(
            tcs.read_table(session, name, catalog_properties=properties).rdd, masks.schema
        ),
    }


def of_another_catalog(session: SparkSession, files: Path) -> DataFrame:
    """Rows of a table that says of itself that it has protected columns, as Iceberg's own connector does."""
    session.conf.set("spark.sql.sources.useV1SourceList", "")
    rows = session.read.option("encryption.column.2.key-id", "alias/pii").parquet(str(files))
    session.conf.unset("spark.sql.sources.useV1SourceList")
    return rows.selectExpr("id", "ssn", "note", "CAST(NULL AS struct<email: string, age: bigint>) AS person")


def error_of(statement: Callable[[], object]) -> str:
    try:
        statement()
    except Exception as error:  # noqa: BLE001  Spark raises errors of its own around ours
        return str(error)
    return "no error"


@pytest.mark.java
@pytest.mark.slow
def test_his_streams_bring_rows_of_other_tables_and_remember_none(
    spark: SparkSession, of_writer: SparkSession, in_sql: EncryptedTable, tmp_path: Path
) -> None:
    name, source = f"prod.{'.'.join(in_sql.name())}", f"prod.{'.'.join(in_sql.name())}_source"
    spark.sql(f"CREATE TABLE {source} (id BIGINT, ssn STRING, note STRING) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')")

    def stream(rows: DataFrame, checkpoint: str) -> None:
        started = rows.writeStream.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).toTable(name)
        started.awaitTermination()

    def read(table: str) -> DataFrame:
        return of_writer.readStream.table(table)

    for first in (10, 20):
        spark.sql(f"INSERT INTO {source} SELECT id + {first}, concat('{CANARY}-', id), 'x' FROM range(2)")
        stream(read(source).selectExpr("id", "ssn", "note", f"named_struct('email', '{CANARY}', 'age', id) AS person"), "first")
    assert [row["id"] for row in rows_of(in_sql)] == [1, 2, 10, 11, 20, 21]
    assert {row["ssn"] is None for row in rows_of(in_sql)} == {False}

    person = "CAST(NULL AS struct<email: string, age: bigint>) AS person"
    copies = {
        "itself": read(name),
        "beside another": read(source).union(read(name).select("id", "ssn", "note")).selectExpr("*", person),
        "remembered": read(source).dropDuplicates(["id"]).selectExpr("*", person),
    }
    refused = {what: error_of(lambda rows=rows, what=what: stream(rows, what)) for what, rows in copies.items()}  # type: ignore[misc]
    by_program = read(name).writeStream.option("checkpointLocation", str(tmp_path / "program")).trigger(availableNow=True)
    refused["a batch"] = error_of(by_program.foreachBatch(lambda batch, _: batch.writeTo(name).append()).start().awaitTermination)
    assert {what: error for what, error in refused.items() if REFUSED not in error} == {}
    assert len(rows_of(in_sql)) == 6
