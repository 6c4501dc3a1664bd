"""What a write commits: removed and added rows as one snapshot, and the id of the micro-batch that the snapshot holds.

    located by an executor job: (file, positions) ──copy-on-write──▶ executors write those files again without the rows
                                                  ──merge-on-read──▶ the driver writes deletion vectors
    files that executors wrote                    ──────────────────▶ added
    all of it ──▶ one snapshot ──▶ one commit

A change is planned on the snapshot that the job read. When others committed meanwhile, it is tried again on top of them, unless PyIceberg's
checks find a conflict: a file of this change removed or deletes added to it, or (isolation level serializable) rows added that the
change's filter could have matched. Then nothing is committed. A dynamic overwrite is such a change too: the table partitions that new files
fall into lose the files that they had.

A micro-batch of a stream is committed exactly once, because the snapshot itself says which one it holds:

    summary of the snapshot    tablecrypt.spark.query-id   the streaming query's id, which its checkpoint keeps through restarts
                               tablecrypt.spark.batch-id   the micro-batch, from 0

Spark repeats a micro-batch when a query stopped before its checkpoint knew that the batch was done. Rows and marker come in one commit, so
the repetition finds either both or neither. Another process may commit the same batch at the same time; so each retry of a commit looks
again at the table that it is tried on. The marker is looked for in the history of the branch: keep the snapshot of a query's last batch
until the query runs again. A snapshot's summary is in metadata.json, which is not authenticated: who can write there can have a batch left
out, as they can roll the table back.

Iceberg table spec, "Deletion Vectors", "Row Lineage".
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from pyiceberg.exceptions import ValidationException
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.table import ALWAYS_TRUE, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import IsolationLevel, Operation, ancestors_of
from pyroaring import BitMap64

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.job_messages import FileNumber
from tablecrypt.spark.tables import LocatedTable
from tablecrypt.table.deletes import write_row_delta
from tablecrypt.table.deletion_vectors import RowDelta
from tablecrypt.table.partitions import partition_values
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.snapshots import EncryptedOverwrite
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.transaction import EncryptedTransaction

QUERY_ID: Final = "tablecrypt.spark.query-id"
BATCH_ID: Final = "tablecrypt.spark.batch-id"


@dataclass
class RowChange:
    """What a job found and wrote, before it is committed."""

    branch: str | None = MAIN_BRANCH
    """None for a snapshot of no branch, made on the main one."""
    conflicts_with: BooleanExpression = ALWAYS_TRUE
    """Rows that other writers must not have changed in the meantime."""
    dropped: list[DataFile] = field(default_factory=list)
    """Data files that are removed as a whole."""
    marked: list[tuple[EncryptedFileScanTask, BitMap64]] = field(default_factory=list)
    """Data files that lose some of their rows, with the positions of these rows."""
    rewritten: list[DataFile] = field(default_factory=list)
    """New files with the remaining rows of dropped files."""
    added: list[DataFile] = field(default_factory=list)
    """New rows."""
    isolation: IsolationLevel | None = None
    """What others may have done in the meantime; None for what the table's properties say of deletes and updates."""

    def __bool__(self) -> bool:
        return bool(self.dropped or self.marked or self.rewritten or self.added)

    @property
    def written(self) -> list[DataFile]:
        """Data files that exist for this change alone."""
        return [*self.rewritten, *self.added]


def is_merge_on_read(mode: str) -> bool:
    """Whether a table property's mode says that rows are marked, not rewritten."""
    return mode == TableProperties.DELETE_MODE_MERGE_ON_READ


def numbered(partitions: Sequence[Sequence[EncryptedFileScanTask]]) -> dict[FileNumber, EncryptedFileScanTask]:
    """Return the scan tasks by the number that executors use for each file."""
    return {(number, index): task for number, tasks in enumerate(partitions) for index, task in enumerate(tasks)}


def split_whole_files(tasks: Sequence[EncryptedFileScanTask]) -> tuple[list[DataFile], list[EncryptedFileScanTask]]:
    """Return the files in which every row matches, as their partition shows, and the tasks whose files have to be read."""
    whole = [task.file for task in tasks if isinstance(task.residual, AlwaysTrue)]
    return whole, [task for task in tasks if not isinstance(task.residual, AlwaysTrue)]


