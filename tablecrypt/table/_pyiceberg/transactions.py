"""PyIceberg's commits: transactions, and the producers of the snapshots in them.

Staging, the commit loop with its retries, and conflict checks are theirs. Which manifests a snapshot keeps, rewrites or drops is theirs to
decide, how they are written is ours.

Transaction: _apply, _rebuild_snapshot_updates, _scan, _table, _updates, _append_snapshot_producer, _build_partition_predicate
Transaction: _snapshot_producers                     whether a commit is tried again
CreateTableTransaction: _initial_changes, _updates
_apply_table_update, _TableMetadataUpdateContext     registering our update types with PyIceberg's dispatch
_parse_row_filter                                    what PyIceberg accepts as a filter, we accept
Table: _identifier, _check_uuid, _do_commit;  Catalog: _delete_old_metadata
UpdateSpec: _partition_field, _transaction           which id a new partition field gets can be ours

_DeleteFiles, _FastAppendFiles, _MergeAppendFiles, _OverwriteFiles, _SnapshotProducer     the producers
_new_manifest_list_file_name                                                             the same file names as PyIceberg's
_SnapshotProducer: _commit, _deleted_entries, _existing_manifests, _manifests, _process_manifests, _validate_concurrency, _io, _transaction,
  _snapshot_id, _parent_snapshot_id, _target_branch, _compression, _operation, _written_manifest_lists, _written_manifests,
  _added_data_files, _deleted_data_files, _isolation_operation, _starting_snapshot_id, _manifest_num_counter, _build_manifest_evaluator,
  _build_partition_projection
_DeleteFiles: _compute_deletes, _planned_delete_files, _predicate, _case_sensitive
UpdateSnapshot: _transaction, _io, _branch, _snapshot_properties;  ExpireSnapshots: _commit, _transaction;  Summary: _additional_properties
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from copy import copy
from functools import cached_property
from typing import Any, Final, TypeVar, cast

from pydantic import BaseModel
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ValidationException
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import ALWAYS_TRUE, CreateTableTransaction, DataScan, FileScanTask, StagedTable, Table, TableProperties, Transaction
from pyiceberg.table import _parse_row_filter as parse_row_filter
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import IsolationLevel, Operation, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemoveSnapshotsUpdate,
    TableRequirement,
    TableUpdate,
    UpdatesAndRequirements,
    ValidatableTableRequirement,
)
from pyiceberg.table.update import _apply_table_update as apply_table_update
from pyiceberg.table.update import _TableMetadataUpdateContext as TableMetadataUpdateContext
from pyiceberg.table.update.snapshot import ExpireSnapshots, UpdateSnapshot, _DeleteFiles, _SnapshotProducer
from pyiceberg.table.update.snapshot import _FastAppendFiles as FastAppendFiles
from pyiceberg.table.update.snapshot import _MergeAppendFiles as MergeAppendFiles
from pyiceberg.table.update.snapshot import _new_manifest_list_file_name as new_manifest_list_file_name
from pyiceberg.table.update.snapshot import _OverwriteFiles as OverwriteFiles
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.transforms import Transform
from pyiceberg.typedef import EMPTY_DICT, Identifier, Record

from tablecrypt.arguments import check_text
from tablecrypt.files.raw_output import TABLE_METADATA_SUFFIXES
from tablecrypt.iceberg_properties import OF_COMMITS
from tablecrypt.keys.column_keys import told_until
from tablecrypt.table._pyiceberg.whole_files import WholeFiles

__all__ = [
    "CreateTransactionAdapter",
    "DeleteFilesAdapter",
    "ExpireSnapshotsAdapter",
    "FastAppendFiles",
    "MergeAppendFiles",
    "OverwriteFiles",
    "ProducerAdapter",
    "TableAdapter",
    "TableMetadataUpdateContext",
    "TransactionAdapter",
    "UpdateSnapshotAdapter",
    "UpdateSpecAdapter",
    "WholeSnapshotAdapter",
    "apply_table_update",
    "parse_row_filter",
    "private_attributes",
    "replace_counts",
    "table_identifier",
]

WRITTEN_BY: Final[ContextVar[Mapping[str, str]]] = ContextVar("written_by", default=EMPTY_DICT)
"""What the summaries of snapshots that are made here say of the engine behind them."""


class ProducerAdapter(_SnapshotProducer[Any]):
    """A snapshot producer whose private hooks have public names: `produce` and `finish_manifests` are ours to fill in."""

    @abstractmethod
    def produce(self) -> UpdatesAndRequirements:
        """Write manifests and manifest list of one attempt and return what the catalog has to do."""

    def finish_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        """Change the list of manifests before it is written."""
        return manifests

    def _commit(self) -> UpdatesAndRequirements:
        # As in PyIceberg: a delete that finds no file makes no snapshot.
        if isinstance(self, DeleteFilesAdapter) and not self.files_affected:
            return (), ()
        return self.produce()

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        self._added_data_files = self._left
        return super()._process_manifests(self.finish_manifests(manifests))

    def _build_manifest_evaluator(self, spec_id: int) -> Callable[[ManifestFile], bool]:
        schema = self.schema()
        if any(schema.find_column_name(field.source_id) is None for field in self.spec(spec_id).fields):
            # Partitions of a column that was dropped have no type to compare by: such manifests are all looked into.
            return lambda _: True
        return super()._build_manifest_evaluator(spec_id)

    @abstractmethod
    def partition_filter(self, row_filter: BooleanExpression, spec: PartitionSpec, case_sensitive: bool) -> BooleanExpression:
        """Return what a filter says of a spec's partitions, by which manifests are passed over."""

    def _build_partition_projection(self, spec_id: int) -> BooleanExpression:
        return self.partition_filter(self._predicate, self.spec(spec_id), self._case_sensitive)

    def check_concurrency(self) -> None:
        """Refuse this change where it conflicts with what others committed meanwhile, as the isolation level says; before each retry."""
        try:
            super()._validate_concurrency()
        except ValidationException as error:
            # PyIceberg names the snapshots without that of the first file that it found, so often none.
            found, _, _ = str(error).partition(" for snapshots ")
            advice = "Others changed these files after the table was loaded, and nothing was committed: load it again, and write again"
            raise ValidationException(f"{found.rstrip('.!')}. {advice}") from error

    def _validate_concurrency(self) -> None:
        self.check_concurrency()

    def _clean_all_uncommitted(self) -> None:
        transaction = self._transaction
        # A commit may have landed that was told as failed. Of its files, the table would name those that are deleted here.
        if not (isinstance(transaction, TransactionAdapter) and transaction._has_landed()):
            super()._clean_all_uncommitted()

    def collect_manifests(self) -> list[ManifestFile]:
        """Return every manifest of the new snapshot, new ones written.

        Added files are left to `finish_manifests`: PyIceberg would name them under the table's spec of now, whichever one they were
        written in. A commit that is tried again may find another spec than it began with.
        """
        self._left, self._added_data_files = self._added_data_files, []
        try:
            return self._manifests()
        finally:
            self._added_data_files = self._left

    def next_manifest_location(self, name_ending: str = "") -> str:
        """Return the location of the next manifest, remembered for removal should the attempt be abandoned."""
        location = self.transaction_table.location_provider().new_metadata_location(
            f"{self.commit_uuid}-m{next(self._manifest_num_counter)}{name_ending}.avro"
        )
        self._written_manifests.append(location)
        return location

    def was_written(self, manifest: ManifestFile) -> bool:
        """Whether this attempt wrote a manifest."""
        return manifest.manifest_path in self._written_manifests

    def replace_manifest(self, manifest: ManifestFile) -> None:
        """Have a manifest that this attempt wrote removed after the commit: another takes its place."""
        self._written_manifests.remove(manifest.manifest_path)
        self._uncommitted_manifests.append(manifest.manifest_path)

    def next_manifest_list_location(self) -> str:
        """Return the location of this attempt's manifest list, remembered likewise."""
        name = new_manifest_list_file_name(snapshot_id=self._snapshot_id, attempt=0, commit_uuid=self.commit_uuid)
        location = self.transaction_table.location_provider().new_metadata_location(name)
        self._written_manifest_lists.append(location)
        return location

    def continue_from(self, other: ProducerAdapter) -> None:
        """Validate this change from where another one of the same transaction began."""
        self._starting_snapshot_id = other._starting_snapshot_id

    def isolate_as(self, operation: Operation | IsolationLevel) -> None:
        """Check concurrent changes at this isolation level, or at the one that the table's properties say for an operation.

        Raises:
            ConfigurationError: they say none that there is. Read only where others commit meanwhile, that would seldom be noticed.
        """
        self._isolation_operation = cast("Operation", cast("Any", self.table_metadata).isolation_level(operation))

    @property
    def transaction_table(self) -> Table:
        """The table that is being changed."""
        return self._transaction._table

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with what the transaction has staged so far."""
        return self._transaction.table_metadata

    @property
    def io(self) -> FileIO:
        """The table's FileIO."""
        return self._io

    @property
    def parent_snapshot_id(self) -> int | None:
        """The snapshot that the new one follows."""
        return self._parent_snapshot_id

    @property
    def target_branch(self) -> str | None:
        """The branch to move, or None for a snapshot that no branch points to."""
        return self._target_branch

    @property
    def compression(self) -> str:
        """Avro codec of manifests and manifest lists, as write.avro.compression-codec names it."""
        return self._compression

    @property
    def operation(self) -> Operation:
        """What the snapshot's summary says was done."""
        return self._operation

    @property
    def added_data_files(self) -> list[DataFile]:
        """Files that the new snapshot adds."""
        return self._added_data_files

    @property
    def deleted_data_files(self) -> set[DataFile]:
        """Data files that the new snapshot drops."""
        return self._deleted_data_files


