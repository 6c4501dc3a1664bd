"""An upsert changes the rows whose keys it brings and no others, and reads no files that cannot hold them."""

from __future__ import annotations

import math
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ValidationException
from pyiceberg.expressions.visitors import expression_evaluator
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    ListType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import compact
from tablecrypt.table.row_changes import FEW_KEYS, keys_filter
from tests.support.tables import ENCRYPTED, memory_catalog, new_table, path_of

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "day", DateType()),
    NestedField(4, "amount", DoubleType()),
    NestedField(5, "tags", ListType(6, LongType(), False)),
)
ARROW = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("day", pa.date32()), ("amount", pa.float64()), ("tags", pa.list_(pa.int64()))]
)
DAY_US = 86_400_000_000
YEAR_12000 = 3_663_457
"""In days. Python has no date after the year 9999, or before the first."""
MODES = ["copy-on-write", "merge-on-read"]
values = st.tuples(st.sampled_from([None, 0.0, 1.5]), st.none() | st.lists(st.integers(0, 3) | st.none(), max_size=2))
Rows = dict[tuple[int, str], tuple[float | None, list[int | None] | None]]
keys = st.tuples(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 12), st.sampled_from(["", "a", "ä", "b" * 30]))
some_rows = st.dictionaries(keys, values, max_size=12)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    return memory_catalog(tmp_path_factory.mktemp("upserts"))


made = iter(range(10**6))


def table_with(catalog: Catalog, mode: str) -> Table:
    properties = {**ENCRYPTED, "write.merge.mode": mode}
    return catalog.create_table(f"db.t{next(made)}", SCHEMA, properties=properties)


def arrow(rows: Rows) -> pa.Table:
    columns: dict[str, list[Any]] = {
        "id": [key[0] for key in rows],
        "name": [key[1] for key in rows],
        "day": [key[0] % 1000 for key in rows],
        "amount": [value[0] for value in rows.values()],
        "tags": [value[1] for value in rows.values()],
    }
    return pa.table(
        [pa.array(columns[each.name], pa.int32() if each.name == "day" else each.type).cast(each.type) for each in ARROW], ARROW
    )


def keyed(*amounts: float, name: str = "old") -> pa.Table:
    """Rows that differ in their amounts alone."""
    return pa.Table.from_pylist([{"id": 1, "name": name, "amount": each} for each in amounts], ARROW)


def numbered(first: int, count: int, amount: float = 1.0) -> pa.Table:
    return arrow({(number, "a"): (amount, None) for number in range(first, first + count)})


def state(table: Table) -> dict[tuple[int, str], tuple[Any, ...]]:
    lineage = table.scan(selected_fields=("*", "_row_id", "_last_updated_sequence_number")).to_arrow().to_pylist()
    found = {
        (row["id"], row["name"]): (row["amount"], row["tags"], row["_row_id"], row["_last_updated_sequence_number"]) for row in lineage
    }
    assert len(found) == len(lineage)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.lists(some_rows, max_size=3),
    new=some_rows.filter(bool),
    update=st.booleans(),
    few=st.booleans(),
    deleted=st.integers(0, 12),
)
def test_rows_are_those_of_a_dictionary_and_keep_their_ids(
    catalog: Catalog, mode: str, files: list[Rows], new: Rows, update: bool, few: bool, deleted: int
) -> None:
    table = table_with(catalog, mode)
    for number, rows in enumerate(files):
        fresh = {key: value for key, value in rows.items() if not any(key in before for before in files[:number])}
        if fresh:
            table.append(arrow(fresh))
    table.delete(f"id = {deleted}")
    before = state(table)
    if not few:
        new = new | {(number, "many"): (None, None) for number in range(FEW_KEYS + 1)}
    result = table.upsert(arrow(new), ["id", "name"], when_matched_update_all=update)
    after = state(table)
    expected = {key: row[:2] for key, row in before.items()}
    differing = {key for key, value in new.items() if key in before and update and value != before[key][:2]}
    expected |= {key: value for key, value in new.items() if key not in before or key in differing}
    assert {key: row[:2] for key, row in after.items()} == expected
    assert (result.rows_updated, result.rows_inserted) == (len(differing), len(new.keys() - before.keys()))
    for key, row in before.items():
        assert after[key][2] == row[2]
        assert (after[key][3] == row[3]) is (key not in differing)


