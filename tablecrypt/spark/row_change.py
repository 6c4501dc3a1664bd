"""Rows that leave a table and rows that come, as one snapshot: what delete, overwrite by filter or partition, and merge commit.

    located by an executor job: (file, positions) ──copy-on-write──▶ executors write those files again without the rows
                                                  ──merge-on-read──▶ the driver writes deletion vectors
    files that executors wrote                    ──────────────────▶ added
    all of it ──▶ one snapshot ──▶ one commit

The commit is planned on the snapshot that the job read. When others committed meanwhile it is tried again on top of them, unless
PyIceberg's checks find a conflict: a file of this change removed or deletes added to it, or (isolation level serializable) rows added that
the change's filter could have matched. Then nothing is committed.

Iceberg table spec, "Deletion Vectors", "Row Lineage".
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE, TableProperties
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation
from pyroaring import BitMap64

from tablecrypt.spark.positions import FileNumber
from tablecrypt.table.content_files import is_deletion_vector
from tablecrypt.table.deletion_vectors import DeletionVector, write_deletion_vectors
from tablecrypt.table.foreign_engines import location_provider
from tablecrypt.table.lineage import ROW_ID
from tablecrypt.table.merge_on_read import MarkedRows
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.reader import TaskReader
from tablecrypt.table.snapshots import EncryptedOverwrite, EncryptedRowDelta
from tablecrypt.table.transaction import EncryptedTransaction


@dataclass
class RowChange:
    """What a job found and wrote, before it is committed."""

    branch: str = MAIN_BRANCH
    conflicts_with: BooleanExpression = ALWAYS_TRUE
    """Rows that nobody else may have changed meanwhile."""
    dropped: list[DataFile] = field(default_factory=list)
    """Data files that go whole."""
    marked: list[tuple[EncryptedFileScanTask, BitMap64]] = field(default_factory=list)
    """Data files some of whose rows go, with their positions."""
    rewritten: list[DataFile] = field(default_factory=list)
    """What takes the place of dropped files: their remaining rows."""
    added: list[DataFile] = field(default_factory=list)
    """New rows."""

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
    """Return each scan task by the number under which executors speak of its file."""
    return {(number, index): task for number, tasks in enumerate(partitions) for index, task in enumerate(tasks)}


def split_whole_files(tasks: Sequence[EncryptedFileScanTask]) -> tuple[list[DataFile], list[EncryptedFileScanTask]]:
    """Return the files whose every row matches, by their partition alone, and the tasks that have to be read."""
    whole = [task.file for task in tasks if isinstance(task.residual, AlwaysTrue)]
    return whole, [task for task in tasks if not isinstance(task.residual, AlwaysTrue)]


def stage_row_change(transaction: EncryptedTransaction, change: RowChange, snapshot_properties: dict[str, str]) -> None:
    """Stage a change as one snapshot of a transaction on the table as it was when the job was planned; nothing where nothing changes."""
    if not change:
        return
    update = transaction.update_snapshot(snapshot_properties, change.branch)
    operation = Operation.OVERWRITE if change.written else Operation.DELETE
    if change.marked:
        row_delta = update.producer(EncryptedRowDelta, operation)
        row_delta.apply(_marked_rows(transaction, change))
        producer: EncryptedOverwrite = row_delta
    else:
        producer = update.producer(EncryptedOverwrite, operation)
        for file in change.dropped:
            producer.delete_data_file(file)
    producer.isolate_as(operation)
    with producer:
        producer.delete_by_predicate(change.conflicts_with)
        for file in change.written:
            producer.append_data_file(file)


def _marked_rows(transaction: EncryptedTransaction, change: RowChange) -> MarkedRows:
    metadata, io = transaction.encrypted_metadata, transaction.table_io
    reader = TaskReader(metadata, io, Schema(ROW_ID), ALWAYS_TRUE)
    rows = MarkedRows(dropped=list(change.dropped))
    vectors: list[DeletionVector] = []
    for task, positions in change.marked:
        every = positions | BitMap64(reader.deleted_positions(task) or ())
        if len(every) == task.file.record_count:
            rows.dropped.append(task.file)
            continue
        vectors.append(DeletionVector(task.file, every))
        rows.replaced.extend(file for file in task.delete_files if is_deletion_vector(file))
    if vectors:
        location = location_provider(metadata).new_data_location(f"00000-{uuid.uuid4()}-deletes.puffin")
        rows.added = write_deletion_vectors(io, location, vectors)
    return rows
