"""One catalog of Spark SQL for all tests of this folder, and one that keeps views."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from pyiceberg.catalog import load_catalog

from tablecrypt import spark as tcs
from tests.spark.conftest import Lake
from tests.spark.sql.rest_views import NAME, Views
from tests.support.aws import AwsServer
from tests.support.rest_server import RestServer, encrypted_rest_catalog, new_namespace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers: Final = itertools.count()


@pytest.fixture(scope="session")
def prod(spark: SparkSession, aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A catalog that PyIceberg and Spark SQL both know as `prod`, with the namespace `db`."""
    folder = tmp_path_factory.mktemp("prod")
    (folder / "warehouse").mkdir()
    properties = {
        "py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": str(folder / "warehouse"),
        **aws.kms_properties,
    }
    catalog = load_catalog("prod", **properties)
    catalog.create_namespace("db")
    tcs.catalog(spark, "prod", properties)
    return Lake(catalog, properties, Path(folder / "warehouse"))


@pytest.fixture(scope="session")
def views(spark: SparkSession, aws: AwsServer, rest_server: RestServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Views]:
    """A REST catalog that Spark SQL knows as `seen`."""
    pins = tmp_path_factory.mktemp("views") / "pins.json"
    catalog = encrypted_rest_catalog(rest_server.uri, aws)
    namespace = new_namespace(rest_server)
    properties = {
        "py-catalog-impl": "tablecrypt_catalog.EncryptedRestCatalog",
        "uri": rest_server.uri,
        "encryption.pins": str(pins),
        **aws.kms_properties,
    }
    tcs.catalog(spark, NAME, properties)
    made = Views(spark, catalog, namespace, properties)
    made.sql("CREATE TABLE here.orders (id BIGINT, region STRING) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')")
    made.sql("INSERT INTO here.orders VALUES (1, 'eu'), (2, 'us'), (3, 'eu'), (4, NULL)")
    yield made
    made.sql(f"DROP NAMESPACE {made.prefix} CASCADE")
    assert not catalog.namespace_exists(namespace)


@pytest.fixture
def new_name() -> str:
    """The name of a table that no other test has, in the namespace `db`."""
    return f"db.t{next(_numbers)}"


@pytest.fixture
def of_analyst(spark: SparkSession, prod: Lake) -> SparkSession:
    """A session whose catalog `prod` is the same, without the right to the columns' master keys."""
    session = spark.newSession()
    tcs.catalog(session, "prod", prod.properties | {"encryption.allowed-key-ids": "alias/orders"})
    return session
