"""Data files with protected columns, which Parquet's Java writer does not write: Python writes them where the task runs.

    driver     the table's column keys are committed; what tasks need ──▶ Spark's message to the executor that asks for it
    executor   start_writing ──▶ a handle
               start_file, write_rows …, finish_file ──▶ the file's manifest entry, again and again
               stop_writing: nothing is left of the attempt, unless its files are kept

The executor's JVM speaks to a Python process beside it, as for files that Python reads (scans/portable.py). It decides which rows go into
which file, and asks the driver for each file's location: what the commit does not take, the driver deletes. Rows come as Arrow streams in
the table's columns, with `_row_id` and `_last_updated_sequence_number` behind them in a change of rows.

A user who may wrap but not unwrap under a column's master key can write only rows without masks, as Spark's plan shows
(java/RowSources.java).

What tasks get is a pickled TableAccess. It holds the KEKs of protected columns that the driver has opened, and the credentials of the
table's store; it goes to executors in Spark's private messages alone. Tasks make no column key: no commit would bring it.

Raises:
    ColumnKeyDeniedError: this user may not read a protected column, and the rows may hold its masks; or may not wrap either. Nothing was
        committed.
    CommitFailedException: others committed to the table while its column keys were made. Nothing is written.
    ConfigurationError: a value that its column cannot hold, or an attempt that has ended.
"""

from __future__ import annotations

import itertools
import pickle
import threading
import uuid
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Properties

from tablecrypt._bytes import ByteReader
from tablecrypt.engines.access import TableAccess
from tablecrypt.engines.changes import check_unchanged
from tablecrypt.engines.protected_columns import ensure_column_keys
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.files.locations import for_pyiceberg
from tablecrypt.spark.columns import batch_for_table, schema_for_table
from tablecrypt.spark.shared.written_files import partition_key
from tablecrypt.spark.sql.messages import Request, Response, operation
from tablecrypt.spark.tables import table_access
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.lineage import LINEAGE_FIELDS
from tablecrypt.table.parquet_options import target_file_size
from tablecrypt.table.protection.policy import column_keys, policy_of
from tablecrypt.table.table_files import FreshKeys
from tablecrypt.table.updates import added_keys
from tablecrypt.table.write import DataFileWriter, PendingRowGroup, RowGroupLimit, UnfinishedDataFile

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionKey

    from tablecrypt.spark.sql.planner import LoadedTable, Planner

_ENDED: Final = "this attempt at a task has ended, and writes no more rows"


@dataclass(frozen=True)
class KeyedTable:
    """A table with protected columns that has the column keys which new files go under.

    Attributes:
        loaded: the table.
        write_only: field ids of the columns that this user may write and not read.
    """

    loaded: LoadedTable
    write_only: frozenset[int]


def with_column_keys(loaded: LoadedTable, *, write_only: bool) -> KeyedTable:
    """Return a table with protected columns such that it has the column keys that new files go under. Those that it lacks are committed.

    A table that the statement makes or replaces gets them with its rows.

    Args:
        loaded: the table.
        write_only: whether permission to wrap under a column's master key is enough, since no row can hold a mask.
    """
    if loaded.staged is not None:
        return KeyedTable(_staged_with_column_keys(loaded), frozenset())

    table, before = copy(loaded.located.table), loaded.located.table.metadata
    unread = ensure_column_keys(table, write_only=write_only)
    # Spark has planned the rows for the table as it was loaded.
    check_unchanged(loaded.located.name, before, table.metadata)
    # The write is planned on the older head: with the newer metadata its commit would not see these commits as conflicts.
    if _head(before, loaded.branch) != _head(table.metadata, loaded.branch):
        raise CommitFailedException(f"{loaded.located.name}: others committed while keys of its columns were made: run the statement again")

    return KeyedTable(replace(loaded, located=replace(loaded.located, table=table)), unread)


def _head(metadata: TableMetadata, branch: str) -> int | None:
    ref = metadata.refs.get(branch)
    return None if ref is None else ref.snapshot_id


def _staged_with_column_keys(loaded: LoadedTable) -> LoadedTable:
    staged = loaded.staged
    assert staged is not None
    transaction = staged.transaction
    metadata, io = transaction.encrypted_metadata, transaction.table_io
    columns = policy_of(metadata).columns
    # Before a key is made: a user who may not read a column must not write masks as its values.
    column_keys(metadata, io).check_readable(columns)
    entries = io.manager.columns.entries_for(metadata.key_ring, columns.values())
    transaction.apply(added_keys(entries))
    table = copy(loaded.located.table)
    table.metadata = transaction.table_metadata

    return replace(loaded, located=replace(loaded.located, table=table))


def content_for_tasks(keyed: KeyedTable, metadata: TableMetadata, properties: Properties) -> bytes:
    """Return what tasks need to write files of a table.

    Args:
        keyed: the table.
        metadata: its own, with the columns that the write adds.
        properties: as they hold for this write.
    """
    table = keyed.loaded.located.table
    written = copy(table)
    written.metadata = metadata.model_copy(update={"properties": dict(properties)})
    # All protected columns, whatever the rows have: each file holds all of them.
    readable = frozenset(policy_of(table.metadata).columns) - keyed.write_only
    return pickle.dumps(table_access(written, readable, brings_keys=True, write_only=keyed.write_only))


