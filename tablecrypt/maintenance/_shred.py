"""Crypto-shredding: putting snapshots, or a whole table, out of reach by destroying the keys that lead to them.

    1  find       which files go out of reach, and which stay because live snapshots share them
       (heads     where asked for: heads of branches whose manifests hold DEKs of such files get successors that do not, and go as well)
    2  commit     the doomed snapshots leave the metadata; the live ones' keys are sealed under a new KEK; the old KEKs go
    3  scrub      every older metadata file that can still be read is written over without the dead KEKs, or deleted
    4  look       again at what is there; until nothing holds a dead KEK

Before 2, nothing has changed. After it, the table is as it will be, and each run finds and scrubs what still holds a KEK that the table has
no more: a run that was killed is finished by the next one, called the same way.

Heads of branches stand in the way where their manifests hold the DEKs of files that they deleted:

    branch ─▶ head H, whose manifests name file A as deleted          A's DEK is in H, and H is live
    branch ─▶ head H', the same rows, A named nowhere ─▶ parent H     now H can be shredded too

H' says in its summary whose place it took, so that a run that was killed in between is finished by the next.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any, Final, cast
from urllib.parse import urlsplit

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import RemoveSnapshotRefUpdate, RemoveSnapshotsUpdate, TableUpdate

from tablecrypt.arguments import checked_arguments, described
from tablecrypt.errors import ConfigurationError, MissingExtraError
from tablecrypt.files.raw_output import TABLE_METADATA_SUFFIXES
from tablecrypt.maintenance._key_commit import commit_keys, removed_keys
from tablecrypt.maintenance._key_rotation import Rotator
from tablecrypt.maintenance._shred_files import Inventory, InventoryTaker, Scrubbed, dead_keks, forget_in_log, holders, scrub
from tablecrypt.maintenance._storage import OlderMetadata, object_versions, older_metadata
from tablecrypt.maintenance._tables import encrypted, encrypted_metadata_of, name_of, newest, table_io
from tablecrypt.maintenance.progress import Counted, ProgressListener, VerbResult, unheard
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata
from tablecrypt.table.snapshots import EncryptedManifestCleaning
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import deleting_io

logger = logging.getLogger(__name__)

REPLACES: Final = "tablecrypt.replaces-snapshot-id"


def replaced_before(table: EncryptedTable) -> frozenset[int]:
    """Return the ids of the snapshots whose places heads of branches took, as far as no branch or tag points to them."""
    metadata = encrypted_metadata_of(table)
    pointed_to = {ref.snapshot_id for ref in metadata.refs.values()}
    heads = (metadata.snapshot_by_id(snapshot_id) for snapshot_id in pointed_to)
    marks = {str(head.summary[REPLACES]) for head in heads if head is not None and head.summary is not None and head.summary[REPLACES]}
    present = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    return frozenset(int(mark) for mark in marks if mark.isdigit() and int(mark) in present - pointed_to)


def put_in_place_of_heads(table: EncryptedTable, holding: Collection[int]) -> None:
    """Put a snapshot of the same rows in the place of each head among these, but for those that a tag points to as well.

    Raises CommitFailedException when others were faster again and again: some heads may be replaced.
    """
    tagged = {ref.snapshot_id for ref in table.metadata.refs.values() if ref.snapshot_ref_type == SnapshotRefType.TAG}
    for branch, ref in list(table.metadata.refs.items()):
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH and ref.snapshot_id in holding and ref.snapshot_id not in tagged:
            _replace(table, branch, ref.snapshot_id)


def _replace(table: EncryptedTable, branch: str, head: int) -> None:
    transaction = table.transaction()
    with transaction, transaction.update_snapshot({REPLACES: str(head)}, branch).producer(EncryptedManifestCleaning, Operation.REPLACE):
        logger.info("%s: a snapshot of the same rows takes the place of %s on %s", ".".join(table.name()), head, branch)


_ROUNDS: Final = 5


@dataclass(frozen=True)
class Shredded(VerbResult):
    """What `shred` did, and what it could not do.

    Attributes:
        snapshots: ids of the snapshots that were to be shredded.
        expired_before: ids of other snapshots that were no longer in the table, whose keys older metadata files had and that went too.
        dead_keks: key-ids of the KEKs that are gone.
        rewritten: metadata files that were written over without dead keys.
        deleted: files with dead keys that were deleted.
        left: files that still hold dead keys because the store let them be neither rewritten nor deleted, with what it said.
        refused: files that hold, or may hold, dead keys and were not touched, because they need not be the table's; with the reason.
        not_found: ids of snapshots that neither the table nor any metadata file that it left behind knows.
        shredded_files: data and delete files that nothing in the table opens any more. They are still stored, as noise:
            `remove_orphan_files` deletes them.
        live_files: files of the shredded snapshots that stay readable because live snapshots share them.
        still_opened: files of the shredded snapshots that no live snapshot has, but whose DEKs live snapshots' manifests hold, as deleted
            entries; with the ids of those snapshots. `replace_heads` ends that for heads of branches; shred the others too.
        unknown: ids of shredded snapshots whose files are not known, since their keys were gone before.
        outside: what may still open the shredded snapshots elsewhere, and what ends that.
    """

    snapshots: tuple[int, ...]
    expired_before: tuple[int, ...] = ()
    dead_keks: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    left: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    not_found: tuple[int, ...] = ()
    shredded_files: tuple[str, ...] = ()
    live_files: tuple[str, ...] = ()
    still_opened: dict[str, tuple[int, ...]] = field(default_factory=dict)
    unknown: tuple[int, ...] = ()
    outside: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether all snapshots were found, something of them became unreadable, and no file that the table knows still leads to it."""
        return self.is_effective and not (self.left or self.refused or self.still_opened or self.not_found)

    @property
    def is_effective(self) -> bool:
        """Whether a file became unreadable by it, or by the run before; not where live snapshots share all that the shredded ones held."""
        return bool(self.shredded_files or self.unknown)

    def to_json(self) -> dict[str, Any]:
        """Return all fields, and whether that is all, as JSON's types."""
        return {**super().to_json(), "effective": self.is_effective, "complete": self.is_complete}


