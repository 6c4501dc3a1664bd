"""Snapshots of the same rows in other files or manifests: what compactions, re-encryptions and rewrites of manifests commit.

A compaction puts data files in place of others that hold the same rows:

    read at the planned snapshot     data files, with the deletes that applied to them
    committed on the branch's head   those files go, with the deletes that are about them alone; the new files come

The new files get the sequence number of the planned snapshot, not that of the commit: an equality delete that others commit meanwhile is
younger than they are, so it deletes from them what it would have deleted from the old files. What cannot be carried over is refused, at
every attempt to commit: an old file that is gone, or that others deleted rows of by position meanwhile. Rows keep their identity because
the files hold `_row_id` and `_last_updated_sequence_number` as columns.

A re-encryption swaps each file for a copy under a new key:

    data file                new location and key; sequence number, row ids, partition, statistics as they were
    equality delete file     likewise
    position delete file     likewise, as long as it may be about a data file that stays; its rows about swapped files go into vectors
    deletion vector          of a swapped data file: written again, about the new file

The new manifests are worked out again on each base that the commit is tried on, so what others committed meanwhile survives: rows appended
stay, a swapped file that was removed stays removed, and rows deleted from it stay deleted.

A rewrite of manifests brings files of one partition near each other. A cleaning of manifests changes no file either: it commits a snapshot
of the same files whose manifests name no deleted ones, before shredding can let go of the snapshot that deleted them. A deleted entry keeps
the DEK of the file that it names.

    manifest with live entries only         kept as it is
    manifest with live and deleted ones     written again with the live ones, as existing
    manifest with deleted ones only         left out

Raises ValidationException for a conflict of a compaction; nothing is committed then.

Iceberg table spec, "Snapshots" (operation replace), "Sequence Numbers", "Row Lineage", "Deletion Vectors", "Manifests"
(status).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import FileScanTask
from pyiceberg.table.update import UpdatesAndRequirements
from pyroaring import BitMap64

from tablecrypt.manifests.records import FIRST_ROW_ID, EncryptedDataFile, partition_values, refuse_plaintext
from tablecrypt.printable import counted
from tablecrypt.table._pyiceberg.transactions import WholeSnapshotAdapter
from tablecrypt.table.deletes import DeleteReader, DeletionVector, puffin_location, write_deletion_vectors
from tablecrypt.table.planning import DeleteIndex, EncryptedFileScanTask, ScanPlanner, only_path, sequence_number_of
from tablecrypt.table.protection.writing import WrittenUnder
from tablecrypt.table.snapshots import EncryptedOverwrite, EncryptedProducer
from tablecrypt.table.table_files import ObsoleteDeletes


@dataclass(frozen=True)
class RewrittenFiles:
    """What one snapshot replaces.

    Attributes:
        replaced: scan tasks of the old files, as they were planned.
        written: the new files.
        dangling_deletes: delete files that apply to no other data file than the old ones.
        sequence_number: of the snapshot that was planned on.
        snapshot_id: of the same snapshot.
        written_under: the protection that the new files were written under; None for that of the table as it is committed to.
        written_before: locations of new files that earlier commits of the same rewrite have added since the plan.
    """

    replaced: Sequence[EncryptedFileScanTask]
    written: Sequence[DataFile]
    dangling_deletes: frozenset[DataFile]
    sequence_number: int
    snapshot_id: int
    written_under: WrittenUnder | None = None
    written_before: frozenset[str] = frozenset()


class EncryptedRewrite(EncryptedOverwrite):
    """Puts files in place of others that hold the same rows. Snapshots of operation REPLACE."""

    def __init__(self, *, rewritten: RewrittenFiles, **options: Any) -> None:
        """Take over what was rewritten.

        Raises:
            PlaintextRefusedError: a new file has no key metadata.
        """
        for file in rewritten.written:
            refuse_plaintext(file)
        super().__init__(**options)
        self._rewritten = rewritten
        self.written_under = rewritten.written_under or self.written_under
        for task in rewritten.replaced:
            self.delete_data_file(task.file)

    def produce(self) -> UpdatesAndRequirements:
        """Write one attempt's manifests, after a look at what others committed since the plan."""
        self._check_nothing_was_lost()
        return super().produce()

    def check_concurrency(self) -> None:
        """Do nothing here: `produce` has its own check, and rows that others add are no conflict."""

    def obsolete_deletes(self) -> ObsoleteDeletes:
        """Return which delete files go: those about old files alone."""
        return replace(super().obsolete_deletes(), files=self._rewritten.dangling_deletes)

    @property
    def added_data_files(self) -> list[DataFile]:
        """The new files."""
        return list(self._rewritten.written)

    @property
    def sequence_number_of_added(self) -> int:
        """That of the snapshot that was planned on."""
        return self._rewritten.sequence_number

    def _check_nothing_was_lost(self) -> None:
        if self.parent_snapshot_id == self._rewritten.snapshot_id:
            return

        planned = {task.file.file_path: task for task in self._rewritten.replaced}
        live = ScanPlanner(self.table_metadata, self.io).plan_files(self.parent_manifests)
        gone = planned.keys() - {task.file.file_path for task in live}
        if gone:
            raise _overtaken(f"{counted(len(gone), 'data file was', 'data files were')} removed meanwhile, such as {min(gone)}")

        for task in live:
            # Position deletes of a partition apply to all of its files by their numbers, and name none that came after them.
            if task.file.file_path in self._rewritten.written_before:
                continue
            if task.file.file_path not in planned:
                # Deletes that applied to no file at the plan apply again, where the branch was moved to another snapshot.
                if not self._rewritten.dangling_deletes.isdisjoint(map(EncryptedDataFile.of, task.delete_files)):
                    raise _overtaken(f"{task.file.file_path} came back meanwhile, with deletes that were to go")
            elif _positional(task) - _positional(planned[task.file.file_path]):
                raise _overtaken(f"rows of {task.file.file_path} were deleted meanwhile")


