"""A server's row filter: two-valued predicates, literals of every type, transforms, and what is refused."""

from __future__ import annotations

import datetime as dt
import math
import operator
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import IcebergType, IntegerType, ListType, LongType, NestedField, StringType, StructType, TimestampType

from tablecrypt.errors import ReadRestrictionError
from tablecrypt.table.restrictions.row_filter import RestrictingFilter, referenced_ids

NAN = float("nan")
NUMBERS = Schema(
    NestedField(1, "a", "double"),
    NestedField(2, "b", "double"),
    NestedField(3, "text", "string"),
    NestedField(4, "pair", StructType(NestedField(5, "left", "int"), NestedField(6, "right", "string"))),
    NestedField(7, "many", ListType(8, LongType())),
)


def column(field_id: int) -> dict[str, Any]:
    return {"type": "reference", "id": field_id}


def kept(expression: object, values: list[Any], kind: IcebergType | str) -> list[Any]:
    schema = Schema(NestedField(1, "value", kind))
    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    storage = arrow.field(0).type
    if isinstance(storage, pa.BaseExtensionType):
        array = pa.ExtensionArray.from_storage(storage, pa.array(values, storage.storage_type))
    else:
        array = pa.array(values, storage)
    rows = RestrictingFilter(expression, schema).kept(pa.RecordBatch.from_arrays([array], schema=arrow))
    return [values[at] for at, each in enumerate(array.to_pylist()) if each in rows.column(0).to_pylist()]


def numbers_kept(expression: object, rows: list[tuple[float | None, float | None]]) -> list[tuple[float | None, float | None]]:
    batch = pa.RecordBatch.from_pydict(
        {
            "a": pa.array([row[0] for row in rows], pa.float64()),
            "b": pa.array([row[1] for row in rows], pa.float64()),
            "text": pa.array([str(at) for at in range(len(rows))], pa.large_string()),
        }
    )
    schema = Schema(*NUMBERS.fields[:3])
    return [rows[int(each)] for each in RestrictingFilter(expression, schema).kept(batch).column("text").to_pylist()]


def _equal(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return one == other or (math.isnan(one) and math.isnan(other))


def _ordered(one: float | None, other: float | None, order: Callable[[Any, Any], bool]) -> bool:
    return one is not None and other is not None and order(one, other)


TRUTH: dict[str, Callable[[float | None, float | None], bool]] = {
    "eq": _equal,
    "not-eq": lambda one, other: not _equal(one, other),
    "lt": lambda one, other: _ordered(one, other, operator.lt),
    "gt": lambda one, other: _ordered(one, other, operator.gt),
    "lt-eq": lambda one, other: _equal(one, other) or _ordered(one, other, operator.lt),
    "gt-eq": lambda one, other: _equal(one, other) or _ordered(one, other, operator.gt),
}
VALUES: list[float | None] = [None, NAN, -1.0, -0.0, 0.0, 5.0, float("inf")]
PAIRS = [(one, other) for one in VALUES for other in VALUES]


@pytest.mark.parametrize("kind", TRUTH)
def test_comparisons_of_columns_are_never_null(kind: str) -> None:
    expression = {"type": kind, "left": column(1), "right": column(2)}
    negated = {"type": "not", "child": expression}

    assert numbers_kept(expression, PAIRS) == [pair for pair in PAIRS if TRUTH[kind](*pair)]
    assert numbers_kept(negated, PAIRS) == [pair for pair in PAIRS if not TRUTH[kind](*pair)]


@pytest.mark.parametrize("kind", TRUTH)
def test_comparisons_with_a_literal_on_either_side_are_never_null(kind: str) -> None:
    ones: list[tuple[float | None, float | None]] = [(each, None) for each in VALUES]

    assert numbers_kept({"type": kind, "left": column(1), "right": 0}, ones) == [each for each in ones if TRUTH[kind](each[0], 0.0)]
    assert numbers_kept({"type": kind, "left": 0, "right": column(1)}, ones) == [each for each in ones if TRUTH[kind](0.0, each[0])]


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> tuple[object, Callable[[Any, Any], bool]]:
    """An expression and what it says of a pair, by plain Python."""
    if depth and draw(st.booleans()):
        left, says_left = draw(expressions(depth=depth - 1))
        if draw(st.booleans()):
            return {"type": "not", "child": left}, lambda one, other: not says_left(one, other)
        right, says_right = draw(expressions(depth=depth - 1))
        if draw(st.booleans()):
            return {"type": "and", "left": left, "right": right}, lambda one, other: says_left(one, other) and says_right(one, other)
        return {"type": "or", "left": left, "right": right}, lambda one, other: says_left(one, other) or says_right(one, other)
    match draw(st.integers(0, 4)):
        case 0:
            value = draw(st.booleans())
            spelled: object = draw(st.sampled_from([value, {"type": "true" if value else "false"}]))
            return spelled, lambda one, other: value
        case 1:
            return {"type": "is-null", "child": column(1)}, lambda one, other: one is None
        case 2:
            return {"type": "not-nan", "child": column(2)}, lambda one, other: other is None or not math.isnan(other)
        case 3:
            return {"type": "not-in", "child": column(1), "values": [0, 5.0]}, lambda one, other: one not in (0.0, 5.0)
        case _:
            kind = draw(st.sampled_from(sorted(TRUTH)))
            truth = TRUTH[kind]
            return {"type": kind, "left": column(1), "right": column(2)}, truth


@given(expressions())
def test_any_expression_says_what_plain_python_says(drawn: tuple[object, Callable[[Any, Any], bool]]) -> None:
    expression, says = drawn

    assert numbers_kept(expression, PAIRS) == [pair for pair in PAIRS if says(*pair)]


EARLY, LATE = dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2024, 7, 15, 13, 45, 30)
ID = uuid.UUID("eb26bdb1-a1d8-4aa6-990e-da940875492c")


