"""What tests take from tests/support/tables.py is what its head promises."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, ListType, LongType, MapType, NestedField, StringType, StructType

from tests.support.plaintext import CANARY
from tests.support.protected_tables import PEOPLE_SCHEMA
from tests.support.tables import REGION_SCHEMA, SCHEMA, TEAM_SCHEMA, contents_below, flip, path_of, put_back, rows

NESTED = Schema(
    NestedField(1, "text", StringType()),
    NestedField(2, "bytes", BinaryType()),
    NestedField(3, "pair", StructType(NestedField(6, "number", LongType()), NestedField(7, "text", StringType()))),
    NestedField(4, "many", ListType(8, StringType())),
    NestedField(5, "lookup", MapType(9, StringType(), 10, StringType())),
)


@pytest.mark.parametrize("schema", [SCHEMA, TEAM_SCHEMA, REGION_SCHEMA, PEOPLE_SCHEMA, NESTED])
def test_rows_fit_their_schema_and_each_column_of_text_holds_the_canary(schema: Schema) -> None:
    made = rows(7, 3, schema)
    assert made.schema == schema.as_arrow()
    for name in set(made.column_names) & {"note", "ssn", "phones", "text", "bytes", "pair", "many", "lookup"}:
        assert all(CANARY in str(value) for value in made[name].to_pylist()), name
    assert made.slice(1) == rows(8, 2, schema), "a row follows from its id"


@pytest.mark.parametrize("location", ["file:///a/b c%20.parquet", "file:/a/b c%20.parquet", "/a/b c%20.parquet"])
def test_a_location_is_a_path_whoever_wrote_it(location: str) -> None:
    assert path_of(location) == Path("/a/b c%20.parquet")
    assert path_of(location).as_posix().startswith("/a")


def test_files_are_put_back_whatever_a_test_did_to_them(tmp_path: Path) -> None:
    for name in ("changed", "deleted"):
        (tmp_path / name).write_bytes(b"as it was")
    before = contents_below(tmp_path)
    with put_back(tmp_path):
        flip(tmp_path / "changed", -1)
        (tmp_path / "deleted").unlink()
        (tmp_path / "new").touch()
        assert contents_below(tmp_path) != before
    assert contents_below(tmp_path) == before
