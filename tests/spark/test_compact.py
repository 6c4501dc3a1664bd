"""Compaction as jobs on the cluster: rows and their identity before and after, as we read them and as Iceberg Java does."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import ValidationException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import DecimalType, IntegerType, ListType, LongType, NestedField, StringType, TimestamptzType, UUIDType

import tablecrypt.spark as tcs
from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import Progress
from tablecrypt.table.table import EncryptedTable
from tests.spark.conftest import Lake
from tests.support.interrupted_catalog import INTERRUPTED, at_commits, once
from tests.support.java import JavaOracle
from tests.support.plaintext import CANARY
from tests.support.tables import folder_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "number", IntegerType()),
    NestedField(3, "price", DecimalType(9, 2)),
    NestedField(4, "instant", TimestamptzType()),
    NestedField(5, "ref", UUIDType()),
    NestedField(6, "tags", ListType(8, StringType(), element_required=False)),
    NestedField(7, "note", StringType()),
)
SPEC = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "bucket"))
LINEAGE = ("*", "_row_id", "_last_updated_sequence_number")
IDENTITY = ["id", "_row_id", "_last_updated_sequence_number"]
NAME = "db.compacted"
PROPERTIES = {"encryption.key-id": "alias/orders", "write.delete.mode": "merge-on-read", "write.merge.mode": "merge-on-read"}


def rows(first: int, last: int) -> pa.Table:
    ids = list(range(first, last))
    columns = {
        "id": ids,
        "number": ids,
        "price": [decimal.Decimal(each) / 4 for each in ids],
        "instant": [dt.datetime.fromtimestamp(each, dt.UTC) for each in ids],
        "ref": [uuid.UUID(int=each).bytes for each in ids],
        "tags": [["a", None]] * len(ids),
        "note": [CANARY] * len(ids),
    }
    return pa.table(columns, schema=SCHEMA.as_arrow())


@pytest.fixture
def table(lake: Lake) -> EncryptedTable:
    """Five appends into two partitions, some rows updated, some marked as deleted."""
    made = lake.catalog.create_table(NAME, SCHEMA, partition_spec=SPEC, properties=PROPERTIES)
    assert isinstance(made, EncryptedTable)
    for first, last in ((0, 20), (20, 40), (40, 50), (50, 60), (60, 70)):
        made.append(rows(first, last))
    made.upsert(rows(35, 37).set_column(1, "number", pa.array([-1, -2], pa.int32())), ["id"])
    made.delete("id in (3, 44, 55)")
    return made


def content(table: EncryptedTable) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.refresh().scan(selected_fields=LINEAGE).to_arrow().sort_by("id").to_pylist()
    return rows


def stored(table: EncryptedTable) -> set[str]:
    return {path.name for path in folder_of(table).rglob("*.parquet")}


def test_java_reads_the_same_rows_and_row_ids_before_and_after(
    spark: SparkSession, lake: Lake, table: EncryptedTable, java: JavaOracle
) -> None:
    before = content(table)
    java.register("judged.before", table.metadata_location)
    java_before = java.rows("judged.before", lineage=True).sort_by("id")
    heard: list[Progress] = []

    done = tcs.compact(spark, lake.identifier(NAME), progress=heard.append, catalog_properties=lake.properties)

    assert content(table) == before
    assert len(before) == 67
    assert (done.groups, done.added_files, len(done.snapshot_ids)) == (2, 2, 1)
    assert done.removed_delete_files >= 4
    assert heard[-1].done == heard[-1].total == done.rewritten_files
    assert len(heard) == 2
    java.register("judged.after", table.metadata_location)
    java_after = java.rows("judged.after", lineage=True).sort_by("id")
    assert java_after.select(IDENTITY) == java_before.select(IDENTITY)
    assert java_after.select(IDENTITY).to_pylist() == [{name: row[name] for name in IDENTITY} for row in before]


def test_equality_deletes_of_java_are_applied_and_go(spark: SparkSession, lake: Lake, java: JavaOracle) -> None:
    keyed = lake.catalog.create_table("db.keyed", SCHEMA, properties=PROPERTIES)
    for first in (0, 10):
        keyed.append(rows(first, first + 10))
    java.register("judged.keyed", keyed.metadata_location)
    java.append_equality_deletes("judged.keyed", "number", [4, 15])
    back = lake.catalog.register_table("db.back", java.metadata_location("judged.keyed"))
    assert isinstance(back, EncryptedTable)
    before = content(back)
    assert len(before) == 18

    done = tcs.compact(spark, lake.identifier("db.back"), catalog_properties=lake.properties)

    assert content(back) == before
    assert (done.rewritten_files, done.removed_delete_files) == (2, 1)
    java.register("judged.keyed_after", back.metadata_location)
    judged = java.rows("judged.keyed_after", lineage=True).sort_by("id").select(IDENTITY)
    assert judged.to_pylist() == [{name: row[name] for name in IDENTITY} for row in before]


def test_rows_are_sorted_across_the_files_of_a_partition(spark: SparkSession, lake: Lake, table: EncryptedTable, java: JavaOracle) -> None:
    before = content(table)

    done = tcs.compact(
        spark,
        lake.identifier(NAME),
        rewrite_all=True,
        target_file_size=4000,
        sort_by=["price", "id"],
        catalog_properties=lake.properties,
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
    java.register("judged.sorted", table.metadata_location)
    judged = java.rows("judged.sorted", lineage=True).sort_by("id").select(IDENTITY)
    assert judged.to_pylist() == [{name: row[name] for name in IDENTITY} for row in before]


def test_deletes_are_applied_where_that_is_asked(spark: SparkSession, lake: Lake, table: EncryptedTable) -> None:
    before = content(table)
    with_deletes = {task.file.file_path for task in table.scan().plan_files() if task.delete_files}
    rules: dict[str, Any] = {"min_input_files": 100, "target_file_size": 4000, "delete_ratio": 1.0}

    done = tcs.compact(spark, lake.identifier(NAME), apply_deletes=True, sort_by=["id"], **rules, catalog_properties=lake.properties)

    assert content(table) == before
    remaining = {task.file.file_path: task for task in table.scan().plan_files()}
    assert not with_deletes & remaining.keys()
    assert not any(task.delete_files for task in remaining.values())
    assert (done.removed_delete_files, done.left_with_deletes) == (len(with_deletes), 0)


def test_a_delete_meanwhile_is_a_conflict_that_loses_nothing(spark: SparkSession, lake: Lake, table: EncryptedTable) -> None:
    expected = [row for row in content(table) if row["id"] != 7]
    known = stored(table)

    with (
        at_commits(before=once(lambda: lake.catalog.load_table(NAME).delete("id = 7"))),
        pytest.raises(ValidationException, match="were deleted meanwhile"),
    ):
        tcs.compact(spark, lake.identifier(NAME), sort_by=["id"], catalog_properties=lake.properties | INTERRUPTED)

    assert content(table) == expected
    assert stored(table) == known


def test_partial_progress_and_a_sort_contradict_each_other(spark: SparkSession, lake: Lake, table: EncryptedTable) -> None:
    with pytest.raises(ConfigurationError, match="leave one of them out"):
        tcs.compact(spark, lake.identifier(NAME), sort_by=["id"], partial_progress=2, catalog_properties=lake.properties)


def test_arguments_of_compact_are_those_of_maintenance(spark: SparkSession, lake: Lake, table: EncryptedTable) -> None:
    with pytest.raises(TypeError, match="min_files"):
        tcs.compact(spark, lake.identifier(NAME), min_files=2, catalog_properties=lake.properties)
    with pytest.raises(ConfigurationError, match="min_input_files is a str"):
        tcs.compact(spark, lake.identifier(NAME), min_input_files="2", catalog_properties=lake.properties)
