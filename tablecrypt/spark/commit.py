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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import DataFile
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import ancestors_of

from tablecrypt.errors import ConfigurationError
from tablecrypt.manifests.records import partition_values
from tablecrypt.spark.tables import LocatedTable
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.row_changes import RowChange
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.transaction import EncryptedTransaction

QUERY_ID: Final = "tablecrypt.spark.query-id"
BATCH_ID: Final = "tablecrypt.spark.batch-id"


def check_can_replace_partitions(located: LocatedTable, branch: str | None) -> None:
    """Check a table before rows are written.

    Raises:
        ConfigurationError: the table has no partitions, or live files of an earlier partitioning, whose rows may belong into any of today's
            partitions.
    """
    spec = located.table.spec()
    if spec.is_unpartitioned():
        raise ConfigurationError(f"{located.name} has no partitions: use mode 'overwrite'")
    # Their rows would stay beside the new ones, or go with rows that are to stay.
    if any(task.file.spec_id != spec.spec_id for task in _live_tasks(located, branch)):
        raise ConfigurationError(
            f"{located.name} has files from before its partitioning was changed: overwrite by a condition (mode 'overwrite' with "
            "overwrite_filter), or write them again first (compact with rewrite_all)"
        )


def replaced_partitions(located: LocatedTable, files: Sequence[DataFile], branch: str | None) -> RowChange:
    """Return the change that replaces the content of these files' partitions by the files."""
    replaced = {partition_values(file.partition) for file in files}
    dropped = [task.file for task in _live_tasks(located, branch) if partition_values(task.file.partition) in replaced]
    return RowChange(dropped=dropped, added=list(files))


def _live_tasks(located: LocatedTable, branch: str | None) -> list[EncryptedFileScanTask]:
    return located.scan(ALWAYS_TRUE, branch).plan_files()


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
            # A later batch counts too: its query had this one committed, whose snapshot may have expired.
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
    # Looked for at once, before rows are written, and again on each base that the commit is tried on.
    if marker is not None:
        transaction.check_each_base(marker.check_not_in)
    return transaction
