"""Scans of encrypted tables: PyIceberg's DataScan and IncrementalAppendScan, planned and read by this package.

A scan's filters, projection, limit, snapshot and case sensitivity mean what they mean in PyIceberg, and results have the same types. Beside
the table's columns, `_row_id` and `_last_updated_sequence_number` can be selected by name; `*` does not include them.

What a catalog's server restricts is left out and masked in every result (read_restrictions.py).

Several files are read ahead, in order and within bounds:

    file 0 ──▶ [queue of a few batches] ──┐
    file 1 ──▶ [queue of a few batches] ──┼──▶ the consumer takes all of file 0, then all of file 1, ...
    file 2 ──▶ [queue of a few batches] ──┘         and file 3 starts once file 0 is used up

Each is read in a thread of its own that waits when its queue is full. The threads are not from a shared pool, where waiting would keep
other work from running, and are daemons, so that a consumer that is never finished does not keep the process from ending.

Raises PlaintextRefusedError, TamperedFileError, AuthenticationError, FormatError or KmsError, naming the file; no row of a file that fails
is in a result, and `to_arrow` returns nothing at all then.

Iceberg table spec, "Scan Planning", "Row Lineage".
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from threading import Condition, Thread, current_thread
from typing import Any, Final, Generic, TypeAlias, TypeVar

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE, DataScan, FileScanTask, IncrementalAppendScan
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_between_ids
from pyiceberg.utils.concurrent import ExecutorFactory

from tablecrypt.errors import ConfigurationError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.table._pyiceberg.scans import IncrementalAppendScanAdapter
from tablecrypt.table.filters import with_nanoseconds
from tablecrypt.table.foreign_engines import ScanForOthers
from tablecrypt.table.lineage import LINEAGE_FIELDS, ROW_ID, with_lineage
from tablecrypt.table.partitions import partition_values
from tablecrypt.table.planning import ScanPlanner
from tablecrypt.table.reader import MatchingPositions, TaskReader
from tablecrypt.table.restrictions.read_restrictions import refuse_restricted, restrictions_of

T = TypeVar("T")
Scan: TypeAlias = DataScan | IncrementalAppendScan
_WORKERS: Final = 3
_QUEUE_LENGTH: Final = 4
_READ_AHEAD: Final = 64 * 1024 * 1024
"""A stream reads this many files at once, of each this many bytes ahead (or one row group), and keeps this many batches of each waiting."""


class EncryptedDataScan(ScanForOthers, DataScan):
    """A scan of one snapshot of an encrypted table."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.row_filter = with_nanoseconds(self.row_filter, self.table_metadata.schema(), self.case_sensitive)

    # `update` makes a scan of the parameters that it finds in the signature.
    __init__.__wrapped__ = DataScan.__init__  # type: ignore[attr-defined]

    def projection(self) -> Schema:
        """Return the selected columns: the table's in the table's order, then selected lineage columns."""
        lineage = tuple(field for field in LINEAGE_FIELDS if field.name in self.selected_fields)
        if not lineage:
            return super().projection()
        own = tuple(name for name in self.selected_fields if name not in {field.name for field in lineage})
        schema = self.update(selected_fields=own)._own_projection() if own else Schema()
        return with_lineage(schema, lineage)

    def _own_projection(self) -> Schema:
        return super().projection()

    def rows_with_lineage(self, task: FileScanTask) -> pa.Table:
        """Return all live rows of one data file, whether they match the filter or not: the table's columns, then those of lineage.

        Raises:
            ReadRestrictionError: the table's reader is restricted: these rows are for writing them again.
        """
        refuse_restricted(self.io, "writing rows of the table again")
        projected = with_lineage(self.table_metadata.schema())
        reader = _reader(self.update(row_filter=ALWAYS_TRUE), projected, (), None)
        return _table(reader.batches(task), projected)

    def batches_with_lineage(self) -> Iterator[pa.RecordBatch]:
        """Yield matching rows, some batches ahead: the table's columns, then those of lineage."""
        return _stream(self, with_lineage(self.table_metadata.schema()), self.tasks(), ())

    def matching_positions(self, task: FileScanTask) -> MatchingPositions:
        """Return where the rows lie in one data file that a delete by the filter takes. Only the filter's columns are read."""
        return _reader(self, Schema(ROW_ID), (), None).matching_positions(task)

    def tasks(self) -> Iterable[FileScanTask]:
        """Return a task for each data file that may hold matching rows. Planned here, never by the catalog."""
        snapshot = self.snapshot()
        return [] if snapshot is None else _planner(self).plan_files(snapshot.manifests(self.io))

    def to_arrow(self, dictionary_columns: tuple[str, ...] = ()) -> pa.Table:
        """Read all rows into an Arrow table.

        Args:
            dictionary_columns: columns to return as Arrow dictionaries, where they come from Parquet files.
        """
        return read_table(self, self.tasks(), dictionary_columns)

    def to_arrow_batch_reader(self, dictionary_columns: tuple[str, ...] = ()) -> pa.RecordBatchReader:
        """Return a reader that yields rows as files are read, a few files and batches ahead."""
        return read_stream(self, self.tasks(), dictionary_columns)

    def count(self) -> int:
        """Return the number of rows. Files that match as a whole and have no deletes are counted by their manifest entry."""
        unfiltered = isinstance(self.row_filter, AlwaysTrue)
        restricted = restrictions_of(self.io) is not None
        known, rest = 0, list[FileScanTask]()
        for task in self.tasks():
            if not restricted and _counts_whole(task, unfiltered):
                known += task.file.record_count
            else:
                rest.append(task)
        reader = _reader(self, Schema(), (), None)
        counts = ExecutorFactory.get_or_create().map(lambda task: sum(len(batch) for batch in reader.batches(task)), rest)
        return known + sum(counts)


