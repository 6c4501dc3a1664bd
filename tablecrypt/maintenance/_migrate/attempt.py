"""One attempt to migrate one state of a plain table: its files encrypted, and committed in its place or as a table beside it.

    in place       version 3, encryption.key-id, the keys, one snapshot, and no snapshot from before: one commit of the table's catalog
    as another     metadata of the same schemas, partition specs, sort orders and properties, with a UUID, a location and one snapshot
                   of its own, registered under the new name

Sequence numbers, row ids, partition specs and statistics of the files stay in both, and the snapshot has the rows of the last plain one.
Each file is encrypted under a DEK of its own, without decoding a value (`write_again`); ORC is rewritten as Parquet, since encrypted tables
hold no ORC.

Plain manifests are read with every field of version 3: those of versions 1 and 2 by PyIceberg's own readers, those of version 3 by ours
without the decryption, because PyIceberg's drop row ids and the offsets of deletion vectors.

Positional deletes of any kind become deletion vectors; equality deletes stay what they are, since sequence numbers do. Row ids of a
version 3 table stay; rows of earlier versions get theirs now. What was plain is named nowhere.

Every row of an ORC file stays at its position, those that position deletes name too, so that deletes and row ids still refer to the same
rows. The columns are those of the table's current schema.

Raises FormatError for bytes that are no manifest list or manifest, and for an ORC file that does not hold as many rows as its manifest
says, or columns of other types than the table; ConfigurationError for an ORC file with encrypted columns.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Any, ClassVar, Final, cast

import fastavro
import pyarrow as pa
import pyarrow.orc as pyarrow_orc
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import FileScanTask, Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import (
    AssertTableUUID,
    RemovePartitionStatisticsUpdate,
    RemoveSnapshotRefUpdate,
    RemoveStatisticsUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError, TablecryptError
from tablecrypt.files.deletion import NOTHING, DeletionScope
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.maintenance._file_rewrite import FileRewrite, Journal, NewFileWork, done_files, new_files, replacement_entry, write_again
from tablecrypt.maintenance._relocate_files import PathMap
from tablecrypt.maintenance.operation import ProgressListener
from tablecrypt.maintenance.runner import FileDone, FileWork, Runner
from tablecrypt.manifests.manifest_file import inherit, parse_manifest
from tablecrypt.manifests.manifest_list import parse_manifest_list
from tablecrypt.manifests.records import DATA_FILE_POSITIONS, FORMAT_VERSION, EncryptedDataFile, is_deletion_vector
from tablecrypt.orc.source import FileSource
from tablecrypt.orc.tail import read_tail
from tablecrypt.table._pyiceberg.arrow import PlainScan, check_types, read_plain_deletes, stored_schema
from tablecrypt.table.datasets.castable import cast_batch
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.foreign_engines import location_provider
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata, write_metadata_file
from tablecrypt.table.parquet_options import with_target_file_size
from tablecrypt.table.replace_files import BaseManifest, EncryptedFileSwap
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import FreshKeys, RunNames, TableFileIO, delete_files, folders_of, folders_written
from tablecrypt.table.updates import EncryptTableUpdate, RemoveUnnamedSnapshotsUpdate
from tablecrypt.table.write import write_data_files

OPERATION: Final = "migrate"
_ANY_NAME: Final = "file.parquet"
_NAMESPACE: Final = uuid.UUID("0d1c6f57-8a43-5b0e-9c72-4f2ab6e1d935")
_ONE_FILE: Final = 2**62
_PARTITION: Final = DATA_FILE_POSITIONS["partition"]


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
        self.files = self._live_files(self._manifests)

    @staticmethod
    def uuid_beside(plain: Table, location: str) -> uuid.UUID:
        """Return the table-uuid of the table beside a plain one: the same for one state of that, so that a finished run is known again."""
        return uuid.uuid5(_NAMESPACE, f"{plain.metadata.table_uuid} {plain.metadata.current_snapshot_id} {location}")

    def check(self) -> None:
        """Check the key, and what the ends of ORC files say, as a run does before it reads their rows.

        Raises:
            ConfigurationError, FormatError: a run would refuse a file.
            KmsError: the KMS refused the key.
        """
        self._io.manager.check_usable(self._metadata.key_ring)
        for file in (entry.data_file for manifest in self._manifests for entry in manifest.entries):
            if file.content == DataFileContent.POSITION_DELETES:
                _check_has_no_masks(self._plain.io, file)
            elif file.file_format == FileFormat.ORC:
                _check_orc_file(self._plain.io, self._metadata, file)

    def encrypt(self, runner: Runner, progress: ProgressListener) -> tuple[int, dict[str, EncryptedDataFile]]:
        """Return how many files earlier runs had done, and for each file of the plain table the one that takes its place.

        Raises:
            KmsError: the KMS refused the key; nothing was written.
        """
        self._io.manager.check_usable(self._metadata.key_ring)
        journal = migration_journal(self.table)
        earlier = {location: new for location, new in journal.load().items() if location in self.files}
        # Beside old files too, in folders that the caller gave.
        written = folders_written(self._metadata, *self._folders.folders, *self._folders.named)
        rewrite = FileRewrite(self.table, journal, OPERATION, runner, progress, written, done=dict(earlier))
        key_length = self._io.manager.data_key_length

        def copied(file: DataFile) -> FileWork[NewFileWork]:
            return FileWork(NewFileWork.of(file, self._folder_for(file.file_path), key_length, rewrite.names), size=file.file_size_in_bytes)

        def rewritten(file: DataFile) -> FileWork[RewriteOrcWork]:
            return rewrite_orc_work(file, self._metadata, key_length, rewrite.names)

        orc = {location: file for location, file in self.files.items() if file.file_format == FileFormat.ORC}
        others = {location: file for location, file in self.files.items() if location not in orc}
        rewrite.write(others, partial(migrate_file, mapping=self._metadata.name_mapping()), copied, replacement_entry)
        rewrite.write(orc, rewrite_orc_file, rewritten, partial(rewritten_entry, self._metadata), phase=": ORC")

        return len(earlier), rewrite.done

    def commit_in_place(self, encrypted: Mapping[str, EncryptedDataFile]) -> int | None:
        """Commit, and return the id of the snapshot; None for a table without any.

        Raises:
            CommitFailedException: somebody else committed to the plain table meanwhile.
            FormatError: the store names other files of the plain snapshot now than those that were encrypted; nothing was committed.
        """
        self._check_named_alike()
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
            # Those that were to go alone: a tag that somebody has made meanwhile stops the commit.
            *(RemoveSnapshotRefUpdate(ref_name=name) for name in before.refs if name != MAIN_BRANCH),
            *((RemoveUnnamedSnapshotsUpdate(snapshot_ids=removed),) if removed else ()),
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

    def _check_named_alike(self) -> None:
        """Refuse to go on where plain manifests, which nothing authenticates, read otherwise than before: what they name is deleted."""
        try:
            now = self._live_files([BaseManifest(*each) for each in self._plain_manifests()])
        except FileNotFoundError:
            # Others have committed and expired the snapshot meanwhile: the commit is refused, and the next attempt is about theirs.
            return
        if other := sorted(now.keys() ^ self.files.keys()):
            raise FormatError(
                f"{other[0]}: is among the files of the plain snapshot by one reading of its manifests, and not by another: the store gave "
                "two answers, so nothing was committed or deleted. Run migrate again once it gives one"
            )

    def _live_files(self, manifests: Iterable[BaseManifest]) -> dict[str, DataFile]:
        """Return the files to encrypt, by location. Positional deletes are not among them: they become deletion vectors."""
        entries = (entry for manifest in manifests for entry in manifest.entries)
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


def migrate_file(
    io: EncryptingFileIO, work: NewFileWork, keys: tuple[StandardKeyMetadata, ...], mapping: NameMapping | None = None
) -> FileDone[str]:
    """Write the encrypted file and return its location and key metadata, which knows the file's length.

    A Parquet file that has no field ids gets those of the mapping, for good: nothing authenticates the table's property, and whoever
    changes it later would have columns of the file read as others, or as none.
    """
    return write_again(io, work, None, mapping)


def plain_manifests(metadata: TableMetadata, snapshot: Snapshot, io: FileIO) -> Iterator[tuple[ManifestFile, list[ManifestEntry]]]:
    """Yield each manifest of a plain snapshot with its live entries, complete with all that they inherit.

    Args:
        metadata: of the plain table.
        snapshot: one of its snapshots.
        io: the plain table's.
    """
    if metadata.format_version < FORMAT_VERSION:
        with _read_by_pyiceberg(snapshot.manifest_list):
            manifests = snapshot.manifests(io)
        for manifest in manifests:
            with _read_by_pyiceberg(manifest.manifest_path):
                entries = manifest.fetch_manifest_entry(io, discard_deleted=True)
            yield manifest, entries
        return

    for row in parse_manifest_list(_stored(io, snapshot.manifest_list), snapshot.manifest_list).manifests:
        entries = parse_manifest(_stored(io, row.manifest_path), row.manifest_path, row.content).entries
        inherit(entries, row, row.first_row_id, encrypted=False)
        yield row, [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]


@contextmanager
def _read_by_pyiceberg(location: str) -> Iterator[None]:
    try:
        yield
    except (OSError, TablecryptError):
        raise
    except Exception as error:  # PyIceberg's reader raises whatever the bytes lead it to
        raise FormatError(f"{location}: cannot be read as a manifest list or manifest: {type(error).__name__}: {error}") from error


def _stored(io: FileIO, location: str) -> bytes:
    with io.new_input(location).open() as stream:
        return stream.read()


class MigrationSnapshot(EncryptedFileSwap):
    """A file swap whose base is a plain snapshot.

    Args:
        manifests: the plain snapshot's, with their live entries.
        plain_io: the plain table's FileIO.
    """

    records_dropped: ClassVar[bool] = False

    def __init__(self, *, manifests: Iterable[BaseManifest], plain_io: FileIO, **options: Any) -> None:
        super().__init__(**options)
        self._plain_manifests = list(manifests)
        self._plain_io = plain_io
        self._read_deletes: dict[str, dict[str, list[int]]] = {}

    def base_manifests(self) -> Iterable[BaseManifest]:
        """Return the plain snapshot's, without those that name only files which are gone."""
        return [manifest for manifest in self._plain_manifests if manifest.entries]

    def deleted_positions(self, data_file: DataFile, deletes: set[DataFile]) -> Iterable[int]:
        """Return the positions that plain delete files name. A deletion vector says all that there is to say."""
        vectors = {file for file in deletes if is_deletion_vector(file)}
        positions: set[int] = set()
        for file in vectors or deletes:
            if file.file_path not in self._read_deletes:
                self._read_deletes[file.file_path] = self._positions_by_path(file)
            positions.update(self._read_deletes[file.file_path].get(data_file.file_path, ()))

        return sorted(positions)

    def _positions_by_path(self, file: DataFile) -> dict[str, list[int]]:
        _check_has_no_masks(self._plain_io, file)
        if file.file_format != FileFormat.AVRO:
            return {path: positions.to_pylist() for path, positions in read_plain_deletes(self._plain_io, file).items()}

        by_path: dict[str, list[int]] = defaultdict(list)
        with self._plain_io.new_input(file.file_path).open() as stored:
            records = cast("Iterator[dict[str, Any]]", fastavro.reader(BytesIO(stored.read())))
            for record in records:
                by_path[record["file_path"]].append(record["pos"])

        return by_path


