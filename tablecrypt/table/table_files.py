"""The files of one encrypted table: the FileIO that reaches them, what a write that failed leaves of them, and new ones of workers.

PyIceberg hands a table's FileIO to everything that reads or writes for the table, so the encryption manager travels with it. A pickled
copy, for a worker process, holds the KMS client's configuration and no key.

A worker of an engine or of maintenance decides where in the table its file goes, as only it knows the rows. The driver commits what it
reports, or deletes it after an error. So the names of all files of a run have something in common that no file from before has:

    uuid in a name = half of the run (8 random bytes, chosen by the driver) | 8 random bytes, fresh for each attempt of a worker

With such a name, each once, and in the folders that the run writes to, a file that a worker reports is at most a new one.

Iceberg table spec, "Manifests" (data_file) and "Encryption".
"""

from __future__ import annotations

import logging
import secrets
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, runtime_checkable

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import AuthenticationError, ConfigurationError
from tablecrypt.files.deletion import NOTHING, DeletionScope
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, EncryptingOutputFile, ReadRestrictions
from tablecrypt.iceberg_properties import GC_ENABLED, OF_PLACES
from tablecrypt.keys.column_keys import ColumnKeys, ColumnPolicy
from tablecrypt.keys.key_ring import KeyRing
from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.keys.table_column_keys import TableColumnKeys
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.printable import printable
from tablecrypt.table.foreign_engines import PropertiesForOthers

WRITE_PATHS: Final = tuple(each.name for each in OF_PLACES)
HALF_LENGTH: Final = 8
NOT_COMMITTED: Final = (CommitFailedException, ValidationException)
"""What a commit raises when it is certain that nothing was committed: its files may be deleted, and after no other error."""
_HALF_TEXT: Final = len("00000000-0000-0000")

logger = logging.getLogger(__name__)


def name_of(table: Table) -> str:
    """Return how results and errors name a table: with the name under which its catalog loaded it, namespaces first."""
    return ".".join(table.name())


class TableFileIO(EncryptingFileIO):
    """EncryptingFileIO of one table, with the manager that makes its DEKs and opens its manifest lists.

    Args:
        inner: does the storing.
        manager: the table's.
        own_folders: below which folders the table's files are, as its metadata says.
        deletable: below which folders it deletes files that it did not write itself: none where nothing pins the table's metadata.
        read_restrictions: what readers of the table's rows have to apply.
    """

    def __init__(
        self,
        inner: FileIO,
        manager: EncryptionManager,
        own_folders: DeletionScope = NOTHING,
        deletable: DeletionScope = NOTHING,
        read_restrictions: ReadRestrictions | None = None,
    ) -> None:
        super().__init__(inner, read_restrictions)
        self.properties = PropertiesForOthers.of(inner.properties, "the table's FileIO")
        self.manager = manager
        self.own_folders = own_folders
        self.deletable = deletable

    def __reduce__(  # type: ignore[override]
        self,
    ) -> tuple[type[TableFileIO], tuple[FileIO, EncryptionManager, DeletionScope, DeletionScope, ReadRestrictions | None]]:
        return TableFileIO, (self.inner, self.manager, self.own_folders, self.deletable, self.read_restrictions)

    def deleting_below(self, locations: Iterable[str]) -> TableFileIO:
        """Return the same with further folders below which it deletes.

        Raises:
            ConfigurationError: a location cannot be a table's folder.
        """
        return self._deleting(self.deletable.and_below(locations))

    def deleting_in(self, folder: str) -> TableFileIO:
        """Return the same with a folder of the table in which it deletes, though not what belongs to a table that lies there too."""
        return self._deleting(replace(self.deletable, folders=(*self.deletable.folders, folder)))

    def keeping(self, reasons: Mapping[str, str]) -> TableFileIO:
        """Return the same, which does not delete these files, by location, each for a reason."""
        return self._deleting(self.deletable.keeping(reasons))

    def _deleting(self, scope: DeletionScope) -> TableFileIO:
        return TableFileIO(self.inner, self.manager, self.own_folders, scope, self.read_restrictions)

    def of_one_query(self) -> TableFileIO:
        """Return the same for the reads of one query, which all mask a value alike."""
        restrictions = None if self.read_restrictions is None else self.read_restrictions.of_query()
        return TableFileIO(self.inner, self.manager, self.own_folders, self.deletable, restrictions)

    def column_keys(self, policy: ColumnPolicy, ring: KeyRing) -> ColumnKeys:
        """Return what makes and opens the keys of protected columns."""
        return TableColumnKeys(self.manager.columns, policy, ring)

    def new_encrypted_output(self, location: str) -> EncryptingOutputFile:
        """Return an AGS1 output under a fresh DEK and AAD prefix."""
        return self.encrypting_output(location, self.manager.new_key_metadata())


