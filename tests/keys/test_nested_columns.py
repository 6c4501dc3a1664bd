"""Which columns lie in which: what protects a struct, list or map protects what is in it, at every level."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from tablecrypt.keys.nested_columns import ancestors, covering, fields_by_id, path_through_structs

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(
        2, "person", StructType(NestedField(3, "name", StructType(NestedField(4, "last", StringType()))), NestedField(5, "age", LongType()))
    ),
    NestedField(6, "phones", ListType(7, StructType(NestedField(8, "number", StringType())))),
    NestedField(9, "notes", MapType(10, StringType(), 11, StructType(NestedField(12, "text", StringType())))),
)


def test_every_column_at_every_level_is_found_by_its_id() -> None:
    found = fields_by_id(SCHEMA)
    assert sorted(found) == list(range(1, 13))
    assert {field_id: field.field_id for field_id, field in found.items()} == {field_id: field_id for field_id in found}


def test_what_lies_around_a_column_is_told_from_within_outwards() -> None:
    assert [ancestors(SCHEMA, field_id) for field_id in (1, 4, 8, 12, 99)] == [(), (3, 2), (7, 6), (11, 9), ()]
    assert covering({2: "all", 3: "name"}, SCHEMA) == {2: "all", 3: "name", 4: "name", 5: "all"}


def test_a_path_leads_through_structs_alone() -> None:
    def path(field_id: int) -> list[str] | None:
        found = path_through_structs(SCHEMA, field_id)
        return None if found is None else [field.name for field in found]

    assert [path(field_id) for field_id in (1, 2, 4, 5, 6)] == [
        ["id"],
        ["person"],
        ["person", "name", "last"],
        ["person", "age"],
        ["phones"],
    ]
    assert [path(field_id) for field_id in (8, 12, 99)] == [None, None, None]
