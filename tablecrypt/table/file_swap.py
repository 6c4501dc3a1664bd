"""A snapshot of the same rows in other files: what re-encryption commits.

    data file                new location and key; sequence number, row ids, partition, statistics as they were
    equality delete file     likewise
    position delete file     likewise, as long as it may be about a data file that stays; its rows about swapped files go into vectors
    deletion vector          of a swapped data file: written anew, about the new file

The new manifests are worked out anew on each base that the commit is tried on, so what others committed meanwhile survives: rows appended
stay, a swapped file that was removed stays removed, and rows deleted from it stay deleted.

Iceberg table spec, "Sequence Numbers", "Row Lineage", "Deletion Vectors"; operation "replace" of "Snapshots".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import FileScanTask
from pyroaring import BitMap64

from tablecrypt.manifests.records import FIRST_ROW_ID, EncryptedDataFile
from tablecrypt.table._pyiceberg.producers import WholeSnapshotSeam
from tablecrypt.table.deletes import DeleteReader
from tablecrypt.table.deletion_vectors import DeletionVector, write_deletion_vectors
from tablecrypt.table.foreign_engines import location_provider
from tablecrypt.table.planning import DeleteIndex, only_path, sequence_number_of
from tablecrypt.table.snapshots import EncryptedProducer


@dataclass(frozen=True)
class BaseManifest:
    """A manifest with its live entries."""

    file: ManifestFile
    entries: list[ManifestEntry]


@dataclass(frozen=True)
class _Obsolete:
    """Positional deletes that go: those about swapped data files alone, and all of them where every data file is swapped."""

    swapped: Collection[str]
    some_data_stays: bool

    def __contains__(self, file: DataFile) -> bool:
        if file.content != DataFileContent.POSITION_DELETES:
            return False
        target = EncryptedDataFile.of(file).referenced_data_file or only_path(file)
        return not self.some_data_stays or target in self.swapped


class EncryptedFileSwap(EncryptedProducer, WholeSnapshotSeam):
    """Puts files in the place of others that hold the same rows. Snapshots of operation REPLACE."""

    records_dropped: ClassVar[bool] = True
    """Whether manifests name the files that are not in the branch any more, as deleted."""

    _swaps: Mapping[str, EncryptedDataFile]

    def swap(self, swaps: Mapping[str, EncryptedDataFile]) -> EncryptedFileSwap:
        """Say what takes the place of which file, by its location. A location that the branch does not have (any more) is passed over."""
        self._swaps = swaps
        self.swapped: set[str] = set()
        self._new_deletes: list[EncryptedDataFile] = []
        self._delete_reader: DeleteReader | None = None
        return self

    @property
    def added_delete_files(self) -> Sequence[EncryptedDataFile]:
        """The delete files that this attempt puts in place of others."""
        return self._new_deletes

    def collect_manifests(self) -> list[ManifestFile]:
        """Write the manifests that change, and return them with those that stay."""
        self.swapped, self._new_deletes = set(), []
        self.added_data_files.clear()
        self.deleted_data_files.clear()
        base = list(self.base_manifests())
        data = [manifest for manifest in base if manifest.file.content == ManifestContent.DATA]
        deletes = [manifest for manifest in base if manifest.file.content == ManifestContent.DELETES]
        vectors = self._vectors(data, deletes)
        manifests = [self._data_manifest(manifest) for manifest in data]
        obsolete = _Obsolete(self._swaps.keys(), self._some_stay(data))
        for manifest in deletes:
            manifests.extend(self._delete_manifests(manifest, obsolete))
        return [*manifests, *self._vector_manifests(vectors)]

    def base_manifests(self) -> Iterable[BaseManifest]:
        """Read what the branch holds now."""
        parent = self.table_metadata.snapshot_by_id(self.parent_snapshot_id) if self.parent_snapshot_id is not None else None
        for manifest in parent.manifests(self.io) if parent is not None else ():
            yield BaseManifest(manifest, manifest.fetch_manifest_entry(self.io, discard_deleted=True))

    def deleted_positions(self, data_file: DataFile, deletes: set[DataFile]) -> Iterable[int]:
        """Return the positions that these position delete files and deletion vectors say are deleted in a data file."""
        if self._delete_reader is None:
            self._delete_reader = DeleteReader(self.table_io, self.table_metadata)
        return self._delete_reader.deletes_of(FileScanTask(data_file, deletes)).positions or ()

    def _some_stay(self, data: Iterable[BaseManifest]) -> bool:
        return any(entry.data_file.file_path not in self._swaps for manifest in data for entry in manifest.entries)

    def _vectors(self, data: Iterable[BaseManifest], deletes: Iterable[BaseManifest]) -> list[DeletionVector]:
        """Return what positional deletes say of the swapped data files, about their new places."""
        specs = self.table_metadata.specs()
        index = DeleteIndex(spec_id for spec_id, spec in specs.items() if spec.is_unpartitioned())
        for manifest in deletes:
            for entry in manifest.entries:
                index.add(entry)
        vectors: list[DeletionVector] = []
        for entry in (entry for manifest in data for entry in manifest.entries if entry.data_file.file_path in self._swaps):
            by_position = {
                file
                for file in index.deletes_of(entry.data_file, sequence_number_of(entry))
                if file.content == DataFileContent.POSITION_DELETES
            }
            positions = BitMap64(self.deleted_positions(entry.data_file, by_position)) if by_position else None
            if positions:
                vectors.append(DeletionVector(self._swaps[entry.data_file.file_path], positions))
        return vectors

    def _data_manifest(self, manifest: BaseManifest) -> ManifestFile:
        if not any(entry.data_file.file_path in self._swaps for entry in manifest.entries):
            return manifest.file
        with self._manifest_writer(self.spec(manifest.file.partition_spec_id), ManifestContent.DATA) as writer:
            for entry in manifest.entries:
                new = self._swaps.get(entry.data_file.file_path)
                if new is None:
                    writer.existing(entry)
                    continue
                new[FIRST_ROW_ID] = EncryptedDataFile.of(entry.data_file).first_row_id
                if self.records_dropped:
                    writer.delete(entry)
                writer.add(self._added(entry, new))
                self.swapped.add(entry.data_file.file_path)
                self.deleted_data_files.add(entry.data_file)
                self.added_data_files.append(new)
        return writer.to_manifest_file()

    def _delete_manifests(self, manifest: BaseManifest, obsolete: _Obsolete) -> list[ManifestFile]:
        existing: list[ManifestEntry] = []
        dropped: list[ManifestEntry] = []
        swapped: list[ManifestEntry] = []
        for entry in manifest.entries:
            is_swapped = entry.data_file.file_path in self._swaps
            (dropped if entry.data_file in obsolete else swapped if is_swapped else existing).append(entry)
        if len(existing) == len(manifest.entries):
            return [manifest.file]
        self._dropped_delete_files.extend(entry.data_file for entry in (*dropped, *swapped))
        removed = [*dropped, *swapped] if self.records_dropped else []
        if not (existing or removed or swapped):
            return []
        with self._manifest_writer(self.spec(manifest.file.partition_spec_id), ManifestContent.DELETES) as writer:
            for entry in existing:
                writer.existing(entry)
            for entry in removed:
                writer.delete(entry)
            for entry in swapped:
                new = self._swaps[entry.data_file.file_path]
                writer.add(self._added(entry, new))
                self.swapped.add(entry.data_file.file_path)
                self._new_deletes.append(new)
        return [writer.to_manifest_file()]

    def _vector_manifests(self, vectors: list[DeletionVector]) -> list[ManifestFile]:
        if not vectors:
            return []
        metadata = self.table_metadata
        provider = location_provider(metadata)
        location = provider.new_data_location(f"00000-{self.commit_uuid}-deletes.puffin")
        self.written(location)
        files = write_deletion_vectors(self.table_io, location, vectors)
        self._new_deletes.extend(files)
        manifests: list[ManifestFile] = []
        for spec_id in sorted({file.spec_id for file in files}):
            with self._manifest_writer(self.spec(spec_id), ManifestContent.DELETES) as writer:
                for file in files:
                    if file.spec_id == spec_id:
                        writer.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=self.snapshot_id, data_file=file))
            manifests.append(writer.to_manifest_file())
        return manifests

    def _added(self, entry: ManifestEntry, new: EncryptedDataFile) -> ManifestEntry:
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=self.snapshot_id,
            sequence_number=entry.sequence_number,
            file_sequence_number=None,
            data_file=new,
        )
