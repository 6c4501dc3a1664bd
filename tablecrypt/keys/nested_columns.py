"""Columns within columns: which columns a type has, which structs, lists and maps a column lies in, and the way down to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

T = TypeVar("T")


def name_or_id(schema: Schema, field_id: int) -> str:
    """Return a column's name; its field id, where the schema does not have it."""
    return schema.find_column_name(field_id) or str(field_id)


def ancestors(schema: Schema, field_id: int) -> tuple[int, ...]:
    """Return the field ids of the structs, lists and maps around a column, the innermost first."""
    return all_ancestors(schema).get(field_id, ())


def all_ancestors(schema: Schema) -> dict[int, tuple[int, ...]]:
    """Return the ancestors of every column at every level, by field id: one walk, where many columns are asked about."""
    found: dict[int, tuple[int, ...]] = {}

    def visit(around: tuple[int, ...], column_type: IcebergType) -> None:
        for each in fields_in(column_type):
            found[each.field_id] = around
            visit((each.field_id, *around), each.field_type)

    visit((), schema.as_struct())
    return found


def displaced(stored: Iterable[tuple[int, tuple[int, ...]]], places: Mapping[int, tuple[int, ...]]) -> int | None:
    """Return the field id of a column that a file has in another struct, list or map than its table; None where there is no such one.

    Args:
        stored: the file's columns: field id and ancestors, the innermost first.
        places: the ancestors of the table's columns, by field id. Columns that are not among these may be anywhere.
    """
    return next((field_id for field_id, around in stored if places.get(field_id, around) != around), None)


def covering(columns: Mapping[int, T], schema: Schema) -> dict[int, T]:
    """Return which of some columns every column at every level is or lies in, the innermost, by field id. Those in none are left out.

    Args:
        columns: by field id.
        schema: whose columns are asked about.
    """
    if not columns:
        return {}
    within = ((each, next((one for one in (each, *around) if one in columns), None)) for each, around in all_ancestors(schema).items())
    return {each: columns[one] for each, one in within if one is not None}


def fields_by_id(schema: Schema) -> dict[int, NestedField]:
    """Return every column at every level by field id."""
    return {field.field_id: field for field in _every_field(schema)}


def field_ids(schema: Schema) -> list[int]:
    """Return the field id of every column at every level, one that two columns have twice."""
    return [field.field_id for field in _every_field(schema)]


def _every_field(schema: Schema) -> Iterator[NestedField]:
    waiting = list(schema.fields)
    while waiting:
        field = waiting.pop()
        yield field
        waiting += fields_in(field.field_type)


def path_through_structs(schema: Schema, field_id: int) -> list[NestedField] | None:
    """Return the fields from the column down to this one, through structs alone; None if there is no such path."""
    return _path(schema.fields, field_id)


def positions_through_structs(schema: Schema, field_id: int) -> tuple[int, ...]:
    """Return where the fields on that path are, each among those beside it; nothing if there is no such path."""
    positions: list[int] = []
    beside = schema.fields
    for field in path_through_structs(schema, field_id) or ():
        positions.append(beside.index(field))
        beside = fields_in(field.field_type)

    return tuple(positions)


def _path(fields: tuple[NestedField, ...], field_id: int) -> list[NestedField] | None:
    for field in fields:
        if field.field_id == field_id:
            return [field]
        if isinstance(field.field_type, StructType) and (below := _path(field.field_type.fields, field_id)):
            return [field, *below]
    return None


def fields_in(column_type: IcebergType) -> tuple[NestedField, ...]:
    """Return the columns that a type has: a struct's fields, a list's element, a map's key and value; none of a primitive type."""
    if isinstance(column_type, StructType):
        return column_type.fields
    if isinstance(column_type, ListType):
        return (column_type.element_field,)
    return (column_type.key_field, column_type.value_field) if isinstance(column_type, MapType) else ()
