"""Snapshot producers of encrypted tables: PyIceberg decides which files a snapshot holds, this module writes its manifests and their list.

One attempt to commit writes, from the bottom up:

    manifests (AGS1, each under its own DEK) → manifest list (AGS1, own DEK) → key entry for the list, sealed under the table's KEK
    → updates [add-encryption-key …, add-snapshot, set-snapshot-ref], which one commit of the catalog lands together or not at all

An abandoned attempt leaves no key entry behind: `EncryptedTransaction` drops its updates, and the retry seals anew.

Iceberg table spec, "Snapshots", "Row Lineage", "Manifest Lists".
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import cast

from pyiceberg.manifest import DataFile, FileFormat, ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import TableProperties
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, SnapshotSummaryCollector, Summary, update_snapshot_summaries
from pyiceberg.table.update import AssertRefSnapshotId, SetSnapshotRefUpdate, TableUpdate, UpdatesAndRequirements

from tablecrypt.errors import FormatError
from tablecrypt.keys.manager import SealedKey
from tablecrypt.manifests.manifest_list_writer import ManifestListWriterV3
from tablecrypt.manifests.manifest_writer import ManifestWriterV3
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.table._pyiceberg.producers import (
    DeleteFiles,
    FastAppendFiles,
    MergeAppendFiles,
    OverwriteFiles,
    ProducerSeam,
    UpdateSnapshotSeam,
)
from tablecrypt.table.content_files import refuse_plaintext
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata
from tablecrypt.table.table_file_io import TableFileIO
from tablecrypt.table.updates import AddEncryptedSnapshotUpdate, AddEncryptionKeyUpdate


class EncryptedProducer(ProducerSeam):
    """Writes a snapshot's manifests and manifest list encrypted, in format version 3 with row lineage."""

    _dropped_delete_files: list[DataFile]

    def append_data_file(self, data_file: DataFile) -> EncryptedProducer:
        """Add a file to the snapshot.

        Raises:
            PlaintextRefusedError: the file has no key metadata.
        """
        refuse_plaintext(data_file)
        self.added_data_files.append(data_file)
        return self

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriterV3:
        """Return a writer of data manifests; PyIceberg's producers and merges write through it."""
        return self._manifest_writer(spec, ManifestContent.DATA)

    def produce(self) -> UpdatesAndRequirements:
        """Write one attempt's manifests and manifest list; return the updates that commit them, keys included."""
        self._dropped_delete_files = []
        metadata = self.encrypted_metadata
        manifests = self.collect_manifests()
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
        ) as writer:
            writer.add_manifests(manifests)
        sealed = self.table_io.manager.seal_manifest_list_key(output.key_metadata, metadata.key_ring)

        snapshot = EncryptedSnapshot(
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=self.parent_snapshot_id,
            manifest_list=output.location,
            sequence_number=sequence_number,
            summary=self._encrypted_summary(metadata),
            schema_id=metadata.current_schema_id,
            first_row_id=first_row_id,
            added_rows=writer.next_row_id - first_row_id,
            key_id=sealed.key_id,
        )
        return self._updates(snapshot, sealed)

    def finish_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        """Drop the delete files that refer to nothing but dropped data files, deletion vectors above all."""
        dropped_paths = {file.file_path for file in self.deleted_data_files}
        if not dropped_paths:
            return manifests
        kept: list[ManifestFile] = []
        for manifest in manifests:
            kept.extend([manifest] if manifest.content == ManifestContent.DATA else self._without_dangling(manifest, dropped_paths))
        return kept

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
        return cast(TableFileIO, self.io)

    def _manifest_writer(self, spec: PartitionSpec, content: ManifestContent) -> ManifestWriterV3:
        return ManifestWriterV3(
            spec=spec,
            schema=self.schema(),
            output_file=self.table_io.new_encrypted_output(self.next_manifest_location()),
            snapshot_id=self.snapshot_id,
            avro_compression=self.compression,
            content=content,
        )

    def _without_dangling(self, manifest: ManifestFile, dropped_paths: set[str]) -> list[ManifestFile]:
        entries = manifest.fetch_manifest_entry(self.io, discard_deleted=True)
        dangling = {entry for entry in entries if EncryptedDataFile.of(entry.data_file).referenced_data_file in dropped_paths}
        if not dangling:
            return [manifest]
        self._dropped_delete_files.extend(entry.data_file for entry in dangling)
        with self._manifest_writer(self.spec(manifest.partition_spec_id), ManifestContent.DELETES) as writer:
            for entry in entries:
                if entry in dangling:
                    writer.delete(entry)
                else:
                    writer.existing(entry)
        return [writer.to_manifest_file()]

    def _encrypted_summary(self, metadata: EncryptedTableMetadata) -> Summary:
        limit = int(
            metadata.properties.get(TableProperties.WRITE_PARTITION_SUMMARY_LIMIT, TableProperties.WRITE_PARTITION_SUMMARY_LIMIT_DEFAULT)
        )
        collector = SnapshotSummaryCollector(partition_summary_limit=limit)
        schema, specs = metadata.schema(), metadata.specs()
        for file in self.added_data_files:
            collector.add_file(data_file=file, partition_spec=specs[file.spec_id], schema=schema)
        for file in (*self.deleted_data_files, *self._dropped_delete_files):
            collector.remove_file(data_file=file, partition_spec=specs[file.spec_id], schema=schema)
        counts = collector.build()
        dropped_vectors = sum(file.file_format == FileFormat.PUFFIN for file in self._dropped_delete_files)
        if dropped_vectors:
            counts["removed-dvs"] = str(dropped_vectors)
        parent = metadata.snapshot_by_id(self.parent_snapshot_id) if self.parent_snapshot_id is not None else None
        return update_snapshot_summaries(
            summary=Summary(operation=self.operation, **counts, **self.snapshot_properties),
            previous_summary=cast("Mapping[str, str] | None", parent.summary if parent is not None else None),
        )

    def _updates(self, snapshot: EncryptedSnapshot, sealed: SealedKey) -> UpdatesAndRequirements:
        updates: tuple[TableUpdate, ...] = (
            *(cast(TableUpdate, AddEncryptionKeyUpdate(key=key)) for key in sealed.added),
            AddEncryptedSnapshotUpdate(snapshot=snapshot),
        )
        if self.target_branch is None:
            return updates, ()
        set_branch = SetSnapshotRefUpdate(
            snapshot_id=self.snapshot_id,
            ref_name=self.target_branch,
            type=SnapshotRefType.BRANCH,
            max_ref_age_ms=None,
            max_snapshot_age_ms=None,
            min_snapshots_to_keep=None,
        )
        head = self.table_metadata.refs.get(self.target_branch)
        unchanged = AssertRefSnapshotId(snapshot_id=head.snapshot_id if head is not None else None, ref=self.target_branch)
        return (*updates, set_branch), (unchanged,)


class EncryptedFastAppend(EncryptedProducer, FastAppendFiles):
    """Appends with a new manifest beside the existing ones."""


class EncryptedMergeAppend(EncryptedProducer, MergeAppendFiles):
    """Appends and merges small manifests."""


class EncryptedOverwrite(EncryptedProducer, OverwriteFiles):
    """Replaces data files by others."""


class EncryptedDelete(EncryptedProducer, DeleteFiles):
    """Drops whole data files that a predicate covers."""


class EncryptedUpdateSnapshot(UpdateSnapshotSeam):
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
