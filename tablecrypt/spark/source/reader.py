"""spark.read.format("tablecrypt"): planned on the driver when a query is, read by executors from encrypted partitions.

Filters of queries are not pushed down. Spark 4.1 keeps one plan for each DataFrame of a Python source, so what one query's filter left
out would be missing from the next query of the same DataFrame, and from the other side of a self-join, silently. The option `filter`
rules out files and rows instead. A plan holds for the life of its DataFrame or view: make a new one to see newer rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tablecrypt.spark.source.partitions import EncryptedPartition, encrypted_partitions
from tablecrypt.spark.source.table import SourceTable, check_declared
from tablecrypt.spark.tables import PlannedRead

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class EncryptedReader(DataSourceReader):
    """Reads the columns of a schema, which Spark got from the source or from a user who declared one."""

    def __init__(self, source: SourceTable, schema: StructType) -> None:
        self._source = source
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Plan one snapshot. Runs on the driver's machine.

        Raises:
            ConfigurationError: the declared schema does not fit, or the executors' way to the KMS cannot be sent to them.
        """
        columns = tuple(self._schema.names)
        located = self._source.load()
        read = PlannedRead.of_scan(located, self._source.scan(located, columns), columns)
        check_declared(self._schema, read.projected)
        return encrypted_partitions(read, self._source.facts.sizing, self._source.facts.setting)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition; Spark makes one of None where there are none. Runs on an executor."""
        return partition.rows() if isinstance(partition, EncryptedPartition) else iter(())
