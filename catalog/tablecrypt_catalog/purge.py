"""Dropping an encrypted table together with its files, so that it can be continued when the store fails.

Which files a table has is written in its encrypted manifests, so they are listed first, by a client that has the keys, and each level is
deleted only when the level below is gone:

    data and delete files → manifests → manifest lists, statistics → older metadata, oldest first → current metadata → the catalog's entry

Until the last step the catalog still finds the table, so a purge that failed is finished by another one: what is missing then was deleted
before, together with all that it named. The files of expired snapshots are found through the older metadata that listed them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar, cast

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.concurrent import ExecutorFactory

from tablecrypt.errors import PurgeIncompleteError, TamperedFileError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.table.encrypted_table import EncryptedTable
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata
from tablecrypt.table.metadata_file import read_metadata_file

logger = logging.getLogger(__name__)

A = TypeVar("A")
B = TypeVar("B")


def purge(table: EncryptedTable, drop: Callable[[], None]) -> None:
    """Delete a table's files, then drop it.

    Args:
        table: the table as the catalog has it now.
        drop: makes the catalog forget the table.

    Raises:
        PurgeIncompleteError: files could not be deleted; the table is still in the catalog, and purging it again continues.
        CommitFailedException: someone committed to the table meanwhile; purging it again deletes those files too.
        TamperedFileError, KeyNotFoundError, KmsError: the table's files cannot be listed; nothing was deleted.
    """
    name, io = ".".join(table.name()), cast(EncryptingFileIO, table.io)
    older = _older_metadata(table)
    snapshots = _snapshots([*older.values(), table.metadata])
    lists = _parallel(lambda each: _manifests(each, io), snapshots)
    manifests = {manifest.manifest_path: manifest for listed in lists for manifest in listed}
    data_files = {path for paths in _parallel(lambda each: _paths(each, io), manifests.values()) for path in paths}
    _delete(name, io, data_files)
    _delete(name, io, manifests)
    _delete(name, io, {*(snapshot.manifest_list for snapshot in snapshots), *_statistics(table.metadata)})
    _delete_in_order(name, io, older)
    _check_unchanged(table)
    _delete_in_order(name, io, [table.metadata_location])
    drop()


def _older_metadata(table: EncryptedTable) -> dict[str, TableMetadata]:
    """Every older metadata file that is still there, oldest first. Each names only so many before it, so their logs are followed."""
    found: dict[str, TableMetadata] = {}
    seen = {table.metadata_location}
    waiting = [entry.metadata_file for entry in table.metadata.metadata_log]
    while waiting:
        location = waiting.pop()
        if location in seen:
            continue
        seen.add(location)
        try:
            metadata = read_metadata_file(table.io.new_input(location)).parse()
        except FileNotFoundError:
            logger.debug("%s was deleted before", location)
            continue
        if metadata.table_uuid != table.metadata.table_uuid:
            raise TamperedFileError(location, f"the metadata log of {'.'.join(table.name())} names it, but it is another table's metadata")
        found[location] = metadata
        waiting += [entry.metadata_file for entry in metadata.metadata_log]
    return dict(sorted(found.items(), key=lambda each: each[1].last_updated_ms))


def _snapshots(versions: Iterable[TableMetadata]) -> list[EncryptedSnapshot]:
    snapshots: dict[int, EncryptedSnapshot] = {}
    for metadata in versions:
        if isinstance(metadata, EncryptedTableMetadata):
            snapshots.update({snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots})
    return list(snapshots.values())


def _manifests(snapshot: EncryptedSnapshot, io: FileIO) -> list[ManifestFile]:
    try:
        return snapshot.manifests(io)
    except FileNotFoundError:
        logger.debug("%s was deleted before", snapshot.manifest_list)
        return []


def _paths(manifest: ManifestFile, io: FileIO) -> list[str]:
    try:
        return [entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io, discard_deleted=False)]
    except FileNotFoundError:
        logger.debug("%s was deleted before", manifest.manifest_path)
        return []


def _statistics(metadata: TableMetadata) -> Iterator[str]:
    """Statistics files below the table's location. Nothing authenticates their names, so others are left alone."""
    for statistics in (*metadata.statistics, *metadata.partition_statistics):
        if statistics.statistics_path.startswith(f"{metadata.location}/"):
            yield statistics.statistics_path


def _check_unchanged(table: EncryptedTable) -> None:
    location = table.catalog.load_table(table.name()).metadata_location
    if location != table.metadata_location:
        raise CommitFailedException(f"{'.'.join(table.name())} was committed to while it was purged ({location}): purge it again")


def _delete(name: str, io: EncryptingFileIO, locations: Iterable[str]) -> None:
    problems = [problem for problem in _parallel(lambda location: _delete_one(io, location), locations) if problem is not None]
    if problems:
        raise PurgeIncompleteError(name, dict(problems))


def _delete_in_order(name: str, io: EncryptingFileIO, locations: Iterable[str]) -> None:
    """Delete one by one and stop at the first failure: what comes later is needed to find it again."""
    for location in locations:
        _delete(name, io, [location])


def _delete_one(io: EncryptingFileIO, location: str) -> tuple[str, str] | None:
    try:
        io.delete(location)
    except FileNotFoundError:
        logger.debug("%s was deleted before", location)
    except Exception as error:  # noqa: BLE001
        # Every store has errors of its own; all of them are reported together.
        return (location, f"{type(error).__name__}: {error}") if _may_exist(io, location) else None
    return None


def _may_exist(io: EncryptingFileIO, location: str) -> bool:
    """Whether a file whose delete failed is there. Most that fail in a second purge were deleted in the first."""
    try:
        return io.raw_input(location).exists()
    except Exception as error:  # noqa: BLE001
        logger.debug("%s: whether it exists is not known: %s", location, error)
        return True


def _parallel(function: Callable[[A], B], arguments: Iterable[A]) -> Iterator[B]:
    return ExecutorFactory.get_or_create().map(function, arguments)