def _overtaken(what: str) -> ValidationException:
    return ValidationException(f"the rewrite was overtaken: {what}. Nothing was committed: rewrite again")


def _positional(task: EncryptedFileScanTask) -> set[DataFile]:
    return {EncryptedDataFile.of(file) for file in task.delete_files if file.content == DataFileContent.POSITION_DELETES}


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


class EncryptedFileSwap(EncryptedProducer, WholeSnapshotAdapter):
    """Puts files in the place of others that hold the same rows. Snapshots of operation REPLACE.

    Args:
        swaps: what takes the place of which file, by its location. A location that the branch does not have (any more) is passed over.
        written_under: the protection that these were written under; None for that of the table as it is committed to.

    Attributes:
        swapped: the locations of the files that the last attempt replaced.
    """

    records_dropped: ClassVar[bool] = True
    """Whether manifests name the files that are not in the branch any more, as deleted."""

    def __init__(self, *, swaps: Mapping[str, EncryptedDataFile], written_under: WrittenUnder | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.written_under = written_under or self.written_under
        self._swaps = swaps
        self.swapped: set[str] = set()
        self._new_deletes: list[EncryptedDataFile] = []
        self._delete_reader: DeleteReader | None = None

    @property
    def added_delete_files(self) -> Sequence[EncryptedDataFile]:
        """The delete files that this attempt puts in place of others."""
        return self._new_deletes

    def collect_manifests(self) -> list[ManifestFile]:
        """Write the manifests that change, and return them with those that stay."""
        # An earlier attempt may have filled them, on a base that is not this one.
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
        for manifest in self.parent_manifests:
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

                # The rows only changed their key, so they keep their ids.
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

        location = puffin_location(self.table_metadata, self.commit_uuid)
        self.written(location)
        files = write_deletion_vectors(self.table_io, location, vectors)
        self._new_deletes.extend(files)
        return self._added_manifests(sorted(files, key=lambda file: file.spec_id), ManifestContent.DELETES)

    def _added(self, entry: ManifestEntry, new: EncryptedDataFile) -> ManifestEntry:
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=self.snapshot_id,
            sequence_number=entry.sequence_number,
            file_sequence_number=None,
            data_file=new,
        )


