"""Equality deletes: a row is deleted when its equality columns have the values of some row of the delete file. Null equals null.

The comparison is done on whole columns: each value gets the number of the equal value among the deletes (or null), the numbers of several
columns are combined into one, and rows whose combination occurs among the deletes go.

Raises FormatError for a delete file that names no equality columns, or columns that cannot be compared (nested ones).

Iceberg table spec, "Equality Delete Files".
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

from tablecrypt.errors import FormatError


@dataclass(frozen=True)
class EqualityDelete:
    """The rows of an equality delete file, in columns named as `names`."""

    names: tuple[str, ...]
    rows: pa.Table

    def living(self, batch: pa.RecordBatch) -> pa.Array | None:
        """Return a mask of the rows of a batch that are not deleted. None: none of them is deleted."""
        if not self.rows.num_rows:
            return None
        deleted, found = _numbered(self.rows.column(self.names[0]), batch.column(self.names[0]))
        for name in self.names[1:]:
            next_deleted, next_found = _numbered(self.rows.column(name), batch.column(name))
            width = pa.scalar(self.rows.num_rows, pa.int64())
            deleted, found = _numbered(
                pc.add(pc.multiply(deleted, width), next_deleted), pc.add(pc.multiply(found, width), next_found), match_null=False
            )
        living = pc.is_null(found)
        return None if pc.all(living).as_py() else living


def equality_fields(file: DataFile, schema: Schema) -> Schema:
    """Return the part of the table's schema that a delete file compares.

    Raises:
        FormatError: the file names no columns, one that the schema does not have, or one that is nested or not primitive.
    """
    ids = set(file.equality_ids or ())
    fields = [field for field in schema.fields if field.field_id in ids]
    if not ids or len(fields) != len(ids) or not all(field.field_type.is_primitive for field in fields):
        raise FormatError(
            f"{file.file_path}: an equality delete file on the field ids {sorted(ids)}; "
            "each must be a primitive top-level column of the table"
        )
    return Schema(*fields)


def _numbered(deletes: pa.ChunkedArray, rows: pa.Array, match_null: bool = True) -> tuple[pa.ChunkedArray, pa.Array]:
    """Return for both the number of each value among the distinct values of `deletes`; null where `rows` has another value."""
    deletes, rows = _comparable(deletes), _comparable(rows)
    values = pc.unique(deletes)
    skip_nulls = not match_null
    return (
        pc.cast(pc.index_in(deletes, value_set=values, skip_nulls=skip_nulls), pa.int64()),
        pc.cast(pc.index_in(rows, value_set=values, skip_nulls=skip_nulls), pa.int64()),
    )


def _comparable(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    if isinstance(values.type, pa.DictionaryType):
        values = values.cast(values.type.value_type)
    if isinstance(values.type, pa.BaseExtensionType):
        return values.cast(values.type.storage_type)
    if pa.types.is_string(values.type):
        return values.cast(pa.large_string())
    return values.cast(pa.large_binary()) if pa.types.is_binary(values.type) else values
