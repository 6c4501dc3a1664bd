"""Rows that Spark gets from the planner as a whole, as an Arrow stream: those of metadata tables, and what procedures return.

Arrow types that Spark has not become some that it has, at the top, in structs, lists and maps:

    timestamp in ms, without a zone     timestamp: moments of commits, which PyIceberg gives in UTC
    uuid, time, timestamp in ns         string
    fixed, large binary                 binary
    dictionary, large string            string
    large list                          list
    int8                                int: `content` and `status`, as Iceberg has them, whose types it is the smallest of
"""

from __future__ import annotations

import pyarrow as pa

from tablecrypt.spark.sql.messages import Response


def local_rows(name: str, rows: pa.Table) -> Response:
    """Return the response of which Java makes a LocalTable."""
    arrays = [_for_spark(column.combine_chunks()) for column in rows.columns]
    schema = pa.schema([_field(field, array) for field, array in zip(rows.schema, arrays, strict=True)])
    return Response({"rows": name}, arrow_stream(pa.Table.from_arrays(arrays, schema=schema)))


def arrow_stream(rows: pa.Table | pa.RecordBatch) -> bytes:
    """Return rows as a stream of Arrow."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write(rows)
    return bytes(sink.getvalue().to_pybytes())


def _for_spark(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_struct(kind):
        # flatten() makes children of a null struct null; field() would give what lies in the buffer.
        children = [_for_spark(child) for child in array.flatten()]
        fields = [_field(field, child) for field, child in zip(kind, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
    if kind == pa.uuid():
        # Arrow's cast of a uuid takes its 16 bytes for UTF-8.
        return pa.array([None if value is None else str(value) for value in array.to_pylist()], pa.string())

    wanted = _spark_type(kind)

    return array if wanted == kind else array.cast(wanted)


def _spark_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.unit in ("s", "ms"):
        return pa.timestamp("us", "UTC")
    if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz is not None:
        return pa.timestamp("us", "UTC")
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_large_string(kind) or pa.types.is_time(kind) or (pa.types.is_timestamp(kind) and kind.unit == "ns") or kind == pa.uuid():
        return pa.string()
    if pa.types.is_int8(kind):
        return pa.int32()
    if pa.types.is_dictionary(kind):
        return _spark_type(kind.value_type)
    if pa.types.is_map(kind):
        return pa.map_(_spark_type(kind.key_type), _spark_field(kind.item_field))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_spark_field(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([_spark_field(field) for field in kind])

    return kind


def _spark_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _spark_type(field.type), field.nullable)


def _field(field: pa.Field, array: pa.Array) -> pa.Field:
    return pa.field(field.name, array.type, field.nullable)