@pytest.mark.parametrize("mode", MODES)
def test_files_that_cannot_hold_a_key_are_not_opened(catalog: Catalog, mode: str) -> None:
    table = table_with(catalog, mode)
    for first in (0, 10_000, 20_000, 30_000):
        table.append(numbered(first, 1000))
    for task in table.scan("id >= 10000 and id < 30000").plan_files():
        path_of(task.file.file_path).unlink()
    new = pa.concat_tables([numbered(500, 300, 2.0), numbered(30_900, 300, 2.0)])
    result = table.upsert(new, ["id", "name"])
    assert (result.rows_updated, result.rows_inserted) == (400, 200)
    assert table.scan("id < 1000 and amount = 2.0").count() == 300


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_written_where_no_row_differs(catalog: Catalog, mode: str) -> None:
    table = table_with(catalog, mode)
    table.append(numbered(0, 500))
    before = table.metadata_location
    result = table.upsert(numbered(100, 300), ["id", "name"])
    assert (result.rows_updated, result.rows_inserted) == (0, 0)
    assert table.metadata_location == before


@pytest.mark.parametrize("mode", MODES)
def test_a_file_whose_every_row_is_updated_goes_whole(catalog: Catalog, mode: str) -> None:
    table = table_with(catalog, mode)
    table.append(numbered(0, 300))
    assert table.upsert(numbered(0, 300, 2.0), ["id", "name"]).rows_updated == 300
    (task,) = table.scan().plan_files()
    assert (task.file.record_count, task.delete_files) == (300, set())


def test_nan_differs_from_itself_as_in_a_plain_table(catalog: Catalog) -> None:
    table = table_with(catalog, "copy-on-write")
    table.append(numbered(0, 1, math.nan))
    assert table.upsert(numbered(0, 1, math.nan), ["id"]).rows_updated == 1


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_negative_zero_is_the_key_zero(catalog: Catalog, mode: str, few: bool) -> None:
    """It is equal to zero for filters, for SQL, and for what looks for keys that occur twice."""
    table = table_with(catalog, mode)
    table.append(keyed(0.0, *range(1, 1 if few else FEW_KEYS + 1)))
    result = table.upsert(keyed(-0.0, *range(1, 1 if few else FEW_KEYS + 1), name="new"), ["amount"])
    assert (result.rows_inserted, table.scan("amount = 0").to_arrow().column("name").to_pylist()) == (0, ["new"])

    with pytest.raises(ValueError, match="Duplicate rows found"):
        table.upsert(keyed(0.0, -0.0), ["amount"])


@pytest.mark.parametrize("mode", MODES)
def test_a_key_that_the_table_has_twice_changes_nothing(catalog: Catalog, mode: str) -> None:
    table = table_with(catalog, mode)
    table.append(numbered(0, 10))
    table.append(numbered(5, 10))
    before = table.metadata_location
    with pytest.raises(ValueError, match="duplicate rows"):
        table.upsert(numbered(0, 10, 2.0), ["id"])
    assert (table.refresh().metadata_location, table.scan().count()) == (before, 20)


def test_a_null_key_and_a_missing_column_are_refused_by_name(catalog: Catalog) -> None:
    table = table_with(catalog, "copy-on-write")
    table.append(numbered(0, 10))
    without_key = numbered(0, 2).set_column(0, "id", pa.array([1, None], pa.int64()))
    with pytest.raises(ConfigurationError, match="the key column id has nulls"):
        table.upsert(without_key, ["id"])
    with pytest.raises(ConfigurationError, match="these lack tags"):
        table.upsert(numbered(0, 2).drop_columns(["tags"]), ["id"])
    assert table.scan().count() == 10


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 50), min_size=1, max_size=40))
def test_a_filter_of_ranges_matches_every_key(ids: list[int]) -> None:
    rows = pa.table({"id": pa.array(ids, pa.int64())})
    row_filter = keys_filter(rows, SCHEMA, few=0)
    evaluate = expression_evaluator(Schema(SCHEMA.fields[0]), row_filter, True)
    assert all(evaluate(Record(each)) for each in ids)