@checked_arguments(but=("snapshots",), formerly={"confirm": "whole_table"})
def shred(
    table: Table,
    snapshots: Sequence[int] | None = None,
    whole_table: str = "",
    replace_heads: bool = False,
    dry_run: bool = False,
    progress: ProgressListener = unheard,
    delete_below: Sequence[str] = (),
) -> Shredded:
    """Put snapshots of an encrypted table, or all of it, out of reach for good.

    Old snapshots are what a delete leaves behind: the rows are in them until their keys are gone. Shredding takes the keys, so it need not
    reach the data files, which may be in places that nothing reaches. With them goes every snapshot that the table expired before.

    It does NOT delete a data file. It does NOT reach copies of metadata files elsewhere (backups, replicas, object versions), nor DEKs that
    somebody read before; the result says which. It does NOT change the master key: as long as that is there, a copy of an old metadata file
    opens what it opened. Rolling a table back to older metadata is no longer possible, and a client that reads at an older metadata file
    finds the live snapshots only.

    Writers of this package, and of Iceberg Java on a Hive catalog, may go on meanwhile. On a REST server a writer that began before may
    bring an old KEK back with its snapshot: call `shred` again after it.

    Args:
        table: an encrypted table. Its state in memory is brought up to date.
        snapshots: ids of the snapshots, in the table still or expired; by default the whole table, which is empty afterwards.
        whole_table: the table's name once more, "namespace.name", where the whole table goes.
        replace_heads: whether to put a snapshot of the same rows in the place of each branch's head that holds DEKs of files which it
            deleted, and shred that head too. After rows were deleted or files rewritten, the snapshot that did it is such a head.
        dry_run: only find what would go.
        progress: hears of the snapshots that were looked into, and of the files that were written over or deleted.
        delete_below: folders in which the table's metadata files may be written over or deleted, beside those that pinned metadata names.

    Raises:
        ConfigurationError: the table is not encrypted, an id is no number, a branch or tag points to a snapshot, a whole table is not
            confirmed, or neither a pin nor `delete_below` says where the table lies.
        KeyNotFoundError, AuthenticationError: a live snapshot cannot be read: nothing has changed; `rescue` may help.
        KmsError: the KMS refused; nothing has changed.
        CommitFailedException: others committed too often meanwhile; nothing has changed.
    """
    name = name_of(encrypted(table))
    if snapshots is not None and not snapshots:
        raise ConfigurationError("snapshots is empty: name those to shred, or leave it out and give whole_table")
    if snapshots is None and whole_table != name and not dry_run:
        raise ConfigurationError(f"this destroys all of {name} for good: give whole_table={name!r}")
    shredding = _Shredding(table, None if snapshots is None else _ids(snapshots), progress, delete_below)
    if not dry_run:
        shredding.check_place()
    if replace_heads:
        shredding.take_along(replaced_before(newest(table)))
    found = shredding.find()
    if replace_heads and found.still_opened and not dry_run:
        put_in_place_of_heads(newest(table), {holder for ids in found.still_opened.values() for holder in ids})
        shredding.take_along(replaced_before(newest(table)))
        found = shredding.find()
    if dry_run:
        return shredding.result(found, Scrubbed(), dry_run=True)
    return shredding.result(found, shredding.destroy(), dry_run=False)


