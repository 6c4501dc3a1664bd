"""Orders of rows: those of SQL, and Z-values that keep the order of each column and put near rows near each other."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import SortColumn, ZOrder
from tablecrypt.maintenance.sorting import sort_keys, sorted_rows, z_values

WHOLE = st.integers(-(2**63), 2**63 - 1)
MOMENTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), WHOLE),
    "date": (pa.date32(), MOMENTS.map(dt.datetime.date)),
    "moment": (pa.timestamp("us"), MOMENTS),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "decimal": (pa.decimal128(9, 2), st.decimals(-1000, 1000, places=2)),
    "text": (pa.string(), st.text(st.characters(max_codepoint=127), max_size=8)),
    "truth": (pa.bool_(), st.booleans()),
}


@given(data=st.data(), kind=st.sampled_from(sorted(COLUMNS)))
def test_the_z_values_of_one_column_keep_its_order(data: st.DataObject, kind: str) -> None:
    arrow_type, values = COLUMNS[kind]
    rows = data.draw(st.lists(values, min_size=1, max_size=50))
    [keys] = z_values([pa.array(rows, arrow_type)])
    by_key = [value for _, value in sorted(zip(keys.to_pylist(), rows, strict=True), key=lambda pair: pair[0])]
    assert [_bare(value) for value in by_key] == [_bare(value) for value in sorted(rows)]


def _bare(value: Any) -> Any:
    return value.rstrip("\0") if isinstance(value, str) else value + 0 if isinstance(value, float) else value


@given(st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 2**20)), min_size=1, max_size=40))
def test_z_values_of_two_columns_interleave_their_bits(points: list[tuple[int, int]]) -> None:
    columns = [pa.array([point[at] for point in points], pa.int64()) for at in (0, 1)]
    keys = list(zip(*(column.to_pylist() for column in z_values(columns)), strict=True))

    def expected(point: tuple[int, int]) -> int:
        return sum(((point[at] >> bit) & 1) << (2 * bit + 1 - at) for bit in range(21) for at in (0, 1))

    assert [point for _, point in sorted(zip(keys, points, strict=True))] == sorted(points, key=expected)


def test_nulls_come_first_in_a_z_order_and_other_types_are_refused() -> None:
    rows = pa.table({"id": pa.array([3, None, -5], pa.int64()), "in": pa.array([{"x": 1}] * 3)})
    assert sorted_rows(rows.to_reader(), sort_keys(ZOrder(("id",)))).read_all()["id"].to_pylist() == [None, -5, 3]
    with pytest.raises(ConfigurationError, match="cannot be part of a Z-order"):
        sorted_rows(rows.to_reader(), sort_keys([ZOrder(("in",))]))


@given(st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.decimals(0, 9, places=0)), max_size=20), st.booleans(), st.booleans())
def test_rows_are_sorted_as_sql_sorts_them(values: list[tuple[int | None, Decimal]], descending: bool, nulls_first: bool) -> None:
    rows = pa.table({"a": pa.array([a for a, _ in values], pa.int64()), "b": pa.array([int(b) for _, b in values], pa.int64())})
    keys = sort_keys([SortColumn("a", descending, nulls_first), "b"])

    def order(row: dict[str, int | None]) -> tuple[bool, float, int]:
        a = row["a"]
        place = 0.0 if a is None else -float(a) if descending else float(a)
        return (a is None) != nulls_first, place, row["b"] or 0

    assert sorted_rows(rows.to_reader(), keys).read_all().to_pylist() == sorted(rows.to_pylist(), key=order)


def test_uuids_are_sorted_by_their_bytes_and_lists_are_refused() -> None:
    stored = [uuid.UUID(int=number).bytes for number in (2**127, 1, 2**64)]
    rows = pa.table({"id": pa.array(stored, pa.binary(16)).cast(pa.uuid()), "in": pa.array([[1]] * 3)})
    assert [each.bytes for each in sorted_rows(rows.to_reader(), sort_keys("id")).read_all()["id"].to_pylist()] == sorted(stored)
    with pytest.raises(ConfigurationError, match="cannot be sorted by id, in"):
        sorted_rows(rows.to_reader(), sort_keys(["id", "in"]))


def test_memory_holds_sorted_rows_once_and_one_column_again() -> None:
    count, parts = 20_000, 40
    schema = pa.schema([(name, pa.int64()) for name in "abcdefgh"])
    batches = (pa.record_batch([pa.array(range(at, count + at)) for _ in schema], schema) for at in range(parts))
    former, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        assert (
            sum(batch.num_rows for batch in sorted_rows(pa.RecordBatchReader.from_batches(schema, batches), sort_keys("a")))
            == parts * count
        )
    finally:
        pa.set_memory_pool(former)

    assert pool.max_memory() < 1.6 * parts * count * len(schema) * 8


def test_one_name_of_a_column_is_one_column_of_a_curve() -> None:
    one: Any = "id"
    assert ZOrder(one) == ZOrder(("id",))


@pytest.mark.parametrize("wrong", [[ZOrder(())], [ZOrder(("a",)), "b"], [math.pi]], ids=["empty", "not alone", "a number"])
def test_what_is_no_order_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"ZOrder"):
        sort_keys(wrong)