class EncryptedManifestRewrite(EncryptedProducer, WholeSnapshotAdapter):
    """Writes a branch's manifests again, so that files of one partition are near each other. Snapshots of operation REPLACE.

    Args:
        target_size: about how many bytes a new manifest has.
        spec_id: of the manifests' partition spec; None for the table's current one.
        sort_by: partition fields by which files are put in order before the others.
    """

    def __init__(self, *, target_size: int, spec_id: int | None = None, sort_by: Sequence[str] = (), **options: Any) -> None:
        super().__init__(**options)
        self._target_size = target_size
        self._spec_id = self.table_metadata.default_spec_id if spec_id is None else spec_id
        self._sort_by = tuple(sort_by)

    def collect_manifests(self) -> list[ManifestFile]:
        """Write the spec's manifests again, where there are several of a content or one is too large, and return them with all others."""
        found: list[ManifestFile] = []
        for group in manifests_by_kind(self.parent_manifests):
            found.extend(self._rewritten(group) if is_worth_rewriting(group, self._spec_id, self._target_size) else group)
        return found

    def _rewritten(self, group: Sequence[ManifestFile]) -> list[ManifestFile]:
        entries = [entry for manifest in group for entry in manifest.fetch_manifest_entry(self.io, discard_deleted=True)]
        names = [field.name for field in self.spec(group[0].partition_spec_id).fields]
        order = sorted(range(len(names)), key=lambda at: (*(names[at] != name for name in self._sort_by), at))

        def sorting(entry: ManifestEntry) -> list[tuple[bool, str]]:
            values = partition_values(entry.data_file.partition)
            return [(values[at] is not None, str(values[at])) for at in order]

        entries.sort(key=sorting)
        length = sum(manifest.manifest_length for manifest in group)
        per_manifest = max(1, len(entries) * self._target_size // max(length, 1))

        return [self._existing_manifest(group[0], entries[at : at + per_manifest]) for at in range(0, len(entries), per_manifest)]


class EncryptedManifestCleaning(EncryptedProducer, WholeSnapshotAdapter):
    """Leaves deleted entries out of a branch's manifests. Snapshots of operation REPLACE."""

    def collect_manifests(self) -> list[ManifestFile]:
        """Write the manifests that change, and return them with those that stay."""
        cleaned = [self._cleaned(manifest) for manifest in self.parent_manifests]
        return [manifest for manifest in cleaned if manifest is not None]

    def _cleaned(self, manifest: ManifestFile) -> ManifestFile | None:
        entries = manifest.fetch_manifest_entry(self.io, discard_deleted=False)
        live = [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
        if len(live) == len(entries):
            return manifest
        return self._existing_manifest(manifest, live) if live else None


def manifests_by_kind(manifests: Iterable[ManifestFile]) -> list[list[ManifestFile]]:
    """Return manifests in groups of one partition spec and one content."""
    groups: dict[tuple[int, ManifestContent], list[ManifestFile]] = defaultdict(list)
    for manifest in manifests:
        groups[manifest.partition_spec_id, manifest.content].append(manifest)
    return list(groups.values())


def is_worth_rewriting(group: Sequence[ManifestFile], spec_id: int, target_size: int) -> bool:
    """Whether a group is of a spec, and has several manifests, or one that is larger than they should be and has several files."""
    if group[0].partition_spec_id != spec_id or len(group) > 1:
        return group[0].partition_spec_id == spec_id
    files = (group[0].added_files_count or 0) + (group[0].existing_files_count or 0)
    return files > 1 and group[0].manifest_length > target_size
