"""Reading an encrypted table into a Ray Dataset.

    driver    plans files, pruned by the scan's filter; each file, or part of a long one, is one TASK message
    Ray       makes as many read tasks as it wants to of them
    worker    opens its messages, and yields the rows in blocks

The Dataset is of the snapshot that was current when it was made, however often it is read.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, cast

import pyarrow as pa
import ray
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, IncrementalAppendScan, Table
from ray.data import Dataset, Datasource, ReadTask
from ray.data.block import BlockMetadata

from tablecrypt.engines.access import TableAccess
from tablecrypt.engines.job_keys import JobTicket, Role
from tablecrypt.engines.spreading import balanced
from tablecrypt.engines.tasks import READ_AHEAD
from tablecrypt.errors import ConfigurationError, TablecryptError
from tablecrypt.ray.failures import failure
from tablecrypt.ray.jobs import RayJob
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.prefetch import prefetched
from tablecrypt.table.protection.visible_columns import ERROR, visible_columns
from tablecrypt.table.reader import TaskReader, cast_batch
from tablecrypt.table.scan import EncryptedDataScan, EncryptedIncrementalAppendScan, counts_whole
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import TableFileIO

_PART_BYTES: Final = 64 * 1024 * 1024
"""Longer files are read by several tasks."""
_EXPANSION: Final = 4
"""How much larger rows are in memory than in a file, about."""
_WORKERS: Final = 2
_QUEUE_LENGTH: Final = 4


def read_table(table_or_scan: Table | DataScan | IncrementalAppendScan, **options: Any) -> Dataset:
    """Return the rows of an encrypted table as a Dataset, which workers read and decrypt when it is used.

    Args:
        table_or_scan: a table, or `table.scan(...)` with a filter, columns or a snapshot.
        options: those of `ray.data.read_datasource`, such as override_num_blocks, concurrency and num_cpus.

    Raises:
        ColumnKeyDeniedError: the columns include a protected one that this user may not see, and the scan does not ask for masks.
        ConfigurationError: not an encrypted table, or workers cannot be told how to reach the KMS or the table's storage.
        KmsError: the KMS refused the table's key to the driver.

    What goes wrong in a worker fails the Dataset when it is used, with an error that is both Ray's RayTaskError and this package's: a
    TamperedFileError that names the file, a KmsAccessDeniedError that names the key and the node.
    """
    scan = table_or_scan.scan() if isinstance(table_or_scan, EncryptedTable) else table_or_scan
    if not isinstance(scan, (EncryptedDataScan, EncryptedIncrementalAppendScan)):
        raise ConfigurationError(
            f"tablecrypt.ray.read_table takes an encrypted table or a scan of one, not {type(scan).__name__}: use ray.data.read_iceberg "
            "for tables that are not encrypted"
        )
    dataset = ray.data.read_datasource(EncryptedDatasource(_planned(scan.for_engine())), **options)
    return dataset if scan.limit is None else dataset.limit(scan.limit)


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
    """A read as Ray gets it. It holds no key.

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


def _planned(scan: EncryptedDataScan | EncryptedIncrementalAppendScan) -> ReadPlan:
    metadata, io = cast("EncryptedTableMetadata", scan.table_metadata), cast("TableFileIO", scan.io)
    projected, masked = scan.projection(), scan.masked or ERROR
    filtered = extract_field_ids(bind(metadata.schema(), scan.row_filter, case_sensitive=scan.case_sensitive))
    visible = visible_columns(metadata, io, projected, filtered, masked)
    job = RayJob.on(metadata, io)
    access = job.access(frozenset() if visible is None else visible.opened)
    content = ReadContent(access, projected, scan.row_filter, scan.case_sensitive, masked)
    codec = FileEntryCodec(metadata)
    parts = [part for task in scan.tasks() for part in cast("EncryptedFileScanTask", task).split(_PART_BYTES)]
    files = (
        FileToRead(number, job.key.encrypt(Role.TASK, number, codec.encode_tasks([part])), part.size, _rows(scan, part))
        for number, part in enumerate(parts)
    )
    shared = job.key.encrypt(Role.SHARED, 0, pickle.dumps(content))
    return ReadPlan(job.ticket, shared, tuple(files), schema_to_pyarrow(projected, include_field_ids=False))


