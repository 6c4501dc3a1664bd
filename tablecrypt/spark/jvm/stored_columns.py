"""A DataFrame's columns as the table's: by name, all of the table's and in its order, missing ones null, types widened by Spark's casts.

What fits is decided beforehand, for both paths alike, by `schema_for_table`; so each cast here keeps every value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from tablecrypt.spark.jvm.stored_schema import spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


def stored_columns(df: DataFrame, table: Schema, stored: Schema) -> list[Column]:
    """Return the columns to select for a data file.

    Args:
        df: rows that fit the table.
        table: its schema.
        stored: the same schema under the names that are stored.
    """
    from pyspark.sql import functions

    given = {field.name: field.dataType for field in df.schema.fields}

    def column(field: NestedField, at_rest: NestedField) -> Column:
        if field.name not in given:
            return _null(at_rest.field_type)
        return _stored(functions.col(quoted(field.name)), given[field.name], field.field_type, at_rest.field_type)

    return [column(field, at_rest).alias(at_rest.name, metadata={}) for field, at_rest in zip(table.fields, stored.fields, strict=True)]


def quoted(name: str) -> str:
    """Return a column's name so that Spark does not look into it for dots."""
    return "`" + name.replace("`", "``") + "`"


def _stored(column: Column, given: DataType, iceberg: IcebergType, stored: IcebergType) -> Column:
    """Return a column in its stored type. Spark casts structs field by field in their order, so others are put in order first."""
    ordered = column if _is_in_order(given, iceberg) else _ordered(column, given, iceberg)
    return ordered.cast(spark_type(stored))


def _is_in_order(given: DataType, iceberg: IcebergType) -> bool:
    from pyspark.sql import types

    if isinstance(given, types.StructType) and isinstance(iceberg, StructType):
        same_names = given.names == [field.name for field in iceberg.fields]
        return same_names and all(_is_in_order(each.dataType, field.field_type) for each, field in zip(given, iceberg.fields, strict=True))
    if isinstance(given, types.ArrayType) and isinstance(iceberg, ListType):
        return _is_in_order(given.elementType, iceberg.element_type)
    if isinstance(given, types.MapType) and isinstance(iceberg, MapType):
        return _is_in_order(given.keyType, iceberg.key_type) and _is_in_order(given.valueType, iceberg.value_type)
    return True


def _ordered(column: Column, given: DataType, iceberg: IcebergType) -> Column:
    from pyspark.sql import functions, types

    if isinstance(given, types.StructType) and isinstance(iceberg, StructType):
        known = {field.name: field.dataType for field in given}
        fields = [_ordered_field(column, known, field).alias(field.name) for field in iceberg.fields]
        return functions.when(column.isNotNull(), functions.struct(*fields))
    if isinstance(given, types.ArrayType) and isinstance(iceberg, ListType):
        element_type, element = given.elementType, iceberg.element_type
        return functions.transform(column, lambda each: _ordered(each, element_type, element))
    if isinstance(given, types.MapType) and isinstance(iceberg, MapType):
        keys = _ordered(functions.map_keys(column), types.ArrayType(given.keyType), _list_of(iceberg.key_type))
        values = _ordered(functions.map_values(column), types.ArrayType(given.valueType), _list_of(iceberg.value_type))
        return functions.map_from_arrays(keys, values)
    return column


def _ordered_field(column: Column, known: dict[str, DataType], field: NestedField) -> Column:
    if field.name not in known:
        return _null(field.field_type)
    return _ordered(column.getField(field.name), known[field.name], field.field_type)


def _list_of(iceberg: IcebergType) -> ListType:
    return ListType(0, iceberg, element_required=False)


def _null(iceberg: IcebergType) -> Column:
    from pyspark.sql import functions

    return functions.lit(None).cast(spark_type(iceberg))
