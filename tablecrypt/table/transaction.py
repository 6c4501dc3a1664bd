"""The operations that change an encrypted table: PyIceberg's own signatures, with every byte they write encrypted.

PyIceberg's Transaction writes data files itself and takes no crypto, so the operations that write are ours; schema, partition and
sort-order changes, branches, tags, staging and the commit loop stay PyIceberg's. What one transaction stages, one commit lands: data,
manifests, key entries and snapshot together, or nothing.
"""

from __future__ import annotations

import itertools
import uuid
import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from typing import cast

import pyarrow as pa
from pyiceberg.expressions import AlwaysFalse, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE, StagedTable, Table, TableProperties, Transaction, UpsertResult
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import IsolationLevel, Operation
from pyiceberg.table.update import (
    RemovePropertiesUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
    UpgradeFormatVersionUpdate,
    update_table_metadata,
)
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.table.update.sorting import UpdateSortOrder
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.table.update.statistics import UpdateStatistics
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import EMPTY_DICT, Properties, Record, TableVersion
from pyiceberg.utils.concurrent import ExecutorFactory

from tablecrypt.arguments import check_switches, checked_arguments, names_of
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, PlaintextRefusedError
from tablecrypt.files.encrypting_file_io import refuse_restricted
from tablecrypt.manifests.copied_files import AlreadyAddedError, copied_files_of
from tablecrypt.parquet.text_columns import check_utf8, plain_rows, with_checked_utf8
from tablecrypt.table._pyiceberg.arrow import check_pyarrow_schema_compatible
from tablecrypt.table._pyiceberg.evolution import UpdateSchemaInVersion3, UpdateSpecInVersion3
from tablecrypt.table._pyiceberg.transactions import CreateTransactionAdapter, TransactionAdapter, parse_row_filter
from tablecrypt.table.conflicts import check_none_added
from tablecrypt.table.deletes import write_row_delta
from tablecrypt.table.filters import fitted, partitions_filter, with_sql_null_semantics
from tablecrypt.table.metadata import EncryptedTableMetadata, check_types, has_column_keys
from tablecrypt.table.protection.declaration import (
    Declaration,
    check_master_keys,
    declared_by_removal,
    declared_by_schema,
    declared_by_update,
    log_unreached,
)
from tablecrypt.table.protection.declaring import declaration_updates, first_declarations
from tablecrypt.table.protection.exposed_values import check_deletes
from tablecrypt.table.protection.policy import refuse_protected
from tablecrypt.table.protection.visible_columns import ERROR, visible_columns
from tablecrypt.table.protection.writing import AssertProtectionUnchanged, StaleWriteError
from tablecrypt.table.row_changes import RowChange, Upsert, deleted_rows, encrypted_files_to_data_files, key_columns, marks_rows
from tablecrypt.table.scan import EncryptedDataScan
from tablecrypt.table.snapshots import CommitOptions, EncryptedOverwrite, EncryptedProducer, EncryptedUpdateSnapshot, check_shown_partitions
from tablecrypt.table.table_files import TableFileIO
from tablecrypt.table.updates import (
    AddEncryptionKeyUpdate,
    UpgradeToVersion3Update,
    applied,
    changes_protection,
    check_properties_keep_key_id,
    check_table_properties,
    may_change_declarations,
)
from tablecrypt.table.write import cuts_nanoseconds, write_data_files


