"""The executor's side of a job: prepare the process, open the job once per task, write data files, and encrypt the result.

    result = number of the task | RESULT message
    RESULT = length of the marks, 8 bytes LE | marks (see job_messages.py) | entries of the files written (see file_entries.py)

No two attempts at a task ever write the same file, because the attempt is part of the file's name:

    {partition}-{attempt}-{uuid}-{number}.parquet           number: of the file within the attempt; uuid: fresh for each attempt

Where the files lie is still decided by the table's own location provider, which gets the new names. An executor's copy of the table
metadata names `AttemptLocations` in `write.py-location-provider.impl`; the table itself never does. A failed attempt deletes its files as
far as it can; what remains is ciphertext that no manifest names.

A Python worker serves one task after the other, with this package and its libraries loaded. Around each task PySpark calls

    importlib.invalidate_caches()     before Python 3.13 reads the whole directory of an archive for every package that was imported from
                                      it or looked for in it: some 0.2 s for Spark's own (pyspark.zip, py4j, the jar of its core). Archives
                                      that the process was started with stay as they are, so their finders are forgotten: Python makes
                                      one again when it next imports from there. Those that were added to the session keep theirs.
    gc.collect()                      looks at every object of every module: some 0.1 s. Objects of modules live as long as the process,
                                      so gc.freeze() sets them aside, and the collector looks only at what tasks made.

For a short task both together take longer than its work, so `skip_per_task_setup` avoids both.

Raises ConfigurationError outside a Spark task and for a value that its column cannot hold, KmsError where this executor may not unwrap
the job key.
"""

from __future__ import annotations

import gc
import itertools
import os
import pickle
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from zipimport import zipimporter

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionKey
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.typedef import Properties

from tablecrypt._bytes import ByteReader, frame
from tablecrypt.errors import AuthenticationError, ConfigurationError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.spark.exchange import collected_from, gathered
from tablecrypt.spark.job_keys import JobKey, JobTicket, Role
from tablecrypt.spark.job_messages import FilePositions, decode_positions, encode_positions
from tablecrypt.spark.session import ArrowFunction
from tablecrypt.spark.tables import TableAccess
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.table_files import DataKeySource, FreshKeys, delete_written, deleting_on_error
from tablecrypt.table.write import write_data_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_IMPL: Final = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL
_OWN_IMPL: Final = "tablecrypt.spark.own-location-provider"
_ATTEMPT: Final = "tablecrypt.spark.attempt"
RESULT_SCHEMA: Final = "task long, message binary"
_ARROW_RESULT_SCHEMA: Final = pa.schema([("task", pa.int64()), ("message", pa.binary())])
READ_AHEAD: Final = 16 * 1024 * 1024
"""How many bytes ahead (or one row group) a task reads of each file."""


class AttemptLocations(LocationProvider):
    """Puts the partition and attempt into PyIceberg's file names; the table's own provider chooses the location."""

    def __init__(self, table_location: str, table_properties: Properties) -> None:
        super().__init__(table_location, table_properties)
        own = {name: value for name, value in table_properties.items() if name not in (_IMPL, _OWN_IMPL, _ATTEMPT)}
        if _OWN_IMPL in table_properties:
            own[_IMPL] = table_properties[_OWN_IMPL]
        self._own = load_location_provider(table_location, own)
        self._attempt = table_properties[_ATTEMPT]

    def new_data_location(self, data_file_name: str, partition_key: PartitionKey | None = None) -> str:
        """Return the location of a file that PyIceberg calls 00000-{number}-{uuid}.parquet."""
        stem, _, extension = data_file_name.rpartition(".")
        _, number, unique = stem.split("-", 2)
        return self._own.new_data_location(f"{self._attempt}-{unique}-{int(number):05d}.{extension}", partition_key)


def with_attempt_names(metadata: EncryptedTableMetadata, partition: int, attempt: int) -> EncryptedTableMetadata:
    """Return metadata that names data files after one attempt at one partition. Use it to write files; never commit it."""
    properties = {**metadata.properties, _IMPL: f"{__name__}.{AttemptLocations.__name__}", _ATTEMPT: f"{partition:05d}-{attempt}"}
    if _IMPL in metadata.properties:
        properties[_OWN_IMPL] = metadata.properties[_IMPL]
    return metadata.model_copy(update={"properties": properties})


