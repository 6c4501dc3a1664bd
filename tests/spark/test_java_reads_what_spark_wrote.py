"""Iceberg Java as the reference for what our Spark executors write, and as the writer of what they read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import DecimalType, ListType, LongType, NestedField, StringType, TimestampType, TimestamptzType, UUIDType

import tablecrypt.spark as tcs
from tests.spark.conftest import Lake
from tests.support.compare import assert_same_rows
from tests.support.java import JavaOracle
from tests.support.plaintext import CANARY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType()),
    NestedField(3, "price", DecimalType(9, 2)),
    NestedField(4, "local", TimestampType()),
    NestedField(5, "instant", TimestamptzType()),
    NestedField(6, "ref", UUIDType()),
    NestedField(7, "tags", ListType(8, StringType(), element_required=False)),
    NestedField(9, "note", StringType()),
)
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"), PartitionField(1, 1001, BucketTransform(2), "id_bucket"))
PROPERTIES = {"encryption.key-id": "alias/orders", "write.delete.mode": "merge-on-read"}
COLUMNS = (
    "id",
    "concat('r', cast(id % 3 AS string)) AS region",
    "cast(id / 4 AS decimal(9, 2)) AS price",
    "timestamp_ntz'2024-03-31T02:30:00' AS local",
    "timestamp_seconds(id) AS instant",
    "'f79c3e09-677c-4bbd-a479-3f349cb785e7' AS ref",
    "array('a', null) AS tags",
    f"'{CANARY}' AS note",
)


@pytest.mark.first
def test_java_reads_appends_and_is_read(spark: SparkSession, lake: Lake, java: JavaOracle) -> None:
    table = lake.catalog.create_table("db.written", SCHEMA, partition_spec=SPEC, properties=PROPERTIES)
    name = lake.identifier("db.written")
    tcs.write_table(spark.range(0, 50).selectExpr(*COLUMNS), name, catalog_properties=lake.properties)
    tcs.write_table(spark.range(50, 100).selectExpr(*COLUMNS), name, "overwrite", catalog_properties=lake.properties)
    tcs.write_table(spark.range(100, 120).selectExpr(*COLUMNS), name, catalog_properties=lake.properties)

    java.register("from_spark.spark_wrote", table.refresh().metadata_location)
    java_rows = java.rows("from_spark.spark_wrote", lineage=True)
    ours = tcs.read_table(spark, name, catalog_properties=lake.properties).toArrow()
    assert_same_rows(java_rows.drop_columns(["_row_id", "_last_updated_sequence_number"]), ours)
    assert sorted(java_rows["id"].to_pylist()) == list(range(50, 120))
    assert len(set(java_rows["_row_id"].to_pylist())) == 70

    java.append("from_spark.spark_wrote", ours.filter(pc.field("id") < 60))
    java.sql("DELETE FROM h.from_spark.spark_wrote WHERE id % 10 = 9")
    assert list(lake.warehouse.rglob("*.puffin")), "Java wrote no deletion vector"
    lake.catalog.register_table("db.back", java.metadata_location("from_spark.spark_wrote"))
    back = tcs.read_table(spark, lake.identifier("db.back"), catalog_properties=lake.properties)
    assert_same_rows(back.toArrow(), java.rows("from_spark.spark_wrote"))
    assert back.count() == 72


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_java_reads_merged_deleted_and_replaced_rows(spark: SparkSession, lake: Lake, java: JavaOracle, mode: str) -> None:
    properties = {**PROPERTIES, "write.delete.mode": mode, "write.merge.mode": mode}
    table = lake.catalog.create_table("db.changed", SCHEMA, partition_spec=SPEC, properties=properties)
    name = lake.identifier("db.changed")

    def write(first: int, last: int, kind: Any, **arguments: Any) -> None:
        rows = spark.range(first, last).selectExpr(*COLUMNS)
        tcs.write_table(rows, name, kind, catalog_properties=lake.properties, **arguments)

    write(0, 60, "append", distribute_by="partition", sort_by=["id"])
    write(50, 70, "merge", keys=["id"])
    tcs.delete_where(spark, name, "id < 10", catalog_properties=lake.properties)
    write(100, 101, "overwrite_partitions")
    write(200, 203, "overwrite", overwrite_filter="id > 65")

    java.register(f"from_spark.spark_changed_{mode.replace('-', '_')}", table.refresh().metadata_location)
    java_rows = java.rows(f"from_spark.spark_changed_{mode.replace('-', '_')}", lineage=True)
    ours = table.scan(selected_fields=("*", "_row_id", "_last_updated_sequence_number")).to_arrow()
    columns = ["id", "_row_id", "_last_updated_sequence_number"]
    assert java_rows.select(columns).sort_by("id").to_pylist() == ours.select(columns).sort_by("id").to_pylist()
    assert_same_rows(java_rows.drop_columns(columns[1:]), table.scan().to_arrow())
    assert {200, 201, 202} <= set(java_rows["id"].to_pylist())
    assert bool(list(lake.warehouse.rglob("*.puffin"))) == (mode == "merge-on-read")