@dataclass(frozen=True)
class _Columns:
    """The columns of rows as Spark gives them, and as they are written: the table's, then those of lineage in a change of rows."""

    table: Schema
    given: pa.Schema
    stored: pa.Schema

    @classmethod
    def of(cls, rows: pa.Schema, table: Schema) -> _Columns:
        own = len(table.fields)
        given = schema_for_table(pa.schema(list(rows)[:own]), table)
        lineage = [pa.field(each.name, pa.int64()) for each in LINEAGE_FIELDS[: len(rows) - own]]
        return cls(table, given, pa.schema([*given, *lineage]))

    def stored_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        own = len(self.given)
        converted = batch_for_table(rows.select(list(range(own))), self.given, self.table)
        return pa.RecordBatch.from_arrays([*converted.columns, *rows.columns[own:]], schema=self.stored)


@dataclass
class _OpenFile:
    """A file that rows are added to. Its first row group is not written before it is full, or the file ends."""

    location: str
    partition_key: PartitionKey | None
    rows: PendingRowGroup = field(default_factory=PendingRowGroup)
    parquet: UnfinishedDataFile | None = None

    @property
    def length(self) -> int:
        return 0 if self.parquet is None else self.parquet.length

    def write_row_group(self, writer: DataFileWriter) -> UnfinishedDataFile:
        if self.parquet is None:
            self.parquet = writer.begin_at(self.location, self.partition_key)
        full, self.rows = self.rows, PendingRowGroup()
        self.parquet.write(full.take_combined())
        return self.parquet


class WritingAttempt:
    """One attempt at a task, which writes one file after the other. Spark may kill it at any moment."""

    def __init__(self, access: TableAccess, rows: pa.Schema) -> None:
        self._metadata = access.metadata()
        self._columns = _Columns.of(rows, self._metadata.schema())
        keys = FreshKeys(access.data_key_length)
        self._writer = DataFileWriter.of(self._metadata, self._columns.stored, access.io(), keys, uuid.uuid4(), itertools.count())
        self._limit = RowGroupLimit.of(self._writer, target_file_size(self._metadata.properties))
        self._lock = threading.Lock()
        self._has_ended = False
        self._open: _OpenFile | None = None

    @classmethod
    def of(cls, content: bytes) -> WritingAttempt:
        """Take the content for tasks behind its length in 4 bytes, and an Arrow stream of no rows. FormatError for other bytes."""
        try:
            parts = ByteReader(content, "what a task is to write files with")
            access = pickle.loads(parts.frame(4, "big"))
            return cls(access, pa.ipc.open_stream(parts.rest()).schema)
        except (pickle.UnpicklingError, pa.ArrowException, EOFError) as error:
            raise FormatError("what Python is to write files with is not complete") from error

    def start_file(self, location: str, partition: bytes) -> None:
        """Begin a file. The one before is finished."""
        with self._lock:
            if self._has_ended or self._open is not None:
                raise ConfigurationError(_ENDED)
            self._open = _OpenFile(for_pyiceberg(location), partition_key(partition, self._metadata))

    def write(self, rows: pa.RecordBatch) -> int:
        """Add rows to the file, and return how many bytes of it are stored."""
        with self._lock:
            file = self._opened()
            file.rows.add(self._columns.stored_rows(rows))
            if self._limit.is_reached(file.rows):
                file.write_row_group(self._writer)
            return file.length

    def finish_file(self) -> bytes:
        """End the file, to which rows were added, and return its manifest entry as table/file_entries.py encodes it."""
        with self._lock:
            file = self._opened()
            parquet = file.write_row_group(self._writer) if file.rows.count or file.parquet is None else file.parquet
            entry = parquet.finish()
            # Only now: a file whose end failed stays open, and stop() deletes it.
            self._open = None
            return FileEntryCodec(self._metadata).encode_files([entry])

    def stop(self, *, keep: bool) -> None:
        """End the attempt. Without `keep` its files are deleted, where the store allows it."""
        with self._lock:
            # Set under the lock, so that no thread begins a file after the others were deleted.
            self._has_ended = True
            if self._open is not None and self._open.parquet is not None:
                self._open.parquet.abandon()
            if not keep:
                self._writer.delete_written()

    def _opened(self) -> _OpenFile:
        if self._has_ended or self._open is None:
            raise ConfigurationError(_ENDED)
        return self._open


class StartWriting(Request):
    """An attempt at a task that begins: what the driver gives it."""

    content: bytes


@operation
def start_writing(planner: Planner, request: StartWriting) -> Response:
    """Begin an attempt at a task."""
    return Response({"writer": planner.attempts.add(WritingAttempt.of(request.content))})


class AttemptRequest(Request):
    """About an attempt, by its handle."""

    writer: str


class StartFile(AttemptRequest):
    """A file that begins: the location that the driver gave, and the partition values (shared/written_files.py)."""

    location: str
    content: bytes


@operation
def start_file(planner: Planner, request: StartFile) -> None:
    """Begin a file."""
    planner.attempts[request.writer].start_file(request.location, request.content)


class WriteRows(AttemptRequest):
    """Rows of the file that the attempt writes, as an Arrow stream."""

    content: bytes


@operation
def write_rows(planner: Planner, request: WriteRows) -> Response:
    """Add rows to the file, and return how many bytes of it are stored."""
    attempt, length = planner.attempts[request.writer], 0
    for rows in pa.ipc.open_stream(request.content):
        length = attempt.write(rows)
    return Response({"length": length})


@operation
def finish_file(planner: Planner, request: AttemptRequest) -> Response:
    """End the file and return its manifest entry."""
    return Response({}, planner.attempts[request.writer].finish_file())


class StopWriting(AttemptRequest):
    """An attempt that ends; `keep` its files, or they are deleted."""

    keep: bool


@operation
def stop_writing(planner: Planner, request: StopWriting) -> None:
    """End an attempt, and delete its files unless they are kept."""
    planner.attempts.pop(request.writer).stop(keep=request.keep)
