"""The schemas that Spark's Parquet reader and writer are given: Spark's types, with Iceberg's field id on every field of a struct.

Reading: Spark finds struct fields by these ids, list elements and map keys and values by their place. The result of a read has no ids any
more. Spark pushes filters down by name, in each file: had two columns swapped names since a file was written, a filter on one would skip
row groups by the statistics of the other, and rows would silently be missing. So a column is read under its real name only if, in every
schema that the table ever had, it and all within it had the names that they have now, and nothing else had them; writers replace some
characters, and those names count too. Nor may its type have changed: Spark would write the filter's value in the narrower type of an old
file. Any other column is read under a name that no file knows, which turns the pushing down off for it, and is renamed afterwards. So are
the fields in its structs: of a field in a file Spark takes the type by name, and by id only where the schema lacks the name.

Writing: names are stored as PyIceberg and Iceberg Java store them, with characters replaced that Avro does not take ("a.b" is a_x2Eb). The
ids of list elements and map keys and values are given beside Spark's schema, by Parquet path:

    tags.list.element        props.key_value.key        props.key_value.value

Iceberg table spec, "Parquet" and "Column Projection".
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
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
    UnknownType,
    UUIDType,
)

from tablecrypt.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

PRIMITIVES: Final[dict[type[IcebergType], str]] = {
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
"""Iceberg's types that Spark's Parquet reader gives as the Python path does, and what Spark's JSON calls them."""
_TRANSLATED: Final[dict[type[IcebergType], str]] = {UUIDType: "string", FixedType: "binary", UnknownType: "void"}
"""What Spark knows types as that its Parquet reader does not give so: Python reads and writes them."""
_RESERVED: Final = {"_metadata", "_tmp_metadata_row_index"}
"""Spark's own columns: facts about a row's file, and the row's position in it."""


def unread_type(field: NestedField) -> str | None:
    """Return, as "path: type", a type in this column that Spark's Parquet reader does not give as the Python path does."""
    for path, iceberg in _leaves(field.field_type, field.name):
        if type(iceberg) not in PRIMITIVES and not isinstance(iceberg, DecimalType):
            return f"{path}: {iceberg}"
    return None


def unwritten_type(field: NestedField) -> str | None:
    """Return, as "path: type", a type in this column that neither Spark's Parquet writer nor Python writes for Spark SQL."""
    for path, iceberg in _leaves(field.field_type, field.name):
        if type(iceberg) not in (*PRIMITIVES, UUIDType, FixedType) and not isinstance(iceberg, DecimalType):
            return f"{path}: {iceberg}"
    return None


def written_by_python(schema: Schema) -> bool:
    """Whether Spark knows a type in a schema as another, the text of uuids or binaries of a length, so that Python writes the files."""
    return any(isinstance(iceberg, (UUIDType, FixedType)) for column in schema.fields for _, iceberg in _leaves(column.field_type, ""))


def names_that_spark_confuses(schema: Schema) -> str | None:
    """Return why Spark may take one column for another; None if it cannot."""
    names = [str(schema.find_column_name(field_id)).lower() for field_id in schema.field_ids]
    return "names of columns differ in case alone" if len(set(names)) != len(names) else None


def schema_json(fields: Iterable[NestedField], names: Mapping[int, str] | None = None) -> str:
    """Return Spark's JSON of a schema. ConfigurationError for a type that Spark lacks.

    Args:
        fields: the columns.
        names: by field id, what they and fields in their structs are called, those that are not called by their own names.
    """
    return json.dumps(_struct(fields, names or {}))


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


def _struct(fields: Iterable[NestedField], names: Mapping[int, str]) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [
            {
                "name": names.get(field.field_id, field.name),
                "type": _type(field.field_type, field.name, names),
                "nullable": not field.required,
                "metadata": {"parquet.field.id": field.field_id},
            }
            for field in fields
        ],
    }


def _type(iceberg: IcebergType, name: str, names: Mapping[int, str]) -> Any:
    if isinstance(iceberg, StructType):
        return _struct(iceberg.fields, names)
    if isinstance(iceberg, ListType):
        return {"type": "array", "elementType": _type(iceberg.element_type, name, names), "containsNull": not iceberg.element_required}

    if isinstance(iceberg, MapType):
        return {
            "type": "map",
            "keyType": _type(iceberg.key_type, name, names),
            "valueType": _type(iceberg.value_type, name, names),
            "valueContainsNull": not iceberg.value_required,
        }

    if isinstance(iceberg, DecimalType):
        return f"decimal({iceberg.precision},{iceberg.scale})"

    known = PRIMITIVES | _TRANSLATED
    if type(iceberg) not in known:
        raise ConfigurationError(f"column {name!r} is of type {iceberg}, which Spark does not have")

    return known[type(iceberg)]


