"""The executor's side of a job that writes: the job opened once per task, data files written, and the answer sealed.

    answer = number of the task | RESULT message
    RESULT = length of the marks, 8 bytes LE | marks (see positions.py) | entries of the files written (see file_entries.py)

A failed attempt deletes its files as far as it can; what remains is ciphertext that no manifest names.

Raises ConfigurationError outside a Spark task and for a value that its column cannot hold, KmsError where this executor may not unwrap
the job key.
"""

from __future__ import annotations

import pickle
import struct
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyiceberg.manifest import DataFile

from tablecrypt.errors import AuthenticationError, ConfigurationError, FormatError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.spark.attempt_locations import with_attempt_names
from tablecrypt.spark.positions import FilePositions, decode_positions, encode_positions
from tablecrypt.spark.python_worker import spare_worker
from tablecrypt.spark.sealed_tasks import JobKey, JobTicket, Role
from tablecrypt.spark.tables import TableAccess
from tablecrypt.table.data_keys import DataKeySource, FreshKeys
from tablecrypt.table.failed_write import delete_written, deleting_on_error
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.write import write_data_files

RESULT_SCHEMA: Final = "task long, sealed binary"
_ARROW_RESULT_SCHEMA: Final = pa.schema([("task", pa.int64()), ("sealed", pa.binary())])
_LENGTH: Final = struct.Struct("<Q")


@dataclass(frozen=True)
class TaskAnswer:
    """What one task did: files that it wrote, and rows of the table that its rows take the place of."""

    files: list[DataFile]
    marks: FilePositions


@dataclass(frozen=True)
class WritingTask:
    """One attempt at one task, on an executor."""

    job_key: JobKey
    shared: Any
    io: EncryptingFileIO
    metadata: EncryptedTableMetadata
    keys: DataKeySource
    number: int
    attempt: int

    @classmethod
    def open(cls, ticket: JobTicket, sealed_shared: bytes) -> WritingTask:
        """Open the job in the Spark task that this runs in. The SHARED message is a TableAccess, or has one as `access`."""
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise ConfigurationError("an encrypted partition is written inside a Spark task only")
        spare_worker()
        job_key = ticket.redeem()
        shared = pickle.loads(job_key.open(Role.SHARED, 0, sealed_shared))
        access: TableAccess = shared if isinstance(shared, TableAccess) else shared.access
        keys = FreshKeys(access.data_key_length)
        return cls(job_key, shared, access.io(), access.metadata(), keys, context.partitionId(), context.taskAttemptId())

    def write(self, rows: pa.Table | pa.RecordBatchReader) -> list[DataFile]:
        """Write rows as files that no other attempt writes."""
        named = with_attempt_names(self.metadata, self.number, self.attempt)
        return list(write_data_files(named, rows, self.io, self.keys, uuid.uuid4()))

    def sealed_answer(self, files: list[DataFile], marks: FilePositions | None = None) -> bytes:
        """Return the RESULT message; if that fails, the files are deleted."""
        try:
            encoded = encode_positions(marks or {})
            content = _LENGTH.pack(len(encoded)) + encoded + FileEntryCodec(self.metadata).encode_files(files)
            return self.job_key.seal(Role.RESULT, self.number, content)
        except BaseException:
            delete_files(self.io, files)
            raise


def answer_batch(number: int, sealed: bytes) -> pa.RecordBatch:
    """Return an answer as Spark collects it, in RESULT_SCHEMA."""
    return pa.RecordBatch.from_pydict({"task": [number], "sealed": [sealed]}, schema=_ARROW_RESULT_SCHEMA)


def opened_results(job_key: JobKey, codec: FileEntryCodec, results: Iterable[tuple[int, bytes]]) -> list[TaskAnswer]:
    """Open what the tasks answered, on the driver: (task number, RESULT message).

    Raises:
        AuthenticationError: an answer was changed or belongs to another task, or a task answered twice.
        FormatError: an answer does not hold what it should.
    """
    results = list(results)
    if len({number for number, _ in results}) != len(results):
        raise AuthenticationError("a task of the Spark job answered twice: its rows would be committed twice")
    return [_answer(codec, job_key.open(Role.RESULT, number, sealed)) for number, sealed in results]


def collected(rows: Iterable[Any]) -> list[tuple[int, bytes]]:
    """Return rows of RESULT_SCHEMA, as Spark collects them, as (task number, RESULT message)."""
    return [(int(row["task"]), bytes(row["sealed"])) for row in rows]


def delete_files(io: EncryptingFileIO, files: Iterable[DataFile]) -> None:
    """Delete files of a write that failed, as far as the store lets it be."""
    delete_written(io, [file.file_path for file in files])


@contextmanager
def removing_on_error(io: EncryptingFileIO, files: Sequence[DataFile]) -> Iterator[None]:
    """Delete files that nothing names yet when what is done meanwhile fails."""
    with deleting_on_error(io, (file.file_path for file in files)):
        yield


def _answer(codec: FileEntryCodec, content: bytes) -> TaskAnswer:
    if len(content) < _LENGTH.size:
        raise FormatError(f"a task's answer has {len(content)} bytes")
    (length,) = _LENGTH.unpack_from(content)
    marks, entries = content[_LENGTH.size : _LENGTH.size + length], content[_LENGTH.size + length :]
    if len(marks) != length:
        raise FormatError("a task's answer ends inside its marks")
    return TaskAnswer(codec.decode_files(entries), decode_positions(marks))
