"""Iceberg's types in Spark, as the Arrow types in which executors and the JVM exchange rows.

    Iceberg                     Spark reads it as        Spark may write
    boolean, float, double      the same (float→double)  boolean; float; float, double
    int, long                   int, bigint              tinyint, smallint, int; all of these and bigint
    decimal(p, s)               decimal(p, s)            decimal(up to p, s)
    date                        date                     date
    timestamp (no zone)         timestamp_ntz            timestamp_ntz
    timestamptz                 timestamp                timestamp
    string                      string                   string
    uuid                        string                   string, 8-4-4-4-12 hexadecimal digits
    binary, fixed(n)            binary                   binary; binary of n bytes
    struct, list, map           struct, array, map       the same, fields by name
    unknown                     void                     void, into any optional column
    time, timestamp_ns,         refused: Spark has no    refused
    timestamptz_ns, others      type for it

A timestamp_ntz is never turned into a timestamp or back: that would depend on the session's time zone. Cast it in Spark, where the zone
is in sight.

Raises ConfigurationError, naming the column.
"""

from __future__ import annotations

from typing import Final, NoReturn

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
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

_READ_AS: Final[dict[type[IcebergType], pa.DataType]] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", "UTC"),
    StringType: pa.string(),
    UUIDType: pa.string(),
    BinaryType: pa.binary(),
    FixedType: pa.binary(),
    UnknownType: pa.null(),
}
_ALSO_WRITTEN_FROM: Final[dict[type[IcebergType], tuple[pa.DataType, ...]]] = {
    IntegerType: (pa.int8(), pa.int16()),
    LongType: (pa.int8(), pa.int16(), pa.int32()),
    DoubleType: (pa.float32(),),
}


def schema_for_spark(schema: Schema) -> pa.Schema:
    """Return the Arrow schema in which Spark gets these columns."""
    return pa.schema([_field_for_spark(field, field.name) for field in schema.fields])


def schema_for_table(spark: pa.Schema, table: Schema) -> pa.Schema:
    """Return the Arrow schema in which Spark's columns are written to the table; its fields are Spark's, in Spark's order.

    Raises:
        ConfigurationError: a column that the table does not have, a required one that is missing, or a type that does not fit.
    """
    return pa.schema(_fields_for_table(list(spark), table.as_struct(), ""))


def _field_for_spark(field: NestedField, path: str) -> pa.Field:
    return pa.field(field.name, _type_for_spark(field.field_type, path), nullable=not field.required)


def _type_for_spark(iceberg: IcebergType, path: str) -> pa.DataType:
    if isinstance(iceberg, StructType):
        return pa.struct([_field_for_spark(field, f"{path}.{field.name}") for field in iceberg.fields])
    if isinstance(iceberg, ListType):
        element = _type_for_spark(iceberg.element_type, f"{path}.element")
        return pa.list_(pa.field("element", element, nullable=not iceberg.element_required))
    if isinstance(iceberg, MapType):
        key, value = _type_for_spark(iceberg.key_type, f"{path}.key"), _type_for_spark(iceberg.value_type, f"{path}.value")
        return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value, nullable=not iceberg.value_required))
    if isinstance(iceberg, DecimalType):
        return pa.decimal128(iceberg.precision, iceberg.scale)
    if type(iceberg) not in _READ_AS:
        raise ConfigurationError(f"column {path!r} is of type {iceberg}, which Spark does not have: leave it out with columns=[...]")
    return _READ_AS[type(iceberg)]


def _fields_for_table(spark: list[pa.Field], table: StructType, prefix: str) -> list[pa.Field]:
    known = {field.name: field for field in table.fields}
    given = [field.name for field in spark]
    repeated = sorted({name for name in given if given.count(name) > 1})
    if repeated:
        raise ConfigurationError(f"column {prefix + repeated[0]!r} occurs more than once in the DataFrame")
    for name in given:
        if name not in known:
            _refuse_unknown(prefix, name, known)
    for field in table.fields:
        if field.required and field.name not in given:
            raise ConfigurationError(f"column {prefix + field.name!r} is required in the table and missing from the DataFrame")
    return [field.with_type(_type_for_table(field.type, known[field.name].field_type, prefix + field.name)) for field in spark]


def _type_for_table(spark: pa.DataType, iceberg: IcebergType, path: str) -> pa.DataType:
    if pa.types.is_struct(spark) and isinstance(iceberg, StructType):
        return pa.struct(_fields_for_table(list(spark), iceberg, f"{path}."))
    if pa.types.is_list(spark) and isinstance(iceberg, ListType):
        return pa.list_(spark.value_field.with_type(_type_for_table(spark.value_type, iceberg.element_type, f"{path}.element")))
    if pa.types.is_map(spark) and isinstance(iceberg, MapType):
        key = spark.key_field.with_type(_type_for_table(spark.key_type, iceberg.key_type, f"{path}.key"))
        return pa.map_(key, spark.item_field.with_type(_type_for_table(spark.item_type, iceberg.value_type, f"{path}.value")))
    if not _fits(spark, iceberg):
        _refuse_type(spark, iceberg, path)
    return schema_to_pyarrow(iceberg, include_field_ids=False)


def _fits(spark: pa.DataType, iceberg: IcebergType) -> bool:
    if pa.types.is_null(spark):
        return True
    if isinstance(iceberg, DecimalType):
        return bool(pa.types.is_decimal128(spark) and spark.scale == iceberg.scale and spark.precision <= iceberg.precision)
    readable = _READ_AS.get(type(iceberg))
    if readable is None or pa.types.is_null(readable):
        return False
    if pa.types.is_timestamp(readable):
        return bool(pa.types.is_timestamp(spark) and (spark.tz is None) == (readable.tz is None))
    return spark == _small(readable) or _small(spark) == readable or spark in _ALSO_WRITTEN_FROM.get(type(iceberg), ())


def _small(arrow: pa.DataType) -> pa.DataType:
    """Spark exchanges large strings and binaries where spark.sql.execution.arrow.useLargeVarTypes is on."""
    return {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(arrow, arrow)


def _refuse_unknown(prefix: str, name: str, known: dict[str, NestedField]) -> NoReturn:
    similar = [each for each in known if each.lower() == name.lower()]
    hint = f"; the table has {prefix + similar[0]!r}" if similar else f"; it has {', '.join(known)}"
    raise ConfigurationError(f"column {prefix + name!r} is not in the table{hint}")


def _refuse_type(spark: pa.DataType, iceberg: IcebergType, path: str) -> NoReturn:
    hint = ""
    if pa.types.is_timestamp(spark) and isinstance(iceberg, (TimestampType, TimestamptzType)):
        wanted = "timestamp_ntz" if isinstance(iceberg, TimestampType) else "timestamp"
        hint = f": cast it to {wanted} yourself, because the result depends on the session's time zone"
    elif type(iceberg) not in _READ_AS and not isinstance(iceberg, (DecimalType, StructType, ListType, MapType)):
        hint = ", a type that Spark does not have"
    raise ConfigurationError(f"column {path!r} is {_spark_name(spark)} in the DataFrame, but {iceberg} in the table{hint}")


def _spark_name(arrow: pa.DataType) -> str:
    from pyspark.sql.pandas.types import from_arrow_type

    return str(from_arrow_type(arrow, prefer_timestamp_ntz=True).simpleString())
