"""Removing the entries of `encryption-keys` that nothing needs, in one metadata commit.

    needed     a manifest-list key that a snapshot names; a KEK that wraps one of those
    pruned     all others: keys of expired snapshots, KEKs that opened nothing but those, KEKs that somebody has put there

Commits of this package wrap under the KEK of the snapshot that they follow, so a KEK that no snapshot needs is of no use to them. Iceberg
Java wraps under any young KEK that is there, whoever put it there: pruning is what keeps it from a retired one.
Iceberg Java never removes an entry, so a table that it commits to carries the key of every snapshot that there ever was.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyiceberg.table import Table
from pyiceberg.table.update import TableUpdate

from tablecrypt.arguments import checked_arguments
from tablecrypt.maintenance.encrypted import encrypted_metadata_of, name_of, newest
from tablecrypt.maintenance.key_commit import commit_keys, removed_keys
from tablecrypt.maintenance.progress import Progress, ProgressListener, unheard
from tablecrypt.maintenance.results import VerbResult
from tablecrypt.table.encrypted_table import EncryptedTable


@dataclass(frozen=True)
class PrunedKeys(VerbResult):
    """What `prune_keys` did.

    Attributes:
        keks: key-ids of the KEKs that went.
        manifest_list_keys: key-ids of the manifest-list keys that went.
        kept: how many entries are left.
    """

    keks: tuple[str, ...]
    manifest_list_keys: tuple[str, ...]
    kept: int


@dataclass(frozen=True)
class _Plan:
    keks: tuple[str, ...]
    manifest_list_keys: tuple[str, ...]
    kept: int
    updates: tuple[TableUpdate, ...] = field(repr=False)


@checked_arguments()
def prune_keys(table: Table, dry_run: bool = False, progress: ProgressListener = unheard) -> PrunedKeys:
    """Remove the entries of an encrypted table's encryption-keys that no snapshot needs.

    For tables that Iceberg Java expires snapshots of; expiry through this package prunes by itself. It does NOT make what the keys opened
    unreadable: older metadata files still hold them (`shred` takes them out there too). The KMS is not asked.

    Commits of others go on meanwhile, and none loses its key: keys are removed only from the very state that was looked at, and a commit
    that is still under way seals its own anew. Killed at any moment, either all went or none. Calling it again finds nothing more.

    Args:
        table: an encrypted table. Its state in memory is brought up to date.
        dry_run: only say what would go.
        progress: hears of all the entries that went at once, since one commit takes them.

    Raises:
        ConfigurationError: the table is not encrypted.
        CommitFailedException: others committed too often meanwhile; nothing has changed.
    """
    plan = _plan(newest(table)) if dry_run else commit_keys(table, _plan).plan
    gone = len(plan.keks) + len(plan.manifest_list_keys)
    if not dry_run:
        progress(Progress("prune_keys", gone, gone, "keys"))
    return PrunedKeys(name_of(table), dry_run, plan.keks, plan.manifest_list_keys, plan.kept)


def _plan(table: EncryptedTable) -> _Plan:
    metadata = encrypted_metadata_of(table)
    ring = metadata.key_ring
    needed = ring.needed_by(snapshot.key_id for snapshot in metadata.snapshots if snapshot.key_id is not None)
    unneeded = [key for key in metadata.encryption_keys if key.key_id not in needed]
    return _Plan(
        keks=tuple(key.key_id for key in unneeded if key.is_kek),
        manifest_list_keys=tuple(key.key_id for key in unneeded if not key.is_kek),
        kept=len(metadata.encryption_keys) - len(unneeded),
        updates=removed_keys(key.key_id for key in unneeded),
    )
