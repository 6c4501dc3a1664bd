"""Files that Spark's own Parquet reader does not serve, read by Python in the process where the task runs.

    driver     the task, with the file's key and the table's schemas ──▶ Spark's message to the executor that asks for it
    executor   start_reading ──▶ a handle     next_rows ──▶ an Arrow stream of one batch, until there are no more     stop_reading

The executor's JVM speaks to a Python process beside it, as the driver's does to the planner (process.py): over a pipe. Rows are those of
every other Python read: deletes, schema evolution, defaults, partition values, restrictions of the catalog's server. They come in the
columns that are wanted, then `_row_id` and `_last_updated_sequence_number`, then the row's position in its file, where asked for.

The content of a task, all numbers big endian:

    task = length (4) | what the table's tasks share (pickled) | length (4) | which rows changed (pickled; None for a query of rows)
           | the file's entry (table/file_entries.py)

It holds the file's DEK, the KEKs of protected columns that the driver may read, and the credentials of the file's store. It goes to
executors in Spark's private messages alone, as keys do.

Raises FormatError for content that is no task, and whatever reading raises, which the JVM reports with the file's name.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema

from tablecrypt.engines.access import TableAccess
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.spark.columns import batch_for_spark, schema_for_spark
from tablecrypt.spark.sql.local_rows import arrow_stream
from tablecrypt.spark.sql.messages import Request, Response, operation
from tablecrypt.spark.sql.planner import LoadedTable, Planner
from tablecrypt.spark.sql.scans.change_rows import ChangedRows, stored_part
from tablecrypt.spark.sql.scans.changes import ChangeTask
from tablecrypt.spark.tables import table_access
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.lineage import LAST_UPDATED, ROW_ID, with_lineage
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.protection.visible_columns import MASK
from tablecrypt.table.reader import READ_AHEAD, ReadOptions, RowSource, TaskReader, prefetched

POSITION: Final = "_pos"
_LENGTH: Final = struct.Struct(">I")
_QUEUE_LENGTH: Final = 2


@dataclass(frozen=True)
class _Shared:
    """What all tasks of a scan need: the table, and the columns of its schema that are read."""

    access: TableAccess
    projected: Schema
    row_filter: BooleanExpression


def portable_tasks(
    loaded: LoadedTable, projected: Schema, readable: frozenset[int], tasks: Mapping[int, EncryptedFileScanTask], *, with_deleted: bool
) -> dict[int, bytes]:
    """Return the content of tasks, by number of the file.

    Args:
        loaded: their table.
        projected: the columns to read.
        readable: field ids of the protected columns among them whose values are shown; of the others masks are.
        tasks: the files by number.
        with_deleted: rows that are deleted by position are read too.

    Raises:
        ConfigurationError: `with_deleted`, and rows of a file are deleted by equality.
    """
    if not tasks:
        return {}

    table = loaded.located.table
    # KEKs are brought along: executors of the connector need no right in the KMS.
    shared = _pickled(_Shared(table_access(table, readable, brings_keys=True), projected, loaded.selection.row_filter))
    codec = FileEntryCodec(table.metadata)
    # No row of changes is deleted from them.
    adds_deleted = with_deleted and loaded.changes is None
    given = {number: _with_deleted_rows(task) if adds_deleted else task for number, task in tasks.items()}

    return {number: shared + _pickled(_change_in(tasks[number])) + codec.encode_tasks([task]) for number, task in given.items()}


def _change_in(task: EncryptedFileScanTask) -> ChangedRows | None:
    return task.change if isinstance(task, ChangeTask) else None


def _with_deleted_rows(task: EncryptedFileScanTask) -> EncryptedFileScanTask:
    if any(file.content == DataFileContent.EQUALITY_DELETES for file in task.delete_files):
        raise ConfigurationError(
            f"{task.file.file_path}: rows of it are deleted by equality, for which _deleted is not known: "
            "compact the table, or do not ask for _deleted"
        )
    # Without its deletes, so that rows come which they hide; the positions that Spark marks come beside (plan.py).
    return EncryptedFileScanTask(task.file, set(), task.residual, task.data_sequence_number, task.part)


class StartReading(Request):
    """A task, as drawn above, and which columns are wanted beside the table's."""

    content: bytes
    row_ids: bool
    last_updated: bool
    positions: bool


