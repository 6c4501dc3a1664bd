"""Scans and metadata tables of PyIceberg: they work out which snapshots and entries are meant, files are planned and read here.

IncrementalAppendScan: _validate_and_resolve_snapshots     which appends lie between two snapshots
InspectTable: _get_snapshot                                which snapshot a metadata table is about

InspectTable.entries takes the sizes of columns for granted, which deletion vectors do not have, nor files of writers without statistics.
Such an entry is shown with no sizes, as PyIceberg shows the other statistics that are not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import IncrementalAppendScan
from pyiceberg.table.inspect import InspectTable
from pyiceberg.table.snapshots import Snapshot

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
    """InspectTable that shows no rows of a table without snapshots, where PyIceberg raises an error."""

    def _get_snapshot(self, snapshot_id: int | None = None) -> Any:
        if snapshot_id is None and self.tbl.metadata.current_snapshot() is None:
            return _NoSnapshot()
        return super()._get_snapshot(snapshot_id)


class EntriesTable(InspectAdapter):
    """InspectTable for `entries` alone."""

    def _get_snapshot(self, snapshot_id: int | None = None) -> Any:
        return _Snapshot(super()._get_snapshot(snapshot_id))


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