def _ids(snapshots: Sequence[int]) -> frozenset[int]:
    """Return snapshot ids as a set. The name of a tag is none, nor is an id in quotes: nothing would be shredded by it."""
    try:
        return frozenset(index(each) for each in snapshots)
    except TypeError:
        raise ConfigurationError(f"snapshots is {described(snapshots)}; it must be a list of snapshot ids, whole numbers") from None


@dataclass(frozen=True)
class _Plan:
    updates: tuple[TableUpdate, ...]


class _Shredding:
    """One shredding of one table.

    Args:
        table: the caller's.
        doomed: ids of snapshots; None for all.
        progress: hears of each step.
        delete_below: folders that the caller names.
    """

    def __init__(self, table: Table, doomed: frozenset[int] | None, progress: ProgressListener, delete_below: Sequence[str]) -> None:
        self._table = table
        self._doomed = doomed
        self._delete_below = delete_below
        self._not_found: tuple[int, ...] = ()
        self._dead: set[str] = set()
        self._gone: set[int] = set()
        self._asked: tuple[int, ...] = ()
        self._expired_before: tuple[int, ...] = ()
        self._rotator = Rotator()
        self._looked_into = Counted("shred: snapshots", "snapshots", progress)
        self._scrubbed = Counted("shred: metadata files", "files", progress)

    def check_place(self) -> None:
        """Raise ConfigurationError where nothing says that the table lies where its metadata says."""
        deleting_io(newest(self._table), self._delete_below)

    def take_along(self, snapshot_ids: frozenset[int]) -> None:
        """Shred further snapshots, too."""
        if self._doomed is not None:
            self._doomed |= snapshot_ids

    def find(self) -> Inventory:
        """Find what goes, before anything has changed; remember which KEKs that takes."""
        table = newest(self._table)
        current = encrypted_metadata_of(table)
        self._check_refs(current)
        older = list(older_metadata(table))
        doomed = self._doomed_snapshots(current, older)
        asked = frozenset(doomed) if self._doomed is None else self._doomed
        self._asked, self._expired_before = tuple(sorted(asked)), tuple(sorted(doomed.keys() - asked))
        self._dead = dead_keks(current, older)
        if self._must_rotate(current, older):
            self._dead |= {kek.key_id for kek in current.key_ring.keks}
        inventory = InventoryTaker(table_io(table), self._looked_into).take(list(doomed.values()), self._live(current))
        self._not_found = tuple(sorted(asked - doomed.keys()))
        return inventory

    def destroy(self) -> Scrubbed:
        """Take the keys out of the table, and then out of everything beside it."""
        scrubbed = Scrubbed()
        for _ in range(_ROUNDS):
            commit_keys(self._table, self._plan)
            # What comes into a table that was shredded whole is new, and stays.
            self._doomed = frozenset(self._gone) if self._doomed is None else self._doomed
            fresh = newest(self._table)
            gone = self._dead - {kek.key_id for kek in encrypted_metadata_of(fresh).key_ring.keks}
            again = scrub(fresh, gone, deleting_io(fresh, self._delete_below), self._scrubbed)
            scrubbed.rewritten += [each for each in again.rewritten if each not in scrubbed.rewritten]
            scrubbed.deleted += again.deleted
            scrubbed.left = again.left
            scrubbed.refused.update(again.refused)
            if again.deleted:
                forget_in_log(fresh, again.deleted)
            elif not again.rewritten:
                break
        return scrubbed

    def result(self, found: Inventory, scrubbed: Scrubbed, dry_run: bool) -> Shredded:
        """Return what was done; in a dry run, what would be rewritten."""
        fresh = newest(self._table)
        held = [file.location for file in holders(fresh, self._dead)] if dry_run else []
        scope = table_io(fresh).deletable.and_below(self._delete_below)
        refused = {location: reason for location in held if (reason := scope.reason_against(location)) is not None}
        held = [location for location in held if location not in refused]
        if dry_run and self._dead & {kek.key_id for kek in encrypted_metadata_of(fresh).key_ring.keks}:
            held.append(fresh.metadata_location)
        return Shredded(
            table=name_of(self._table),
            dry_run=dry_run,
            snapshots=self._asked,
            expired_before=self._expired_before,
            dead_keks=tuple(sorted(self._dead)),
            rewritten=tuple(held if dry_run else scrubbed.rewritten),
            deleted=tuple(scrubbed.deleted),
            left=scrubbed.left,
            refused=refused if dry_run else scrubbed.refused,
            not_found=self._not_found,
            shredded_files=found.shredded,
            live_files=found.live,
            still_opened=found.still_opened,
            unknown=found.unknown,
            outside=_outside(fresh),
        )

    def _plan(self, table: EncryptedTable) -> _Plan:
        current = encrypted_metadata_of(table)
        self._check_refs(current)
        gone = [snapshot.snapshot_id for snapshot in current.snapshots if self._is_doomed(snapshot)]
        if not gone and not self._dead & {kek.key_id for kek in current.key_ring.keks}:
            return _Plan(())
        self._gone |= set(gone)
        # Named one by one, so that pins know that branches are to end here and were not cut off by somebody.
        ended = (RemoveSnapshotRefUpdate(ref_name=name) for name, ref in current.refs.items() if ref.snapshot_id in gone)
        removed = (*ended, cast("TableUpdate", RemoveSnapshotsUpdate(snapshot_ids=gone))) if gone else ()
        live = self._live(current)
        if not live:
            self._dead |= {kek.key_id for kek in current.key_ring.keks}
            return _Plan((*removed, *removed_keys(key.key_id for key in current.encryption_keys)))
        rotation = self._rotator.plan(table, live)
        # Of others' KEKs too, that were made since the search.
        self._dead |= set(rotation.old_keks)
        return _Plan((*removed, *rotation.updates))

    def _must_rotate(self, current: EncryptedTableMetadata, older: Iterable[OlderMetadata]) -> bool:
        """Whether a KEK of the current metadata opens more than the live snapshots."""
        if any(self._is_doomed(snapshot) for snapshot in current.snapshots):
            return True
        keks = {kek.key_id for kek in current.key_ring.keks}
        files = [current, *(file.metadata for file in older if file.metadata is not None)]
        live = {snapshot.key_id for snapshot in self._live(current)}
        return any(key.encrypted_by_id in keks and key.key_id not in live for file in files for key in file.encryption_keys)

    def _doomed_snapshots(self, current: EncryptedTableMetadata, older: Iterable[OlderMetadata]) -> dict[int, EncryptedSnapshot]:
        """Return the snapshots that go, each of the newest file that names it together with its key, else of the newest that names it."""
        live = {snapshot.snapshot_id for snapshot in self._live(current)}
        doomed: dict[int, EncryptedSnapshot] = {}
        with_key: set[int] = set()
        for metadata in (current, *(file.metadata for file in older if file.metadata is not None)):
            ring = metadata.key_ring
            for snapshot in metadata.snapshots:
                # One without a key-id is of a time before the table was encrypted: there is no key to destroy.
                if snapshot.key_id is None or snapshot.snapshot_id in live or snapshot.snapshot_id in with_key:
                    continue
                if snapshot.key_id in ring:
                    with_key.add(snapshot.snapshot_id)
                if snapshot.key_id in ring or snapshot.snapshot_id not in doomed:
                    doomed[snapshot.snapshot_id] = snapshot
        return doomed

    def _live(self, current: EncryptedTableMetadata) -> list[EncryptedSnapshot]:
        return [snapshot for snapshot in current.snapshots if not self._is_doomed(snapshot)]

    def _is_doomed(self, snapshot: EncryptedSnapshot) -> bool:
        return self._doomed is None or snapshot.snapshot_id in self._doomed

    def _check_refs(self, current: EncryptedTableMetadata) -> None:
        if self._doomed is None:
            return
        for name, ref in current.refs.items():
            if ref.snapshot_id in self._doomed:
                raise ConfigurationError(
                    f"{name_of(self._table)}: {ref.snapshot_ref_type} {name} points to snapshot {ref.snapshot_id}: "
                    "commit to it or remove it before the snapshot is shredded"
                )


