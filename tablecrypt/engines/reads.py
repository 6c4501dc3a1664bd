"""A read by workers: the driver plans, and a worker opens what it gets and yields rows.

driver    plans files, pruned by the scan's filter; each file, or part of a long one, is one TASK message
worker    opens its messages, and yields the rows in batches
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from tablecrypt.engines.access import TableAccess
from tablecrypt.engines.job_keys import JobTicket, Role
from tablecrypt.engines.jobs import WorkerJob
from tablecrypt.errors import ConfigurationError
from tablecrypt.table.datasets.castable import cast_batch
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.protection.visible_columns import ERROR, opened_columns
from tablecrypt.table.reader import READ_AHEAD, ReadOptions, TaskReader, prefetched
from tablecrypt.table.scan import EncryptedDataScan, EncryptedIncrementalAppendScan, counts_whole
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import TableFileIO

EncryptedScan: TypeAlias = EncryptedDataScan | EncryptedIncrementalAppendScan

_PART_BYTES: Final = 64 * 1024 * 1024
"""Longer files are read by several tasks."""
_EXPANSION: Final = 4
"""How much larger rows are in memory than in a file, about."""
_WORKERS: Final = 2
_QUEUE_LENGTH: Final = 4


def scan_of(table_or_scan: object, caller: str, instead: str) -> EncryptedScan:
    """Return the scan that an engine reads.

    Args:
        table_or_scan: what a user gave.
        caller: the function that takes it, for the message.
        instead: what to call for a table that is not encrypted.

    Raises:
        ConfigurationError: it is neither an encrypted table nor a scan of one.
    """
    scan = table_or_scan.scan() if isinstance(table_or_scan, EncryptedTable) else table_or_scan
    if not isinstance(scan, (EncryptedDataScan, EncryptedIncrementalAppendScan)):
        raise ConfigurationError(
            f"{caller} takes an encrypted table or a scan of one, not {type(scan).__name__}: use {instead} for tables that are not "
            "encrypted"
        )

    return scan


@dataclass(frozen=True)
class FileToRead:
    """One file, or a part of one.

    Attributes:
        number: of the TASK message.
        message: that message.
        size: stored bytes.
        rows: how many it yields; None where that is not known before it is read.
    """

    number: int
    message: bytes
    size: int
    rows: int | None


@dataclass(frozen=True)
class ReadPlan:
    """A read as the engine gets it. It holds no key.

    Attributes:
        ticket: of the job.
        shared: the SHARED message, a ReadContent.
        files: what is read.
        schema: of the rows.
        columns: the names of those that are read; None for all.
    """

    ticket: JobTicket
    shared: bytes
    files: tuple[FileToRead, ...]
    schema: pa.Schema
    columns: tuple[str, ...] | None = None

    @property
    def size_in_memory(self) -> int:
        """About how many bytes the rows take."""
        return sum(file.size for file in self.files) * _EXPANSION * len(self.read_schema) // max(1, len(self.schema))

    @property
    def rows(self) -> int | None:
        """How many rows there are; None where that is not known."""
        rows = [file.rows for file in self.files]
        return None if None in rows else sum(cast("list[int]", rows))

    @property
    def read_schema(self) -> pa.Schema:
        """The schema of the columns that are read."""
        return self.schema if self.columns is None else pa.schema([self.schema.field(name) for name in self.columns])


@dataclass(frozen=True)
class ReadContent:
    """What every task of a read needs."""

    access: TableAccess
    projected: Schema
    row_filter: BooleanExpression
    case_sensitive: bool
    masked: str


def planned_read(scan: EncryptedScan, engine: str) -> ReadPlan:
    """Plan a read. Raises as the read of the same scan does, and as `WorkerJob.on`."""
    scan = scan.for_engine()
    metadata, io = cast("EncryptedTableMetadata", scan.table_metadata), cast("TableFileIO", scan.io)
    projected, masked = scan.projection(), scan.masked or ERROR
    filtered = extract_field_ids(bind(metadata.schema(), scan.row_filter, case_sensitive=scan.case_sensitive))
    opened = opened_columns(metadata, io, projected, filtered, masked)
    job = WorkerJob.on(metadata, io, engine)
    # Only the columns that this read opens: tasks need no right to the others, and cannot leak them.
    access = job.access(opened)
    content = ReadContent(access, projected, scan.row_filter, scan.case_sensitive, masked)
    codec = FileEntryCodec(metadata)
    parts = [part for task in scan.tasks() for part in task.split(_PART_BYTES)]
    files = (
        FileToRead(number, job.key.encrypt(Role.TASK, number, codec.encode_tasks([part])), part.size, _rows(scan, part))
        for number, part in enumerate(parts)
    )
    shared = job.key.share(content)

    return ReadPlan(job.ticket, shared, tuple(files), schema_to_pyarrow(projected, include_field_ids=False))


def _rows(scan: EncryptedScan, task: EncryptedFileScanTask) -> int | None:
    # The manifest counts the rows of a whole file: not those of a part, nor those that deletes or filters leave.
    if task.part is not None or not counts_whole(scan, task):
        return None
    return int(task.file.record_count)


def rows_of(plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task's files. Runs in a worker."""
    job_key = plan.ticket.redeem()
    content: ReadContent = job_key.shared(plan.shared)
    metadata = content.access.metadata()
    codec = FileEntryCodec(metadata)
    messages = ((file.number, file.message) for file in plan.files)
    tasks = [task for number, message in messages for task in codec.decode_tasks(job_key.decrypt(Role.TASK, number, message))]
    reader = TaskReader(
        metadata,
        content.access.io(),
        _selected(content.projected, plan.columns),
        content.row_filter,
        ReadOptions(content.case_sensitive, read_ahead=READ_AHEAD, masked=content.masked),
    )
    for batch in prefetched(reader.sources(tasks), _WORKERS, _QUEUE_LENGTH):
        yield cast_batch(batch, plan.read_schema)


def _selected(projected: Schema, columns: Sequence[str] | None) -> Schema:
    if columns is None:
        return projected
    return Schema(*(projected.find_field(name) for name in columns), schema_id=projected.schema_id)