@dataclass(frozen=True)
class RewriteOrcWork:
    """The file's entry, the metadata of its table to be, without history, how many bytes the DEK has, and the names of new files."""

    entry: bytes
    metadata_json: str
    data_key_length: int
    names: RunNames


def rewrite_orc_work(file: DataFile, metadata: EncryptedTableMetadata, data_key_length: int, names: RunNames) -> FileWork[RewriteOrcWork]:
    """Return the work of rewriting one file."""
    entry = FileEntryCodec(metadata).encode_files([file])
    work = RewriteOrcWork(entry, metadata.without_history().model_dump_json(), data_key_length, names)
    return FileWork(work, size=file.file_size_in_bytes)


def rewrite_orc_file(io: EncryptingFileIO, work: RewriteOrcWork, keys: tuple[StandardKeyMetadata, ...]) -> FileDone[bytes]:
    """Write the encrypted file; the result is its entry without the key, in no partition."""
    metadata = EncryptedTableMetadata.model_validate_json(work.metadata_json)
    [old] = FileEntryCodec(metadata).decode_files(work.entry)
    _check_orc_file(io.inner, metadata, old)
    one_file = with_target_file_size(_unpartitioned(metadata), _ONE_FILE)
    files = write_data_files(one_file, _rows(metadata, io, old), io, FreshKeys(work.data_key_length), work.names.new_uuid())
    if [file.record_count for file in files] != [old.record_count]:
        delete_files(io, files)
        raise _other_rows(old, sum(file.record_count for file in files))

    return done_files(FileEntryCodec(one_file), files)