@dataclass
class _Frozen:
    """The number of loaded modules when objects were last frozen."""

    modules: int = 0


_frozen = _Frozen()


def skip_per_task_setup() -> None:
    """Save a Python worker, at the beginning of a task, the work described above. In any other process, do nothing."""
    from pyspark import TaskContext

    if TaskContext.get() is None:
        return
    _forget_finders()
    # Only if modules were loaded: freezing also keeps what the task itself holds by now, and must not do so in every task.
    if len(sys.modules) > _frozen.modules:
        gc.freeze()
        _frozen.modules = len(sys.modules)


def _forget_finders() -> None:
    started_with = set(os.environ.get("PYTHONPATH", "").split(os.pathsep))
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and finder.archive in started_with:
            sys.path_importer_cache.pop(path, None)


@dataclass(frozen=True)
class TaskResult:
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
    def open(cls, ticket: JobTicket, encrypted_shared: bytes) -> WritingTask:
        """Open the job in the Spark task that this runs in. The SHARED message is a TableAccess, or has one as `access`."""
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise ConfigurationError("an encrypted partition is written inside a Spark task only")
        skip_per_task_setup()
        job_key = ticket.redeem()
        shared = pickle.loads(job_key.decrypt(Role.SHARED, 0, encrypted_shared))
        access: TableAccess = shared if isinstance(shared, TableAccess) else shared.access
        keys = FreshKeys(access.data_key_length)
        return cls(job_key, shared, access.io(), access.metadata(), keys, context.partitionId(), context.taskAttemptId())

    def write(self, rows: pa.Table | pa.RecordBatchReader) -> list[DataFile]:
        """Write rows as files that no other attempt writes."""
        named = with_attempt_names(self.metadata, self.number, self.attempt)
        return write_data_files(named, rows, self.io, self.keys, uuid.uuid4())

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


def task_numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """Yield the task numbers that `in_tasks` sends."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def filled_batches(batches: Iterable[pa.RecordBatch]) -> tuple[pa.RecordBatch, Iterator[pa.RecordBatch]] | None:
    """Return a first batch with rows, and an iterator over all rows in batches, including the first; None if there are no rows."""
    filled = gathered(batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    return None if first is None else (first, itertools.chain([first], filled))


def result_batch(number: int, message: bytes) -> pa.RecordBatch:
    """Return a result as Spark collects it, in RESULT_SCHEMA."""
    return pa.RecordBatch.from_pydict({"task": [number], "message": [message]}, schema=_ARROW_RESULT_SCHEMA)


def decrypted_results(job_key: JobKey, codec: FileEntryCodec, results: Iterable[tuple[int, bytes]]) -> list[TaskResult]:
    """Decrypt the tasks' results, on the driver: (task number, RESULT message).

    Raises:
        AuthenticationError: a result was changed or belongs to another task, or a task sent two results.
        FormatError: a result does not hold what it should.
    """
    results = list(results)
    if len({number for number, _ in results}) != len(results):
        raise AuthenticationError("a task of the Spark job sent two results: its rows would be committed twice")
    return [_decoded_result(codec, job_key.decrypt(Role.RESULT, number, message)) for number, message in results]


def results_of(rows: DataFrame, function: ArrowFunction) -> list[tuple[int, bytes]]:
    """Run a job that writes rows, and return what its tasks yield, in RESULT_SCHEMA, as (task number, RESULT message)."""
    return collected(collected_from(rows, function, RESULT_SCHEMA))


def collected(rows: Iterable[Any]) -> list[tuple[int, bytes]]:
    """Return rows of RESULT_SCHEMA, as Spark collects them, as (task number, RESULT message)."""
    return [(int(row["task"]), bytes(row["message"])) for row in rows]


def delete_files(io: EncryptingFileIO, files: Iterable[DataFile]) -> None:
    """Delete the files of a failed write, as far as the store allows."""
    delete_written(io, [file.file_path for file in files])


@contextmanager
def removing_on_error(io: EncryptingFileIO, files: Sequence[DataFile]) -> Iterator[None]:
    """Delete files that no metadata names yet if the block fails."""
    with deleting_on_error(io, (file.file_path for file in files)):
        yield


def _decoded_result(codec: FileEntryCodec, content: bytes) -> TaskResult:
    reader = ByteReader(content, "a task's result")
    marks = decode_positions(reader.frame())
    return TaskResult(codec.decode_files(reader.rest()), marks)
