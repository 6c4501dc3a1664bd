"""Dropping an encrypted table together with its files, so that it can be continued when the store fails.

Which files a table has is written in its encrypted manifests, so they are listed first, by a client that has the keys, and each level is
deleted only when the level below is gone:

    data and delete files → manifests → manifest lists, statistics → older metadata, oldest first → current metadata → the catalog's entry

Until the last step the catalog still finds the table, so a purge that failed is finished by another one: what is missing then was deleted
before, together with all that it named. The files of expired snapshots are found through the older metadata that listed them.

What is deleted, files/deletion.py decides: what lies outside the table's folders, such as what add_files took in, stays and is listed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.concurrent import ExecutorFactory

from tablecrypt.errors import (
    AuthenticationError,
    FormatError,
    KeyIdChangedError,
    KeyNotFoundError,
    KmsAccessDeniedError,
    PlaintextRefusedError,
    PurgeIncompleteError,
    TablecryptError,
    TamperedFileError,
    with_sentence,
)
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.table._pyiceberg.statistics import statistics_locations
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata, read_named_metadata_file
from tablecrypt.table.shares import SharedFiles, deleting_io, readably_named
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import name_of

logger = logging.getLogger(__name__)

A = TypeVar("A")
B = TypeVar("B")

_UNREADABLE: Final = (AuthenticationError, FormatError, KeyIdChangedError, KeyNotFoundError, KmsAccessDeniedError, PlaintextRefusedError)
"""What reading an older metadata file, or what it names, may raise where the file was edited."""


@dataclass(frozen=True)
class Purged:
    """What a purge of an encrypted table deleted, and what it left.

    Attributes:
        table: the table's name.
        deleted: how many files are gone, those of an interrupted purge not counted.
        refused: files that the table's metadata names and that stay, because they need not be the table's; with the reason.
        skipped: older metadata files that cannot be read or are another table's, with the problem. They stay, and so does what they alone
            name.
    """

    table: str
    deleted: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def purge(
    table: EncryptedTable,
    drop: Callable[[], None],
    delete_below: Sequence[str] = (),
    skip_unreadable: bool = False,
    break_shares: bool = False,
) -> Purged:
    """Delete a table's files, then drop it.

    Args:
        table: the table as the catalog has it now.
        drop: makes the catalog forget the table.
        delete_below: folders in which the table's files may be deleted, beside those that pinned metadata names.
        skip_unreadable: whether to leave older metadata that cannot be read, or is another table's, with all that it alone names.
        break_shares: whether files go, too, that a live share names.

    Raises:
        SharedFilesError, ShareRecordError: the table has live shares, or their records cannot be read; nothing was deleted.
        ConfigurationError: the table has gc.enabled=false, or neither a pin nor `delete_below` says where it lies; nothing was deleted.
        PurgeIncompleteError: files could not be deleted; the table is still in the catalog, and purging it again continues.
        CommitFailedException: someone committed to the table meanwhile; purging it again deletes those files too.
        TamperedFileError, KeyNotFoundError, KmsError: the table's files cannot be listed; nothing was deleted. Where older metadata is the
            reason, the message names `skip_unreadable`.
    """
    SharedFiles.of(table, break_shares=break_shares).check("live shares would lose files", break_shares=break_shares)
    name, io = name_of(table), deleting_io(table, delete_below, break_shares=True)
    older, skipped = _older_metadata(table, skip_unreadable)
    deletion = _Deletion(name, io)
    named = _Named()
    named.look_into(_snapshots([table.metadata]), io)
    # Older metadata repeats most snapshots of the current one, whose lists are read already.
    expired = [each for each in _snapshots(older.values()) if each.manifest_list not in named.lists]
    with _naming_the_way_around(table):
        named.look_into(expired, io, skipped if skip_unreadable else None)
    deletion.delete(named.data_files)
    deletion.delete(record.location for record in readably_named(table.metadata).values())
    deletion.delete(named.manifests)
    deletion.delete({*named.lists, *statistics_locations(table.metadata)})
    deletion.delete_in_order(older)
    # The last look before the catalog's pointer leads nowhere: files of a commit since would never be found again.
    _check_unchanged(table)
    deletion.delete_in_order([table.metadata_location])
    drop()
    for location, reason in {**deletion.refused, **skipped}.items():
        logger.warning("%s was purged, but %s stays: %s", name, location, reason)
    return Purged(name, deletion.deleted, deletion.refused, skipped)


def _older_metadata(table: EncryptedTable, skip_unreadable: bool) -> tuple[dict[str, TableMetadata], dict[str, str]]:
    """Every older metadata file that is still there, oldest first; and those that were skipped, with the problem.

    Each file names a limited number of those before it, so their logs are followed.
    """
    found: dict[str, TableMetadata] = {}
    skipped: dict[str, str] = {}
    seen = {table.metadata_location}
    io = table.io
    waiting = [entry.metadata_file for entry in table.metadata.metadata_log]

    while waiting:
        location = waiting.pop()
        if location in seen:
            continue

        seen.add(location)

        try:
            metadata = read_named_metadata_file(io.inner, location, io.own_folders).parse()
            # The log is plaintext: an edited one must not have another table's files deleted.
            if metadata.table_uuid != table.metadata.table_uuid:
                name = name_of(table)
                raise TamperedFileError(location, f"the metadata log of {name} names it, but it is another table's metadata")
        except FileNotFoundError:
            logger.debug("%s was deleted before", location)
            continue
        except (FormatError, TamperedFileError) as error:
            if not skip_unreadable:
                raise _advised(error, table) from error
            skipped[location] = error.what if isinstance(error, TamperedFileError) else str(error)
            continue

        found[location] = metadata
        waiting += [entry.metadata_file for entry in metadata.metadata_log]

    # Oldest first, as they are deleted: the log of a newer file leads a second purge to the older ones that are left.
    return dict(sorted(found.items(), key=lambda each: each[1].last_updated_ms)), skipped


@contextmanager
def _naming_the_way_around(table: EncryptedTable) -> Iterator[None]:
    """Have the errors of reading older metadata, and what it names, say how a purge gets through nevertheless."""
    try:
        yield
    except _UNREADABLE as error:
        raise _advised(error, table) from error


def _advised(error: TablecryptError, table: EncryptedTable) -> TablecryptError:
    advice = (
        "An older metadata file of the table leads to it. If somebody edited that file, or its snapshots were shredded, "
        f"catalog.purge_files({name_of(table)!r}, skip_unreadable=True) leaves what cannot be read, with all that it alone names, "
        "and lists it"
    )
    return with_sentence(error, advice)


class _Named:
    """What snapshots name: manifest lists, manifests, data and delete files."""

    def __init__(self) -> None:
        self.lists: set[str] = set()
        self.manifests: set[str] = set()
        self.data_files: set[str] = set()

    def look_into(self, snapshots: Sequence[EncryptedSnapshot], io: EncryptingFileIO, skipped: dict[str, str] | None = None) -> None:
        """Take in what snapshots name.

        Args:
            snapshots: of one or more metadata files.
            io: the table's.
            skipped: takes in the manifest lists of snapshots that cannot be read, with the problem; None to raise it.
        """
        rows: dict[str, ManifestFile] = {}
        for snapshot, manifests in _read(_manifests, snapshots, io, skipped is not None):
            if isinstance(manifests, Exception):
                _note(skipped, snapshot.manifest_list, manifests)
            else:
                self.lists.add(snapshot.manifest_list)
                rows.update({manifest.manifest_path: manifest for manifest in manifests if manifest.manifest_path not in self.manifests})

        for manifest, paths in _read(_paths, list(rows.values()), io, skipped is not None):
            if isinstance(paths, Exception):
                _note(skipped, manifest.manifest_path, paths)
            else:
                self.manifests.add(manifest.manifest_path)
                self.data_files.update(paths)


def _read(
    read: Callable[[A, EncryptingFileIO], list[B]], things: Sequence[A], io: EncryptingFileIO, may_fail: bool
) -> Iterator[tuple[A, list[B] | Exception]]:
    """Read things in parallel; yield each with what it holds, or with why it cannot be read where that may be."""

    def attempt(each: A) -> list[B] | Exception:
        try:
            return read(each, io)
        except _UNREADABLE as error:
            if not may_fail:
                raise
            return error

    return zip(things, _parallel(attempt, things), strict=True)


def _note(skipped: dict[str, str] | None, location: str, error: Exception) -> None:
    assert skipped is not None
    skipped[location] = f"{type(error).__name__}: {error}"


def _snapshots(versions: Iterable[TableMetadata]) -> list[EncryptedSnapshot]:
    """Return every snapshot once. Two that differ in their manifest list alone are two: one of the files may have been edited."""
    snapshots: dict[tuple[int, str], EncryptedSnapshot] = {}
    for metadata in versions:
        if isinstance(metadata, EncryptedTableMetadata):
            snapshots.update({(snapshot.snapshot_id, snapshot.manifest_list): snapshot for snapshot in metadata.snapshots})
    return list(snapshots.values())


def _manifests(snapshot: EncryptedSnapshot, io: EncryptingFileIO) -> list[ManifestFile]:
    try:
        return snapshot.manifests(io)
    except (FileNotFoundError, KeyNotFoundError) as error:
        # `erase` takes the keys of snapshots out of older metadata when their files are gone. A list that is there and has no key stops the
        # purge: what it names would be left behind unseen. One that is gone names nothing more, with its key or without it.
        if isinstance(error, KeyNotFoundError) and _may_exist(io, snapshot.manifest_list):
            raise
        logger.debug("%s was deleted before", snapshot.manifest_list)
        return []


def _paths(manifest: ManifestFile, io: EncryptingFileIO) -> list[str]:
    try:
        return [entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io, discard_deleted=False)]
    except FileNotFoundError:
        logger.debug("%s was deleted before", manifest.manifest_path)
        return []


def _check_unchanged(table: EncryptedTable) -> None:
    location = table.catalog.load_table(table.name()).metadata_location
    if location != table.metadata_location:
        raise CommitFailedException(f"{name_of(table)} was committed to while it was purged ({location}): purge it again")


class _Deletion:
    """Deletes the files of one table, and keeps what was refused.

    Args:
        name: the table's.
        io: deletes what is below the table's folders, and nothing else.
    """

    def __init__(self, name: str, io: EncryptingFileIO) -> None:
        self._name = name
        self._io = io
        self.deleted = 0
        self.refused: dict[str, str] = {}

    def delete(self, locations: Iterable[str]) -> None:
        """Delete files, in any order. PurgeIncompleteError when the store did not delete all of them."""
        allowed = []
        for location in locations:
            if (reason := self._io.deletable.reason_against(location)) is None:
                allowed.append(location)
            else:
                self.refused[location] = reason

        outcomes = list(_parallel(self._delete_one, allowed))
        self.deleted += outcomes.count(None)
        # All files of a level are tried before an error is raised, so that a second purge has less to do.
        problems = [outcome for outcome in outcomes if isinstance(outcome, tuple)]
        if problems:
            raise PurgeIncompleteError(self._name, dict(problems))

    def delete_in_order(self, locations: Iterable[str]) -> None:
        """Delete one by one and stop at the first failure: what comes later is needed to find it again."""
        for location in locations:
            self.delete([location])

    def _delete_one(self, location: str) -> tuple[str, str] | Literal["gone"] | None:
        """Return None for a file that was deleted, "gone" for one that was not there, else what the store said."""
        try:
            self._io.delete(location)
        except FileNotFoundError:
            return "gone"
        except Exception as error:  # noqa: BLE001
            # Every store has errors of its own; all of them are reported together.
            return (location, f"{type(error).__name__}: {error}") if _may_exist(self._io, location) else "gone"

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
