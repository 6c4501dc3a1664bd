"""Compaction as jobs on the cluster: rows and their identity before and after, as we read them and as Iceberg Java does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.exceptions import ValidationException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import DecimalType, ListType, LongType, NestedField, StringType, TimestamptzType, UUIDType

import tablecrypt.spark as tcs
from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import compact as compact_anywhere
from tablecrypt.maintenance.compaction import Compaction
from tablecrypt.maintenance.progress import Progress
from tablecrypt.table.encrypted_table import EncryptedTable
from tests.spark.conftest import Lake
from tests.support.aws import AwsServer
from tests.support.java import JavaJudge
from tests.support.plaintext import CANARY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "price", DecimalType(9, 2)),
    NestedField(3, "instant", TimestamptzType()),
    NestedField(4, "ref", UUIDType()),
    NestedField(5, "tags", ListType(6, StringType(), element_required=False)),
    NestedField(7, "note", StringType()),
)
SPEC = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "bucket"))
COLUMNS = (
    "id",
    "cast(id / 4 AS decimal(9, 2)) AS price",
    "timestamp_seconds(id) AS instant",
    "'f79c3e09-677c-4bbd-a479-3f349cb785e7' AS ref",
    "array('a', null) AS tags",
    f"'{CANARY}' AS note",
)
LINEAGE = ("*", "_row_id", "_last_updated_sequence_number")
IDENTITY = ["id", "_row_id", "_last_updated_sequence_number"]
NAME = "db.compacted"


@pytest.fixture
def table(spark: SparkSession, lake: Lake) -> EncryptedTable:
    """Five appends into two partitions, some rows updated, some marked as deleted."""
    properties = {"encryption.key-id": "alias/orders", "write.delete.mode": "merge-on-read", "write.merge.mode": "merge-on-read"}
    made = lake.catalog.create_table(NAME, SCHEMA, partition_spec=SPEC, properties=properties)
    assert isinstance(made, EncryptedTable)
    name = lake.identifier(NAME)
    for first, last in ((0, 20), (20, 40), (40, 50), (50, 60), (60, 70)):
        tcs.write_table(spark.range(first, last).selectExpr(*COLUMNS).coalesce(1), name, catalog_properties=lake.properties)
    tcs.write_table(spark.range(35, 37).selectExpr(*COLUMNS), name, "merge", keys=["id"], catalog_properties=lake.properties)
    made.refresh().delete("id in (3, 44, 55)")
    made.refresh()
    return made


@pytest.fixture(scope="module")
def judge(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaJudge]:
    with JavaJudge(tmp_path_factory.mktemp("compact-judge"), aws.endpoint) as running:
        yield running


def content(table: EncryptedTable) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.refresh().scan(selected_fields=LINEAGE).to_arrow().sort_by("id").to_pylist()
    return rows


def stored(table: EncryptedTable) -> set[str]:
    return {path.name for path in Path(table.location().removeprefix("file://")).rglob("*.parquet")}


def test_java_reads_the_same_rows_and_row_ids_before_and_after(
    spark: SparkSession, lake: Lake, table: EncryptedTable, judge: JavaJudge
) -> None:
    before = content(table)
    judge.register("judged.before", table.metadata_location)
    java_before = judge.rows("judged.before", lineage=True).sort_by("id")
    heard: list[Progress] = []

    done = tcs.compact(spark, lake.identifier(NAME), progress=heard.append, catalog_properties=lake.properties)

    assert content(table) == before
    assert len(before) == 67
    assert (done.groups, done.added_files, len(done.snapshot_ids)) == (2, 2, 1)
    assert done.removed_delete_files >= 4
    assert heard[-1].done == heard[-1].total == done.rewritten_files
    assert len(heard) == 2
    judge.register("judged.after", table.metadata_location)
    java_after = judge.rows("judged.after", lineage=True).sort_by("id")
    assert java_after.select(IDENTITY) == java_before.select(IDENTITY)
    assert java_after.select(IDENTITY).to_pylist() == [{name: row[name] for name in IDENTITY} for row in before]


def test_java_equality_deletes_are_applied_and_later_ones_still_hold(
    spark: SparkSession, lake: Lake, table: EncryptedTable, judge: JavaJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = lake.catalog.create_table("db.keyed", SCHEMA, properties={"encryption.key-id": "alias/orders"})
    for first in (0, 10):
        tcs.write_table(
            spark.range(first, first + 10).selectExpr(*COLUMNS), lake.identifier("db.keyed"), catalog_properties=lake.properties
        )
    judge.register("judged.keyed", plain.refresh().metadata_location)
    judge.append_equality_deletes("judged.keyed", "id", [4, 15])
    keyed = lake.catalog.register_table("db.back", judge.metadata_location("judged.keyed"))
    assert isinstance(keyed, EncryptedTable)
    before = content(keyed)
    assert len(before) == 18

    done = tcs.compact(spark, lake.identifier("db.back"), catalog_properties=lake.properties)

    assert content(keyed) == before
    assert done.removed_delete_files == 1
    judge.register("judged.keyed_after", keyed.metadata_location)
    assert sorted(judge.rows("judged.keyed_after")["id"].to_pylist()) == [row["id"] for row in before]


@pytest.mark.parametrize("sort_by", [["id"], ["price", "id"]])
def test_rows_are_sorted_across_the_files_of_a_partition(
    spark: SparkSession, lake: Lake, table: EncryptedTable, judge: JavaJudge, sort_by: list[str]
) -> None:
    before = content(table)

    done = tcs.compact(
        spark, lake.identifier(NAME), rewrite_all=True, target_file_size=4000, sort_by=sort_by, catalog_properties=lake.properties
    )

    assert content(table) == before
    assert done.added_files > 2
    assert not any(task.delete_files for task in table.scan().plan_files())
    bounds: dict[Any, list[tuple[int, int]]] = {}
    for task in table.scan().plan_files():
        with_bounds = task.file
        lower, upper = with_bounds.lower_bounds[1], with_bounds.upper_bounds[1]
        place = (int.from_bytes(lower, "little"), int.from_bytes(upper, "little"))
        bounds.setdefault(with_bounds.partition[0], []).append(place)
    assert len(bounds) == 2
    for ranges in bounds.values():
        ordered = sorted(ranges)
        assert all(one[1] < other[0] for one, other in itertools.pairwise(ordered)), "files of a partition overlap"
    judge.register(f"judged.sorted_{len(sort_by)}", table.metadata_location)
    java = judge.rows(f"judged.sorted_{len(sort_by)}", lineage=True).sort_by("id").select(IDENTITY)
    assert java.to_pylist() == [{name: row[name] for name in IDENTITY} for row in before]


@pytest.mark.parametrize("sort_by", [[], ["id"]])
def test_a_delete_meanwhile_is_a_conflict_that_loses_nothing(
    spark: SparkSession, lake: Lake, table: EncryptedTable, monkeypatch: pytest.MonkeyPatch, sort_by: list[str]
) -> None:
    original = Compaction.finish

    def finish(job: Compaction) -> Any:
        lake.catalog.load_table(NAME).delete("id = 7")
        return original(job)

    monkeypatch.setattr(Compaction, "finish", finish)
    expected = [row for row in content(table) if row["id"] != 7]
    known = stored(table)

    with pytest.raises(ValidationException, match="were deleted while it was rewritten"):
        tcs.compact(spark, lake.identifier(NAME), sort_by=sort_by, catalog_properties=lake.properties)

    assert content(table) == expected
    assert stored(table) == known


def test_maintenance_takes_the_session_too(spark: SparkSession, table: EncryptedTable) -> None:
    before = content(table)

    planned = compact_anywhere(table, dry_run=True, spark=spark)
    done = compact_anywhere(table, spark=spark)

    assert content(table) == before
    assert (planned.rewritten_files, planned.rewritten_bytes) == (done.rewritten_files, done.rewritten_bytes)


def test_partial_progress_and_a_sort_contradict_each_other(spark: SparkSession, lake: Lake, table: EncryptedTable) -> None:
    with pytest.raises(ConfigurationError, match="leave one of them out"):
        tcs.compact(spark, lake.identifier(NAME), sort_by=["id"], partial_progress=2, catalog_properties=lake.properties)
