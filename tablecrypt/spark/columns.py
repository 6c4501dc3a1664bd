"""Columns between Spark and a table: which types meet, and the same values in the Arrow types that the other side takes.

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
is known. Arrow casts all other values, except those of uuid, which are text in Spark:

    uuid  16 bytes  ⇄  "f79c3e09-677c-4bbd-a479-3f349cb785e7"

Raises ConfigurationError, naming the column, for a type that does not fit and for a value that the column cannot hold: a null where it is
required, a binary of another length than fixed(n), text that is no uuid.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
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

from tablecrypt._arrow_types import cast_values, holds, with_leaves
from tablecrypt.engines.arrow_rows import check_nulls
from tablecrypt.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType as StructTypeOfSpark

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
_UUID_PATTERN: Final = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
_UUID: Final = re.compile(_UUID_PATTERN)
_UUID_PARTS: Final = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
_UUID_LENGTH: Final = 16
_NO_UUID_TEXT: Final = str(uuid.UUID(int=0))


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
    # Both would be written as the one column that the table has of this name.
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
    # Units may differ, for the cast refuses a loss; with a zone on one side alone, the moment would depend on the session.
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


def spark_schema(schema: pa.Schema) -> StructTypeOfSpark:
    """Return Spark's schema of an Arrow schema that `schema_for_spark` gave."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def arrow_schema(schema: StructTypeOfSpark) -> pa.Schema:
    """Return the Arrow schema in which Spark hands over rows of a schema; timestamps with a zone are in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # Newer releases of Spark ask for the zone; the older ones take UTC.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)


def batch_for_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a table's rows in the schema that `schema_for_spark` gave."""
    arrays = [_for_spark(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def batch_for_table(batch: pa.RecordBatch, schema: pa.Schema, table: Schema) -> pa.RecordBatch:
    """Return Spark's rows in the schema that `schema_for_table` gave, checked for nulls in required columns."""
    arrays = []
    for column, field in zip(batch.columns, schema, strict=True):
        check_nulls(column, table.find_field(field.name), field.name)
        try:
            # Arrow's casts are safe ones: a value that does not fit is an error.
            arrays.append(_for_table(column, field.type))
        except (pa.ArrowException, ValueError) as error:
            raise ConfigurationError(
                f"column {field.name!r} holds a value that {table.find_type(field.name)} cannot hold: {error}"
            ) from error

    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _for_spark(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if _is_uuid(array.type):
        return _uuid_text(array)
    if holds(array.type, _is_uuid):
        # Arrow has no cast of a uuid inside a struct, list or map.
        return pa.array(_converted(array.to_pylist(), str), wanted)
    return array if array.type == wanted else array.cast(wanted)


def _for_table(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if _is_uuid(wanted) and not pa.types.is_null(array.type):
        return _parsed_uuids(array)
    if holds(wanted, _is_uuid) and not pa.types.is_null(array.type):
        return _with_nested_uuids(array, wanted)
    return array if array.type == wanted else cast_values(array, wanted)


def _is_uuid(arrow: pa.DataType) -> bool:
    return bool(arrow == pa.uuid())


def _uuid_text(array: pa.Array) -> pa.Array:
    """One text of hexadecimal digits for all values, cut and dashed by Arrow: several times faster than value by value."""
    # A null takes 16 bytes as well, so that each value's place can be computed; it becomes null again below.
    filled = array.storage.fill_null(bytes(_UUID_LENGTH))
    digits = b"".join(filled.to_pylist()).hex().encode()
    ends = pa.array(range(0, len(digits) + 1, 2 * _UUID_LENGTH), pa.int32())
    text = pa.StringArray.from_buffers(len(array), ends.buffers()[1], pa.py_buffer(digits))
    parts = [pc.utf8_slice_codeunits(text, start, stop) for start, stop in _UUID_PARTS]
    return pc.if_else(array.is_valid(), pc.binary_join_element_wise(*parts, "-"), pa.scalar(None, pa.string()))


def _parsed_uuids(array: pa.Array) -> pa.Array:
    text = array.cast(pa.string())
    # Before fromhex(), which would take digits of one value for those of the next.
    if not pc.all(pc.match_substring_regex(text, _UUID_PATTERN), min_count=0).as_py():
        raise ValueError("not the text of a uuid, 8-4-4-4-12 hexadecimal digits")

    filled = text.fill_null(_NO_UUID_TEXT)
    raw = bytes.fromhex("".join(filled.to_pylist()).replace("-", ""))
    values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(_UUID_LENGTH), len(array), [None, pa.py_buffer(raw)])
    present = pc.if_else(text.is_valid(), values, pa.scalar(None, pa.binary(_UUID_LENGTH)))

    return pa.ExtensionArray.from_storage(pa.uuid(), present)


def _converted(values: list[Any], uuid_to: Callable[[uuid.UUID], Any]) -> list[Any]:
    def convert(value: Any) -> Any:
        if isinstance(value, uuid.UUID):
            return uuid_to(value)
        if isinstance(value, dict):
            return {name: convert(each) for name, each in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(convert(each) for each in value)
        return value

    return [convert(value) for value in values]


def _with_nested_uuids(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    def convert(value: Any, arrow: pa.DataType) -> Any:
        if value is None:
            return None
        if _is_uuid(arrow):
            if not _UUID.match(value):
                raise ValueError("not the text of a uuid, 8-4-4-4-12 hexadecimal digits")
            return uuid.UUID(value).bytes
        if pa.types.is_struct(arrow):
            return {field.name: convert(value[field.name], field.type) for field in arrow}
        if pa.types.is_map(arrow):
            return [(convert(key, arrow.key_type), convert(item, arrow.item_type)) for key, item in value]
        if pa.types.is_list(arrow):
            return [convert(each, arrow.value_type) for each in value]

        return value

    return pa.array([convert(value, wanted) for value in array.to_pylist()], _with_storage(wanted)).cast(wanted)


def _with_storage(arrow: pa.DataType) -> pa.DataType:
    """Return the type with the 16 bytes that a uuid is stored as: Arrow does not make nested extension arrays of Python values."""
    return with_leaves(arrow, lambda kind: pa.binary(_UUID_LENGTH) if _is_uuid(kind) else kind)
