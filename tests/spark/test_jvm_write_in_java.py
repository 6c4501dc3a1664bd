"""Iceberg Java as the reference for what Parquet's Java writer wrote on the JVM path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import Lake
from tests.spark.test_jvm_write import VALUES, create, frame, parquet, write
from tests.support.compare import assert_same_rows
from tests.support.java import JavaOracle
from tests.support.tables import data_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]


def test_java_reads_every_mode_and_its_own_files_have_the_same_schema(spark: SparkSession, lake: Lake, java: JavaOracle) -> None:
    table = create(lake, "db.written", VALUES, None, **{"format-version": "3"})
    write(frame(spark, 60), lake, "db.written")
    write(frame(spark, 40), lake, "db.written", "overwrite")
    write(frame(spark, 5), lake, "db.written", "overwrite", overwrite_filter="id < 10")

    java.register("from_spark.jvm_wrote", table.refresh().metadata_location)
    rows = table.scan().to_arrow()
    java_rows = java.rows("from_spark.jvm_wrote", lineage=True)
    assert_same_rows(java_rows.drop_columns(["_row_id", "_last_updated_sequence_number"]), rows)
    assert len(set(java_rows["_row_id"].to_pylist())) == 35

    java.append("from_spark.jvm_wrote", rows)
    back = lake.catalog.register_table("db.back", java.metadata_location("from_spark.jvm_wrote"))
    written = {file.file_path for file in data_files(table.refresh())}
    schemas = {file.file_path in written: parquet(back, file).schema for file in data_files(back.refresh())}
    assert str(schemas[True]).split("\n")[1:] == str(schemas[False]).split("\n")[1:]
    with_ids = [schemas[ours].to_arrow_schema().remove_metadata() for ours in (True, False)]
    assert with_ids[0].equals(with_ids[1], check_metadata=True)
