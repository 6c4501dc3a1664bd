"""Crypto-shredding: putting snapshots, or a whole table, out of reach by destroying the keys that lead to them.

    1  find       which files go out of reach, and which stay because live snapshots share them
       (heads     where asked for: heads of branches whose manifests hold DEKs of such files get successors that do not, and go as well)
    2  commit     the selected snapshots leave the metadata; the live ones' keys are wrapped under a new KEK; the old KEKs go
    3  scrub      every older metadata file that can still be read is written over without the retired KEKs, or deleted
    4  look       again at what is there; until nothing holds a retired KEK. A file that came after 2, and that no log names, may become the
                  current one: it waits for the next look

Before 2, nothing has changed. After it, the table is as it will be, and each run finds and scrubs what still holds a KEK that the table has
no more: a run that was killed is finished by the next one, called the same way.

Heads of branches stand in the way where their manifests hold the DEKs of files that they deleted:

    branch ─▶ head H, whose manifests name file A as deleted          A's DEK is in H, and H is live
    branch ─▶ head H', the same rows, A named nowhere ─▶ parent H     now H can be shredded too

H' says in its summary whose place it took, so that a run that was killed in between is finished by the next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import ClassVar, Final
from urllib.parse import urlsplit

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import RemoveSnapshotRefUpdate, TableUpdate

from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import ConfigurationError, MissingExtraError
from tablecrypt.files.raw_output import TABLE_METADATA_SUFFIXES
from tablecrypt.keys.key_ring import EncryptedKey
from tablecrypt.maintenance._key_commit import commit_keys
from tablecrypt.maintenance._key_rotation import plan_rotation
from tablecrypt.maintenance._shred_find import Plan, Wanted, find, inspect_older, kek_ids
from tablecrypt.maintenance._shred_scrub import DRY_RUN, Scrubbed, after_scrub, foretold, forget_in_log, not_scrubbed, scrub
from tablecrypt.maintenance._storage import object_versions
from tablecrypt.maintenance.operation import (
    Counted,
    OperationResult,
    ProgressListener,
    metadata_folder,
    no_progress,
    reload,
    require_encrypted,
    snapshot_ids,
)
from tablecrypt.manifests.entries import CACHE
from tablecrypt.printable import counted
from tablecrypt.properties import KMS_CACHE_TTL_MS
from tablecrypt.table.metadata import PARSED
from tablecrypt.table.replace_files import EncryptedManifestCleaning
from tablecrypt.table.shares import SharedFiles, metadata_deleting_io
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import heads_of, name_of
from tablecrypt.table.updates import removed_keys, removed_snapshots

logger = logging.getLogger(__name__)

REPLACES: Final = "tablecrypt.replaces-snapshot-id"

_ROUNDS: Final = 5


@dataclass(frozen=True)
class Shredded(OperationResult):
    """What `shred` did, and what it could not do.

    Attributes:
        snapshots: ids of the snapshots that were to be shredded.
        expired_before: ids of other snapshots that were no longer in the table, whose keys older metadata files had and that went too.
        retired_keks: key-ids of the KEKs that are gone.
        rewritten: metadata files that were written over without retired keys.
        deleted: files with retired keys that were deleted.
        left: files that still hold retired keys because the store let them be neither rewritten nor deleted, with what it said.
        refused: files that hold, or may hold, retired keys and were not touched, because they need not be the table's; with the reason.
        not_found: ids of snapshots that neither the table nor any metadata file that it left behind knows.
        shredded_files: data and delete files that nothing in the table opens any more. They are still stored, as noise:
            `remove_orphan_files` deletes them.
        live_files: files of the shredded snapshots that stay readable because live snapshots share them.
        still_opened: files that no live snapshot has, but whose DEKs live snapshots' manifests hold, as deleted entries; with the ids of
            those snapshots. `replace_heads` ends that for heads of branches; shred the others too.
        unknown: ids of shredded snapshots whose files are not known, since their keys were gone before.
        outside: what may still open the shredded snapshots elsewhere, and what ends that.
        shared: live shares whose holders open shredded files for as long as these are stored, with how many.
    """

    also_says: ClassVar = {"effective": "is_effective", "complete": "is_complete", "incomplete_because": "incomplete_because"}
    snapshots: tuple[int, ...]
    expired_before: tuple[int, ...] = ()
    retired_keks: tuple[str, ...] = ()
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
    shared: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether all snapshots were found, something of them became unreadable, and no file that the table knows still leads to it.

        Also where there was nothing to shred; not after a dry run.
        """
        return not self.incomplete_because

    @property
    def incomplete_because(self) -> tuple[str, ...]:
        """Why it is not complete, in sentences without a full stop; nothing where it is."""
        return tuple(self._open_ends())

    def _open_ends(self) -> Iterator[str]:
        if self.dry_run:
            yield DRY_RUN
        if self.not_found:
            yield f"no metadata names {_snapshots(self.not_found)}"
        if self.still_opened:
            files = counted(len(self.still_opened), "deleted file", "deleted files")
            holders = sorted({each for ids in self.still_opened.values() for each in ids})
            yield (
                f"{files} can still be read with the keys in {_snapshots(holders)}: replace_heads (--replace-heads) puts others in the "
                "place of heads of branches; remove tags, or commit to the branch, and shred the rest too"
            )

        if self.shared:
            yield f"shared files open as before to whom they were shared with: {'; '.join(self.shared)}"

        yield from not_scrubbed(self.left, self.refused)
        if (self.snapshots or self.expired_before) and not (self.is_effective or self.still_opened or self.not_found):
            yield "nothing became unreadable: live snapshots share every file of the shredded ones"

    @property
    def is_effective(self) -> bool:
        """Whether a file became unreadable by it, or by the run before; not where live snapshots share all that the shredded ones held."""
        return bool(self.shredded_files or self.unknown)


