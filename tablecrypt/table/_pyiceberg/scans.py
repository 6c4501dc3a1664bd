"""Scans and metadata tables of PyIceberg: they work out which snapshots and entries are meant, files are planned and read here.

IncrementalAppendScan: _validate_and_resolve_snapshots     which appends lie between two snapshots
InspectTable: _get_snapshot, tbl                           which snapshot and which partitions a metadata table is about

InspectTable.entries takes the sizes of columns for granted, which deletion vectors do not have, nor files of writers without statistics.
Such an entry is shown with no sizes, as PyIceberg shows the other statistics that are not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from typing import Any, cast

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import IncrementalAppendScan, Table
from pyiceberg.table.inspect import InspectTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import StructType

from tablecrypt.manifests.records import DATA_FILE_POSITIONS, EncryptedDataFile

__all__ = ["IncrementalAppendScanAdapter"]


class IncrementalAppendScanAdapter(IncrementalAppendScan):
    """An incremental scan whose resolved range has a public name."""

    def snapshot_range(self) -> tuple[int | None, int]:
        """Return the snapshot before the first (None: from the oldest on) and the last one.

        Raises:
            ValueError: a bound is not a snapshot of the table, or not an ancestor of the other.
        """
        return self._validate_and_resolve_snapshots()


class InspectAdapter(InspectTable):
    """InspectTable that shows no rows of a table without snapshots, and partitions of specs whose columns were dropped.

    PyIceberg raises errors of both.
    """

    def __init__(self, tbl: Table) -> None:
        shown = copy(tbl)
        shown.metadata = cast("TableMetadata", _ShownPartitions(tbl.metadata))
        super().__init__(shown)

    def _get_snapshot(self, snapshot_id: int | None = None) -> Any:
        # PyIceberg raises an error for a table to which nothing was written yet.
        if snapshot_id is None and self.tbl.metadata.current_snapshot() is None:
            return _NoSnapshot()
        return super()._get_snapshot(snapshot_id)


class EntriesTable(InspectAdapter):
    """InspectTable for `entries` alone."""

    def _get_snapshot(self, snapshot_id: int | None = None) -> Any:
        return _Snapshot(super()._get_snapshot(snapshot_id))


class _ShownPartitions:
    """A table's metadata, with partition fields of dropped columns left out of what is shown, as Iceberg Java leaves them out."""

    def __init__(self, metadata: TableMetadata) -> None:
        self._metadata = metadata
        columns = metadata.schema()
        self._dropped = {
            field.field_id
            for spec in metadata.partition_specs
            for field in spec.fields
            if columns.find_column_name(field.source_id) is None
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(self._metadata, name)

    def specs(self) -> dict[int, PartitionSpec]:
        """Return the specs. A field that is not shown has no name that another one could have: PyIceberg shows values by names."""
        return {
            spec.spec_id: PartitionSpec(*map(self._renamed, spec.fields), spec_id=spec.spec_id) for spec in self._metadata.partition_specs
        }

    def specs_struct(self, spec_ids: Iterable[int] | None = None) -> StructType:
        """Return the type of partitions, see `TableMetadata.specs_struct`."""
        shown = [
            PartitionSpec(*(field for field in spec.fields if field.field_id not in self._dropped), spec_id=spec.spec_id)
            for spec in self._metadata.partition_specs
        ]
        return self._metadata.model_copy(update={"partition_specs": shown}).specs_struct(spec_ids)

    def _renamed(self, field: PartitionField) -> PartitionField:
        if field.field_id not in self._dropped:
            return field
        return PartitionField(field.source_id, field.field_id, field.transform, f"dropped {field.field_id}")


class _NoSnapshot:
    snapshot_id = None

    def manifests(self, io: FileIO) -> list[ManifestFile]:
        return []


class _Snapshot:
    def __init__(self, snapshot: Snapshot | _NoSnapshot) -> None:
        self._snapshot = snapshot

    def manifests(self, io: FileIO) -> list[_Manifest]:
        return [_Manifest(manifest) for manifest in self._snapshot.manifests(io)]


class _Manifest:
    def __init__(self, manifest: ManifestFile) -> None:
        self._manifest = manifest
        self.partition_spec_id = manifest.partition_spec_id

    def fetch_manifest_entry(self, io: FileIO, discard_deleted: bool) -> Iterator[ManifestEntry]:
        return map(_with_sizes, self._manifest.fetch_manifest_entry(io, discard_deleted))


def _with_sizes(entry: ManifestEntry) -> ManifestEntry:
    values = EncryptedDataFile.of(entry.data_file).values()
    if values[DATA_FILE_POSITIONS["column_sizes"]] is not None:
        return entry

    # PyIceberg reads the sizes without a check, and the entry of a deletion vector has none.
    values[DATA_FILE_POSITIONS["column_sizes"]] = {}
    file = EncryptedDataFile(*values)
    file.spec_id = entry.data_file.spec_id

    return ManifestEntry.from_args(
        status=entry.status,
        snapshot_id=entry.snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=file,
    )
