"""Which part of an answer a pin may move to: heads of branches and tags whose manifest lists this client has opened.

metadata.json is plaintext, and a pin never goes back by itself. So a head that somebody has made up, with a great sequence number, would
lock the table out once the right metadata is back. The header of a manifest list is authenticated, and says the snapshot's numbers:

    heads that the pin has          nothing is read
    every other head                its list is opened, and its header compared with the metadata; a scan after it finds the list in memory
    one does not open               nothing is pinned: the pin stays where it was, and a reader of that head gets the error
    last-sequence-number            pinned up to the greatest number that a pinned head or an opened list has

A client that may not unwrap with the table's master key opens no list, and so pins nothing that it has not seen open before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt_catalog.pins.record import Head, TableVersion

logger = logging.getLogger(__name__)
_THREADS: Final = 8

Proof = Callable[[TableVersion | None, TableVersion], TableVersion | None]
"""Given the pin and the version that was seen: what of that version may be pinned; None for nothing."""


def taken_on_trust(before: TableVersion | None, seen: TableVersion) -> TableVersion:
    """Return all of it: this client wrote the version, or a user has accepted it."""
    return seen


@dataclass(frozen=True)
class ProvenHeads:
    """Opens the manifest lists of new heads.

    Attributes:
        metadata: that was seen.
        open_io: gives the table's FileIO, if a list has to be opened.
    """

    metadata: TableMetadata
    open_io: Callable[[], FileIO]

    def __call__(self, before: TableVersion | None, seen: TableVersion) -> TableVersion | None:
        """Return what may be pinned of the version that was seen: see `Proof`."""
        if not isinstance(self.metadata, EncryptedTableMetadata) or seen.table_key_id is None:
            return seen

        # Heads that were seen of another table prove nothing of this one.
        is_same = before is not None and before.table_uuid == seen.table_uuid
        known = set(before.heads.values()) if before is not None and is_same else set[Head]()
        new = {head.snapshot_id for head in seen.heads.values() if head not in known}
        # All or nothing, so that a pin is always of one version that was seen whole.
        if new and not self._open(new):
            return None

        proven = max((head.sequence_number for head in known | set(seen.heads.values())), default=0)
        proven = max(proven, before.last_sequence_number if before is not None and is_same else 0)
        if proven < seen.last_sequence_number:
            proven = max(proven, self._newest_staged(proven))
        return replace(seen, last_sequence_number=min(seen.last_sequence_number, proven))

    def _newest_staged(self, above: int) -> int:
        """Return the sequence number of the newest snapshot, to which no branch or tag points, if that is greater and opens."""
        newest = max(self.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0, default=None)
        number = 0 if newest is None else newest.sequence_number or 0
        return number if newest is not None and number > above and self._open({newest.snapshot_id}) else 0

    def _open(self, snapshot_ids: set[int]) -> bool:
        snapshots = [each for each in self.metadata.snapshots if each.snapshot_id in snapshot_ids]
        try:
            io = self.open_io()
            # Threads of its own: whoever loads tables may do so in PyIceberg's, which would wait for themselves.
            with ThreadPoolExecutor(min(_THREADS, len(snapshots))) as threads:
                for _ in threads.map(lambda snapshot: snapshot.manifests_to_plan(io), snapshots):
                    pass
        except Exception as error:  # noqa: BLE001  every store and key service has errors of its own; a reader of the head gets them
            logger.warning(
                "%s is not pinned as it is now: the manifest list of a branch or tag does not open: %s", self.metadata.location, error
            )
            return False

        return True
