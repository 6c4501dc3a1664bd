"""prod.db.t.changes: which files a query of changes reads, and which of their rows a snapshot inserted or deleted.

    in the snapshot's parent    in the snapshot
    —                           a data file             its rows were inserted, but for those that only moved here
    a data file                 —                       its rows were deleted, but for those that only moved elsewhere
    the file with deletes       with other deletes      the rows that only one of them hides

A snapshot that only rewrites files (REPLACE) changes no row. create_changelog_view finds the same changes by a query, and can pair them.

Options of a read say which snapshots: those behind start-snapshot-id up to end-snapshot-id, or behind start-timestamp up to end-timestamp,
in milliseconds since 1970; all of the main branch without them.

Raises:
    ConfigurationError: the options contradict each other, name no snapshot of the branch, or one that has expired; a column of the table
        has the name of one of the added ones; rows of a file are deleted by equality, for which create_changelog_view is there.
    ReadRestrictionError: the catalog's server restricts what may be read of the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of
from pyroaring import BitMap64

from tablecrypt.errors import ConfigurationError
from tablecrypt.files.encrypting_file_io import refuse_restricted
from tablecrypt.spark.sql.branches_and_tags import begins_history, head_of, snapshot_of
from tablecrypt.spark.sql.scans.change_rows import CHANGE_FIELDS, DELETE, INSERT, ChangedRows
from tablecrypt.table.deletes import DeleteReader
from tablecrypt.table.lineage import LAST_UPDATED, ROW_ID
from tablecrypt.table.planning import EncryptedFileScanTask, ScanPlanner, listed_manifests
from tablecrypt.table.reader import TaskReader

if TYPE_CHECKING:
    from tablecrypt.table.table import EncryptedTable

_START, _END = "start-snapshot-id", "end-snapshot-id"
_START_TIME, _END_TIME = "start-timestamp", "end-timestamp"
RANGE_OPTIONS: Final = (_START, _END, _START_TIME, _END_TIME)
SnapshotChange: TypeAlias = tuple[Snapshot | None, Snapshot]
"""A snapshot's parent, None before the first, and the snapshot."""


def snapshot_range(table: EncryptedTable, options: Mapping[str, str]) -> tuple[SnapshotChange, ...]:
    """Return the snapshots that options ask for, oldest first, but for those that change no row."""
    if unknown := options.keys() - set(RANGE_OPTIONS):
        raise ConfigurationError(f"options has {', '.join(sorted(unknown))}; there are {', '.join(RANGE_OPTIONS)}")
    if {_START, _START_TIME} <= options.keys() or {_END, _END_TIME} <= options.keys():
        raise ConfigurationError("options has a snapshot and a timestamp for one end of the range: give one of them")

    start = snapshot_of(table, _number(options, _START)) if _START in options else None
    end = _number(options, _END) if _END in options else head_of(table)
    chain = [] if end is None else list(ancestors_of(snapshot_of(table, end), table.metadata))
    if start is not None and start not in chain:
        raise ConfigurationError(f"snapshot {start.snapshot_id} is no ancestor of snapshot {end}")

    before = {each.snapshot_id: parent for each, parent in zip(chain, [*chain[1:], None], strict=False)}
    if start is not None:
        chain = chain[: chain.index(start)]
    if {_START_TIME, _END_TIME} <= options.keys() and _number(options, _START_TIME) > _number(options, _END_TIME):
        raise ConfigurationError("options has a start-timestamp that is later than the end-timestamp")

    if _START_TIME in options:
        chain = [each for each in chain if each.timestamp_ms > _number(options, _START_TIME)]
    if _END_TIME in options:
        chain = [each for each in chain if each.timestamp_ms <= _number(options, _END_TIME)]
    # Without the expired parent all its rows would be shown as inserted by this snapshot.
    if any(before[each.snapshot_id] is None and not begins_history(table, each) for each in chain):
        raise ConfigurationError("the range begins before the oldest snapshot that has not expired")

    return tuple((before[each.snapshot_id], each) for each in reversed(chain) if not _only_rewrites(each))


