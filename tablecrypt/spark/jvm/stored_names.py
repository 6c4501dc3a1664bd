"""Under which names Spark reads columns, so that its pushed-down filters cannot meet another column of the same name.

Spark finds columns by field id, but its Parquet filters by name, in each file: had two columns swapped names since a file was written, a
filter on one would skip row groups by the statistics of the other, and rows would be missing in silence. So a column is read under its
real name only if, in every schema that the table ever had, it and all within it had the names that they have now, and nothing else had
them; writers replace some characters, and those names count too. Nor may its type have changed: Spark would write the filter's value in
the narrower type of an old file. Any other column is read under a name that no file knows, which turns the pushing down off for it, and
is renamed afterwards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.types import IcebergType, NestedField

_RESERVED: Final = {"_metadata", "_tmp_metadata_row_index"}
"""Spark's own columns: facts about a row's file, and the row's position in it."""


def stored_names(fields: Iterable[NestedField], history: Iterable[Schema], token: str) -> dict[int, str]:
    """Return, by field id, the name to read each top-level column under.

    Args:
        fields: the columns to read.
        history: all schemas of the table.
        token: makes names that no file has.
    """
    schemas = list(history)
    steady = _steady_ids(schemas) if _is_complete(schemas) else set()

    def name(field: NestedField) -> str:
        is_safe = field.name.lower() not in _RESERVED and Schema(field).field_ids <= steady
        return field.name if is_safe else f"{token}_{field.field_id}"

    return {field.field_id: name(field) for field in fields}


def _is_complete(schemas: list[Schema]) -> bool:
    """Whether no schema was removed from the table's metadata: their ids are given from 0 on."""
    return sorted(schema.schema_id for schema in schemas) == list(range(len(schemas)))


def _steady_ids(schemas: list[Schema]) -> set[int]:
    """Return the ids of fields that had one type and one name in all schemas and files, a name which no other field had."""
    names: defaultdict[int, set[str]] = defaultdict(set)
    types: defaultdict[int, set[str]] = defaultdict(set)
    ids: defaultdict[str, set[int]] = defaultdict(set)
    for schema in (*schemas, *map(sanitize_column_names, schemas)):
        for field_id in schema.field_ids:
            name = str(schema.find_column_name(field_id))
            names[field_id].add(name)
            ids[name.lower()].add(field_id)
            types[field_id].add(_type_name(schema.find_type(field_id)))
    named_once = {field_id for field_id, known in names.items() if len(known) == 1 and len(ids[next(iter(known)).lower()]) == 1}
    return {field_id for field_id in named_once if len(types[field_id]) == 1}


def _type_name(iceberg: IcebergType) -> str:
    # A struct may get more fields: those are looked at by themselves.
    return str(iceberg) if iceberg.is_primitive else type(iceberg).__name__
