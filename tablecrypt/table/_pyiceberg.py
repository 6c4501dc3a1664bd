"""Every private name of PyIceberg 0.12 that tablecrypt touches, and nothing else. The dependency is pinned to this minor version.

Names used as they are (re-exported below under a public spelling):

    _apply_table_update, _TableMetadataUpdateContext     registering our update types with PyIceberg's dispatch
    _DeleteFiles, _FastAppendFiles, _MergeAppendFiles,   which manifests a snapshot keeps, rewrites or drops is PyIceberg's to decide;
      _OverwriteFiles                                    how manifests and lists are written is ours
    _new_manifest_list_file_name                         the same file names as PyIceberg's
    _check_pyarrow_schema_compatible,                    what PyIceberg accepts as a DataFrame and as a filter, we accept
      _expression_to_complementary_pyarrow, _parse_row_filter
    _get_column_projection_values                        identity-partition columns as PyIceberg reads them
    _determine_partitions, _get_parquet_writer_kwargs    the same partitions and write.parquet.* options as PyIceberg's writer
    _InclusiveMetricsEvaluator                           which data files a filter's statistics rule out

Hooks overridden or called through the seam classes below, which give each a public name:

    _SnapshotProducer: _commit, _manifests, _process_manifests, _io, _transaction, _snapshot_id, _parent_snapshot_id, _target_branch,
      _compression, _written_manifest_lists, _written_manifests, _added_data_files, _deleted_data_files, _isolation_operation,
      _starting_snapshot_id, _manifest_num_counter
    UpdateSnapshot: _transaction, _io, _branch, _snapshot_properties
    Transaction: _apply, _rebuild_snapshot_updates, _scan, _table, _updates, _append_snapshot_producer, _build_partition_predicate,
      _find_referenced_data_files;  CreateTableTransaction: _initial_changes;  Table: _identifier
    ArrowProjectionVisitor: _cast_if_needed, _construct_field
    MetastoreCatalog: _update_and_stage_table, _write_metadata, _empty_table_metadata, _load_file_io, _create_staged_table
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeVar

import pyarrow as pa
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator as InclusiveMetricsEvaluator
from pyiceberg.io import FileIO
from pyiceberg.io.fileformat import FileFormatModel
from pyiceberg.io.pyarrow import ArrowAccessor, ArrowProjectionVisitor
from pyiceberg.io.pyarrow import _check_pyarrow_schema_compatible as check_pyarrow_schema_compatible
from pyiceberg.io.pyarrow import _determine_partitions as determine_partitions
from pyiceberg.io.pyarrow import _expression_to_complementary_pyarrow as expression_to_complementary_pyarrow
from pyiceberg.io.pyarrow import _get_column_projection_values as column_projection_values
from pyiceberg.io.pyarrow import _get_parquet_writer_kwargs as parquet_writer_kwargs
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.schema import Schema, visit_with_partner
from pyiceberg.table import ALWAYS_TRUE, CreateTableTransaction, DataScan, StagedTable, Table, Transaction
from pyiceberg.table import _parse_row_filter as parse_row_filter
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import TableRequirement, TableUpdate, UpdatesAndRequirements
from pyiceberg.table.update import _apply_table_update as apply_table_update
from pyiceberg.table.update import _TableMetadataUpdateContext as TableMetadataUpdateContext
from pyiceberg.table.update.snapshot import _DeleteFiles as DeleteFiles
from pyiceberg.table.update.snapshot import _FastAppendFiles as FastAppendFiles
from pyiceberg.table.update.snapshot import _MergeAppendFiles as MergeAppendFiles
from pyiceberg.table.update.snapshot import _new_manifest_list_file_name as new_manifest_list_file_name
from pyiceberg.table.update.snapshot import _OverwriteFiles as OverwriteFiles
from pyiceberg.table.update.snapshot import UpdateSnapshot, _SnapshotProducer
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties, Record
from pyiceberg.types import ListType, MapType

__all__ = [
    "CreateTransactionSeam",
    "DeleteFiles",
    "FastAppendFiles",
    "InclusiveMetricsEvaluator",
    "MergeAppendFiles",
    "MetastoreCatalogSeam",
    "OverwriteFiles",
    "ProducerSeam",
    "TableMetadataUpdateContext",
    "TransactionSeam",
    "UpdateSnapshotSeam",
    "apply_table_update",
    "check_pyarrow_schema_compatible",
    "column_projection_values",
    "determine_partitions",
    "expression_to_complementary_pyarrow",
    "new_manifest_list_file_name",
    "parquet_writer_kwargs",
    "parse_row_filter",
    "table_identifier",
    "to_requested_schema",
]


class ProducerSeam(_SnapshotProducer[Any]):
    """A snapshot producer whose private hooks have public names: `produce` and `finish_manifests` are ours to fill in."""

    @abstractmethod
    def produce(self) -> UpdatesAndRequirements:
        """Write manifests and manifest list of one attempt and return what the catalog has to do."""

    def finish_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        """Change the list of manifests before it is written."""
        return manifests

    def _commit(self) -> UpdatesAndRequirements:
        if isinstance(self, DeleteFiles) and not self.files_affected:
            return (), ()
        return self.produce()

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        return super()._process_manifests(self.finish_manifests(manifests))

    def collect_manifests(self) -> list[ManifestFile]:
        """Return every manifest of the new snapshot, new ones written."""
        return self._manifests()

    def next_manifest_location(self) -> str:
        """Return the location of the next manifest, remembered for removal should the attempt be abandoned."""
        location = self.transaction_table.location_provider().new_metadata_location(
            f"{self.commit_uuid}-m{next(self._manifest_num_counter)}.avro"
        )
        self._written_manifests.append(location)
        return location

    def next_manifest_list_location(self) -> str:
        """Return the location of this attempt's manifest list, remembered likewise."""
        name = new_manifest_list_file_name(snapshot_id=self._snapshot_id, attempt=0, commit_uuid=self.commit_uuid)
        location = self.transaction_table.location_provider().new_metadata_location(name)
        self._written_manifest_lists.append(location)
        return location

    def continue_from(self, other: ProducerSeam) -> None:
        """Validate this change from where another one of the same transaction began."""
        self._starting_snapshot_id = other._starting_snapshot_id

    def isolate_as(self, operation: Operation) -> None:
        """Check concurrent changes as this operation's isolation level says."""
        self._isolation_operation = operation

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


