"""What a table was before it was encrypted, as far as it is still stored: found through its last plain metadata, deleted, and listed.

    deleted   data and delete files, then manifests, then manifest lists, so that a run that is killed finds the rest again
    listed    files under the table's location that the encrypted table does not name, but for those that begin as ciphertext; metadata
              files of the plain table, which say its schema and the partitions that its snapshots changed; earlier versions of objects in
              a bucket that keeps them

Copies outside the table's location, backups and caches cannot be seen from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pyiceberg.table.metadata import TableMetadata

from tablecrypt import properties as names
from tablecrypt.errors import MissingExtraError
from tablecrypt.maintenance.audit.heads import Seal, read_heads
from tablecrypt.maintenance.encrypted import table_io
from tablecrypt.maintenance.object_versions import object_versions
from tablecrypt.maintenance.orphan_files import known_locations
from tablecrypt.maintenance.reachable import FileKind, reachable_files
from tablecrypt.maintenance.stored_files import canonical, delete_checksums, stored_files
from tablecrypt.table.encrypted_table import EncryptedTable
from tablecrypt.table.metadata_file import read_metadata_file
from tablecrypt.table.table_file_io import TableFileIO

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


def delete_plaintext_of(table: EncryptedTable) -> int:
    """Delete every file that the table's last plain metadata names, and return how many were there."""
    metadata = _last_plain_metadata(table)
    if metadata is None:
        return 0
    io = table_io(table)
    kept = {canonical(location) for location in known_locations(table)}
    files = sorted(reachable_files(metadata, io.inner).files.values(), key=lambda file: _LAST_DELETED.get(file.kind, 0))
    statistics = [each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics)]
    return sum(_delete(io, location) for location in (*statistics, *(file.location for file in files)) if canonical(location) not in kept)


def plaintext_left(table: EncryptedTable) -> Iterator[PlaintextLeft]:
    """Yield what may still be there in plaintext."""
    io = table_io(table).inner
    location = table.location().rstrip("/")
    plain_metadata = {canonical(each) for each in _plain_metadata_locations(table)}
    known = {canonical(each) for each in known_locations(table)} - plain_metadata
    unknown = []
    for file in stored_files(io, location):
        if canonical(file.location) in plain_metadata:
            yield PlaintextLeft(file.location, file.size, "metadata of the time before it was encrypted")
        elif canonical(file.location) not in known:
            unknown.append(file)
    heads = read_heads(io, (file.location for file in unknown))
    for file in unknown:
        seal = heads[file.location].seal
        if not seal.is_ciphertext and seal != Seal.EMPTY:
            yield PlaintextLeft(file.location, file.size, "a file that the table does not name")
    try:
        for version in object_versions(io, location):
            yield PlaintextLeft(version.location, version.size, f"version {version.version_id} of an object that was deleted or replaced")
    except (MissingExtraError, OSError) as error:
        yield PlaintextLeft(location, 0, f"whether the bucket keeps earlier versions of objects could not be found out: {error}")


def _delete(io: TableFileIO, location: str) -> int:
    try:
        io.delete(location)
    except FileNotFoundError:
        return 0
    finally:
        delete_checksums(io, location)
    return 1


def _plain_metadata_locations(table: EncryptedTable) -> Iterable[str]:
    return [location for location, metadata in _metadata_log(table) if names.KEY_ID.name not in metadata.properties]


def _last_plain_metadata(table: EncryptedTable) -> TableMetadata | None:
    return next((metadata for _, metadata in _metadata_log(table) if names.KEY_ID.name not in metadata.properties), None)


def _metadata_log(table: EncryptedTable) -> Iterator[tuple[str, TableMetadata]]:
    """Yield earlier metadata, the newest first, as far as it is still stored."""
    for entry in reversed(table.metadata.metadata_log):
        try:
            file = read_metadata_file(table.io.new_input(entry.metadata_file))
        except FileNotFoundError:
            continue
        yield entry.metadata_file, file.parse()
