"""What goes once no branch or tag needs it: snapshots, their files, their keys, and what older metadata files say of them.

expire    the snapshots leave the metadata; older metadata files still lead to them, so that a killed run's work is found
delete    their files, those that name others last; then folders of partitions that are empty
shred     their keys
metadata  older files that say which partitions a snapshot changed, where these are of columns of the filter
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyiceberg.table.metadata import TableMetadata

from tablecrypt.errors import ConfigurationError
from tablecrypt.files.deletion import LOCAL, ParsedLocation, place_of
from tablecrypt.files.raw_output import TABLE_METADATA_SUFFIXES
from tablecrypt.maintenance._shred import shred
from tablecrypt.maintenance._shred_scrub import NOT_NAMED_SO, OF_ANOTHER, forget_in_log
from tablecrypt.maintenance._storage import delete_checksums, older_metadata
from tablecrypt.maintenance.erasure.plan import Searching
from tablecrypt.maintenance.expiry import still_needed
from tablecrypt.maintenance.operation import Counted, ProgressListener, reload
from tablecrypt.table.shares import deleting_io
from tablecrypt.table.table import EncryptedExpireSnapshots, EncryptedTable
from tablecrypt.table.table_files import TableFileIO, heads_of

logger = logging.getLogger(__name__)

_PARTITION_SUMMARY: Final = "partitions."


@dataclass
class Removed:
    """What went, and what did not.

    Attributes:
        snapshots: ids of snapshots, expired ones too.
        retired_keks: key-ids of KEKs.
        deleted: files that are gone, with their lengths where these are known.
        metadata_rewritten: older metadata files that were written over without keys.
        refused: files that stay because they need not be the table's, with the reason.
        failed: files that stay because the store let them not be deleted or written over, with what it said.
    """

    snapshots: set[int] = field(default_factory=set)
    retired_keks: set[str] = field(default_factory=set)
    deleted: dict[str, int] = field(default_factory=dict)
    metadata_rewritten: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def remove(
    searching: Searching, field_ids: Collection[int], delete_below: Sequence[str], progress: ProgressListener, break_shares: bool
) -> Removed:
    """Remove the snapshots that are suspect, but for those that a branch or tag points to: others have committed these meanwhile.

    Args:
        searching: the table after its branches and tags were changed.
        field_ids: the columns that the filter compares.
        delete_below: folders that the caller names as the table's.
        progress: listener for reports of the files and metadata files.
        break_shares: whether files go, too, that a live share names.

    Raises:
        FormatError: what remains cannot be read, so that nothing is deleted.
        CommitFailedException: other writers committed first, several times in a row.
    """
    table, removed = searching.table, Removed()
    # Others may have pointed a branch or tag there since. A head cannot expire, and the search at the end reports what it holds.
    pointed_to = heads_of(table.metadata)
    removed.snapshots |= searching.suspects - pointed_to

    if removed.snapshots:
        # Before the commit, which takes the table's statistics out of the metadata with the snapshots.
        statistics = _statistics_of(table.metadata, removed.snapshots)
        if expiring := removed.snapshots & searching.current_ids:
            transaction = table.transaction()
            with transaction:
                EncryptedExpireSnapshots(transaction=transaction).by_ids(sorted(expiring)).commit()

        table = reload(table)
        # Files before keys: once the keys are gone, no manifest that opens says which files these are.
        io = deleting_io(table, delete_below, break_shares=break_shares)
        _delete_files(searching, table, statistics, io, removed, progress)
        _shred(table, removed, delete_below, progress)

    table = reload(table)
    io = deleting_io(table, delete_below, break_shares=break_shares)
    _delete_metadata(table, field_ids, io, removed)
    _remove_empty_folders(io, removed)

    return removed


def unneeded_files(searching: Searching, snapshot_ids: Collection[int], needed: Iterable[str]) -> list[str]:
    """Return the files that only these snapshots name: data and delete files first, then manifests, then lists.

    Args:
        searching: the table.
        snapshot_ids: the snapshots that go.
        needed: locations of the files of those that stay.
    """
    kept, named = {place_of(location) for location in needed}, searching.named
    lists, manifests = set(named.lists.values()), set(named.entries)
    unneeded = [location for location in named.locations_of(snapshot_ids) if place_of(location) not in kept]
    return sorted(unneeded, key=lambda location: (location in lists, location in manifests, location))


def _delete_files(
    searching: Searching, table: EncryptedTable, statistics: Iterable[str], io: TableFileIO, removed: Removed, progress: ProgressListener
) -> None:
    needed = still_needed(table)
    places = set(map(place_of, needed))
    unneeded = [each for each in statistics if place_of(each) not in places]
    unneeded += unneeded_files(searching, removed.snapshots, needed)
    for location in Counted("erase: files deleted", "files", progress).track(unneeded):
        _delete(io, location, searching.named.length_of(location), removed)


def _delete(io: TableFileIO, location: str, length: int, removed: Removed) -> bool:
    if (reason := io.deletable.reason_against(location)) is not None:
        removed.refused[location] = reason
        return False

    try:
        io.delete(location)
    except FileNotFoundError:
        logger.debug("%s is gone already: its snapshot was expired before, or a run was killed", location)
    except Exception as error:  # noqa: BLE001  every store has errors of its own; all of them are reported together
        removed.failed[location] = f"{type(error).__name__}: {error}"
        return False
    else:
        removed.deleted[location] = length

    # Also where the file was gone: a run may have been killed between the two deletions.
    delete_checksums(io, location)
    return True


def _remove_empty_folders(io: TableFileIO, removed: Removed) -> None:
    """Remove empty folders that are named for a partition, "customer_id=7", on a local disk: other stores have no folders."""
    for folder in (*io.deletable.folders, *io.deletable.named):
        try:
            root = ParsedLocation.of(folder)
        except ConfigurationError:
            # A location that cannot be parsed allows no deletion (files/deletion.py), so it allows none of folders either.
            continue

        if root.store != LOCAL:
            continue

        # From the bottom up: a folder may be empty only once the folders in it are gone.
        for path, _, _ in os.walk(root.local_path, topdown=False):
            if "=" in Path(path).name and not os.listdir(path):
                try:
                    Path(path).rmdir()
                except OSError as error:
                    removed.failed[f"{path}/"] = f"{type(error).__name__}: {error.strerror}"


def _shred(table: EncryptedTable, removed: Removed, delete_below: Sequence[str], progress: ProgressListener) -> None:
    # What shares name of these files was looked into before.
    shredded = shred(table, sorted(removed.snapshots), progress=progress, delete_below=delete_below, break_shares=True)
    removed.snapshots |= set(shredded.expired_before)
    removed.retired_keks |= set(shredded.retired_keks)
    removed.metadata_rewritten += shredded.rewritten
    removed.deleted |= dict.fromkeys(shredded.deleted, 0)
    removed.refused |= shredded.refused
    removed.failed |= shredded.left


def _delete_metadata(table: EncryptedTable, field_ids: Collection[int], io: TableFileIO, removed: Removed) -> None:
    """Delete older metadata files that name partitions by columns of the filter, and those that a killed run has half written over."""
    sources = {each.source_id for spec in table.metadata.partition_specs for each in spec.fields}
    names_partitions = not sources.isdisjoint(field_ids)
    current = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    gone = []

    for older in older_metadata(table):
        # The log says that the file was the table's. Half a file that no log names may be a commit that is being written.
        halved = older.metadata is None and older.is_logged and older.problem
        if halved and not older.location.endswith(TABLE_METADATA_SUFFIXES):
            removed.refused[older.location] = NOT_NAMED_SO
            continue
        if older.is_of_another:
            removed.refused[older.location] = OF_ANOTHER
            continue
        # Summaries are plaintext, and scrubbing keys leaves them in the file: it has to go. So has one from before the table had keys.
        tells = names_partitions and older.parsed is not None and any(_tells_partitions(older.parsed, current))
        if (halved or tells) and _delete(io, older.location, 0, removed):
            gone.append(older.location)

    if gone:
        removed.metadata_rewritten = [location for location in removed.metadata_rewritten if location not in gone]
        forget_in_log(table, gone)


def _tells_partitions(metadata: TableMetadata, current: Collection[int]) -> Iterator[bool]:
    """Yield for each snapshot that the table has no more whether its summary names partitions."""
    for snapshot in metadata.snapshots:
        # A snapshot that stays shows its partitions in the current metadata as well, whatever becomes of older files.
        if snapshot.snapshot_id not in current and snapshot.summary is not None:
            properties: dict[str, Any] = snapshot.summary.additional_properties
            yield any(name.startswith(_PARTITION_SUMMARY) for name in properties)


def _statistics_of(metadata: TableMetadata, snapshot_ids: Collection[int]) -> list[str]:
    return [each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics) if each.snapshot_id in snapshot_ids]
