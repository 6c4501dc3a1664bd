"""A task of a distributed engine: it opens the job once, writes data files, and encrypts what it did.

    result = number of the task | RESULT message
    RESULT = length of the marks, 8 bytes LE | marks (see job_messages.py) | entries of the files written (see file_entries.py)

No two attempts at a task ever write the same file, because the attempt is part of the file's name:

    {partition}-{attempt}-{uuid}-{number}.parquet           number: of the file within the attempt
                                                            uuid: half of the job's id, and 8 bytes that are fresh for each attempt

Where the files lie is still decided by the table's own location provider, which gets the new names. A failed attempt tries to delete its
files; what remains is ciphertext that no manifest names.

The driver commits, and deletes after an error, only files with such a name, each once and in the table's folders. A worker that was taken
over could otherwise name files of the table, or have it hold some that lie elsewhere.

Raises KmsError where this process may not unwrap the job key, AuthenticationError for a message of another job or task.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionKey
from pyiceberg.table.locations import LocationProvider

from tablecrypt._bytes import ByteReader, frame
from tablecrypt.engines.access import TableAccess
from tablecrypt.engines.job_keys import JobKey, JobTicket, Role
from tablecrypt.engines.job_messages import FilePositions, decode_positions, encode_positions
from tablecrypt.errors import AuthenticationError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.foreign_engines import location_provider
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.table_files import DataKeySource, FreshKeys, ReportedFiles, delete_files, folders_written
from tablecrypt.table.write import write_data_files


class AttemptLocations(LocationProvider):
    """Puts the partition and attempt into PyIceberg's file names; the table's own provider chooses the location."""

    def __init__(self, own: LocationProvider, partition: int, attempt: int) -> None:
        super().__init__(own.table_location, own.table_properties)
        self._own = own
        self._attempt = f"{partition:05d}-{attempt}"

    def new_data_location(self, data_file_name: str, partition_key: PartitionKey | None = None) -> str:
        """Return the location of a file that PyIceberg calls 00000-{number}-{uuid}.parquet."""
        stem, _, extension = data_file_name.rpartition(".")
        _, number, unique = stem.split("-", 2)
        return self._own.new_data_location(f"{self._attempt}-{unique}-{int(number):05d}.{extension}", partition_key)


@dataclass(frozen=True)
class EngineTaskResult:
    """What one task did: the files that it wrote, and the table's rows that they replace."""

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
    def open(cls, ticket: JobTicket, encrypted_shared: bytes, number: int, attempt: int) -> WritingTask:
        """Open the job. The SHARED message is a TableAccess, or has one as `access`.

        Args:
            ticket: of the job.
            encrypted_shared: the SHARED message.
            number: of the task, which its result is sent under.
            attempt: at the task, for the names of its files.

        Raises:
            KmsError: this process may not unwrap the job key.
        """
        job_key = ticket.redeem()
        shared = job_key.shared(encrypted_shared)
        access: TableAccess = shared if isinstance(shared, TableAccess) else shared.access
        return cls(job_key, shared, access.io(), access.metadata(), FreshKeys(access.data_key_length), number, attempt)

    def write(self, rows: pa.Table | pa.RecordBatchReader) -> list[DataFile]:
        """Write rows as files that no other attempt writes."""
        # Spark may run two attempts of a task at once: under one name the loser would overwrite, or delete, the winner's file.
        locations = AttemptLocations(location_provider(self.metadata), self.number, self.attempt)
        return write_data_files(self.metadata, rows, self.io, self.keys, self.job_key.new_uuid(), locations=locations)

    def encrypted_result(self, files: list[DataFile], marks: FilePositions | None = None) -> bytes:
        """Return the RESULT message. If that fails, delete the files."""
        try:
            content = frame(encode_positions(marks or {})) + FileEntryCodec(self.metadata).encode_files(files)
            return self.job_key.encrypt(Role.RESULT, self.number, content)
        except BaseException:
            delete_files(self.io, files)
            raise


def encrypt_tasks(job_key: JobKey, codec: FileEntryCodec, partitions: Iterable[Sequence[EncryptedFileScanTask]]) -> list[bytes]:
    """Return the TASK messages of tasks that each get the scan tasks of one partition, in the order of their numbers."""
    return [job_key.encrypt(Role.TASK, number, codec.encode_tasks(tasks)) for number, tasks in enumerate(partitions)]


def decrypted_results(job_key: JobKey, codec: FileEntryCodec, results: Iterable[tuple[int, bytes]]) -> list[EngineTaskResult]:
    """Decrypt the tasks' results, on the driver: (task number, RESULT message).

    Raises:
        AuthenticationError: a result was changed or belongs to another task, a task sent two results, or names a file that the job did not
            write, a file twice, or a file outside of the table's folders.
        FormatError: a result does not hold what it should.
    """
    results = list(results)
    # Each message authenticates alone; only its number shows that a captured result was sent again.
    if len({number for number, _ in results}) != len(results):
        raise AuthenticationError("a task of the job sent two results: its rows would be committed twice")
    decoded = {number: _decoded_result(codec, job_key.decrypt(Role.RESULT, number, message)) for number, message in results}
    reported = ReportedFiles(job_key.names, folders_written(codec.table_metadata))
    for number, file in ((number, file) for number, result in decoded.items() for file in result.files):
        reported.check(file.file_path, f"task {number}")

    return list(decoded.values())


def _decoded_result(codec: FileEntryCodec, content: bytes) -> EngineTaskResult:
    reader = ByteReader(content, "a task's result")
    marks = decode_positions(reader.frame())
    return EngineTaskResult(codec.decode_files(reader.rest()), marks)
