"""An overwrite of a whole table is one snapshot, whichever way it is made: streams, changelogs and rollbacks see no empty table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table

from tablecrypt import maintenance
from tablecrypt import spark as tcs
from tests.spark.conftest import Lake
from tests.spark.sql.test_row_level import BUCKETS, BY_NOTE
from tests.spark.sql.test_streams import drain
from tests.spark.sql.test_write import SIMPLE, create, files, stored
from tests.spark.sql.test_write_failures import after_some_rows
from tests.support.aws import AwsServer
from tests.support.plaintext import CANARY
from tests.support.tables import ids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]


def source(spark: SparkSession, name: str, properties: dict[str, str], rows: DataFrame) -> None:
    tcs.register(spark, {"prod": properties})
    rows.write.format("tablecrypt").mode("overwrite").save(name)


def always(spark: SparkSession, name: str, _: dict[str, str], rows: DataFrame) -> None:
    from pyspark.sql.functions import lit

    rows.writeTo(name).overwrite(lit(True))


def statement(text: str) -> Callable[[SparkSession, str, dict[str, str], DataFrame], None]:
    def run(spark: SparkSession, name: str, _: dict[str, str], rows: DataFrame) -> None:
        rows.createOrReplaceTempView("new_rows")
        spark.sql(text.format(name))

    return run


WAYS: Final[dict[str, Callable[[SparkSession, str, dict[str, str], DataFrame], None]]] = {
    "INSERT OVERWRITE": statement("INSERT OVERWRITE {} SELECT * FROM new_rows"),
    "REPLACE WHERE": statement("INSERT INTO {} REPLACE WHERE true SELECT * FROM new_rows"),
    "writeTo().overwrite": always,
    "insertInto": lambda spark, name, _, rows: rows.write.mode("overwrite").insertInto(name),
    "write_table": lambda spark, name, properties, rows: tcs.write_table(rows, name, "overwrite", catalog_properties=properties),
    "format": source,
}


def operations(table: Table) -> list[str]:
    return [snapshot.summary.operation.value for snapshot in table.refresh().metadata.snapshots if snapshot.summary is not None]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("spec", [PartitionSpec(), BUCKETS, BY_NOTE], ids=["plain", "bucket", "identity"])
def test_each_way_makes_one_snapshot(spark: SparkSession, prod: Lake, new_name: str, way: str, spec: PartitionSpec) -> None:
    table = create(prod, new_name, SIMPLE, spec, properties={"write.delete.mode": "merge-on-read"})
    spark.sql(f"INSERT INTO prod.{new_name} VALUES (1, 'a'), (2, 'a'), (3, 'b')")
    spark.sql(f"DELETE FROM prod.{new_name} WHERE id = 2")

    WAYS[way](spark, f"prod.{new_name}", prod.properties, spark.range(5, 7).selectExpr("id", f"'{CANARY}' AS note"))

    assert ids(table.refresh()) == [5, 6]
    assert operations(table)[2:] == ["overwrite"]
    summary = table.metadata.snapshots[-1].summary
    assert summary is not None
    assert (summary["added-records"], summary["total-records"], summary["total-delete-files"]) == ("2", "2", "0")
    assert summary["deleted-records"] in ("2", "3"), "a file of one row goes as a whole"
    assert maintenance.verify(table).is_good


def test_a_branch_a_protected_column_and_an_empty_table(spark: SparkSession, prod: Lake, aws: AwsServer, new_name: str) -> None:
    table = create(prod, new_name, SIMPLE, properties={"encryption.column-keys": f"{aws.new_key()}: note"})
    name = f"prod.{new_name}"
    spark.sql(f"INSERT OVERWRITE {name} VALUES (1, '{CANARY}')")
    assert (operations(table), ids(table.refresh())) == (["overwrite"], [1])
    spark.sql(f"CALL prod.system.create_branch('{new_name}', 'side')")

    spark.sql(f"INSERT OVERWRITE {name}.branch_side VALUES (2, '{CANARY}')")
    assert (operations(table), ids(table.refresh())) == (["overwrite", "overwrite"], [1])
    assert [row[0] for row in spark.sql(f"SELECT id FROM {name} VERSION AS OF 'side'").collect()] == [2]

    spark.sql(f"INSERT OVERWRITE {name} SELECT * FROM {name} WHERE id = 7")
    assert (operations(table)[2:], ids(table.refresh())) == (["delete"], [])
    spark.sql(f"INSERT OVERWRITE {name} SELECT * FROM {name} WHERE id = 7")
    assert len(operations(table)) == 3


def test_a_rollback_by_one_snapshot_and_an_expiry_see_no_empty_table(spark: SparkSession, prod: Lake, new_name: str) -> None:
    table = create(prod, new_name, SIMPLE)
    name = f"prod.{new_name}"
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a')")
    spark.sql(f"INSERT OVERWRITE {name} VALUES (2, 'b')")
    parent = table.refresh().metadata.snapshots[-1].parent_snapshot_id

    assert [row[0] for row in spark.sql(f"SELECT id FROM {name} VERSION AS OF {parent}").collect()] == [1]
    spark.sql(f"CALL prod.system.expire_snapshots(table => '{new_name}', older_than => TIMESTAMP '2100-01-01', retain_last => 2)")
    assert len(operations(table)) == 2
    spark.sql(f"CALL prod.system.rollback_to_snapshot('{new_name}', {parent})")
    assert ids(table.refresh()) == [1]


def test_a_changelog_shows_updates_and_a_stream_stops_once(spark: SparkSession, prod: Lake, new_name: str, tmp_path: Path) -> None:
    create(prod, new_name, SIMPLE)
    target = create(prod, f"{new_name}_target", SIMPLE)
    name = f"prod.{new_name}"
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
    spark.sql(f"INSERT OVERWRITE {name} VALUES (2, 'c'), (3, 'd')")
    spark.sql(f"INSERT INTO {name} VALUES (4, 'e')")

    spark.sql(f"CALL prod.system.create_changelog_view(table => '{new_name}', changelog_view => 'seen', identifier_columns => array('id'))")
    seen = {tuple(row) for row in spark.sql("SELECT id, note, _change_type, _change_ordinal FROM seen WHERE _change_ordinal = 1").collect()}
    assert seen == {(1, "a", "DELETE", 1), (2, "b", "UPDATE_BEFORE", 1), (2, "c", "UPDATE_AFTER", 1), (3, "d", "INSERT", 1)}

    skipping = spark.readStream.option("streaming-skip-delete-snapshots", "true").table(name)
    with pytest.raises(Exception, match=r"has operation overwrite: .* Set streaming-skip-overwrite-snapshots=true"):
        drain(skipping, f"{name}_target", tmp_path)
    drain(spark.readStream.option("streaming-skip-overwrite-snapshots", "true").table(name), f"{name}_target", tmp_path)
    assert ids(target.refresh()) == [1, 2, 4]


def test_a_query_in_complete_mode_replaces_its_sink_in_one_snapshot_each(
    spark: SparkSession, prod: Lake, new_name: str, tmp_path: Path
) -> None:
    create(prod, new_name, SIMPLE)
    target = create(prod, f"{new_name}_target", SIMPLE)
    counted = spark.readStream.table(f"prod.{new_name}").selectExpr("note").groupBy("note").count().selectExpr("count AS id", "note")
    for number in range(2):
        spark.sql(f"INSERT INTO prod.{new_name} VALUES ({number}, 'a')")
        drain(counted, f"prod.{new_name}_target", tmp_path, "complete")

    assert (operations(target), ids(target.refresh())) == (["overwrite", "overwrite"], [2])


@pytest.mark.parametrize("isolation", [None, "snapshot", "serializable"])
def test_rows_that_others_add_meanwhile_go_too_unless_an_isolation_level_makes_them_a_conflict(
    spark: SparkSession, prod: Lake, new_name: str, isolation: str | None
) -> None:
    table, properties = create(prod, new_name, SIMPLE), prod.properties
    spark.sql(f"INSERT INTO prod.{new_name} VALUES (1, 'a')")
    added = pa.table({"id": [50], "note": ["z"]}, schema=SIMPLE.as_arrow())
    began = table.refresh().metadata.current_snapshot_id

    def append() -> None:
        from pyiceberg.catalog import load_catalog

        load_catalog("prod", **properties).load_table(new_name).append(added)

    def overwrite() -> None:
        from pyspark.sql.functions import lit

        rows = after_some_rows(spark.range(100, 200, 1, 1).selectExpr("id", f"'{CANARY}' AS note"), append)
        writer = rows.writeTo(f"prod.{new_name}")
        if isolation is not None:
            writer = writer.option("isolation-level", isolation).option("validate-from-snapshot-id", str(began))
        writer.overwrite(lit(True))

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    try:
        if isolation == "serializable":
            with pytest.raises(Exception, match="ValidationException"):
                overwrite()
            assert ids(table.refresh()) == [1, 50]
        else:
            overwrite()
            assert ids(table.refresh()) == ([50] if isolation else []) + list(range(100, 200))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert operations(table)[2:] == ([] if isolation == "serializable" else ["overwrite"])
    assert set(stored(table)) >= set(files(table))


@pytest.mark.parametrize("by_partition", [False, True], ids=["condition", "partitions"])
def test_an_overwrite_conflicts_with_what_was_done_to_its_rows_since_a_snapshot(
    spark: SparkSession, prod: Lake, new_name: str, by_partition: bool
) -> None:
    from pyspark.sql.functions import col

    spark.sql(f"""CREATE TABLE prod.{new_name} (id int, note string) PARTITIONED BY (id)
        TBLPROPERTIES ('encryption.key-id' = 'alias/orders', 'write.delete.mode' = 'merge-on-read')""")
    table = prod.catalog.load_table(new_name)

    def rows(*ids: int) -> pa.Table:
        return pa.table({"id": pa.array(ids, pa.int32()), "note": ["a"] * len(ids)})

    def overwrite(level: str, since: int | None) -> None:
        writer = spark.sql("SELECT 1 AS id, 'new' AS note").writeTo(f"prod.{new_name}").option("isolation-level", level)
        if since is not None:
            writer = writer.option("validate-from-snapshot-id", str(since))
        writer.overwritePartitions() if by_partition else writer.overwrite(col("id") == 1)

    def head() -> int:
        return int(table.refresh().metadata.current_snapshot_id or 0)

    table.append(rows(1, 1, 2))
    first = head()
    table.append(rows(2))
    table.delete("id = 2")
    unrelated = head()
    overwrite("serializable", first)
    overwritten = head()
    table.append(rows(1))
    appended = head()
    for level, since, found in (
        ("serializable", overwritten, "conflicting files"),
        ("snapshot", unrelated, "conflicting deleted files"),
        ("serializable", None, "conflicting"),
        ("serializable", 4711, "the table has no such snapshot"),
    ):
        with pytest.raises(Exception, match=found):
            overwrite(level, since)
    assert head() == appended
    overwrite("snapshot", overwritten)
    table.append(rows(1, 1))
    marked = head()
    spark.sql(f"UPDATE prod.{new_name} SET note = 'b' WHERE id = 1 AND note = 'new'")
    with pytest.raises(Exception, match="conflicting"):
        overwrite("snapshot", marked)
    overwrite("serializable", head())

    assert spark.table(f"prod.{new_name}").collect() == [(1, "new")]
    with pytest.raises(Exception, match="says nothing without isolation-level"):
        spark.sql("SELECT 1 AS id, 'x' AS note").writeTo(f"prod.{new_name}").option(
            "validate-from-snapshot-id", str(first)
        ).overwritePartitions()
    with pytest.raises(Exception, match="isolation-level is for overwrites"):
        spark.sql("SELECT 1 AS id, 'x' AS note").writeTo(f"prod.{new_name}").option("isolation-level", "snapshot").append()
