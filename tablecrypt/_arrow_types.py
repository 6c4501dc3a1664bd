"""Arrow types with other types in them: what one walk through structs, lists and maps makes of the types of values."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa


def with_leaves(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type in which each type of values, at whatever level, is another one.

    Args:
        kind: as Parquet and Iceberg have them. Nested types of other kinds count as types of values.
        leaf: returns the other type. Names, nullability and metadata of nested fields stay.
    """

    def changed(field: pa.Field) -> pa.Field:
        return field.with_type(with_leaves(field.type, leaf))

    if pa.types.is_struct(kind):
        return pa.struct([changed(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(changed(kind.key_field), changed(kind.item_field), kind.keys_sorted)
    if pa.types.is_list(kind):
        return pa.list_(changed(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(changed(kind.value_field))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(changed(kind.value_field), kind.list_size)

    return leaf(kind)