class EncryptedIncrementalAppendScan(ScanForOthers, IncrementalAppendScanAdapter):
    """A scan of the rows that append snapshots added between two snapshots of an encrypted table."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.row_filter = with_nanoseconds(self.row_filter, self.table_metadata.schema(), self.case_sensitive)

    # `update` makes a scan of the parameters that it finds in the signature.
    __init__.__wrapped__ = IncrementalAppendScan.__init__  # type: ignore[attr-defined]

    def tasks(self) -> Iterable[FileScanTask]:
        """Return a task for each data file that an append in the range added."""
        snapshots = {snapshot.snapshot_id: snapshot for snapshot in self._append_snapshots()}

        def added_here(manifest: ManifestFile) -> bool:
            return manifest.content == ManifestContent.DATA and manifest.added_snapshot_id in snapshots

        def added_entry(entry: ManifestEntry) -> bool:
            return entry.snapshot_id in snapshots and entry.status == ManifestEntryStatus.ADDED

        manifests = {manifest for snapshot in snapshots.values() for manifest in snapshot.manifests(self.io) if added_here(manifest)}
        return _planner(self).plan_files(manifests, added_entry)

    def to_arrow(self) -> pa.Table:
        """Read all rows into an Arrow table."""
        return read_table(self, self.tasks(), ())

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """Return a reader that yields rows as files are read."""
        return read_stream(self, self.tasks(), ())

    def _append_snapshots(self) -> list[Snapshot]:
        if self.from_snapshot_id is None and self.to_snapshot_id is None and self.table_metadata.current_snapshot() is None:
            return []
        from_exclusive, to_inclusive = self.snapshot_range()
        ancestors = ancestors_between_ids(
            from_snapshot_id_exclusive=from_exclusive, to_snapshot_id_inclusive=to_inclusive, table_metadata=self.table_metadata
        )
        return [each for each in ancestors if each.summary is not None and each.summary.operation == Operation.APPEND]


def read_table(scan: Scan, tasks: Iterable[FileScanTask], dictionary_columns: tuple[str, ...] = ()) -> pa.Table:
    """Read the tasks of a scan into an Arrow table, in parallel."""
    projected = scan.projection()
    if scan.limit is not None:
        batches: Iterable[pa.RecordBatch] = _limited(_stream(scan, projected, tasks, dictionary_columns), scan.limit)
    else:
        reader = _reader(scan, projected, dictionary_columns, None)
        read = ExecutorFactory.get_or_create().map(lambda task: list(reader.batches(task)), tasks)
        batches = itertools.chain.from_iterable(read)
    return _table(batches, projected)


def read_stream(scan: Scan, tasks: Iterable[FileScanTask], dictionary_columns: tuple[str, ...] = ()) -> pa.RecordBatchReader:
    """Read the tasks of a scan as a stream, in order, with bounded memory."""
    projected = scan.projection()
    batches = _stream(scan, projected, tasks, dictionary_columns)
    if scan.limit is not None:
        batches = _limited(batches, scan.limit)
    schema = schema_to_pyarrow(projected)
    if dictionary_columns and (first := next(batches, None)) is not None:
        batches = itertools.chain([first], batches)
        schema = pa.schema([first.schema.field(field.name) if field.name in dictionary_columns else field for field in schema])
    return pa.RecordBatchReader.from_batches(schema, batches).cast(schema)


def _counts_whole(task: FileScanTask, unfiltered: bool) -> bool:
    """Whether every row of a task's file counts, so that none has to be read."""
    if task.delete_files or not isinstance(task.residual, AlwaysTrue):
        return False
    # Of a partition that is null, PyIceberg's residual says that it differs from any value; reading says that this is not known.
    return unfiltered or None not in partition_values(task.file.partition)


