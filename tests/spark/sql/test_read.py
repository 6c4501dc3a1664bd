"""SELECT on encrypted tables: the rows that PyIceberg reads, whichever reader a file needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.spark.conftest import Lake
from tests.spark.test_jvm_path import KEY, VALUES, values
from tests.support.compare import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def valued(prod: Lake) -> str:
    """A table with two files, the second with a deletion vector."""
    table = prod.catalog.create_table("db.valued", VALUES, properties=KEY)
    table.append(values(0, 60))
    table.append(values(60, 60))
    table.delete("id in (61, 62, 119)")
    return "db.valued"


def rows_of(lake: Lake, name: str, **options: Any) -> pa.Table:
    """The rows that PyIceberg reads."""
    return lake.catalog.load_table(name).scan(**options).to_arrow()


def test_all_rows_and_types_are_those_of_the_table(spark: SparkSession, prod: Lake, valued: str) -> None:
    assert_same_rows(spark.sql(f"SELECT * FROM prod.{valued}").toArrow(), rows_of(prod, valued))
    assert spark.sql(f"SELECT count(*) AS n FROM prod.{valued}").collect()[0]["n"] == 117
    assert spark.table(f"prod.{valued}").where("id < 3").select("id", "`inner`.`y.z`").count() == 3
