"""Heads of branches that stand in the way of a shredding: their manifests hold the DEKs of files that they deleted.

    branch ─▶ head H, whose manifests name file A as deleted          A's DEK is in H, and H is live
    branch ─▶ head H', the same rows, A named nowhere ─▶ parent H     now H can be shredded too

H' says in its summary whose place it took, so that a run that was killed in between is finished by the next.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation

from tablecrypt.maintenance.encrypted import encrypted_metadata_of
from tablecrypt.table.encrypted_table import EncryptedTable
from tablecrypt.table.manifest_cleaning import EncryptedManifestCleaning

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