@runtime_checkable
class OpensColumnKeys(Protocol):
    """A FileIO through which protected columns are read and written: a TableFileIO, or that of a worker process."""

    def column_keys(self, policy: ColumnPolicy, ring: KeyRing) -> ColumnKeys:
        """Return what makes and opens the keys of protected columns.

        Args:
            policy: the table's, with the columns of earlier schemas.
            ring: the keys of the version of the metadata that is read or written.
        """


@runtime_checkable
class KnowsOtherNames(Protocol):
    """A catalog that can tell whether it has a table under several names."""

    def other_names(self, table: Table) -> Sequence[str]:
        """Return the other names of a table."""


def check_garbage_is_collected(table: Table, otherwise: str = "") -> None:
    """Refuse to delete files of a table, encrypted or not, that other tables may need. Every operation that deletes some asks here first.

    As in Iceberg Java, write.metadata.delete-after-commit.enabled goes on: no other table needs a table's older metadata files.

    Args:
        table: as the catalog has it now.
        otherwise: what the caller may do in place of deleting.

    Raises:
        ConfigurationError: gc.enabled is false, or no boolean: a misspelt word may mean either. Or the catalog has the table under another
            name too.
    """
    properties = table.metadata.properties
    if not GC_ENABLED.is_true(properties):
        advice = f"If no other table uses them, set {GC_ENABLED.name}=true{otherwise and '; or '}{otherwise}"
        raise ConfigurationError(
            f"{name_of(table)}: GC is disabled ({GC_ENABLED.name}={GC_ENABLED.read(properties)!r}): deleting files may corrupt "
            f"other tables, so none of its files is deleted or overwritten. {advice}"
        )

    # What is committed under one name is not known under another one, which would take its files for those that nothing needs.
    others = table.catalog.other_names(table) if isinstance(table.catalog, KnowsOtherNames) else ()
    if others:
        raise ConfigurationError(
            f"{name_of(table)}: the catalog has this table as {', '.join(others)} too, which needs the same files, so none of them is "
            "deleted or overwritten: drop the names that are not to stay, without purging, and do it under the one that is left"
        )


def folders_named(metadata: TableMetadata) -> tuple[str, ...]:
    """Return the folders that a table's metadata says its files are in: its location, and those of the properties write.*.path."""
    paths = (metadata.properties.get(name) for name in WRITE_PATHS)
    return (metadata.location, *(str(path) for path in paths if path))


def folders_of(metadata: TableMetadata) -> DeletionScope:
    """Return the same folders, to compare locations with."""
    return DeletionScope(folders_named(metadata))


def live_files(snapshot: Snapshot | None, io: FileIO, content: ManifestContent) -> Iterator[DataFile]:
    """Yield the data files that a snapshot has, or its delete files of every kind; none without a snapshot.

    Raises:
        KmsError, TamperedFileError: its manifests cannot be read.
    """
    for manifest in [] if snapshot is None else snapshot.manifests(io):
        if manifest.content == content:
            yield from (entry.data_file for entry in manifest.fetch_manifest_entry(io, discard_deleted=True))


def heads_of(metadata: TableMetadata) -> set[int]:
    """Return the ids of the snapshots that branches and tags point to."""
    return {ref.snapshot_id for ref in metadata.refs.values()}


class DataKeySource(Protocol):
    """Gives each file its own key: an EncryptionManager, or FreshKeys where none is."""

    def new_key_metadata(self) -> StandardKeyMetadata:
        """Return a DEK and an AAD prefix that no other file has."""


@dataclass(frozen=True)
class FreshKeys:
    """Gives each file its own DEK of `data_key_length` bytes and its own AAD prefix. A worker process needs no KMS for that."""

    data_key_length: int

    def new_key_metadata(self) -> StandardKeyMetadata:
        """Return a DEK and an AAD prefix that no other file has."""
        return StandardKeyMetadata.generate(self.data_key_length, secrets.token_bytes)