class DeleteFilesAdapter(_DeleteFiles):
    """Drops the data files whose rows all match a predicate: as `whole_files.py` tells, once, not again for files that others add."""

    rewrites_needed = False
    """Whether other files may have matching rows; known when the predicate was looked at."""

    @cached_property
    def _compute_deletes(self) -> tuple[list[ManifestFile], list[ManifestEntry], bool]:
        if self._planned_delete_files is None:
            whole, rest = self._split()
            # Decided once, on the first base: a retry must not drop whole files that others added since.
            self._planned_delete_files, self.rewrites_needed = set(whole), bool(rest)
        return super()._compute_deletes

    def _split(self) -> tuple[list[DataFile], list[FileScanTask]]:
        if self._parent_snapshot_id is None:
            return [], []
        scan = cast("TransactionAdapter", self._transaction).new_scan(self._predicate, self._case_sensitive)
        tasks = scan.update(snapshot_id=self._parent_snapshot_id, as_now=True).plan_files()
        told = told_until(self._transaction.table_metadata.properties, self.schema())
        return WholeFiles(self.schema(), self._predicate, self._case_sensitive, told_until=told).split(tasks)


class WholeSnapshotAdapter(ProducerAdapter):
    """A producer that works out every manifest itself, again on each base: no change of others is a conflict that PyIceberg has to find."""

    @abstractmethod
    def collect_manifests(self) -> list[ManifestFile]:
        """Return every manifest of the new snapshot, new ones written."""

    def written(self, location: str) -> None:
        """Remember a file for removal should the attempt be abandoned."""
        self._written_manifests.append(location)

    def _deleted_entries(self) -> list[ManifestEntry]:
        return []

    def _existing_manifests(self) -> list[ManifestFile]:
        return []

    def check_concurrency(self) -> None:
        """Do nothing: each attempt is made for its base."""


