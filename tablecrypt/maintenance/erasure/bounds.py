"""Bounds in manifests that no row of their file accounts for: values of rows that a file held before it was written again.

A file's smallest and greatest values are those of rows that it holds, unless they were taken over when it was written again. Such a bound
is found only where it is of a column that the filter compares, and the filter may be true of it.

    bound 7 of customer_id, filter customer_id = 7, no row of the file has it     a value of an erased row
    bound "abcdefghijklmnop", and a row has "abcdefghijklmnopq"                   cut after 16 characters, and of that row
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.types import PrimitiveType, StructType, UUIDType

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
        self._values: list[tuple[tuple[str, ...], pa.Scalar]] = []
        for field_id in sorted(row_filter.field_ids):
            column = _Column(prune_columns(schema, {field_id}, select_full_types=False))
            if isinstance(column.field.field_type, UUIDType):
                continue

            partial = row_filter.on_part(column.schema)

            for bounds in (file.lower_bounds, file.upper_bounds):
                stored = (bounds or {}).get(field_id)
                if partial is not None and stored is not None:
                    row = column.row(stored, file.file_path)
                    # A bound of which the filter is false shows nothing of the rows that are erased.
                    if partial.may_match(row):
                        self._values.append((column.path, _values(row.column(0).combine_chunks(), column.path)[0]))

    def __bool__(self) -> bool:
        return bool(self._values)

    def account(self, rows: pa.RecordBatch) -> None:
        """Take in rows of the file."""
        # One row is enough: a bound that some row of the file has is no trace of an erased one.
        self._values = [(path, value) for path, value in self._values if not _has(_values(rows.column(path[0]), path), value)]


class _Column:
    """A column, which may be in structs.

    Args:
        schema: with this column alone.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        [self.field] = schema.fields
        self.path: tuple[str, ...] = (self.field.name,)
        while isinstance(self.field.field_type, StructType):
            [self.field] = self.field.field_type.fields
            self.path = (*self.path, self.field.name)

    def row(self, stored: bytes, location: str) -> pa.Table:
        """Return one row that has a bound as its value. FormatError where it is none."""
        assert isinstance(self.field.field_type, PrimitiveType)
        try:
            value: Any = from_bytes(self.field.field_type, stored)
            for name in reversed(self.path):
                value = {name: value}
            return pa.Table.from_pylist([value], schema=schema_to_pyarrow(self.schema, include_field_ids=False))
        except (ValueError, TypeError, struct.error, pa.ArrowException) as error:
            # Another engine may have written the bound, in bytes that its type does not have: that is an error of the entry, not of Arrow.
            column = ".".join(self.path)
            raise FormatError(f"{location}: a bound of column {column} is no {self.field.field_type}: {type(error).__name__}") from error


def _values(column: pa.Array, path: Sequence[str]) -> pa.Array:
    """Return the values at a path of names, of which the first is the column's own."""
    return pc.struct_field(column, list(path[1:])) if path[1:] else column


def _has(column: pa.Array, value: Any) -> bool:
    column = comparable(column)
    kind = column.type
    # Writers cut bounds of text: then the row that the bound is of begins with it.
    found = pc.starts_with(column, value.as_py()) if _is_text(kind) else pc.equal(column, value.cast(kind))
    return bool(pc.any(found).as_py())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))