@pytest.mark.parametrize(
    ("kind", "low", "high", "written"),
    [
        ("boolean", False, True, True),
        ("int", -(2**31), 7, 7),
        ("long", -(2**63), 2**63 - 1, 2**63 - 1),
        ("float", -1.5, 0.25, 0.25),
        ("double", -1.5, 0.1, 0.1),
        ("decimal(9, 2)", Decimal("-3.00"), Decimal("12.30"), "12.30"),
        ("decimal(9, 2)", Decimal("-3.00"), Decimal("12.30"), "12.3"),
        ("string", "Z", "a😀", "a😀"),
        ("date", dt.date(1969, 12, 31), dt.date(2007, 12, 3), "2007-12-03"),
        ("time", dt.time(1), dt.time(22, 31, 8, 123456), "22:31:08.123456"),
        ("timestamp", EARLY, LATE, "2024-07-15T13:45:30"),
        ("timestamptz", EARLY.replace(tzinfo=dt.UTC), LATE.replace(tzinfo=dt.UTC), "2024-07-15T13:45:30.000000+00:00"),
        ("timestamp_ns", -1, 1196676930123456789, "2007-12-03T10:15:30.123456789"),
        ("timestamptz_ns", -1, 1196676930123456789, "2007-12-03T10:15:30.123456789+00:00"),
        ("uuid", bytes(16), ID.bytes, str(ID)),
        ("uuid", b"\x7f" * 16, b"\x80" + bytes(15), "80000000-0000-0000-0000-000000000000"),
        ("fixed[3]", b"\x7fyz", b"\x80\0\0", "800000"),
        ("binary", b"\x7fyz", b"\x80", "80"),
    ],
    ids=str,
)
def test_a_literal_of_every_type_is_compared_as_the_specification_orders_it(
    kind: IcebergType | str, low: Any, high: Any, written: Any
) -> None:
    values = [low, high, None]
    for literal in (written, {"type": "literal", "value": written}, {"type": "literal", "value": written, "data-type": str(kind)}):
        assert kept({"type": "eq", "left": column(1), "right": literal}, values, kind) == [high]
        assert kept({"type": "lt", "left": column(1), "right": literal}, values, kind) == [low]
        assert kept({"type": "in", "child": column(1), "values": [literal]}, values, kind) == [high]
    typed = {"type": "literals", "values": [written], "data-type": str(kind)}
    assert kept({"type": "not-in", "child": column(1), "values": typed}, values, kind) == [low, None]


def test_an_int_is_compared_with_a_long_that_it_cannot_reach() -> None:
    assert kept({"type": "lt", "left": column(1), "right": 2**40}, [1, None], IntegerType()) == [1]


def test_nothing_is_in_an_empty_set() -> None:
    assert kept({"type": "in", "child": column(1), "values": []}, ["a", None], StringType()) == []
    assert kept({"type": "not-in", "child": column(1), "values": []}, ["a", None], StringType()) == ["a", None]