@checked_arguments(but=("snapshots",))
def shred(
    table: Table,
    snapshots: Sequence[int] | None = None,
    whole_table: str = "",
    replace_heads: bool = False,
    dry_run: bool = False,
    progress: ProgressListener = no_progress,
    delete_below: Sequence[str] = (),
    all_but_heads: bool = False,
    break_shares: bool = False,
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
        snapshots: ids of the snapshots, in the table still or expired. Exactly one of this, `all_but_heads` and `whole_table` is given.
        whole_table: the table's name once more, "namespace.name", where the whole table goes. It is empty afterwards.
        replace_heads: whether to put a snapshot of the same rows in the place of each branch's head that holds DEKs of files which it
            deleted, and shred that head too. After rows were deleted or files rewritten, the snapshot that did it is such a head.
        dry_run: only find what would go.
        progress: listener for reports of the snapshots that were looked into, and of the files that were written over or deleted.
        delete_below: folders in which the table's metadata files may be written over or deleted, beside those that pinned metadata names.
        all_but_heads: shred every snapshot that no branch or tag points to.
        break_shares: go on where live shares name files that become unreadable: whom they were shared with opens them all the same.

    Raises:
        SharedFilesError, ShareRecordError: live shares do, or their records cannot be read; nothing has changed.
        ConfigurationError: the table is not encrypted, an id is no number, a branch or tag points to a snapshot, it is not said what to
            shred, `whole_table` is another name; or the table has gc.enabled=false, or neither a pin nor `delete_below` says where it lies.
        KeyNotFoundError, AuthenticationError: a live snapshot cannot be read: nothing has changed; `rescue` may help.
        MasterKeyMismatchError: nothing opens, since another master key wrapped the table's KEKs; nothing has changed.
        KmsError: the KMS refused; nothing has changed.
        CommitFailedException: others committed too often in the meantime; nothing has changed.
    """
    name = name_of(require_encrypted(table))
    _check_choice(name, snapshots, whole_table, all_but_heads, replace_heads)
    tracked = Counted("shred: snapshots", "snapshots", progress)
    fresh = reload(table)
    # Fixed as ids now, so that a snapshot which others commit meanwhile is not among them.
    wanted = Wanted.all_but_heads(fresh) if all_but_heads else Wanted(None if snapshots is None else snapshot_ids(snapshots))
    if not dry_run:
        # Refused before the commit: otherwise the keys would leave the metadata and stay in files that may not be touched.
        metadata_deleting_io(fresh, delete_below)
    if replace_heads:
        # Heads that a run which was killed has replaced already: their successors say so.
        wanted = wanted.also(replaced_heads(fresh))
    plan = find(fresh, wanted, tracked)
    expected = _with_heads_replaced(fresh, plan) if replace_heads else plan
    shared = SharedFiles.of(fresh, break_shares=break_shares).among(expected.inventory.shredded)
    if dry_run:
        return replace(_foretell(fresh, expected, delete_below), shared=shared.said)

    # Refused, and not merely said: what is shredded is to be out of everybody's reach.
    shared.check("whom they were shared with opens files that are to be shredded", break_shares=break_shares)
    if replace_heads and plan.inventory.still_opened:
        replace_branch_heads(fresh, {holder for ids in plan.inventory.still_opened.values() for holder in ids})
        fresh = reload(table)
        plan = find(fresh, wanted.also(replaced_heads(fresh)), tracked, plan.older)

    shredded = _carry_out(table, plan, delete_below, cache(fresh.io.manager.new_kek), progress, None if break_shares else shared)
    # Looked into once more: of two commits of properties and keys at once, a REST server takes both.
    after = SharedFiles.of(require_encrypted(table), break_shares=True).among(plan.inventory.shredded)
    shredded = replace(shredded, shared=shared.said_with(after))
    # Manifests that this process kept to plan with may hold the DEKs that are gone, and kept metadata the wrapped keys.
    CACHE.clear()
    PARSED.clear()

    return shredded


def _check_choice(name: str, snapshots: Sequence[int] | None, whole_table: str, all_but_heads: bool, replace_heads: bool) -> None:
    """Refuse a call that does not say clearly what to destroy."""
    if snapshots is not None and not snapshots:
        raise ConfigurationError("snapshots is empty: name those to shred, or leave it out and give all_but_heads or whole_table")
    # In one way only: of two that contradict each other, either might destroy more than was meant.
    if [snapshots is not None, all_but_heads, bool(whole_table)].count(True) != 1:
        raise ConfigurationError(
            f"name what to shred, in one way: snapshots, all_but_heads=True, or all of the table for good, whole_table={name!r}"
        )
    if whole_table and whole_table != name:
        raise ConfigurationError(f"whole_table is {whole_table!r}; this destroys all of {name} for good: give whole_table={name!r}")
    if whole_table and replace_heads:
        raise ConfigurationError("replace_heads keeps rows that whole_table destroys: leave one of them out")


def _snapshots(ids: Collection[int]) -> str:
    return f"{'snapshot' if len(ids) == 1 else 'snapshots'} {', '.join(map(str, ids))}"


def _carry_out(
    table: Table,
    plan: Plan,
    delete_below: Sequence[str],
    new_kek: Callable[[], EncryptedKey],
    progress: ProgressListener,
    shared: SharedFiles | None,
) -> Shredded:
    """Commit, then scrub; again, until nothing that is there holds a retired KEK. `shared` is what no share may be added to until then."""
    scrubbed, tracked = Scrubbed(), Counted("shred: metadata files", "files", progress)
    # Bounded: files that writers keep bringing are reported in the end, and not waited for.
    for _ in range(_ROUNDS):
        plan, shared = _commit(table, plan, new_kek, shared), None
        fresh = require_encrypted(table)
        # A commit on its way may make such a file current, and the catalog may know its hash: it must not be written over.
        again = scrub(fresh, plan.older.without(plan.unsettled), plan.retired, metadata_deleting_io(fresh, delete_below), tracked)
        scrubbed, plan = scrubbed.then(again), replace(plan, older=after_scrub(plan.older, again, fresh.metadata))

        if again.deleted:
            # Taking files out of the log writes new metadata, and leaves another older file behind: the next round inspects it.
            forget_in_log(fresh, again.deleted)
        elif not (again.rewritten or plan.unsettled):
            break

    scrubbed.left.update(dict.fromkeys(plan.unsettled, "came while others were committing again and again: call shred once more"))
    return _result(require_encrypted(table), plan, scrubbed, dry_run=False)


def _commit(table: Table, plan: Plan, new_kek: Callable[[], EncryptedKey], shared: SharedFiles | None) -> Plan:
    """Take the snapshots and their KEKs out of the table's metadata, and return the plan as it stands then."""

    def change_of(base: EncryptedTable) -> _KeyChange:
        # Once the snapshots are gone, nothing of them can be shared any more.
        if shared is not None:
            shared.check_still(base.metadata)
        return _key_change(base, plan, new_kek)

    change = commit_keys(table, change_of).plan
    fresh = require_encrypted(table)
    current, older = fresh.metadata, inspect_older(fresh, plan.older)
    # What comes into a table that was shredded whole is new, and stays.
    wanted = plan.wanted if plan.wanted.snapshot_ids is not None else Wanted(frozenset(change.expired))
    # Only what the log names was the table's. A file beside it may hold the KEK of a commit that is about to land.
    retired = plan.retired | change.retired | older.logged_retired_keks(current)
    came = older.keks.keys() - plan.older.keks.keys() - {entry.metadata_file for entry in current.metadata_log}
    unsettled = older.holding(retired - kek_ids(current)) & came

    return replace(plan, wanted=wanted, older=older, retired=retired, unsettled=unsettled)


@dataclass(frozen=True)
class _KeyChange:
    """What one commit takes out of a table's metadata: snapshots by their ids, KEKs by their key-ids."""

    updates: tuple[TableUpdate, ...] = ()
    expired: tuple[int, ...] = ()
    retired: frozenset[str] = frozenset()


def _key_change(table: EncryptedTable, plan: Plan, new_kek: Callable[[], EncryptedKey]) -> _KeyChange:
    """Plan the commit on a table's newest state. Pure: where others commit first it is planned again.

    Args:
        table: as the catalog has it now.
        plan: what was found.
        new_kek: makes the KEK for the live snapshots' keys, and returns the same one every time.
    """
    # Asked again of the newest state: others may have pointed a branch or tag there meanwhile.
    plan.wanted.check_refs(table)
    current = table.metadata
    live, keks = plan.wanted.live(current), kek_ids(current)
    expired = tuple(snapshot.snapshot_id for snapshot in current.snapshots if plan.wanted.has(snapshot))
    if not expired and plan.retired.isdisjoint(keks):
        # The metadata has nothing of it any more: a second run only scrubs.
        return _KeyChange()

    # Named one by one, so that pins know that branches are to end here and were not cut off by an edit.
    ended = (RemoveSnapshotRefUpdate(ref_name=name) for name, ref in current.refs.items() if ref.snapshot_id in expired)
    removed = (*ended, *removed_snapshots(current, expired))
    if not live:
        return _KeyChange((*removed, *removed_keys(key.key_id for key in current.key_ring.entries)), expired, keks)

    rotation = plan_rotation(table, new_kek, Counted("shred: keys", "keys", no_progress), live)

    # Of others' KEKs too, that were made since the search.
    return _KeyChange((*removed, *rotation.updates), expired, frozenset(rotation.old_keks))


def _foretell(table: EncryptedTable, plan: Plan, delete_below: Sequence[str]) -> Shredded:
    """Return what is known beforehand of what a run would do."""
    expected = foretold(table, plan.older, plan.retired, delete_below)
    if plan.retired & kek_ids(table.metadata):
        # The commit would make the current file an older one, which is then scrubbed like the others.
        expected.rewritten.append(table.metadata_location)
    return _result(table, plan, expected, dry_run=True)


def _result(table: EncryptedTable, plan: Plan, scrubbed: Scrubbed, dry_run: bool) -> Shredded:
    return Shredded(
        table=name_of(table),
        dry_run=dry_run,
        snapshots=plan.snapshots,
        expired_before=plan.expired_before,
        retired_keks=tuple(sorted(plan.retired)),
        rewritten=tuple(scrubbed.rewritten),
        deleted=tuple(scrubbed.deleted),
        left=scrubbed.left,
        refused=scrubbed.refused,
        not_found=plan.not_found,
        shredded_files=plan.inventory.shredded,
        live_files=plan.inventory.live,
        still_opened=plan.inventory.still_opened,
        unknown=plan.inventory.unknown,
        outside=outside(table),
    )


def outside(table: EncryptedTable) -> tuple[str, ...]:
    """Say what may still open shredded snapshots, which nothing in the table can tell or change."""
    master_key = table.io.manager.table_key_id
    return (
        f"A copy of an older metadata file (backup, replica, file system snapshot) still opens what it did for anybody with {master_key}. "
        "Destroying that key ends it: relocate the table under another key first.",
        _versions(table),
        "A process that has read the snapshots may hold their keys in memory, KEKs for at most its encryption.kms.cache-ttl-ms "
        f"({KMS_CACHE_TTL_MS.whole_number(table.catalog.properties) // 1000:,} s in this one); "
        "a DEK that somebody kept opens its file wherever a copy of that file is.",
    )


def _versions(table: EncryptedTable) -> str:
    scheme = urlsplit(table.location()).scheme
    folder = metadata_folder(table.metadata)
    if scheme in ("", "file", "hdfs"):
        return f"Snapshots and backups of the file system that holds {folder} are not known here."

    try:
        found = [each.location for each in object_versions(table.io.inner, folder) if each.location.endswith(TABLE_METADATA_SUFFIXES)]
    except (MissingExtraError, OSError) as error:
        # Not the same as none: a store that does not answer proves nothing.
        return f"Whether the bucket keeps older versions of {folder} is not known: {error}"

    if found:
        return f"The bucket keeps {len(found)} older versions of metadata files below {folder}, with retired keys: delete those versions."

    return f"The bucket keeps no older version of the metadata files below {folder}, as far as it tells; replicas of it are not known here."


def replaced_heads(table: EncryptedTable) -> frozenset[int]:
    """Return the ids of the snapshots whose places heads of branches took, unless a branch or tag points to them."""
    metadata = table.metadata
    pointed_to = heads_of(metadata)
    heads = (metadata.snapshot_by_id(snapshot_id) for snapshot_id in pointed_to)
    marks = {str(head.summary[REPLACES]) for head in heads if head is not None and head.summary is not None and head.summary[REPLACES]}
    present = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    # Anyone who edits metadata.json may set such a mark: it counts only for a snapshot that is there and that no ref needs.
    return frozenset(int(mark) for mark in marks if mark.isdigit() and int(mark) in present - pointed_to)


def replace_branch_heads(table: EncryptedTable, holding: Collection[int]) -> None:
    """Put a snapshot of the same rows in the place of each head among these, but for those that a tag points to as well.

    Raises CommitFailedException when others were faster again and again: some heads may be replaced.
    """
    for branch, head in _replaceable(table, holding).items():
        replace_head(table, branch, head)


def _replaceable(table: EncryptedTable, holding: Collection[int]) -> dict[str, int]:
    """Return the branches whose heads are among these and carry no tag, with those heads."""
    refs = table.metadata.refs
    # A tag stands for one snapshot: a head that has one is not replaced.
    tagged = {ref.snapshot_id for ref in refs.values() if ref.snapshot_ref_type == SnapshotRefType.TAG}
    return {name: ref.snapshot_id for name, ref in refs.items() if ref.snapshot_id in holding and ref.snapshot_id not in tagged}


def _with_heads_replaced(table: EncryptedTable, plan: Plan) -> Plan:
    """Return a plan as it will be once heads that hold DEKs of deleted files are replaced, and go too."""
    found = plan.inventory
    replaced = set(_replaceable(table, {holder for ids in found.still_opened.values() for holder in ids}).values())
    remaining = {path: tuple(each for each in ids if each not in replaced) for path, ids in found.still_opened.items()}
    still_opened = {path: ids for path, ids in remaining.items() if ids}
    shredded = (*found.shredded, *(path for path in remaining if path not in still_opened))
    inventory = replace(found, shredded=shredded, still_opened=still_opened)

    return replace(plan, snapshots=tuple(sorted({*plan.snapshots, *replaced})), inventory=inventory)


def replace_head(table: EncryptedTable, branch: str, head: int) -> None:
    """Put a snapshot of the same rows, whose manifests name no deleted file, in the place of a branch's head."""
    transaction = table.transaction()
    with transaction, transaction.update_snapshot({REPLACES: str(head)}, branch).producer(EncryptedManifestCleaning, Operation.REPLACE):
        logger.info("%s: a snapshot of the same rows takes the place of %s on %s", name_of(table), head, branch)
