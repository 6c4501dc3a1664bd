"""spark.readStream.format("tablecrypt"): rows as snapshots appended them, in order, each once.

    offset = {"table-uuid": the table's, "snapshot-id": the last snapshot that was read, -1 before the first}

A micro-batch holds the files that the appends of whole snapshots added. Snapshots that only rewrote files (replace) hold no new rows and
are passed over. Snapshots that deleted or overwrote rows stop the stream with an error, unless the options say to pass over them; rows that
such a snapshot added are then not read.

Spark does not tell a Python source where a stream stands when it asks how far it can go; but it plans the range up to each offset, also
right after a restart, and from there the limits of a micro-batch are counted.

Raises ConfigurationError: the branch was rolled back, its history expired before it was read, or the table is another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.table.snapshots import Operation, Snapshot
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.source.options import EARLIEST, LATEST, SourceOptions
from tablecrypt.spark.source.partitions import EncryptedPartition, encrypted_partitions
from tablecrypt.spark.source.table import SourceTable, check_declared
from tablecrypt.spark.tables import LocatedTable, PlannedRead

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BEFORE_THE_FIRST: Final = -1
_ADDED_FILES: Final = "added-data-files"


class EncryptedStreamReader(DataSourceStreamReader):
    """Reads a branch's appends."""

    def __init__(self, source: SourceTable, schema: StructType) -> None:
        self._source = source
        self._schema = schema
        self._branch = source.options.written_branch()
        self._position: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins. Runs on the driver's machine."""
        located = self._source.load()
        located.check_branch(self._branch)
        self._position = self._start(located)
        return _offset(located, self._position)

    def latestOffset(self) -> dict[str, Any]:
        """How far the next micro-batch goes. Runs on the driver's machine."""
        located = self._source.load()
        if self._position is None:
            self._position = self._start(located)
        return _offset(located, reachable(history(located, self._branch, self._position), self._position, self._source.options))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the appends after one offset up to another. Runs on the driver's machine."""
        self._position = int(end["snapshot-id"])
        if start == end:
            return []
        located = self._source.load()
        if end["table-uuid"] != str(located.table.metadata.table_uuid):
            raise ConfigurationError(f"{located.name} is not the table that this query began with: start it with a new checkpoint")
        snapshots = history(located, self._branch, int(start["snapshot-id"]), self._position)
        for snapshot in snapshots:
            check_appended(snapshot, self._source.options)
        columns = tuple(self._schema.names)
        scan = located.table.incremental_append_scan(
            from_snapshot_id_exclusive=snapshots[0].parent_snapshot_id,
            to_snapshot_id_inclusive=self._position,
            row_filter=self._source.options.row_filter or ALWAYS_TRUE,
            selected_fields=columns,
        )
        read = PlannedRead.of_scan(located, scan, columns)
        check_declared(self._schema, read.projected)
        return encrypted_partitions(read, self._source.facts.sizing, self._source.facts.setting)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition. Runs on an executor."""
        return partition.rows() if isinstance(partition, EncryptedPartition) else iter(())

    def _start(self, located: LocatedTable) -> int:
        starting = self._source.options.starting
        if starting == LATEST:
            head = located.table.metadata.snapshot_by_name(self._branch)
            return BEFORE_THE_FIRST if head is None else head.snapshot_id
        if starting != EARLIEST:
            history(located, self._branch, int(starting))
            return int(starting)
        snapshots = history(located, self._branch, BEFORE_THE_FIRST)
        if snapshots and snapshots[0].parent_snapshot_id is not None:
            raise ConfigurationError(
                f"{located.name}: snapshots before {snapshots[0].snapshot_id} expired, so a stream cannot begin with the first row: "
                "read a snapshot as a batch, and begin the stream after it with the option starting"
            )
        return BEFORE_THE_FIRST


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


def reachable(snapshots: Sequence[Snapshot], position: int, options: SourceOptions) -> int:
    """Return the last snapshot of the next micro-batch: as many as the limits allow, one at least, none that must not be passed over.

    Raises:
        ConfigurationError: the very next snapshot replaced or deleted rows.
    """
    files = 0
    for count, snapshot in enumerate(snapshots):
        files += _added_files(snapshot)
        over = (options.max_snapshots is not None and count >= options.max_snapshots) or (
            options.max_files is not None and files > options.max_files
        )
        if count and (over or not _may_pass(snapshot, options)):
            break
        check_appended(snapshot, options)
        position = snapshot.snapshot_id
    return position


def check_appended(snapshot: Snapshot, options: SourceOptions) -> None:
    """Raise ConfigurationError for a snapshot that did more than append, unless the options say to pass over it."""
    if _may_pass(snapshot, options):
        return
    operation = snapshot.summary.operation.value if snapshot.summary is not None else "unknown"
    name = "skip-delete-snapshots" if operation == Operation.DELETE.value else "skip-overwrite-snapshots"
    raise ConfigurationError(
        f"snapshot {snapshot.snapshot_id} is a {operation}: a stream gives appended rows only. Option {name}=true passes over it"
    )


def _may_pass(snapshot: Snapshot, options: SourceOptions) -> bool:
    operation = snapshot.summary.operation if snapshot.summary is not None else None
    if operation == Operation.DELETE:
        return options.skip_deletes
    return operation in (Operation.APPEND, Operation.REPLACE) or options.skip_overwrites


def _added_files(snapshot: Snapshot) -> int:
    if snapshot.summary is None or snapshot.summary.operation != Operation.APPEND:
        return 0
    return int(snapshot.summary.get(_ADDED_FILES) or 0)


def _offset(located: LocatedTable, snapshot_id: int) -> dict[str, Any]:
    return {"table-uuid": str(located.table.metadata.table_uuid), "snapshot-id": snapshot_id}
