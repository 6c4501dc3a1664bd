"""Tables that have snapshots and no current one: they read as empty, and an append begins a new history.

Legal metadata is like that, and so is metadata of a full table whose main branch was cut off:

    branches and tags alone      nothing was ever written to main       every snapshot is reached from a branch or tag; empty log
    staged snapshots alone       write, audit, publish                  each has a wap.id in its summary; empty log
    replaced                     Iceberg Java's REPLACE TABLE without   current-snapshot-id null, refs without main; snapshots and log
                                 rows: TableMetadata.buildReplacement   stay as they were, and so may the schema
    cut off                      edited                                 the same as replaced; with the log emptied too, the same as a table
                                                                        whose branch was dropped

No authenticated file says which branch a snapshot was made for, so nothing in the metadata tells the last two apart. Pins do: main never
vanishes unless a user says so. For a client without a pin the table opens, with a warning and a finding of the audit.
"""

from __future__ import annotations

from typing import Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

_STAGED_BY: Final = "wap.id"


def cut_off_head(metadata: TableMetadata) -> Snapshot | None:
    """Return the snapshot that was the current one, of a table that has none; None where the metadata says that it never had one."""
    logged = (metadata.snapshot_by_id(entry.snapshot_id) for entry in reversed(metadata.snapshot_log))
    if (last := next((snapshot for snapshot in logged if snapshot is not None), None)) is not None:
        return last

    reached = _reached(metadata)
    unexplained = [each for each in metadata.snapshots if each.snapshot_id not in reached and not _is_staged(each)]

    return max(unexplained, key=lambda snapshot: snapshot.sequence_number or 0, default=None)


def described(head: Snapshot) -> str:
    """Return what such a table looks like, and what to do, for people to read."""
    return (
        f"no snapshot is current, though the metadata has snapshot {head.snapshot_id}, so the table reads as empty. REPLACE TABLE of "
        "Iceberg Java leaves a table like that, and so does somebody who cuts off its main branch in metadata.json. If nobody has "
        "replaced it, restore its metadata file before anybody writes"
    )


def _reached(metadata: TableMetadata) -> set[int]:
    found: set[int] = set()
    for ref in metadata.refs.values():
        snapshot = metadata.snapshot_by_id(ref.snapshot_id)
        # Parents are plaintext metadata: an edit may have made a circle of them.
        while snapshot is not None and snapshot.snapshot_id not in found:
            found.add(snapshot.snapshot_id)
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else metadata.snapshot_by_id(parent)

    return found


def _is_staged(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and _STAGED_BY in snapshot.summary.additional_properties
