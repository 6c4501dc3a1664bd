"""Partitions of a read: each carries its own encrypted tasks, so that what Spark pickles of a reader before it plans holds nothing."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from tablecrypt.engines.job_keys import JobTicket, Role
from tablecrypt.spark.read import SharedReadContent, read_partitions
from tablecrypt.spark.session import Sizing
from tablecrypt.spark.tables import PlannedRead
from tablecrypt.table.file_entries import FileEntryCodec


class EncryptedPartition(InputPartition):
    """One partition: the ticket and two encrypted messages."""

    def __init__(self, ticket: JobTicket, number: int, encrypted_shared: bytes, encrypted_task: bytes) -> None:
        super().__init__(number)
        self._ticket = ticket
        self._encrypted_shared = encrypted_shared
        self._encrypted_task = encrypted_task

    def __repr__(self) -> str:
        return f"EncryptedPartition({self.value})"

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows. Runs on an executor."""
        number = pa.RecordBatch.from_pydict({"task": [self.value]})
        return read_partitions(self._ticket, self._encrypted_shared, {self.value: self._encrypted_task}, [number])


def encrypted_partitions(read: PlannedRead, sizing: Sizing, spark_setting: Callable[[str, str], str | None]) -> list[EncryptedPartition]:
    """Encrypt a plan. The driver's side; one call to the KMS, none for a plan without files."""
    if not read.tasks:
        return []
    ticket, job_key = read.located.issue_job_under(spark_setting)
    encrypted_shared = job_key.encrypt(Role.SHARED, 0, pickle.dumps(SharedReadContent.of(read)))
    codec = FileEntryCodec(read.located.table.metadata)
    return [
        EncryptedPartition(ticket, number, encrypted_shared, job_key.encrypt(Role.TASK, number, codec.encode_tasks(tasks)))
        for number, tasks in enumerate(sizing.split_partitions(read.tasks))
    ]
