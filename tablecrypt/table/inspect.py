"""PyIceberg's metadata tables for an encrypted table, with the key metadata redacted.

A manifest entry's key_metadata holds the file's DEK in the clear (the manifest around it is what is encrypted), so no inspection shows it.

Where the catalog's server restricts what may be read, tables that tell bounds, counts or partitions of the rows are refused
(ReadRestrictionError): they are about rows and values that the reader is not to see.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.table.inspect import InspectTable

from tablecrypt.table._pyiceberg.inspection import EntriesTable
from tablecrypt.table.read_restrictions import refuse_restricted

_KEY_METADATA: Final = "key_metadata"
_DATA_FILE: Final = "data_file"


class RedactedInspectTable(InspectTable):
    """InspectTable whose key_metadata columns are null."""

    def partitions(
        self, snapshot_id: int | None = None, row_filter: str | BooleanExpression = ALWAYS_TRUE, case_sensitive: bool = True
    ) -> pa.Table:
        """Partitions of a snapshot."""
        self._refuse_restricted("partitions")
        return super().partitions(snapshot_id, row_filter, case_sensitive)

    def manifests(self) -> pa.Table:
        """Manifests of the current snapshot."""
        self._refuse_restricted("manifests")
        return super().manifests()

    def entries(self, snapshot_id: int | None = None) -> pa.Table:
        """Manifest entries of a snapshot."""
        self._refuse_restricted("entries")
        return _redacted_struct(EntriesTable(self.tbl).entries(snapshot_id))

    def files(self, snapshot_id: int | None = None) -> pa.Table:
        """Data and delete files of a snapshot."""
        self._refuse_restricted("files")
        return _redacted(super().files(snapshot_id))

    def data_files(self, snapshot_id: int | None = None) -> pa.Table:
        """Data files of a snapshot."""
        self._refuse_restricted("data_files")
        return _redacted(super().data_files(snapshot_id))

    def delete_files(self, snapshot_id: int | None = None) -> pa.Table:
        """Delete files of a snapshot."""
        self._refuse_restricted("delete_files")
        return _redacted(super().delete_files(snapshot_id))

    def all_manifests(self) -> pa.Table:
        """Manifests of every snapshot."""
        self._refuse_restricted("all_manifests")
        return _redacted(super().all_manifests())

    def all_files(self) -> pa.Table:
        """Data and delete files of every snapshot."""
        self._refuse_restricted("all_files")
        return _redacted(super().all_files())

    def all_data_files(self) -> pa.Table:
        """Data files of every snapshot."""
        self._refuse_restricted("all_data_files")
        return _redacted(super().all_data_files())

    def all_delete_files(self) -> pa.Table:
        """Delete files of every snapshot."""
        self._refuse_restricted("all_delete_files")
        return _redacted(super().all_delete_files())

    def _refuse_restricted(self, name: str) -> None:
        refuse_restricted(self.tbl.io, f"inspect.{name}")


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
