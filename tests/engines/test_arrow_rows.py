"""Rows of Ray and Daft, block by block: nested fields keep their values, or the rows are refused by name."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from tablecrypt.engines.arrow_rows import stored_reader
from tablecrypt.errors import ConfigurationError, FormatError

PERSON = StructType(NestedField(3, "name", StringType()), NestedField(4, "age", LongType()))
LINES = ListType(6, StructType(NestedField(7, "price", LongType())), element_required=False)
COUNTS = MapType(9, StringType(), 10, LongType())
SCHEMA = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "person", PERSON), NestedField(5, "lines", LINES), NestedField(8, "counts", COUNTS)
)
ANN = {"name": "Ann", "age": 41}


def stored(*blocks: dict[str, Any]) -> list[dict[str, Any]]:
    tables = [
        pa.table({"id": [1], **{name: value if isinstance(value, pa.Array) else [value] for name, value in each.items()}})
        for each in blocks
    ]
    rows: list[dict[str, Any]] = stored_reader(tables, SCHEMA).read_all().to_pylist()
    return rows


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("person", {**ANN, "phone": "555"}),
        ("person", {"Name": "Ann"}),
        ("person", {"name": 7}),
        ("person", {"age": "41"}),
        ("lines", [{"price": 1, "tax": 2}]),
        ("counts", {"a": 1}),
        ("lines", pa.array([[{"price": 1}]], pa.list_view(pa.struct([("price", pa.int64())])))),
    ],
    ids=str,
)
def test_nested_fields_that_do_not_fit_are_refused(column: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"the rows do not fit the table: .*{column}") as raised:
        stored({column: value})
    assert len(str(raised.value).splitlines()) == 1


def test_text_that_is_not_utf_8_is_refused() -> None:
    text = pa.array([b"\xff"]).view(pa.string())
    person = pa.StructArray.from_arrays([text], ["name"])
    with pytest.raises(FormatError, match="column 'person': text of the rows is not UTF-8"):
        stored({"person": ANN}, {"person": person})


@pytest.mark.parametrize(
    ("column", "value", "later", "reason"),
    [
        ("person", ANN, {**ANN, "phone": "555"}, r"'person\.phone' is in some parts of the rows, and not in the table"),
        ("lines", [{"price": 1}], [{"price": 1, "tax": 2}], r"'lines\.element\.tax' is in some parts"),
        ("counts", None, {"a": 1}, "'counts' holds a value that map.* cannot hold"),
    ],
)
def test_nested_fields_that_only_later_blocks_have_are_not_dropped(column: str, value: Any, later: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        stored({column: value}, {column: later})


def test_nested_fields_come_in_any_order_with_nulls_and_in_narrower_types() -> None:
    narrow = pa.array([[{"price": 1}]], pa.list_(pa.struct([("price", pa.int32())]), 1))
    rows = stored({"person": {"age": None, "name": None}}, {"person": {"age": 41, "name": "Ann"}}, {"person": {"name": "Ann"}})

    assert [each["person"] for each in rows] == [{"name": None, "age": None}, ANN, {"name": "Ann", "age": None}]
    assert stored({"lines": narrow}) == [{"id": 1, "lines": [{"price": 1}]}]
