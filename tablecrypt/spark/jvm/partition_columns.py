"""Iceberg's partition transforms as Spark columns: the values that PyIceberg works out for the same rows.

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
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from tablecrypt.spark.jvm.schema import path_of
from tablecrypt.spark.jvm.stored_columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column

_DAY: Final = 86_400_000_000
_HOUR: Final = 3_600_000_000
_HOURS_A_DAY: Final = 24
_WHOLE: Final = (IntegerType, LongType)
_TIMES: Final = (TimestampType, TimestamptzType)
_HASHED: Final = (*_WHOLE, *_TIMES, DateType, DecimalType, StringType, BinaryType)
_CALENDAR: Final = (DateType, *_TIMES)
Bucketing = Callable[[int, "Column"], "Column"]


def stored_fields(spec: PartitionSpec) -> list[PartitionField]:
    """Return the partition fields that have values: all that were not dropped."""
    return [field for field in spec.fields if not isinstance(field.transform, VoidTransform)]


def unserved_partitioning(spec: PartitionSpec, schema: Schema) -> str | None:
    """Return which partition field Spark would not work out as PyIceberg does; None if there is none."""
    for field in stored_fields(spec):
        source = schema.find_type(field.source_id)
        if path_of(schema, field.source_id) is None or not _is_served(field.transform, source):
            return f"the partition field {field.name} is {field.transform} of {source}"
    return None


def partition_column(field: PartitionField, stored: Schema, bucket: Bucketing) -> Column:
    """Return the values of a partition field.

    Args:
        field: one for which `unserved_partitioning` has no objection.
        stored: the columns of the DataFrame, under their stored names.
        bucket: returns the bucket, of so many, of a column.
    """
    from pyspark.sql import functions

    path = path_of(stored, field.source_id) or []
    column = functions.col(quoted(path[0].name))
    for inner in path[1:]:
        column = column.getField(inner.name)
    return _transformed(field.transform, column, stored.find_type(field.source_id), bucket)


def _is_served(transform: Transform[Any, Any], source: IcebergType) -> bool:
    if isinstance(transform, IdentityTransform):
        # PyIceberg makes one partition of 0.0 and -0.0, and a NaN equals no other.
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
