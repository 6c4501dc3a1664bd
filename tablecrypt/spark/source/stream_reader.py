"""spark.readStream.format("tablecrypt"): rows as snapshots appended them, in order, each once.

    offset = {"table-uuid": the table's, "snapshot-id": the last snapshot that was read, -1 before the first}

Which snapshots a micro-batch holds is decided in sql/streams/history.py.

Spark does not tell a Python source where a stream stands when it asks how far it can go; but it plans the range up to each offset, also
right after a restart, and from there the limits of a micro-batch are counted.

Raises ConfigurationError: the branch was rolled back, its history expired before it was read, or the table is another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.table import ALWAYS_TRUE
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.source.options import EARLIEST, LATEST
from tablecrypt.spark.source.partitions import EncryptedPartition, encrypted_partitions
from tablecrypt.spark.source.table import SourceTable, check_declared
from tablecrypt.spark.sql.streams.history import BEFORE_THE_FIRST, check_appended, check_begins_with_the_first, history, reachable
from tablecrypt.spark.tables import LocatedTable, PlannedRead

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class EncryptedStreamReader(DataSourceStreamReader):
    """Reads a branch's appends."""

    def __init__(self, source: SourceTable, schema: StructType) -> None:
        self._source = source
        self._schema = schema
        self._branch = source.options.written_branch()
        self._position: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins. Runs on the driver's machine."""
        located = self._source.load()
        located.check_branch(self._branch)
        self._position = self._start(located)
        return _offset(located, self._position)

    def latestOffset(self) -> dict[str, Any]:
        """How far the next micro-batch goes. Runs on the driver's machine."""
        located = self._source.load()
        if self._position is None:
            self._position = self._start(located)
        return _offset(located, reachable(history(located, self._branch, self._position), self._position, self._source.options.rules))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the appends after one offset up to another. Runs on the driver's machine."""
        self._position = int(end["snapshot-id"])
        if start == end:
            return []
        located = self._source.load()
        if end["table-uuid"] != str(located.table.metadata.table_uuid):
            raise ConfigurationError(f"{located.name} is not the table that this query began with: start it with a new checkpoint")
        snapshots = history(located, self._branch, int(start["snapshot-id"]), self._position)
        for snapshot in snapshots:
            check_appended(snapshot, self._source.options.rules)
        columns = tuple(self._schema.names)
        scan = located.table.incremental_append_scan(
            from_snapshot_id_exclusive=snapshots[0].parent_snapshot_id,
            to_snapshot_id_inclusive=self._position,
            row_filter=self._source.options.row_filter or ALWAYS_TRUE,
            selected_fields=columns,
            masked=self._source.masked(located),
        )
        read = PlannedRead.of_scan(located, scan, columns)
        check_declared(self._schema, read.projected)
        return encrypted_partitions(read, self._source.facts.sizing, self._source.facts.setting)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition. Runs on an executor."""
        return partition.rows() if isinstance(partition, EncryptedPartition) else iter(())

    def _start(self, located: LocatedTable) -> int:
        starting = self._source.options.starting
        if starting == LATEST:
            head = located.table.metadata.snapshot_by_name(self._branch)
            return BEFORE_THE_FIRST if head is None else head.snapshot_id
        if starting != EARLIEST:
            history(located, self._branch, int(starting))
            return int(starting)
        check_begins_with_the_first(located, self._branch)
        return BEFORE_THE_FIRST


def _offset(located: LocatedTable, snapshot_id: int) -> dict[str, Any]:
    return {"table-uuid": str(located.table.metadata.table_uuid), "snapshot-id": snapshot_id}
