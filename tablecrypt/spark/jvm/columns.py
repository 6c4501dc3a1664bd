"""Spark columns for a write: a DataFrame's columns in the form of the table's, and the table's partition values.

Columns are matched by name: all of the table's and in its order, missing ones null, types widened by Spark's casts. What fits is decided
beforehand, for both paths alike, by `schema_for_table`; so each cast here keeps every value.

Partition values are those that PyIceberg works out for the same rows:

    identity            the column
    bucket              the spec's hash, in Java (Bucket.java); of dates and timestamps the days and microseconds since 1970-01-01
    truncate            ints and longs down to a multiple of the width; the first characters of strings, the first bytes of binaries
    year … hour         since 1970-01-01T00:00:00, of timestamps with a zone in UTC, whatever the session's time zone is

Iceberg table spec, "Partition Transforms" and appendix B "32-bit Hash Requirements".
"""

from __future__ import annotations

from collections.abc import Callable
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

from tablecrypt.spark.jvm.schema import path_of, spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_DAY: Final = 86_400_000_000
_HOUR: Final = 3_600_000_000
_HOURS_A_DAY: Final = 24
_WHOLE: Final = (IntegerType, LongType)
_TIMES: Final = (TimestampType, TimestamptzType)
_HASHED: Final = (*_WHOLE, *_TIMES, DateType, DecimalType, StringType, BinaryType)
_CALENDAR: Final = (DateType, *_TIMES)
Bucketing = Callable[[int, "Column"], "Column"]


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
    """Return a column's name in quotes, so that Spark does not read its dots as paths."""
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


def stored_fields(spec: PartitionSpec) -> list[PartitionField]:
    """Return the partition fields that have values: all that were not dropped."""
    return [field for field in spec.fields if not isinstance(field.transform, VoidTransform)]


def unsupported_partitioning(spec: PartitionSpec, schema: Schema) -> str | None:
    """Return a partition field whose values expressions of Spark would not compute as PyIceberg does; None if there is none."""
    return _first_unsupported(spec, schema, _is_supported)


def unsupported_partitioning_of_rows(spec: PartitionSpec, schema: Schema) -> str | None:
    """Return a partition field whose values Java would not compute row by row (RowPartition.java) as PyIceberg does; None if none is."""
    return _first_unsupported(spec, schema, _is_supported_of_rows)


def partition_column(field: PartitionField, stored: Schema, bucket: Bucketing) -> Column:
    """Return the values of a partition field.

    Args:
        field: one for which `unsupported_partitioning` has no objection.
        stored: the columns of the DataFrame, under their stored names.
        bucket: returns the bucket, of so many, of a column.
    """
    from pyspark.sql import functions

    path = path_of(stored, field.source_id) or []
    column = functions.col(quoted(path[0].name))
    for inner in path[1:]:
        column = column.getField(inner.name)
    return _transformed(field.transform, column, stored.find_type(field.source_id), bucket)


def _first_unsupported(spec: PartitionSpec, schema: Schema, is_supported: Callable[[Transform[Any, Any], IcebergType], bool]) -> str | None:
    for field in stored_fields(spec):
        source = schema.find_type(field.source_id)
        if path_of(schema, field.source_id) is None or not is_supported(field.transform, source):
            return f"the partition field {field.name} is {field.transform} of {source}"
    return None


def _is_supported_of_rows(transform: Transform[Any, Any], source: IcebergType) -> bool:
    return _is_supported(transform, source) or (isinstance(transform, TruncateTransform) and isinstance(source, DecimalType))


def _is_supported(transform: Transform[Any, Any], source: IcebergType) -> bool:
    if isinstance(transform, IdentityTransform):
        # Spark sorts 0.0 and -0.0 as one value, and they are two partitions: a task would begin a file at each change of the sign.
        return not isinstance(source, (FloatType, DoubleType))
    if isinstance(transform, BucketTransform):
        return isinstance(source, _HASHED)
    if isinstance(transform, TruncateTransform):
        return isinstance(source, (*_WHOLE, StringType, BinaryType))
    if isinstance(transform, HourTransform):
        return isinstance(source, _TIMES)
    return isinstance(transform, (YearTransform, MonthTransform, DayTransform)) and isinstance(source, _CALENDAR)


def _transformed(transform: Transform[Any, Any], column: Column, source: IcebergType, bucket: Bucketing) -> Column:
    from pyspark.sql import functions

    if isinstance(transform, BucketTransform):
        return bucket(transform.num_buckets, _hashed(column, source))
    if isinstance(transform, TruncateTransform):
        if isinstance(source, _WHOLE):
            return column - functions.pmod(
                column, functions.lit(transform.width).cast("int" if isinstance(source, IntegerType) else "bigint")
            )
        return functions.substring(column, 1, transform.width)
    if isinstance(transform, HourTransform):
        return _hours(column, source).cast("int")
    if isinstance(transform, IdentityTransform):
        return column
    days = _days(column, source)
    if isinstance(transform, DayTransform):
        return days
    date = functions.date_from_unix_date(days)
    years = functions.year(date) - 1970
    return years if isinstance(transform, YearTransform) else years * 12 + functions.month(date) - 1


def _hashed(column: Column, source: IcebergType) -> Column:
    from pyspark.sql import functions

    if isinstance(source, DateType):
        return functions.unix_date(column)
    if isinstance(source, TimestamptzType):
        return functions.unix_micros(column)
    if isinstance(source, TimestampType):
        return _local_micros(column)
    return column


def _days(column: Column, source: IcebergType) -> Column:
    from pyspark.sql import functions

    if isinstance(source, TimestamptzType):
        return _floor_divided(functions.unix_micros(column), _DAY).cast("int")
    return functions.unix_date(column.cast("date"))


def _hours(column: Column, source: IcebergType) -> Column:
    from pyspark.sql import functions

    if isinstance(source, TimestamptzType):
        return _floor_divided(functions.unix_micros(column), _HOUR)
    return _days(column, source) * _HOURS_A_DAY + functions.hour(column)


def _local_micros(column: Column) -> Column:
    """Return microseconds since 1970-01-01T00:00:00 of a timestamp without zone. Spark's unix_micros would ask the session's zone."""
    from pyspark.sql import functions

    seconds = functions.hour(column) * 3600 + functions.minute(column) * 60
    in_minute = (functions.date_part(functions.lit("SECOND"), column) * 1_000_000).cast("bigint")
    return functions.unix_date(column.cast("date")).cast("bigint") * _DAY + seconds.cast("bigint") * 1_000_000 + in_minute


def _floor_divided(micros: Column, unit: int) -> Column:
    from pyspark.sql import functions

    # Spark's div rounds towards zero, and is exact where `/` on columns would divide doubles.
    return functions.call_function("div", micros - functions.pmod(micros, functions.lit(unit)), functions.lit(unit))
