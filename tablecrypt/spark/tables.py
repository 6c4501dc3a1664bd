"""Tables by name ("prod.db.orders"), what executors need of a table, and the plan of a read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.table.metadata import TableMetadata

from tablecrypt import properties as names
from tablecrypt.engines.access import TableAccess
from tablecrypt.engines.job_keys import JobKey, JobTicket, issue_job
from tablecrypt.engines.protected_columns import JobColumns
from tablecrypt.errors import ConfigurationError
from tablecrypt.files.encrypting_file_io import read_restrictions_of
from tablecrypt.files.locations import is_relative
from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.spark.broadcast_keys import brings_keys_by_spark, issue_by_broadcast
from tablecrypt.spark.network import check_credentials_stay_private, check_network, kms_properties, warn_of_open_network
from tablecrypt.table.metadata import check_types, has_column_keys, readable_at
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.protection.visible_columns import ERROR, MASK, opened_columns
from tablecrypt.table.scan import EncryptedDataScan, EncryptedIncrementalAppendScan
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import name_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REMEDY: Final = "give executors the same right, or set tablecrypt.spark.executor-keys=spark"


@dataclass(frozen=True)
class LocatedTable:
    """A table, the catalog it came from, and its name there."""

    catalog: Catalog
    name: str
    table: EncryptedTable

    @classmethod
    def of(cls, identifier: str, catalog_properties: Mapping[str, str] | None) -> LocatedTable:
        """Load a table named "catalog.namespace.table".

        Raises:
            ConfigurationError: the identifier has no catalog part, the catalog encrypts nothing, or the table is not encrypted.
        """
        catalog_name, _, name = identifier.partition(".")
        if not catalog_name or "." not in name:
            raise ConfigurationError(f"{identifier!r} does not name a table: write catalog.namespace.table")
        # Imported here: executors use this module too, and need none of the catalogs' libraries.
        from tablecrypt_catalog import load_catalog

        catalog = load_catalog(catalog_name, **(catalog_properties or {}))
        return cls(catalog, name, load_encrypted_table(catalog, name))

    @classmethod
    def of_table(cls, table: EncryptedTable) -> LocatedTable:
        """Take a table that is loaded."""
        return cls(table.catalog, name_of(table), table)

    def reloaded(self) -> EncryptedTable:
        """Return the table as it is in the catalog now."""
        return load_encrypted_table(self.catalog, self.name)

    def at(self, snapshot_id: int | None, *, is_writable: bool) -> LocatedTable:
        """Return the table with the metadata in which rows of a snapshot are looked for.

        Args:
            snapshot_id: the snapshot's; None for a table without snapshots.
            is_writable: whether it is the head of a branch, which Spark reads with the current schema, as the table itself.

        Raises:
            ConfigurationError: the current schema cannot read the branch.
        """
        if is_writable:
            check_types(self.table.metadata, snapshot_id)
            return self

        # As EncryptedDataScan has it.
        is_restricted = read_restrictions_of(self.table.io) is not None
        return self.read_by(readable_at(self.table.metadata, snapshot_id, as_now=is_restricted))

    def read_by(self, metadata: TableMetadata) -> LocatedTable:
        """Return the table with other metadata to look for rows in, those of a scan."""
        table = copy(self.table)
        table.metadata = metadata
        return replace(self, table=table)

    def scan(self, row_filter: str | BooleanExpression, branch: str | None) -> EncryptedDataScan:
        """Return a scan of a branch's rows; without one, of the main branch."""
        scan = self.table.scan(row_filter=row_filter)
        return scan.use_ref(branch) if branch is not None and branch in self.table.metadata.refs else scan

    def issue_job(self, spark: SparkSession) -> tuple[JobTicket, JobKey]:
        """Make a job key for the executors of a session: wrapped under the table's master key, or brought by Spark (job_keys.py).

        Raises:
            ConfigurationError: the executors' way to the KMS cannot be sent to them, or the catalog requires what the session is not.
            KmsError: the KMS refused to wrap the key.
        """
        self._check_place(spark.conf.get)
        # First, so that a session which the catalog refuses gets no job key.
        check_network(self.client_properties, spark.conf.get)
        if not brings_keys_by_spark(self.client_properties):
            properties = self.kms_properties
            # The ticket is in the closure of the job, in the clear unless Spark encrypts its messages.
            check_credentials_stay_private(properties, spark.conf.get)
            ticket, job_key = issue_job(self._manager.kms, self._manager.table_key_id, properties)
        else:
            ticket, job_key = issue_by_broadcast(spark, self._manager.table_key_id)

        warn_of_open_network(spark.conf.get)

        return ticket, job_key

    def _check_place(self, spark_setting: Callable[[str, str], str | None]) -> None:
        """Raise ConfigurationError where executors would look for the table's files in their own working directories."""
        location = self.table.metadata.location
        if is_relative(location) and not str(spark_setting("spark.master", "local")).startswith("local"):
            raise ConfigurationError(
                f"{self.name}: its location {location} is relative to the current folder, and executors run in other folders: copy the "
                f"table with tablecrypt relocate, or start Spark with a local master"
            )

    @property
    def kms_properties(self) -> dict[str, str]:
        """The catalog's properties with which executors reach the KMS."""
        return kms_properties(self.client_properties)

    @property
    def client_properties(self) -> Mapping[str, str]:
        """What this client says about the catalog, the KMS among it."""
        # A REST server adds to a catalog's properties, but only this client may say how the KMS is reached.
        return names.client_properties(self.catalog)

    @property
    def _manager(self) -> EncryptionManager:
        return self.table.io.manager