def delete_written(io: EncryptingFileIO, locations: Iterable[str]) -> None:
    """Delete files that nothing names, where the store allows it. One that stays holds only ciphertext."""
    for location in locations:
        try:
            io.delete_new(location)
        except FileNotFoundError:
            continue
        except Exception as error:  # noqa: BLE001  the error that made the write fail is the one to raise
            logger.warning("could not delete %s of a failed write: %s", location, type(error).__name__)


@contextmanager
def deleting_on_error(io: EncryptingFileIO, locations: Iterable[str]) -> Iterator[None]:
    """If the block fails, delete these files, which no metadata names yet. They are looked up only then."""
    try:
        yield
    # An interrupt too: no metadata will ever name these files.
    except BaseException:
        delete_written(io, locations)
        raise


def delete_files(io: EncryptingFileIO, files: Iterable[DataFile]) -> None:
    """Delete the files of a failed write, where the store allows it."""
    delete_written(io, [file.file_path for file in files])


@contextmanager
def removing_on_error(io: EncryptingFileIO, files: Sequence[DataFile]) -> Iterator[None]:
    """Delete files that no metadata names yet if the block fails."""
    with deleting_on_error(io, (file.file_path for file in files)):
        yield


def _random_half() -> bytes:
    return secrets.token_bytes(HALF_LENGTH)


@dataclass(frozen=True)
class RunNames:
    """What the names of a run's files have in common. No secret: workers get it with their work."""

    half: bytes = field(default_factory=_random_half)

    def new_uuid(self, random: Callable[[int], bytes] = secrets.token_bytes) -> uuid.UUID:
        """Return a fresh UUID for the names of new files, whose first half is the run's."""
        return uuid.UUID(bytes=self.half + random(HALF_LENGTH))

    def has_made(self, file_name: str) -> bool:
        """Whether there is a UUID of this run in the name of a file: in none from before the run is one."""
        return str(uuid.UUID(bytes=self.half + bytes(HALF_LENGTH)))[:_HALF_TEXT] in file_name


def folders_written(metadata: TableMetadata, *more: str) -> DeletionScope | None:
    """Return the folders that a table's new files go to; None where nothing but its location provider says.

    Args:
        metadata: the table's.
        more: folders that the caller writes to besides.
    """
    # A class of the client's own configuration puts files where it likes.
    if TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL in metadata.properties:
        return None
    return DeletionScope((*folders_named(metadata), *more))


class ReportedFiles:
    """The files that the workers of one run report, each checked as it comes.

    Args:
        names: of the run.
        folders: where its files go; None: anywhere.
    """

    def __init__(self, names: RunNames, folders: DeletionScope | None) -> None:
        self._names = names
        # A table whose location is a whole bucket has no folder that can be told from others.
        self._folders = folders if folders is not None and folders.has_folders else None
        self._seen: set[str] = set()

    def check(self, location: str, worker: str) -> None:
        """Take in a file.

        Args:
            location: of the file, as the worker says it.
            worker: names the worker's task in the error.

        Raises:
            AuthenticationError: no worker of the run wrote it there, or it came before.
        """
        # By its name, since a location can be spelled in several ways.
        name = location.rpartition("/")[2]
        # A file from before would be committed once more, or deleted where the commit fails.
        if name in self._seen or not self._names.has_made(name):
            raise AuthenticationError(f"{printable(location)}: {worker} reports a file that it did not write, or a file twice")
        # Outside it is in the hands of others, and no operation of the table deletes it.
        if self._folders is not None and (reason := self._folders.reason_against(location)) is not None:
            raise AuthenticationError(f"{printable(location)}: {worker} reports a file where none of the table's is written: it {reason}")
        self._seen.add(name)


@dataclass(frozen=True)
class ObsoleteDeletes:
    """Delete files that a snapshot drops: all that are about dropped data files alone, and those named one by one."""

    data_file_paths: frozenset[str]
    files: frozenset[DataFile] = frozenset()

    def __contains__(self, delete_file: EncryptedDataFile) -> bool:
        return delete_file.referenced_data_file in self.data_file_paths or delete_file in self.files

    def __bool__(self) -> bool:
        return bool(self.data_file_paths or self.files)
