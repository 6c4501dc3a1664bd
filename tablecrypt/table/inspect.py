"""PyIceberg's metadata tables for an encrypted table, with the key metadata redacted.

A manifest entry's key_metadata holds the file's DEK in the clear (the manifest around it is what is encrypted), so no inspection shows it.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyiceberg.table.inspect import InspectTable

from tablecrypt.table._pyiceberg.inspection import EntriesTable

_KEY_METADATA: Final = "key_metadata"
_DATA_FILE: Final = "data_file"


class RedactedInspectTable(InspectTable):
    """InspectTable whose key_metadata columns are null."""

    def entries(self, snapshot_id: int | None = None) -> pa.Table:
        """Manifest entries of a snapshot."""
        return _redacted_struct(EntriesTable(self.tbl).entries(snapshot_id))

    def files(self, snapshot_id: int | None = None) -> pa.Table:
        """Data and delete files of a snapshot."""
        return _redacted(super().files(snapshot_id))

    def data_files(self, snapshot_id: int | None = None) -> pa.Table:
        """Data files of a snapshot."""
        return _redacted(super().data_files(snapshot_id))

    def delete_files(self, snapshot_id: int | None = None) -> pa.Table:
        """Delete files of a snapshot."""
        return _redacted(super().delete_files(snapshot_id))

    def all_manifests(self) -> pa.Table:
        """Manifests of every snapshot."""
        return _redacted(super().all_manifests())

    def all_files(self) -> pa.Table:
        """Data and delete files of every snapshot."""
        return _redacted(super().all_files())

    def all_data_files(self) -> pa.Table:
        """Data files of every snapshot."""
        return _redacted(super().all_data_files())

    def all_delete_files(self) -> pa.Table:
        """Delete files of every snapshot."""
        return _redacted(super().all_delete_files())


def _redacted(table: pa.Table) -> pa.Table:
    position = table.schema.get_field_index(_KEY_METADATA)
    field = table.schema.field(position)
    return table.set_column(position, field, pa.nulls(table.num_rows, field.type))


def _redacted_struct(table: pa.Table) -> pa.Table:
    position = table.schema.get_field_index(_DATA_FILE)
    struct = table.column(position).combine_chunks()
    fields = list(struct.type)
    columns = [pa.nulls(len(struct), field.type) if field.name == _KEY_METADATA else struct.field(field.name) for field in fields]
    return table.set_column(position, table.schema.field(position), pa.StructArray.from_arrays(columns, fields=fields))
