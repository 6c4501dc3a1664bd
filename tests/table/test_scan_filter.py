"""A scan's filter says the same of a row in whatever file it lies, whichever columns and types the table had when that was written."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo, GreaterThan, LessThanOrEqual
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from tests.support.plaintext import CANARY
from tests.support.tables import encrypted_table, ids, new_table

GREAT = f"1{'0' * 40}.0"
"""Beyond the floats of 32 bits."""

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "number", IntegerType()),
    NestedField(3, "ratio", FloatType()),
    NestedField(4, "price", DecimalType(9, 2)),
    NestedField(5, "pair", StructType(NestedField(7, "a", IntegerType()))),
    NestedField(6, "text", StringType()),
)


def _evolved(catalog: Catalog) -> Table:
    """Return a table with a file from before its columns became wider and more, and a file from afterwards."""
    before = [
        {"id": 1, "number": 2**31 - 1, "ratio": math.inf, "price": None, "pair": {"a": 2**31 - 1}, "text": CANARY},
        {"id": 2, "number": -(2**31), "ratio": 0.0, "price": None, "pair": {"a": None}, "text": CANARY},
        {"id": 3, "number": None, "ratio": None, "price": None, "pair": None, "text": CANARY},
        {"id": 4, "number": 7, "ratio": math.nan, "price": None, "pair": {"a": 7}, "text": CANARY},
    ]
    table = new_table(catalog, schema=SCHEMA, appends=[pa.Table.from_pylist(before, SCHEMA.as_arrow())])
    with table.update_schema() as update:
        update.update_column("number", LongType()).update_column("ratio", DoubleType()).update_column("price", DecimalType(11, 2))
        update.update_column(("pair", "a"), LongType()).add_column(("pair", "b"), IntegerType()).add_column("later", IntegerType())
        update.add_column("other", StringType(), default_value="x")
    after = {"id": 5, "number": 2**40, "ratio": 0.1, "pair": {"a": 2**40, "b": 1}, "text": CANARY, "later": 1, "other": "y"}
    table.append(pa.Table.from_pylist([after], table.schema().as_arrow()))
    return table


@pytest.mark.parametrize(
    ("row_filter", "matches"),
    [
        (f"number in ({2**40}, {2**50}, -23)", [5]),
        (f"number not in ({2**40}, {-(2**40)})", [1, 2, 3, 4]),
        (f"number < {2**35}", [1, 2, 4]),
        (f"number != {2**35}", [1, 2, 4, 5]),
        (f"not (number < {2**35})", [5]),
        (f"pair.a > {-(2**40)}", [1, 4, 5]),
        (f"ratio in (0.1, {GREAT})", [5]),
        (f"ratio > -{GREAT}", [1, 2, 5]),
        (f"ratio < {GREAT}", [2, 5]),
        ("not (ratio < 1.5)", [1]),
        ("ratio not in (-0.0, 7.5)", [1, 3, 4, 5]),
        ("price is null", [1, 2, 3, 4, 5]),
        ("later = 1", [5]),
        ("later != 1", []),
        ("not (later > 5)", [5]),
        ("not (later = 2 and id > 0)", [5]),
        ("pair.b is null", [1, 2, 3, 4]),
        ("not (pair.b = 2)", [5]),
        ("other = 'x'", [1, 2, 3, 4]),
        ("not (other = 'x')", [5]),
    ],
)
def test_a_filter_means_the_same_in_files_with_older_columns(catalog: Catalog, row_filter: str, matches: list[int]) -> None:
    table = _evolved(catalog)
    assert ids(table, row_filter=row_filter) == matches
    assert sorted(encrypted_table(table).scan(row_filter).to_arrow_dataset().to_table()["id"].to_pylist()) == matches
    assert table.scan(row_filter).count() == len(matches)


@pytest.mark.parametrize(
    ("row_filter", "matches"),
    [("pair.b = 7", [1, 2]), ("pair.b is null", [3, 5]), ("not (pair.b = 7)", [4]), ("pair.b in (7, 8)", [1, 2, 4])],
)
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_default_in_a_struct_stands_only_where_the_struct_is(catalog: Catalog, mode: str, row_filter: str, matches: list[int]) -> None:
    before = [{"id": 1, "pair": {"a": 1}}, {"id": 2, "pair": {"a": None}}, {"id": 3, "pair": None}, {"id": 9, "pair": None}]
    table = new_table(catalog, schema=SCHEMA, properties={"write.delete.mode": mode})
    table.append(pa.Table.from_pylist(before, SCHEMA.as_arrow()))
    with table.update_schema() as update:
        update.add_column(("pair", "b"), IntegerType(), default_value=7)
    table.append(pa.Table.from_pylist([{"id": 4, "pair": {"b": 8}}, {"id": 5, "pair": None}], table.schema().as_arrow()))
    table.delete("id = 9")

    assert ids(table, row_filter=row_filter) == matches
    assert sorted(table.scan(row_filter, selected_fields=("id",)).to_arrow()["id"].to_pylist()) == matches
    assert sorted(encrypted_table(table).scan(row_filter).to_arrow_dataset().to_table()["id"].to_pylist()) == matches
    assert table.scan(row_filter).count() == len(matches)


@pytest.mark.parametrize(
    ("row_filter", "matches"),
    [("tags is null", [2, 5]), ("tags is not null and id > 1", [3, 4]), ("counts is null", [3, 5]), ("deep.lists is null", [2, 3])],
)
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_lists_and_maps_are_found_where_they_are_null_or_not(catalog: Catalog, mode: str, row_filter: str, matches: list[int]) -> None:
    deep = StructType(NestedField(6, "lists", ListType(7, ListType(8, StringType()), element_required=False)))
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "tags", ListType(3, StructType(NestedField(4, "text", StringType())), element_required=False)),
        NestedField(5, "deep", deep),
        NestedField(9, "counts", MapType(10, StringType(), 11, LongType(), value_required=False)),
    )
    rows = [
        {"id": 1, "tags": [{"text": CANARY}], "counts": [("a", 1)], "deep": {"lists": [["x"]]}},
        {"id": 2, "tags": None, "counts": [], "deep": None},
        {"id": 3, "tags": [], "counts": None, "deep": {"lists": None}},
        {"id": 4, "tags": [None], "counts": [("a", None)], "deep": {"lists": []}},
        {"id": 5, "tags": None, "counts": None, "deep": {"lists": [None]}},
    ]
    table = new_table(catalog, schema=schema, properties={"write.delete.mode": mode})
    table.append(pa.Table.from_pylist(rows, table.schema().as_arrow()))

    assert ids(table, row_filter=row_filter) == matches
    assert table.scan(row_filter, selected_fields=("id",)).to_arrow()["id"].to_pylist() == matches
    assert table.scan(row_filter).count() == len(matches)
    table.delete(row_filter)
    assert ids(table) == [each for each in range(1, 6) if each not in matches]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_texts_too_long_for_bounds_are_found_and_kept_beside_row_groups_of_short_ones(
    catalog: Catalog, kind: pa.DataType, is_streamed: bool
) -> None:
    table = new_table(
        catalog, "db.long", pa.schema([("id", pa.int64()), ("text", kind)]), properties={"write.parquet.row-group-limit": "2"}
    )
    texts = pa.array(["a", "b", "z" * 5000, "y"]).cast(kind)
    rows = pa.table({"id": [1, 2, 3, 4], "text": texts})
    table.append(rows.to_reader() if is_streamed else rows)
    # PyIceberg's predicates take positional arguments, which their annotations do not show.
    predicates: list[Any] = [GreaterThan, EqualTo, LessThanOrEqual]
    greater, equal, at_most = predicates

    assert ids(table, row_filter=greater("text", texts[1].as_py())) == [3, 4]
    assert ids(table, row_filter=equal("text", texts[2].as_py())) == [3]
    table.delete(at_most("text", texts[1].as_py()))
    assert ids(table) == [3, 4]