def test_beginnings_of_text_are_compared() -> None:
    values = ["a.c", "abc", "", None]

    assert kept({"type": "starts-with", "left": column(1), "right": "a."}, values, StringType()) == ["a.c"]
    assert kept({"type": "not-starts-with", "left": column(1), "right": "a."}, values, StringType()) == ["abc", "", None]


def applied(function: str, *arguments: object) -> dict[str, Any]:
    return {"type": "apply", "function": {"catalog": "iceberg_functions", "identifier": [function]}, "arguments": list(arguments)}


@pytest.mark.parametrize(
    ("kind", "values", "operand", "value", "expected"),
    [
        ("date", [dt.date(2018, 5, 13), dt.date(1969, 1, 1), None], applied("year", column(1)), 48, [dt.date(2018, 5, 13)]),
        ("date", [dt.date(2018, 5, 13), dt.date(1969, 1, 1), None], applied("year", column(1)), -1, [dt.date(1969, 1, 1)]),
        ("timestamp", [EARLY, LATE, None], applied("month", column(1)), -1, [EARLY]),
        ("timestamp", [EARLY, LATE, None], applied("day", column(1)), "2024-07-15", [LATE]),
        ("timestamp", [EARLY, LATE, None], applied("hour", column(1)), -1, [EARLY]),
        ("timestamp_ns", [-1, 5, None], applied("year", column(1)), -1, [-1]),
        ("timestamp_ns", [-1, 5, None], applied("hour", column(1)), -1, [-1]),
        (
            "timestamp_ns",
            [-1, -1000, 5, None],
            applied("bucket", 2**20, column(1)),
            BucketTransform(2**20).transform(TimestampType())(-1),
            [-1, -1000],
        ),
        ("binary", [b"iceberg", b"ice", None], applied("truncate", 4, column(1)), b"iceb".hex(), [b"iceberg"]),
        ("long", [17, 25, None], applied("truncate", 10, column(1)), 20, [25]),
        ("string", ["iceberg", "ice", None], applied("truncate", {"type": "literal", "value": 4}, column(1)), "iceb", ["iceberg"]),
        (
            StringType(),
            ["iceberg", None],
            applied("bucket", 16, column(1)),
            BucketTransform(16).transform(StringType())("iceberg"),
            ["iceberg"],
        ),
        ("string", ["a", "b", None], applied("identity", column(1)), "b", ["b"]),
        ("string", ["abc", "b", None], applied("truncate", 1, applied("truncate", 2, column(1))), "a", ["abc"]),
    ],
    ids=str,
)
def test_transforms_are_applied_to_columns(
    kind: IcebergType | str, values: list[Any], operand: object, value: object, expected: list[Any]
) -> None:
    assert kept({"type": "eq", "left": operand, "right": value}, values, kind) == expected


def test_a_field_of_a_struct_is_null_where_the_struct_is() -> None:
    pair = pa.struct([("left", pa.int32()), ("right", pa.string())])
    rows = pa.RecordBatch.from_pydict({"pair": pa.array([{"left": 1, "right": "a"}, {"left": 1, "right": None}, None], pair)})
    restricting = RestrictingFilter({"type": "is-null", "child": column(6)}, Schema(NUMBERS.fields[3]))

    assert restricting.kept(rows).column(0).to_pylist() == [{"left": 1, "right": None}, None]
    assert restricting.kept(rows.slice(0, 0)).num_rows == 0


