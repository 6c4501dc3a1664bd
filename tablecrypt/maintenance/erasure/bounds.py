"""Bounds in manifests that no row of their file accounts for: values of rows that a file held before it was written again.

A file's smallest and greatest values are those of rows that it holds, unless whoever wrote it again took them over. Such a bound is found
only where it is of a column that the filter compares, and the filter may be true of it.

    bound 7 of customer_id, filter customer_id = 7, no row of the file has it     a value of an erased row
    bound "abcdefghijklmnop", and a row has "abcdefghijklmnopq"                   cut after 16 characters, and of that row
"""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, PrimitiveType, UUIDType

from tablecrypt.errors import FormatError
from tablecrypt.maintenance.erasure.row_filter import ErasureFilter
from tablecrypt.table.deletes import comparable


class UnaccountedBounds:
    """The bounds of one file of which the filter may be true, until a row accounts for them.

    Args:
        schema: the table's.
        row_filter: the filter.
        file: the file's entry.

    Raises:
        FormatError: a bound is not what its type is stored as.
    """

    def __init__(self, schema: Schema, row_filter: ErasureFilter, file: DataFile) -> None:
        self._values: list[tuple[str, pa.Scalar]] = []
        for field in schema.fields:
            if field.field_id not in row_filter.field_ids or isinstance(field.field_type, UUIDType):
                continue
            partial = row_filter.on([field.name])
            for bounds in (file.lower_bounds, file.upper_bounds):
                stored = (bounds or {}).get(field.field_id)
                if partial is not None and stored is not None:
                    value = _bound(field, stored, file.file_path)
                    if partial.may_match(value):
                        self._values.append((field.name, value.column(0)[0]))

    def __bool__(self) -> bool:
        return bool(self._values)

    def account(self, rows: pa.RecordBatch) -> None:
        """Take in rows of the file."""
        self._values = [(name, value) for name, value in self._values if not _has(rows.column(name), value)]


def _bound(field: NestedField, stored: bytes, location: str) -> pa.Table:
    assert isinstance(field.field_type, PrimitiveType)
    kind = schema_to_pyarrow(Schema(field), include_field_ids=False)
    try:
        return pa.Table.from_arrays([pa.array([from_bytes(field.field_type, stored)], kind.field(0).type)], schema=kind)
    except (ValueError, TypeError, struct.error, pa.ArrowException) as error:
        raise FormatError(f"{location}: a bound of column {field.name} is no {field.field_type}: {type(error).__name__}") from error


def _has(column: pa.Array, value: Any) -> bool:
    column = comparable(column)
    kind = column.type
    found = pc.starts_with(column, value.as_py()) if _is_text(kind) else pc.equal(column, value.cast(kind))
    return bool(pc.any(found).as_py())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))
