"""The snapshots that a stream reads: what appends added, in order, each once.

A micro-batch holds files that appends added, those of several snapshots, or some of one. Snapshots that only rewrote files (replace) hold
no new rows and are passed over. Snapshots that deleted or overwrote rows stop the stream with an error, unless its options say to pass over
them; rows that such a snapshot added are then not read.

Raises ConfigurationError: the branch was rolled back, or its history expired before it was read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from pyiceberg.table.snapshots import Operation, Snapshot

from tablecrypt.errors import ConfigurationError
from tablecrypt.manifests import EncryptedDataFile
from tablecrypt.spark.sql.branches_and_tags import begins_history
from tablecrypt.spark.tables import LocatedTable
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.table import EncryptedTable

BEFORE_THE_FIRST: Final = -1
"""Stands for the id of a snapshot before all others."""
_ADDED_FILES: Final = "added-data-files"
_ADDED_ROWS: Final = "added-records"


@dataclass(frozen=True)
class Position:
    """How far a stream has read.

    Attributes:
        snapshot_id: the last snapshot of which it has read files.
        files: how many of them, in the order of `added_files`; None for all.
    """

    snapshot_id: int = BEFORE_THE_FIRST
    files: int | None = None


@dataclass(frozen=True)
class Part:
    """Files that a snapshot added: those from one number to before another, None for all the rest."""

    snapshot: Snapshot
    begin: int = 0
    end: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it has all files that the snapshot added."""
        return self.begin == 0 and self.end is None

    def tasks(self, table: EncryptedTable) -> list[EncryptedFileScanTask]:
        """Return the files."""
        return added_files(table, self.snapshot)[self.begin : self.end]


