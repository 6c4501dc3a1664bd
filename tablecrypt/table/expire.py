"""Expiring snapshots together with their keys: what no remaining snapshot needs leaves `encryption-keys` in the same commit.

Iceberg Java never removes an entry, so its tables keep the key of every snapshot that there ever was.
"""

from __future__ import annotations

from typing import cast

from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotsUpdate, TableUpdate, UpdatesAndRequirements

from tablecrypt.table._pyiceberg.producers import ExpireSnapshotsSeam
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.updates import RemoveEncryptionKeyUpdate


class EncryptedExpireSnapshots(ExpireSnapshotsSeam):
    """PyIceberg's ExpireSnapshots for an encrypted table."""

    def further_updates(self, updates: tuple[TableUpdate, ...]) -> UpdatesAndRequirements:
        """Return the removal of each key that the remaining snapshots do not need.

        A commit that lands in between may use a KEK that looks unused here, so the main branch must not have moved.
        """
        metadata = cast("EncryptedTableMetadata", self.table_metadata)
        expired = {each for update in updates if isinstance(update, RemoveSnapshotsUpdate) for each in update.snapshot_ids}
        if not expired:
            return (), ()
        remaining = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in expired]
        needed = metadata.key_ring.needed_by(snapshot.key_id for snapshot in remaining if snapshot.key_id is not None)
        unneeded = [key.key_id for key in metadata.encryption_keys if key.key_id not in needed]
        removals = tuple(cast("TableUpdate", RemoveEncryptionKeyUpdate(key_id=key_id)) for key_id in unneeded)
        head = metadata.refs.get(MAIN_BRANCH)
        unmoved = AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=head.snapshot_id if head is not None else None)
        return removals, (unmoved,)