P = TypeVar("P", bound=ProducerSeam)


class UpdateSnapshotSeam(UpdateSnapshot):
    """Hands out snapshot producers of our own classes."""

    def producer(self, producer_class: type[P], operation: Operation) -> P:
        """Return a producer for the transaction, branch and properties that this was made for."""
        return producer_class(
            operation=operation,
            transaction=self._transaction,
            io=self._io,
            branch=self._branch,
            snapshot_properties=self._snapshot_properties,
        )

    @property
    def is_first_snapshot(self) -> bool:
        """Whether the branch has no snapshot yet."""
        return self._transaction.table_metadata.snapshot_by_name(self._branch) is None


class TransactionSeam(Transaction):
    """A transaction whose private hooks have public names."""

    @abstractmethod
    def new_scan(self, row_filter: str | BooleanExpression, case_sensitive: bool) -> DataScan:
        """Return a scan of the table as the transaction has staged it."""

    @abstractmethod
    def belongs_to_attempt(self, update: TableUpdate) -> bool:
        """Whether a staged update goes when a commit attempt is abandoned, beside those that PyIceberg drops itself."""

    def _scan(self, row_filter: str | BooleanExpression = ALWAYS_TRUE, case_sensitive: bool = True) -> DataScan:
        return self.new_scan(row_filter, case_sensitive)

    def _rebuild_snapshot_updates(self) -> None:
        self._updates = tuple(update for update in self._updates if not self.belongs_to_attempt(update))
        super()._rebuild_snapshot_updates()

    def apply(self, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...] = ()) -> Transaction:
        """Stage updates, and commit them at once where the transaction commits by itself."""
        return self._apply(updates, requirements)

    def append_producer(self, snapshot_properties: dict[str, str], branch: str | None) -> FastAppendFiles:
        """Return a fast or a merge append, as the table's properties say."""
        return self._append_snapshot_producer(snapshot_properties, branch=branch)

    def partition_predicate(self, partitions: set[Record], fields: list[str]) -> BooleanExpression:
        """Return a filter that matches exactly these partitions."""
        return self._build_partition_predicate(partition_records=partitions, partition_fields=fields)

    def already_referenced(self, file_paths: list[str]) -> list[str]:
        """Return those of the paths that the current snapshot references."""
        return self._find_referenced_data_files(file_paths)

    @property
    def table(self) -> Table:
        """The table that is being changed."""
        return self._table


class CreateTransactionSeam(CreateTableTransaction):
    """A creating transaction that may exchange the updates which PyIceberg stages first."""

    def initial_update(self, update: TableUpdate) -> TableUpdate:
        """Return the update to stage in place of one of PyIceberg's own."""
        return update

    def _initial_changes(self, table_metadata: TableMetadata) -> None:
        super()._initial_changes(table_metadata)
        self._updates = tuple(self.initial_update(update) for update in self._updates)


