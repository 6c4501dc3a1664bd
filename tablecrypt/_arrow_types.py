"""Arrow types with other types in them.

What one walk through structs, lists and maps makes of the types of values; their casts; arrays of nulls and of empty values;
what pyarrow refuses to write; text that is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tablecrypt.errors import ConfigurationError, FormatError

LARGE: Final = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
"""Text and bytes whose offsets are 32 bits, and the same with 64."""


def with_leaves(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type in which each type of values, at whatever level, is another one.

    Args:
        kind: as Parquet and Iceberg have them. Nested types of other kinds count as types of values.
        leaf: returns the other type. Names, nullability and metadata of nested fields stay.
    """

    if not pa.types.is_nested(kind):
        return leaf(kind)

    before = fields_in(kind)
    after = [field.with_type(with_leaves(field.type, leaf)) for field in before]
    # Not an equal one: Arrow names the values of a map in a struct after the map, and casts rows where that name is another.
    if [field.type for field in before] == [field.type for field in after]:
        return kind

    if pa.types.is_struct(kind):
        return pa.struct(after)
    if pa.types.is_map(kind):
        return pa.map_(*after, kind.keys_sorted)
    if pa.types.is_list(kind):
        return pa.list_(*after)
    if pa.types.is_large_list(kind):
        return pa.large_list(*after)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(*after, kind.list_size)

    return leaf(kind)


def fields_in(kind: pa.DataType) -> list[pa.Field]:
    """Return what a struct, list or map is made of; nothing for any other type."""
    return [kind.key_field, kind.item_field] if pa.types.is_map(kind) else [kind.field(at) for at in range(kind.num_fields)]


