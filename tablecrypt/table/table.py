"""An encrypted table: a `pyiceberg.table.Table` whose every path to storage encrypts, authenticates, or refuses.

Its metadata tables (`table.inspect`) are PyIceberg's with the key metadata redacted: a manifest entry's key_metadata holds the file's DEK
in the clear (the manifest around it is what is encrypted). Where the catalog's server restricts what may be read, tables that tell bounds,
counts or partitions of the rows are refused (ReadRestrictionError): they are about rows and values that the reader is not to see.

Expiring snapshots removes from `encryption-keys`, in the same commit, what no remaining snapshot needs. Iceberg Java never removes an
entry, so its tables keep the key of every snapshot that there ever was.

A table that has encryption.key-id and is not encrypted, because another writer made it, is opened for audit and migration alone
(`plain_tables_opened`). Everywhere else it is refused (PlaintextRefusedError): the property promises what is not there. Commits to it are
refused outside of this context too, so that a table opened in it is no way to write plaintext.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import ALWAYS_TRUE, Table, UpsertResult
from pyiceberg.table.inspect import InspectTable
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.maintenance import MaintenanceTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotsUpdate, TableUpdate, UpdatesAndRequirements
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.table.update.snapshot import ExpireSnapshots, ManageSnapshots
from pyiceberg.table.update.sorting import UpdateSortOrder
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.table.update.statistics import UpdateStatistics
from pyiceberg.typedef import EMPTY_DICT, Properties

from tablecrypt import properties as names
from tablecrypt.arguments import check_switches, checked_arguments, names_of
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.files.encrypting_file_io import refuse_restricted
from tablecrypt.table._pyiceberg.branches_and_tags import ManageEncryptedSnapshots
from tablecrypt.table._pyiceberg.evolution import UpdateSpecInVersion3
from tablecrypt.table._pyiceberg.scans import AllEntriesTable, EntriesTable, InspectAdapter
from tablecrypt.table._pyiceberg.transactions import ExpireSnapshotsAdapter, TableAdapter
from tablecrypt.table.datasets.lazy_frame import scan_lazily
from tablecrypt.table.foreign_engines import for_others, location_provider
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.protection.writing import StaleWriteError
from tablecrypt.table.scan import EncryptedDataScan, EncryptedIncrementalAppendScan
from tablecrypt.table.table_files import TableFileIO, check_garbage_is_collected, name_of
from tablecrypt.table.transaction import EncryptedTransaction
from tablecrypt.table.updates import RemoveUnnamedSnapshotsUpdate, check_properties_keep_key_id, removed_keys, removed_partition_statistics

if TYPE_CHECKING:
    import polars as pl

    from tablecrypt.maintenance.table_maintenance import TableMaintenance

R = TypeVar("R")
_STALE_WRITES: Final = 4
"""So many times a write is done again of itself; no more than PyIceberg tries a commit again."""
_OPENED: Final[ContextVar[bool]] = ContextVar("tablecrypt-plain-tables", default=False)
_KEY_METADATA: Final = "key_metadata"
_DATA_FILE: Final = "data_file"
_MAINTENANCE: Final = "tablecrypt.maintenance.table_maintenance"
"""Lies above this layer, and is imported when a table is asked for it."""


class EncryptedTable(TableAdapter):
    """PyIceberg's Table for an encrypted table. The catalogs of `tablecrypt_catalog` return it."""

    io: TableFileIO

    @property
    def metadata(self) -> EncryptedTableMetadata:
        """The table's metadata, as others get it: see foreign_engines.py."""
        return self._metadata

    @metadata.setter
    def metadata(self, metadata: TableMetadata) -> None:
        self._metadata = cast("EncryptedTableMetadata", for_others(metadata))

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return dict(self.metadata.properties)

    def location_provider(self) -> LocationProvider:
        """Return the location provider, which names new files."""
        return location_provider(self.metadata)

    @classmethod
    def check_next_metadata(cls, current: TableMetadata, following: TableMetadata) -> None:
        """Check what a catalog gives this table as its newest metadata.

        Raises:
            KeyIdChangedError: encryption.key-id differs or is gone.
        """
        check_properties_keep_key_id(current.properties, following.properties)

    def __repr__(self) -> str:
        """PyIceberg's description of the table, and the id of its master key."""
        return f"{super().__repr__()},\nencrypted: {names.KEY_ID.name} {self.metadata.properties[names.KEY_ID.name]}"

    def refresh(self) -> Table:
        """Load the newest metadata. Files that were written and not committed yet can be committed afterwards."""
        io, metadata = self.io, self.metadata
        super().refresh()
        # The keys of columns that were made for files still to be committed belong to the old manager.
        self.io.manager.take_over(io.manager, metadata.key_ring)
        return self

    def transaction(self) -> EncryptedTransaction:
        """Return a transaction that stages changes and commits them together."""
        return EncryptedTransaction(self)

    def append(
        self, df: pa.Table | pa.RecordBatchReader, snapshot_properties: dict[str, str] = EMPTY_DICT, branch: str | None = MAIN_BRANCH
    ) -> None:
        """Append rows: see `EncryptedTransaction.append`. Columns are protected as the table has them at the commit."""
        append = super().append
        self._written(lambda: append(df, snapshot_properties, branch), df)

    def overwrite(
        self,
        df: pa.Table | pa.RecordBatchReader,
        overwrite_filter: BooleanExpression | str = ALWAYS_TRUE,
        snapshot_properties: dict[str, str] = EMPTY_DICT,
        case_sensitive: bool = True,
        branch: str | None = MAIN_BRANCH,
    ) -> None:
        """Replace the rows that match a filter by others: see `EncryptedTransaction.overwrite`."""
        overwrite = super().overwrite
        self._written(lambda: overwrite(df, overwrite_filter, snapshot_properties, case_sensitive, branch), df)

    def dynamic_partition_overwrite(
        self, df: pa.Table, snapshot_properties: dict[str, str] = EMPTY_DICT, branch: str | None = MAIN_BRANCH
    ) -> None:
        """Replace partitions: see `EncryptedTransaction.dynamic_partition_overwrite`."""
        overwrite = super().dynamic_partition_overwrite
        self._written(lambda: overwrite(df, snapshot_properties, branch), df)

    def delete(
        self,
        delete_filter: BooleanExpression | str = ALWAYS_TRUE,
        snapshot_properties: dict[str, str] = EMPTY_DICT,
        case_sensitive: bool = True,
        branch: str | None = MAIN_BRANCH,
    ) -> None:
        """Delete rows: see `EncryptedTransaction.delete`."""
        delete = super().delete
        self._written(lambda: delete(delete_filter, snapshot_properties, case_sensitive, branch))

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
        """Update and insert rows: see `EncryptedTransaction.upsert`."""
        upsert, clauses = super().upsert, (when_matched_update_all, when_not_matched_insert_all)
        return self._written(lambda: upsert(df, join_cols, *clauses, case_sensitive, branch, snapshot_properties), df)

    def _written(self, write: Callable[[], R], rows: object = None) -> R:
        """Write rows and commit them, as often as columns have come to be protected otherwise in between.

        A stream has been read by then, and other columns may have the names that the rows have: what the rows are now only the caller says.
        """
        schema = self.metadata.schema()
        for _ in range(_STALE_WRITES):
            try:
                return write()
            except StaleWriteError:
                if isinstance(rows, pa.RecordBatchReader) or self.refresh().schema() != schema:
                    raise

        return write()

    def scan(
        self,
        row_filter: str | BooleanExpression = ALWAYS_TRUE,
        selected_fields: tuple[str, ...] = ("*",),
        case_sensitive: bool = True,
        snapshot_id: int | None = None,
        options: Properties = EMPTY_DICT,
        limit: int | None = None,
        masked: str | None = None,
    ) -> EncryptedDataScan:
        """Return a scan; its arguments and results are those of PyIceberg's `Table.scan`.

        Args:
            masked: `mask` gives masks of protected columns whose keys may not be used, `error` refuses to read them; None: as the catalog
                says by encryption.masked-reads. Where that says nothing, rows show masks, and engines are refused these columns.
        """
        scan = EncryptedDataScan(
            table_metadata=self.metadata,
            io=self.io,
            row_filter=row_filter,
            selected_fields=names_of("selected_fields", selected_fields),
            case_sensitive=case_sensitive,
            snapshot_id=snapshot_id,
            options=options,
            limit=limit,
            table_identifier=self.name(),
        )
        return scan.update(masked=self._masked(masked))

    def incremental_append_scan(
        self,
        *,
        from_snapshot_id_exclusive: int | None = None,
        to_snapshot_id_inclusive: int | None = None,
        row_filter: str | BooleanExpression = ALWAYS_TRUE,
        selected_fields: tuple[str, ...] = ("*",),
        case_sensitive: bool = True,
        options: Properties = EMPTY_DICT,
        limit: int | None = None,
        masked: str | None = None,
    ) -> EncryptedIncrementalAppendScan:
        """Return a scan of the rows that appends added in a range of snapshots; arguments as PyIceberg's, and `masked` as for `scan`."""
        scan = EncryptedIncrementalAppendScan(
            table_metadata=self.metadata,
            io=self.io,
            row_filter=row_filter,
            selected_fields=names_of("selected_fields", selected_fields),
            case_sensitive=case_sensitive,
            from_snapshot_id=from_snapshot_id_exclusive,
            from_snapshot_inclusive=False,
            to_snapshot_id=to_snapshot_id_inclusive,
            options=options,
            limit=limit,
        )
        return scan.update(masked=self._masked(masked))

    def add_files(
        self,
        file_paths: list[str],
        snapshot_properties: dict[str, str] = EMPTY_DICT,
        check_duplicate_files: bool = True,
        branch: str | None = MAIN_BRANCH,
        key_metadata: Mapping[str, StandardKeyMetadata | bytes] = EMPTY_DICT,
    ) -> None:
        """Add files that are encrypted already: see `EncryptedTransaction.add_files`."""
        transaction = self.transaction()
        with transaction:
            transaction.add_files(file_paths, snapshot_properties, check_duplicate_files, branch, key_metadata)

    @property
    def inspect(self) -> InspectTable:
        """Return metadata as Arrow tables, without key metadata."""
        return RedactedInspectTable(self)

    @property
    def maintenance(self) -> TableMaintenance:
        """PyIceberg's maintenance operations, and the functions of `tablecrypt.maintenance` bound to this table."""
        return cast("TableMaintenance", import_module(_MAINTENANCE).TableMaintenance(self))

    def manage_snapshots(self) -> ManageSnapshots:
        """Create and remove branches and tags, roll back. ConfigurationError for the main branch, and for a tag where a branch is meant."""
        return ManageEncryptedSnapshots(transaction=self._autocommit())

    def update_schema(self, allow_incompatible_changes: bool = False, case_sensitive: bool = True) -> UpdateSchema:
        """Evolve the schema. ConfigurationError for an argument that is neither True nor False."""
        return self._autocommit().update_schema(allow_incompatible_changes, case_sensitive)

    def update_spec(self, case_sensitive: bool = True) -> UpdateSpec:
        """Evolve the partitioning. ConfigurationError: case_sensitive is neither True nor False."""
        check_switches(case_sensitive=case_sensitive)
        return UpdateSpecInVersion3(self._autocommit(), case_sensitive=case_sensitive)

    def update_sort_order(self, case_sensitive: bool = True) -> UpdateSortOrder:
        """Evolve the sort order. ConfigurationError: case_sensitive is neither True nor False."""
        return self._autocommit().update_sort_order(case_sensitive)

    @checked_arguments()
    def snapshot_as_of_timestamp(self, timestamp_ms: float, inclusive: bool = True) -> Snapshot | None:
        """Return the snapshot that was current at a moment, in milliseconds since 1970, or before it; None where there was none.

        Raises:
            ConfigurationError: the moment is no number, or inclusive is neither True nor False.
        """
        return super().snapshot_as_of_timestamp(timestamp_ms, inclusive)  # type: ignore[arg-type]

    def update_statistics(self) -> UpdateStatistics:
        """Refuse: see `EncryptedTransaction.update_statistics`."""
        return self.transaction().update_statistics()

    def to_polars(self, masked: str | None = None) -> pl.LazyFrame:
        """Return a LazyFrame that scans this table. Columns, limits and simple filters decide what is read; see lazy_frame.py.

        Args:
            masked: as for `scan`. Unless it or the catalog says `mask`, collecting a column that would be masked fails with the text of a
                ColumnKeyDeniedError.
        """
        return scan_lazily(self.scan(masked=masked))

    def to_daft(self) -> NoReturn:
        """Refuse: Daft opens the data files itself and cannot decrypt them."""
        self._refuse_foreign_reader("daft.from_arrow(table.scan().to_arrow())")

    def to_bodo(self) -> NoReturn:
        """Refuse: Bodo opens the data files itself and cannot decrypt them."""
        self._refuse_foreign_reader("bodo.pandas.from_pandas(table.scan().to_arrow())")

    def __datafusion_table_provider__(self, session: Any | None = None) -> NoReturn:
        """Refuse: PyIceberg's provider, in Rust, opens the data files itself and cannot decrypt them."""
        self._refuse_foreign_reader('SessionContext.register_dataset("name", table.scan().to_arrow_dataset())')

    def _masked(self, asked: str | None) -> str | None:
        return names.MASKED_READS.chosen(self.catalog.properties) or None if asked is None else asked

    def _autocommit(self) -> EncryptedTransaction:
        return EncryptedTransaction(self, autocommit=True)

    def _refuse_foreign_reader(self, alternative: str) -> NoReturn:
        raise FormatError(f"{name_of(self)}: this engine reads data files by itself and cannot decrypt them; use {alternative}")


