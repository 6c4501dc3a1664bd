"""What of a table's metadata is not what its newest manifest list that says so has authenticated.

Properties, branches and tags, and which schema, partition spec and sort order are current change without a snapshot, so a difference is no
proof of anything. It is what a client without a pin has metadata.json's word alone for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyiceberg.io import FileIO

from tablecrypt.errors import TablecryptError
from tablecrypt.maintenance._audit.findings import Finding, FindingKind
from tablecrypt.manifests.table_state import ListedTableState
from tablecrypt.printable import counted, printable
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata

_SHOWN = 5


def state_findings(metadata: EncryptedTableMetadata, io: FileIO) -> Iterator[Finding]:
    """Yield what differs from the newest manifest list that says what the table was. Where none does, there is nothing to compare."""
    silent = 0
    # By sequence number, which opened manifest lists confirm: the times of snapshots are metadata.json's word alone.
    for snapshot in sorted(metadata.snapshots, key=lambda each: each.sequence_number or 0, reverse=True):
        try:
            # A snapshot without a key authenticates nothing.
            state = snapshot.known_header(io).table_state if snapshot.key_id is not None else None
        except (TablecryptError, OSError):
            # It is among what could not be opened.
            continue

        if state is not None:
            yield from _differences(metadata, snapshot, state, silent)
            return

        silent += 1


def _differences(metadata: EncryptedTableMetadata, snapshot: EncryptedSnapshot, state: ListedTableState, silent: int) -> Iterator[Finding]:
    now = ListedTableState.of(metadata)
    currents = {
        "current schema": (state.schema, now.schema),
        "default partition spec": (state.spec, now.spec),
        "default sort order": (state.order, now.order),
    }
    differing = [name for name, (then, since) in currents.items() if then != since]
    for kind, before, after in (("property", state.properties, now.properties), ("branch or tag", state.refs, now.refs)):
        differing += [f"{kind} {printable(name)}" for name in sorted(_changed(before, after))]
    if not differing:
        return

    shown = ", ".join(differing[:_SHOWN]) + (f" and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else "")
    others = f"; the manifest lists of {counted(silent, 'newer snapshot', 'newer snapshots')} say nothing of it" if silent else ""
    message = f"metadata.json alone says since snapshot {snapshot.snapshot_id}: {shown}{others}"
    yield Finding(FindingKind.CHANGED_SINCE_COMMIT, "metadata.json", message)


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
