"""Deleting by a filter, on the executors, as the table's properties say how rows are removed.

whole partitions that match    dropped by the driver without being read
other files that may match     read by a job ─▶ positions of matching rows ─▶ copy-on-write job, or deletion vectors

Copy-on-write is a second job, for merges and overwrites too: data files are written again without some of their rows, and each
remaining row keeps its identity.

driver     TASK message: positions of the rows to leave out, and the files that they are in
executor   each file streamed with _row_id and _last_updated_sequence_number ─▶ new files
driver     RESULT messages: the new files
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyroaring import BitMap64

from tablecrypt.engines.access import TableAccess
from tablecrypt.engines.changes import marked_files, numbered_files
from tablecrypt.engines.job_keys import JobTicket, Role
from tablecrypt.engines.job_messages import FileNumber, bitmap_of, merge_positions
from tablecrypt.engines.rewriting import check_remaining, encrypt_rewrites, rewritten_files
from tablecrypt.engines.tasks import decrypted_results, encrypt_tasks
from tablecrypt.keys.column_keys import told_until
from tablecrypt.spark.executor_job import RESULT_SCHEMA, collected, open_task, result_batch, task_numbers
from tablecrypt.spark.session import Sizing, in_tasks
from tablecrypt.spark.tables import LocatedTable, readable_columns, table_access
from tablecrypt.table._pyiceberg.whole_files import WholeFiles
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.filters import with_sql_null_semantics
from tablecrypt.table.lineage import ROW_ID
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.protection.visible_columns import ERROR
from tablecrypt.table.reader import TaskReader
from tablecrypt.table.row_changes import RowChange
from tablecrypt.table.table_files import removing_on_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rewrite_without(
    spark: SparkSession, located: LocatedTable, position_deleted: Sequence[tuple[EncryptedFileScanTask, BitMap64]]
) -> list[DataFile]:
    """Rewrite data files without the rows at these positions, in a separate job.

    Returns:
        The files that take their place; a file whose every row goes has none.

    Raises:
        FormatError: they do not hold all rows that are left. They are deleted then.
    """
    # A job would ask the KMS and start tasks for nothing.
    if not position_deleted:
        return []

    by_path = {task.file.file_path: positions for task, positions in position_deleted}
    partitions = Sizing.of(spark).partitions([task for task, _ in position_deleted])
    ticket, job_key = located.issue_job(spark)
    codec = FileEntryCodec(located.table.metadata)
    encrypted_access = job_key.share(table_access(located.table))
    encrypted_tasks = encrypt_rewrites(job_key, codec, partitions, by_path)

    def rewrite_encrypted_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return rewrite_partitions(ticket, encrypted_access, encrypted_tasks, batches)

    rows = in_tasks(spark, len(encrypted_tasks), rewrite_encrypted_files, RESULT_SCHEMA).collect()

    files = [file for result in decrypted_results(job_key, codec, collected(rows)) for file in result.files]
    with removing_on_error(located.table.io, files):
        check_remaining(position_deleted, files)

    return files


def rewrite_partitions(
    ticket: JobTicket, encrypted_access: bytes, encrypted_tasks: Sequence[bytes], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rewrite the files of the tasks with these numbers. Runs on an executor."""
    asked = list(task_numbers(numbers))
    if not asked:
        return

    job = open_task(ticket, encrypted_access)
    for number in asked:
        files = rewritten_files(job, number, encrypted_tasks[number])
        yield result_batch(number, job.encrypted_result(files))


@dataclass(frozen=True)
class LocateContent:
    """What every task of a search needs."""

    access: TableAccess
    row_filter: BooleanExpression


def change_without(
    spark: SparkSession, located: LocatedTable, row_filter: str | BooleanExpression, branch: str | None, by_vectors: bool
) -> RowChange:
    """Return the change that deletes the rows that match a filter; what it writes is written.

    Args:
        by_vectors: mark the rows, and write no file again.
    """
    asked = located.scan(row_filter, branch).row_filter
    # PyIceberg's `!=` and NOT match nulls; a DELETE in SQL leaves such rows.
    scan = located.scan(with_sql_null_semantics(asked, located.table.metadata.schema()), branch)
    filtered = extract_field_ids(bind(located.table.schema(), scan.row_filter, case_sensitive=True))
    # On masks the filter would delete the wrong rows.
    readable_columns(located.table, Schema(), filtered, ERROR)
    tasks = scan.plan_files()
    # Files that match as a whole are dropped unread, as in `table.delete`.
    told = told_until(located.table.metadata.properties, located.table.schema())
    whole, rest = WholeFiles(located.table.schema(), scan.row_filter, told_until=told).split(tasks)
    change = RowChange(conflicts_with=scan.row_filter, dropped=whole)
    if not rest:
        return change

    partitions = Sizing.of(spark).partitions(rest)
    change.position_deleted = marked_files(numbered_files(partitions), _located(spark, located, partitions, scan.row_filter))
    if not by_vectors:
        rewrite_marked(spark, located, change)

    return change


def rewrite_marked(spark: SparkSession, located: LocatedTable, change: RowChange) -> None:
    """Write the files that have position-deleted rows again without these, in a separate job, instead of marking the rows."""
    if not change.position_deleted:
        return

    # All of them go; a file whose every row is marked has nothing to be written again.
    change.dropped += [task.file for task, _ in change.position_deleted]
    partly = [(task, bitmap) for task, bitmap in change.position_deleted if len(bitmap) < task.file.record_count]
    change.position_deleted = []
    change.rewritten = rewrite_without(spark, located, partly)


def _located(
    spark: SparkSession, located: LocatedTable, partitions: list[list[EncryptedFileScanTask]], row_filter: BooleanExpression
) -> dict[FileNumber, BitMap64]:
    ticket, job_key = located.issue_job(spark)
    codec = FileEntryCodec(located.table.metadata)
    encrypted_content = job_key.share(LocateContent(table_access(located.table), row_filter))
    encrypted_tasks = encrypt_tasks(job_key, codec, partitions)

    def locate_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return locate_partitions(ticket, encrypted_content, encrypted_tasks, batches)

    rows = in_tasks(spark, len(encrypted_tasks), locate_rows, RESULT_SCHEMA).collect()
    found: dict[FileNumber, BitMap64] = {}
    # Only results that the job's tasks encrypted: anyone else who reaches the driver could name rows to delete.
    for result in decrypted_results(job_key, codec, collected(rows)):
        merge_positions(found, result.marks)
    return found


def locate_partitions(
    ticket: JobTicket, encrypted_content: bytes, encrypted_tasks: Sequence[bytes], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the positions of matching rows in the files of these tasks. Runs on an executor."""
    asked = list(task_numbers(numbers))
    if not asked:
        return

    job = open_task(ticket, encrypted_content)
    reader = TaskReader(job.metadata, job.io, Schema(ROW_ID), job.shared.row_filter)
    codec = FileEntryCodec(job.metadata)
    for number in asked:
        tasks = codec.decode_tasks(job.job_key.decrypt(Role.TASK, number, encrypted_tasks[number]))
        marks = {(number, index): bitmap_of(reader.matching_positions(task).chunks) for index, task in enumerate(tasks)}
        yield result_batch(number, job.encrypted_result([], marks))