def _outside(table: EncryptedTable) -> tuple[str, ...]:
    """Say what may still open shredded snapshots, which nothing in the table can tell or change."""
    master_key = table_io(table).manager.table_key_id
    return (
        f"A copy of an older metadata file (backup, replica, file system snapshot) opens what it opened for whoever may use {master_key}. "
        "Destroying that key ends it: relocate the table under another key first.",
        _versions(table),
        "A process that has read the snapshots may hold their keys in memory, KEKs for encryption.kms.cache-ttl-ms; "
        "a DEK that somebody kept opens its file wherever a copy of that file is.",
    )


def _versions(table: EncryptedTable) -> str:
    scheme = urlsplit(table.location()).scheme
    folder = f"{table.location().rstrip('/')}/metadata"
    if scheme in ("", "file", "hdfs"):
        return f"Snapshots and backups of the file system that holds {folder} are not known here."
    try:
        found = [
            each.location for each in object_versions(table_io(table).inner, folder) if each.location.endswith(TABLE_METADATA_SUFFIXES)
        ]
    except (MissingExtraError, OSError) as error:
        return f"Whether the bucket keeps older versions of {folder} is not known: {error}"
    if found:
        return (
            f"The bucket keeps {len(found)} older versions of metadata files below {folder}, which hold dead keys: delete those versions."
        )
    return f"The bucket keeps no older version of the metadata files below {folder}, as far as it tells; replicas of it are not known here."