class MetastoreCatalogSeam(MetastoreCatalog):
    """A catalog that keeps its own compare-and-swap while the metadata that it swaps in is ours."""

    @abstractmethod
    def stage_commit(
        self,
        current: Table | None,
        identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        """Return the table as the commit will leave it."""

    @staticmethod
    @abstractmethod
    def metadata_to_write(metadata: TableMetadata) -> TableMetadata:
        """Return the metadata in the class that is written to metadata.json."""

    def stage_as_pyiceberg(
        self,
        current: Table | None,
        identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        """Stage a commit the way PyIceberg's own catalog does."""
        return super()._update_and_stage_table(current, identifier, requirements, updates)

    def stage_new_table(self, *args: Any, **kwargs: Any) -> StagedTable:
        """Return a new table as PyIceberg makes it, not committed."""
        return self._create_staged_table(*args, **kwargs)

    def load_file_io(self, properties: Properties, location: str) -> FileIO:
        """Return the catalog's FileIO for a location."""
        return self._load_file_io(properties=properties, location=location)

    def empty_metadata_fields(self) -> dict[str, Any]:
        """Return the fields of metadata from which a table is built by updates alone."""
        return dict(self._empty_table_metadata())

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        return self.stage_commit(current_table, table_identifier, requirements, updates)

    @classmethod
    def _write_metadata(cls, metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        MetastoreCatalog._write_metadata(cls.metadata_to_write(metadata), io, metadata_path)


class NullKeepingProjection(ArrowProjectionVisitor):
    """PyIceberg's projection of Arrow data onto a schema, which turns null lists and maps of structs into empty ones; this keeps them null."""

    def list(self, list_type: ListType, list_array: pa.Array | None, value_array: pa.Array | None) -> pa.Array | None:
        """Return the list array with its elements projected."""
        if value_array is None or not isinstance(list_array, (pa.ListArray, pa.LargeListArray)):
            return super().list(list_type, list_array, value_array)
        values = self._cast_if_needed(list_type.element_field, value_array)
        element = self._construct_field(list_type.element_field, values.type)
        is_large = isinstance(list_array, pa.LargeListArray)
        return (pa.LargeListArray if is_large else pa.ListArray).from_arrays(
            _offsets_from_zero(list_array),
            values,
            type=pa.large_list(element) if is_large else pa.list_(element),
            mask=list_array.is_null(),
        )

    def map(
        self, map_type: MapType, map_array: pa.Array | None, key_result: pa.Array | None, value_result: pa.Array | None
    ) -> pa.Array | None:
        """Return the map array with its keys and values projected."""
        if not isinstance(map_array, pa.MapArray) or key_result is None or value_result is None:
            return None
        keys = self._cast_if_needed(map_type.key_field, key_result)
        values = self._cast_if_needed(map_type.value_field, value_result)
        key, value = self._construct_field(map_type.key_field, keys.type), self._construct_field(map_type.value_field, values.type)
        return pa.MapArray.from_arrays(
            _offsets_from_zero(map_array), keys, values, type=pa.map_(key, value), mask=map_array.is_null()
        )


def _offsets_from_zero(array: pa.Array) -> pa.Array:
    # Arrow takes no null mask beside a slice of offsets, so the offsets of a sliced array are copied.
    return array.offsets if array.offset == 0 else pa.array(array.offsets.to_numpy())


def to_requested_schema(
    requested_schema: Schema,
    file_schema: Schema,
    batch: pa.RecordBatch,
    downcast_ns_timestamp_to_us: bool = False,
    include_field_ids: bool = False,
    projected_missing_fields: dict[int, Any] = EMPTY_DICT,
    allow_timestamp_tz_mismatch: bool = False,
    format_model: FileFormatModel | None = None,
) -> pa.RecordBatch:
    """Return a batch read from a file, or given to be written, in the columns and types of another schema, matched by field id.

    Args:
        requested_schema: what comes out: columns missing in the batch become their default or null.
        file_schema: the batch's own columns with their field ids.
        downcast_ns_timestamp_to_us: whether nanoseconds may be cut to microseconds.
        include_field_ids: whether the Arrow fields carry their ids, as a file writer needs them; then with `format_model`.
        projected_missing_fields: values of columns that only the file's partition gives.
        allow_timestamp_tz_mismatch: whether UTC timestamps may be read as timestamps without zone.
    """
    visitor = NullKeepingProjection(
        file_schema,
        downcast_ns_timestamp_to_us,
        include_field_ids,
        projected_missing_fields=projected_missing_fields,
        allow_timestamp_tz_mismatch=allow_timestamp_tz_mismatch,
        format_model=format_model,
    )
    return pa.RecordBatch.from_struct_array(visit_with_partner(requested_schema, batch, visitor, ArrowAccessor(file_schema)))


def table_identifier(table: Table) -> Identifier:
    """Return the identifier under which a table was loaded."""
    return table._identifier
