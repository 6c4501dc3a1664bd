"""The same operations on S3, on both paths. On other catalogs: sql/test_stores.py."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

import tablecrypt.spark as tcs
from tablecrypt.errors import ConfigurationError
from tests.spark.conftest import CATALOG
from tests.spark.test_jvm_path import is_jvm
from tests.support.aws import AwsServer
from tests.support.hadoop_s3 import s3a
from tests.support.plaintext import CANARY
from tests.support.tables import REGION_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))


def use(spark: SparkSession, catalog: Catalog, name: str, properties: Mapping[str, str], path: Any = None) -> None:
    """Append, merge, delete and overwrite; what Spark reads then is what the catalog's own client reads."""
    catalog.create_table(name, REGION_SCHEMA, partition_spec=SPEC, properties={"encryption.key-id": "alias/orders"})
    identifier = f"{CATALOG}.{name}"

    def write(first: int, last: int, mode: Any = "append", **arguments: Any) -> None:
        columns = ("id", "concat('r', cast(id % 2 AS string)) AS region", f"'{CANARY}' AS note")
        rows = spark.range(first, last, 1, 2).selectExpr(*columns)
        tcs.write_table(rows, identifier, mode, catalog_properties=properties, **arguments)

    write(0, 20, path=path)
    write(15, 25, "merge", keys=["id"])
    tcs.delete_where(spark, identifier, "id < 10", catalog_properties=properties)
    write(100, 101, "overwrite_partitions", path=path)

    expected = [*range(11, 25, 2), 100]
    for read_path in ("python", path):
        rows = tcs.read_table(spark, identifier, path=read_path, catalog_properties=properties)
        assert sorted(row["id"] for row in rows.collect()) == expected
    assert sorted(catalog.load_table(name).scan().to_arrow()["id"].to_pylist()) == expected


def s3_catalog(aws: AwsServer, folder: Path, scheme: str) -> tuple[Catalog, dict[str, str]]:
    properties = {
        "py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"{scheme}://{aws.bucket('spark-' + uuid.uuid4().hex[:8])}/lake",
        **aws.kms_properties,
        **aws.s3_properties,
    }
    catalog = load_catalog(CATALOG, **properties)
    catalog.create_namespace("db")
    return catalog, properties


def test_s3_with_pyicebergs_own_client(spark: SparkSession, aws: AwsServer, tmp_path: Path) -> None:
    catalog, properties = s3_catalog(aws, tmp_path, "s3")

    use(spark, catalog, "db.orders", properties)

    assert not is_jvm(tcs.read_table(spark, f"{CATALOG}.db.orders", catalog_properties=properties))
    with pytest.raises(ConfigurationError, match="Hadoop, with its own configuration and credentials, does not find it"):
        tcs.read_table(spark, f"{CATALOG}.db.orders", path="jvm", catalog_properties=properties)


def test_s3_with_hadoops_client(spark: SparkSession, aws: AwsServer, tmp_path: Path) -> None:
    catalog, properties = s3_catalog(aws, tmp_path, "s3a")

    with s3a(spark, aws):
        use(spark, catalog, "db.orders", properties, path="jvm")
        assert is_jvm(tcs.read_table(spark, f"{CATALOG}.db.orders", catalog_properties=properties))