class EncryptedTransaction(TransactionAdapter):
    """A transaction on an encrypted table."""

    gives_up_on = StaleWriteError
    _given: tuple[str, ...] = ()

    @property
    def encrypted_metadata(self) -> EncryptedTableMetadata:
        """The table's metadata with what this transaction has staged."""
        return cast("EncryptedTableMetadata", self.table_metadata)

    @property
    def table_io(self) -> TableFileIO:
        """The table's fail-closed FileIO with its encryption manager."""
        return cast("TableFileIO", self.table.io)

    def commit_transaction(self) -> Table:
        """Commit, and log what a change of protection does not reach."""
        before = self.table.metadata
        committed = super().commit_transaction()
        if committed.metadata.properties != before.properties:
            log_unreached(before, committed.metadata.properties)
        return committed

    def update_snapshot(
        self, snapshot_properties: dict[str, str] = EMPTY_DICT, branch: str | None = MAIN_BRANCH
    ) -> EncryptedUpdateSnapshot:
        """Return the producers of a new snapshot on a branch. ConfigurationError for properties or a branch that UTF-8 cannot hold."""
        return self.new_snapshot(CommitOptions(branch, snapshot_properties))

    def new_snapshot(self, options: CommitOptions) -> EncryptedUpdateSnapshot:
        """Return the producers of a new snapshot."""
        properties = dict(options.snapshot_properties)
        return EncryptedUpdateSnapshot(self, io=self.table.io, branch=options.branch, snapshot_properties=properties)

    def update_schema(self, allow_incompatible_changes: bool = False, case_sensitive: bool = True) -> UpdateSchema:
        """Evolve the schema. ConfigurationError for an argument that is neither True nor False."""
        check_switches(allow_incompatible_changes=allow_incompatible_changes, case_sensitive=case_sensitive)
        return UpdateSchemaInVersion3(
            self,
            allow_incompatible_changes=allow_incompatible_changes,
            case_sensitive=case_sensitive,
            name_mapping=self.table_metadata.name_mapping(),
        )

    def update_spec(self) -> UpdateSpec:
        """Evolve the partitioning."""
        return UpdateSpecInVersion3(self)

    def update_sort_order(self, case_sensitive: bool = True) -> UpdateSortOrder:
        """Evolve the sort order. ConfigurationError: case_sensitive is neither True nor False."""
        check_switches(case_sensitive=case_sensitive)
        return super().update_sort_order(case_sensitive)

    def append_producer(
        self, options: CommitOptions, commit_uuid: uuid.UUID | None = None, copied_files: frozenset[bytes] = frozenset()
    ) -> EncryptedProducer:
        """Return a fast or a merge append, as the table's properties say.

        Args:
            options: say where to, and what the summary holds.
            commit_uuid: part of the names of its files.
            copied_files: fingerprints of the files that the rows were copied from, for the table to remember.
        """
        producer = cast("EncryptedProducer", self.fast_or_merge_append(dict(options.snapshot_properties), options.branch))
        producer.commit_uuid = commit_uuid or producer.commit_uuid
        producer.copied_files = copied_files
        return producer

    def stage_rows(self, change: RowChange, options: CommitOptions, begun: EncryptedProducer | None = None) -> None:
        """Stage a change as one snapshot, in a transaction on the table as it was when the change was planned. An empty one is none.

        Args:
            begun: an earlier snapshot of this transaction, with which the change began.
        """
        if not change:
            return

        # A commit refuses restricted readers all but appends, and what a merge appends depends on rows that are hidden from them.
        if change.is_merge:
            refuse_restricted(self.table.io, "a merge")

        update = self.new_snapshot(options)
        operation = change.operation
        if change.position_deleted:
            vectors = write_row_delta(self.encrypted_metadata, self.table_io, change.position_deleted, change.write_uuid, change.dropped)
            producer: EncryptedOverwrite = update.row_delta(vectors, operation)
        else:
            producer = update.producer(EncryptedOverwrite, operation)
            producer.commit_uuid = change.write_uuid
            for file in change.dropped:
                producer.delete_data_file(file)

        # Then new manifests inherit the fingerprints of files that the rows were copied from, so that add_files still knows them.
        producer.moves_rows = bool(change.rewritten or (change.position_deleted and change.added))
        producer.isolate_as(options.isolation or change.isolated_as)
        if begun is not None:
            producer.continue_from(begun)

        producer.delete_by_predicate(change.conflicts_with, options.case_sensitive)
        producer.commit_files(change.written)

    def append(
        self, df: pa.Table | pa.RecordBatchReader, snapshot_properties: dict[str, str] = EMPTY_DICT, branch: str | None = MAIN_BRANCH
    ) -> None:
        """Append rows. A RecordBatchReader is streamed with bounded memory.

        Raises:
            ValueError: the rows are no Arrow data, or do not fit the table's schema.
            KmsError: the KMS refused the table's key; nothing was committed.
        """
        self._check_rows(df)
        self._append_rows(df, CommitOptions(branch, snapshot_properties))

    def overwrite(
        self,
        df: pa.Table | pa.RecordBatchReader,
        overwrite_filter: BooleanExpression | str = ALWAYS_TRUE,
        snapshot_properties: dict[str, str] = EMPTY_DICT,
        case_sensitive: bool = True,
        branch: str | None = MAIN_BRANCH,
    ) -> None:
        """Delete the rows that match the filter, then append `df`."""
        self._check_rows(df)
        options = CommitOptions(branch, snapshot_properties, case_sensitive, Operation.OVERWRITE)
        if overwrite_filter != AlwaysFalse():
            refuse_restricted(self.table.io, "overwrite")
            self._delete(overwrite_filter, options)
        self._append_rows(df, options)

    def dynamic_partition_overwrite(
        self, df: pa.Table, snapshot_properties: dict[str, str] = EMPTY_DICT, branch: str | None = MAIN_BRANCH
    ) -> None:
        """Replace the partitions that occur in `df` by its rows. Every partition field must be an identity transform."""
        _check_arrow(df, pa.Table)
        refuse_restricted(self.table.io, "dynamic_partition_overwrite")
        spec = self.table_metadata.spec()
        if spec.is_unpartitioned():
            raise ValueError("Cannot apply dynamic overwrite on an unpartitioned table.")

        for field in spec.fields:
            if not isinstance(field.transform, IdentityTransform):
                raise ValueError(
                    "For now dynamic overwrite does not support a table with non-identity-transform field "
                    f"in the latest partition spec: {field}"
                )

        self._check_rows(df)
        options = CommitOptions(branch, snapshot_properties, isolation=Operation.OVERWRITE)
        if df.num_rows == 0:
            return

        commit_uuid = uuid.uuid4()
        data_files = self._write(df, commit_uuid, branch)
        # The whole path: another column may have the name that a field has in its struct.
        fields = [str(self.table_metadata.schema().find_column_name(field.source_id)) for field in spec.fields]
        replaced = self.partition_predicate({file.partition for file in data_files}, fields)
        self._delete(replaced, options)
        self.append_producer(options, commit_uuid).commit_files(data_files)

    def delete(
        self,
        delete_filter: str | BooleanExpression,
        snapshot_properties: dict[str, str] = EMPTY_DICT,
        case_sensitive: bool = True,
        branch: str | None = MAIN_BRANCH,
        _isolation_operation: Operation | None = None,
    ) -> None:
        """Delete the rows that match: files that match whole are dropped, rows of others go as write.delete.mode says.

        copy-on-write (the default) writes these files again without the rows; rows that only move keep their `_row_id` and
        `_last_updated_sequence_number`. merge-on-read marks the rows in deletion vectors.
        """
        refuse_restricted(self.table.io, "delete")
        self._delete(delete_filter, CommitOptions(branch, snapshot_properties, case_sensitive, _isolation_operation or Operation.DELETE))

    def upsert(
        self,
        df: pa.Table,
        join_cols: list[str] | None = None,
        when_matched_update_all: bool = True,
        when_not_matched_insert_all: bool = True,
        case_sensitive: bool = True,
        branch: str | None = MAIN_BRANCH,
        snapshot_properties: dict[str, str] = EMPTY_DICT,
    ) -> UpsertResult:
        """Update the rows whose key columns match and insert the others. Updated rows keep their `_row_id`.

        Args:
            df: the rows, at most one for each key.
            join_cols: the key columns; by default the schema's identifier fields.
            when_matched_update_all: whether matching rows that differ are updated.
            when_not_matched_insert_all: whether rows without a match are inserted.
        """
        check_switches(when_matched_update_all=when_matched_update_all, when_not_matched_insert_all=when_not_matched_insert_all)
        if not when_matched_update_all and not when_not_matched_insert_all:
            raise ValueError("no upsert options selected...exiting")

        refuse_restricted(self.table.io, "upsert")
        options = CommitOptions(branch, snapshot_properties, case_sensitive, Operation.OVERWRITE)
        _check_arrow(df, pa.Table)
        keys = key_columns(df, self.table_metadata.schema(), join_cols)
        self._check_types(branch)
        self._check_rows(df)
        df = plain_rows(df)
        scan = self.new_scan(ALWAYS_TRUE, case_sensitive)
        if branch is not None and branch in self.table_metadata.refs:
            scan = scan.use_ref(branch)
        by_vectors = marks_rows(self.table_metadata.properties, "merge", "update")
        plan = Upsert(df, scan, keys, by_vectors).plan(when_matched_update_all, when_not_matched_insert_all)
        if plan.inserted.num_rows:
            self.refuse_rows_added_meanwhile(plan.inserted.select(keys), options)

        if plan.updated.num_rows:
            # The overwrite may drop manifests that remember copied files: the rows that are appended next take that over.
            copied = self._copied_files(branch)
            self.stage_rows(plan.replaced, options)
            self._append_rows(plan.updated, options, copied - self._copied_files(branch))

        if plan.inserted.num_rows:
            self._append_rows(plan.inserted, options)
        return UpsertResult(rows_updated=plan.updated.num_rows, rows_inserted=plan.inserted.num_rows)

    def refuse_rows_added_meanwhile(self, keys: pa.Table, options: CommitOptions) -> None:
        """Have a commit fail that finds rows of others which may have these keys, unless the isolation level lets them be added."""
        if self.encrypted_metadata.isolation_level(options.isolation or Operation.OVERWRITE) != IsolationLevel.SERIALIZABLE:
            return
        # Of the table as it was loaded: what this transaction has staged itself is in no base that others leave.
        found_none_in = self.table.metadata.snapshot_by_name(options.branch or MAIN_BRANCH) or self.table.metadata.current_snapshot()
        since = None if found_none_in is None else found_none_in.snapshot_id
        self.check_later_bases(partial(check_none_added, io=self.table_io, since=since, branch=options.branch, keys=keys))

    def add_files(
        self,
        file_paths: list[str],
        snapshot_properties: dict[str, str] = EMPTY_DICT,
        check_duplicate_files: bool = True,
        branch: str | None = MAIN_BRANCH,
        key_metadata: Mapping[str, StandardKeyMetadata | bytes] = EMPTY_DICT,
    ) -> None:
        """Add Parquet files that are encrypted already, each under the DEK and AAD prefix given for it.

        Args:
            file_paths: full locations of the files.
            key_metadata: for each location its StandardKeyMetadata, as an object or encoded.

        Raises:
            AlreadyAddedError: the branch has a file already, or another process has added it meanwhile.
            PlaintextRefusedError: a file has no key metadata, or is plaintext.
            TamperedFileError: a file does not open with the key given for it.
            ConfigurationError: the dictionaries of a file's writer hold values that none of its rows has.
        """
        # Files from elsewhere hold protected columns under their file's key, which every reader of the table has.
        refuse_protected(self.table_metadata, "add_files")
        check_switches(check_duplicate_files=check_duplicate_files)
        file_paths = list(names_of("file_paths", file_paths))
        if len(file_paths) != len(set(file_paths)):
            raise ValueError("File paths must be unique")

        if check_duplicate_files:
            # Checked on each base of the commit: another process may add the same file while this one retries.
            self.check_each_base(lambda metadata: self._check_not_referenced(metadata, file_paths, branch))
        data_files = list(encrypted_files_to_data_files(self.encrypted_metadata, self.table_io, file_paths, key_metadata))
        if self.table_metadata.name_mapping() is None:
            mapping = self.table_metadata.schema().name_mapping.model_dump_json()
            self.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
        self.append_producer(CommitOptions(branch, snapshot_properties)).commit_files(data_files)

    def _check_not_referenced(self, metadata: TableMetadata, file_paths: Iterable[str], branch: str | None) -> None:
        snapshot = metadata.snapshot_by_name(branch)
        manifests = snapshot.manifests(self.table.io) if snapshot is not None else []
        data = [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]
        entries = ExecutorFactory.get_or_create().map(lambda manifest: manifest.fetch_manifest_entry(self.table.io), data)
        live = (entry.data_file.file_path for of_manifest in entries for entry in of_manifest)
        if known := sorted(set(file_paths).intersection(live)):
            raise AlreadyAddedError(f"Cannot add files that are already referenced by table, files: {', '.join(known)}")

    @checked_arguments()
    def set_properties(self, properties: Properties = EMPTY_DICT, **kwargs: object) -> Transaction:
        """Set table properties.

        Raises:
            KeyIdChangedError: encryption.key-id is among them with another value.
            ConfigurationError: another property of encryption is among them with a value that cannot be used, columns cannot be protected
                as declared, or format-version is not 3; or there are both `properties` and `kwargs`.
            KeyNotFoundError, KmsError: the key service does not wrap under the master key of a column that is declared.
        """
        if properties and kwargs:
            raise ConfigurationError("give properties by a dict or by keywords, not by both")
        given = {**properties, **kwargs}
        # As in Java it says what the metadata is, and is none of its properties: stored as one it would change nothing.
        if (version := given.pop(TableProperties.FORMAT_VERSION, None)) is not None:
            self._check_version(version)
        declared = declared_by_update(self.table_metadata, given, self._of_catalog)
        check_table_properties(self.table_metadata.properties, {**self.table_metadata.properties, **declared.updates})
        check_shown_partitions(declared.updates, self._of_catalog)
        self._check_declared(self.table_metadata, declared.updates)
        return self._set_and_remove(declared, given)

    def remove_properties(self, *removals: str) -> Transaction:
        """Remove table properties.

        Raises:
            KeyIdChangedError: encryption.key-id is among them.
            ConfigurationError: one of them is no name.
        """
        names_of("removals", removals)
        declared = declared_by_removal(self.table_metadata, removals, self._of_catalog)
        remaining = {name: value for name, value in self.table_metadata.properties.items() if name not in declared.removals}
        check_properties_keep_key_id(self.table_metadata.properties, remaining)
        return self._set_and_remove(declared, removals)

    @property
    def _of_catalog(self) -> Properties:
        return self.table.catalog.properties

    def _set_and_remove(self, declared: Declaration, given: Iterable[str]) -> Transaction:
        removing = (RemovePropertiesUpdate(removals=list(declared.removals)),) if declared.removals else ()
        setting = (SetPropertiesUpdate(updates=declared.updates),) if declared.updates else ()
        # In one step: between the two a column would look unprotected.
        self._given = tuple(given)
        return self.apply((*removing, *setting)) if removing or setting else self

    def upgrade_table_version(self, format_version: TableVersion) -> Transaction:
        """Accept version 3, which an encrypted table has from its creation, and nothing else."""
        self._check_version(format_version)
        return self

    @staticmethod
    def _check_version(version: object) -> None:
        if str(version) != "3":
            raise ConfigurationError(f"an encrypted table has format version 3, which cannot become {version}")

    def update_statistics(self) -> UpdateStatistics:
        """Refuse: statistics files that others wrote are plaintext."""
        raise PlaintextRefusedError(
            self.table_metadata.location, "statistics files would hold plaintext facts about the data beside an encrypted table"
        )

    def applied(self, base: TableMetadata, updates: tuple[TableUpdate, ...]) -> TableMetadata:
        """Return metadata with updates."""
        return applied(base, updates)

    def new_scan(self, row_filter: str | BooleanExpression, case_sensitive: bool) -> EncryptedDataScan:
        """Return a scan of the table as this transaction has staged it."""
        scan = EncryptedDataScan(table_metadata=self.table_metadata, io=self.table.io, row_filter=row_filter, case_sensitive=case_sensitive)
        # What is read here is written again, or decides which rows are: never by masks.
        return scan.update(masked=ERROR)

    def partition_predicate(self, partitions: set[Record], fields: list[str]) -> BooleanExpression:
        """Return a filter that matches exactly these partitions."""
        return partitions_filter(partitions, fields)

    def check_staged(self, updates: tuple[TableUpdate, ...]) -> None:
        """Refuse to make a snapshot current that the current schema cannot read."""
        for update in updates:
            if isinstance(update, SetSnapshotRefUpdate) and update.ref_name == MAIN_BRANCH:
                check_types(self.table_metadata, update.snapshot_id)

    def following(self, updates: tuple[TableUpdate, ...]) -> tuple[TableUpdate, ...]:
        """Return the updates that protect columns which a new schema tags, and that declare what the updates say of protected ones."""
        tagging, given = self._tagging(updates), self._given
        self._given = ()
        changes = (*updates, *tagging)
        # Most commits change no protection. Opening column keys for them would ask the KMS for nothing.
        if not may_change_declarations(self.table_metadata, changes):
            return tagging
        declaring = declaration_updates(self.encrypted_metadata, changes, self.table_io.manager.columns, given)
        if changes_protection((*changes, *declaring)):
            self.require_of_base(AssertProtectionUnchanged.of)
        return (*tagging, *declaring)

    def _tagging(self, updates: tuple[TableUpdate, ...]) -> tuple[TableUpdate, ...]:
        if not any(isinstance(update, SetCurrentSchemaUpdate) for update in updates):
            return ()
        metadata = update_table_metadata(self.table_metadata, updates)
        declared = declared_by_schema(metadata, self._of_catalog, self.table_metadata.schema())
        self._check_declared(metadata, declared)
        return (SetPropertiesUpdate(updates=declared),) if declared else ()

    def _check_declared(self, metadata: TableMetadata, updates: Properties) -> None:
        after = {**metadata.properties, **updates}
        check_deletes(metadata, self.table_io, after)
        check_master_keys(self.table_io.manager, metadata.properties, after, metadata.schema())

    def belongs_to_attempt(self, update: TableUpdate) -> bool:
        """Key entries of an abandoned attempt must not reach the metadata. Those of a declaration are of the transaction (a subclass)."""
        added: object = update
        return isinstance(added, AddEncryptionKeyUpdate) and not added.is_of_transaction

    def _delete(self, delete_filter: str | BooleanExpression, options: CommitOptions) -> None:
        self._check_types(options.branch)
        schema = self.table_metadata.schema()
        by_vectors = marks_rows(self.table_metadata.properties, "delete")
        predicate = fitted(parse_row_filter(delete_filter), schema, options.case_sensitive)
        predicate = with_sql_null_semantics(predicate, schema, options.case_sensitive)
        self._check_may_delete(predicate, options, by_vectors)

        whole_files = self.new_snapshot(options).delete()
        whole_files.isolate_as(options.isolation or Operation.DELETE)
        with whole_files:
            whole_files.delete_by_predicate(predicate, options.case_sensitive)

        if whole_files.rewrites_needed:
            scan = self.new_scan(predicate, options.case_sensitive)
            scan = scan.use_ref(options.branch) if options.branch is not None else scan
            self.stage_rows(deleted_rows(scan, by_vectors), options, whole_files)
        elif not whole_files.files_affected:
            warnings.warn("Delete operation did not match any records", stacklevel=3)

    def _check_types(self, branch: str | None) -> None:
        """Refuse before rows of the branch are read what the commit would refuse: the filter and the keys are of the current schema."""
        head = self.table_metadata.snapshot_by_name(branch)
        check_types(self.table_metadata, head.snapshot_id if head is not None else None)

    def _check_may_delete(self, predicate: BooleanExpression, options: CommitOptions, by_vectors: bool) -> None:
        """Refuse before anything is written what reads protected columns: filters on them, and files that are written again with them."""
        schema = self.table_metadata.schema()
        filtered = extract_field_ids(bind(schema, predicate, options.case_sensitive))
        rewrites = filtered and not by_vectors
        if has_column_keys(self.table_metadata):
            visible_columns(self.table_metadata, self.table_io, schema if rewrites else Schema(), filtered, ERROR)

    def _check_rows(self, df: pa.Table | pa.RecordBatchReader) -> None:
        _check_arrow(df, pa.Table, pa.RecordBatchReader)
        check_pyarrow_schema_compatible(
            self.table_metadata.schema(),
            provided_schema=df.schema,
            downcast_ns_timestamp_to_us=cuts_nanoseconds(df.schema),
            format_version=self.table_metadata.format_version,
        )
        # Before anything is written. A stream's is checked as it comes.
        if isinstance(df, pa.Table):
            check_utf8(df)

    def _copied_files(self, branch: str | None) -> frozenset[bytes]:
        snapshot = self.table_metadata.snapshot_by_name(branch)
        return copied_files_of(self.table.io, snapshot.manifests(self.table.io)) if snapshot is not None else frozenset()

    def _append_rows(
        self, df: pa.Table | pa.RecordBatchReader, options: CommitOptions, copied_files: frozenset[bytes] = frozenset()
    ) -> None:
        # Made before the files: it remembers by which protection of columns they are written.
        producer = self.append_producer(options, copied_files=copied_files)
        has_rows = isinstance(df, pa.RecordBatchReader) or df.num_rows > 0
        producer.commit_files(self._write(df, producer.commit_uuid, options.branch) if has_rows else [])

    def _write(self, df: pa.Table | pa.RecordBatchReader, write_uuid: uuid.UUID, branch: str | None) -> list[DataFile]:
        io = self.table_io
        metadata = self.encrypted_metadata
        # Before a file is written: a table key that the KMS denies would otherwise show only at the commit.
        io.manager.check_usable(metadata.key_ring, metadata.head_key_id(branch))
        rows = df if isinstance(df, pa.Table) else with_checked_utf8(df)
        return write_data_files(metadata, rows, io, io.manager, write_uuid, itertools.count(0))


class EncryptedCreateTransaction(CreateTransactionAdapter, EncryptedTransaction):
    """A transaction that creates an encrypted table, with its first data where wanted."""

    def __init__(self, table: StagedTable) -> None:
        super().__init__(table)

    def initial_update(self, update: TableUpdate) -> TableUpdate:
        """Exchange the version update, which PyIceberg refuses for version 3."""
        return UpgradeToVersion3Update() if isinstance(update, UpgradeFormatVersionUpdate) else update

    def further_updates(self, metadata: TableMetadata) -> tuple[TableUpdate, ...]:
        """Return the declarations of the new table's protected columns."""
        return first_declarations(cast("EncryptedTableMetadata", metadata), self.table_io.manager.columns)


def _check_arrow(rows: object, *kinds: type) -> None:
    """Raise ConfigurationError for rows that are no table of Arrow. Its text ends in logs, so it has their type alone, and no values."""
    if not isinstance(rows, kinds):
        wanted = " or a ".join(f"pyarrow.{each.__name__}" for each in kinds)
        raise ConfigurationError(
            f"the rows are of the type {type(rows).__name__}; they must be a {wanted}: pyarrow.Table.from_pylist, from_pandas or "
            "from_batches makes a table"
        )
