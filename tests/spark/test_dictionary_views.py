"""Text and decimals of a dictionary in a batch of Spark's Parquet reader: rows of the same entry share one object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from tablecrypt.spark.shared.install import jvm_side
from tablecrypt.spark.shared.sources import PACKAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.java


def dictionary_column(spark: SparkSession, kind: str, values: Sequence[bytes], data_type: Any, entries: Sequence[int | None]) -> Any:
    """A column as Spark's reader leaves it: for each row the number of an entry of a dictionary, or null."""
    jvm: Any = spark.sparkContext._jvm
    vectors, parquet = jvm.org.apache.spark.sql.execution.vectorized, jvm.org.apache.parquet
    content = getattr(parquet.bytes.BytesInput, "from")(bytearray(b"".join(values)))
    page = parquet.column.page.DictionaryPage(content, len(values), parquet.column.Encoding.PLAIN)
    dictionary = getattr(parquet.column.values.dictionary, f"PlainValuesDictionary${kind}")(page)
    column = vectors.OnHeapColumnVector(len(entries), data_type)
    numbers = column.reserveDictionaryIds(len(entries))
    for row, entry in enumerate(entries):
        column.putNull(row) if entry is None else numbers.putInt(row, entry)
    column.setDictionary(jvm.org.apache.spark.sql.execution.datasources.parquet.ParquetDictionary(dictionary, False))
    return column


def text_column(spark: SparkSession, texts: Sequence[str], entries: Sequence[int | None]) -> Any:
    """The view of a column of text."""
    jvm: Any = spark.sparkContext._jvm
    values = [len(text).to_bytes(4, "little") + text.encode() for text in texts]
    string = jvm.org.apache.spark.sql.types.DataTypes.StringType
    return viewed(spark, dictionary_column(spark, "PlainBinaryDictionary", values, string, entries), len(entries))


def decimal_column(spark: SparkSession, cents: Sequence[int], entries: Sequence[int | None]) -> Any:
    """The view of a column of decimal(15, 2)."""
    jvm: Any = spark.sparkContext._jvm
    values = [number.to_bytes(8, "little", signed=True) for number in cents]
    decimal = jvm.org.apache.spark.sql.types.DecimalType(15, 2)
    return viewed(spark, dictionary_column(spark, "PlainLongDictionary", values, decimal, entries), len(entries))


def viewed(spark: SparkSession, column: Any, count: int) -> Any:
    """The column of a batch as the JVM path gives it to Spark."""
    jvm_side(spark)
    gateway: Any = spark.sparkContext._gateway
    loader = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()
    columns = gateway.new_array(gateway.jvm.org.apache.spark.sql.vectorized.ColumnVector, 1)
    columns[0] = column
    batch = gateway.jvm.org.apache.spark.sql.vectorized.ColumnarBatch(columns, count)
    kinds = gateway.new_array(gateway.jvm.java.lang.Class, 1)
    kinds[0] = batch.getClass()
    method = loader.loadClass(f"{PACKAGE}.DictionaryViews").getDeclaredMethod("in", kinds)
    method.setAccessible(True)
    arguments = gateway.new_array(gateway.jvm.java.lang.Object, 1)
    arguments[0] = batch
    return method.invoke(None, arguments).column(0)


def identity(spark: SparkSession, value: Any) -> int:
    """The same for one object, another for another one."""
    jvm: Any = spark.sparkContext._jvm
    return int(jvm.java.lang.System.identityHashCode(value))


def test_rows_of_one_entry_share_their_text_and_nulls_stay_null(spark: SparkSession) -> None:
    column = text_column(spark, ["eu", "us"], [0, 1, None, 0])

    assert [None if column.isNullAt(row) else column.getUTF8String(row).toString() for row in range(4)] == ["eu", "us", None, "eu"]
    assert column.getUTF8String(2) is None
    assert identity(spark, column.getUTF8String(0)) == identity(spark, column.getUTF8String(3))
    assert identity(spark, column.getUTF8String(0)) != identity(spark, column.getUTF8String(1))


def test_entries_that_are_not_kept_give_their_own_text(spark: SparkSession) -> None:
    column = text_column(spark, [f"text {i}" for i in range(300)], [255, 256, 299, 256])

    assert [column.getUTF8String(row).toString() for row in range(4)] == ["text 255", "text 256", "text 299", "text 256"]


def test_rows_of_one_entry_share_their_decimal_and_nulls_stay_null(spark: SparkSession) -> None:
    column = decimal_column(spark, [-105, 99999], [0, 1, None, 0])

    found = [column.getDecimal(row, 15, 2) for row in range(4)]
    assert [None if value is None else value.toString() for value in found] == ["-1.05", "999.99", None, "-1.05"]
    assert [column.isNullAt(row) for row in range(4)] == [False, False, True, False]
    assert identity(spark, column.getDecimal(0, 15, 2)) == identity(spark, column.getDecimal(3, 15, 2))


def test_decimals_that_are_not_kept_or_asked_for_otherwise_are_their_own(spark: SparkSession) -> None:
    column = decimal_column(spark, range(300), [255, 256, 299, 256])

    assert [column.getDecimal(row, 15, 2).toString() for row in range(4)] == ["2.55", "2.56", "2.99", "2.56"]
    assert column.getDecimal(0, 15, 1).toString() == "25.5"
    assert column.getDecimal(0, 15, 2).toString() == "2.55"


def test_a_column_without_a_dictionary_stays_the_readers_own(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    plain = jvm.org.apache.spark.sql.execution.vectorized.OnHeapColumnVector(1, jvm.org.apache.spark.sql.types.DataTypes.StringType)

    assert identity(spark, viewed(spark, plain, 1)) == identity(spark, plain)