def _only_rewrites(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and snapshot.summary.operation == Operation.REPLACE


def _number(options: Mapping[str, str], name: str) -> int:
    try:
        return int(options[name])
    except ValueError:
        raise ConfigurationError(f"options has {name}={options[name]!r}, which is not a number") from None


def with_change_columns(schema: Schema) -> Schema:
    """Return a table's columns and those that are added to them."""
    added = [field.name for field in CHANGE_FIELDS]
    # Lower case, since Spark resolves names without case: the query could not tell the two apart.
    if taken := [field.name for field in schema.fields if field.name.lower() in added]:
        raise ConfigurationError(f"the table has a column {', '.join(taken)}, as its table of changes has: rename it")
    return Schema(*schema.fields, *CHANGE_FIELDS, schema_id=schema.schema_id)


@dataclass(frozen=True)
class _Moved:
    """Rows of a snapshot's new files that it did not write first."""

    table: EncryptedTable
    tasks: Sequence[EncryptedFileScanTask]
    sequence_number: int | None

    @cached_property
    def row_ids(self) -> bytes:
        """Their `_row_id`s. Nothing else of the files is read."""
        reader = TaskReader(self.table.metadata, self.table.io, Schema(ROW_ID, LAST_UPDATED), ALWAYS_TRUE)
        found = BitMap64()
        for task in self.tasks:
            for rows in reader.batches(task):
                moved = pc.fill_null(pc.not_equal(rows.column(LAST_UPDATED.name), self.sequence_number), False)
                found.update(row_id for row_id in rows.filter(moved).column(ROW_ID.name).to_pylist() if row_id is not None)

        return found.serialize()


class ChangeTask(EncryptedFileScanTask):
    """A file of which a snapshot inserted or deleted rows."""

    def __init__(self, task: EncryptedFileScanTask, change: ChangedRows, moved: _Moved | None) -> None:
        super().__init__(task.file, task.delete_files, task.residual, task.data_sequence_number)
        self._change = change
        self._moved = moved

    @property
    def change(self) -> ChangedRows:
        """Which rows. The first look reads which of them only moved."""
        if self._moved is None:
            return self._change
        known = self._change
        if known.kind == INSERT:
            return ChangedRows(known.kind, known.ordinal, known.snapshot_id, known.positions, sequence_number=self._moved.sequence_number)
        return ChangedRows(known.kind, known.ordinal, known.snapshot_id, known.positions, moved=self._moved.row_ids)


def change_tasks(table: EncryptedTable, snapshots: Sequence[SnapshotChange], row_filter: BooleanExpression) -> list[EncryptedFileScanTask]:
    """Return the files to read, in the order of the snapshots.

    Args:
        table: whose.
        snapshots: as `snapshot_range` returns them.
        row_filter: rows of the table that are looked for.
    """
    # Which rows came and went would show rows that the server's filter hides.
    refuse_restricted(table.io, "reading changes")
    planner = ScanPlanner(table.metadata, table.io, row_filter)
    deletes = DeleteReader(table.io, table.metadata)
    return [
        task
        for ordinal, (parent, snapshot) in enumerate(snapshots)
        for task in _Changes(table, planner, deletes, parent, snapshot, ordinal).tasks()
    ]


@dataclass
class _Changes:
    """What one snapshot changed."""

    table: EncryptedTable
    planner: ScanPlanner
    deletes: DeleteReader
    parent: Snapshot | None
    snapshot: Snapshot
    ordinal: int
    before: dict[str, EncryptedFileScanTask] = field(default_factory=dict)
    after: dict[str, EncryptedFileScanTask] = field(default_factory=dict)

    def tasks(self) -> Iterator[ChangeTask]:
        """Yield the files with deleted rows, then those with inserted ones."""
        self._plan()
        gone = [task for path, task in self.before.items() if path not in self.after]
        come = [task for path, task in self.after.items() if path not in self.before]
        # A row can only have moved if a file went and another came; otherwise no file is read to find out.
        moved = _Moved(self.table, come, self.snapshot.sequence_number) if gone and come else None
        for task in gone:
            yield self._task(task, DELETE, moved)
        inserted = [self._task(task, INSERT, moved) for task in come]

        for path, task in self.after.items():
            was = self.before.get(path)
            # Most files are in both snapshots with the same deletes: nothing of them is read.
            if was is None or _deletes_of(was) == _deletes_of(task):
                continue

            then, now = self._deleted(was), self._deleted(task)
            if now - then:
                yield self._task(was, DELETE, moved, now - then)
            if then - now:
                inserted.append(self._task(task, INSERT, None, then - now))

        yield from inserted

    def _plan(self) -> None:
        """Plan both snapshots, but for data manifests that they share where they share all delete manifests too."""
        listed = [[] if each is None else listed_manifests(each, self.table.io) for each in (self.parent, self.snapshot)]
        shared = set.intersection(*({manifest.manifest_path for manifest in manifests} for manifests in listed))
        # A new delete file may be for a data file of any manifest, also of one that both snapshots share.
        if any(_has_deletes(manifest) and manifest.manifest_path not in shared for manifests in listed for manifest in manifests):
            shared = set()
        self.before, self.after = (
            {
                task.file.file_path: task
                for task in self.planner.plan_files(
                    [manifest for manifest in manifests if _has_deletes(manifest) or manifest.manifest_path not in shared]
                )
            }
            for manifests in listed
        )

    def _deleted(self, task: EncryptedFileScanTask) -> BitMap64:
        if any(file.content == DataFileContent.EQUALITY_DELETES for file in task.delete_files):
            raise ConfigurationError(f"{task.file.file_path}: rows of it are deleted by equality: CALL create_changelog_view shows them")
        return BitMap64(self.deletes.deletes_of(task).positions or ())

    def _task(self, task: EncryptedFileScanTask, kind: str, moved: _Moved | None, positions: BitMap64 | None = None) -> ChangeTask:
        at = None if positions is None else positions.serialize()
        return ChangeTask(task, ChangedRows(kind, self.ordinal, self.snapshot.snapshot_id, at), moved)


def _has_deletes(manifest: ManifestFile) -> bool:
    return manifest.content == ManifestContent.DELETES


def _deletes_of(task: EncryptedFileScanTask) -> set[tuple[str, int | None]]:
    return {(file.file_path, getattr(file, "content_offset", None)) for file in task.delete_files}
