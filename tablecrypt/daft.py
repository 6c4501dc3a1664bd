"""Encrypted tables as DataFrames of Daft, through its own data sources and sinks, on one machine or on Ray.

    read_table    driver plans ──encrypted tasks──▶ tasks decrypt, filter and project ──record batches──▶ DataFrame
    datasink      DataFrame ──micropartitions──▶ tasks encrypt under fresh DEKs ──encrypted file entries──▶ driver commits once

The process that runs a task needs this package, access to the table's storage, and the right to decrypt with the table's master key in the
KMS (tablecrypt/engines/jobs.py says why). Daft applies a DataFrame's own filters after a read; those of a scan prune files and row groups.

Raises MissingExtraError on import where Daft is not installed.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, Final, Literal, get_args

import pyarrow as pa
from pyiceberg.table import DataScan, IncrementalAppendScan, Table
from pyiceberg.table.refs import MAIN_BRANCH

from tablecrypt.engines.arrow_rows import stored_reader
from tablecrypt.engines.job_keys import JobTicket
from tablecrypt.engines.jobs import WorkerJob
from tablecrypt.engines.reads import ReadPlan, planned_read, rows_of, scan_of
from tablecrypt.engines.tasks import WritingTask, decrypted_results
from tablecrypt.engines.writes import begin_write, commit_files, commit_to, current_table
from tablecrypt.errors import ConfigurationError, MissingExtraError
from tablecrypt.files.encrypting_file_io import refuse_restricted
from tablecrypt.parquet.text_columns import plain_rows
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.snapshots import CommitOptions
from tablecrypt.table.table import EncryptedTable

try:
    from daft import DataFrame
    from daft.io.pushdowns import Pushdowns
    from daft.io.sink import DataSink, WriteResult
    from daft.io.source import DataSource, DataSourceTask
    from daft.recordbatch import MicroPartition, RecordBatch
    from daft.schema import Schema
except ImportError as error:
    raise MissingExtraError.named("tablecrypt.daft needs Daft", "daft") from error

Mode = Literal["append", "overwrite"]
_ENGINE: Final = "Daft"
_COMMITTED: Final = pa.schema([("rows", pa.int64()), ("files", pa.int64())])
_NUMBER_BITS: Final = 63
"""Of a task's number: Daft gives tasks none, and messages of two tasks must not have the same."""


def read_table(table_or_scan: Table | DataScan | IncrementalAppendScan) -> DataFrame:
    """Return the rows of an encrypted table as a DataFrame, which tasks read and decrypt when it is used.

    Args:
        table_or_scan: a table, or `table.scan(...)` with a filter, columns or a snapshot.

    Raises:
        ColumnKeyDeniedError: the columns include a protected one that this user may not see, and the scan does not ask for masks.
        ConfigurationError: not an encrypted table, or tasks cannot be sent the way to the KMS or the table's storage.
        KmsError: the KMS refused the table's key.

    What goes wrong in a task ends the query with Daft's own error, whose text has the class and the message of this package's.
    """
    scan = scan_of(table_or_scan, "tablecrypt.daft.read_table", "daft.read_iceberg")
    frame = _Source(planned_read(scan, _ENGINE)).read()
    return frame if scan.limit is None else frame.limit(scan.limit)


def datasink(
    table: Table, mode: Mode = "append", *, branch: str = MAIN_BRANCH, snapshot_properties: Mapping[str, str] | None = None
) -> EncryptedSink:
    """Return what `DataFrame.write_sink` takes to write rows into an encrypted table, in one commit. For one write.

    Columns are matched by name. Optional columns that the DataFrame lacks are null. Each task writes at least one file.

    Args:
        table: as it was loaded.
        mode: "append", or "overwrite" to replace all rows that the table has at the time of the commit.
        branch: the branch to write to; it exists already.
        snapshot_properties: for the summary of the new snapshot.

    Raises:
        ConfigurationError: not an encrypted table, an unknown mode, a property or branch that cannot be used, or tasks cannot be sent
            the way to the KMS or the table's storage.
        ColumnKeyDeniedError: the KMS refuses the key of a protected column.
        KmsError: the KMS refused the table's key.
        ReadRestrictionError: rows would be replaced, and the catalog's server restricts which of them may be read.

    `write_sink` raises, and nothing is committed then: RuntimeError for what goes wrong in a task, with this package's error as its cause;
    ConfigurationError, StaleWriteError and CommitFailedException for what others changed or committed meanwhile.
    """
    if not isinstance(table, EncryptedTable):
        raise ConfigurationError(
            f"tablecrypt.daft.datasink takes an encrypted table, not {type(table).__name__}: use DataFrame.write_iceberg for tables that "
            "are not encrypted"
        )
    if mode not in get_args(Mode):
        raise ConfigurationError(f"mode {mode!r} is not known: use append or overwrite, or table.upsert(df.to_arrow())")

    options = commit_to(table, branch, snapshot_properties)
    if mode == "overwrite":
        refuse_restricted(table.io, f"writing in mode {mode}")
    return EncryptedSink(table, mode, options)