class EncryptedMaintenance(MaintenanceTable):
    """PyIceberg's maintenance operations, through an encrypted transaction."""

    def expire_snapshots(self) -> ExpireSnapshots:
        """Remove snapshots from the metadata, and the keys that only they needed. ConfigurationError where gc.enabled=false."""
        # Files without their keys are as good as deleted.
        check_garbage_is_collected(self.tbl)
        return EncryptedExpireSnapshots(transaction=EncryptedTransaction(self.tbl, autocommit=True))


def is_encrypted(table: Table) -> bool:
    """Return whether everything written through this table object is encrypted."""
    return isinstance(table, EncryptedTable)


class RedactedInspectTable(InspectAdapter):
    """InspectTable whose key_metadata columns are null."""

    def partitions(
        self, snapshot_id: int | None = None, row_filter: str | BooleanExpression = ALWAYS_TRUE, case_sensitive: bool = True
    ) -> pa.Table:
        """Partitions of a snapshot."""
        return self._shown(InspectAdapter(self._table).at(snapshot_id).partitions, snapshot_id, row_filter, case_sensitive)

    def manifests(self) -> pa.Table:
        """Manifests of the current snapshot."""
        return self._shown(super().manifests)

    def entries(self, snapshot_id: int | None = None) -> pa.Table:
        """Manifest entries of a snapshot."""
        return _redacted_struct(self._shown(EntriesTable(self._table).at(snapshot_id).entries, snapshot_id))

    def all_entries(self) -> pa.Table:
        """Manifest entries of every snapshot, which PyIceberg does not have."""
        return _redacted_struct(self._shown(AllEntriesTable(self._table).entries))

    def files(self, snapshot_id: int | None = None) -> pa.Table:
        """Data and delete files of a snapshot."""
        return _redacted(self._shown(InspectAdapter(self._table).at(snapshot_id).files, snapshot_id))

    def data_files(self, snapshot_id: int | None = None) -> pa.Table:
        """Data files of a snapshot."""
        return _redacted(self._shown(InspectAdapter(self._table).at(snapshot_id).data_files, snapshot_id))

    def delete_files(self, snapshot_id: int | None = None) -> pa.Table:
        """Delete files of a snapshot."""
        return _redacted(self._shown(InspectAdapter(self._table).at(snapshot_id).delete_files, snapshot_id))

    def all_manifests(self) -> pa.Table:
        """Manifests of every snapshot."""
        return _redacted(self._shown(super().all_manifests))

    def all_files(self) -> pa.Table:
        """Data and delete files of every snapshot."""
        return _redacted(self._shown(super().all_files))

    def all_data_files(self) -> pa.Table:
        """Data files of every snapshot."""
        return _redacted(self._shown(super().all_data_files))

    def all_delete_files(self) -> pa.Table:
        """Delete files of every snapshot."""
        return _redacted(self._shown(super().all_delete_files))

    def _shown(self, read: Callable[..., pa.Table], *arguments: Any) -> pa.Table:
        # They show counts and bounds of all rows and columns, whatever the server hides.
        refuse_restricted(self.tbl.io, f"inspect.{read.__name__}")
        try:
            return read(*arguments)
        except (struct.error, OverflowError, UnicodeDecodeError, TypeError, pa.ArrowInvalid) as error:
            # PyIceberg decodes bounds and numbers as the column's type has them, and any writer of manifests may have put others there.
            what = "an entry of its manifests has a bound or a number that its column cannot have"
            raise FormatError(f"{name_of(self.tbl)}: {what}: {error}") from error
        except LookupError as error:
            what = "its manifest list has a partition spec, or a field of one, that the table does not have"
            raise FormatError(f"{name_of(self.tbl)}: {what}: {error}") from error


