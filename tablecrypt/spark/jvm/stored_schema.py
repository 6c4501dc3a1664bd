"""The columns of a data file, as Spark's Parquet writer is told of them: Iceberg's types, nullability, field ids and stored names.

Names are stored as PyIceberg and Iceberg Java store them, with characters replaced that Avro does not take ("a.b" is a_x2Eb). Spark's
schema carries the ids of fields of structs; those of list elements and map keys and values are given beside it, by Parquet path:

    tags.list.element        props.key_value.key        props.key_value.value

Iceberg table spec, "Parquet" and "Column Projection".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from tablecrypt.spark.jvm.schema import schema_json

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


def stored_json(stored: Schema) -> str:
    """Return Spark's JSON of a schema whose names are those that are stored."""
    return schema_json(list(stored.fields), {field.field_id: field.name for field in stored.fields})


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
    alone = json.loads(schema_json([NestedField(1, "alone", iceberg)], {1: "alone"}))
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
