"""Scans of encrypted tables: PyIceberg's DataScan and IncrementalAppendScan, planned and read by this package.

A scan's filters, projection, limit, snapshot and case sensitivity mean what they mean in PyIceberg, and results have the same types. Beside
the table's columns, `_row_id` and `_last_updated_sequence_number` can be selected by name; `*` does not include them.

What a catalog's server restricts is left out and masked in every result (read_restrictions.py). Protected columns whose keys the reader may
not use are masked or refused, as `masked` says (protection/visible_columns.py). Where it says nothing,

    rows      to_arrow, to_arrow_batch_reader, to_pandas                        show masks
    engines   to_arrow_dataset, to_duckdb, to_polars, to_ray, the PyCapsule     refuse these columns: an engine evaluates conditions, joins
              stream, and what Polars reads through a scan of its own           and groups of its own on what it gets

Raises PlaintextRefusedError, TamperedFileError, AuthenticationError, FormatError or KmsError, naming the file; no row of a file that fails
is in a result, and `to_arrow` returns nothing at all then.

Iceberg table spec, "Scan Planning", "Row Lineage".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, cast

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import BaseScan, DataScan, FileScanTask, IncrementalAppendScan
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_between_ids
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.types import NestedField
from pyiceberg.utils.concurrent import ExecutorFactory

from tablecrypt._per_process import PerProcess
from tablecrypt.arguments import check_switches, described
from tablecrypt.errors import ConfigurationError, MissingExtraError
from tablecrypt.files.encrypting_file_io import encrypting_io, is_local, read_restrictions_of, refuse_restricted
from tablecrypt.manifests.avro_columns import Mask
from tablecrypt.manifests.entries import Column, Entries
from tablecrypt.manifests.records import partition_values
from tablecrypt.properties import MASKED_READS
from tablecrypt.setting_kinds import one_of
from tablecrypt.table._pyiceberg.scans import IncrementalAppendScanAdapter
from tablecrypt.table.datasets.castable import cast_batch
from tablecrypt.table.datasets.dataset import EncryptedDataset
from tablecrypt.table.filters import fitted, names_in
from tablecrypt.table.foreign_engines import ScanForOthers
from tablecrypt.table.lineage import LINEAGE_FIELDS, ROW_ID, with_lineage
from tablecrypt.table.metadata import readable_at
from tablecrypt.table.planning import EncryptedFileScanTask, PlanCounts, ScanPlanner, listed_manifests
from tablecrypt.table.protection.policy import check_names_in
from tablecrypt.table.protection.visible_columns import ERROR, MASK, refuse_masks_to_engine
from tablecrypt.table.reader import READ_AHEAD, ReadOptions, TaskReader, prefetched, rows_of_file

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection

    from tablecrypt.table.datasets.engine_read import DatasetScan

_MOST_ROWS: Final = 2**63 - 1
Scan: TypeAlias = DataScan | IncrementalAppendScan
_CONFIGURED_WORKERS: Final = PerProcess(ExecutorFactory.max_workers)
"""What PyIceberg's configuration says of it, or None. Its file is parsed at each look; PyIceberg's own executor looks once, too."""
_WORKERS_FOR_TABLE: Final = 6
_WORKERS: Final = 3
_QUEUE_LENGTH: Final = 4
_READ_AHEAD: Final = 64 * 1024 * 1024
"""A stream reads this many files at once, of each this many bytes ahead (or one row group), and keeps this many batches of each waiting."""


class _ReadByEngines(ScanForOthers, BaseScan):
    """A scan whose rows engines read with their own columns and filters.

    Attributes:
        masked: what the caller or the catalog wants done about protected columns whose keys the reader may not use: `mask` or `error`.
            None: neither has said so.
    """

    masked: str | None = None

    def update(self, **overrides: Any) -> Self:
        """Return the scan with other arguments; `masked` may be among them."""
        if (masked := overrides.pop("masked", self.masked)) is not None:
            masked = one_of("masked", masked, (MASK, ERROR))
        updated = super().update(**overrides)
        updated.masked = masked
        return updated

    def for_engine(self) -> Self:
        """Return the scan as an engine reads all its columns.

        Raises:
            ColumnKeyDeniedError: one of them would be masked, and masks were not asked for.
        """
        # Masks were asked for by name: an engine that joins on them does what the caller wanted.
        if self.masked == MASK:
            return self
        refuse_masks_to_engine(self.table_metadata, encrypting_io(self.io), cast("DatasetScan", self).projection())
        return self.update(masked=ERROR)

    def to_arrow_dataset(self) -> EncryptedDataset:
        """Return the rows as a pyarrow dataset, for DuckDB, Polars, DataFusion and Arrow. Nothing is read before one asks for rows.

        A read that takes a column which would be masked is refused, unless the scan was asked for masks.
        """
        return EncryptedDataset(cast("DatasetScan", self))

    def to_polars(self) -> pl.DataFrame:
        """Read all rows into a DataFrame of Polars. Raises as `for_engine`."""
        return super(_ReadByEngines, self.for_engine()).to_polars()

    def to_ray(self) -> Any:
        """Read all rows into a Dataset of Ray. Raises as `for_engine`."""
        return super(_ReadByEngines, self.for_engine()).to_ray()

    def to_duckdb(self, table_name: str, connection: DuckDBPyConnection | None = None) -> DuckDBPyConnection:
        """Register the rows in DuckDB, which reads what each query takes of them; return the connection.

        A query that takes a column which would be masked fails with the text of a ColumnKeyDeniedError, unless masks were asked for.

        Args:
            table_name: what queries call them.
            connection: None: a new one, in memory, in which a query that needs temporary files fails.

        Raises:
            ConfigurationError: there are no columns to register.
            MissingExtraError: DuckDB is not installed.
        """
        if not cast("DatasetScan", self).projection().fields:
            raise ConfigurationError("DuckDB reads at least one column, and this scan has none: add one to the table")

        try:
            import duckdb
        except ImportError as error:
            raise MissingExtraError.named("to_duckdb() needs DuckDB", "duckdb") from error

        # DuckDB would write what memory does not hold to files in the clear.
        connected = duckdb.connect(config={"temp_directory": ""}) if connection is None else connection
        connected.register(table_name, self.to_arrow_dataset())

        return connected

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as a stream, by Arrow's PyCapsule interface. The consumer may be an engine: raises as `for_engine`."""
        return self.to_arrow_dataset().scanner().to_reader().__arrow_c_stream__(requested_schema)