def _stream(scan: Scan, projected: Schema, tasks: Iterable[FileScanTask], dictionary_columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    reader = _reader(scan, projected, dictionary_columns, _READ_AHEAD)
    sources: list[Callable[[], Iterator[pa.RecordBatch]]] = [partial(reader.batches, task) for task in tasks]
    return prefetched(sources, _WORKERS, _QUEUE_LENGTH)


def _table(batches: Iterable[pa.RecordBatch], projected: Schema) -> pa.Table:
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    if not tables:
        return schema_to_pyarrow(projected, include_field_ids=False).empty_table()
    # Files may hold the same column as string or large_string, which only the permissive mode puts into one.
    return pa.concat_tables(tables, promote_options="permissive")


def _limited(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    left = limit
    if left <= 0:
        return
    for batch in batches:
        yield batch.slice(0, left)
        left -= len(batch)
        if left <= 0:
            return


def _planner(scan: Scan) -> ScanPlanner:
    return ScanPlanner(scan.table_metadata, scan.io, scan.row_filter, scan.case_sensitive, scan.options)


def _reader(scan: Scan, projected: Schema, dictionary_columns: tuple[str, ...], read_ahead: int | None) -> TaskReader:
    if not isinstance(scan.io, EncryptingFileIO):
        raise ConfigurationError(f"an encrypted table is read through an EncryptingFileIO, not {type(scan.io).__name__}")
    return TaskReader(scan.table_metadata, scan.io, projected, scan.row_filter, scan.case_sensitive, dictionary_columns, read_ahead)


def prefetched(sources: Iterable[Callable[[], Iterator[T]]], workers: int, depth: int) -> Iterator[T]:
    """Yield all items of all sources, in order.

    Args:
        sources: functions that start an iterator.
        workers: how many of them are read at once.
        depth: how many items of each wait to be taken, at most.

    Raises:
        Whatever a source raises, in the place of its next item. The others are stopped, also when the consumer stops early.
    """
    remaining = iter(sources)
    running: deque[_Worker[T]] = deque()
    try:
        while True:
            while len(running) < workers and (source := next(remaining, None)) is not None:
                running.append(_Worker(source, depth))
            if not running:
                return
            yield from running[0].items()
            running.popleft()
    finally:
        for worker in running:
            worker.stop()
        for worker in running:
            worker.join()


class _Worker(Generic[T]):
    """One source, read by a thread into a bounded queue."""

    def __init__(self, source: Callable[[], Iterator[T]], depth: int) -> None:
        self._source = source
        self._depth = depth
        self._items: deque[T] = deque()
        self._changed = Condition()
        self._stopped = False
        self._finished = False
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="tablecrypt-prefetch", daemon=True)
        self._thread.start()

    def items(self) -> Iterator[T]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._finished)
                if not self._items:
                    break
                item = self._items.popleft()
                self._changed.notify_all()
            yield item
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._items.clear()
            self._changed.notify_all()

    def join(self) -> None:
        # A forgotten consumer is finished by the garbage collector, which may run in this very thread.
        if self._thread is not current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            for item in self._source():
                if not self._put(item):
                    return
        except BaseException as error:  # noqa: BLE001  carried to the consumer's thread and raised there
            self._error = error
        finally:
            with self._changed:
                self._finished = True
                self._changed.notify_all()

    def _put(self, item: T) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or len(self._items) < self._depth)
            if self._stopped:
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True
