"""The schema that Spark's Parquet reader is given: Spark's types, with Iceberg's field id on every field of a struct.

Spark finds struct fields by these ids, list elements and map keys and values by their place. The result of a read has no ids any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

_PRIMITIVES: Final[dict[type[IcebergType], str]] = {
    BooleanType: "boolean",
    IntegerType: "integer",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    DateType: "date",
    TimestampType: "timestamp_ntz",
    TimestamptzType: "timestamp",
    StringType: "string",
    BinaryType: "binary",
}


def unread_type(field: NestedField) -> str | None:
    """Return, as "path: type", a type in this column that Spark's Parquet reader does not give as the portable path does."""
    for path, iceberg in _leaves(field.field_type, field.name):
        if type(iceberg) not in _PRIMITIVES and not isinstance(iceberg, DecimalType):
            return f"{path}: {iceberg}"
    return None


def schema_json(fields: list[NestedField], names: Mapping[int, str]) -> str:
    """Return Spark's JSON of a schema with these columns, under the names given by field id."""
    return json.dumps(_struct([(names[field.field_id], field) for field in fields]))


def path_of(schema: Schema, field_id: int) -> list[NestedField] | None:
    """Return the fields from the column down to this one, through structs alone; None where there is no such path."""
    return _path(schema.fields, field_id)


def _path(fields: tuple[NestedField, ...], field_id: int) -> list[NestedField] | None:
    for field in fields:
        if field.field_id == field_id:
            return [field]
        if isinstance(field.field_type, StructType) and (below := _path(field.field_type.fields, field_id)):
            return [field, *below]
    return None


def _leaves(iceberg: IcebergType, path: str) -> Iterator[tuple[str, IcebergType]]:
    if isinstance(iceberg, StructType):
        for field in iceberg.fields:
            yield from _leaves(field.field_type, f"{path}.{field.name}")
    elif isinstance(iceberg, ListType):
        yield from _leaves(iceberg.element_type, f"{path}.element")
    elif isinstance(iceberg, MapType):
        yield from _leaves(iceberg.key_type, f"{path}.key")
        yield from _leaves(iceberg.value_type, f"{path}.value")
    else:
        yield path, iceberg


def _struct(fields: list[tuple[str, NestedField]]) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [
            {
                "name": name,
                "type": _type(field.field_type),
                "nullable": not field.required,
                "metadata": {"parquet.field.id": field.field_id},
            }
            for name, field in fields
        ],
    }


def _type(iceberg: IcebergType) -> Any:
    if isinstance(iceberg, StructType):
        return _struct([(field.name, field) for field in iceberg.fields])
    if isinstance(iceberg, ListType):
        return {"type": "array", "elementType": _type(iceberg.element_type), "containsNull": not iceberg.element_required}
    if isinstance(iceberg, MapType):
        return {
            "type": "map",
            "keyType": _type(iceberg.key_type),
            "valueType": _type(iceberg.value_type),
            "valueContainsNull": not iceberg.value_required,
        }
    if isinstance(iceberg, DecimalType):
        return f"decimal({iceberg.precision},{iceberg.scale})"
    return _PRIMITIVES[type(iceberg)]
