"""No nonce, DEK or AAD prefix is used twice by tasks of Spark, each in a process or thread of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

import tablecrypt.spark as tcs
from tests.security.nonces import FEW_ROWS_A_PAGE, keys_of, repeated, stored_nonces
from tests.spark.conftest import Lake
from tests.support.plaintext import CANARY
from tests.support.tables import MASTER_KEY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.campaign, pytest.mark.timeout(3600)]
FILES, LENGTH, WRITES = 8, 9000, 15
LEAST_OF_JAVA = {"write.parquet.page-size-bytes": "128", "write.parquet.dict-size-bytes": "128"}
"""parquet-java makes no smaller buffers."""


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_no_nonce_is_twice_in_what_tasks_wrote(spark: SparkSession, lake: Lake, mode: Any, record_property: Any) -> None:
    df = spark.range(FILES * LENGTH, numPartitions=FILES).selectExpr("id", f"'{CANARY}' AS text")
    identifier = lake.identifier("db.t")
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType()))
    lake.catalog.create_table("db.t", schema, properties={"encryption.key-id": MASTER_KEY, **FEW_ROWS_A_PAGE, **LEAST_OF_JAVA})
    for _ in range(WRITES):
        tcs.write_table(df, identifier, mode, catalog_properties=lake.properties)
    table = lake.catalog.load_table("db.t")
    nonces = stored_nonces(lake.warehouse)
    deks, prefixes = keys_of(table)
    record_property("nonces", f"{len(nonces)} in {len(deks)} files")
    assert len(deks) > FILES * WRITES
    assert repeated(nonces) == repeated(deks) == repeated(prefixes) == []
