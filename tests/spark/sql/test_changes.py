"""SELECT … FROM prod.db.t.changes: the rows that each snapshot inserted and deleted, and no other row."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import Table

from tablecrypt import maintenance
from tests.spark.conftest import Lake
from tests.support.plaintext import CANARY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]


def create(spark: SparkSession, prod: Lake, name: str, mode: str) -> Table:
    modes = ", ".join(f"'write.{command}.mode' = '{mode}'" for command in ("delete", "update", "merge"))
    spark.sql(
        f"CREATE TABLE prod.{name} (id bigint NOT NULL, region string, note string) PARTITIONED BY (region) "
        f"TBLPROPERTIES ('encryption.key-id' = 'alias/orders', {modes})"
    )
    return prod.catalog.load_table(name)


def counted(spark: SparkSession, query: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in spark.sql(query).collect())


def refused(spark: SparkSession, query: str) -> str:
    with pytest.raises(Exception) as raised:  # noqa: PT011  Spark's own error has the cause
        spark.sql(query).collect()
    return str(raised.value)


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_changes_are_those_of_the_changelog_view(spark: SparkSession, prod: Lake, new_name: str, mode: str) -> None:
    table = create(spark, prod, new_name, mode)
    name = f"prod.{new_name}"
    spark.sql(f"INSERT INTO {name} SELECT id, concat('r', id % 2), '{CANARY}' FROM range(10)")
    spark.sql(f"UPDATE {name} SET note = 'second' WHERE id IN (2, 3)")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN note TO remark")
    spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD bucket(2, id)")
    spark.sql(f"DELETE FROM {name} WHERE id IN (2, 5)")
    maintenance.compact(table.refresh(), rewrite_all=True)
    spark.sql(
        f"MERGE INTO {name} t USING (SELECT explode(array(3L, 7L, 11L)) AS id) s ON t.id = s.id WHEN MATCHED AND t.id = 7 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET region = 'r9' WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )
    spark.sql(f"DELETE FROM {name} WHERE region = 'r0'")
    spark.sql(f"CALL prod.system.create_changelog_view('{new_name}', 'seen')")

    changes = counted(spark, f"SELECT * FROM {name}.changes")

    assert changes == counted(spark, "SELECT * FROM seen")
    assert changes.total() == spark.table(f"{name}.changes").count() == 10 + 4 + 2 + 4 + 4
    assert spark.table(f"{name}.changes").columns[:3] == spark.table(name).columns
    inserted = counted(spark, f"SELECT id FROM {name}.changes WHERE _change_type = 'INSERT' AND remark = 'second'")
    assert inserted == {(2,): 1, (3,): 2}
    both = counted(spark, f"SELECT a.id FROM {name}.changes a JOIN {name}.changes b USING (id, region, _change_ordinal) WHERE id = 11")
    assert not both
    assert not counted(spark, f"SELECT * FROM {name}.changes WHERE id = 1 AND _change_type = 'DELETE'")
    assert counted(spark, f"SELECT _file, _change_type FROM {name}.changes LIMIT 3").total() == 3


def test_a_range_is_read_and_not_more(spark: SparkSession, prod: Lake, new_name: str) -> None:
    table = create(spark, prod, new_name, "merge-on-read")
    name = f"prod.{new_name}.changes"
    assert spark.table(name).count() == 0
    for number in range(4):
        spark.sql(f"INSERT INTO prod.{new_name} VALUES ({number}, 'r', 'n')")
    ids = [snapshot.snapshot_id for snapshot in table.refresh().metadata.snapshots]

    read = spark.read.option("start-snapshot-id", ids[0]).option("end-snapshot-id", ids[2]).table(name)

    first = spark.read.option("end-snapshot-id", ids[0]).table(name)
    assert sorted((row["id"], row["_change_ordinal"], row["_commit_snapshot_id"]) for row in read.collect()) == [
        (1, 0, ids[1]),
        (2, 1, ids[2]),
    ]
    assert sorted(row["id"] for row in first.union(read).collect()) == [0, 1, 2]
    last = table.metadata.snapshots[-1].timestamp_ms
    assert spark.read.option("start-timestamp", last).table(name).count() == 0
    assert [row["id"] for row in spark.read.option("start-timestamp", last - 1).table(name).select("id", "_deleted").collect()] == [3]
    assert "later than the end" in refused_read(spark, name, {"start-timestamp": last, "end-timestamp": last - 1})
    assert "has a snapshot and a timestamp" in refused_read(spark, name, {"start-timestamp": 1, "start-snapshot-id": ids[0]})
    assert "is no ancestor" in refused_read(spark, name, {"start-snapshot-id": ids[2], "end-snapshot-id": ids[1]})
    spark.sql(f"CALL prod.system.expire_snapshots('{new_name}', snapshot_ids => array({ids[0]}))")
    assert "has not expired" in refused(spark, f"SELECT * FROM {name}")
    maintenance.compact(table.refresh(), rewrite_all=True)
    spark.sql(f"CALL prod.system.expire_snapshots('{new_name}', timestamp'2100-01-01 00:00:00', 1)")
    assert "has not expired" in refused(spark, f"SELECT * FROM {name}")


def refused_read(spark: SparkSession, name: str, options: dict[str, int]) -> str:
    with pytest.raises(Exception) as raised:  # noqa: PT011
        spark.read.options(**options).table(name).collect()
    return str(raised.value)


def test_changes_are_not_written_to_and_have_no_version(spark: SparkSession, prod: Lake, new_name: str) -> None:
    table = create(spark, prod, new_name, "copy-on-write")
    spark.sql(f"INSERT INTO prod.{new_name} VALUES (1, 'r', 'n')")
    name = f"prod.{new_name}.changes"

    assert "which cannot change" in refused(spark, f"INSERT INTO {name} SELECT * FROM {name}")
    assert "which cannot change" in refused(spark, f"DELETE FROM {name} WHERE id = 1")
    assert "range of snapshots" in refused(spark, f"SELECT * FROM {name} VERSION AS OF {table.refresh().metadata.current_snapshot_id}")
    spark.sql(f"ALTER TABLE prod.{new_name} ADD COLUMN _change_type string")
    assert "has a column _change_type" in refused(spark, f"SELECT * FROM {name}")
    assert spark.table(f"prod.{new_name}").count() == 1