def stored_names(fields: Iterable[NestedField], history: Iterable[Schema], token: str) -> dict[int, str]:
    """Return, by field id, the name to read each top-level column under, and the fields within it if that is not its own name.

    Args:
        fields: the columns to read.
        history: all schemas of the table.
        token: makes names that no file has.
    """
    schemas = list(history)
    # A schema that was removed may have had these names for other columns, in files that are still there.
    steady = _steady_ids(schemas) if _is_complete(schemas) else set()

    names: dict[int, str] = {}
    for field in fields:
        all_within = Schema(field).field_ids
        is_safe = field.name.lower() not in _RESERVED and all_within <= steady
        names |= {field.field_id: field.name} if is_safe else {each: f"{token}_{each}" for each in all_within}
    return names


def _is_complete(schemas: list[Schema]) -> bool:
    """Whether no schema was removed from the table's metadata: their ids are given from 0 on."""
    return sorted(schema.schema_id for schema in schemas) == list(range(len(schemas)))


def _steady_ids(schemas: list[Schema]) -> set[int]:
    """Return the ids of fields that had one type and one name in all schemas and files, a name which no other field had."""
    names: defaultdict[int, set[str]] = defaultdict(set)
    types: defaultdict[int, set[str]] = defaultdict(set)
    ids: defaultdict[str, set[int]] = defaultdict(set)

    # Files have the sanitized names, which two columns may have in common.
    for schema in (*schemas, *map(sanitize_column_names, schemas)):
        for field_id in schema.field_ids:
            name = str(schema.find_column_name(field_id))
            names[field_id].add(name)
            # Lower case, since Spark looks names up without case in a file too.
            ids[name.lower()].add(field_id)
            types[field_id].add(_type_name(schema.find_type(field_id)))

    named_once = {field_id for field_id, known in names.items() if len(known) == 1 and len(ids[next(iter(known)).lower()]) == 1}

    return {field_id for field_id in named_once if len(types[field_id]) == 1}


def _type_name(iceberg: IcebergType) -> str:
    # A struct may get more fields: those are looked at by themselves.
    return str(iceberg) if iceberg.is_primitive else type(iceberg).__name__


def stored_json(stored: Schema) -> str:
    """Return Spark's JSON of a schema whose names are those that are stored."""
    return schema_json(stored.fields)


def inner_ids(stored: Schema) -> dict[str, int]:
    """Return the field ids of list elements, map keys and map values, by Parquet path."""
    return dict(_inner_ids(stored.as_struct(), ""))


def spark_type(iceberg: IcebergType) -> DataType:
    """Return the Spark type of a stored column, everything in it nullable."""
    from pyspark.sql import types

    if isinstance(iceberg, StructType):
        return types.StructType([types.StructField(field.name, spark_type(field.field_type)) for field in iceberg.fields])
    if isinstance(iceberg, ListType):
        return types.ArrayType(spark_type(iceberg.element_type))
    if isinstance(iceberg, MapType):
        return types.MapType(spark_type(iceberg.key_type), spark_type(iceberg.value_type))

    alone = json.loads(schema_json([NestedField(1, "alone", iceberg)]))

    return types.StructType.fromJson(alone)["alone"].dataType


def _inner_ids(iceberg: IcebergType, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(iceberg, StructType):
        for field in iceberg.fields:
            yield from _inner_ids(field.field_type, f"{path}.{field.name}" if path else field.name)
    elif isinstance(iceberg, ListType):
        yield f"{path}.list.element", iceberg.element_id
        yield from _inner_ids(iceberg.element_type, f"{path}.list.element")
    elif isinstance(iceberg, MapType):
        yield f"{path}.key_value.key", iceberg.key_id
        yield f"{path}.key_value.value", iceberg.value_id
        yield from _inner_ids(iceberg.key_type, f"{path}.key_value.key")
        yield from _inner_ids(iceberg.value_type, f"{path}.key_value.value")
