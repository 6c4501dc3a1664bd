"""Every Java class passes the JVM's verifier, which looks at what Janino wrote only when a class is used, and refers
to nothing that older releases lack, on which the same jar runs."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from tablecrypt.spark.shared import install
from tests.spark.conftest import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.java


def test_every_class_is_verified_and_initialised(spark: SparkSession, prod: Lake) -> None:
    gateway: Any = spark.sparkContext._gateway
    loader = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()
    [jar] = install._jars
    names = [name.removesuffix(".class").replace("/", ".") for name in zipfile.ZipFile(jar).namelist() if name.endswith(".class")]
    assert {"tablecrypt.jvm.SqlCatalog", "tablecrypt.jvm.SqlProcedure", "tablecrypt.jvm.DriverEndpoint"} <= set(names)
    for name in names:
        gateway.jvm.java.lang.Class.forName(name, True, loader)


def test_no_class_refers_to_what_releases_before_4_2_lack(prod: Lake) -> None:
    """Spark 4.2 moved methods of Table to a new interface, to which Janino links a call there."""
    [path] = install._jars
    with zipfile.ZipFile(path) as jar:
        linked = [name for name in jar.namelist() if b"org/apache/spark/sql/connector/catalog/Relation" in jar.read(name)]
    assert linked == []
