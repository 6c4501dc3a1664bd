"""Transactions of PyIceberg: staging, the commit loop with its retries, and conflict checks are theirs.

Transaction: _apply, _rebuild_snapshot_updates, _scan, _table, _updates, _append_snapshot_producer, _build_partition_predicate
Transaction: _snapshot_producers                     whether a commit is tried again
CreateTableTransaction: _initial_changes, _updates
_apply_table_update, _TableMetadataUpdateContext     registering our update types with PyIceberg's dispatch
_parse_row_filter                                    what PyIceberg accepts as a filter, we accept
Table: _identifier, _check_uuid
UpdateSpec: _partition_field, _transaction           which id a new partition field gets can be ours
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import BooleanExpression
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import ALWAYS_TRUE, CreateTableTransaction, DataScan, Table, TableProperties, Transaction
from pyiceberg.table import _parse_row_filter as parse_row_filter
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.table.update import _apply_table_update as apply_table_update
from pyiceberg.table.update import _TableMetadataUpdateContext as TableMetadataUpdateContext
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.transforms import Transform
from pyiceberg.typedef import Identifier, Record

from tablecrypt.arguments import check_text
from tablecrypt.table._pyiceberg.producers import FastAppendFiles

__all__ = [
    "CreateTransactionAdapter",
    "TableAdapter",
    "TableMetadataUpdateContext",
    "TransactionAdapter",
    "UpdateSpecAdapter",
    "apply_table_update",
    "parse_row_filter",
    "table_identifier",
]


class TransactionAdapter(Transaction):
    """A transaction whose private hooks have public names."""

    _staged: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None
    _checks: tuple[Callable[[TableMetadata], None], ...] = ()
    gives_up_on: type[CommitFailedException] | None = None
    """The failures that no retry of a commit ends, as the same files would be committed again."""

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with what has been staged. PyIceberg applies every update again at each look; here once for each change of them."""
        base, updates = self._table.metadata, self._updates
        if self._staged is None or self._staged[0] is not base or self._staged[1] is not updates:
            self._staged = (base, updates, super().table_metadata)
        return self._staged[2]

    @abstractmethod
    def new_scan(self, row_filter: str | BooleanExpression, case_sensitive: bool) -> DataScan:
        """Return a scan of the table as the transaction has staged it."""

    @abstractmethod
    def belongs_to_attempt(self, update: TableUpdate) -> bool:
        """Whether a staged update goes when a commit attempt is abandoned, beside those that PyIceberg drops itself."""

    def _scan(self, row_filter: str | BooleanExpression = ALWAYS_TRUE, case_sensitive: bool = True) -> DataScan:
        return self.new_scan(row_filter, case_sensitive)

    def commit_transaction(self) -> Table:
        """Commit, and where others commit first, on what they left: as often as the table allows."""
        try:
            return super().commit_transaction()
        except CommitFailedException as error:
            # Without a producer of snapshots PyIceberg does not try again, so a message about retries would be wrong.
            if not self._snapshot_producers or (self.gives_up_on is not None and isinstance(error, self.gives_up_on)):
                raise
            raise CommitFailedException(
                f"{error}. The commit was tried again as often as the table allows: write again, or set its property "
                f"{TableProperties.COMMIT_NUM_RETRIES} above {self._retries()}"
            ) from error

    def _retries(self) -> str:
        default = str(TableProperties.COMMIT_NUM_RETRIES_DEFAULT)
        return self._table.properties.get(TableProperties.COMMIT_NUM_RETRIES, default)

    def check_each_base(self, check: Callable[[TableMetadata], None]) -> None:
        """Look at the table as this transaction has staged it, and as others have left it before a failed commit is tried again on that.

        Args:
            check: raises to give up: a ValidationException where files of the attempt are to be removed.
        """
        check(self.table_metadata)
        self._checks = (*self._checks, check)

    def _rebuild_snapshot_updates(self) -> None:
        # Checked on the new base before the attempt writes a manifest for it.
        for check in self._checks:
            check(self._table.metadata)
        self._updates = tuple(update for update in self._updates if not self.belongs_to_attempt(update))
        super()._rebuild_snapshot_updates()

    @abstractmethod
    def following(self, updates: tuple[TableUpdate, ...]) -> tuple[TableUpdate, ...]:
        """Return the updates that others, which are to be staged, bring about."""

    def _apply(self, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...] = ()) -> Transaction:
        check_text("what the transaction is to change", *updates)
        return super()._apply((*updates, *self.following(updates)), requirements)

    def apply(self, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...] = ()) -> Transaction:
        """Stage updates, and commit them at once where the transaction commits by itself."""
        return self._apply(updates, requirements)

    def fast_or_merge_append(self, snapshot_properties: dict[str, str], branch: str | None) -> FastAppendFiles:
        """Return a fast or a merge append, as the table's properties say."""
        return self._append_snapshot_producer(snapshot_properties, branch=branch)

    @abstractmethod
    def partition_predicate(self, partitions: set[Record], fields: list[str]) -> BooleanExpression:
        """Return a filter that matches exactly these partitions."""

    def _build_partition_predicate(self, partition_records: set[Record], partition_fields: list[str]) -> BooleanExpression:
        return self.partition_predicate(partition_records, partition_fields)

    @property
    def table(self) -> Table:
        """The table that is being changed."""
        return self._table


class CreateTransactionAdapter(CreateTableTransaction):
    """A creating transaction that may exchange the updates which PyIceberg stages first."""

    def initial_update(self, update: TableUpdate) -> TableUpdate:
        """Return the update to stage in place of one of PyIceberg's own."""
        return update

    def further_updates(self, metadata: TableMetadata) -> tuple[TableUpdate, ...]:
        """Return the updates that a new table with this metadata needs beside PyIceberg's own."""
        return ()

    def _initial_changes(self, table_metadata: TableMetadata) -> None:
        super()._initial_changes(table_metadata)
        self._updates = (*(self.initial_update(update) for update in self._updates), *self.further_updates(table_metadata))


class TableAdapter(Table):
    """A table that checks every metadata that is to replace its current one, after a refresh and after a commit."""

    @classmethod
    @abstractmethod
    def check_next_metadata(cls, current: TableMetadata, following: TableMetadata) -> None:
        """Raise where `following` cannot be the same table's. PyIceberg has compared the table-uuid already."""

    @classmethod
    def _check_uuid(cls, current_metadata: TableMetadata, new_metadata: TableMetadata) -> None:
        Table._check_uuid(current_metadata, new_metadata)
        cls.check_next_metadata(current_metadata, new_metadata)


def table_identifier(table: Table) -> Identifier:
    """Return the identifier under which a table was loaded."""
    return table._identifier


class UpdateSpecAdapter(UpdateSpec):
    """A change of the partition spec that may give a field an id other than the next new one."""

    @abstractmethod
    def earlier_field(self, source_id: int, transform: Transform[Any, Any], name: str | None) -> PartitionField | None:
        """Return the field to use in place of a new one; None for a new one."""

    @property
    def specs(self) -> Iterable[PartitionSpec]:
        """All specs of the table, those that the transaction has staged among them."""
        return self._transaction.table_metadata.specs().values()

    def _partition_field(self, transform_key: tuple[int, Transform[Any, Any]], name: str | None) -> PartitionField:
        return self.earlier_field(*transform_key, name) or super()._partition_field(transform_key, name)
