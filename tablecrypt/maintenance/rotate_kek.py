"""Rotating a table's KEK: a new one now, with every snapshot's manifest-list key sealed under it, in one metadata commit.

    before    master key ─▶ KEK A ─▶ key of snapshot 1, key of snapshot 2       (KEK B, keys of snapshots that are gone)
    after     master key ─▶ KEK C ─▶ key of snapshot 1, key of snapshot 2       under the same key-ids, so snapshots stay as they are

No data file, manifest or manifest list is read or written. What it costs is one unwrap for each old KEK, one wrap, and one commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyiceberg.table import Table
from pyiceberg.table.update import TableUpdate

from tablecrypt.arguments import checked_arguments
from tablecrypt.keys.encrypted_key import EncryptedKey
from tablecrypt.maintenance.encrypted import encrypted_metadata_of, name_of, newest, table_io
from tablecrypt.maintenance.key_commit import added_keys, commit_keys, removed_keys, replaced_key
from tablecrypt.maintenance.progress import Counted, ProgressListener, unheard
from tablecrypt.maintenance.results import VerbResult
from tablecrypt.table.commit_rules import check_snapshots_have_keys
from tablecrypt.table.encrypted_table import EncryptedTable
from tablecrypt.table.metadata import EncryptedSnapshot


@dataclass(frozen=True)
class RotatedKek(VerbResult):
    """What `rotate_kek` did.

    Attributes:
        new_kek: key-id of the new KEK; None in a dry run, and for a table without snapshots, whose next commit makes one.
        old_keks: key-ids of the KEKs that are gone from the metadata.
        manifest_list_keys: how many manifest-list keys were sealed anew.
        pruned: how many manifest-list keys went because no snapshot needs them.
    """

    new_kek: str | None
    old_keks: tuple[str, ...]
    manifest_list_keys: int
    pruned: int


@dataclass(frozen=True)
class Rotation:
    """The plan of a rotation."""

    old_keks: tuple[str, ...] = ()
    pruned: tuple[str, ...] = ()
    resealed: tuple[EncryptedKey, ...] = ()
    new_kek: EncryptedKey | None = None
    updates: tuple[TableUpdate, ...] = field(default=(), repr=False)


class Rotator:
    """Plans rotations of one table under one new KEK, however often others commit in between.

    Args:
        progress: hears of the manifest-list keys that are sealed anew.
    """

    def __init__(self, progress: ProgressListener = unheard) -> None:
        self._new_kek: EncryptedKey | None = None
        self._counted = Counted("rotate_kek", "keys", progress)

    def plan(self, table: EncryptedTable, kept: Iterable[EncryptedSnapshot] | None = None) -> Rotation:
        """Plan the rotation of a table's newest state.

        Args:
            table: as the catalog has it now.
            kept: the snapshots whose keys stay; by default all.

        Raises:
            KeyNotFoundError, PlaintextRefusedError: a snapshot's key is missing.
            AuthenticationError, KmsError: a key cannot be opened, or the KMS refused.
        """
        metadata, manager = encrypted_metadata_of(table), table_io(table).manager
        if not metadata.encryption_keys:
            return Rotation()
        snapshots = list(metadata.snapshots if kept is None else kept)
        check_snapshots_have_keys(metadata.model_copy(update={"snapshots": snapshots}))
        ring = metadata.key_ring
        needed = _key_ids(snapshots)
        old_keks = tuple(kek.key_id for kek in ring.keks if kek != self._new_kek)
        pruned = tuple(key.key_id for key in metadata.encryption_keys if not key.is_kek and key.key_id not in needed)
        if not needed:
            return Rotation(old_keks, pruned, updates=removed_keys((*pruned, *old_keks)))
        self._new_kek = new_kek = self._new_kek or manager.new_kek()
        resealed = tuple(manager.reseal_manifest_list_key(ring.chain(key_id), new_kek) for key_id in self._counted.over(needed))
        replaced = (update for entry in resealed for update in replaced_key(entry))
        updates = (*added_keys([new_kek]), *replaced, *removed_keys((*pruned, *old_keks)))
        return Rotation(old_keks, pruned, resealed, new_kek, updates)


@checked_arguments()
def rotate_kek(table: Table, dry_run: bool = False, progress: ProgressListener = unheard) -> RotatedKek:
    """Give an encrypted table a new KEK now, and let go of the old ones.

    For when a KEK may have become known, when a policy wants KEKs younger than 730 days, or when its length is to follow a changed
    `encryption.data-key-length`. It does NOT change a DEK: who has opened a manifest with an old KEK keeps the keys of the files it lists
    (`reencrypt` changes those). It does NOT take the old KEK out of older metadata files, where it goes on opening what it sealed (`shred`
    does), and it does NOT touch the master key (rotate that in the KMS, then `rewrap`).

    Commits of others go on meanwhile: a snapshot that comes in is part of the rotation. Killed at any moment, either all of it is done or
    nothing. Calling it again rotates again.

    Args:
        table: an encrypted table. Its state in memory is brought up to date.
        dry_run: only say what would be sealed anew and what would go; the KMS is not asked.
        progress: hears of the manifest-list keys that are sealed anew.

    Raises:
        ConfigurationError: the table is not encrypted.
        KeyNotFoundError: a snapshot's key is missing: `rescue` may find it.
        PlaintextRefusedError: a snapshot has no key-id.
        AuthenticationError, KmsError: a key cannot be opened, or the KMS refused; nothing has changed.
        CommitFailedException: others committed too often meanwhile; nothing has changed.
    """
    if dry_run:
        metadata = encrypted_metadata_of(newest(table))
        check_snapshots_have_keys(metadata)
        needed = _key_ids(metadata.snapshots)
        keks = tuple(kek.key_id for kek in metadata.key_ring.keks)
        pruned = len(metadata.encryption_keys) - len(keks) - len(needed)
        return RotatedKek(name_of(table), True, None, keks, len(needed), pruned)
    plan = commit_keys(table, Rotator(progress).plan).plan
    new_kek = plan.new_kek.key_id if plan.new_kek is not None else None
    return RotatedKek(name_of(table), False, new_kek, plan.old_keks, len(plan.resealed), len(plan.pruned))


def _key_ids(snapshots: Iterable[EncryptedSnapshot]) -> list[str]:
    """Return each manifest-list key's id once, in the order of the snapshots."""
    return list(dict.fromkeys(snapshot.key_id for snapshot in snapshots if snapshot.key_id is not None))
