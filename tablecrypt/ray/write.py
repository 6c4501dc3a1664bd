"""Writing a Ray Dataset into an encrypted table.

    driver    checks the table, encrypts what the tasks need (SHARED)
    worker    rows of its blocks ─▶ encrypted Parquet files under fresh DEKs ─▶ their entries, encrypted (RESULT)
    driver    opens the entries that Ray collected, and adds exactly those in one commit

Ray collects what one attempt at each task returned, so files of failed attempts are never committed. A failed attempt tries to delete its
files; what remains, of a killed worker or after the driver died, is ciphertext that no manifest names, and
`maintenance.remove_orphan_files` finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, Literal, get_args

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from ray.data import Datasink
from ray.data.block import Block, BlockAccessor

from tablecrypt.engines.arrow_rows import stored_reader, stored_schema
from tablecrypt.engines.changes import committing
from tablecrypt.engines.job_keys import JobTicket
from tablecrypt.engines.jobs import WorkerJob
from tablecrypt.engines.tasks import WritingTask, decrypted_results
from tablecrypt.engines.writes import begin_write, commit_files, commit_to, current_table
from tablecrypt.errors import ConfigurationError, TablecryptError
from tablecrypt.files.encrypting_file_io import refuse_restricted
from tablecrypt.parquet.text_columns import plain_rows
from tablecrypt.ray.failures import ENGINE, failure, raise_from_worker
from tablecrypt.ray.upsert import TaskKeys, UpsertContent, planned_upsert, upsert_change, upserted
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.snapshots import CommitOptions
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import removing_on_error

Mode = Literal["append", "overwrite", "upsert"]
_ROWS_OF_UPSERT: Final = 1_000_000
"""Each task of an upsert looks its rows up in the table's files: few tasks with many rows do that more rarely."""


def datasink(
    table: Table,
    mode: Mode = "append",
    *,
    keys: Sequence[str] | None = None,
    branch: str = MAIN_BRANCH,
    snapshot_properties: Mapping[str, str] | None = None,
) -> EncryptedDatasink:
    """Return what `Dataset.write_datasink` takes to write rows into an encrypted table, in one commit. For one write.

    Columns are matched by name. Optional columns that the Dataset lacks are null, but for an upsert. Each task writes at least one file.

    Args:
        table: as it was loaded.
        mode: "append"; "overwrite" to replace all rows that the table has at the time of the commit; "upsert" to update the rows with the
            same keys that differ and to add the others.
        keys: with "upsert", the columns that name a row; by default the schema's identifier fields.
        branch: the branch to write to; it exists already.
        snapshot_properties: for the summary of the new snapshot.

    Raises:
        ConfigurationError: not an encrypted table, options that contradict each other, a property or branch that cannot be used, or
            workers cannot be sent the way to the KMS or the table's storage.
        ColumnKeyDeniedError: the KMS refuses the key of a protected column.
        KmsError: the KMS refused the table's key.
        ReadRestrictionError: rows would be replaced, and the catalog's server restricts which of them may be read.

    `write_datasink` raises, and nothing is committed then:
        ConfigurationError: rows do not fit the table, or its schema or partitioning was changed meanwhile.
        KmsAccessDeniedError: a worker may not use a key that the driver may use; the message names the node.
        StaleWriteError: the protection of columns was changed meanwhile.
        CommitFailedException, ValidationException: others committed first, several times in a row, or changed rows that an upsert replaces.
    """
    if not isinstance(table, EncryptedTable):
        raise ConfigurationError(
            f"tablecrypt.ray.datasink takes an encrypted table, not {type(table).__name__}: use Dataset.write_iceberg for tables that are "
            "not encrypted"
        )
    return EncryptedDatasink(Writing.of(table, mode, keys, branch, snapshot_properties))


@dataclass(frozen=True)
class WritePlan:
    """A write as Ray gets it. It holds no key.

    Attributes:
        ticket: of the job.
        shared: the SHARED message: a TableAccess, or for an upsert an UpsertContent.
        upsert: the TASK message of an upsert.
    """

    ticket: JobTicket
    shared: bytes
    upsert: bytes | None


@dataclass(frozen=True)
class Written:
    """What one task wrote.

    Attributes:
        number: of the task.
        result: the RESULT message.
        keys: of an upsert, the KEYS message.
    """

    number: int
    result: bytes
    keys: bytes | None