@dataclass(frozen=True)
class StreamRules:
    """What a stream passes over, and how much a micro-batch holds at most; it holds one file at least.

    Attributes:
        max_rows: after which no further file is taken, as in Iceberg Java: the last one may go beyond.
        since: the moment before which snapshots are passed over, in milliseconds since 1970.
        deletes_option: the option that passes over snapshots that deleted rows, by its name where errors tell of it.
        overwrites_option: likewise, for snapshots that replaced rows.
    """

    skip_deletes: bool = False
    skip_overwrites: bool = False
    max_snapshots: int | None = None
    max_files: int | None = None
    max_rows: int | None = None
    since: int | None = None
    deletes_option: str = "skip-delete-snapshots"
    overwrites_option: str = "skip-overwrite-snapshots"

    def reads(self, snapshot: Snapshot) -> bool:
        """Whether rows of a snapshot are read."""
        is_append = snapshot.summary is not None and snapshot.summary.operation == Operation.APPEND
        return is_append and not self._is_before(snapshot)

    def may_pass(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot whose rows are not read may be passed over."""
        operation = snapshot.summary.operation if snapshot.summary is not None else None
        if operation == Operation.DELETE:
            return self.skip_deletes or self._is_before(snapshot)
        return operation in (Operation.APPEND, Operation.REPLACE) or self.skip_overwrites or self._is_before(snapshot)

    def _is_before(self, snapshot: Snapshot) -> bool:
        return self.since is not None and snapshot.timestamp_ms < self.since


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

    # A gap is an error: a stream that went on behind it would lose rows without a word.
    if (head is None and after != BEFORE_THE_FIRST) or not seen_end:
        raise ConfigurationError(
            f"{located.name}: snapshot {after if seen_end else until} is not in the history of branch {branch}: it expired, or the branch "
            "was rolled back; begin with a new checkpoint"
        )

    return snapshots[::-1]


def check_begins_with_the_first(located: LocatedTable, branch: str) -> None:
    """Raise ConfigurationError where the history of a branch does not go back to its first snapshot."""
    snapshots = history(located, branch, BEFORE_THE_FIRST)
    if snapshots and not begins_history(located.table, snapshots[0]):
        raise ConfigurationError(
            f"{located.name}: snapshots before {snapshots[0].snapshot_id} expired, so a stream cannot begin with the first row: "
            "read a snapshot as a batch, and begin the stream after it"
        )


def unread(located: LocatedTable, branch: str, after: Position, until: Position | None = None) -> list[Part]:
    """Return what a branch has after one position and up to another (by default the newest snapshot). Raises as `history`."""
    is_same = until is not None and until.snapshot_id == after.snapshot_id
    snapshots = history(located, branch, after.snapshot_id, None if until is None or is_same else until.snapshot_id)
    parts = [] if is_same else [Part(snapshot) for snapshot in snapshots]
    begun = located.table.metadata.snapshot_by_id(after.snapshot_id)
    # Of the snapshot that the last micro-batch ended in, only some of the files were read.
    if after.files is not None and begun is not None:
        parts.insert(0, Part(begun, after.files))
    if until is not None and until.files is not None and parts:
        parts[-1] = replace(parts[-1], end=until.files)
    return parts


def added_files(table: EncryptedTable, snapshot: Snapshot) -> list[EncryptedFileScanTask]:
    """Return the files that an append added, in the order of their row ids, which stays."""
    scan = table.incremental_append_scan(
        from_snapshot_id_exclusive=snapshot.parent_snapshot_id, to_snapshot_id_inclusive=snapshot.snapshot_id
    )
    # A checkpoint counts files in this order, so it has to be the same in every process and after a restart.
    return sorted(scan.tasks(), key=_place)


def _place(task: EncryptedFileScanTask) -> tuple[int, str]:
    """Files of a table that was of version 2 may have no row ids."""
    return EncryptedDataFile.of(task.file).first_row_id or 0, task.file.file_path


def next_position(table: EncryptedTable, parts: Iterable[Part], after: Position, rules: StreamRules) -> Position:
    """Return where the next micro-batch ends: `after` where there is nothing new to read.

    Raises:
        ConfigurationError: the very next snapshot replaced or deleted rows.
    """
    batch = _Batch(after, rules)
    for part in parts:
        if not rules.may_pass(part.snapshot):
            # Rows of the appends before it come first; the next micro-batch stops with the error.
            if batch.end == after:
                check_appended(part.snapshot, rules)
            break

        if rules.reads(part.snapshot) and not batch.takes(table, part):
            break

    return batch.end


class _Batch:
    def __init__(self, after: Position, rules: StreamRules) -> None:
        self.end = after
        self._rules = rules
        self._snapshots = self._files = self._rows = 0

    def takes(self, table: EncryptedTable, part: Part) -> bool:
        """Take a part, or as much of it as there is room for; return whether that was all."""
        if _is_over(self._rules.max_snapshots, self._snapshots + 1):
            return False

        self._snapshots += 1
        snapshot = part.snapshot
        # By the summary's counts, so that manifests are read only for a snapshot that has to be divided.
        if part.is_whole and self._has_room(_added(snapshot, _ADDED_FILES), _added(snapshot, _ADDED_ROWS)):
            self._add(_added(snapshot, _ADDED_FILES), _added(snapshot, _ADDED_ROWS))
            self.end = Position(snapshot.snapshot_id)
            return True

        for number, task in enumerate(part.tasks(table), part.begin):
            # One file always fits, or a stream with a low limit would never get further.
            if self._files and not self._has_room(1, 1):
                return False
            self._add(1, task.file.record_count)
            self.end = Position(snapshot.snapshot_id, number + 1)

        self.end = Position(snapshot.snapshot_id)

        return True

    def _has_room(self, files: int, rows: int) -> bool:
        return not _is_over(self._rules.max_files, self._files + files) and not _is_over(self._rules.max_rows, self._rows + rows)

    def _add(self, files: int, rows: int) -> None:
        self._files += files
        self._rows += rows


def check_appended(snapshot: Snapshot, rules: StreamRules) -> None:
    """Raise ConfigurationError for a snapshot that did more than append, unless the rules say to pass over it."""
    if rules.may_pass(snapshot):
        return

    operation = snapshot.summary.operation.value if snapshot.summary is not None else "unknown"
    name = rules.deletes_option if operation == Operation.DELETE.value else rules.overwrites_option
    raise ConfigurationError(
        f"snapshot {snapshot.snapshot_id} has operation {operation}: a stream returns appended rows only. Set {name}=true to skip it"
    )


def _is_over(most: int | None, count: int) -> bool:
    return most is not None and count > most


def _added(snapshot: Snapshot, count: str) -> int:
    return int(snapshot.summary.get(count) or 0) if snapshot.summary is not None else 0