def stage_row_change(transaction: EncryptedTransaction, change: RowChange, snapshot_properties: dict[str, str]) -> None:
    """Stage a change as one snapshot, in a transaction on the table as it was when the job was planned. Do nothing for an empty change."""
    if not change:
        return
    update = transaction.update_snapshot(snapshot_properties, change.branch)
    operation = Operation.OVERWRITE if change.written else Operation.DELETE
    if change.marked:
        producer: EncryptedOverwrite = update.row_delta(_row_delta(transaction, change), operation)
    else:
        producer = update.producer(EncryptedOverwrite, operation)
        for file in change.dropped:
            producer.delete_data_file(file)
    producer.moves_rows = bool(change.rewritten or (change.marked and change.added))
    producer.isolate_as(change.isolation or operation)
    with producer:
        producer.delete_by_predicate(change.conflicts_with)
        for file in change.written:
            producer.append_data_file(file)


def _row_delta(transaction: EncryptedTransaction, change: RowChange) -> RowDelta:
    metadata, io = transaction.encrypted_metadata, transaction.table_io
    return write_row_delta(metadata, io, change.marked, uuid.uuid4(), change.dropped)


def check_can_replace_partitions(located: LocatedTable, branch: str | None) -> None:
    """Check a table before rows are written.

    Raises:
        ConfigurationError: the table has no partitions, or live files of an earlier partitioning, whose rows may belong into any of today's
            partitions.
    """
    spec = located.table.spec()
    if spec.is_unpartitioned():
        raise ConfigurationError(f"{located.name} has no partitions: use mode 'overwrite'")
    if any(task.file.spec_id != spec.spec_id for task in _live_tasks(located, branch)):
        raise ConfigurationError(
            f"{located.name} has files from before its partitioning was changed: use mode 'overwrite' with overwrite_filter"
        )


def replaced_partitions(located: LocatedTable, files: Sequence[DataFile], branch: str | None) -> RowChange:
    """Return the change that replaces the content of these files' partitions by the files."""
    replaced = {partition_values(file.partition) for file in files}
    dropped = [task.file for task in _live_tasks(located, branch) if partition_values(task.file.partition) in replaced]
    return RowChange(branch=branch, dropped=dropped, added=list(files))


def _live_tasks(located: LocatedTable, branch: str | None) -> list[EncryptedFileScanTask]:
    return cast("list[EncryptedFileScanTask]", list(located.scan(ALWAYS_TRUE, branch).plan_files()))


class BatchAlreadyCommittedError(ValidationException):
    """The table already has the micro-batch. On this error PyIceberg removes what the attempt wrote for its commit."""


@dataclass(frozen=True)
class BatchMarker:
    """One micro-batch of one streaming query, to be written to one branch."""

    query_id: str
    batch_id: int
    branch: str | None

    @property
    def summary(self) -> dict[str, str]:
        """The marker as snapshot properties."""
        return {QUERY_ID: self.query_id, BATCH_ID: str(self.batch_id)}

    def is_in(self, metadata: TableMetadata) -> bool:
        """Whether the branch holds this micro-batch, or a later one of the same query."""
        for snapshot in ancestors_of(metadata.snapshot_by_name(self.branch), metadata):
            summary = snapshot.summary
            if summary is None or summary.get(QUERY_ID) != self.query_id:
                continue
            batch_id = summary.get(BATCH_ID) or ""
            if batch_id.isdecimal() and int(batch_id) >= self.batch_id:
                return True
        return False

    def check_not_in(self, metadata: TableMetadata) -> None:
        """Raise BatchAlreadyCommittedError where the branch holds this micro-batch, or a later one of the same query."""
        if self.is_in(metadata):
            raise BatchAlreadyCommittedError(f"batch {self.batch_id} of query {self.query_id} is committed already")


def begin(table: EncryptedTable, marker: BatchMarker | None) -> EncryptedTransaction:
    """Return a transaction for a micro-batch, or for a write without one.

    Raises:
        BatchAlreadyCommittedError: the table as it was loaded holds the batch.
    """
    transaction = table.transaction()
    if marker is not None:
        transaction.check_each_base(marker.check_not_in)
    return transaction
