"""writeStream.format("tablecrypt"): each micro-batch once.

    executor          writes its partition ─▶ a message: ticket, number, encrypted entries, the query's id (of its task's properties)
    commit process    opens the messages, commits rows and marker in one snapshot (commit.py); a batch that is there already is left out,
                      and what its tasks wrote is deleted

    number of a RESULT message = micro-batch << 32 | partition, so that no message of one batch opens in another

Spark makes a new writer to commit with, so the ticket of the job comes back with the messages. Its key id and the way to the KMS are taken
from the catalog and not from the message.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyspark.sql.datasource import WriterCommitMessage

from tablecrypt.engines.access import TableAccess
from tablecrypt.engines.changes import check_unchanged
from tablecrypt.engines.job_keys import JobTicket, Role
from tablecrypt.engines.tasks import decrypted_results, delete_files, removing_on_error
from tablecrypt.errors import AuthenticationError, ConfigurationError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.spark.commit import BatchAlreadyCommittedError, BatchMarker
from tablecrypt.spark.source.table import SourceTable
from tablecrypt.spark.source.writer import issued_write, write_options
from tablecrypt.spark.tables import LocatedTable
from tablecrypt.spark.write import commit_written, write_partition
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.table_files import TableFileIO

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError as missing:
    raise ConfigurationError(
        "writeStream.format('tablecrypt') needs Spark 4.1 or newer; use foreachBatch(tablecrypt.spark.stream_writer(...))"
    ) from missing

QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_PARTITION_BITS: Final = 32


@dataclass(frozen=True)
class StreamMessage(WriterCommitMessage):
    """One task's result, with what opens it."""

    query_id: str
    job_id: bytes
    wrapped_key: bytes
    encrypted_access: bytes
    number: int
    message: bytes

    def __repr__(self) -> str:
        return f"StreamMessage(query {self.query_id}, {self.number})"


class NoRows(WriterCommitMessage):
    """The result of a task without rows."""


class EncryptedStreamWriter(DataSourceStreamArrowWriter):
    """Appends micro-batches, or replaces the table by each of them (output mode complete)."""

    def __init__(self, source: SourceTable, schema: StructType, overwrite: bool) -> None:
        self._source = source
        self._options = write_options(source.options, overwrite)
        self._ticket, self._encrypted_access = issued_write(source, schema, self._options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition of one micro-batch. Runs on an executor."""
        query_id, batch_id = _batch_of_this_task()
        for result in write_partition(self._ticket, self._encrypted_access, iterator, batch_id << _PARTITION_BITS):
            number, message = result.column(0)[0].as_py(), result.column(1)[0].as_py()
            return StreamMessage(query_id, self._ticket.job_id, self._ticket.wrapped_key, self._encrypted_access, number, message)
        return NoRows()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit a micro-batch, unless the table has it. Runs on the driver's machine."""
        results = [message for message in messages if isinstance(message, StreamMessage)]
        if not results and self._options.mode == "append":
            return
        if not results:
            raise ConfigurationError("a micro-batch without rows cannot replace a table: its query is not known")
        located = self._source.load()
        planned, files = _opened(located, results, batchId)
        with removing_on_error(cast("EncryptingFileIO", located.table.io), files):
            check_unchanged(located.name, planned, located.table.metadata)
        options = replace(self._options, marker=BatchMarker(results[0].query_id, batchId, self._options.branch))
        try:
            commit_written(located, files, options)
        except BatchAlreadyCommittedError:
            return

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Delete what the tasks wrote. Runs on the driver's machine."""
        results = [message for message in messages if isinstance(message, StreamMessage)]
        if results:
            located = self._source.load()
            delete_files(cast("EncryptingFileIO", located.table.io), _opened(located, results, batchId)[1])


def _opened(located: LocatedTable, messages: Sequence[StreamMessage], batch_id: int) -> tuple[EncryptedTableMetadata, list[DataFile]]:
    """Return the table's metadata as the tasks knew it, and the files that they wrote."""
    first = messages[0]
    if len({(each.query_id, each.job_id, each.wrapped_key) for each in messages}) > 1:
        raise AuthenticationError("the messages of a micro-batch are of several jobs")
    if any(each.number >> _PARTITION_BITS != batch_id for each in messages):
        raise AuthenticationError(f"a message of another micro-batch came with batch {batch_id}")
    key_id = cast("TableFileIO", located.table.io).manager.table_key_id
    job_key = JobTicket(first.job_id, key_id, first.wrapped_key, located.kms_properties).redeem()
    opened = decrypted_results(job_key, FileEntryCodec(located.table.metadata), [(each.number, each.message) for each in messages])
    access: TableAccess = pickle.loads(job_key.decrypt(Role.SHARED, 0, first.encrypted_access))
    return access.metadata(), [file for result in opened for file in result.files]


def _batch_of_this_task() -> tuple[str, int]:
    from pyspark import TaskContext

    context = TaskContext.get()
    query_id = context.getLocalProperty(QUERY_ID) if context is not None else None
    batch_id = context.getLocalProperty(_BATCH_ID) if context is not None else None
    if context is None or not query_id or batch_id is None:
        raise ConfigurationError("a micro-batch is written inside a task of a streaming query only")
    return query_id, int(batch_id)