def load_encrypted_table(catalog: Catalog, name: str) -> EncryptedTable:
    """Load a table; ConfigurationError unless it is encrypted."""
    table = catalog.load_table(name)
    if not isinstance(table, EncryptedTable):
        raise ConfigurationError(
            f"{name} is not an encrypted table (it has no {names.KEY_ID.name}, or its catalog is not one of tablecrypt_catalog): "
            "tablecrypt.spark is for encrypted tables; use PyIceberg or Iceberg's own Spark runtime for others"
        )

    return table


def table_access(
    table: EncryptedTable,
    readable: frozenset[int] | None = None,
    *,
    brings_keys: bool = False,
    write_only: frozenset[int] = frozenset(),
) -> TableAccess:
    """Return what the tasks of a job on a table need.

    Args:
        table: as the job is planned on it.
        readable: field ids of the protected columns whose values tasks may use; None for all that the driver may read.
        brings_keys: bring the keys of protected columns, instead of having executors ask the KMS.
        write_only: field ids of the columns that tasks write and may not read, whose keys are brought in any case.
    """
    columns = job_columns(table, readable, brings_keys=brings_keys, write_only=write_only)
    return TableAccess.of(table.metadata, table.io, columns)


def job_columns(
    table: EncryptedTable, readable: frozenset[int] | None = None, *, brings_keys: bool = False, write_only: frozenset[int] = frozenset()
) -> JobColumns | None:
    """Return what the tasks of a job may do with a table's protected columns; arguments as those of `table_access`."""
    if not has_column_keys(table.metadata):
        return None

    properties = names.client_properties(table.catalog)
    # Executors without a KMS could open no column key either.
    brings_keys = brings_keys or brings_keys_by_spark(properties)
    return JobColumns.of(
        table.metadata,
        table.io,
        readable,
        None if brings_keys else kms_properties(properties),
        write_only,
        _REMEDY,
    )


@dataclass(frozen=True)
class PlannedRead:
    """A read of one snapshot. `projected` holds the columns in the order in which they were asked for.

    Of protected columns, `readable` holds the field ids of those whose values it may show, and `masked` says what becomes of the others.
    """

    located: LocatedTable
    projected: Schema
    row_filter: BooleanExpression
    tasks: list[EncryptedFileScanTask]
    masked: str = ERROR
    readable: frozenset[int] = frozenset()

    @classmethod
    def of(
        cls,
        identifier: str,
        columns: Sequence[str] | None,
        row_filter: str | BooleanExpression | None,
        snapshot_id: int | None,
        catalog_properties: Mapping[str, str] | None,
        masked: str | None = None,
    ) -> PlannedRead:
        """Load the table and plan; arguments and errors are those of `read_table`."""
        located = LocatedTable.of(identifier, catalog_properties)
        fields = tuple(columns or ("*",))
        scan = located.table.scan(row_filter=row_filter or ALWAYS_TRUE, selected_fields=fields, snapshot_id=snapshot_id, masked=masked)
        return cls.of_scan(located, scan, columns)

    @classmethod
    def of_scan(
        cls, located: LocatedTable, scan: EncryptedDataScan | EncryptedIncrementalAppendScan, columns: Sequence[str] | None
    ) -> PlannedRead:
        """Plan a scan of the located table whose selected fields are `columns`.

        Raises:
            ColumnKeyDeniedError: values of a protected column are needed that this user may not see.
        """
        located, projected = located.read_by(scan.table_metadata), ordered_projection(scan, columns)
        filtered = extract_field_ids(bind(located.table.schema(), scan.row_filter, case_sensitive=scan.case_sensitive))
        # Spark is refused conditions on masks, or has to ask for them: see masked_columns.py.
        masked = scan.masked or MASK
        readable = readable_columns(located.table, projected, filtered, masked)
        tasks = scan.plan_files()
        return cls(located, projected, scan.row_filter, tasks, masked, readable)


def readable_columns(table: EncryptedTable, projected: Schema, filtered: set[int], masked: str) -> frozenset[int]:
    """Return the field ids of the protected columns that a read needs and whose values it may show.

    Args:
        table: what is read.
        projected: the columns of the result.
        filtered: field ids that filters look at.
        masked: `mask`, or `error` for a read that needs values.

    Raises:
        ColumnKeyDeniedError: values are needed that this user may not see.
    """
    return opened_columns(table.metadata, table.io, projected, filtered, masked)


def ordered_projection(scan: EncryptedDataScan | EncryptedIncrementalAppendScan, columns: Sequence[str] | None) -> Schema:
    """Return the scan's columns in the order in which they were asked for; PyIceberg keeps the table's order."""
    projected = scan.projection()
    if columns is None:
        return projected

    asked = [name.partition(".")[0] for name in columns]
    order = {name: position for position, name in reversed(list(enumerate(asked)))}
    # A name may have come in another case; such columns stay behind in the table's order.
    fields = sorted(projected.fields, key=lambda field: order.get(field.name, len(order)))

    return Schema(*fields, schema_id=projected.schema_id)
