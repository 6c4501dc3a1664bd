"""Which types Spark and a table exchange, column by column, and how values change their form on the way."""

from __future__ import annotations

import datetime as dt
import uuid

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    FixedType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.columns import batch_for_spark, batch_for_table, schema_for_spark, schema_for_table


def table(kind: IcebergType, required: bool = False) -> Schema:
    return Schema(NestedField(1, "c", kind, required=required))


def through(array: pa.Array, kind: IcebergType, required: bool = False) -> pa.RecordBatch:
    schema = table(kind, required)
    batch = pa.RecordBatch.from_arrays([array], ["c"])
    return batch_for_table(batch, schema_for_table(batch.schema, schema), schema)


@given(values=st.lists(st.one_of(st.none(), st.uuids()), max_size=50), skipped=st.integers(0, 3))
def test_uuids_become_text_and_uuids_again(values: list[uuid.UUID | None], skipped: int) -> None:
    texts = pa.array([None if value is None else str(value) for value in values], pa.string()).slice(skipped)

    stored = through(texts, UUIDType())
    shown = batch_for_spark(stored, schema_for_spark(table(UUIDType())))

    assert stored.column(0).to_pylist() == values[skipped:]
    assert shown.column(0).equals(texts)
    shown.validate(full=True)


def test_uuids_inside_other_types_become_text_and_uuids_again() -> None:
    kind = StructType(
        NestedField(2, "list", ListType(3, UUIDType(), element_required=False)),
        NestedField(4, "map", MapType(5, StringType(), 6, UUIDType(), value_required=False)),
    )
    one = str(uuid.uuid4())
    values = [{"list": [one, None], "map": [("a", one)]}, {"list": None, "map": None}, None]
    array = pa.array(values, schema_for_spark(table(kind)).field("c").type)

    stored = through(array, kind)

    assert stored.column(0).to_pylist()[0]["list"] == [uuid.UUID(one), None]
    assert batch_for_spark(stored, schema_for_spark(table(kind))).column(0).to_pylist() == values


@pytest.mark.parametrize("text", ["", "no uuid", "f79c3e09677c4bbda4793f349cb785e7", "{f79c3e09-677c-4bbd-a479-3f349cb785e7}", "é" * 18])
def test_text_that_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="column 'c' holds a value that uuid cannot hold"):
        through(pa.array([str(uuid.uuid4()), text]), UUIDType())


def test_an_instant_stays_the_same_whatever_zone_spark_names() -> None:
    instant = dt.datetime(2024, 3, 31, 1, 30, tzinfo=dt.UTC)

    stored = through(pa.array([instant], pa.timestamp("us", "Asia/Kolkata")), TimestamptzType())

    assert stored.column(0).type == pa.timestamp("us", "UTC")
    assert stored.column(0).to_pylist() == [instant]


@pytest.mark.parametrize("value", [b"", b"ab", b"abcd"])
def test_a_binary_of_another_length_is_no_fixed(value: bytes) -> None:
    with pytest.raises(ConfigurationError, match="column 'c' holds a value"):
        through(pa.array([b"abc", value]), FixedType(3))


@pytest.mark.parametrize(
    ("spark", "fits"),
    [(pa.decimal128(9, 2), True), (pa.decimal128(5, 2), True), (pa.decimal128(10, 2), False), (pa.decimal128(9, 3), False)],
)
def test_a_decimal_fits_with_the_same_scale_and_no_more_digits(spark: pa.DataType, fits: bool) -> None:
    given_schema = pa.schema([("c", spark)])
    if fits:
        assert schema_for_table(given_schema, table(DecimalType(9, 2))).field("c").type == pa.decimal128(9, 2)
        return
    with pytest.raises(ConfigurationError, match="column 'c' is decimal"):
        schema_for_table(given_schema, table(DecimalType(9, 2)))


@pytest.mark.parametrize("kind", [TimeType(), TimestampNanoType(), TimestamptzNanoType()], ids=str)
def test_types_that_spark_lacks_are_refused_by_name(kind: IcebergType) -> None:
    with pytest.raises(ConfigurationError, match=r"column 'outer\.c' is of type .* which Spark does not have"):
        schema_for_spark(Schema(NestedField(1, "outer", StructType(NestedField(2, "c", kind)))))
    with pytest.raises(ConfigurationError, match="column 'c' is timestamp_ntz in the DataFrame"):
        schema_for_table(pa.schema([("c", pa.timestamp("us"))]), table(kind))


@pytest.mark.parametrize(
    ("array", "kind", "path"),
    [
        (pa.array([1, None]), LongType(), "c"),
        (pa.array([[1], [None]]), ListType(2, LongType(), element_required=True), "c.element"),
        (
            pa.array([[("a", None)]], pa.map_(pa.string(), pa.int64())),
            MapType(2, StringType(), 3, LongType(), value_required=True),
            "c.value",
        ),
        (pa.array([{"x": None}]).cast(pa.struct([("x", pa.int64())])), StructType(NestedField(2, "x", LongType(), required=True)), "c.x"),
    ],
)
def test_nulls_where_the_table_requires_a_value_are_found_at_any_depth(array: pa.Array, kind: IcebergType, path: str) -> None:
    with pytest.raises(ConfigurationError, match=f"column {path!r} is required in the table, but the DataFrame has nulls"):
        through(array, kind, required=True)


def test_a_null_struct_may_have_required_fields() -> None:
    kind = StructType(NestedField(2, "x", LongType(), required=True))

    stored = through(pa.array([{"x": 1}, None], pa.struct([("x", pa.int64())])), kind)

    assert stored.column(0).to_pylist() == [{"x": 1}, None]


def test_a_nested_column_that_does_not_fit_is_named_with_its_path() -> None:
    schema = table(StructType(NestedField(2, "inner", ListType(3, StructType(NestedField(4, "x", LongType())), element_required=False))))

    with pytest.raises(ConfigurationError, match=r"column 'c\.inner\.element\.x' is string in the DataFrame, but long in the table"):
        schema_for_table(pa.schema([("c", pa.struct([("inner", pa.list_(pa.struct([("x", pa.string())])))]))]), schema)


def test_a_required_field_of_a_null_struct_may_be_null_inside_of_a_map() -> None:
    pair = StructType(NestedField(4, "flag", BooleanType(), required=True))
    schema = Schema(NestedField(1, "all", MapType(2, StringType(), 3, pair, value_required=False)))
    given = pa.struct([pa.field("flag", pa.bool_(), nullable=False)])
    structs = pa.StructArray.from_arrays([pa.array([None, True])], fields=list(given), mask=pa.array([True, False]))
    maps = pa.MapArray.from_arrays([0, 2], pa.array(["a", "b"]), structs, type=pa.map_(pa.string(), pa.field("value", given)))
    batch = pa.RecordBatch.from_arrays([maps], names=["all"])
    written = batch_for_table(batch, schema_for_table(batch.schema, schema), schema)
    assert written.to_pylist() == [{"all": [("a", None), ("b", {"flag": True})]}]
