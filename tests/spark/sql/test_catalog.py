"""The SQL catalog knows what PyIceberg's catalog knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import tablecrypt.spark as tcs
from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.sql.added_catalog import CATALOG_CLASS
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


def test_a_catalog_that_was_used_takes_no_other_properties(spark: SparkSession, prod: Lake) -> None:
    catalog, properties = "changed", dict(prod.properties)
    tcs.catalog(spark, catalog, {**properties, "uri": "sqlite:////nowhere/catalog.db"})
    tcs.catalog(spark, catalog, properties)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.db")
    tcs.catalog(spark, catalog, properties)

    with pytest.raises(ConfigurationError, match=f"the session has used a catalog {catalog} with other properties"):
        tcs.catalog(spark, catalog, {**properties, "warehouse": "file:///elsewhere"})

    other = spark.newSession()
    tcs.catalog(other, catalog, {**properties, "warehouse": "file:///elsewhere"})
    of_other = other.sql(f"SHOW NAMESPACES IN {catalog}").collect()
    assert ("db",) in of_other
    assert of_other == spark.sql(f"SHOW NAMESPACES IN {catalog}").collect()


def test_a_copy_of_a_session_opens_the_catalog_with_the_properties_of_that_session(spark: SparkSession, prod: Lake) -> None:
    mine, other = spark.newSession(), spark.newSession()
    tcs.catalog(mine, "prod", prod.properties)
    tcs.catalog(other, "prod", {**prod.properties, "uri": "sqlite:////nowhere/catalog.db"})

    copied = type(mine)(mine.sparkContext, mine._jsparkSession.cloneSession())

    assert "db" in [row["namespace"] for row in copied.sql("SHOW NAMESPACES IN prod").collect()]
    with pytest.raises(Exception, match="unable to open database file"):
        other.sql("SHOW NAMESPACES IN prod").collect()


def test_a_session_that_makes_up_what_it_was_given_has_no_catalog(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.made_up", CATALOG_CLASS)
    session.conf.set("spark.sql.catalog.made_up.given", "0" * 32)

    with pytest.raises(Exception, match=r"spark\.sql\.catalog\.made_up\.given is set by tablecrypt\.spark\.catalog alone"):
        session.sql("SHOW NAMESPACES IN made_up").collect()
