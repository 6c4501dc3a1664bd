"""Partitions of a read: each carries its own sealed tasks, so that what Spark pickles of a reader before it plans holds nothing."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from tablecrypt.spark.job_keys import JobTicket, Role
from tablecrypt.spark.read import SharedReadContent, read_partitions
from tablecrypt.spark.session import Sizing
from tablecrypt.spark.tables import PlannedRead, TableAccess
from tablecrypt.table.file_entries import FileEntryCodec


class SealedPartition(InputPartition):
    """One partition: the ticket and two sealed messages."""

    def __init__(self, ticket: JobTicket, number: int, sealed_shared: bytes, sealed_task: bytes) -> None:
        super().__init__(number)
        self._ticket = ticket
        self._sealed_shared = sealed_shared
        self._sealed_task = sealed_task

    def __repr__(self) -> str:
        return f"SealedPartition({self.value})"

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows. Runs on an executor."""
        number = pa.RecordBatch.from_pydict({"task": [self.value]})
        return read_partitions(self._ticket, self._sealed_shared, {self.value: self._sealed_task}, [number])


def sealed_partitions(read: PlannedRead, sizing: Sizing, spark_setting: Callable[[str, str], str | None]) -> list[SealedPartition]:
    """Seal a plan. The driver's side; one call to the KMS, none for a plan without files."""
    if not read.tasks:
        return []
    ticket, job_key = read.located.issue_job_under(spark_setting)
    shared = SharedReadContent(TableAccess.of(read.located.table), read.projected, read.row_filter)
    sealed_shared = job_key.seal(Role.SHARED, 0, pickle.dumps(shared))
    codec = FileEntryCodec(read.located.table.metadata)
    return [
        SealedPartition(ticket, number, sealed_shared, job_key.seal(Role.TASK, number, codec.encode_tasks(tasks)))
        for number, tasks in enumerate(sizing.split_partitions(read.tasks))
    ]
