"""The SQL catalog on other catalogs: REST and Hive. S3 is in test_servers.py, where an application starts with Hadoop's S3A."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.catalog import load_catalog

from tablecrypt import spark as tcs
from tests.support.aws import AwsServer
from tests.support.hive import HiveMetastore
from tests.support.plaintext import CANARY
from tests.support.rest_server import RestServer, new_namespace

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]


def use(spark: SparkSession, name: str, catalog: Catalog, namespace: str) -> None:
    """Create, insert, update, delete, overwrite and maintain a table by SQL; PyIceberg reads what SQL reads."""
    table = f"{name}.{namespace}.orders"
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, region STRING, note STRING) PARTITIONED BY (region) "
        "TBLPROPERTIES ('encryption.key-id' = 'alias/orders')"
    )
    spark.sql(f"INSERT INTO {table} SELECT id, concat('r', id % 2), '{CANARY}' FROM range(20)")
    spark.sql(f"UPDATE {table} SET note = 'changed' WHERE id = 3")
    spark.sql(f"DELETE FROM {table} WHERE id < 3")
    spark.sql(f"CALL {name}.system.rewrite_data_files('{namespace}.orders', options => map('rewrite-all', 'true'))")

    assert [tuple(row) for row in spark.sql(f"SELECT count(*), min(id), max(id) FROM {table} WHERE region = 'r1'").collect()] == [
        (9, 3, 19)
    ]
    assert [row["note"] for row in spark.sql(f"SELECT note FROM {table} WHERE id = 3").collect()] == ["changed"]
    [verified] = spark.sql(f"CALL {name}.system.verify('{namespace}.orders')").collect()
    assert verified["good"] and not verified["empty"]
    assert sorted(catalog.load_table(f"{namespace}.orders").scan().to_arrow()["id"].to_pylist()) == list(range(3, 20))


def test_a_rest_catalog(spark: SparkSession, aws: AwsServer, rest_server: RestServer) -> None:
    properties = {"py-catalog-impl": "tablecrypt_catalog.EncryptedRestCatalog", "uri": rest_server.uri, **aws.kms_properties}
    tcs.catalog(spark, "on_rest", properties)

    use(spark, "on_rest", load_catalog("on_rest", **properties), new_namespace(rest_server))


def test_a_hive_metastore(spark: SparkSession, aws: AwsServer, hive_metastore: HiveMetastore, warehouse: Path) -> None:
    properties = {
        "py-catalog-impl": "tablecrypt_catalog.EncryptedHiveCatalog",
        "uri": hive_metastore.uri,
        "warehouse": warehouse.as_uri(),
        "hive.hive2-compatible": "true",
        **aws.kms_properties,
    }
    catalog, namespace = load_catalog("on_hive", **properties), f"sql{uuid.uuid4().hex[:8]}"
    catalog.create_namespace(namespace, {"location": f"{warehouse.as_uri()}/{namespace}"})
    tcs.catalog(spark, "on_hive", properties)

    use(spark, "on_hive", catalog, namespace)
