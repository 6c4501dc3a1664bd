"""One attempt to migrate one state of a plain table: its files encrypted, and committed in its place or as a table beside it.

    in place       version 3, encryption.key-id, the keys, one snapshot, and no snapshot from before: one commit of the table's catalog
    as another     metadata of the same schemas, partition specs, sort orders and properties, with a UUID, a location and one snapshot
                   of its own, registered under the new name

Sequence numbers, row ids, partition specs and statistics of the files stay in both, and the snapshot has the rows of the last plain one
(plain_snapshot.py). Each file is encrypted under a DEK of its own, without decoding a value (`write_again`); ORC is rewritten
(orc_files.py).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import (
    AssertTableUUID,
    RemovePartitionStatisticsUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError
from tablecrypt.files.deletion import NOTHING, DeletionScope
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.maintenance._file_rewrite import FileRewrite, Journal, NewFileWork, replacement_entry, write_again
from tablecrypt.maintenance._migrate.orc_files import RewriteOrcWork, rewrite_orc_file, rewrite_orc_work, rewritten_entry
from tablecrypt.maintenance._migrate.plain_snapshot import MigrationSnapshot, plain_manifests
from tablecrypt.maintenance._relocate_files import PathMap
from tablecrypt.maintenance.progress import ProgressListener
from tablecrypt.maintenance.runner import FileDone, FileWork, Runner
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.table.foreign_engines import location_provider
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata, write_metadata_file
from tablecrypt.table.replace_files import BaseManifest
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import TableFileIO, folders_of
from tablecrypt.table.updates import EncryptTableUpdate

OPERATION: Final = "migrate"
_ANY_NAME: Final = "file.parquet"
_NAMESPACE: Final = uuid.UUID("0d1c6f57-8a43-5b0e-9c72-4f2ab6e1d935")


class Migration:
    """See the module.

    Args:
        plain: the plain table as it is now.
        table: the same with the metadata and the FileIO that it will have (`MigratingCatalog.as_encrypted`).
        location: where the table beside it goes; None to encrypt in place.
        folders: in place, below which folders a file is encrypted beside itself; another goes to the data folder of the table's location.
    """

    def __init__(self, plain: Table, table: EncryptedTable, location: str | None, folders: DeletionScope = NOTHING) -> None:
        self._plain = plain
        self._folders = folders
        self._io = table.io
        self._map = None if location is None else PathMap(plain.location().rstrip("/"), location)
        self._metadata = table.metadata
        self.table = table
        if location is not None:
            self._metadata = _beginning_at(self._metadata, location, self.uuid_beside(plain, location))
            self.table = _with_metadata(table, self._metadata)
            self._io = self.table.io

        self._manifests = [BaseManifest(*each) for each in self._plain_manifests()]
        self.files = self._live_files()

    @staticmethod
    def uuid_beside(plain: Table, location: str) -> uuid.UUID:
        """Return the table-uuid of the table beside a plain one: the same for one state of that, so that a finished run is known again."""
        return uuid.uuid5(_NAMESPACE, f"{plain.metadata.table_uuid} {plain.metadata.current_snapshot_id} {location}")

    def encrypt(self, runner: Runner, progress: ProgressListener) -> tuple[int, dict[str, EncryptedDataFile]]:
        """Return how many files earlier runs had done, and for each file of the plain table the one that takes its place.

        Raises:
            KmsError: the KMS refused the key; nothing was written.
        """
        self._io.manager.check_usable(self._metadata.key_ring)
        journal = migration_journal(self.table)
        earlier = {location: new for location, new in journal.load().items() if location in self.files}
        rewrite = FileRewrite(self.table, journal, OPERATION, runner, progress, dict(earlier))
        key_length = self._io.manager.data_key_length

        def copied(file: DataFile) -> FileWork[NewFileWork]:
            return FileWork(NewFileWork.of(file, self._folder_for(file.file_path), key_length), size=file.file_size_in_bytes)

        def rewritten(file: DataFile) -> FileWork[RewriteOrcWork]:
            return rewrite_orc_work(file, self._metadata, key_length)

        orc = {location: file for location, file in self.files.items() if file.file_format == FileFormat.ORC}
        others = {location: file for location, file in self.files.items() if location not in orc}
        rewrite.write(others, migrate_file, copied, replacement_entry)
        rewrite.write(orc, rewrite_orc_file, rewritten, partial(rewritten_entry, self._metadata), phase=": ORC")

        return len(earlier), rewrite.done

    def commit_in_place(self, encrypted: Mapping[str, EncryptedDataFile]) -> int | None:
        """Commit, and return the id of the snapshot; None for a table without any.

        Raises:
            CommitFailedException: somebody else committed to the plain table meanwhile.
        """
        before = self._plain.metadata
        changed = {name: value for name, value in self._metadata.properties.items() if before.properties.get(name) != value}
        produced, required, snapshot_id = self._produce(encrypted)
        removed = plain_snapshot_ids(self._metadata.snapshots)
        updates: tuple[TableUpdate, ...] = (
            EncryptTableUpdate(),
            SetPropertiesUpdate(updates=changed),
            *produced,
            *(RemoveStatisticsUpdate(snapshot_id=each.snapshot_id) for each in before.statistics),
            *(RemovePartitionStatisticsUpdate(snapshot_id=each.snapshot_id) for each in before.partition_statistics),
            *((RemoveSnapshotsUpdate(snapshot_ids=removed),) if removed else ()),
        )
        self._plain.catalog.commit_table(self._plain, (AssertTableUUID(uuid=before.table_uuid), *required), updates)

        return snapshot_id

    def register_as(self, identifier: str, encrypted: Mapping[str, EncryptedDataFile]) -> int | None:
        """Register the table beside the plain one, and return the id of its snapshot; None for a table without any."""
        produced, _, snapshot_id = self._produce(encrypted)
        metadata = update_table_metadata(self._metadata, produced)
        location = location_provider(metadata).new_table_metadata_file_location(0)
        write_metadata_file(metadata, self._io.inner, location)
        self._plain.catalog.register_table(identifier, location)
        return snapshot_id

    def _produce(
        self, encrypted: Mapping[str, EncryptedDataFile]
    ) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...], int | None]:
        if self._plain.metadata.current_snapshot() is None:
            return (), (), None

        producer = (
            self.table.transaction()
            .update_snapshot({}, MAIN_BRANCH)
            .producer(MigrationSnapshot, Operation.REPLACE, swaps=encrypted, manifests=self._manifests, plain_io=self._plain.io)
        )
        updates, requirements = producer.produce()
        return updates, requirements, producer.snapshot_id

    def _folder_for(self, location: str) -> str:
        """Return where the ciphertext of a file goes: never into a folder that is not the table's."""
        if self._map is not None:
            return self._map(location).rpartition("/")[0]
        if self._folders.reason_against(f"{location.rpartition('/')[0]}/{_ANY_NAME}") is None:
            return location.rpartition("/")[0]
        return f"{self._metadata.location.rstrip('/')}/data"

    def _plain_manifests(self) -> Iterator[tuple[ManifestFile, list[ManifestEntry]]]:
        snapshot = self._plain.metadata.current_snapshot()
        return iter(()) if snapshot is None else plain_manifests(self._plain.metadata, snapshot, self._plain.io)

    def _live_files(self) -> dict[str, DataFile]:
        """Return the files to encrypt, by location. Positional deletes are not among them: they become deletion vectors."""
        entries = (entry for manifest in self._manifests for entry in manifest.entries)
        files = [entry.data_file for entry in entries if entry.data_file.content != DataFileContent.POSITION_DELETES]
        for file in files:
            if file.file_format == FileFormat.ORC and file.content == DataFileContent.EQUALITY_DELETES:
                raise FormatError(f"{file.file_path}: equality deletes in ORC are not migrated; rewrite the table's data files first")
        return {file.file_path: file for file in files}


