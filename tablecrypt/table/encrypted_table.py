"""An encrypted table: a `pyiceberg.table.Table` whose every path to storage encrypts, authenticates, or refuses."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import ALWAYS_TRUE, Table
from pyiceberg.table.inspect import InspectTable
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.maintenance import MaintenanceTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.table.update.snapshot import ExpireSnapshots, ManageSnapshots
from pyiceberg.table.update.sorting import UpdateSortOrder
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.table.update.statistics import UpdateStatistics
from pyiceberg.typedef import EMPTY_DICT, Properties

from tablecrypt import properties as names
from tablecrypt.arguments import names_of
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError
from tablecrypt.table._pyiceberg.transactions import TableSeam
from tablecrypt.table.commit_rules import check_properties_keep_key_id
from tablecrypt.table.evolution import UpdateSchemaInVersion3, UpdateSpecInVersion3
from tablecrypt.table.expire import EncryptedExpireSnapshots
from tablecrypt.table.foreign_engines import for_others, location_provider
from tablecrypt.table.inspect import RedactedInspectTable
from tablecrypt.table.lazy_polars import scan_lazily
from tablecrypt.table.scan import EncryptedDataScan, EncryptedIncrementalAppendScan
from tablecrypt.table.transaction import EncryptedTransaction

if TYPE_CHECKING:
    import polars as pl

    from tablecrypt.maintenance.table_maintenance import TableMaintenance

_MAINTENANCE: Final = "tablecrypt.maintenance.table_maintenance"
"""Lies above this layer, and is imported when a table is asked for it."""


class EncryptedTable(TableSeam):
    """PyIceberg's Table, for a table with encryption.key-id. Made by the catalogs of `tablecrypt_catalog`."""

    @property
    def metadata(self) -> TableMetadata:
        """The table's metadata, as others get it: see foreign_engines.py."""
        return self._metadata

    @metadata.setter
    def metadata(self, metadata: TableMetadata) -> None:
        self._metadata = for_others(metadata)

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return dict(self.metadata.properties)

    def location_provider(self) -> LocationProvider:
        """Return what names the places of new files."""
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

    def transaction(self) -> EncryptedTransaction:
        """Return a transaction that stages changes and lands them in one commit."""
        return EncryptedTransaction(self)

    def scan(
        self,
        row_filter: str | BooleanExpression = ALWAYS_TRUE,
        selected_fields: tuple[str, ...] = ("*",),
        case_sensitive: bool = True,
        snapshot_id: int | None = None,
        options: Properties = EMPTY_DICT,
        limit: int | None = None,
    ) -> EncryptedDataScan:
        """Return a scan; its arguments and results are those of PyIceberg's `Table.scan`."""
        return EncryptedDataScan(
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
    ) -> EncryptedIncrementalAppendScan:
        """Return a scan of the rows that appends added in a range of snapshots; arguments as PyIceberg's."""
        return EncryptedIncrementalAppendScan(
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
        """Metadata as Arrow tables, key metadata redacted."""
        return RedactedInspectTable(self)

    @property
    def maintenance(self) -> TableMaintenance:
        """PyIceberg's maintenance operations, and beside them the functions of `tablecrypt.maintenance` bound to this table."""
        return cast("TableMaintenance", import_module(_MAINTENANCE).TableMaintenance(self))

    def manage_snapshots(self) -> ManageSnapshots:
        """Create and remove branches and tags, roll back."""
        return ManageSnapshots(transaction=self._autocommit())

    def update_schema(self, allow_incompatible_changes: bool = False, case_sensitive: bool = True) -> UpdateSchema:
        """Evolve the schema."""
        return UpdateSchemaInVersion3(
            transaction=self._autocommit(),
            allow_incompatible_changes=allow_incompatible_changes,
            case_sensitive=case_sensitive,
            name_mapping=self.name_mapping(),
        )

    def update_spec(self, case_sensitive: bool = True) -> UpdateSpec:
        """Evolve the partitioning."""
        return UpdateSpecInVersion3(self._autocommit(), case_sensitive=case_sensitive)

    def update_sort_order(self, case_sensitive: bool = True) -> UpdateSortOrder:
        """Evolve the sort order."""
        return UpdateSortOrder(transaction=self._autocommit(), case_sensitive=case_sensitive)

    def update_statistics(self) -> UpdateStatistics:
        """Refuse: see `EncryptedTransaction.update_statistics`."""
        return self.transaction().update_statistics()

    def to_polars(self) -> pl.LazyFrame:
        """Return a LazyFrame that scans this table, with projection, limit and simple filters pushed down."""
        return scan_lazily(self.scan())

    def to_daft(self) -> NoReturn:
        """Refuse: Daft opens the data files itself and cannot decrypt them."""
        self._refuse_foreign_reader("daft.from_arrow")

    def to_bodo(self) -> NoReturn:
        """Refuse: Bodo opens the data files itself and cannot decrypt them."""
        self._refuse_foreign_reader("bodo.pandas.from_pandas")

    def __datafusion_table_provider__(self, session: Any | None = None) -> NoReturn:
        """Refuse: the provider opens the data files itself and cannot decrypt them."""
        self._refuse_foreign_reader("SessionContext.from_arrow")

    def _autocommit(self) -> EncryptedTransaction:
        return EncryptedTransaction(self, autocommit=True)

    def _refuse_foreign_reader(self, alternative: str) -> NoReturn:
        raise FormatError(
            f"{'.'.join(self.name())}: this engine reads data files by itself and cannot decrypt them; "
            f"use {alternative}(table.scan().to_arrow())"
        )


class EncryptedMaintenance(MaintenanceTable):
    """PyIceberg's maintenance operations, through an encrypted transaction."""

    def expire_snapshots(self) -> ExpireSnapshots:
        """Remove snapshots from the metadata, and the keys that only they needed."""
        return EncryptedExpireSnapshots(transaction=EncryptedTransaction(self.tbl, autocommit=True))


def is_encrypted(table: Table) -> bool:
    """Whether everything that is written through this table object is encrypted."""
    return isinstance(table, EncryptedTable)