def _check_orc_file(io: FileIO, metadata: EncryptedTableMetadata, file: DataFile) -> None:
    """Check what the end of an ORC file says of its columns and rows.

    Raises:
        ConfigurationError: it has encrypted columns.
        FormatError: it has other rows than its manifest says, or columns that are not read as the table's.
    """
    _check_has_no_masks(io, file)
    with io.new_input(file.file_path).open() as source:
        try:
            opened = pyarrow_orc.ORCFile(source)
        except pa.ArrowException as error:
            raise FormatError(f"{file.file_path}: pyarrow does not read this ORC file ({error})") from error
        if opened.nrows != file.record_count:
            raise _other_rows(file, opened.nrows)
        schema = opened.schema.serialize().to_pybytes()

    stored = stored_schema(schema, metadata.properties.get(TableProperties.DEFAULT_NAME_MAPPING), file.file_path)
    check_types(metadata.schema(), stored, file.file_path)


def _other_rows(file: DataFile, found: int) -> FormatError:
    return FormatError(f"{file.file_path}: holds {found} rows, its manifest says {file.record_count}")


def _check_has_no_masks(io: FileIO, file: DataFile) -> None:
    """Raise ConfigurationError for an ORC file with encrypted columns."""
    if file.file_format != FileFormat.ORC:
        return

    with io.new_input(file.file_path).open() as stored, FileSource(stored, file.file_path) as source:
        # Without their keys such columns are read as masks, without an error: those would stay, and the file with the values would go.
        if read_tail(source).encryption is not None:
            raise ConfigurationError(
                f"{file.file_path}: an ORC file with encrypted columns, of which a migration sees masks alone; write it again without "
                "ORC's encryption first"
            )


