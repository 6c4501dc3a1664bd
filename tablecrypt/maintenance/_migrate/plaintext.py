"""What is plain of a table that was migrated: the files that its last plain metadata names, and other plaintext that may be left.

delete    data and delete files, then manifests, then manifest lists, so that a run that is killed finds the rest again; nothing at
          all while a list or manifest cannot be read, since deleting it would lose the way to the files that it names
report    files under the table's location that the encrypted table does not name, but for those that begin as ciphertext; metadata
          files of the plain table, which say its schema and the partitions that its snapshots changed; earlier versions of objects
          in a bucket that keeps them
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.concurrent import ExecutorFactory

from tablecrypt import properties as names
from tablecrypt.errors import FormatError, MissingExtraError
from tablecrypt.files.deletion import DeletionScope, place_of
from tablecrypt.files.stores import stored_files
from tablecrypt.maintenance._audit.file_signatures import Signature, read_file_starts
from tablecrypt.maintenance._orphan_files import known_locations
from tablecrypt.maintenance._storage import delete_checksums, object_versions, read_older
from tablecrypt.maintenance.reachable import FileKind, Unopened, reachable_files
from tablecrypt.printable import bytes_shown
from tablecrypt.table._pyiceberg.statistics import statistics_locations
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import TableFileIO, folders_of, name_of

logger = logging.getLogger(__name__)

_LAST_DELETED: Final = {FileKind.MANIFEST: 1, FileKind.MANIFEST_LIST: 2}


@dataclass(frozen=True)
class PlaintextLeft:
    """A stored object that holds, or may hold, plaintext of the table.

    Attributes:
        location: where it is.
        size: its length in bytes; every one of them may be plaintext.
        what: what it is.
    """

    location: str
    size: int
    what: str

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.location} ({self.what}, {bytes_shown(self.size)})"


@dataclass(frozen=True)
class PlaintextOf:
    """What a plain table's metadata names, data files first: what may be deleted once the table is encrypted, and what stays.

    Attributes:
        deletable: locations, in the order in which they are deleted.
        refused: locations of files that need not be the table's own, with the reason; they stay.
    """

    deletable: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)

    def stored(self, io: FileIO) -> int:
        """Return how many of the deletable files are there."""
        return sum(ExecutorFactory.get_or_create().map(lambda location: io.new_input(location).exists(), self.deletable))

    def delete(self, io: TableFileIO) -> int:
        """Delete what is deletable, and return how many files were there."""
        return sum(_delete(io, location) for location in self.deletable)


def plaintext_of(metadata: TableMetadata, io: FileIO, scope: DeletionScope) -> PlaintextOf:
    """Find every file that a plain table's metadata names.

    Args:
        metadata: of the plain table.
        io: the store's own.
        scope: below which folders files may be deleted.

    Raises:
        FormatError, OSError: a manifest list or manifest is stored and cannot be read, so that the files it names are not known.
    """
    reachable = reachable_files(metadata, io)
    _refuse_unreadable(reachable.unopened)
    files = sorted(reachable.files.values(), key=lambda file: _LAST_DELETED.get(file.kind, 0))
    locations = dict.fromkeys((*statistics_locations(metadata), *(file.location for file in files)))
    refused = {location: reason for location in locations if (reason := scope.reason_against(location)) is not None}
    return PlaintextOf(tuple(location for location in locations if location not in refused), refused)


def plaintext_before(table: EncryptedTable, scope: DeletionScope) -> PlaintextOf:
    """Find what an encrypted table's last plain metadata names and the table does not."""
    metadata = next((metadata for _, metadata in _metadata_log(table) if _is_plain(metadata)), None)
    if metadata is None:
        return PlaintextOf()

    found = plaintext_of(metadata, table.io.inner, scope)
    kept = {place_of(location) for location in known_locations(table)}

    return PlaintextOf(
        tuple(location for location in found.deletable if place_of(location) not in kept),
        {location: reason for location, reason in found.refused.items() if place_of(location) not in kept},
    )


def plaintext_left(table: EncryptedTable, refused: Mapping[str, str]) -> Iterator[PlaintextLeft]:
    """Yield what may still be there in plaintext.

    Args:
        table: the encrypted one.
        refused: files that the plain table named and that were not deleted, with the reason.
    """
    io = table.io.inner
    for named, reason in refused.items():
        with suppress(FileNotFoundError):
            yield PlaintextLeft(named, len(io.new_input(named)), f"a file that the plain table named: it {reason}")
    location = table.location().rstrip("/")
    plain_metadata = {place_of(location) for location, metadata in _metadata_log(table) if _is_plain(metadata)}
    known = {place_of(each) for each in known_locations(table)} - plain_metadata
    unknown = []

    for file in stored_files(io, location):
        if place_of(file.location) in plain_metadata:
            yield PlaintextLeft(file.location, file.size, "metadata from before it was encrypted")
        elif place_of(file.location) not in known:
            unknown.append(file)

    starts = read_file_starts(io, (file.location for file in unknown), folders_of(table.metadata))
    for file in unknown:
        signature = starts[file.location].signature
        if not signature.is_ciphertext and signature != Signature.EMPTY:
            yield PlaintextLeft(file.location, file.size, "a file that the table does not name")

    try:
        for version in object_versions(io, location):
            yield PlaintextLeft(version.location, version.size, f"version {version.version_id} of an object that was deleted or replaced")
    except (MissingExtraError, OSError) as error:
        yield PlaintextLeft(location, 0, f"could not find out whether the bucket keeps earlier versions of objects: {error}")


def _refuse_unreadable(unopened: Iterable[Unopened]) -> None:
    """One that is gone hides nothing: an earlier run deleted what it named before it."""
    for each in unopened:
        if isinstance(each.error, (OSError, FormatError)) and not isinstance(each.error, FileNotFoundError):
            kind = OSError if isinstance(each.error, OSError) else FormatError
            raise kind(
                f"{each.location}: the plain table's {each.kind.value} cannot be read, so that the plaintext files it names are not known; "
                f"none was deleted. Run migrate again when it is readable, or keep the plain files: keep_plaintext=True. ({each.error})"
            ) from each.error


def _delete(io: TableFileIO, location: str) -> int:
    try:
        io.delete(location)
    except FileNotFoundError:
        return 0
    finally:
        delete_checksums(io, location)
    return 1


def _is_plain(metadata: TableMetadata) -> bool:
    """Whether metadata is of a time before the table was encrypted. Another writer may have set encryption.key-id then, too."""
    if not isinstance(metadata, EncryptedTableMetadata) or names.KEY_ID.name not in metadata.properties:
        return True
    return any(snapshot.key_id is None for snapshot in metadata.snapshots)


def _metadata_log(table: EncryptedTable) -> Iterator[tuple[str, TableMetadata]]:
    """Yield earlier metadata of this table that is still stored and readable, the newest first."""
    for entry in reversed(table.metadata.metadata_log):
        found = read_older(table, entry.metadata_file)
        if found is None:
            continue

        if found.error is not None:
            logger.warning("the metadata log of %s names a file that is no metadata of it: %s", name_of(table), found.error)
        if found.parsed is not None:
            yield entry.metadata_file, found.parsed
