"""Spark columns for a write: a DataFrame's columns in the form of the table's, and which partition values Java works out.

Columns are matched by name: all of the table's and in its order, missing ones null, types widened by Spark's casts. What fits is decided
beforehand, for both paths alike, by `schema_for_table`; so each cast here keeps every value.

Iceberg table spec, "Partition Transforms".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
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
    UUIDType,
)

from tablecrypt.keys.nested_columns import path_through_structs
from tablecrypt.spark.shared.schema import spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_WHOLE: Final = (IntegerType, LongType)
_TIMES: Final = (TimestampType, TimestamptzType)
_HASHED: Final = (*_WHOLE, *_TIMES, DateType, DecimalType, StringType, BinaryType, UUIDType, FixedType)
_CALENDAR: Final = (DateType, *_TIMES)


def table_columns(df: DataFrame, table: Schema) -> list[Column]:
    """Return the columns to select for a table.

    Args:
        df: rows that fit the table.
        table: its schema.
    """
    from pyspark.sql import functions

    given = {field.name: field.dataType for field in df.schema.fields}

    def column(field: NestedField) -> Column:
        if field.name not in given:
            return _null(field.field_type)
        return _in_type(functions.col(quoted(field.name)), given[field.name], field.field_type)

    # Without metadata, in which a DataFrame may carry marks and defaults of another table.
    return [column(field).alias(field.name, metadata={}) for field in table.fields]


def quoted(name: str) -> str:
    """Return a column's name in quotes, so that Spark does not read its dots as paths."""
    return "`" + name.replace("`", "``") + "`"


def _in_type(column: Column, given: DataType, iceberg: IcebergType) -> Column:
    """Return a column in the table's type. Spark casts structs field by field in their order, so others are put in order first."""
    ordered = column if _is_in_order(given, iceberg) else _ordered(column, given, iceberg)
    return ordered.cast(spark_type(iceberg))


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
        # struct() is never null, so a null struct would become one of nulls.
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


def stored_fields(spec: PartitionSpec) -> list[PartitionField]:
    """Return the partition fields that have values: all that were not dropped."""
    return [field for field in spec.fields if not isinstance(field.transform, VoidTransform)]


def unsupported_partitioning(spec: PartitionSpec, schema: Schema) -> str | None:
    """Return a partition field whose values Java would not compute (RowPartition.java) as PyIceberg does; None if there is none."""
    for field in stored_fields(spec):
        source = schema.find_type(field.source_id)
        if path_through_structs(schema, field.source_id) is None or not _is_supported(field.transform, source):
            return f"the partition field {field.name} is {field.transform} of {source}"
    return None


def _is_supported(transform: Transform[Any, Any], source: IcebergType) -> bool:
    if isinstance(transform, IdentityTransform):
        # Spark sorts 0.0 and -0.0 as one value, and they are two partitions: a task would begin a file at each change of the sign.
        return not isinstance(source, (FloatType, DoubleType))
    if isinstance(transform, BucketTransform):
        return isinstance(source, _HASHED)
    if isinstance(transform, TruncateTransform):
        return isinstance(source, (*_WHOLE, DecimalType, StringType, BinaryType))
    if isinstance(transform, HourTransform):
        return isinstance(source, _TIMES)

    return isinstance(transform, (YearTransform, MonthTransform, DayTransform)) and isinstance(source, _CALENDAR)
