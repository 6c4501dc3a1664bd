"""assert_same_rows sees every difference in rows, and none that is only a spelling."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.compare import assert_same_rows

NAN = float("nan")
PAIR = pa.struct([("a", pa.int32()), ("b", pa.string())])
UUID = uuid.UUID(int=2**127 + 5)


def _column(values: list[Any], data_type: pa.DataType) -> pa.Table:
    return pa.table({"value": pa.array(values, data_type)})


SPELLINGS: list[tuple[list[Any], pa.DataType, list[Any], pa.DataType]] = [
    (["a", None], pa.string(), ["a", None], pa.large_string()),
    (["a", None], pa.string(), ["a", None], pa.string_view()),
    (["a", None], pa.string(), ["a", None], pa.dictionary(pa.int32(), pa.string())),
    ([b"ab"], pa.binary(), [b"ab"], pa.large_binary()),
    ([b"ab"], pa.binary(), [b"ab"], pa.binary(2)),
    ([str(UUID), None], pa.string(), [UUID.bytes, None], pa.uuid()),
    ([1, None], pa.int32(), [1, None], pa.int8()),
    (
        [dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)],
        pa.timestamp("us", "UTC"),
        [dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)],
        pa.timestamp("us", "+00:00"),
    ),
    (
        [dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)],
        pa.timestamp("us", "UTC"),
        [dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)],
        pa.timestamp("ms", "Europe/Berlin"),
    ),
    ([dt.datetime(2024, 1, 1, 12)], pa.timestamp("us"), [dt.datetime(2024, 1, 1, 12)], pa.timestamp("s")),
    ([dt.date(1, 1, 1)], pa.date32(), [dt.date(1, 1, 1)], pa.date64()),
    ([dt.time(1, 2, 3)], pa.time64("us"), [dt.time(1, 2, 3)], pa.time32("ms")),
    ([Decimal("1.10")], pa.decimal128(9, 2), [Decimal("1.10")], pa.decimal256(9, 2)),
    ([[1, None], None, []], pa.list_(pa.int64()), [[1, None], None, []], pa.large_list(pa.int64())),
    ([[1, 2], None], pa.list_(pa.int64()), [[1, 2], None], pa.list_(pa.int64(), 2)),
    ([[("a", 1), ("b", None)]], pa.map_(pa.string(), pa.int32()), [[("b", None), ("a", 1)]], pa.map_(pa.large_string(), pa.int32())),
    ([NAN, 1.5], pa.float64(), [1.5, -NAN], pa.float64()),
    ([{"a": 1, "b": "x"}, None], PAIR, [None, {"a": 1, "b": "x"}], pa.struct([("a", pa.int16()), ("b", pa.large_string())])),
]


@pytest.mark.parametrize(("left", "left_type", "right", "right_type"), SPELLINGS, ids=lambda value: str(value)[:30])
def test_spellings_of_one_type_agree(left: list[Any], left_type: pa.DataType, right: list[Any], right_type: pa.DataType) -> None:
    assert_same_rows(_column(left, left_type), _column(right, right_type))
    assert_same_rows(_column(right, right_type), _column(left, left_type))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.int32(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us"), pa.timestamp("ns")),
        (pa.decimal128(9, 2), pa.decimal128(9, 3)),
        (pa.string(), pa.binary()),
        (pa.list_(pa.int32()), pa.list_(pa.int64())),
        (PAIR, pa.struct([("a", pa.int32()), ("c", pa.string())])),
        (pa.null(), pa.string()),
    ],
    ids=str,
)
def test_different_types_differ_even_without_rows(left: pa.DataType, right: pa.DataType) -> None:
    with pytest.raises(AssertionError, match="columns differ"):
        assert_same_rows(_column([], left), _column([], right))


@pytest.mark.parametrize(
    ("left", "right", "data_type"),
    [
        ([0.0], [-0.0], pa.float64()),
        ([0.0], [None], pa.float64()),
        ([NAN], [None], pa.float64()),
        ([""], [None], pa.string()),
        ([[]], [None], pa.list_(pa.int32())),
        ([[None]], [[]], pa.list_(pa.int32())),
        ([[1, 2]], [[2, 1]], pa.list_(pa.int32())),
        ([{"a": None, "b": None}], [None], PAIR),
        ([[("a", 1)]], [[("a", None)]], pa.map_(pa.string(), pa.int32())),
        ([1, 1, 2], [1, 2, 2], pa.int32()),
        ([1], [1, 1], pa.int32()),
        ([False], [None], pa.bool_()),
        ([-1], [-2], pa.timestamp("us", "UTC")),
    ],
)
def test_different_rows_differ(left: list[Any], right: list[Any], data_type: pa.DataType) -> None:
    with pytest.raises(AssertionError, match="rows differ"):
        assert_same_rows(_column(left, data_type), _column(right, data_type))


@pytest.mark.parametrize("instant", [-62135596800000000, 253402300799999999, -(2**62), 2**62])
def test_instants_beyond_what_python_can_hold_are_compared(instant: int) -> None:
    data_type = pa.timestamp("us", "UTC")
    assert_same_rows(_column([instant], data_type), _column([instant], data_type))
    with pytest.raises(AssertionError, match="rows differ"):
        assert_same_rows(_column([instant], data_type), _column([instant - 1], data_type))


VALUES = st.one_of(
    st.none(), st.dictionaries(st.text(max_size=3), st.one_of(st.none(), st.lists(st.floats(width=32), max_size=3)), max_size=3)
)


@given(rows=st.lists(st.tuples(st.integers(-5, 5), VALUES), max_size=12), cut=st.integers(0, 12), data=st.data())
def test_order_chunks_and_slices_do_not_matter(rows: list[tuple[int, Any]], cut: int, data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(rows))
    whole = _nested_table(rows)
    cut = min(cut, len(rows))
    padded = _nested_table([(9, {"pad": [1.0]}), *shuffled])
    pieces = pa.concat_tables([padded.slice(1 + cut), padded.slice(1, cut)]).select(["value", "key"])
    assert_same_rows(pieces, whole)


@given(rows=st.lists(st.tuples(st.integers(-5, 5), VALUES), min_size=1, max_size=12))
def test_a_row_too_few_is_noticed(rows: list[tuple[int, Any]]) -> None:
    whole = _nested_table(rows)
    with pytest.raises(AssertionError, match="1 are missing"):
        assert_same_rows(whole.slice(1), whole)
    with pytest.raises(AssertionError, match="1 are not expected"):
        assert_same_rows(whole, whole.slice(1))


def _nested_table(rows: list[tuple[int, Any]]) -> pa.Table:
    pairs = [None if value is None else list(value.items()) for _, value in rows]
    data_type = pa.map_(pa.string(), pa.list_(pa.float32()))
    return pa.table({"key": pa.array([key for key, _ in rows], pa.int64()), "value": pa.array(pairs, data_type)})


def test_the_message_shows_the_rows_that_differ() -> None:
    expected = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
    actual = pa.table({"id": [1, 2, 3], "name": ["a", "x", "c"]})
    with pytest.raises(AssertionError) as caught:
        assert_same_rows(actual, expected)
    assert str(caught.value).splitlines() == [
        "rows differ: of 3 expected rows 1 are missing; of 3 actual rows 1 are not expected",
        "  missing:      id=2, name='b'",
        "  not expected: id=2, name='x'",
    ]


def test_the_message_shows_the_columns_that_differ() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_same_rows(pa.table({"id": pa.array([1], pa.int32())}), pa.table({"id": pa.array([1], pa.int64())}))
    assert str(caught.value).splitlines() == ["columns differ:", "  missing:      id: long", "  not expected: id: int"]


def test_tables_without_columns_are_compared_by_their_length() -> None:
    rows = pa.table({"id": [1, 2]})
    assert_same_rows(rows.select([]), rows.select([]))
    with pytest.raises(AssertionError, match="rows differ"):
        assert_same_rows(rows.select([]), rows.slice(1).select([]))
