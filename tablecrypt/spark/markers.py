"""Exactly once: which micro-batch a snapshot holds is written in the snapshot itself, and looked for before and during every commit.

    summary of the snapshot    tablecrypt.spark.query-id   the streaming query's id, which its checkpoint keeps through restarts
                               tablecrypt.spark.batch-id   the micro-batch, from 0

Spark repeats a micro-batch when a query stopped before its checkpoint knew that the batch was done. Rows and marker come in one commit, so
the repetition finds either both or neither. Another process may commit the same batch at the same time; so each retry of a commit looks
again at the table that it is tried on.

The marker is looked for in the history of the branch: keep the snapshot of a query's last batch until the query runs again. A snapshot's
summary is in metadata.json, which is not authenticated: who can write there can have a batch left out, as they can roll the table back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyiceberg.exceptions import ValidationException
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import ancestors_of

from tablecrypt.table.encrypted_table import EncryptedTable
from tablecrypt.table.transaction import EncryptedTransaction

QUERY_ID: Final = "tablecrypt.spark.query-id"
BATCH_ID: Final = "tablecrypt.spark.batch-id"


class BatchAlreadyCommittedError(ValidationException):
    """The micro-batch is in the table already. PyIceberg removes what an attempt wrote for its commit when it meets this."""


@dataclass(frozen=True)
class BatchMarker:
    """One micro-batch of one streaming query, on its way to one branch."""

    query_id: str
    batch_id: int
    branch: str

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


class MarkedTransaction(EncryptedTransaction):
    """A transaction that gives up when it finds its micro-batch committed by someone else."""

    def __init__(self, table: EncryptedTable, marker: BatchMarker) -> None:
        super().__init__(table)
        self._marker = marker

    def check_new_base(self) -> None:
        """Look for the marker in the table as others have left it."""
        if self._marker.is_in(self.table.metadata):
            raise BatchAlreadyCommittedError(f"batch {self._marker.batch_id} of query {self._marker.query_id} is committed already")


def begin(table: EncryptedTable, marker: BatchMarker | None) -> EncryptedTransaction:
    """Return a transaction for a batch, or for a write that is none.

    Raises:
        BatchAlreadyCommittedError: the table as it was loaded holds the batch.
    """
    if marker is None:
        return table.transaction()
    transaction = MarkedTransaction(table, marker)
    transaction.check_new_base()
    return transaction
