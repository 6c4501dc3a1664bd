"""The snapshots that a stream reads: what appends added, in order, each once.

A micro-batch holds the files that the appends of whole snapshots added. Snapshots that only rewrote files (replace) hold no new rows and
are passed over. Snapshots that deleted or overwrote rows stop the stream with an error, unless it was told to pass over them; rows that
such a snapshot added are then not read.

Raises ConfigurationError: the branch was rolled back, or its history expired before it was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.table.snapshots import Operation, Snapshot

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.tables import LocatedTable

BEFORE_THE_FIRST: Final = -1
"""Stands for the id of a snapshot before all others."""
_ADDED_FILES: Final = "added-data-files"
_ADDED_ROWS: Final = "added-records"


@dataclass(frozen=True)
class StreamRules:
    """What a stream passes over, and how much a micro-batch holds at most; it holds one whole snapshot at least.

    Attributes:
        deletes_option: the option that passes over snapshots that deleted rows, by its name where errors tell of it.
        overwrites_option: likewise, for snapshots that replaced rows.
    """

    skip_deletes: bool = False
    skip_overwrites: bool = False
    max_snapshots: int | None = None
    max_files: int | None = None
    max_rows: int | None = None
    deletes_option: str = "skip-delete-snapshots"
    overwrites_option: str = "skip-overwrite-snapshots"


def history(located: LocatedTable, branch: str, after: int, until: int | None = None) -> list[Snapshot]:
    """Return a branch's snapshots, oldest first, after one and up to another (by default the newest).

    Raises:
        ConfigurationError: one of the two is not in the branch's history.
    """
    metadata = located.table.metadata
    head = metadata.snapshot_by_name(branch)
    snapshots: list[Snapshot] = []
    seen_end = until is None
    while head is not None and head.snapshot_id != after:
        seen_end = seen_end or head.snapshot_id == until
        if seen_end:
            snapshots.append(head)
        parent = head.parent_snapshot_id
        head = metadata.snapshot_by_id(parent) if parent is not None else None
    if (head is None and after != BEFORE_THE_FIRST) or not seen_end:
        raise ConfigurationError(
            f"{located.name}: snapshot {after if seen_end else until} is not in the history of branch {branch}: it expired, or the branch "
            "was rolled back; begin with a new checkpoint"
        )
    return snapshots[::-1]


def check_begins_with_the_first(located: LocatedTable, branch: str) -> None:
    """Raise ConfigurationError where the history of a branch does not go back to its first snapshot."""
    snapshots = history(located, branch, BEFORE_THE_FIRST)
    if snapshots and snapshots[0].parent_snapshot_id is not None:
        raise ConfigurationError(
            f"{located.name}: snapshots before {snapshots[0].snapshot_id} expired, so a stream cannot begin with the first row: "
            "read a snapshot as a batch, and begin the stream after it"
        )


def reachable(snapshots: Sequence[Snapshot], position: int, rules: StreamRules) -> int:
    """Return the last snapshot of the next micro-batch: as many as the limits allow, one at least, none that must not be passed over.

    Raises:
        ConfigurationError: the very next snapshot replaced or deleted rows.
    """
    files = rows = 0
    for count, snapshot in enumerate(snapshots):
        files += _added(snapshot, _ADDED_FILES)
        rows += _added(snapshot, _ADDED_ROWS)
        over = _is_over(rules.max_snapshots, count + 1) or _is_over(rules.max_files, files) or _is_over(rules.max_rows, rows)
        if count and (over or not _may_pass(snapshot, rules)):
            break
        check_appended(snapshot, rules)
        position = snapshot.snapshot_id
    return position


def check_appended(snapshot: Snapshot, rules: StreamRules) -> None:
    """Raise ConfigurationError for a snapshot that did more than append, unless the rules say to pass over it."""
    if _may_pass(snapshot, rules):
        return
    operation = snapshot.summary.operation.value if snapshot.summary is not None else "unknown"
    name = rules.deletes_option if operation == Operation.DELETE.value else rules.overwrites_option
    raise ConfigurationError(
        f"snapshot {snapshot.snapshot_id} has operation {operation}: a stream returns appended rows only. Set {name}=true to skip it"
    )


def _is_over(most: int | None, count: int) -> bool:
    return most is not None and count > most


def _may_pass(snapshot: Snapshot, rules: StreamRules) -> bool:
    operation = snapshot.summary.operation if snapshot.summary is not None else None
    if operation == Operation.DELETE:
        return rules.skip_deletes
    return operation in (Operation.APPEND, Operation.REPLACE) or rules.skip_overwrites


def _added(snapshot: Snapshot, count: str) -> int:
    if snapshot.summary is None or snapshot.summary.operation != Operation.APPEND:
        return 0
    return int(snapshot.summary.get(count) or 0)
