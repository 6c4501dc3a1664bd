"""Columns on their way between Spark and a table: the same values in the Arrow types that the other side takes.

Arrow casts everything but uuid, which Spark has as text:

    uuid  16 bytes  ⇄  "f79c3e09-677c-4bbd-a479-3f349cb785e7"

Raises ConfigurationError, naming the column, for a value that the column cannot hold: a null where it is required, a binary of another
length than fixed(n), text that is no uuid.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from tablecrypt.errors import ConfigurationError

_UUID_PATTERN: Final = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
_UUID: Final = re.compile(_UUID_PATTERN)
_UUID_PARTS: Final = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
_UUID_LENGTH: Final = 16
_NO_UUID_TEXT: Final = str(uuid.UUID(int=0))


def batch_for_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a table's rows in the schema that `schema_for_spark` gave."""
    arrays = [_for_spark(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def batch_for_table(batch: pa.RecordBatch, schema: pa.Schema, table: Schema) -> pa.RecordBatch:
    """Return Spark's rows in the schema that `schema_for_table` gave, checked for nulls in required columns."""
    arrays = []
    for column, field in zip(batch.columns, schema, strict=True):
        _check_nulls(column, table.find_field(field.name), field.name)
        try:
            arrays.append(_for_table(column, field.type))
        except (pa.ArrowException, ValueError) as error:
            raise ConfigurationError(
                f"column {field.name!r} holds a value that {table.find_type(field.name)} cannot hold: {error}"
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _for_spark(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if _is_uuid(array.type):
        return _uuid_text(array)
    if _contains_uuid(array.type):
        return pa.array(_converted(array.to_pylist(), str), wanted)
    return array if array.type == wanted else array.cast(wanted)


def _for_table(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if _is_uuid(wanted) and not pa.types.is_null(array.type):
        return _parsed_uuids(array)
    if _contains_uuid(wanted) and not pa.types.is_null(array.type):
        return _with_nested_uuids(array, wanted)
    return array if array.type == wanted else array.cast(wanted)


def _is_uuid(arrow: pa.DataType) -> bool:
    return bool(arrow == pa.uuid())


def _contains_uuid(arrow: pa.DataType) -> bool:
    return _is_uuid(arrow) or any(_contains_uuid(arrow.field(index).type) for index in range(arrow.num_fields))


def _uuid_text(array: pa.Array) -> pa.Array:
    """One text of hexadecimal digits for all values, cut and dashed by Arrow: several times faster than value by value."""
    filled = array.storage.fill_null(bytes(_UUID_LENGTH))
    digits = b"".join(filled.to_pylist()).hex().encode()
    ends = pa.array(range(0, len(digits) + 1, 2 * _UUID_LENGTH), pa.int32())
    text = pa.StringArray.from_buffers(len(array), ends.buffers()[1], pa.py_buffer(digits))
    parts = [pc.utf8_slice_codeunits(text, start, stop) for start, stop in _UUID_PARTS]
    return pc.if_else(array.is_valid(), pc.binary_join_element_wise(*parts, "-"), pa.scalar(None, pa.string()))


def _parsed_uuids(array: pa.Array) -> pa.Array:
    text = array.cast(pa.string())
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
    if _is_uuid(arrow):
        return pa.binary(_UUID_LENGTH)
    if pa.types.is_struct(arrow):
        return pa.struct([field.with_type(_with_storage(field.type)) for field in arrow])
    if pa.types.is_map(arrow):
        key, item = arrow.key_field, arrow.item_field
        return pa.map_(key.with_type(_with_storage(key.type)), item.with_type(_with_storage(item.type)))
    if pa.types.is_list(arrow):
        return pa.list_(arrow.value_field.with_type(_with_storage(arrow.value_type)))
    return arrow


def _check_nulls(array: pa.Array, field: NestedField, path: str) -> None:
    """Spark calls most columns nullable, so whether a required one holds nulls is known from its values alone."""
    if field.required and array.null_count:
        raise ConfigurationError(f"column {path!r} is required in the table, but the DataFrame has nulls in it")
    if field.field_type.is_primitive or pa.types.is_null(array.type):
        return
    for child, of_table, name in _children(array.drop_null(), field.field_type):
        _check_nulls(child, of_table, f"{path}.{name}")


def _children(array: pa.Array, iceberg: IcebergType) -> list[tuple[pa.Array, NestedField, str]]:
    if isinstance(iceberg, StructType):
        fields = {field.name: field for field in iceberg.fields}
        return [(child, fields[field.name], field.name) for child, field in zip(array.flatten(), array.type, strict=True)]
    if isinstance(iceberg, ListType):
        return [(array.flatten(), iceberg.element_field, "element")]
    if isinstance(iceberg, MapType):
        return [(pa.ListArray.from_arrays(array.offsets, array.items).flatten(), iceberg.value_field, "value")]
    return []