def holds(kind: pa.DataType, is_wanted: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type is a wanted one, or has one inside."""
    return is_wanted(kind) or any(holds(field.type, is_wanted) for field in fields_in(kind))


def cast_values(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array as another type, at whatever level.

    What the fields of a null struct hold counts for nothing. Arrow's own cast finds nulls there that a required field may not have, and
    refuses the rows, so structs, lists and maps are taken apart, and their values cast.
    """
    stored = array.type
    if stored.equals(kind, check_metadata=True):
        return array
    if pa.types.is_struct(stored) and pa.types.is_struct(kind) and stored.num_fields == kind.num_fields:
        fields = [cast_values(array.field(at), field.type) for at, field in enumerate(kind)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
    if pa.types.is_map(stored) and pa.types.is_map(kind):
        keys, items = cast_values(array.keys, kind.key_type), cast_values(array.items, kind.item_type)
        return pa.MapArray.from_arrays(offsets_from_zero(array), keys, items, type=kind, mask=array.is_null())
    if is_list(stored) and is_list(kind):
        return _with_elements(array, cast_values(array.values, kind.value_type), kind)

    return array.cast(kind)


def _with_elements(array: pa.Array, elements: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return lists of another type of lists, with other elements in the places of theirs."""
    is_large = pa.types.is_large_list(kind)
    offsets = offsets_from_zero(array).cast(pa.int64() if is_large else pa.int32())
    made = pa.LargeListArray if is_large else pa.ListArray
    return made.from_arrays(offsets, elements, type=kind, mask=array.is_null())


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is one of lists that have offsets."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def cast_rows(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows in the types of a schema whose columns are theirs, in that order."""
    columns = [cast_values(column, field.type) for column, field in zip(rows.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def offsets_of(array: pa.Array) -> pa.Array:
    """Return the offsets of a list or map array: one more than it has lists."""
    # Java writes none for no lists, and Arrow would read what lies behind the buffer.
    if not len(array):
        return pa.array([0], pa.int64() if pa.types.is_large_list(array.type) else pa.int32())
    return array.offsets


def offsets_from_zero(array: pa.Array) -> pa.Array:
    """Return the offsets of a list or map array as Arrow takes them beside a null mask: no slice, so those of a sliced array are copied."""
    offsets = offsets_of(array)
    return offsets if array.offset == 0 else pc.add(offsets, pa.scalar(0, offsets.type))


def without_nulls_of_null_structs(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows in which a required field of a null struct holds an empty value instead of a null, with which Arrow writes no row.

    A null in a struct that is there stays: that one is an error.
    """
    if not any(_has_required_values(field.type) for field in rows.schema):
        return rows
    return pa.RecordBatch.from_arrays([_with_blanks(column) for column in rows.columns], schema=rows.schema)


def _has_required_values(kind: pa.DataType) -> bool:
    if not (pa.types.is_struct(kind) or pa.types.is_map(kind) or is_list(kind)):
        return False
    fields = fields_in(kind)
    is_required = pa.types.is_struct(kind) and any(not field.nullable for field in fields)
    return is_required or any(_has_required_values(field.type) for field in fields)


def _with_blanks(array: pa.Array, is_absent: pa.Array | None = None) -> pa.Array:
    """`is_absent` says where a struct is null that the value is in; None: it is in none."""
    kind = array.type
    if not _has_required_values(kind):
        return array
    if pa.types.is_struct(kind):
        is_null = array.is_null() if is_absent is None else pc.or_(is_absent, array.is_null())
        fields = [_field_with_blanks(array.field(at), field, is_null) for at, field in enumerate(kind)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())

    if pa.types.is_map(kind):
        items = _with_blanks(array.items)
        return pa.MapArray.from_arrays(offsets_from_zero(array), array.keys, items, type=kind, mask=array.is_null())
    return _with_elements(array, _with_blanks(array.values), kind)


def _field_with_blanks(values: pa.Array, field: pa.Field, is_absent: pa.Array) -> pa.Array:
    if isinstance(values.type, pa.BaseExtensionType):
        storage = _field_with_blanks(values.storage, field.with_type(values.type.storage_type), is_absent)
        return pa.ExtensionArray.from_storage(values.type, storage)
    if pa.types.is_nested(values.type):
        return _with_blanks(values, is_absent)
    if field.nullable or not values.null_count:
        return values
    return pc.if_else(is_absent, empty_values(values.type, 1)[0], values)


def blank_values(field: pa.Field, length: int) -> pa.Array:
    """Return so many nulls of a field, or so many empty values where it is required."""
    return null_values(field.type, length) if field.nullable else empty_values(field.type, length)


def null_values(kind: pa.DataType, length: int) -> pa.Array:
    """Return so many nulls of a type. A required field of a null struct holds empty values: Arrow writes and casts no other such struct."""
    if isinstance(kind, pa.BaseExtensionType) or not pa.types.is_struct(kind):
        return pa.nulls(length, kind)
    fields = list(kind)
    return pa.StructArray.from_arrays(
        [blank_values(field, length) for field in fields], fields=fields, mask=pa.repeat(pa.scalar(True), length)
    )


def empty_values(kind: pa.DataType, length: int) -> pa.Array:
    """Return so many empty values of a type: zero, no characters, no elements, a struct of nulls."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, empty_values(kind.storage_type, length))
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([blank_values(field, length) for field in kind], fields=list(kind))
    if pa.types.is_null(kind):
        return pa.nulls(length)

    return pa.array([_empty_value(kind)], kind).take(pa.repeat(pa.scalar(0, pa.int64()), length))


def _empty_value(kind: pa.DataType) -> object:
    if pa.types.is_nested(kind):
        return []
    if pa.types.is_fixed_size_binary(kind):
        return bytes(kind.byte_width)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return ""
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return b""

    return False if pa.types.is_boolean(kind) else 0


@contextmanager
def refusals_of_writers(file_format: str) -> Iterator[None]:
    """Turn pyarrow's errors into ConfigurationError: while it writes into memory, they are about the request."""
    try:
        yield
    except (pa.ArrowException, OSError, OverflowError, TypeError, ValueError) as error:
        # ConfigurationError is a ValueError too, and names the request better than pyarrow.
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(f"pyarrow cannot write these rows with these options as {file_format}: {error}") from error


def checked_utf8(values: pa.Array) -> pa.Array:
    """Return values to be masked as they are.

    Raises:
        FormatError: text among them is not UTF-8. Arrow's expressions leave such bytes alone, so that a mask would show them.
    """
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        raise FormatError(f"text to be masked is not UTF-8: {error}") from None
    return values