def migration_journal(table: EncryptedTable) -> Journal:
    """Return what says which files of a migration to this table are done."""
    return Journal(table.io, table.metadata, (), None, OPERATION)


def _beginning_at(metadata: EncryptedTableMetadata, location: str, table_uuid: uuid.UUID) -> EncryptedTableMetadata:
    """Return the metadata of a table that has no history yet, elsewhere."""
    return metadata.without_history().model_copy(update={"location": location, "table_uuid": table_uuid})


def _with_metadata(table: EncryptedTable, metadata: EncryptedTableMetadata) -> EncryptedTable:
    return EncryptedTable(
        identifier=table.name(),
        metadata=metadata,
        metadata_location=table.metadata_location,
        io=TableFileIO(table.io.inner, table.io.manager, folders_of(metadata)),
        catalog=table.catalog,
        config=table.config,
    )


def plain_snapshot_ids(snapshots: Iterable[EncryptedSnapshot]) -> list[int]:
    """Return the ids of the plain snapshots, which go in the commit that brings the encrypted one."""
    return [snapshot.snapshot_id for snapshot in snapshots if snapshot.key_id is None]


def migrate_file(io: EncryptingFileIO, work: NewFileWork, keys: tuple[StandardKeyMetadata, ...]) -> FileDone[str]:
    """Write the encrypted file and return its location and key metadata, which knows the file's length."""
    return write_again(io, work, None)
