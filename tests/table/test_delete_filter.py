"""A delete by a filter takes the rows of which the filter is true, and the same rows in every delete mode."""

from __future__ import annotations

import math
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysFalse, Reference, StartsWith
from pyiceberg.expressions.literals import BinaryLiteral
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType

from tablecrypt.errors import ConfigurationError
from tablecrypt.table._pyiceberg.transactions import parse_row_filter
from tablecrypt.table._pyiceberg.whole_files import WholeFiles
from tests.support.plaintext import CANARY
from tests.support.tables import encrypted_table, new_table

MODES = ("copy-on-write", "merge-on-read")
ROWS = pa.table(
    {
        "id": [1, 2, 3, None, 5],
        "text": ["a", None, "bb", "abc", CANARY],
        "ratio": [1.0, math.nan, None, -0.0, 3.5],
        "pair": pa.array([{"a": 1}, {"a": None}, None, {"a": 4}, {"a": 5}], pa.struct([("a", pa.int64())])),
    }
)


def table_in(catalog: Catalog, mode: str, *appended: pa.Table) -> Table:
    return new_table(catalog, appends=appended, properties={"write.delete.mode": mode})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("row_filter", "remaining"),
    [
        ("id not in (1, 3)", [1, 3, None]),
        ("id != 1", [1, None]),
        ("not (id = 1)", [1, None]),
        ("text not like 'a%'", [1, 2, None]),
        ("ratio is nan", [1, 3, None, 5]),
        ("ratio != 1.0", [1, 2, 3]),
        ("pair.a is null", [1, None, 5]),
        ("id is null or ratio is nan", [1, 3, 5]),
        ("id = 1 and (id is null or text = 'a')", [2, 3, None, 5]),
        ("id != 1 and (id is null or text = 'abc')", [1, 2, 3, None, 5]),
        ("not (id = 1 and text is null)", []),
        ("id = 3 or text = 'a'", [2, None, 5]),
        ("id = 2 or text = 'none'", [1, 3, None, 5]),
        ("ratio > 0", [2, 3, None]),
        ("ratio not in (3.5)", [2, 3, 5]),
        ("ratio != 3.5 or ratio is nan", [3, 5]),
        ("later != 7", [1, 2, 3, None, 5]),
        ("later is null", []),
        ("other = 'x'", []),
        ("other != 'x'", [1, 2, 3, None, 5]),
    ],
)
def test_rows_go_of_which_the_filter_is_true(catalog: Catalog, mode: str, row_filter: str, remaining: list[int | None]) -> None:
    table = table_in(catalog, mode, ROWS)
    with table.update_schema() as update:
        update.add_column("later", IntegerType())
        update.add_column("other", StringType(), default_value="x")
    table.delete(row_filter)
    assert table.scan().to_arrow().column("id").to_pylist() == remaining
    assert table.scan().count() == len(remaining)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "row_filter", ["id != 1", "not id in (1, 2)", "ratio != 1.0", "ratio is not nan", "text not like 'a%'", "ratio > 5"]
)
def test_rows_go_or_stay_whatever_other_rows_their_file_holds(catalog: Catalog, mode: str, row_filter: str) -> None:
    unknown = ROWS.slice(3, 1).set_column(1, "text", pa.nulls(1, pa.string())).set_column(2, "ratio", pa.nulls(1, pa.float64()))
    mixed = pa.concat_tables([ROWS, unknown, ROWS.slice(4).set_column(2, "ratio", [[7.0]]), ROWS.slice(1, 1)])
    together = table_in(catalog, mode, mixed)
    together.delete(row_filter)
    expected = sorted(map(str, together.scan().to_arrow().to_pylist()))
    catalog.drop_table("db.t")
    apart = table_in(catalog, mode, *(mixed.slice(row, 1) for row in range(6)), mixed.slice(6))
    apart.delete(row_filter)
    assert sorted(map(str, apart.scan().to_arrow().to_pylist())) == expected


@pytest.mark.parametrize("mode", MODES)
def test_nan_is_found_beside_values_that_are_all_the_same(catalog: Catalog, mode: str) -> None:
    table = table_in(catalog, mode, pa.table({"ratio": [1.0, math.nan], "text": [CANARY] * 2}))
    for row_filter in ("ratio is nan", "ratio != 1.0", "ratio not in (1.0, 2.0)", "not ratio = 1.0"):
        assert table.scan(row_filter=row_filter).count() == 1, row_filter
    assert table.scan(row_filter="ratio = 1.0").count() == 1
    table.delete("ratio is nan")
    assert table.scan().to_arrow().column("ratio").to_pylist() == [1.0]


@pytest.mark.parametrize("mode", MODES)
def test_a_column_of_uuids_is_compared_by_their_bytes(catalog: Catalog, mode: str) -> None:
    small, great = uuid.UUID(int=1), uuid.UUID(int=2**127)
    rows = pa.table({"id": pa.array([small.bytes, great.bytes, None], pa.uuid()), "text": [CANARY] * 3})
    table = table_in(catalog, mode, rows, rows.slice(0, 1))
    for row_filter, count in (
        (f"id = '{great}'", 1),
        (f"id > '{small}'", 1),
        (f"id in ('{small}', '{great}')", 3),
        (f"not id = '{small}'", 1),
    ):
        assert table.scan(row_filter=row_filter).to_arrow().num_rows == count, row_filter
        assert encrypted_table(table).scan(row_filter=row_filter).to_arrow_dataset().count_rows() == count, row_filter
    assert encrypted_table(table).scan().to_arrow_dataset().count_rows(filter=pc.field("id").is_valid()) == 3

    table.delete(f"id = '{small}'")

    assert table.scan().to_arrow()["id"].to_pylist() == [great, None]


