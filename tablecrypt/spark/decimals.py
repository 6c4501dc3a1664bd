"""Decimals on their way to Spark, as whole numbers.

    decimal(9, 2)   12.34 ──worker──▶ int64 1234 ──socket──▶ long 1234 ──JVM: MakeDecimal──▶ decimal(9, 2)  12.34

Of Arrow's own decimal the JVM makes a byte array, a BigInteger and a BigDecimal for each value, which takes about as long as all else of
reading a column of them. MakeDecimal is the expression with which Spark itself makes decimals of its sums. It is evaluated in a projection
of all columns, which takes its time too: so decimals are sent like this where they are a quarter of the columns or more.

Only classic sessions can be given that expression, and it holds up to 18 digits. Others get Arrow's decimals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tablecrypt.errors import FormatError
from tablecrypt.spark.shared.written_columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

MOST_DIGITS: Final = 18
_SHARE: Final = 4
_WORDS: Final = 2
_SIGN: Final = 63


def sent_whole(spark: SparkSession, schema: StructType) -> list[int]:
    """Return which columns of a read are better sent as whole numbers, by their places in the schema."""
    from pyspark.sql.types import DecimalType

    kinds = [field.dataType for field in schema.fields]
    places = [place for place, kind in enumerate(kinds) if isinstance(kind, DecimalType) and kind.precision <= MOST_DIGITS]
    # A projection would stand between a condition and the marks of masked columns, and finds no names that differ in case alone.
    marked = any(field.metadata for field in schema.fields)
    alike = len({name.lower() for name in schema.names}) < len(schema.names)
    if len(places) * _SHARE < len(kinds) or not places or marked or alike or _expressions(spark) is None:
        return []

    return places


def with_whole_numbers(schema: StructType, places: list[int]) -> StructType:
    """Return the schema in which Spark gets the columns, those at `places` as whole numbers."""
    from pyspark.sql.types import LongType, StructField, StructType

    fields = [
        StructField(field.name, LongType(), field.nullable) if place in places else field for place, field in enumerate(schema.fields)
    ]
    return StructType(fields)


def as_whole_numbers(batches: Iterable[pa.RecordBatch], places: list[int]) -> Iterator[pa.RecordBatch]:
    """Yield batches with the decimals at `places` as whole numbers. Runs on an executor.

    Raises:
        FormatError: a value has more than 64 bits, which no decimal of up to 18 digits has.
    """
    for batch in batches:
        sent = batch
        for place in places:
            sent = sent.set_column(place, batch.schema.field(place).with_type(pa.int64()), unscaled(batch.column(place)))
        yield sent


def unscaled(decimals: pa.Array) -> pa.Array:
    """Return the unscaled values of 128-bit decimals, which are 16 bytes little endian each. FormatError for one of more than 64 bits."""
    if not len(decimals):
        return pa.array([], pa.int64())

    # Read in place: a slice of an array shares the buffer, so its offset counts.
    words = np.frombuffer(decimals.buffers()[1], np.int64, _WORDS * len(decimals), decimals.offset * _WORDS * 8)
    low, high = words[::_WORDS].copy(), words[1::_WORDS]
    missing = np.asarray(decimals.is_null()) if decimals.null_count else None
    # The upper word of a number that fits has nothing but the sign of the lower one.
    fits = (low >> _SIGN) == high
    if not (fits if missing is None else fits | missing).all():
        raise FormatError(f"a value of a column of type {decimals.type} has more digits than that")

    return pa.array(low, mask=missing)


def with_decimals(rows: DataFrame, schema: StructType, places: list[int]) -> DataFrame:
    """Return rows of `with_whole_numbers` with decimals in place of the whole numbers."""
    from pyspark.sql import functions
    from pyspark.sql.classic.column import Column as ClassicColumn

    utilities, make_decimal = _expressions(rows.sparkSession)
    columns = []

    for place, field in enumerate(schema.fields):
        column: Any = functions.col(quoted(field.name))
        if place in places:
            kind: Any = field.dataType
            # An unscaled value that its type cannot hold is an error, and no null.
            made = make_decimal(utilities.expression(column._jc), kind.precision, kind.scale, False)
            column = ClassicColumn(utilities.column(made)).alias(field.name)

        columns.append(column)

    return rows.select(*columns)


def _expressions(spark: SparkSession) -> Any:
    """Return Spark's Java classes ExpressionUtils and MakeDecimal; None for a session that has none, or whose Spark lacks them."""
    if not hasattr(spark, "_jsparkSession"):
        return None

    from py4j.java_gateway import JavaClass

    jvm: Any = spark.sparkContext._jvm
    sql = jvm.org.apache.spark.sql
    found = sql.classic.ExpressionUtils, sql.catalyst.expressions.MakeDecimal

    return found if all(isinstance(each, JavaClass) for each in found) else None
