"""Copy-on-write on the executors: data files written again without some of their rows, each remaining row keeping its identity.

driver     TASK message: positions of the rows to leave out, and the files that they are in
executor   each file streamed with _row_id and _last_updated_sequence_number ─▶ new files
driver     RESULT messages: the new files
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import ALWAYS_TRUE
from pyroaring import BitMap64

from tablecrypt.spark.executor_job import RESULT_SCHEMA, WritingTask, answer_batch, collected, delete_files, opened_results
from tablecrypt.spark.positions import decode_positions, encode_positions
from tablecrypt.spark.sealed_tasks import JobTicket, Role
from tablecrypt.spark.sizing import Sizing
from tablecrypt.spark.tables import LocatedTable, TableAccess
from tablecrypt.table.deletion_vectors import DeletedPositions
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.lineage import with_lineage
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.reader import TaskReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LENGTH: Final = struct.Struct("<Q")
_READ_AHEAD: Final = 16 * 1024 * 1024


def rewrite_without(spark: SparkSession, located: LocatedTable, marked: Sequence[tuple[EncryptedFileScanTask, BitMap64]]) -> list[DataFile]:
    """Write data files again without the rows at these positions, in a job of their own.

    Returns:
        The files that take their place; a file whose every row goes has none.
    """
    if not marked:
        return []
    by_path = {task.file.file_path: positions for task, positions in marked}
    partitions = Sizing.of(spark).partitions([task for task, _ in marked])
    ticket, job_key = located.issue_job(spark)
    codec = FileEntryCodec(located.table.metadata)
    sealed_access = job_key.seal(Role.SHARED, 0, pickle.dumps(TableAccess.of(located.table)))
    sealed_tasks = []
    for number, tasks in enumerate(partitions):
        encoded = encode_positions({(number, index): by_path[task.file.file_path] for index, task in enumerate(tasks)})
        content = _LENGTH.pack(len(encoded)) + encoded + codec.encode_tasks(tasks)
        sealed_tasks.append(job_key.seal(Role.TASK, number, content))

    def rewrite_encrypted_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return rewrite_partitions(ticket, sealed_access, sealed_tasks, batches)

    rows = spark.range(0, len(sealed_tasks), 1, len(sealed_tasks)).mapInArrow(rewrite_encrypted_files, RESULT_SCHEMA).collect()
    return [file for answer in opened_results(job_key, codec, collected(rows)) for file in answer.files]


def rewrite_partitions(
    ticket: JobTicket, sealed_access: bytes, sealed_tasks: Sequence[bytes], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rewrite the files of the task whose number comes in. Runs on an executor."""
    asked = [number for batch in numbers for number in batch.column(0).to_pylist()]
    if not asked:
        return
    job = WritingTask.open(ticket, sealed_access)
    for number in asked:
        content = job.job_key.open(Role.TASK, number, sealed_tasks[number])
        (length,) = _LENGTH.unpack_from(content)
        marks = decode_positions(content[_LENGTH.size : _LENGTH.size + length])
        tasks = FileEntryCodec(job.metadata).decode_tasks(content[_LENGTH.size + length :])
        files: list[DataFile] = []
        try:
            for index, task in enumerate(tasks):
                files += _rewritten(job, task, marks[number, index])
        except BaseException:
            delete_files(job.io, files)
            raise
        yield answer_batch(number, job.sealed_answer(files))


def _rewritten(job: WritingTask, task: EncryptedFileScanTask, leave_out: BitMap64) -> list[DataFile]:
    projected = with_lineage(job.metadata.schema())
    reader = TaskReader(job.metadata, job.io, projected, ALWAYS_TRUE, read_ahead=_READ_AHEAD)
    schema = schema_to_pyarrow(projected, include_field_ids=False)
    removed = DeletedPositions.of_arrow([pa.chunked_array([pa.array(leave_out, pa.int64())])])

    def remaining() -> Iterator[pa.RecordBatch]:
        for positions, rows in reader.positioned_batches(task):
            living = removed.living(positions)
            kept = rows if living is None else rows.filter(living)
            if kept.num_rows:
                yield pa.RecordBatch.from_arrays(
                    [column.cast(field.type) for column, field in zip(kept.columns, schema, strict=True)], schema=schema
                )

    return job.write(pa.RecordBatchReader.from_batches(schema, remaining()))
