"""Every Java class passes the JVM's verifier on this release of Spark. It looks at what Janino wrote only when a class is used."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from tablecrypt.spark.jvm import install
from tests.spark.conftest import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.java


def test_every_class_is_verified_and_initialised(spark: SparkSession, prod: Lake) -> None:
    gateway: Any = spark.sparkContext._gateway
    loader = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()
    [jar] = install._compiled_jars
    names = [name.removesuffix(".class").replace("/", ".") for name in zipfile.ZipFile(jar).namelist()]
    assert {"tablecrypt.jvm.SqlCatalog", "tablecrypt.jvm.SqlProcedure", "tablecrypt.jvm.DriverEndpoint"} <= set(names)
    for name in names:
        gateway.jvm.java.lang.Class.forName(name, True, loader)