@pytest.mark.parametrize(
    "expression",
    [
        None,
        "true",
        1,
        [],
        {},
        {"type": "unknown-predicate"},
        {"type": ["eq"]},
        {"type": "literal", "value": True},
        {"type": "and", "left": True},
        {"type": "or", "left": True, "right": None},
        {"type": "not", "child": {"type": "reference", "id": 1}},
        {"type": "true", "more": 1},
        {"type": "eq", "left": {"type": "reference", "id": 1}, "right": 1, "case-sensitive": False},
        {"type": "eq", "term": "a", "value": 1},
        {"type": "is-null", "term": "a"},
        {"type": "in", "term": "a", "values": [1]},
        {"type": "eq", "left": {"type": "reference", "name": "a"}, "right": 1},
        {"type": "eq", "left": {"type": "reference", "id": 99}, "right": 1},
        {"type": "eq", "left": {"type": "reference", "id": "1"}, "right": 1},
        {"type": "eq", "left": {"type": "reference", "id": True}, "right": 1},
        {"type": "eq", "left": {"type": "reference", "id": 8}, "right": 1},
        {"type": "eq", "left": {"type": "reference", "id": 4}, "right": 1},
        {"type": "eq", "left": {"type": "reference", "id": 1}, "right": None},
        {"type": "eq", "left": {"type": "reference", "id": 1}, "right": NAN},
        {"type": "eq", "left": {"type": "reference", "id": 1}, "right": "1.0"},
        {"type": "eq", "left": {"type": "reference", "id": 1}, "right": True},
        {"type": "eq", "left": {"type": "reference", "id": 3}, "right": 1},
        {"type": "eq", "left": {"type": "reference", "id": 5}, "right": 1.5},
        {"type": "eq", "left": {"type": "reference", "id": 5}, "right": 2**63},
        {"type": "eq", "left": {"type": "reference", "id": 1}, "right": {"type": "reference", "id": 3}},
        {"type": "eq", "left": {"type": "reference", "id": 1}, "right": {"type": "literal", "value": 1, "data-type": "string"}},
        {"type": "eq", "left": {"type": "reference", "id": 1}, "right": {"type": "literal", "value": 1, "data-type": "nothing"}},
        {"type": "eq", "left": {"type": "reference", "id": 1}, "right": {"type": "literal", "value": 1, "data-type": "decimal(39,2)"}},
        {"type": "eq", "left": {"type": "reference", "id": 1}, "right": {"type": "literal", "value": 1, "data-type": "fixed[-1]"}},
        {"type": "eq", "left": {"type": "reference", "id": 1}, "right": {"type": "call"}},
        {"type": "eq", "left": 1, "right": 1},
        {"type": "is-nan", "child": {"type": "reference", "id": 3}},
        {"type": "is-null", "child": 1},
        {"type": "in", "child": {"type": "reference", "id": 1}, "values": 1},
        {"type": "in", "child": {"type": "reference", "id": 1}, "values": [None]},
        {"type": "in", "child": {"type": "reference", "id": 1}, "values": [{"type": "reference", "id": 2}]},
        {"type": "in", "child": {"type": "reference", "id": 4}, "values": []},
        {"type": "starts-with", "left": {"type": "reference", "id": 1}, "right": "a"},
        {"type": "starts-with", "left": {"type": "reference", "id": 3}, "right": {"type": "reference", "id": 3}},
        {"type": "eq", "left": {"type": "apply", "function": "year", "arguments": [{"type": "reference", "id": 1}]}, "right": 1},
        {"type": "eq", "left": applied("year", {"type": "reference", "id": 1}), "right": 1},
        {"type": "eq", "left": applied("void", {"type": "reference", "id": 1}), "right": 1},
        {"type": "eq", "left": applied("bucket", 0, {"type": "reference", "id": 3}), "right": 1},
        {"type": "eq", "left": applied("bucket", {"type": "reference", "id": 3}), "right": 1},
        {"type": "eq", "left": applied("identity", 1), "right": 1},
        {"type": "eq", "left": applied("identity"), "right": 1},
        {"type": "eq", "left": {"type": "transform", "transform": "year", "term": "a"}, "right": 1},
    ],
    ids=str,
)
def test_what_is_not_known_or_does_not_fit_is_refused(expression: object) -> None:
    with pytest.raises(ReadRestrictionError):
        RestrictingFilter(expression, NUMBERS)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(column(1)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "left", "right", "child", "values", "value", "id", "function", "arguments"]), inner, max_size=4
        )
        | st.builds(
            lambda kind, left, right: {"type": kind, "left": left, "right": right},
            st.sampled_from(["and", "or", "eq", "lt", "starts-with"]),
            inner,
            inner,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_a_filter_or_refused(expression: object) -> None:
    try:
        restricting = RestrictingFilter(expression, NUMBERS)
    except ReadRestrictionError:
        return
    rows = pa.RecordBatch.from_pylist([], schema=schema_to_pyarrow(NUMBERS))
    assert restricting.kept(rows).num_rows == 0


def test_every_reference_is_found() -> None:
    nested = {"type": "in", "child": applied("bucket", 4, column(3)), "values": [1]}

    assert referenced_ids({"type": "and", "left": {"type": "not", "child": nested}, "right": {"type": "is-null", "child": column(1)}}) == {
        1,
        3,
    }
    assert referenced_ids(True) == set()
