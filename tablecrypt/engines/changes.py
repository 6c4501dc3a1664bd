"""What a job found and wrote, staged as one snapshot.

    located by tasks: (file, positions) ──copy-on-write──▶ tasks write those files again without the rows
                                        ──merge-on-read──▶ the driver writes deletion vectors
    files that tasks wrote              ──────────────────▶ added

Iceberg table spec, "Deletion Vectors", "Row Lineage".
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.table import ALWAYS_TRUE, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import IsolationLevel, Operation
from pyroaring import BitMap64

from tablecrypt.engines.job_messages import FileNumber
from tablecrypt.engines.tasks import delete_files
from tablecrypt.errors import ConfigurationError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.table.deletes import write_row_delta
from tablecrypt.table.deletion_vectors import RowDelta
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.protection.written_under import WrittenUnder
from tablecrypt.table.snapshots import EncryptedOverwrite
from tablecrypt.table.transaction import EncryptedTransaction

NOT_COMMITTED: Final = (CommitFailedException, ValidationException)
"""What a commit raises when it is certain that nothing was committed."""


@dataclass
class RowChange:
    """What a job found and wrote, before it is committed."""

    branch: str | None = MAIN_BRANCH
    """None for a snapshot of no branch, made on the main one."""
    conflicts_with: BooleanExpression = ALWAYS_TRUE
    """Rows that other writers must not have changed in the meantime."""
    dropped: list[DataFile] = field(default_factory=list)
    """Data files that are removed as a whole."""
    position_deleted: list[tuple[EncryptedFileScanTask, BitMap64]] = field(default_factory=list)
    """Data files that lose some of their rows, with the positions of these rows."""
    rewritten: list[DataFile] = field(default_factory=list)
    """New files with the remaining rows of dropped files."""
    added: list[DataFile] = field(default_factory=list)
    """New rows."""
    isolation: IsolationLevel | None = None
    """What others may have done in the meantime; None for what the table's properties say of deletes and updates."""

    def __bool__(self) -> bool:
        return bool(self.dropped or self.position_deleted or self.rewritten or self.added)

    @property
    def written(self) -> list[DataFile]:
        """Data files that exist for this change alone."""
        return [*self.rewritten, *self.added]


def is_merge_on_read(mode: str) -> bool:
    """Whether a table property's mode says that rows are position-deleted, and files not rewritten."""
    return mode == TableProperties.DELETE_MODE_MERGE_ON_READ


def numbered(partitions: Sequence[Sequence[EncryptedFileScanTask]]) -> dict[FileNumber, EncryptedFileScanTask]:
    """Return the scan tasks by the number that executors use for each file."""
    return {(number, index): task for number, tasks in enumerate(partitions) for index, task in enumerate(tasks)}


def stage_row_change(transaction: EncryptedTransaction, change: RowChange, snapshot_properties: dict[str, str]) -> None:
    """Stage a change as one snapshot, in a transaction on the table as it was when the job was planned. Do nothing for an empty change."""
    if not change:
        return

    update = transaction.update_snapshot(snapshot_properties, change.branch)
    operation = Operation.OVERWRITE if change.written else Operation.DELETE

    if change.position_deleted:
        producer: EncryptedOverwrite = update.row_delta(_row_delta(transaction, change), operation)
    else:
        producer = update.producer(EncryptedOverwrite, operation)
        for file in change.dropped:
            producer.delete_data_file(file)

    # Then new manifests inherit the fingerprints of files that the rows were copied from, so that add_files still knows them.
    producer.moves_rows = bool(change.rewritten or (change.position_deleted and change.added))
    producer.isolate_as(change.isolation or operation)
    with producer:
        producer.delete_by_predicate(change.conflicts_with)
        for file in change.written:
            producer.append_data_file(file)


def _row_delta(transaction: EncryptedTransaction, change: RowChange) -> RowDelta:
    metadata, io = transaction.encrypted_metadata, transaction.table_io
    return write_row_delta(metadata, io, change.position_deleted, uuid.uuid4(), change.dropped)


def check_unchanged(name: str, planned: TableMetadata, current: TableMetadata) -> None:
    """Check that files written for `planned` still fit the table.

    Raises:
        ConfigurationError: the table, its columns or its partitioning were changed meanwhile.
        StaleWriteError: the protection of its columns was.
    """
    for what, now, then in (
        # The name may lead to another table by now: these rows were written for the readers of the first.
        ("table", current.table_uuid, planned.table_uuid),
        ("schema", current.current_schema_id, planned.current_schema_id),
        ("partitioning", current.default_spec_id, planned.default_spec_id),
    ):
        if now != then:
            raise ConfigurationError(f"{name}: its {what} was changed while the rows were written; nothing was committed")

    # A column that was declared meanwhile would lie here in the clear; under a key that was shredded, no reader could open it.
    WrittenUnder.of(planned).check(current, None)


@contextmanager
def committing(transaction: EncryptedTransaction, io: EncryptingFileIO, files: Sequence[DataFile]) -> Iterator[None]:
    """Commit what the block stages.

    The files are deleted only where it is certain that nothing was committed: after a lost connection they may be the table's.
    """
    is_staged = False
    try:
        with transaction:
            yield
            is_staged = True
    except BaseException as error:
        # Any other error of the commit, such as a lost answer, leaves open whether metadata names these files by now.
        if not is_staged or isinstance(error, NOT_COMMITTED):
            delete_files(io, files)
        raise
