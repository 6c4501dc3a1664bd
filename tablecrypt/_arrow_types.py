"""Arrow types with other types in them.

What one walk through structs, lists and maps makes of the types of values; and arrays of nulls and of empty values of any type.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa


def with_leaves(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type in which each type of values, at whatever level, is another one.

    Args:
        kind: as Parquet and Iceberg have them. Nested types of other kinds count as types of values.
        leaf: returns the other type. Names, nullability and metadata of nested fields stay.
    """

    if not pa.types.is_nested(kind):
        return leaf(kind)

    before = [kind.key_field, kind.item_field] if pa.types.is_map(kind) else [kind.field(at) for at in range(kind.num_fields)]
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
