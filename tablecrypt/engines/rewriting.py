"""Data files written again without some of their rows, in tasks.

    TASK = length of the marks, 8 bytes LE | marks (see job_messages.py): the rows to leave out | scan tasks (see file_entries.py)

Rows that only move keep their `_row_id` and `_last_updated_sequence_number`, which the new files store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from pyiceberg.manifest import DataFile
from pyroaring import BitMap64

from tablecrypt._bytes import ByteReader, frame
from tablecrypt.engines.job_keys import JobKey, Role
from tablecrypt.engines.job_messages import decode_positions, encode_positions
from tablecrypt.engines.tasks import WritingTask
from tablecrypt.table.deletes import check_rows, live_rows
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.reader import remaining_rows
from tablecrypt.table.table_files import delete_files


def encrypt_rewrites(
    job_key: JobKey, codec: FileEntryCodec, partitions: Sequence[Sequence[EncryptedFileScanTask]], leave_out: Mapping[str, BitMap64]
) -> list[bytes]:
    """Return the TASK messages of tasks that each write the files of one partition again.

    Args:
        job_key: of the job.
        codec: of the table.
        partitions: the files.
        leave_out: by the location of a file, the positions of the rows that go.
    """
    messages = []
    for number, tasks in enumerate(partitions):
        positions = {(number, index): leave_out[task.file.file_path] for index, task in enumerate(tasks)}
        content = frame(encode_positions(positions)) + codec.encode_tasks(tasks)
        messages.append(job_key.encrypt(Role.TASK, number, content))
    return messages


def check_remaining(rewritten: Sequence[tuple[EncryptedFileScanTask, BitMap64]], files: Iterable[DataFile]) -> None:
    """Check that the files of all tasks hold as many rows as the old ones have left: a worker could leave some out.

    Args:
        rewritten: files that were written again, each with the positions of live rows that were left out.
        files: the new ones, as tasks report them.

    Raises:
        FormatError: they do not.
    """
    before = [(live_rows([task]), len(positions)) for task, positions in rewritten]
    left = [None if count is None else count - gone for count, gone in before]
    check_rows(left, files, rewritten[0][0].file.file_path)


def rewritten_files(job: WritingTask, number: int, message: bytes) -> list[DataFile]:
    """Write the files of one TASK message again. If that fails, delete the new ones."""
    reader = ByteReader(job.job_key.decrypt(Role.TASK, number, message), "the work of a task")
    marks = decode_positions(reader.frame())
    tasks = FileEntryCodec(job.metadata).decode_tasks(reader.rest())
    files: list[DataFile] = []

    try:
        for index, task in enumerate(tasks):
            files += _rewritten(job, task, marks[number, index])
    except BaseException:
        delete_files(job.io, files)
        raise

    return files


def _rewritten(job: WritingTask, task: EncryptedFileScanTask, leave_out: BitMap64) -> list[DataFile]:
    removed = np.frombuffer(leave_out.to_array(), np.uint64).view(np.int64)
    return job.write(remaining_rows(job.metadata, job.io, task, removed))