P = TypeVar("P", bound=ProducerAdapter)


class UpdateSnapshotAdapter(UpdateSnapshot):
    """Hands out snapshot producers of our own classes."""

    def producer(self, producer_class: Callable[..., P], operation: Operation, **changes: Any) -> P:
        """Return a producer for the transaction, branch and properties that this was made for.

        Args:
            producer_class: which one.
            operation: what the snapshot's summary says was done.
            changes: what the producer is to commit, as its class takes it.
        """
        return producer_class(
            **changes,
            operation=operation,
            transaction=self._transaction,
            io=self._io,
            branch=self._branch,
            snapshot_properties={**WRITTEN_BY.get(), **self._snapshot_properties},
        )

    @property
    def is_first_snapshot(self) -> bool:
        """Whether the branch has no snapshot yet."""
        return self._transaction.table_metadata.snapshot_by_name(self._branch) is None


class ExpireSnapshotsAdapter(ExpireSnapshots):
    """PyIceberg's expiry, to which updates of our own can be added."""

    @abstractmethod
    def further_updates(self, updates: tuple[TableUpdate, ...]) -> UpdatesAndRequirements:
        """Return what has to be committed beside the removal of snapshots."""

    @abstractmethod
    def removal_of(self, snapshot_ids: Iterable[int]) -> RemoveSnapshotsUpdate:
        """Return the update that takes the place of PyIceberg's own."""

    def _commit(self) -> UpdatesAndRequirements:
        updates, requirements = super()._commit()
        updates = tuple(self.removal_of(each.snapshot_ids) if isinstance(each, RemoveSnapshotsUpdate) else each for each in updates)
        further, needed = self.further_updates(updates)
        return (*updates, *further), (*requirements, *needed)

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with what the transaction has staged so far."""
        return self._transaction.table_metadata


def replace_counts(summary: Summary, make: Callable[[dict[str, str]], dict[str, str]]) -> None:
    """Give a summary what `make` returns for its counts and notes, all that it says beside the operation."""
    summary._additional_properties = make(private_attributes(summary)["_additional_properties"])


def private_attributes(model: BaseModel) -> dict[str, Any]:
    """The private attributes of a model. By its dot, pydantic takes 2 µs to find one: a twentieth of what a snapshot is loaded in."""
    return model.__pydantic_private__ or {}


class TransactionAdapter(Transaction):
    """A transaction whose private hooks have public names."""

    _staged: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None
    _checks: tuple[Callable[[TableMetadata], None], ...] = ()
    _landed: bool | None = None
    gives_up_on: type[CommitFailedException] | None = None
    """The failures that no retry of a commit ends, as the same files would be committed again."""

    def __init__(self, table: Table, autocommit: bool = False) -> None:
        # A copy: where another thread commits through the same object meanwhile, PyIceberg would take the head of that commit for the one
        # that this transaction has built on, and the commit would take the other's rows out of the table.
        super().__init__(table if isinstance(table, StagedTable) else copy(table), autocommit)
        self._callers, self._base = table, self._table.metadata

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with what has been staged. PyIceberg applies every update again at each look; here once for each change of them."""
        base, updates = self._table.metadata, self._updates
        if self._staged is None or self._staged[0] is not base or self._staged[1] is not updates:
            self._staged = (base, updates, self.applied(base, updates))
        return self._staged[2]

    @abstractmethod
    def applied(self, base: TableMetadata, updates: tuple[TableUpdate, ...]) -> TableMetadata:
        """Return metadata with updates."""

    @abstractmethod
    def new_scan(self, row_filter: str | BooleanExpression, case_sensitive: bool) -> DataScan:
        """Return a scan of the table as the transaction has staged it."""

    @abstractmethod
    def belongs_to_attempt(self, update: TableUpdate) -> bool:
        """Whether a staged update goes when a commit attempt is abandoned, beside those that PyIceberg drops itself."""

    def _scan(self, row_filter: str | BooleanExpression = ALWAYS_TRUE, case_sensitive: bool = True) -> DataScan:
        return self.new_scan(row_filter, case_sensitive)

    def commit_transaction(self) -> Table:
        """Commit, and where others commit first, on what they left: as often as the table allows.

        Raises:
            ConfigurationError: how often that is cannot be read, and this commit does not set it anew.
        """
        if self._updates:
            self._use_readable_settings()
        try:
            super().commit_transaction()
        except CommitFailedException as error:
            if self._landed:
                self._failed, self._snapshot_producers, self._updates, self._requirements = False, [], (), ()
                return self._callers
            # Without a producer of snapshots PyIceberg does not try again, so a message about retries would be wrong.
            if not self._snapshot_producers or (self.gives_up_on is not None and isinstance(error, self.gives_up_on)):
                raise
            raise CommitFailedException(
                f"{error}. The commit was tried again as often as the table allows: write again, or set its property "
                f"{TableProperties.COMMIT_NUM_RETRIES} above {self._retries()}"
            ) from error
        finally:
            self._hand_back()
        return self._callers

    def _has_landed(self) -> bool:
        """Whether the table has the snapshots of a commit that failed: something between here and the catalog may have sent it twice.

        Raises:
            CommitStateUnknownException: the table cannot be loaded.
        """
        if self._landed is None and not isinstance(self._table, StagedTable):
            try:
                self._table.refresh()
            except Exception as error:
                name = ".".join(self._table.name())
                raise CommitStateUnknownException(
                    f"{name}: the commit failed and may have landed: the table cannot be loaded: {error}"
                ) from error
            self._landed = self._is_in_the_table()
        return bool(self._landed)

    def _is_in_the_table(self) -> bool:
        made = [update.snapshot.snapshot_id for update in self._updates if isinstance(update, AddSnapshotUpdate)]
        return bool(made) and all(self._table.metadata.snapshot_by_id(each) is not None for each in made)

    def _hand_back(self) -> None:
        """Bring the table that was given up to date, unless others have done so with something newer."""
        done, callers = self._table, self._callers
        if done is callers or done.metadata is self._base:
            return
        if callers.metadata is self._base or callers.metadata.last_updated_ms <= done.metadata.last_updated_ms:
            # At once, so that no other thread gets the metadata of one version and the keys of another.
            vars(callers).update(vars(done))
        self._table = copy(callers)
        self._base = self._table.metadata

    def _use_readable_settings(self) -> None:
        """Have PyIceberg read what this transaction sets where the table has what it cannot read: no commit could repair that."""
        base, staged = self._table.metadata, self.table_metadata
        repaired: dict[str, str] = {}
        for each in OF_COMMITS:
            try:
                int(str(base.properties.get(each.name, each.default)))
            except ValueError:
                repaired[each.name] = str(staged.properties.get(each.name, each.default))
                each.check(each.name, repaired[each.name])
        if repaired:
            self._table.metadata = base.model_copy(update={"properties": {**base.properties, **repaired}})

    def _retries(self) -> str:
        default = str(TableProperties.COMMIT_NUM_RETRIES_DEFAULT)
        return self._table.properties.get(TableProperties.COMMIT_NUM_RETRIES, default)

    def check_each_base(self, check: Callable[[TableMetadata], None]) -> None:
        """Look at the table as this transaction has staged it, and as others have left it before a failed commit is tried again on that.

        Args:
            check: raises to give up: a ValidationException where files of the attempt are to be removed.
        """
        check(self.table_metadata)
        self.check_later_bases(check)

    def check_later_bases(self, check: Callable[[TableMetadata], None]) -> None:
        """Look at the table as others have left it before a failed commit is tried again on that; `check` is that of `check_each_base`."""
        self._checks = (*self._checks, check)

    def _rebuild_snapshot_updates(self) -> None:
        # PyIceberg has looked for a snapshot of every part of the change, and a part that finds no rows to delete makes none. Once more,
        # the rows would be there twice.
        if self._is_in_the_table():
            self._landed = True
            raise CommitFailedException("the commit has landed")
        # Checked on the new base before the attempt writes a manifest for it.
        for check in self._checks:
            check(self._table.metadata)
        self._updates = tuple(update for update in self._updates if not self.belongs_to_attempt(update))
        super()._rebuild_snapshot_updates()

    @abstractmethod
    def following(self, updates: tuple[TableUpdate, ...]) -> tuple[TableUpdate, ...]:
        """Return the updates that others, which are to be staged, bring about."""

    @abstractmethod
    def check_staged(self, updates: tuple[TableUpdate, ...]) -> None:
        """Look at updates before they are staged. Raises to refuse them."""

    def _stage(self, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...] = ()) -> Transaction:
        self.check_staged(updates)
        return super()._stage(updates, requirements)

    def _apply(self, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...] = ()) -> Transaction:
        check_text("what the transaction is to change", *updates)
        return super()._apply((*updates, *self.following(updates)), requirements)

    def require_of_base(self, requirement: Callable[[TableMetadata], ValidatableTableRequirement]) -> None:
        """Require something of what the transaction is committed on, as it is in the table that it began with. A new table had nothing.

        PyIceberg's own way would hold it against what is staged, and so after changes of this very transaction.
        """
        if isinstance(self._table, StagedTable):
            return
        required = requirement(self._table.metadata)
        if not any(type(each) is type(required) for each in self._requirements):
            self._requirements = (*self._requirements, cast("TableRequirement", required))

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

    def _do_commit(self, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...]) -> None:
        """Commit as PyIceberg does. Of what leaves the log of older metadata files, only what has the name of one is deleted."""
        committed = self.catalog.commit_table(self, requirements, updates)
        self._check_uuid(self.metadata, committed.metadata)

        # Whoever edits metadata.json may name any file of the table in the log, and lets an honest writer delete live rows.
        log = [entry for entry in self.metadata.metadata_log if entry.metadata_file.endswith(TABLE_METADATA_SUFFIXES)]
        try:
            base = self.metadata.model_copy(update={"metadata_log": log})
            self.catalog._delete_old_metadata(self.io, base, committed.metadata)
        except Exception as error:  # noqa: BLE001  the commit is done
            warnings.warn(f"Failed to delete old metadata after commit: {error}", stacklevel=2)

        self.metadata, self.metadata_location = committed.metadata, committed.metadata_location


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
