"""A plaintext table of any format version becomes an encrypted one, under the same name, in one commit.

    plan      the live files of the main branch
    files     each encrypted beside itself under a DEK of its own, without decoding a value; the journal says which are done
    commit    version 3, encryption.key-id, the keys, one snapshot of the encrypted files, and no snapshot from before: all or nothing
    cleanup   every file that the plain table named is deleted, and what may still be there in plaintext is listed

A run that was killed is continued by calling again, before the commit and after it. What others commit to the plain table meanwhile is
encrypted too: the commit is refused and tried again.

What it does not do: it does not reach copies outside the table's location, nor readers' caches. Its report says what it knows of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, cast, runtime_checkable

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, DataFileContent
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
)
from pyiceberg.typedef import Properties

from tablecrypt import properties as names
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.maintenance.journal import Journal
from tablecrypt.maintenance.migrate_file import KNOWN_FORMATS, MigrateWork, migrate_file, migrate_work
from tablecrypt.maintenance.migration_snapshot import MigrationSnapshot, plain_snapshot_ids
from tablecrypt.maintenance.new_files import make_new_files
from tablecrypt.maintenance.plaintext_left import PlaintextLeft, delete_plaintext_of, plaintext_left
from tablecrypt.maintenance.progress import ProgressListener, unheard
from tablecrypt.maintenance.runner import FileWork, runner_for
from tablecrypt.manifests.plain import plain_manifests
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.table.encrypted_table import EncryptedTable
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.table_file_io import TableFileIO
from tablecrypt.table.updates import EncryptTableUpdate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERB: Final = "migrate"
_ATTEMPTS: Final = 5


@runtime_checkable
class EncryptingCatalog(Protocol):
    """What a migration asks of a table's catalog, beside PyIceberg's own methods."""

    def as_encrypted(self, table: Table, properties: Properties) -> EncryptedTable:
        """Return a plain table with the metadata and the FileIO that it will have."""
        ...


@dataclass(frozen=True)
class Migrated:
    """What was done, or with dry_run would be.

    Attributes:
        files: how many data and delete files.
        size: plaintext bytes of all of them.
        resumed: how many of them an earlier run had done.
        snapshot_id: the table's one snapshot; None where it has no rows, and for a dry run.
        deleted: how many plaintext files were deleted.
        left: plaintext that may still exist, as far as it can be known from here.
    """

    files: int
    size: int
    resumed: int = 0
    snapshot_id: int | None = None
    deleted: int = 0
    left: tuple[PlaintextLeft, ...] = ()


def migrate(
    table: Table,
    key_id: str,
    properties: Mapping[str, str] | None = None,
    drop_refs: bool = False,
    delete_plaintext: bool = True,
    dry_run: bool = False,
    progress: ProgressListener = unheard,
    spark: SparkSession | None = None,
    workers: int | None = None,
) -> Migrated:
    """Encrypt a plain table in place.

    Args:
        table: a table of a catalog of tablecrypt_catalog. Load it anew afterwards: it is an encrypted one then.
        key_id: the master key in the KMS, the table's encryption.key-id from now on.
        properties: further table properties to set, such as encryption.data-key-length.
        drop_refs: whether branches other than main, and tags, may go: they would keep plaintext snapshots.
        delete_plaintext: whether to delete the plain table's files after the commit. Until then they are plaintext beside the table.
        dry_run: whether to say only what would be done.
        progress: hears the plaintext bytes that are done.
        spark: a session whose executors do the work.
        workers: how many files at once, without `spark`.

    Raises:
        ConfigurationError: the catalog cannot hold encrypted tables, the table is encrypted under another key, or has branches or tags.
        FormatError: a data file is neither Parquet nor Avro, or is not what its manifest says.
        KmsError: the KMS refused the key; nothing was written.
        CommitFailedException: other writers were faster, again and again; the next run continues.
    """
    catalog = table.catalog
    if not isinstance(catalog, EncryptingCatalog):
        raise ConfigurationError(f"{'.'.join(table.name())}: open it by a catalog of tablecrypt_catalog, which can hold an encrypted table")
    wanted = {**(properties or {}), names.KEY_ID.name: key_id}
    current = table.catalog.load_table(table.name())
    migrated = Migrated(0, 0)
    attempt = 0
    while not isinstance(current, EncryptedTable):
        attempt += 1
        try:
            migrated = _Migration(current, catalog.as_encrypted(current, wanted), drop_refs, progress).run(dry_run, spark, workers)
        except CommitFailedException:
            if attempt == _ATTEMPTS:
                raise
        if dry_run:
            return migrated
        current = table.catalog.load_table(table.name())
    if current.metadata.properties.get(names.KEY_ID.name) != key_id:
        raise ConfigurationError(f"{'.'.join(table.name())} is encrypted already, under {current.metadata.properties[names.KEY_ID.name]}")
    deleted = delete_plaintext_of(current) if delete_plaintext else 0
    return replace(migrated, deleted=deleted, left=tuple(plaintext_left(current)))


class _Migration:
    """One attempt, on one state of the plain table."""

    def __init__(self, plain: Table, table: EncryptedTable, drop_refs: bool, progress: ProgressListener) -> None:
        self._plain = plain
        self._table = table
        self._io = cast(TableFileIO, table.io)
        self._metadata = cast(EncryptedTableMetadata, table.metadata)
        self._journal = Journal(self._io, self._metadata, (), VERB)
        self._progress = progress
        others = sorted(name for name in plain.metadata.refs if name != MAIN_BRANCH)
        if others and not drop_refs:
            raise ConfigurationError(
                f"{'.'.join(plain.name())} has branches or tags that would keep plaintext snapshots: {', '.join(others)}; "
                "remove them, or give drop_refs=True"
            )
        self._files = self._live_files()

    def run(self, dry_run: bool, spark: SparkSession | None, workers: int | None) -> Migrated:
        """Encrypt the files and commit."""
        planned = Migrated(len(self._files), sum(file.file_size_in_bytes for file in self._files.values()))
        if dry_run:
            return planned
        self._io.manager.check_usable(self._metadata.key_ring)
        resumed, swaps = self._encrypted(spark, workers)
        snapshot_id = self._commit(swaps)
        self._journal.remove()
        return replace(planned, resumed=resumed, snapshot_id=snapshot_id)

    def _live_files(self) -> dict[str, DataFile]:
        """Return the files to encrypt, by location. Positional deletes are not among them: they become deletion vectors."""
        snapshot = self._plain.metadata.current_snapshot()
        if snapshot is None:
            return {}
        files: dict[str, DataFile] = {}
        for _, entries in plain_manifests(self._plain.metadata, snapshot, self._plain.io):
            for file in (entry.data_file for entry in entries):
                if file.content == DataFileContent.POSITION_DELETES:
                    continue
                if file.file_format not in KNOWN_FORMATS:
                    raise FormatError(
                        f"{file.file_path}: {file.file_format.value} files cannot be in an encrypted table; "
                        "rewrite the table's data as Parquet first"
                    )
                files[file.file_path] = file
        return files

    def _encrypted(self, spark: SparkSession | None, workers: int | None) -> tuple[int, dict[str, EncryptedDataFile]]:
        """Return how many files earlier runs had done, and what takes the place of each file."""
        swaps = {location: new for location, new in self._journal.load().items() if location in self._files}
        resumed = len(swaps)

        def work_of(file: DataFile) -> FileWork[MigrateWork]:
            return migrate_work(file, self._io.manager.data_key_length)

        runner = runner_for(self._table, spark, workers)
        make_new_files(self._files, swaps, runner, migrate_file, work_of, self._journal, VERB, self._progress)
        return resumed, swaps

    def _commit(self, swaps: Mapping[str, EncryptedDataFile]) -> int | None:
        before = self._plain.metadata
        set_properties = {name: value for name, value in self._metadata.properties.items() if before.properties.get(name) != value}
        updates: tuple[TableUpdate, ...] = EncryptTableUpdate(), SetPropertiesUpdate(updates=set_properties)
        requirements: tuple[TableRequirement, ...] = (AssertTableUUID(uuid=before.table_uuid),)
        snapshot_id: int | None = None
        if before.current_snapshot() is not None:
            producer = self._table.transaction().update_snapshot({}, MAIN_BRANCH).producer(MigrationSnapshot, Operation.REPLACE)
            producer.of_plain(before, self._plain.io).swap(swaps)
            produced, required = producer.produce()
            updates, requirements, snapshot_id = (*updates, *produced), (*requirements, *required), producer.snapshot_id
        statistics = tuple(RemoveStatisticsUpdate(snapshot_id=each.snapshot_id) for each in before.statistics)
        of_partitions = tuple(RemovePartitionStatisticsUpdate(snapshot_id=each.snapshot_id) for each in before.partition_statistics)
        removed = plain_snapshot_ids(self._metadata.snapshots)
        history = (RemoveSnapshotsUpdate(snapshot_ids=removed),) if removed else ()
        self._plain.catalog.commit_table(self._plain, requirements, (*updates, *statistics, *of_partitions, *history))
        return snapshot_id