class EncryptedDataScan(_ReadByEngines, DataScan):
    """A scan of one snapshot of an encrypted table.

    Attributes:
        as_now: whether the snapshot is read with the columns that the table has now, as the head of a branch is; any other has its own.
    """

    def __init__(self, *args: Any, as_now: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        self.as_now = as_now
        _check_limit(self.limit)
        _check_options(self.options)
        check_switches(case_sensitive=self.case_sensitive)
        given, at = self.table_metadata, readable_at(self.table_metadata, self.snapshot_id, as_now=as_now)
        self._shown = at.schema()
        # A server restricts its readers by the columns that the table has now, whatever a snapshot calls them.
        if at is not given and read_restrictions_of(self.io) is not None:
            at = readable_at(given, self.snapshot_id, as_now=True)
            _check_named_alike(self.row_filter, self._shown, at.schema(), self.case_sensitive)
        self.table_metadata = at
        self.row_filter = fitted(self.row_filter, self.table_metadata.schema(), self.case_sensitive)

    # `update` makes a scan of the parameters that it finds in the signature.
    __init__.__wrapped__ = DataScan.__init__  # type: ignore[attr-defined]

    def update(self, **overrides: Any) -> Self:
        """Return the scan with other arguments; `masked` and `as_now` may be among them."""
        return super().update(**{"as_now": self.as_now, **overrides})

    def use_ref(self, name: str) -> Self:
        """Return the scan of a branch, with the columns that the table has now, or of a tag, with those of its snapshot."""
        ref = self.table_metadata.refs.get(name)
        as_now = ref is not None and ref.snapshot_ref_type == SnapshotRefType.BRANCH
        return super(EncryptedDataScan, self.update(as_now=as_now)).use_ref(name)

    def projection(self) -> Schema:
        """Return the selected columns: the table's in the table's order, then lineage columns, where the table has none of the name."""
        lineage = self._selected_lineage()
        if not lineage:
            return self._own_projection()
        own = tuple(name for name in self.selected_fields if self._folded(name) not in lineage)
        schema = self.update(selected_fields=own)._own_projection() if own else Schema()
        return with_lineage(schema, tuple(lineage.values()))

    def _selected_lineage(self) -> dict[str, NestedField]:
        """Return the lineage columns that are selected, by name. A name that the schema has is its column's, here as in filters."""
        selected = {self._folded(name) for name in self.selected_fields}
        lineage = {field.name: field for field in LINEAGE_FIELDS if field.name in selected}
        if not lineage:
            return {}

        taken = {self._folded(name) for name in self._shown.column_names}
        return {name: field for name, field in lineage.items() if name not in taken}

    def _folded(self, name: str) -> str:
        return name if self.case_sensitive else name.lower()

    def _own_projection(self) -> Schema:
        snapshot = None if self.snapshot_id is None else self.snapshot()
        if self.snapshot_id is not None and snapshot is None:
            raise ValueError(f"Snapshot not found: {self.snapshot_id}")
        every = "*" in self.selected_fields
        projected = self._shown if every else self._shown.select(*self.selected_fields, case_sensitive=self.case_sensitive)
        # The current schema's names are checked where values are read, and with them those of what a filter looks at.
        if snapshot is not None and not self.as_now:
            check_names_in(self.table_metadata, snapshot, projected)
        return projected

    def rows_matching(self, task: FileScanTask, columns: Schema) -> pa.RecordBatchReader:
        """Return the live rows of one data file that match the filter, in these columns, to be written again as they are read.

        Raises:
            ReadRestrictionError: the table's reader is restricted.
            ColumnKeyDeniedError: one of the columns, or of the filter's, may not be read.
        """
        refuse_restricted(self.io, "writing rows of the table again")
        return rows_of_file(self.reader_of(columns, READ_AHEAD).batches(task), columns)

    def reader_of(self, projected: Schema, read_ahead: int | None = None) -> TaskReader:
        """Return a reader of the scan's tasks with its filter, in other columns. What this reader may not see is an error, never masked.

        Args:
            projected: the columns.
            read_ahead: as `ReadOptions` has it.
        """
        return _reader(self.update(masked=ERROR), projected, (), read_ahead)

    def matching_positions(self, task: FileScanTask) -> pa.ChunkedArray:
        """Return where the rows lie in one data file that a delete by the filter takes. Only the filter's columns are read."""
        return _reader(self, Schema(ROW_ID), (), None).matching_positions(task)

    def task_batches(self) -> Iterator[list[EncryptedFileScanTask]]:
        """Yield a task for each data file that may hold matching rows, as manifests are read. Planned here, never by the catalog."""
        return self._task_batches(PlanCounts())

    def counted_tasks(self, counts: PlanCounts, of_partitions: Mapping[int, BooleanExpression]) -> list[EncryptedFileScanTask]:
        """Return the scan's tasks, and add to the counts what planning looked at.

        Args:
            counts: takes them.
            of_partitions: by the spec's id, a filter of partition values that has to match besides the scan's own filter.
        """
        return [task for tasks in self._task_batches(counts, of_partitions) for task in tasks]

    def _task_batches(
        self, counts: PlanCounts, of_partitions: Mapping[int, BooleanExpression] = EMPTY_DICT
    ) -> Iterator[list[EncryptedFileScanTask]]:
        snapshot = self.snapshot()
        planner = _planner(self, of_partitions)
        return iter(()) if snapshot is None else planner.planned_batches(listed_manifests(snapshot, self.io), counts=counts)

    def to_arrow(self, dictionary_columns: tuple[str, ...] = ()) -> pa.Table:
        """Read all rows into an Arrow table.

        Args:
            dictionary_columns: columns to return as Arrow dictionaries, where they come from Parquet files.
        """
        return read_table(self, planned_ahead(self), dictionary_columns)

    def to_arrow_batch_reader(self, dictionary_columns: tuple[str, ...] = ()) -> pa.RecordBatchReader:
        """Return a reader that yields rows as manifests and files are read, a few files and batches ahead."""
        return read_stream(self, planned_ahead(self), dictionary_columns)

    def count(self) -> int:
        """Return the number of rows, at most the limit. Files that match whole and have no deletes are counted by their manifest entry."""
        reader, executor = _reader(self, Schema(), (), None), ExecutorFactory.get_or_create()
        rows = 0
        for tasks in self.task_batches():
            to_read = list[FileScanTask]()
            for task in tasks:
                if counts_whole(self, task):
                    rows += task.file.record_count
                else:
                    to_read.append(task)
            rows += sum(executor.map(lambda task: sum(len(batch) for batch in reader.batches(task)), to_read))
            if self.limit is not None and rows >= self.limit:
                return int(self.limit)

        return rows


class EncryptedIncrementalAppendScan(_ReadByEngines, IncrementalAppendScanAdapter):
    """A scan of the rows that append snapshots added between two snapshots of an encrypted table."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        _check_limit(self.limit)
        _check_options(self.options)
        check_switches(case_sensitive=self.case_sensitive)
        self.row_filter = fitted(self.row_filter, self.table_metadata.schema(), self.case_sensitive)

    # `update` makes a scan of the parameters that it finds in the signature.
    __init__.__wrapped__ = IncrementalAppendScan.__init__  # type: ignore[attr-defined]

    def task_batches(self) -> Iterator[list[EncryptedFileScanTask]]:
        """Yield a task for each data file that an append in the range added, as manifests are read."""
        snapshots = {snapshot.snapshot_id: snapshot for snapshot in self._append_snapshots()}

        def added_here(manifest: ManifestFile) -> bool:
            return manifest.content == ManifestContent.DATA and manifest.added_snapshot_id in snapshots

        def added_entry(entries: Entries) -> Mask:
            # A later rewrite of manifests lists the same files as existing: only the snapshot that added a file counts.
            added: Mask = entries.numbers[Column.STATUS] == ManifestEntryStatus.ADDED
            return added & np.isin(entries.numbers[Column.SNAPSHOT_ID], list(snapshots))

        # Each once, the newest first: in a set, rows would come in another order each time.
        manifests = dict.fromkeys(
            manifest for snapshot in snapshots.values() for manifest in listed_manifests(snapshot, self.io) if added_here(manifest)
        )

        return _planner(self).planned_batches(manifests, added_entry)

    def to_arrow(self) -> pa.Table:
        """Read all rows into an Arrow table."""
        return read_table(self, planned_ahead(self), ())

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """Return a reader that yields rows as manifests and files are read."""
        return read_stream(self, planned_ahead(self), ())

    def _append_snapshots(self) -> list[Snapshot]:
        if self.from_snapshot_id is None and self.to_snapshot_id is None and self.table_metadata.current_snapshot() is None:
            return []
        from_exclusive, to_inclusive = self.snapshot_range()
        ancestors = ancestors_between_ids(
            from_snapshot_id_exclusive=from_exclusive, to_snapshot_id_inclusive=to_inclusive, table_metadata=self.table_metadata
        )
        return [each for each in ancestors if each.summary is not None and each.summary.operation == Operation.APPEND]


def planned_ahead(scan: ScanForOthers) -> Iterator[EncryptedFileScanTask]:
    """Return a scan's tasks as manifests are read, the first of them now.

    Raises:
        As ScanPlanner.plan_files: now, where the filter does not fit or the first manifests cannot be read; of others where their tasks
        would be.
    """
    batches = scan.task_batches()
    return itertools.chain(next(batches, ()), itertools.chain.from_iterable(batches))


def read_table(scan: Scan, tasks: Iterable[FileScanTask], dictionary_columns: tuple[str, ...] = ()) -> pa.Table:
    """Read the tasks of a scan into an Arrow table, in parallel."""
    scan = _as_its_reader_sees_it(scan)
    projected = scan.projection()
    if scan.limit is not None:
        batches: Iterable[pa.RecordBatch] = _limited(_stream(scan, projected, tasks, dictionary_columns), scan.limit)
    else:
        listed = list(tasks)
        sources = _reader(scan, projected, dictionary_columns, None).sources(listed)
        batches = prefetched(sources, _CONFIGURED_WORKERS.get() or _workers_for(listed), None)

    return _table(batches, projected)


def read_stream(scan: Scan, tasks: Iterable[FileScanTask], dictionary_columns: tuple[str, ...]) -> pa.RecordBatchReader:
    """Read the tasks of a scan as a stream, in order, with bounded memory."""
    scan = _as_its_reader_sees_it(scan)
    projected = scan.projection()
    batches = _stream(scan, projected, tasks, dictionary_columns)
    if scan.limit is not None:
        batches = _limited(batches, scan.limit)
    schema = schema_to_pyarrow(projected)
    if dictionary_columns and (first := next(batches, None)) is not None:
        batches = itertools.chain([first], batches)
        schema = pa.schema([first.schema.field(field.name) if field.name in dictionary_columns else field for field in schema])
    return pa.RecordBatchReader.from_batches(schema, (cast_batch(each, schema) for each in batches))


def _as_its_reader_sees_it(scan: Scan) -> Scan:
    return scan.for_engine() if isinstance(scan, _ReadByEngines) and scan.is_for_an_engine else scan


def _workers_for(tasks: Sequence[FileScanTask]) -> int:
    """How many files are read at once into a table: those of a store hide each other's delays, local ones only share the cores."""
    if all(is_local(task.file.file_path) for task in tasks):
        return int(min(_WORKERS_FOR_TABLE, max(2, pa.cpu_count())))
    return _WORKERS_FOR_TABLE


def counts_whole(scan: Scan, task: FileScanTask) -> bool:
    """Whether every row of a task's file is among those of its scan, so that none has to be read to count them."""
    # The entry counts rows that restrictions or deletes take away: such a file has to be read.
    if read_restrictions_of(scan.io) is not None or task.delete_files or not isinstance(task.residual, AlwaysTrue):
        return False
    # Of a partition that is null, PyIceberg's residual says that it differs from any value; reading says that this is not known.
    return isinstance(scan.row_filter, AlwaysTrue) or None not in partition_values(task.file.partition)


def _stream(scan: Scan, projected: Schema, tasks: Iterable[FileScanTask], dictionary_columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    reader = _reader(scan, projected, dictionary_columns, _READ_AHEAD)
    return prefetched(reader.sources(tasks), _WORKERS, _QUEUE_LENGTH)


def _table(batches: Iterable[pa.RecordBatch], projected: Schema) -> pa.Table:
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    if not tables:
        # Arrow's own empty_table() makes no column with uuids in lists, maps or structs.
        return pa.Table.from_batches([], schema_to_pyarrow(projected, include_field_ids=False))
    # Files may hold the same column as string or large_string, which only the permissive mode puts into one.
    return pa.concat_tables(tables, promote_options="permissive")


def _check_named_alike(row_filter: BooleanExpression, shown: Schema, now: Schema, case_sensitive: bool) -> None:
    """Raise ConfigurationError where a filter on columns that are shown would look at other ones by the names of now."""
    for name in names_in(row_filter):
        if shown.find_field(name, case_sensitive).field_id != now.find_field(name, case_sensitive).field_id:
            raise ConfigurationError(
                f"the filter names {name!r}, which is another column now than in this snapshot, and the catalog's server restricts what "
                "this user reads by the columns of now: leave the filter out, and filter the rows that are read"
            )


def _check_options(options: object) -> None:
    # Nothing reads it there: the caller would get masks where they were to be refused, or the other way round.
    if isinstance(options, Mapping) and MASKED_READS.name in options:
        raise ConfigurationError(f"{MASKED_READS.name} is no option of a scan, but a property of catalogs: give masked='mask' or 'error'")


def _check_limit(limit: object) -> None:
    if limit is None:
        return
    if isinstance(limit, bool) or not isinstance(limit, Integral):
        raise ConfigurationError(f"limit is {described(limit)}; it must be a whole number, or None for all rows")
    # Elsewhere -1 means all rows: whoever writes it would take a table with rows for an empty one.
    if limit < 0:
        raise ConfigurationError(f"limit is {limit}; it must be 0 or more, or None for all rows")


def _limited(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    left = min(limit, _MOST_ROWS)
    if left <= 0:
        return

    for batch in batches:
        yield batch.slice(0, left)
        left -= len(batch)
        if left <= 0:
            return


def _planner(scan: Scan, of_partitions: Mapping[int, BooleanExpression] = EMPTY_DICT) -> ScanPlanner:
    return ScanPlanner(scan.table_metadata, scan.io, scan.row_filter, scan.case_sensitive, scan.options, of_partitions)


def _reader(scan: Scan, projected: Schema, dictionary_columns: tuple[str, ...], read_ahead: int | None) -> TaskReader:
    masked = (scan.masked or MASK) if isinstance(scan, _ReadByEngines) else ERROR
    options = ReadOptions(scan.case_sensitive, dictionary_columns, read_ahead, masked)
    return TaskReader(scan.table_metadata, encrypting_io(scan.io), projected, scan.row_filter, options)