def rewritten_entry(metadata: EncryptedTableMetadata, file: DataFile, done: FileDone[bytes]) -> EncryptedDataFile:
    """Return the new file's entry, in the partition of the old one."""
    _ = done.key  # an error where it is not one file with one key
    [new] = new_files(FileEntryCodec(_unpartitioned(metadata)), done)
    new[_PARTITION] = file.partition
    new.spec_id = file.spec_id
    return new


def _rows(metadata: EncryptedTableMetadata, io: EncryptingFileIO, file: DataFile) -> pa.RecordBatchReader:
    arrow_schema = schema_to_pyarrow(metadata.schema(), include_field_ids=False)

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for batch in PlainScan(metadata, io.inner).to_record_batches([FileScanTask(file)]):
                yield cast_batch(batch, arrow_schema)
        except pa.ArrowInvalid as error:
            raise FormatError(
                f"{file.file_path}: pyarrow does not read this ORC file, which may have moments before 1677-09-22 or after 2262-04-11, or "
                "text that is not UTF-8: write its rows again as Parquet, by the engine that wrote it, and migrate then"
            ) from error

    return pa.RecordBatchReader.from_batches(arrow_schema, batches())


def _unpartitioned(metadata: EncryptedTableMetadata) -> EncryptedTableMetadata:
    spec = UNPARTITIONED_PARTITION_SPEC
    return metadata.model_copy(update={"partition_specs": [spec], "default_spec_id": spec.spec_id})