def test_a_filter_of_ranges_matches_days_that_python_does_not_have() -> None:
    days = [-YEAR_12000, 0, 1, YEAR_12000]
    row_filter = keys_filter(pa.table({"day": pa.array(days, pa.int32()).cast(pa.date32())}), SCHEMA, few=0)
    evaluate = expression_evaluator(Schema(SCHEMA.find_field("day")), row_filter, True)
    assert all(evaluate(Record(each)) for each in days)


def test_moments_in_lists_and_structs_that_python_does_not_have_are_compared(catalog: Catalog) -> None:
    def rows(*moments: int) -> pa.Table:
        at = pa.array([[each, None] for each in moments], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("us")))
        finer = pa.array([{"at": each} for each in moments], pa.struct([("at", pa.int64())])).cast(pa.struct([("at", pa.timestamp("ns"))]))
        return pa.table({"id": pa.array(range(len(moments)), pa.int64()), "at": at, "finer": finer})

    table = new_table(catalog, f"db.t{next(made)}", appends=[rows(1, YEAR_12000 * DAY_US, 1)])
    result = table.upsert(rows(1, YEAR_12000 * DAY_US, 2), ["id"])
    assert (result.rows_updated, result.rows_inserted) == (1, 0)


def test_rows_with_views_replace_and_join_the_others(catalog: Catalog) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    table = new_table(catalog, f"db.t{next(made)}", schema)
    views = pa.schema([("id", pa.int64()), ("name", pa.string_view())])
    table.append(pa.Table.from_pylist([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}], views))
    table.upsert(pa.Table.from_pylist([{"id": 2, "name": "b" * 20}, {"id": 3, "name": "c"}], views), ["id"])
    table.delete("name = 'a'")
    assert sorted(table.scan().to_arrow().to_pylist(), key=str) == [{"id": 2, "name": "b" * 20}, {"id": 3, "name": "c"}]


def test_a_column_of_nothing_but_nulls_differs_in_no_row(catalog: Catalog) -> None:
    rows = pa.table({"id": [1, 2], "name": ["a", "b"], "nothing": pa.nulls(2)})
    table = new_table(catalog, f"db.t{next(made)}", appends=[rows])
    result = table.upsert(rows.set_column(1, "name", [["a", "changed"]]), join_cols=["id"])
    assert (result.rows_updated, result.rows_inserted) == (1, 0)
    assert sorted(table.scan().to_arrow()["name"].to_pylist()) == ["a", "changed"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("others", [(), ("id",)])
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (UUIDType(), pa.array([uuid.UUID(int=number).bytes for number in range(4)], pa.binary(16)).cast(pa.uuid())),
        (TimestampNanoType(), pa.array([1, 2, -1, 10**18 + 7], pa.int64()).cast(pa.timestamp("ns"))),
        (TimestamptzNanoType(), pa.array([1, 2, -1, 10**18 + 7], pa.int64()).cast(pa.timestamp("ns", "UTC"))),
        (DateType(), pa.array([0, YEAR_12000, -YEAR_12000, 1], pa.int32()).cast(pa.date32())),
        (TimestampType(), pa.array([0, YEAR_12000 * DAY_US, -YEAR_12000 * DAY_US, 1], pa.int64()).cast(pa.timestamp("us"))),
        (TimestamptzType(), pa.array([0, YEAR_12000 * DAY_US, -YEAR_12000 * DAY_US, 1], pa.int64()).cast(pa.timestamp("us", "UTC"))),
        (TimeType(), pa.array([0, 1, DAY_US - 1, 2], pa.int64()).cast(pa.time64("us"))),
        (FixedType(2), pa.array([b"aa", b"ab", b"ac", b"ad"], pa.binary(2))),
        (DecimalType(9, 2), pa.array([Decimal("1.10"), Decimal("-2"), Decimal("0"), Decimal("9999999.99")], pa.decimal128(9, 2))),
    ],
    ids=lambda kind: str(kind) if isinstance(kind, PrimitiveType) else "",
)
def test_keys_of_every_type_find_their_rows(
    catalog: Catalog, mode: str, kind: PrimitiveType, values: pa.Array, others: tuple[str, ...]
) -> None:
    schema = Schema(NestedField(1, "key", kind), NestedField(2, "id", LongType()), NestedField(3, "amount", LongType()))
    properties = {**ENCRYPTED, "write.merge.mode": mode}
    table = catalog.create_table(f"db.t{next(made)}", schema, properties=properties)
    rows = pa.table({"key": values, "id": pa.array(range(4), pa.int64()), "amount": pa.array([0] * 4, pa.int64())})
    table.append(rows.slice(0, 3))

    new = rows.slice(1).set_column(2, "amount", pa.array([5] * 3, pa.int64()))
    result = table.upsert(new, ["key", *others])

    assert (result.rows_updated, result.rows_inserted) == (2, 1)
    found = table.scan(selected_fields=("id", "amount")).to_arrow().to_pylist()
    assert sorted((row["id"], row["amount"]) for row in found) == [(0, 0), (1, 5), (2, 5), (3, 5)]
    with pytest.raises(ValueError, match="Duplicate rows"):
        table.upsert(pa.concat_tables([new, new]), ["key", *others])