class _Source(DataSource):  # type: ignore[misc]
    """What Daft reads an encrypted table through. Can be pickled: it holds ciphertext."""

    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan

    @property
    def name(self) -> str:
        """What Daft calls the read."""
        return "EncryptedTable"

    @property
    def schema(self) -> Schema:
        """Of the rows."""
        return Schema.from_pyarrow_schema(self._plan.schema)

    async def get_tasks(self, pushdowns: Pushdowns) -> AsyncIterator[DataSourceTask]:
        """Yield a task for each file, or part of a long one, with the columns that are used."""
        plan = replace(self._plan, columns=_used(self._plan.schema, pushdowns))
        for file in plan.files:
            yield _Task(replace(plan, files=(file,)))


def _used(schema: pa.Schema, pushdowns: Pushdowns) -> tuple[str, ...] | None:
    if pushdowns.columns is None:
        return None
    # Daft filters after the read, and does not count the columns of its filters among those that it asks for.
    used = {*pushdowns.columns, *pushdowns.filter_required_column_names()}
    return tuple(name for name in schema.names if name in used)


class _Task(DataSourceTask):  # type: ignore[misc]
    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan

    @property
    def schema(self) -> Schema:
        """Of the columns that are read."""
        return Schema.from_pyarrow_schema(self._plan.read_schema)

    async def read(self) -> AsyncIterator[RecordBatch]:
        """Yield the rows. Runs where Daft runs tasks."""
        for batch in rows_of(self._plan):
            yield RecordBatch.from_arrow_record_batches([batch], batch.schema)


class EncryptedSink(DataSink[bytes]):  # type: ignore[misc]
    """What Daft writes an encrypted table through. Pickled, for tasks elsewhere, it holds ciphertext alone."""

    def __init__(self, table: EncryptedTable, mode: Mode, options: CommitOptions) -> None:
        self._target: tuple[EncryptedTable, Mode, CommitOptions] | None = (table, mode, options)
        job, access = begin_write(table, options.branch, _ENGINE)
        self._job: WorkerJob | None = job
        self._ticket: JobTicket = job.ticket
        self._shared = job.key.share(access)

    def __getstate__(self) -> dict[str, Any]:
        # The job key and the table stay in the program that commits.
        return {**self.__dict__, "_target": None, "_job": None}

    def name(self) -> str:
        """Return what Daft calls the write."""
        return "EncryptedTable"

    def schema(self) -> Schema:
        """Return that of what `write_sink` returns: how many rows were committed, in how many files."""
        return Schema.from_pyarrow_schema(_COMMITTED)

    def write(self, micropartitions: Iterator[MicroPartition]) -> Iterator[WriteResult[bytes]]:
        """Write the rows of one task. Runs where Daft runs tasks."""
        tables = _filled_tables(micropartitions)
        first = next(tables, None)
        if first is None:
            return

        # Random: two tasks with one number would be refused as one that sent two results.
        number = secrets.randbits(_NUMBER_BITS)
        task = WritingTask.open(self._ticket, self._shared, number, 0)
        files = task.write(stored_reader(chain([first], tables), task.metadata.schema()))
        size, rows = sum(file.file_size_in_bytes for file in files), sum(file.record_count for file in files)
        result = number.to_bytes(8, "little") + task.encrypted_result(files)
        yield WriteResult(result, bytes_written=size, rows_written=rows)

    def finalize(self, write_results: list[WriteResult[bytes]]) -> MicroPartition:
        """Commit what the tasks wrote, in the program that made the sink."""
        if self._target is None or self._job is None:
            raise ConfigurationError(
                "a sink of an encrypted table is for one write, which the program commits that made the sink: make another"
            )

        (table, mode, options), job = self._target, self._job
        # A second commit of the same results would have the table hold their files twice.
        self._target = None
        messages = ((int.from_bytes(each.result[:8], "little"), each.result[8:]) for each in write_results)
        files = [file for done in decrypted_results(job.key, FileEntryCodec(job.metadata), messages) for file in done.files]
        current = current_table(table, job, files, options.branch)
        commit_files(current, job, files, options, overwrites=mode == "overwrite")

        return MicroPartition.from_pydict(
            {
                "rows": pa.array([sum(file.record_count for file in files)], pa.int64()),
                "files": pa.array([len(files)], pa.int64()),
            }
        )


def _filled_tables(micropartitions: Iterable[MicroPartition]) -> Iterator[pa.Table]:
    for each in micropartitions:
        table = each.to_arrow()
        if table.num_rows:
            yield plain_rows(table)