@dataclass(frozen=True)
class Writing:
    """A write on the driver.

    Attributes:
        table: as it was when the write was planned.
        job: of the tasks.
        plan: what tasks get.
        content: of an upsert, what tasks get of it.
    """

    table: EncryptedTable
    mode: Mode
    options: CommitOptions
    job: WorkerJob
    plan: WritePlan
    content: UpsertContent | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls, table: EncryptedTable, mode: Mode, keys: Sequence[str] | None, branch: str, snapshot_properties: Mapping[str, str] | None
    ) -> Writing:
        """Check what can be known before rows are written, and plan; see `datasink`."""
        _check_mode(table, mode, keys)
        options = commit_to(table, branch, snapshot_properties)
        job, access = begin_write(table, branch, ENGINE)
        if mode != "upsert":
            shared = job.key.share(access)
            return cls(table, mode, options, job, WritePlan(job.ticket, shared, None))

        content, task = planned_upsert(table, branch, keys, job, access)
        shared = job.key.share(content)

        return cls(table, mode, options, job, WritePlan(job.ticket, shared, task), content)

    def check_rows(self, schema: object) -> None:
        """Raise ConfigurationError for rows of an Arrow schema that do not fit the table."""
        if isinstance(schema, pa.Schema):
            stored_schema(schema, self.table.schema())

    def commit(self, written: Sequence[Written]) -> None:
        """Commit what the tasks wrote, in one snapshot."""
        planned, io = self.job.metadata, self.job.io
        results = decrypted_results(self.job.key, FileEntryCodec(planned), ((each.number, each.result) for each in written))
        files = [file for result in results for file in result.files]
        current = current_table(self.table, self.job, files, self.options.branch)
        if self.content is None:
            self._commit_files(current, files)
            return

        with removing_on_error(io, files):
            keys = TaskKeys.opened(self.job.key, ((each.number, each.keys) for each in written))
            change = upsert_change(self.table, self.content, results, keys)
        if keys is None:
            return

        # On the table as it was planned on, so that PyIceberg finds what others changed since.
        transaction = self.table.transaction()
        with committing(transaction, io, change.written, replaces=change.takes_out):
            transaction.refuse_rows_added_meanwhile(keys.every, self.options)
            if change.takes_out:
                transaction.stage_rows(change, self.options)
            elif files:
                transaction.append_producer(self.options).commit_files(files)

    def _commit_files(self, current: EncryptedTable, files: list[DataFile]) -> None:
        commit_files(current, self.job, files, self.options, overwrites=self.mode == "overwrite")


def _check_mode(table: EncryptedTable, mode: Mode, keys: Sequence[str] | None) -> None:
    if mode not in get_args(Mode):
        raise ConfigurationError(f"mode {mode!r} is not known: use append, overwrite or upsert")
    if keys is not None and mode != "upsert":
        raise ConfigurationError(f"keys go with mode 'upsert', not {mode!r}")

    # A user would replace rows that the server does not let that user see.
    if mode != "append":
        refuse_restricted(table.io, f"writing in mode {mode}")


class EncryptedDatasink(Datasink[Written | None]):  # type: ignore[misc]
    """What Ray Data writes an encrypted table through. Pickled, for workers, it holds ciphertext alone."""

    def __init__(self, writing: Writing) -> None:
        self._writing: Writing | None = writing
        self._plan = writing.plan

    def __getstate__(self) -> dict[str, Any]:
        # The write holds the job key and the table's FileIO with its keys: only the driver's object commits.
        return {"_plan": self._plan, "_writing": None}

    def get_name(self) -> str:
        """Return what Ray calls the write."""
        return "EncryptedTable"

    @property
    def min_rows_per_write(self) -> int | None:
        """How many rows a task gets if the Dataset has at least that many."""
        return None if self._plan.upsert is None else _ROWS_OF_UPSERT

    def on_write_start(self, schema: object = None) -> None:
        """Check, on the driver, whether the rows fit the table."""
        if self._writing is not None:
            self._writing.check_rows(schema)

    def write(self, blocks: Iterable[Block], ctx: Any) -> Written | None:
        """Write the rows of one task; None where there are none. Runs in a worker."""
        try:
            return _write(self._plan, blocks, int(ctx.task_idx))
        except TablecryptError as error:
            failed = failure(error)
        raise failed

    def on_write_complete(self, write_result: Any) -> None:
        """Commit, on the driver."""
        if self._writing is None:
            raise ConfigurationError("a datasink is for one write, which the program commits that made it: make another")

        writing = self._writing
        # A second commit of the same results would have the table hold their files twice.
        self._writing = None
        writing.commit([each for each in write_result.write_returns if each is not None])

    def on_write_failed(self, error: Exception) -> None:
        """Raise, on the driver, the error of this package that made the write fail."""
        raise_from_worker(error)


def _write(plan: WritePlan, blocks: Iterable[Block], number: int) -> Written | None:
    tables = _filled_tables(blocks)
    first = next(tables, None)
    if first is None:
        return None

    task = WritingTask.open(plan.ticket, plan.shared, number, 0)
    rows = stored_reader(chain([first], tables), task.metadata.schema())
    if plan.upsert is not None:
        return Written(number, *upserted(task, plan.upsert, rows.read_all()))

    return Written(number, task.encrypted_result(task.write(rows)), None)


def _filled_tables(blocks: Iterable[Block]) -> Iterator[pa.Table]:
    """Yield blocks that have rows, as Arrow tables without view types."""
    for block in blocks:
        table = BlockAccessor.for_block(block).to_arrow()
        if table.num_rows:
            yield plain_rows(table)
