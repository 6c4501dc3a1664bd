"""Rows of an engine's, as a table takes them."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from tablecrypt.errors import ConfigurationError


def check_nulls(array: pa.Array, field: NestedField, path: str) -> None:
    """Spark calls most columns nullable, so whether a required one holds nulls is known from its values alone."""
    if field.required and array.null_count:
        raise ConfigurationError(f"column {path!r} is required in the table, but the DataFrame has nulls in it")
    if field.field_type.is_primitive or pa.types.is_null(array.type):
        return
    # Arrow stores children for null parents too, and those nulls violate nothing.
    for child, of_table, name in _children(array.drop_null(), field.field_type):
        check_nulls(child, of_table, f"{path}.{name}")


def _children(array: pa.Array, iceberg: IcebergType) -> list[tuple[pa.Array, NestedField, str]]:
    if isinstance(iceberg, StructType):
        fields = {field.name: field for field in iceberg.fields}
        return [(child, fields[field.name], field.name) for child, field in zip(array.flatten(), array.type, strict=True)]
    if isinstance(iceberg, ListType):
        return [(array.flatten(), iceberg.element_field, "element")]
    if isinstance(iceberg, MapType):
        # `items` of a slice are those of the whole map array: only the offsets say which ones belong to these rows.
        return [(pa.ListArray.from_arrays(array.offsets, array.items).flatten(), iceberg.value_field, "value")]

    return []
