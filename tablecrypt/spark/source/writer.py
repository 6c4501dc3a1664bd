"""df.write.format("tablecrypt"): executors write files under fresh DEKs and answer sealed; the driver commits once.

    planner process    checks the schema, seals what tasks need ─▶ the writer, pickled: a ticket and a sealed message
    executor           writes its partition ─▶ a message: task number and sealed entries
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

from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.spark.executor_job import delete_files, opened_results, removing_on_error
from tablecrypt.spark.job_keys import JobTicket, Role
from tablecrypt.spark.source.options import SourceOptions
from tablecrypt.spark.source.table import SourceTable, as_arrow
from tablecrypt.spark.tables import LocatedTable, TableAccess
from tablecrypt.spark.write import Mode, WriteOptions, check_fits, check_unchanged, commit_written, write_partition
from tablecrypt.table.file_entries import FileEntryCodec

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class SealedMessage(WriterCommitMessage):
    """One task's answer; None where it had no rows."""

    answer: tuple[int, bytes] | None


class EncryptedWriter(DataSourceArrowWriter):
    """Appends rows, or replaces all of the table or the partitions that occur."""

    def __init__(self, source: SourceTable, schema: StructType, overwrite: bool) -> None:
        self._source = source
        self._options = write_options(source.options, overwrite)
        located = source.load()
        check_fits(as_arrow(schema), located, self._options)
        self._ticket, job_key = located.issue_job_under(source.facts.setting)
        self._sealed_access = job_key.seal(Role.SHARED, 0, pickle.dumps(TableAccess.of(located.table)))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SealedMessage:
        """Write one partition. Runs on an executor."""
        return SealedMessage(answer_of(self._ticket, self._sealed_access, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit what the tasks wrote. Runs on the driver's machine."""
        located = self._source.load()
        files = self._files(located, messages)
        planned = _access(self._ticket, self._sealed_access).metadata()
        with removing_on_error(cast("EncryptingFileIO", located.table.io), files):
            check_unchanged(located.name, planned, located.table.metadata)
        commit_written(located, files, self._options)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what the tasks wrote. Runs on the driver's machine."""
        located = self._source.load()
        delete_files(cast("EncryptingFileIO", located.table.io), self._files(located, messages))

    def _files(self, located: LocatedTable, messages: list[WriterCommitMessage | None]) -> list[DataFile]:
        answers = [message.answer for message in messages if isinstance(message, SealedMessage) and message.answer is not None]
        if not answers:
            return []
        opened = opened_results(self._ticket.redeem(), FileEntryCodec(located.table.metadata), answers)
        return [file for answer in opened for file in answer.files]


def write_options(options: SourceOptions, overwrite: bool) -> WriteOptions:
    """Return how rows go into the table."""
    mode: Mode = "append"
    if overwrite:
        mode = "overwrite_partitions" if options.dynamic_overwrite else "overwrite"
    return WriteOptions(mode, branch=options.written_branch(), snapshot_properties=options.snapshot_properties)


def answer_of(ticket: JobTicket, sealed_access: bytes, batches: Iterator[pa.RecordBatch]) -> tuple[int, bytes] | None:
    """Write one partition and return its number and sealed answer; None without rows. Runs on an executor."""
    for answer in write_partition(ticket, sealed_access, batches):
        return int(answer.column(0)[0].as_py()), bytes(answer.column(1)[0].as_py())
    return None


def _access(ticket: JobTicket, sealed_access: bytes) -> TableAccess:
    access: TableAccess = pickle.loads(ticket.redeem().open(Role.SHARED, 0, sealed_access))
    return access
