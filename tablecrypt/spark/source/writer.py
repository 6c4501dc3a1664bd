"""df.write.format("tablecrypt"): executors write files under fresh DEKs and return encrypted entries; the driver commits once.

    planner process    checks the schema, encrypts what tasks need ─▶ the writer, pickled: a ticket and a encrypted message
    executor           writes its partition ─▶ a message: task number and encrypted entries
    commit process     redeems the ticket, opens the messages, one commit; or aborts, and deletes the files

Spark calls commit with the messages of the attempts that won, so what others wrote is never committed.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from tablecrypt.engines.access import TableAccess
from tablecrypt.engines.changes import check_unchanged
from tablecrypt.engines.job_keys import JobTicket, Role
from tablecrypt.engines.tasks import decrypted_results, delete_files, removing_on_error
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.spark.source.options import SourceOptions
from tablecrypt.spark.source.table import SourceTable
from tablecrypt.spark.tables import LocatedTable, table_access
from tablecrypt.spark.write import Mode, WriteOptions, commit_written, prepare, write_partition
from tablecrypt.table.file_entries import FileEntryCodec

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class EncryptedMessage(WriterCommitMessage):
    """One task's result; None where it had no rows."""

    result: tuple[int, bytes] | None


class EncryptedWriter(DataSourceArrowWriter):
    """Appends rows, or replaces all of the table or the partitions that occur."""

    def __init__(self, source: SourceTable, schema: StructType, overwrite: bool) -> None:
        self._source = source
        self._options = write_options(source.options, overwrite)
        self._ticket, self._encrypted_access = issued_write(source, schema, self._options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> EncryptedMessage:
        """Write one partition. Runs on an executor."""
        return EncryptedMessage(result_of(self._ticket, self._encrypted_access, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit what the tasks wrote. Runs on the driver's machine."""
        located = self._source.load()
        files = self._files(located, messages)
        planned = _access(self._ticket, self._encrypted_access).metadata()
        with removing_on_error(cast("EncryptingFileIO", located.table.io), files):
            check_unchanged(located.name, planned, located.table.metadata)
        commit_written(located, files, self._options)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what the tasks wrote. Runs on the driver's machine."""
        located = self._source.load()
        delete_files(cast("EncryptingFileIO", located.table.io), self._files(located, messages))

    def _files(self, located: LocatedTable, messages: list[WriterCommitMessage | None]) -> list[DataFile]:
        results = [message.result for message in messages if isinstance(message, EncryptedMessage) and message.result is not None]
        if not results:
            return []
        opened = decrypted_results(self._ticket.redeem(), FileEntryCodec(located.table.metadata), results)
        return [file for result in opened for file in result.files]


def issued_write(source: SourceTable, schema: StructType, options: WriteOptions) -> tuple[JobTicket, bytes]:
    """Prepare a write; return the ticket of its job and the SHARED message that its tasks open."""
    located = source.load()
    prepare(schema, located, options)
    ticket, job_key = located.issue_job_under(source.facts.setting)
    return ticket, job_key.encrypt(Role.SHARED, 0, pickle.dumps(table_access(located.table)))


def write_options(options: SourceOptions, overwrite: bool) -> WriteOptions:
    """Return how rows go into the table."""
    mode: Mode = "append"
    if overwrite:
        mode = "overwrite_partitions" if options.dynamic_overwrite else "overwrite"
    return WriteOptions(mode, branch=options.written_branch(), snapshot_properties=options.snapshot_properties)


def result_of(ticket: JobTicket, encrypted_access: bytes, batches: Iterator[pa.RecordBatch]) -> tuple[int, bytes] | None:
    """Write one partition and return its number and encrypted result; None without rows. Runs on an executor."""
    for result in write_partition(ticket, encrypted_access, batches):
        return int(result.column(0)[0].as_py()), bytes(result.column(1)[0].as_py())
    return None


def _access(ticket: JobTicket, encrypted_access: bytes) -> TableAccess:
    access: TableAccess = pickle.loads(ticket.redeem().decrypt(Role.SHARED, 0, encrypted_access))
    return access
