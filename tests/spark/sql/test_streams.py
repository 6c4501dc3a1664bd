"""Streams from and into tables of the SQL catalog: each appended row once, through restarts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import Table

from tests.spark.conftest import Lake
from tests.spark.sql.test_row_level import BUCKETS, MARK, in_mode
from tests.spark.sql.test_write import SIMPLE, create, files, stored
from tests.support.tables import ids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]


def insert(spark: SparkSession, name: str, *keys: int) -> None:
    spark.sql(f"INSERT INTO {name} VALUES " + ", ".join(f"({key}, 'n{key}')" for key in keys))


def drain(rows: DataFrame, target: str, checkpoint: Path, mode: str = "append") -> list[int]:
    """Write what is there now into a table. Return the number of rows of each micro-batch that had some."""
    stream = rows.writeStream.trigger(availableNow=True).outputMode(mode).option("checkpointLocation", checkpoint.as_uri()).toTable(target)
    stream.awaitTermination()
    return [progress["numInputRows"] for progress in stream.recentProgress if progress["numInputRows"]]


def appends(table: Table) -> int:
    return len(table.refresh().metadata.snapshots)


def test_a_stream_brings_each_appended_row_once_through_restarts(spark: SparkSession, prod: Lake, new_name: str, tmp_path: Path) -> None:
    source, target = f"prod.{new_name}", f"prod.{new_name}_target"
    create(prod, new_name, SIMPLE)
    table = create(prod, f"{new_name}_target", SIMPLE, BUCKETS)
    rows = spark.readStream.option("streaming-max-files-per-micro-batch", "1").table(source)

    assert drain(rows, target, tmp_path) == []
    spark.sql(f"INSERT INTO {source} SELECT id, 'a' FROM range(1, 3, 1, 1)")
    spark.sql(f"INSERT INTO {source} SELECT id, 'b' FROM range(3, 5, 1, 2)")
    assert drain(rows, target, tmp_path) == [2, 1, 1]
    assert ids(table.refresh()) == [1, 2, 3, 4]
    insert(spark, source, 5, 6)
    unlimited = spark.readStream.table(source)
    assert drain(unlimited, target, tmp_path) == [2]
    assert drain(unlimited, target, tmp_path) == []
    assert ids(table.refresh()) == [1, 2, 3, 4, 5, 6]
    assert stored(table) == files(table)


def test_a_micro_batch_that_was_committed_before_its_checkpoint_knew_is_not_committed_again(
    spark: SparkSession, prod: Lake, new_name: str, tmp_path: Path
) -> None:
    source, target = f"prod.{new_name}", f"prod.{new_name}_target"
    create(prod, new_name, SIMPLE)
    table = create(prod, f"{new_name}_target", SIMPLE)
    insert(spark, source, 1, 2)
    rows = spark.readStream.table(source)
    drain(rows, target, tmp_path)
    before = appends(table), stored(table)

    for path in (tmp_path / "commits").iterdir():
        path.unlink()
    drain(rows, target, tmp_path)
    assert (appends(table), stored(table)) == before
    assert ids(table.refresh()) == [1, 2]

    insert(spark, source, 3)
    drain(rows, target, tmp_path)
    assert ids(table.refresh()) == [1, 2, 3]


def test_mode_complete_replaces_the_table_by_each_result(spark: SparkSession, prod: Lake, new_name: str, tmp_path: Path) -> None:
    source, target = f"prod.{new_name}", f"prod.{new_name}_target"
    create(prod, new_name, SIMPLE)
    table = create(prod, f"{new_name}_target", SIMPLE)
    counts = spark.readStream.table(source).groupBy((spark_col("id") % 2).alias("id")).count()
    counts = counts.selectExpr("id", "cast(count as string) as note")

    insert(spark, source, 1, 2, 3)
    drain(counts, target, tmp_path, "complete")
    assert Counter(result(table)) == {(0, "1"): 1, (1, "2"): 1}
    insert(spark, source, 4, 5)
    drain(counts, target, tmp_path, "complete")
    assert Counter(result(table)) == {(0, "2"): 1, (1, "3"): 1}


def spark_col(name: str) -> Any:
    from pyspark.sql.functions import col

    return col(name)


def result(table: Table) -> list[tuple[int, str]]:
    return [(row["id"], row["note"]) for row in table.refresh().scan().to_arrow().to_pylist()]


def test_snapshots_that_change_rows_stop_a_stream_unless_it_is_told_to_pass_over_them(
    spark: SparkSession, prod: Lake, new_name: str, tmp_path: Path
) -> None:
    source, target = f"prod.{new_name}", f"prod.{new_name}_target"
    changed = create(prod, new_name, SIMPLE, BUCKETS, properties=in_mode(MARK))
    table = create(prod, f"{new_name}_target", SIMPLE)
    insert(spark, source, 1, 2)
    spark.sql(f"DELETE FROM {source} WHERE id = 1")
    insert(spark, source, 3)
    spark.sql(f"UPDATE {source} SET note = 'x' WHERE id = 2")
    insert(spark, source, 4)

    with pytest.raises(Exception, match="streaming-skip-delete-snapshots=true to skip it"):
        drain(spark.readStream.table(source), target, tmp_path)
    # What came before the delete was read: a row that is deleted later was appended all the same.
    assert ids(table.refresh()) == [1, 2]
    skipping = spark.readStream.option("streaming-skip-delete-snapshots", "true").table(source)
    with pytest.raises(Exception, match="streaming-skip-overwrite-snapshots=true to skip it"):
        drain(skipping, target, tmp_path)
    assert ids(table.refresh()) == [1, 2, 3]
    skipping = (
        spark.readStream.option("streaming-skip-delete-snapshots", "true")
        .option("streaming-skip-overwrite-snapshots", "true")
        .table(source)
    )
    drain(skipping, target, tmp_path)
    assert ids(table.refresh()) == [1, 2, 3, 4]

    since = changed.refresh().metadata.snapshots[-1].timestamp_ms
    drain(spark.readStream.option("stream-from-timestamp", str(since)).table(source), target, tmp_path / "later")
    assert ids(table.refresh()) == [1, 2, 3, 4, 4]


def test_streams_that_cannot_go_on_say_so(spark: SparkSession, prod: Lake, new_name: str, tmp_path: Path) -> None:
    source, target = f"prod.{new_name}", f"prod.{new_name}_target"
    table = create(prod, new_name, SIMPLE)
    create(prod, f"{new_name}_target", SIMPLE)
    insert(spark, source, 1)
    head = table.refresh().metadata.current_snapshot_id
    assert head is not None
    table.manage_snapshots().create_tag(head, "then").create_branch(head, "side").commit()
    drain(spark.readStream.table(f"{source}.branch_side"), target, tmp_path)
    insert(spark, f"{source}.branch_side", 2)
    drain(spark.readStream.table(f"{source}.branch_side"), target, tmp_path)
    assert ids(prod.catalog.load_table(f"{new_name}_target")) == [1, 2]

    with pytest.raises(Exception, match="stream from the table or a branch"):
        drain(spark.readStream.table(f"{source}.tag_then"), target, tmp_path / "tag")
    with pytest.raises(Exception, match="must be a whole number of at least 1"):
        drain(spark.readStream.option("streaming-max-rows-per-micro-batch", "0").table(source), target, tmp_path / "none")
    prod.catalog.drop_table(new_name)
    create(prod, new_name, SIMPLE)
    with pytest.raises(Exception, match="not the table that this query began with"):
        drain(spark.readStream.table(source), target, tmp_path)
