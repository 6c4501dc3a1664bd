"""Decimals that travel to Spark as whole numbers arrive as the decimals that they are."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, LongType, NestedField, StringType

import tablecrypt.spark as tcs
from tablecrypt.errors import FormatError
from tablecrypt.spark.columns import schema_for_spark, spark_schema
from tablecrypt.spark.read import sent_whole, unscaled
from tests.spark.conftest import Lake
from tests.support.plaintext import CANARY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA: Final = Schema(
    NestedField(1, "price", DecimalType(9, 2), required=True),
    NestedField(2, "a.`b`", DecimalType(18, 0)),
    NestedField(3, "tiny", DecimalType(1, 1)),
    NestedField(4, "huge", DecimalType(19, 2)),
    NestedField(5, "note", StringType()),
)
MOST: Final = 10**18 - 1


@given(st.lists(st.none() | st.integers(-MOST, MOST)), st.integers(0, 5), st.integers(0, 5))
def test_unscaled_values_are_those_of_the_decimals(numbers: list[int | None], start: int, end: int) -> None:
    values = [None if number is None else Decimal(number).scaleb(-3) for number in numbers]
    decimals = pa.array(values, pa.decimal128(18, 3))

    assert unscaled(decimals).to_pylist() == numbers
    assert unscaled(decimals.slice(start, end)).to_pylist() == numbers[start : start + end]


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64 + 5, 10**37])
def test_a_value_of_more_than_64_bits_is_refused(number: int) -> None:
    wide = pa.array([Decimal(1), Decimal(number), None], pa.decimal128(38, 0))
    claimed = pa.Array.from_buffers(pa.decimal128(18, 0), 3, wide.buffers())

    with pytest.raises(FormatError, match="more digits"):
        unscaled(claimed)
    assert unscaled(claimed.slice(2)).to_pylist() == [None]


@pytest.mark.java
@pytest.mark.slow
def test_rows_and_schema_are_those_of_the_table(spark: SparkSession, lake: Lake) -> None:
    table = lake.catalog.create_table("db.decimals", SCHEMA, properties={"encryption.key-id": "alias/orders"})
    rows: list[dict[str, Any]] = [
        {"price": Decimal("-9999999.99"), "a.`b`": Decimal(MOST), "tiny": Decimal("0.9"), "huge": Decimal("0.01"), "note": CANARY},
        {"price": Decimal("0.00"), "a.`b`": None, "tiny": None, "huge": None, "note": None},
        {"price": Decimal("12.34"), "a.`b`": Decimal(-MOST), "tiny": Decimal("-0.1"), "huge": Decimal("-1.00"), "note": "x"},
    ]
    table.append(pa.Table.from_pylist(rows, schema=SCHEMA.as_arrow()))

    df = tcs.read_table(spark, lake.identifier("db.decimals"), path="python", catalog_properties=lake.properties)

    assert "makedecimal" in df._jdf.queryExecution().toString().lower()
    assert df.schema == spark_schema(schema_for_spark(SCHEMA))
    assert sorted((row.asDict() for row in df.collect()), key=lambda row: row["price"]) == sorted(rows, key=lambda row: row["price"])
    assert [row["note"] for row in df.where("price > 12").collect()] == ["x"]
    assert df.selectExpr("sum(price) AS total").collect()[0]["total"] == Decimal("-9999987.65")


@pytest.mark.java
def test_only_what_gains_by_it_is_sent_whole(spark: SparkSession) -> None:
    def places(*columns: tuple[str, Any]) -> list[int]:
        fields = (NestedField(number, name, kind) for number, (name, kind) in enumerate(columns, start=1))
        return sent_whole(spark, spark_schema(schema_for_spark(Schema(*fields))))

    long, small = LongType(), DecimalType(9, 2)

    assert places(("a", small)) == [0]
    assert places(("a", long), ("b", small), ("c", DecimalType(19, 2)), ("d", long)) == [1]
    assert places(("a", long), ("b", small), ("c", long), ("d", long), ("e", long)) == []
    assert places(("a", DecimalType(19, 2))) == []
    assert places(("a", long), ("A", small)) == []
    assert places(("a", long)) == []


@pytest.mark.java
def test_columns_with_masks_are_sent_as_they_are(spark: SparkSession) -> None:
    schema = spark_schema(schema_for_spark(Schema(NestedField(1, "a", DecimalType(9, 2)))))
    assert sent_whole(spark, schema) == [0]

    schema["a"].metadata["masked"] = "[]"

    assert sent_whole(spark, schema) == []
