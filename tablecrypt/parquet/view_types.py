"""Arrow's views of strings and bytes, which newer engines give, as the plain types that Arrow's own functions take.

A Parquet file stores both alike. But Arrow notes in the file which type its writer had, and reads views again, which it can neither
compare, filter nor sort: a filtered scan of such a file fails. So what is written here has no views, and files of others are read without.
"""

from __future__ import annotations

from typing import Final, TypeVar

import pyarrow as pa

_WITH_VIEWS: Final = frozenset(
    getattr(pa.lib, f"Type_{name}") for name in ("STRING_VIEW", "BINARY_VIEW", "STRUCT", "LIST", "LARGE_LIST", "MAP")
)
"""Types that are views, or may hold some."""

Rows = TypeVar("Rows", pa.Table, pa.RecordBatchReader)


def without_views(schema: pa.Schema) -> pa.Schema:
    """Return the schema with large strings and large bytes instead of views, inside of structs, lists and maps too."""
    if not any(each.id in _WITH_VIEWS for each in schema.types):
        return schema
    return pa.schema([field.with_type(_plain(field.type)) for field in schema], schema.metadata)


def rows_without_views(rows: Rows) -> Rows:
    """Return the rows in the schema that `without_views` gives; the same object where they have no views."""
    schema = without_views(rows.schema)
    return rows if schema == rows.schema else rows.cast(schema)


def _plain(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(arrow):
        return pa.large_string()
    if pa.types.is_binary_view(arrow):
        return pa.large_binary()
    if pa.types.is_struct(arrow):
        return pa.struct([_plain_field(field) for field in arrow])
    if pa.types.is_list(arrow):
        return pa.list_(_plain_field(arrow.value_field))
    if pa.types.is_large_list(arrow):
        return pa.large_list(_plain_field(arrow.value_field))
    if pa.types.is_map(arrow):
        return pa.map_(_plain_field(arrow.key_field), _plain_field(arrow.item_field), arrow.keys_sorted)

    return arrow


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(_plain(field.type))
