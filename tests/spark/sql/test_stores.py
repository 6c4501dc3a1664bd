"""The SQL catalog on other catalogs: REST and Hive. S3 is in test_servers.py, where an application starts with Hadoop's S3A."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema

from tablecrypt import spark as tcs
from tests.support.aws import AwsServer
from tests.support.hive import HiveMetastore
from tests.support.plaintext import CANARY
from tests.support.rest_server import RestServer, new_namespace
from tests.support.tables import MASTER_KEY
from tests.support.version_2_server import Version2Server

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


def test_a_rest_catalog_that_makes_tables_of_version_2(spark: SparkSession, aws: AwsServer, unwatched_warehouse: Path) -> None:
    """CREATE TABLE, CREATE TABLE AS SELECT and register_table leave nothing that another client would write plaintext into."""
    behind = SqlCatalog("behind", uri=f"sqlite:///{unwatched_warehouse}/catalog.db", warehouse=unwatched_warehouse.as_uri())
    behind.create_namespace("db")
    promised = behind.create_table("db.promised", Schema(), properties={"encryption.key-id": MASTER_KEY})
    behind.drop_table("db.promised")
    encrypted = f"TBLPROPERTIES ('encryption.key-id' = '{MASTER_KEY}')"
    statements = {
        False: [
            f"CREATE TABLE version_2.db.t (id BIGINT) {encrypted}",
            f"CREATE TABLE version_2.db.t (id BIGINT DEFAULT 7) {encrypted}",
            f"CREATE TABLE version_2.db.t USING iceberg {encrypted} AS SELECT id FROM range(3)",
            f"CREATE OR REPLACE TABLE version_2.db.t USING iceberg {encrypted} AS SELECT id FROM range(3)",
            f"CALL version_2.system.register_table('db.t', '{promised.metadata_location}')",
        ],
        True: [f"CREATE TABLE version_2.db.t USING iceberg {encrypted} AS SELECT id FROM range(3)"],
    }
    with Version2Server(behind) as server:
        tcs.catalog(spark, "version_2", server.client_properties(**aws.kms_properties))
        for server.stages_version_3, each in ((staged, sql) for staged, of in statements.items() for sql in of):
            with pytest.raises(Exception, match=r"PlaintextRefusedError: .*version 2"):
                spark.sql(each).collect()
            assert behind.list_tables("db") == [], each