def test_a_filter_that_arrow_cannot_evaluate_is_not_called_tampering(catalog: Catalog) -> None:
    table = table_in(catalog, "copy-on-write", pa.table({"id": pa.array([b"ab"], pa.binary(2)), "text": [CANARY]}))
    starts = StartsWith(Reference("id"), BinaryLiteral(b"ab"))  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="Arrow cannot evaluate the filter"):
        table.scan(row_filter=starts).to_arrow()
    with pytest.raises(ConfigurationError, match="Arrow cannot evaluate the filter"):
        table.delete(starts)


def test_a_column_that_has_a_name_of_row_lineage_is_named_before_rows_are_rewritten(catalog: Catalog) -> None:
    table = table_in(catalog, "copy-on-write", pa.table({"_row_id": [1, 2], "text": [CANARY] * 2}))
    with pytest.raises(ConfigurationError, match="rename_column"):
        table.delete("text = 'x' or _row_id = 1")
    table.update_schema().rename_column("_row_id", "number").commit()
    table.delete("number = 1")
    assert table.scan(selected_fields=("number", "_row_id")).to_arrow().to_pylist() == [{"number": 2, "_row_id": 1}]


@pytest.mark.parametrize(
    ("row_filter", "matches"),
    [
        ("address.street is null", [0]),
        ("address.street is not null", [1, 2]),
        ("not (address.street is null)", [1, 2]),
        ("not (address.street is not null)", [0]),
        ("address.street is null or id = 1", [0, 1]),
    ],
)
def test_a_required_column_is_null_where_the_struct_is_that_it_is_in(catalog: Catalog, row_filter: str, matches: list[int]) -> None:
    street = NestedField(3, "street", StringType(), required=True)
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "address", StructType(street)))
    table = new_table(catalog, schema=schema)
    for number, address in enumerate([None, {"street": "a"}, {"street": "b"}]):
        table.append(pa.Table.from_pylist([{"id": number, "address": address}], schema=table.schema().as_arrow()))

    assert sorted(table.scan(row_filter).to_arrow()["id"].to_pylist()) == matches
    assert table.scan(row_filter).count() == len(matches)
    table.delete(row_filter)

    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [each for each in range(3) if each not in matches]


@pytest.mark.parametrize(
    ("row_filter", "needs"),
    [
        ("pair.a > 3", {"b"}),
        ("pair.a != 2 and id < 9", {"b", "c"}),
        ("pair.a is null", {"b", "c"}),
        ("id >= 1 and text != 'z'", {"c"}),
        ("ratio >= 1.0", {"a", "b", "c"}),
    ],
)
def test_a_file_is_read_only_where_its_statistics_leave_open_whether_all_rows_match(
    catalog: Catalog, row_filter: str, needs: set[str]
) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("ratio", pa.float64()), ("pair", pa.struct([("a", pa.int64())]))])
    files: dict[str, list[dict[str, Any]]] = {
        "a": [{"id": 1, "text": "a", "ratio": 1.0, "pair": {"a": 4}}, {"id": 2, "text": "b", "ratio": 2.0, "pair": {"a": 5}}],
        "b": [{"id": 3, "text": "c", "ratio": 3.0, "pair": {"a": 6}}, {"id": 4, "text": "d", "ratio": 4.0, "pair": None}],
        "c": [{"id": 5, "text": None, "ratio": None, "pair": {"a": 1}}, {"id": None, "text": "e", "ratio": 2.0, "pair": None}],
    }
    table = table_in(catalog, "copy-on-write", *(pa.Table.from_pylist(rows, schema=schema) for rows in files.values()))
    stored = {task.file.file_path for task in table.scan("id is not null").plan_files()}
    needed = {task.file.file_path for name in needs for task in table.scan(f"id = {files[name][0]['id']}").plan_files()}
    for location in stored - needed:
        Path(urlsplit(location).path).unlink()

    table.delete(row_filter)


def test_a_bound_that_is_not_of_its_type_proves_nothing() -> None:
    schema = Schema(NestedField(1, "id", LongType()))
    counts = {"value_counts": {1: 1}, "null_value_counts": {1: 0}}
    for bound, proves in ((b"\x07" + bytes(7), True), (b"\x07" + bytes(3), True), (b"\x07", False)):
        file = DataFile.from_args(_table_format_version=3, record_count=1, lower_bounds={1: bound}, upper_bounds={1: bound}, **counts)
        assert WholeFiles(schema, parse_row_filter("id = 7"), told_until={}).has(FileScanTask(file, residual=AlwaysFalse())) is proves


@pytest.mark.parametrize("mode", MODES)
def test_a_column_whose_name_holds_a_dot_is_no_field_of_a_struct(catalog: Catalog, mode: str) -> None:
    rows = pa.table({"a.b": [1, 2], "text": [CANARY] * 2})
    table = new_table(catalog, schema=rows.schema, appends=[rows], properties={"write.delete.mode": mode})
    assert table.scan("a.b = 2").to_arrow()["a.b"].to_pylist() == [2]

    table.delete("a.b = 1")

    assert table.scan().to_arrow()["a.b"].to_pylist() == [2]