def _rows(scan: EncryptedDataScan | EncryptedIncrementalAppendScan, task: EncryptedFileScanTask) -> int | None:
    if task.part is not None or not counts_whole(scan, task):
        return None
    return int(task.file.record_count)


class EncryptedDatasource(Datasource):  # type: ignore[misc]
    """What Ray Data reads an encrypted table through. Can be pickled: it holds ciphertext."""

    def __init__(self, plan: ReadPlan) -> None:
        super().__init__()
        self._plan = plan
        self._projection_map: dict[str, str] | None = None

    def get_name(self) -> str:
        """Return what Ray calls the read."""
        return "EncryptedTable"

    def supports_projection_pushdown(self) -> bool:
        """Whether columns that nobody uses are left out: they are."""
        return True

    def estimate_inmemory_data_size(self) -> int:
        """Return about how many bytes the rows take."""
        schema, read = self._plan.schema, self._read.read_schema
        return sum(file.size for file in self._plan.files) * _EXPANSION * len(read) // max(1, len(schema))

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None) -> list[ReadTask]:
        """Return as many tasks as Ray asks for, where there are files for them; one at least, which knows the schema."""
        count = max(1, min(parallelism, len(self._plan.files)))
        plan = self._read
        lists = balanced(plan.files, lambda file: file.size, count)
        return [self._task(replace(plan, files=tuple(files)), per_task_row_limit) for files in lists]

    @property
    def _read(self) -> ReadPlan:
        columns = self._get_data_columns()
        return self._plan if columns is None else replace(self._plan, columns=tuple(columns))

    def _task(self, plan: ReadPlan, limit: int | None) -> ReadTask:
        rows = [file.rows for file in plan.files]
        known = None if None in rows else sum(cast("list[int]", rows))
        size = sum(file.size for file in plan.files) * _EXPANSION
        metadata = BlockMetadata(num_rows=known, size_bytes=size, input_files=None, exec_stats=None)
        return ReadTask(partial(read_files, plan), metadata, plan.read_schema, limit)


def read_files(plan: ReadPlan) -> Iterator[pa.Table]:
    """Yield the rows of a task's files. Runs in a worker."""
    try:
        yield from _rows_of(plan)
        return
    except TablecryptError as error:
        failed = failure(error)
    raise failed


def _rows_of(plan: ReadPlan) -> Iterator[pa.Table]:
    schema, empty = plan.read_schema, True
    job_key = plan.ticket.redeem()
    content: ReadContent = pickle.loads(job_key.decrypt(Role.SHARED, 0, plan.shared))
    metadata = content.access.metadata()
    codec = FileEntryCodec(metadata)
    messages = ((file.number, file.message) for file in plan.files)
    tasks = [task for number, message in messages for task in codec.decode_tasks(job_key.decrypt(Role.TASK, number, message))]
    reader = TaskReader(
        metadata,
        content.access.io(),
        _selected(content.projected, plan.columns),
        content.row_filter,
        content.case_sensitive,
        read_ahead=READ_AHEAD,
        masked=content.masked,
    )
    for batch in prefetched(reader.sources(tasks), _WORKERS, _QUEUE_LENGTH):
        empty = False
        yield pa.Table.from_batches([cast_batch(batch, schema)])
    if empty:
        yield schema.empty_table()


def _selected(projected: Schema, columns: Sequence[str] | None) -> Schema:
    if columns is None:
        return projected
    return Schema(*(projected.find_field(name) for name in columns), schema_id=projected.schema_id)
