"""Jobs in a session whose messages anyone could read: they run with one warning, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

import tablecrypt.spark as tcs
from tablecrypt.errors import ConfigurationError
from tablecrypt.spark import network
from tests.spark.conftest import Lake
from tests.support.plaintext import CANARY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "note", StringType()))


def test_jobs_on_the_python_path_warn_once(open_spark: SparkSession, lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake.catalog.create_table("db.rows", SCHEMA, properties={"encryption.key-id": "alias/orders"})
    name = lake.identifier("db.rows")

    for _ in range(2):
        rows = open_spark.range(10).selectExpr("id", f"'{CANARY}' AS note")
        tcs.write_table(rows, name, path="python", catalog_properties=lake.properties)
    assert tcs.read_table(open_spark, name, path="python", catalog_properties=lake.properties).count() == 20

    assert [record.message.count("talk in the clear") for record in caplog.records if record.name == network.__name__] == [1]


def test_jobs_are_refused_where_the_catalog_requires_private_messages(open_spark: SparkSession, lake: Lake) -> None:
    table = lake.catalog.create_table("db.rows", SCHEMA, properties={"encryption.key-id": "alias/orders"})
    name, strict = lake.identifier("db.rows"), lake.properties | {"tablecrypt.spark.require-encrypted-rpc": "true"}
    rows = open_spark.range(10).selectExpr("id", f"'{CANARY}' AS note")

    with pytest.raises(ConfigurationError, match=r"set spark\.authenticate and spark\.network\.crypto\.enabled"):
        tcs.write_table(rows, name, path="python", catalog_properties=strict)

    assert not list(lake.warehouse.rglob("*.parquet"))
    assert table.refresh().current_snapshot() is None
    tcs.write_table(rows, name, path="python", catalog_properties=lake.properties)
    with pytest.raises(ConfigurationError, match="sends rows and tasks over the network in the clear"):
        tcs.read_table(open_spark, name, path="python", catalog_properties=strict)
