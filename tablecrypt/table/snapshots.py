"""Snapshot producers of encrypted tables: PyIceberg decides which files a snapshot holds, this module writes its manifests and their list.

One attempt to commit writes, from the bottom up:

    manifests (AGS1, each under its own DEK) → manifest list (AGS1, own DEK) → key entry for the list, encrypted under the table's KEK
    → updates [add-encryption-key …, add-snapshot, set-snapshot-ref], which one commit of the catalog lands together or not at all

An abandoned attempt leaves no key entry behind: `EncryptedTransaction` drops its updates, and the retry encrypts a new entry.

Manifests of copied rows remember which files these were copied from (copied_files.py). Where a commit does not keep such a manifest, each
of its new manifests takes that over which holds files of the old one, or their rows in other files.

Iceberg table spec, "Snapshots", "Row Lineage", "Manifest Lists".
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import (
    CHANGED_PARTITION_COUNT_PROP,
    OPERATION,
    PARTITION_SUMMARY_PROP,
    IsolationLevel,
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import SetSnapshotRefUpdate, TableUpdate, UpdatesAndRequirements

from tablecrypt.arguments import check_switches, check_text, described
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.files.encrypting_file_io import refuse_restricted, store_io
from tablecrypt.iceberg_properties import PARTITION_SUMMARIES
from tablecrypt.keys.column_keys import ColumnPolicy, told_until
from tablecrypt.keys.key_ring import EncryptedKey
from tablecrypt.keys.manager import NewManifestListKey
from tablecrypt.keys.nested_columns import covering
from tablecrypt.manifests.copied_files import copied_files_of, header_field
from tablecrypt.manifests.manifest_file import COPIED_NAME_ENDING, EncryptedManifestFile, ManifestWriterV3, lists_files, remembers_files
from tablecrypt.manifests.manifest_list import ManifestListWriterV3, further_fields
from tablecrypt.manifests.records import (
    DATA_FILE_POSITIONS,
    EncryptedDataFile,
    is_deletion_vector,
    key_metadata_of,
    partition_values,
    refuse_plaintext,
)
from tablecrypt.manifests.table_state import ListedTableState
from tablecrypt.table._pyiceberg.transactions import (
    DeleteFilesAdapter,
    FastAppendFiles,
    MergeAppendFiles,
    OverwriteFiles,
    ProducerAdapter,
    UpdateSnapshotAdapter,
    WholeSnapshotAdapter,
)
from tablecrypt.table.deletes import RowDelta
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata, has_column_keys
from tablecrypt.table.partitions import partition_path
from tablecrypt.table.planning.file_filter import of_partitions, telling
from tablecrypt.table.protection.authenticated import check_declared
from tablecrypt.table.protection.exposed_values import ShownPartitions
from tablecrypt.table.protection.policy import check_still_protected, policy_of
from tablecrypt.table.protection.writing import WrittenUnder
from tablecrypt.table.table_files import ObsoleteDeletes, TableFileIO
from tablecrypt.table.updates import AddEncryptedSnapshotUpdate, AssertHead, added_keys, named_column_keys, refuse_beside_lost, still_named

RETENTION = ("max_ref_age_ms", "max_snapshot_age_ms", "min_snapshots_to_keep")
_MOST_MILLISECONDS = 2**63 - 1
_MOST_SNAPSHOTS = 2**31 - 1
_PARTS = (
    "data-files",
    "delete-files",
    "equality-delete-files",
    "equality-deletes",
    "files-size",
    "position-delete-files",
    "position-deletes",
)
_COUNTED = frozenset(
    {OPERATION, CHANGED_PARTITION_COUNT_PROP, "added-dvs", "removed-dvs", "deleted-data-files", "deleted-records"}
    | {f"{change}-{part}" for change in ("added", "removed", "total") for part in (*_PARTS, "records")}
)
"""What the summary of a snapshot says of the snapshot itself."""
_ENGINE = "engine-name"
_SPARK = "spark"


@dataclass(frozen=True)
class CommitOptions:
    """How a change is committed.

    Attributes:
        branch: where its snapshot goes; None for a snapshot of no branch, made on the main one.
        snapshot_properties: for the snapshot's summary.
        case_sensitive: whether the names of columns in its filters are.
        isolation: what others may have done meanwhile: a level, or the operation for which the table's properties say one; None for
            the operation of the snapshot.

    Raises:
        ConfigurationError: the properties are no mapping of text to text, or name what a commit counts by itself, UTF-8 cannot hold
            them or the branch, this has no name, or case_sensitive is neither True nor False.
    """

    branch: str | None = MAIN_BRANCH
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)
    case_sensitive: bool = True
    isolation: Operation | IsolationLevel | None = None

    def __post_init__(self) -> None:
        self._check_properties()
        check_text("snapshot_properties", self.snapshot_properties)
        check_text("branch", self.branch)
        self._check_branch()
        check_switches(case_sensitive=self.case_sensitive)

    def _check_branch(self) -> None:
        given: object = self.branch
        if given is None:
            return
        if not isinstance(given, str):
            raise ConfigurationError(f"branch is {described(given)}; it must be the name of a branch")
        # An unset variable ends as an empty text: the rows would be in a branch without a name, where nobody finds them.
        if not given.strip():
            raise ConfigurationError(f"branch is {given!r}; it must be the name of a branch: leave it out for {MAIN_BRANCH}")

    def _check_properties(self) -> None:
        given: object = self.snapshot_properties
        if not isinstance(given, Mapping):
            raise ConfigurationError(f'snapshot_properties is {described(given)}; it must be a mapping of text to text: {{"run": "7"}}')

        for name, value in given.items():
            # As JSON that is no text, Iceberg Java refuses the metadata, and with it the whole table.
            if not isinstance(name, str) or not isinstance(value, str):
                raise ConfigurationError(f"snapshot_properties has {described(value)} for {name!r}; names and values must be text")
            # Beside what was done, it would end the commit, be left out, or make the totals of all later snapshots wrong.
            if name in _COUNTED:
                raise ConfigurationError(f"snapshot_properties has {name!r}, which a commit counts by itself: choose another name")


def check_retention(what: str, limits: Mapping[str, int | None]) -> None:
    """Raise ConfigurationError for a limit of a branch or tag with which nobody could read the metadata again."""
    for limit in RETENTION:
        value, most = limits.get(limit), _MOST_SNAPSHOTS if limit == "min_snapshots_to_keep" else _MOST_MILLISECONDS
        if value is not None and not 1 <= value <= most:
            raise ConfigurationError(f"{what}: {limit} would be {value}; it must be a whole number from 1 to {most}")


class EncryptedProducer(ProducerAdapter):
    """Writes a snapshot's manifests and manifest list encrypted, in format version 3 with row lineage."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._dropped_delete_files: list[DataFile] = []
        self.copied_files: frozenset[bytes] = frozenset()
        # Kept through every retry of the commit: the files stay what they are.
        self.written_under = WrittenUnder.of(self.table_metadata)
        self.picked_from: int | None = None
        self.moves_rows = self.operation == Operation.REPLACE
        self.new_branch = SnapshotRef.model_validate({"snapshot-id": self.snapshot_id, "type": "branch"})

    def append_data_file(self, data_file: DataFile) -> EncryptedProducer:
        """Add a file to the snapshot: one of the partition spec that it says, or else of the table's as it is now.

        Raises:
            PlaintextRefusedError: the file has no key metadata.
        """
        refuse_plaintext(data_file)
        data_file.spec_id = getattr(data_file, "spec_id", self.table_metadata.default_spec_id)
        self.added_data_files.append(data_file)
        return self

    def commit_files(self, files: Iterable[DataFile]) -> None:
        """Add files, and stage the snapshot. Raises as `append_data_file` and `produce`."""
        with self:
            for file in files:
                self.append_data_file(file)

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriterV3:
        """Return a writer of data manifests; PyIceberg's producers and merges write through it."""
        return self._manifest_writer(spec, ManifestContent.DATA)

    def partition_filter(self, row_filter: BooleanExpression, spec: PartitionSpec, case_sensitive: bool) -> BooleanExpression:
        """Return it as scans have it. By PyIceberg's, manifests of files that a scan finds would be passed over, and the rows stay."""
        told = told_until(self.table_metadata.properties, self.schema())
        return of_partitions(row_filter, telling(spec, told), self.schema(), case_sensitive)

    def produce(self) -> UpdatesAndRequirements:
        """Write one attempt's manifests and manifest list; return the updates that commit them, keys included.

        Raises:
            ReadRestrictionError: rows would go or be replaced by a user whom the catalog's server does not let see them all.
            KeyIdChangedError: the protection of a column was removed from the metadata, and not through tablecrypt.
            StaleWriteError: columns are protected otherwise now than when the added files were written.
        """
        # A restricted reader would write masks back as values, and drop the rows that it does not see.
        if self.operation != Operation.APPEND or self.deleted_data_files:
            refuse_restricted(self.io, "a commit that removes or replaces rows")
        self._dropped_delete_files = []
        metadata = self.encrypted_metadata
        if self.added_data_files:
            self.written_under.check(metadata, metadata.next_sequence_number())
        manifests = self._still_needed(self._with_copied_files(self.collect_manifests()))
        # No key of a file that was written so far is in the metadata: whatever they hold, they cannot be opened where this refuses.
        self._check_protection(metadata)
        columns = self._column_entries(metadata)
        named = named_column_keys(metadata, self._followed(metadata), self.io)
        if self.added_data_files:
            refuse_beside_lost(metadata, named, columns)
        first_row_id = metadata.next_row_id or 0
        sequence_number = metadata.next_sequence_number()

        output = self.table_io.new_encrypted_output(self.next_manifest_list_location())

        with ManifestListWriterV3(
            output_file=output,
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=self.parent_snapshot_id,
            sequence_number=sequence_number,
            first_row_id=first_row_id,
            compression=self.compression,
            stated=further_fields(
                policy_of(metadata).columns, still_named(metadata, named, columns), ListedTableState.of(metadata, self._moved_refs)
            ),
        ) as writer:
            writer.add_manifests(manifests)

        parent_key_id = metadata.key_id_of(self.parent_snapshot_id) or metadata.key_id_of(metadata.current_snapshot_id)
        # Under the KEK of the snapshot that is followed: a retired one that an edit put back among the keys wraps nothing.
        new_key = self.table_io.manager.encrypt_manifest_list_key_metadata(output.key_metadata, metadata.key_ring, parent_key_id)

        snapshot = EncryptedSnapshot(
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=self.parent_snapshot_id,
            manifest_list=output.location,
            sequence_number=sequence_number,
            summary=self._encrypted_summary(metadata),
            schema_id=metadata.current_schema_id,
            first_row_id=first_row_id,
            # All ids that were assigned: existing files from before version 3 take some too.
            added_rows=writer.next_row_id - first_row_id,
            key_id=new_key.key_id,
        )

        return self._updates(snapshot, new_key, columns)

    def _still_needed(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        """Leave out manifests without files that earlier snapshots wrote, as Iceberg does: those say there what they removed."""
        return [each for each in manifests if lists_files(each) or each.added_snapshot_id == self.snapshot_id]

    def _check_protection(self, metadata: EncryptedTableMetadata) -> None:
        snapshot = self._followed(metadata)
        # A migration leaves its plain parent behind. Every other producer reads the parent's manifests, and refuses plain ones there.
        if isinstance(snapshot, EncryptedSnapshot) and snapshot.key_id is not None:
            check_still_protected(snapshot.known_header(self.io).protected_columns, metadata, snapshot.manifest_list)
        # The attempt may follow a change of the properties that came after its files were written.
        if self.added_data_files and has_column_keys(metadata):
            check_declared(metadata, self.table_io, writing=True)

    def _followed(self, metadata: EncryptedTableMetadata) -> Snapshot | None:
        followed = self.parent_snapshot_id if self.parent_snapshot_id is not None else metadata.current_snapshot_id
        return metadata.snapshot_by_id(followed) if followed is not None else None

    @property
    def _moved_refs(self) -> dict[str, SnapshotRef]:
        """The branch as the commit leaves it, which keeps what it says of retention."""
        if (branch := self.target_branch) is None:
            return {}
        return {branch: self.table_metadata.refs.get(branch, self.new_branch).model_copy(update={"snapshot_id": self.snapshot_id})}

    def _column_entries(self, metadata: EncryptedTableMetadata) -> tuple[EncryptedKey, ...]:
        """Return the entries of encryption-keys that protected columns of the added files need."""
        # Of every added file, whether or not columns are protected: one without a key, or with another length than its key says, ends here.
        prefixes = [key_metadata_of(file).aad_prefix for file in self.added_data_files]
        pending = self.table_io.manager.pending_columns
        return pending.new_entries(metadata.key_ring, prefixes) if pending.used else ()

    @property
    def parent(self) -> Snapshot | None:
        """The snapshot that the new one follows; None where it is the first."""
        return None if self.parent_snapshot_id is None else self.table_metadata.snapshot_by_id(self.parent_snapshot_id)

    @property
    def parent_manifests(self) -> Sequence[ManifestFile]:
        """The manifests of the snapshot that the new one follows; none where it is the first."""
        return () if self.parent is None else self.parent.manifests(self.io)

    def finish_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        """Write manifests of the added files, one for each partition spec, before the others; drop dangling delete files."""
        return [*self._added_manifests(self.added_data_files, ManifestContent.DATA), *self._without_dangling(manifests)]

    def _without_dangling(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        """Drop the delete files that have nothing left to delete, deletion vectors of dropped data files above all."""
        obsolete = self.obsolete_deletes()
        if not obsolete:
            return manifests

        kept: list[ManifestFile] = []
        for manifest in manifests:
            kept.extend([manifest] if manifest.content == ManifestContent.DATA else self._without_obsolete(manifest, obsolete))
        return kept

    def obsolete_deletes(self) -> ObsoleteDeletes:
        """Return which delete files go with this snapshot."""
        return ObsoleteDeletes(frozenset(file.file_path for file in self.deleted_data_files))

    @property
    def added_delete_files(self) -> Sequence[EncryptedDataFile]:
        """Delete files that the new snapshot adds."""
        return ()

    @property
    def sequence_number_of_added(self) -> int | None:
        """The data sequence number of the added files; None for that of the commit."""
        return None

    @property
    def encrypted_metadata(self) -> EncryptedTableMetadata:
        """The staged metadata, in the class that holds keys."""
        metadata = self.table_metadata
        if not isinstance(metadata, EncryptedTableMetadata):
            raise FormatError("snapshots of encrypted tables are made on encrypted table metadata only")
        return metadata

    @property
    def table_io(self) -> TableFileIO:
        """The table's fail-closed FileIO with its encryption manager."""
        return cast("TableFileIO", self.io)

    def _manifest_writer(
        self, spec: PartitionSpec, content: ManifestContent, copied_files: frozenset[bytes] = frozenset()
    ) -> ManifestWriterV3:
        ending, further_fields = (COPIED_NAME_ENDING, header_field(copied_files)) if copied_files else ("", {})
        return ManifestWriterV3(
            spec=spec,
            schema=schema_of_spec(spec, self.schema(), self.table_metadata.schemas),
            output_file=self.table_io.new_encrypted_output(self.next_manifest_location(ending)),
            snapshot_id=self.snapshot_id,
            avro_compression=self.compression,
            content=content,
            further_fields=further_fields,
            protected=self._protected_fields(),
        )

    def _protected_fields(self) -> frozenset[int]:
        # A column that was dropped is protected still, and its values are in entries of old files.
        columns = ColumnPolicy.from_properties(self.table_metadata.properties).columns
        return frozenset(each for schema in self.table_metadata.schemas if columns for each in covering(columns, schema))

    def _with_copied_files(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        """Write those new manifests again that are to remember files which rows were copied from, and do not."""
        kept = {manifest.manifest_path for manifest in manifests}
        gone = [manifest for manifest in self._remembering_manifests() if manifest.manifest_path not in kept]
        if not gone and not self.copied_files:
            return manifests

        new = [manifest for manifest in manifests if manifest.content == ManifestContent.DATA and self.was_written(manifest)]
        if not gone and all(remembers_files(manifest) for manifest in new):
            return manifests

        live = {manifest.manifest_path: self._live_paths(manifest) for manifest in new}
        wanted = dict.fromkeys(live, frozenset[bytes]())
        for location in self._heirs(self._added_paths, live):
            wanted[location] |= self.copied_files
        for manifest in gone:
            fingerprints = copied_files_of(self.io, [manifest])
            for location in self._heirs(self._live_paths(manifest), live):
                wanted[location] |= fingerprints

        return [self._remembering(manifest, wanted.get(manifest.manifest_path, frozenset())) for manifest in manifests]

    def _heirs(self, files: set[str], live: Mapping[str, set[str]]) -> set[str]:
        """Return the new manifests that hold files, or their rows in other files: all of them, for each may be the last that does."""
        heirs = {location for location, paths in live.items() if not files.isdisjoint(paths)}
        if self.moves_rows and not files <= set().union(*live.values()):
            heirs |= {location for location, paths in live.items() if not self._added_paths.isdisjoint(paths)}
        return heirs

    @property
    def _added_paths(self) -> set[str]:
        return {file.file_path for file in self.added_data_files}

    def _remembering(self, manifest: ManifestFile, copied_files: frozenset[bytes]) -> ManifestFile:
        """Return a manifest that remembers these files: a new one that remembers some was written with those of this commit."""
        known = self.copied_files if remembers_files(manifest) else frozenset[bytes]()
        return manifest if copied_files <= known else self._written_again(manifest, copied_files | known)

    def _remembering_manifests(self) -> list[ManifestFile]:
        parent = self.parent
        # A migration leaves its plain parent behind, into which nothing was copied.
        if not isinstance(parent, EncryptedSnapshot) or parent.key_id is None:
            return []

        return [manifest for manifest in self.parent_manifests if remembers_files(manifest)]

    def _live_paths(self, manifest: ManifestFile) -> set[str]:
        return {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(self.io, discard_deleted=True)}

    def _written_again(self, manifest: ManifestFile, copied_files: frozenset[bytes]) -> ManifestFile:
        entries = EncryptedManifestFile.of(manifest).read(self.table_io).entries
        with self._manifest_writer(self.spec(manifest.partition_spec_id), manifest.content, copied_files) as writer:
            for entry in entries:
                writer.add_entry(entry)
        self.replace_manifest(manifest)
        return writer.to_manifest_file()

    def _added_manifests(self, files: Iterable[DataFile], content: ManifestContent) -> list[ManifestFile]:
        by_spec: dict[int, list[DataFile]] = defaultdict(list)
        for file in files:
            by_spec[file.spec_id].append(file)
        return [self._added_manifest(spec_id, added, content) for spec_id, added in by_spec.items()]

    def _added_manifest(self, spec_id: int, files: Iterable[DataFile], content: ManifestContent) -> ManifestFile:
        copied_files = self.copied_files if content == ManifestContent.DATA else frozenset[bytes]()
        with self._manifest_writer(self.spec(spec_id), content, copied_files) as writer:
            for file in files:
                entry = ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=self.snapshot_id,
                    sequence_number=self.sequence_number_of_added,
                    data_file=EncryptedDataFile.of(file),
                )
                writer.add(entry)

        return writer.to_manifest_file()

    def _existing_manifest(self, like: ManifestFile, entries: Iterable[ManifestEntry]) -> ManifestFile:
        """Write a manifest of entries that the table has already, of the spec and the content of another manifest."""
        with self._manifest_writer(self.spec(like.partition_spec_id), like.content) as writer:
            for entry in entries:
                writer.existing(entry)
        return writer.to_manifest_file()

    def _without_obsolete(self, manifest: ManifestFile, obsolete: ObsoleteDeletes) -> list[ManifestFile]:
        entries = manifest.fetch_manifest_entry(self.io, discard_deleted=True)
        dropped = [entry for entry in entries if EncryptedDataFile.of(entry.data_file) in obsolete]
        if not dropped:
            return [manifest]

        self._dropped_delete_files.extend(entry.data_file for entry in dropped)

        with self._manifest_writer(self.spec(manifest.partition_spec_id), ManifestContent.DELETES) as writer:
            for entry in entries:
                if EncryptedDataFile.of(entry.data_file) in obsolete:
                    writer.delete(entry)
                else:
                    writer.existing(entry)

        return [writer.to_manifest_file()]

    def _encrypted_summary(self, metadata: EncryptedTableMetadata) -> Summary:
        removed = (*self.deleted_data_files, *self._dropped_delete_files)
        changed = (*self.added_data_files, *self.added_delete_files, *removed)
        most = PARTITION_SUMMARIES.whole_number(store_io(self.io).properties)
        counts = summary_counts(metadata, (*self.added_data_files, *self.added_delete_files), removed, most)
        counts |= _partition_count(self.snapshot_properties, changed, metadata.specs())
        parent = self.parent
        # PyIceberg adds up totals for every operation but REPLACE, whose totals are those of an overwrite.
        counted_as = Operation.OVERWRITE if self.operation == Operation.REPLACE else self.operation

        try:
            summary = update_snapshot_summaries(
                summary=Summary(operation=counted_as, **counts, **self.snapshot_properties),
                previous_summary=cast("Mapping[str, str] | None", parent.summary if parent is not None else None),
            )
        except (ValueError, TypeError) as error:
            before = parent.snapshot_id if parent is not None else None
            raise FormatError(f"the summary of snapshot {before} has counts to which the new one cannot add: {error}") from error

        return Summary(self.operation, **summary.additional_properties)

    def _updates(self, snapshot: EncryptedSnapshot, new_key: NewManifestListKey, columns: Iterable[EncryptedKey]) -> UpdatesAndRequirements:
        # A summary that names partitions is plaintext, and the column that they are made of may be protected by now.
        holds_values = self.added_data_files or PARTITION_SUMMARY_PROP in cast("Summary", snapshot.summary).additional_properties
        updates: tuple[TableUpdate, ...] = (
            *added_keys((*new_key.added, *columns)),
            AddEncryptedSnapshotUpdate(
                snapshot=snapshot,
                written_under=self.written_under if holds_values else None,
                picked_from=self.picked_from,
            ),
        )
        if self.target_branch is None:
            return updates, ()

        moved = self._moved_refs[self.target_branch]
        limits = {name: getattr(moved, name) for name in RETENTION}
        set_branch = SetSnapshotRefUpdate(snapshot_id=moved.snapshot_id, ref_name=self.target_branch, type=SnapshotRefType.BRANCH, **limits)
        head = self.table_metadata.refs.get(self.target_branch)
        unchanged = AssertHead(snapshot_id=head.snapshot_id if head is not None else None, ref=self.target_branch)

        return (*updates, set_branch), (unchanged,)


class EncryptedFastAppend(EncryptedProducer, FastAppendFiles):
    """Appends with a new manifest beside the existing ones."""


class EncryptedMergeAppend(EncryptedProducer, MergeAppendFiles):
    """Appends and merges small manifests."""


class EncryptedOverwrite(EncryptedProducer, OverwriteFiles):
    """Replaces data files by others."""


class EncryptedDelete(EncryptedProducer, DeleteFilesAdapter):
    """Drops whole data files that a predicate covers."""


class EncryptedRowDelta(EncryptedOverwrite):
    """Adds deletion vectors in place of earlier ones, and drops data files that they would cover whole."""

    def __init__(self, *, row_delta: RowDelta, **options: Any) -> None:
        super().__init__(**options)
        self._row_delta = row_delta
        for file in row_delta.dropped:
            self.delete_data_file(file)

    def finish_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        """Write the new deletion vectors' manifests, one for each partition spec, beside the others. Raises as `RowDelta.check_base`."""
        self._row_delta.check_base(self._live_deletes(manifests))
        return [*super().finish_manifests(manifests), *self._added_manifests(self._row_delta.added, ManifestContent.DELETES)]

    def obsolete_deletes(self) -> ObsoleteDeletes:
        """Return which delete files go: those of dropped data files, and the vectors whose place new ones take."""
        return replace(super().obsolete_deletes(), files=frozenset(self._row_delta.replaced))

    @property
    def added_delete_files(self) -> Sequence[EncryptedDataFile]:
        """The new deletion vectors."""
        return self._row_delta.added

    def _live_deletes(self, manifests: Iterable[ManifestFile]) -> Iterator[EncryptedDataFile]:
        for manifest in manifests:
            if self.added_delete_files and manifest.content == ManifestContent.DELETES:
                entries = manifest.fetch_manifest_entry(self.io, discard_deleted=True)
                yield from (EncryptedDataFile.of(entry.data_file) for entry in entries)


class EncryptedReplacement(EncryptedProducer, WholeSnapshotAdapter):
    """A snapshot of the added files alone, which no other precedes: what the branch held before stays in the table's history."""

    @property
    def parent_snapshot_id(self) -> int | None:
        """None: nothing of the snapshots before is in this one."""
        return None

    def collect_manifests(self) -> list[ManifestFile]:
        """Write the manifests of the added files."""
        return self.finish_manifests([])


class EncryptedUpdateSnapshot(UpdateSnapshotAdapter):
    """What `Transaction.update_snapshot()` returns on an encrypted table."""

    def fast_append(self) -> EncryptedFastAppend:
        """Return a producer that appends a manifest."""
        return self.producer(EncryptedFastAppend, Operation.APPEND)

    def merge_append(self) -> EncryptedMergeAppend:
        """Return a producer that appends and merges manifests."""
        return self.producer(EncryptedMergeAppend, Operation.APPEND)

    def overwrite(self, commit_uuid: uuid.UUID | None = None) -> EncryptedOverwrite:
        """Return a producer that replaces data files."""
        producer = self.producer(EncryptedOverwrite, Operation.APPEND if self.is_first_snapshot else Operation.OVERWRITE)
        producer.commit_uuid = commit_uuid or producer.commit_uuid
        return producer

    def delete(self) -> EncryptedDelete:
        """Return a producer that drops data files."""
        return self.producer(EncryptedDelete, Operation.DELETE)

    def replacement(self, operation: Operation = Operation.DELETE) -> EncryptedReplacement:
        """Return a producer that puts the files which are added in place of everything: an overwrite, or a delete where there are none."""
        return self.producer(EncryptedReplacement, operation)

    def row_delta(self, row_delta: RowDelta, operation: Operation = Operation.DELETE) -> EncryptedRowDelta:
        """Return a producer that adds deletion vectors, and data files where the operation is an overwrite."""
        return self.producer(EncryptedRowDelta, operation, row_delta=row_delta)


def schema_of_spec(spec: PartitionSpec, current: Schema, schemas: Sequence[Schema]) -> Schema:
    """Return the latest schema that has the columns which a spec is made of: values of a partition have the types of these.

    Args:
        spec: the partition spec.
        current: counts first, and stands where none has them.
        schemas: of the table, the oldest first.
    """
    sources = [field.source_id for field in spec.fields]
    return next(
        (each for each in (current, *reversed(schemas)) if all(each.find_column_name(source) is not None for source in sources)), current
    )


def check_shown_partitions(given: Mapping[str, Any], client: Mapping[str, Any]) -> None:
    """Refuse table properties by which summaries would show partition values, unless the client's configuration says so too.

    Raises:
        ConfigurationError: it does not. No snapshot of this client's would show them, and the setting would pass unnoticed.
    """
    if PARTITION_SUMMARIES.whole_number(given) and not PARTITION_SUMMARIES.whole_number(client):
        raise ConfigurationError(
            f"{PARTITION_SUMMARIES.name} puts partition values into metadata.json in the clear: set it in the catalog's configuration too"
        )


def summary_counts(
    metadata: TableMetadata, added: Iterable[DataFile], removed: Iterable[DataFile] = (), most_partitions: int = 0
) -> dict[str, str]:
    """Return what a snapshot's summary says of the data and delete files that it adds and removes.

    Args:
        metadata: the table's.
        added, removed: the files, each with the id of its partition spec.
        most_partitions: of how many partitions this client's own configuration lets a summary speak. The table's property may lower it.
    """
    schema, specs = metadata.schema(), metadata.specs()
    came, went = list(added), list(removed)
    # Summaries are plaintext, and whoever edits metadata.json may set the table's property and a partition spec of any column.
    limit = min(most_partitions, PARTITION_SUMMARIES.whole_number(metadata.properties))
    if limit and not ShownPartitions.of(metadata).columns.keys().isdisjoint(file.spec_id for file in (*came, *went)):
        # metadata.json is plaintext: it does not get values of a column that is protected by now.
        limit = 0
    collector = _SummaryCollector(partition_summary_limit=limit)
    for file in came:
        collector.add_file(data_file=_as_counted(file), partition_spec=specs[file.spec_id], schema=schema)
    for file in went:
        collector.remove_file(data_file=_as_counted(file), partition_spec=specs[file.spec_id], schema=schema)
    counts = collector.build()
    _count_vectors(counts, "added", came)
    _count_vectors(counts, "removed", went)

    return counts


class _SummaryCollector(SnapshotSummaryCollector):
    """PyIceberg's, for partitions of any value."""

    def update_partition_metrics(self, partition_spec: PartitionSpec, file: DataFile, is_add_file: bool, schema: Schema) -> None:
        """Count a file in the partition that it is in."""
        counts = self.partition_metrics[partition_path(partition_spec, file.partition, schema)]
        count = counts.add_file if is_add_file else counts.remove_file
        count(file)


def _as_counted(file: DataFile) -> DataFile:
    """Return a file with the size that summaries count, which for a deletion vector is that of its blob."""
    counted = EncryptedDataFile.of(file)
    if counted.content_size_in_bytes is None:
        return file
    counted = copy(counted)
    counted[DATA_FILE_POSITIONS["file_size_in_bytes"]] = counted.content_size_in_bytes
    return counted


def _partition_count(properties: Mapping[str, str], changed: Iterable[DataFile], specs: Mapping[int, PartitionSpec]) -> dict[str, str]:
    """Return how many partitions a commit of Spark's changes, as Iceberg Java counts them: files of no partition are in one, too."""
    if properties.get(_ENGINE) != _SPARK:
        # PyIceberg's own count leaves files of no partition out.
        return {}
    names = {spec_id: tuple(field.name for field in spec.fields) for spec_id, spec in specs.items()}
    partitions = {tuple(zip(names[file.spec_id], partition_values(file.partition), strict=True)) for file in changed}
    return {CHANGED_PARTITION_COUNT_PROP: str(len(partitions))}


def _count_vectors(counts: dict[str, str], change: str, files: Iterable[DataFile]) -> None:
    """Count vectors apart, as Iceberg Java does: PyIceberg takes each for a position delete file."""
    if count := sum(is_deletion_vector(file) for file in files):
        others = int(counts.pop(f"{change}-position-delete-files")) - count
        counts |= {f"{change}-dvs": str(count)} | ({f"{change}-position-delete-files": str(others)} if others else {})