@operation
def start_reading(planner: Planner, request: StartReading) -> Response:
    """Open a task. Its rows come from a thread that reads ahead."""
    rows = _rows(request.content, row_ids=request.row_ids, last_updated=request.last_updated, positions=request.positions)
    return Response({"reader": planner.readers.add(TaskRows(rows))})


class TaskRows:
    """The rows of a task, which a thread reads ahead until they are closed."""

    def __init__(self, rows: Iterator[pa.RecordBatch]) -> None:
        self._rows = _prefetched(rows)
        self._is_closed = False
        self._lock = Lock()

    def next(self) -> pa.RecordBatch | None:
        """Return the next rows; None at the end. ConfigurationError after `close`: what is left out must not look like the end."""
        with self._lock:
            if self._is_closed:
                raise ConfigurationError("this read of a file was closed before its end: run the query again")
            return next(self._rows, None)

    def close(self) -> None:
        """Stop reading ahead."""
        # A generator that is closed while another thread runs it raises: close() waits for the batch that is being read.
        with self._lock:
            self._is_closed = True
            self._rows.close()


def _prefetched(rows: Iterator[pa.RecordBatch]) -> Generator[pa.RecordBatch]:
    # A generator, which a reader that stops early can close.
    yield from prefetched([RowSource(lambda: rows)], 1, _QUEUE_LENGTH)


class ReaderRequest(Request):
    """About a task that is being read, by its handle."""

    reader: str


@operation
def next_rows(planner: Planner, request: ReaderRequest) -> Response:
    """Return the next rows of a task as an Arrow stream; none at the end."""
    rows = planner.readers[request.reader].next()
    if rows is None:
        return Response({"end": True})
    return Response({"end": False}, arrow_stream(rows))


@operation
def stop_reading(planner: Planner, request: ReaderRequest) -> None:
    """Forget a task, whether its rows were all taken or not."""
    planner.readers.pop(request.reader).close()


def _rows(content: bytes, *, row_ids: bool, last_updated: bool, positions: bool) -> Iterator[pa.RecordBatch]:
    shared, change, task = _decoded(content)
    lineage = [
        # Rows with positions always have a column: a batch without any would lose their number.
        *([ROW_ID] if row_ids or positions or change is not None else []),
        *([LAST_UPDATED] if last_updated or change is not None else []),
    ]
    stored = shared.projected if change is None else stored_part(shared.projected)
    projected = with_lineage(stored, tuple(lineage)) if lineage else stored
    # What may not be masked was refused when the scan was planned.
    options = ReadOptions(read_ahead=READ_AHEAD, masked=MASK)
    reader = TaskReader(shared.access.metadata(), shared.access.io(), projected, shared.row_filter, options)
    schema = schema_for_spark(projected)
    if not positions and change is None:
        for rows in reader.batches(task):
            # A count(*) wants no column: the batch says how many rows there are.
            yield batch_for_spark(rows, schema) if len(schema) else rows
        return

    wanted = [field.name for field in shared.projected.fields]
    wanted += [name for name, is_wanted in ((ROW_ID.name, row_ids), (LAST_UPDATED.name, last_updated), (POSITION, positions)) if is_wanted]
    for at, rows in reader.positioned_batches(task):
        batch = batch_for_spark(rows, schema).append_column(POSITION, at)
        yield (batch if change is None else change.of(batch, at)).select(wanted)


def _decoded(content: bytes) -> tuple[_Shared, ChangedRows | None, EncryptedFileScanTask]:
    try:
        shared, rest = _unpickled(content)
        change, entry = _unpickled(rest)
    except (struct.error, pickle.UnpicklingError, EOFError, ValueError, LookupError) as error:
        raise FormatError("a task that Python is to read is not complete") from error
    [task] = FileEntryCodec(shared.access.metadata()).decode_tasks(entry)
    return shared, change, task


def _pickled(value: Any) -> bytes:
    content = pickle.dumps(value)
    return _LENGTH.pack(len(content)) + content


def _unpickled(content: bytes) -> tuple[Any, bytes]:
    (length,) = _LENGTH.unpack_from(content)
    end = _LENGTH.size + length
    return pickle.loads(content[_LENGTH.size : end]), content[end:]
