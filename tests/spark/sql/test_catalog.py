"""The SQL catalog knows what PyIceberg's catalog knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.spark.conftest import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.java


def test_namespaces_tables_and_columns_are_those_of_the_catalog(spark: SparkSession, prod: Lake, new_name: str) -> None:
    prod.catalog.create_table(
        new_name, pa.schema([("id", pa.int64()), ("note", pa.string())]), properties={"encryption.key-id": "alias/orders"}
    )

    assert ["db"] in [list(row) for row in spark.sql("SHOW NAMESPACES IN prod").collect()]
    assert new_name.partition(".")[2] in [row["tableName"] for row in spark.sql("SHOW TABLES IN prod.db").collect()]
    columns = spark.sql(f"DESCRIBE prod.{new_name}").collect()
    assert [(row["col_name"], row["data_type"]) for row in columns][:2] == [("id", "bigint"), ("note", "string")]
