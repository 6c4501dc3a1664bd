"""Iceberg Java as the reference for what Spark's own Parquet writer wrote on the JVM path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform

from tests.spark.conftest import Lake
from tests.spark.test_jvm_write import VALUES, create, data_files, frame, parquet, write
from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.java import JavaOracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
SPEC = PartitionSpec(
    PartitionField(2, 1000, TruncateTransform(12), "note_trunc"),
    PartitionField(10, 1001, DayTransform(), "instant_day"),
    PartitionField(1, 1002, BucketTransform(2), "id_bucket"),
    PartitionField(12, 1003, IdentityTransform(), "flag"),
)


@pytest.fixture(scope="module")
def oracle(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaOracle]:
    with JavaOracle(tmp_path_factory.mktemp("jvm-write-oracle"), aws.endpoint) as running:
        yield running


def test_java_reads_every_mode_and_its_own_files_have_the_same_schema(spark: SparkSession, lake: Lake, oracle: JavaOracle) -> None:
    table = create(lake, "db.written", VALUES, None, **{"format-version": "3"})
    write(frame(spark, 60), lake, "db.written")
    write(frame(spark, 40), lake, "db.written", "overwrite")
    write(frame(spark, 5), lake, "db.written", "overwrite", overwrite_filter="id < 10")

    oracle.register("from_spark.jvm_wrote", table.refresh().metadata_location)
    rows = table.scan().to_arrow()
    java_rows = oracle.rows("from_spark.jvm_wrote", lineage=True)
    assert_same_rows(java_rows.drop_columns(["_row_id", "_last_updated_sequence_number"]), rows)
    assert len(set(java_rows["_row_id"].to_pylist())) == 35

    oracle.append("from_spark.jvm_wrote", rows)
    back = lake.catalog.register_table("db.back", oracle.metadata_location("from_spark.jvm_wrote"))
    written = {file.file_path for file in data_files(table)}
    schemas = {file.file_path in written: parquet(back, file).schema for file in data_files(back)}
    assert str(schemas[True]).split("\n")[1:] == str(schemas[False]).split("\n")[1:]
    with_ids = [schemas[ours].to_arrow_schema().remove_metadata() for ours in (True, False)]
    assert with_ids[0].equals(with_ids[1], check_metadata=True)


def test_java_finds_rows_by_their_partitions(spark: SparkSession, lake: Lake, oracle: JavaOracle) -> None:
    table = create(lake, "db.parts", VALUES, SPEC)
    write(frame(spark, 30), lake, "db.parts", distribute_by="partition")
    write(frame(spark, 12), lake, "db.parts", "overwrite_partitions")

    oracle.register("from_spark.jvm_parts", table.refresh().metadata_location)
    rows = table.scan().to_arrow()
    assert rows.num_rows == 30
    assert_same_rows(oracle.rows("from_spark.jvm_parts"), rows)
    found = oracle.sql(
        "SELECT id FROM h.from_spark.jvm_parts WHERE flag AND instant < timestamp'1969-12-25 00:00:00' AND id IN (8, 9, 10, 26)"
    )
    assert found is not None
    assert sorted(found["id"].to_pylist()) == [8, 10, 26]