def _redacted(table: pa.Table) -> pa.Table:
    position = table.schema.get_field_index(_KEY_METADATA)
    field = table.schema.field(position)
    # The column stays, so that programs which expect PyIceberg's table find it.
    return table.set_column(position, field, pa.nulls(table.num_rows, field.type))


def _redacted_struct(table: pa.Table) -> pa.Table:
    position = table.schema.get_field_index(_DATA_FILE)
    struct = table.column(position).combine_chunks()
    fields = list(struct.type)
    columns = [pa.nulls(len(struct), field.type) if field.name == _KEY_METADATA else struct.field(field.name) for field in fields]
    return table.set_column(position, table.schema.field(position), pa.StructArray.from_arrays(columns, fields=fields))


class EncryptedExpireSnapshots(ExpireSnapshotsAdapter):
    """PyIceberg's ExpireSnapshots for an encrypted table."""

    def removal_of(self, snapshot_ids: Iterable[int]) -> RemoveUnnamedSnapshotsUpdate:
        """Return the update that removes snapshots, and no branch or tag that others have made meanwhile."""
        return RemoveUnnamedSnapshotsUpdate(snapshot_ids=sorted(snapshot_ids))

    def further_updates(self, updates: tuple[TableUpdate, ...]) -> UpdatesAndRequirements:
        """Return the removal of each key that the remaining snapshots do not need, and of what names the statistics of partitions.

        A commit that lands in between may use a KEK that looks unused here, so the main branch must not have moved.
        """
        metadata = cast("EncryptedTableMetadata", self.table_metadata)
        expired = {each for update in updates if isinstance(update, RemoveSnapshotsUpdate) for each in update.snapshot_ids}
        if not expired:
            return (), ()

        remaining = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in expired]
        # Tags and other branches count too: their snapshots are among the remaining ones.
        needed = metadata.key_ring.needed_by(snapshot.key_id for snapshot in remaining if snapshot.key_id is not None)
        unneeded = [key.key_id for key in metadata.encryption_keys if key.key_id not in needed]
        head = metadata.refs.get(MAIN_BRANCH)
        unmoved = AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=head.snapshot_id if head is not None else None)

        return (*removed_partition_statistics(metadata, expired), *removed_keys(unneeded)), (unmoved,)


@contextmanager
def plain_tables_opened() -> Iterator[None]:
    """Let catalogs give out, in this block of this thread, tables that have encryption.key-id and are not encrypted, as plain ones."""
    token = _OPENED.set(True)
    try:
        yield
    finally:
        _OPENED.reset(token)


def are_plain_tables_opened() -> bool:
    """Whether the caller is in such a block."""
    return _OPENED.get()


def check_branch(table: Table, branch: str) -> None:
    """Refuse a name that no branch has. The main branch counts as there before its first snapshot.

    Raises:
        ConfigurationError: the table has no such branch.
    """
    ref = table.metadata.refs.get(branch)
    if ref is None and branch != MAIN_BRANCH:
        named = (name for name, each in table.metadata.refs.items() if each.snapshot_ref_type == SnapshotRefType.BRANCH)
        branches = ", ".join(sorted({MAIN_BRANCH, *named}))
        raise ConfigurationError(
            f"{name_of(table)} has no branch {branch!r}; it has {branches}. table.manage_snapshots().create_branch(...) makes one"
        )
    if ref is not None and ref.snapshot_ref_type == SnapshotRefType.TAG:
        raise ConfigurationError(f"{branch!r} is a tag of {name_of(table)}, which never changes: name a branch")
