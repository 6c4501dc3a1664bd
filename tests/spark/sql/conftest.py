"""One catalog of Spark SQL for all tests of this folder."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from pyiceberg.catalog import load_catalog

from tablecrypt import spark as tcs
from tests.spark.conftest import Lake
from tests.support.aws import AwsServer

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
        "warehouse": (folder / "warehouse").as_uri(),
        **aws.kms_properties,
    }
    catalog = load_catalog("prod", **properties)
    catalog.create_namespace("db")
    tcs.catalog(spark, "prod", properties)
    return Lake(catalog, properties, Path(folder / "warehouse"))


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
