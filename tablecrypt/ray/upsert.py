"""Upserts: each task finds the rows that its own replace, and the driver holds what the tasks found together.

    driver    plans the branch's files ─▶ TASK, the same for all tasks
    worker    its rows, in memory; reads the key columns of the files' row groups that may hold their keys, and all columns of files that do
              ─▶ writes the rows that differ, with the _row_id of those that they replace, and new ones
              ─▶ RESULT: its files, the positions of replaced rows; KEYS: the key columns of all its rows, and which of them it updated
    driver    refuses a key that occurs twice; has tasks write files again without the replaced rows, or writes deletion vectors, as the
              table says; one snapshot

A Dataset that is sorted by the keys lets each task read a part of the table alone. The driver holds the keys, and no other values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, cast

import pyarrow as pa
import ray
from pyiceberg.table import ALWAYS_TRUE
from pyroaring import BitMap64

from tablecrypt.engines.access import TableAccess
from tablecrypt.engines.changes import marked_files, numbered_files
from tablecrypt.engines.job_keys import JobKey, JobTicket, Role
from tablecrypt.engines.job_messages import FileNumber, merge_positions
from tablecrypt.engines.jobs import WorkerJob
from tablecrypt.engines.rewriting import check_remaining, encrypt_rewrites, rewritten_files
from tablecrypt.engines.spreading import balanced
from tablecrypt.engines.tasks import EngineTaskResult, WritingTask, decrypted_results
from tablecrypt.errors import AuthenticationError, ConfigurationError, TablecryptError
from tablecrypt.ray.failures import ENGINE, failure, raise_from_worker
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.row_changes import RowChange, Upsert, has_duplicates, identifier_columns, keys_filter, marks_rows
from tablecrypt.table.scan import EncryptedDataScan
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import delete_files, removing_on_error

_UPDATED: Final = "__tablecrypt_updated"


@dataclass(frozen=True)
class UpsertContent:
    """What every task of an upsert needs. The tasks of the plan stay on the driver when this is pickled."""

    access: TableAccess
    keys: tuple[str, ...]
    tasks: tuple[EncryptedFileScanTask, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return UpsertContent, (self.access, self.keys, ())


def planned_upsert(
    table: EncryptedTable, branch: str, keys: Sequence[str] | None, job: WorkerJob, access: TableAccess
) -> tuple[UpsertContent, bytes]:
    """Return what tasks need, and the TASK message with the branch's files.

    Raises:
        ConfigurationError: the keys are not columns of the table, or there are none.
    """
    named = tuple(keys) if keys is not None else tuple(identifier_columns(table.schema()))
    if not named:
        raise ConfigurationError("mode 'upsert' needs keys=[...], or identifier fields in the table's schema")
    if unknown := [name for name in named if name not in {field.name for field in table.schema().fields}]:
        raise ConfigurationError(f"key {unknown[0]!r} is not a column of the table")

    # An upsert compares all columns with what is stored: on masks every row would differ, and masks would be written.
    scan = table.scan(masked="error")
    scan = scan.use_ref(branch) if branch in table.metadata.refs else scan
    tasks = tuple(scan.tasks())
    message = job.key.encrypt(Role.TASK, 0, FileEntryCodec(job.metadata).encode_tasks(tasks))

    return UpsertContent(access, named, tasks), message


class _ScanOfTasks(EncryptedDataScan):
    """A scan of files that were planned elsewhere."""

    planned: tuple[EncryptedFileScanTask, ...] = ()

    def update(self, **overrides: Any) -> Self:
        """Return the scan with other arguments, of the same files."""
        updated = super().update(**overrides)
        updated.planned = self.planned
        return updated

    def tasks(self) -> list[EncryptedFileScanTask]:
        """Return a task for each file."""
        return list(self.planned)


def upserted(task: WritingTask, message: bytes, rows: pa.Table) -> tuple[bytes, bytes]:
    """Write what an upsert of the rows of one task adds. Runs in a worker.

    Returns:
        The RESULT and the KEYS message.

    Raises:
        ConfigurationError: a key is null or missing, or occurs twice.
    """
    content: UpsertContent = task.shared
    keys = list(content.keys)
    tasks = FileEntryCodec(task.metadata).decode_tasks(task.job_key.decrypt(Role.TASK, 0, message))
    if missing := [name for name in keys if name not in rows.column_names]:
        raise ConfigurationError(f"key {missing[0]!r} is missing from the Dataset")

    _refuse_duplicates(rows, keys)
    scan = _ScanOfTasks(table_metadata=task.metadata, io=task.io, row_filter=ALWAYS_TRUE)
    scan.planned = tuple(tasks)
    try:
        found = Upsert(rows, scan, keys, by_vectors=True).plan()
    except ValueError as error:
        raise ConfigurationError(str(error)) from error

    positions = {each.file.file_path: bitmap for each, bitmap in found.replaced.position_deleted}
    # All tasks have the same list of files, so the number of the list is 0 in each.
    marks = {(0, index): positions[each.file.file_path] for index, each in enumerate(tasks) if each.file.file_path in positions}
    added = pa.concat_tables([found.updated, found.inserted], promote_options="default")
    files = task.write(added) if added.num_rows else []

    return task.encrypted_result(files, marks), TaskKeys.of(rows, found.updated, keys).encrypted(task.job_key, task.number)


@dataclass(frozen=True)
class TaskKeys:
    """The keys of rows that tasks upserted.

    Attributes:
        every: of all rows.
        updated: of those that replace others.
    """

    every: pa.Table
    updated: pa.Table

    @classmethod
    def of(cls, rows: pa.Table, updated: pa.Table, keys: list[str]) -> TaskKeys:
        """Return the keys of rows."""
        return cls(rows.select(keys), updated.select(keys))

    def encrypted(self, job_key: JobKey, number: int) -> bytes:
        """Return the KEYS message."""
        flags = [pa.repeat(pa.scalar(each), table.num_rows) for each, table in ((False, self.every), (True, self.updated))]
        tables = [table.append_column(_UPDATED, flag) for table, flag in zip((self.every, self.updated), flags, strict=True)]
        sink = pa.BufferOutputStream()
        both = pa.concat_tables(tables)
        with pa.ipc.new_stream(sink, both.schema) as writer:
            writer.write_table(both)
        return job_key.encrypt(Role.KEYS, number, sink.getvalue().to_pybytes())

    @classmethod
    def opened(cls, job_key: JobKey, messages: Iterable[tuple[int, bytes | None]]) -> TaskKeys | None:
        """Return the keys of all tasks together; None where there was none.

        Raises:
            AuthenticationError: a message was changed or belongs to another task, or a task sent none.
        """
        tables = []
        for number, message in messages:
            # Without its keys a duplicate among the tasks' rows would go unseen.
            if message is None:
                raise AuthenticationError(f"task {number} of the job sent no keys: its rows may be in the table twice")
            tables.append(pa.ipc.open_stream(job_key.decrypt(Role.KEYS, number, message)).read_all())

        if not tables:
            return None

        both = pa.concat_tables(tables, promote_options="permissive")
        names = [name for name in both.column_names if name != _UPDATED]
        updated = both.column(_UPDATED)

        return cls(both.filter(pa.compute.invert(updated)).select(names), both.filter(updated).select(names))


def upsert_change(table: EncryptedTable, content: UpsertContent, results: Sequence[EngineTaskResult], keys: TaskKeys | None) -> RowChange:
    """Return what the tasks found and wrote, with files written again where the table says copy-on-write.

    Raises:
        ConfigurationError: a key occurs twice.
        FormatError: a task names rows that the table does not have.
        KmsError: a worker may not use a key.
    """
    change = RowChange(added=[file for result in results for file in result.files])
    if keys is None:
        return change

    # Each task has seen its own rows only: the same key in two tasks shows here.
    _refuse_duplicates(keys.every, list(content.keys))
    # Only the replaced rows: rows that others add under other keys are no conflict.
    change.conflicts_with = keys_filter(keys.updated, table.schema())
    positions: dict[FileNumber, BitMap64] = {}
    for result in results:
        if not merge_positions(positions, result.marks):
            raise ConfigurationError("two tasks replace the same row of the table: a key occurs twice in the Dataset")
    position_deleted = marked_files(numbered_files([content.tasks]), positions)
    if marks_rows(table.metadata.properties, "merge", "update"):
        change.position_deleted = position_deleted
        return change

    change.dropped = [task.file for task, _ in position_deleted]
    change.rewritten = _rewritten(table, [(task, bitmap) for task, bitmap in position_deleted if len(bitmap) < task.file.record_count])

    return change


def _refuse_duplicates(rows: pa.Table, keys: list[str]) -> None:
    if has_duplicates(rows, keys):
        raise ConfigurationError(f"the keys {', '.join(keys)} do not name one row: some occur more than once in the Dataset")


def _rewritten(table: EncryptedTable, position_deleted: list[tuple[EncryptedFileScanTask, BitMap64]]) -> list[Any]:
    if not position_deleted:
        return []

    job = WorkerJob.on(cast("Any", table.metadata), cast("Any", table.io), ENGINE)
    codec = FileEntryCodec(table.metadata)
    count = min(len(position_deleted), max(1, int(ray.cluster_resources().get("CPU", 1))))
    partitions = balanced([task for task, _ in position_deleted], lambda task: task.size, count)
    messages = encrypt_rewrites(job.key, codec, partitions, {task.file.file_path: bitmap for task, bitmap in position_deleted})
    shared = job.key.share(job.access())
    rewrite = ray.remote(rewrite_in_worker)
    asked = [(number, rewrite.remote(job.ticket, shared, number, message)) for number, message in enumerate(messages)]
    done: list[tuple[int, bytes]] = []
    errors: list[Exception] = []

    for number, reference in asked:
        try:
            # All are waited for, also after an error: what a task still writes could not be deleted.
            done.append((number, ray.get(reference)))
        except Exception as error:  # noqa: BLE001  raised below, after the files of the other tasks are deleted
            errors.append(error)

    files = [file for result in decrypted_results(job.key, codec, done) for file in result.files]
    if errors:
        delete_files(job.io, files)
        raise_from_worker(errors[0])
        raise errors[0]

    with removing_on_error(job.io, files):
        check_remaining(position_deleted, files)

    return files


def rewrite_in_worker(ticket: JobTicket, shared: bytes, number: int, message: bytes) -> bytes:
    """Write the files of one TASK message again, and return the RESULT message. Runs in a worker."""
    try:
        task = WritingTask.open(ticket, shared, number, 0)
        return task.encrypted_result(rewritten_files(task, number, message))
    except TablecryptError as error:
        failed = failure(error)
    raise failed