KEYS_AT_ONCE = [([500], [500]), ([1, 500], [2, 500]), ([1, 500], [500]), ([500], [1, 500])]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("first", "second"), KEYS_AT_ONCE)
@pytest.mark.parametrize("has_rows", [True, False])
def test_of_two_upserts_at_once_one_inserts_a_key(catalog: Catalog, mode: str, first: list[int], second: list[int], has_rows: bool) -> None:
    table = table_with(catalog, mode)
    if has_rows:
        table.append(numbered(1, 1))
        table.append(numbered(2, 1))
    one, other = (catalog.load_table(table.name()) for _ in range(2))
    one.upsert(keyed_by(first), ["id", "name"])
    with pytest.raises(ValidationException, match=r"conflicting files that the upsert is about|data files were found matching"):
        other.upsert(keyed_by(second), ["id", "name"])

    stored = table.refresh().scan().to_arrow()["id"].to_pylist()
    assert stored.count(500) == 1
    other.refresh().upsert(keyed_by(second), ["id", "name"])
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == sorted({*stored, *second})


def keyed_by(ids: list[int]) -> pa.Table:
    return arrow({(number, "a"): (float(number), None) for number in ids})


def test_an_upsert_goes_on_beside_rows_that_others_add_under_other_keys(catalog: Catalog) -> None:
    table = table_with(catalog, "copy-on-write")
    table.append(numbered(1, 1))
    one, other = (catalog.load_table(table.name()) for _ in range(2))
    one.append(numbered(7, 2))
    other.upsert(keyed_by([500]), ["id", "name"])
    compact(table.refresh())
    third = catalog.load_table(table.name())
    compact(table.refresh(), min_input_files=1)
    third.upsert(keyed_by([501]), ["id", "name"])

    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [1, 7, 8, 500, 501]


def test_snapshot_isolation_lets_others_add_the_key(catalog: Catalog) -> None:
    table = table_with(catalog, "copy-on-write")
    with table.transaction() as transaction:
        transaction.set_properties({"write.update.isolation-level": "snapshot"})
    one, other = (catalog.load_table(table.name()) for _ in range(2))
    one.upsert(keyed_by([500]), ["id", "name"])
    other.upsert(keyed_by([500]), ["id", "name"])

    assert table.refresh().scan().to_arrow()["id"].to_pylist() == [500, 500]


def test_an_upsert_after_an_append_of_its_own_transaction_is_committed_behind_others(catalog: Catalog) -> None:
    table = table_with(catalog, "copy-on-write")
    one, other = (catalog.load_table(table.name()) for _ in range(2))
    with other.transaction() as transaction:
        transaction.append(numbered(1, 1))
        transaction.upsert(keyed_by([1, 500]), ["id", "name"])
        one.append(numbered(7, 1))

    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [1, 7, 500]
