"""One read of a scan's rows by an engine: its columns and its filter, over all data files or some of them.

    scan, and the engine's filter ──▶ manifests and files that may match ──▶ each file is opened, a few at once, and is either

    native            Parquet without deletes, whose stored columns are those that the read takes: same field ids, names and types.
                      Arrow scans the files of a group together, each by a format of its own that carries its decryption properties.
    backed by a task  deletes, defaults, renamed or promoted columns, row lineage, Avro, read restrictions: the rows that the scan itself
                      would give (tablecrypt.table.reader), and the engine's filter after that.

Opening a file checks its trusted length, both magics, AES_GCM_V1 and that every column is under the file's key; its pages authenticate
while Arrow reads them. So no row comes from bytes that did not authenticate, in whichever engine.

At most a few files are open at once, of which Arrow's scanner reads two, each as far ahead as it does by itself.

Raises TamperedFileError, PlaintextRefusedError, FormatError or KmsError, naming the file, in the place of its first batch that failed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs
from pyiceberg.expressions import And, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE, FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.concurrent import ExecutorFactory

from tablecrypt._store_errors import is_store_error
from tablecrypt.errors import ConfigurationError, TablecryptError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, encrypting_io, read_restrictions_of
from tablecrypt.parquet.uniform import ReadRequest, UniformParquetFile
from tablecrypt.table.datasets.castable import cast_batch
from tablecrypt.table.datasets.engine_filter import EngineFilter
from tablecrypt.table.filters import RowFilter
from tablecrypt.table.lineage import LINEAGE_FIELD_IDS
from tablecrypt.table.metadata import has_column_keys
from tablecrypt.table.protection.visible_columns import ERROR, MASK, protected_in, refuse_masks_to_engine, visible_columns
from tablecrypt.table.reader import ReadOptions, TaskReader, prefetched

Columns: TypeAlias = list[str] | dict[str, pc.Expression] | None
"""As pyarrow's datasets take them: names, or expressions by the name of what they make; None for all columns."""

FILES_OPEN: Final = 16
"""So many files are opened and scanned together, while as many are opened ahead."""
_SCANNED_AT_ONCE: Final = 2
"""Arrow decodes so many files at once. Each more takes some 60 MB, and local ones are read no faster for it."""
_WORKERS: Final = 3
_QUEUE_LENGTH: Final = 4
_READ_AHEAD: Final = 64 * 1024 * 1024


class DatasetScan(Protocol):
    """What a read takes of a scan."""

    table_metadata: TableMetadata
    row_filter: BooleanExpression
    case_sensitive: bool
    limit: int | None
    masked: str | None

    @property
    def io(self) -> FileIO:
        """The table's EncryptingFileIO."""

    def projection(self) -> Schema:
        """The columns of its rows."""

    def task_batches(self) -> Iterable[Iterable[FileScanTask]]:
        """A task for each data file that may hold matching rows, as manifests are read."""

    def update(self, **overrides: Any) -> DatasetScan:
        """The scan with other arguments."""

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """Its rows."""


def check_filtered(scan: DatasetScan, names: set[str] | None) -> None:
    """Refuse an engine's filter on masked columns, which the engine would evaluate on masks.

    Args:
        scan: of the table.
        names: of the top-level columns of the scan that the filter looks at; None where that is not known.

    Raises:
        ColumnKeyDeniedError: the reader may not see the values of one.
    """
    filtered = Schema(*(field for field in scan.projection().fields if names is None or field.name in names))
    if filtered.fields:
        _refuse_masks(scan, filtered)
        if isinstance(scan.io, EncryptingFileIO) and has_column_keys(scan.table_metadata):
            # Of a struct the fields that the scan has: others are not in what the engine looks at.
            leaves = {each for each in filtered.field_ids if filtered.find_type(each).is_primitive}
            visible_columns(scan.table_metadata, scan.io, Schema(), leaves, ERROR)


def _refuse_masks(scan: DatasetScan, columns: Schema) -> None:
    """Refuse columns that would be masked, unless the scan was asked for masks."""
    if scan.masked != MASK and isinstance(scan.io, EncryptingFileIO):
        refuse_masks_to_engine(scan.table_metadata, scan.io, columns)


@dataclass(frozen=True)
class _Opened:
    """The task of one data file, with the file where Arrow can read it by itself, to be closed by `files`."""

    task: FileScanTask
    file: UniformParquetFile | None
    files: ExitStack


class EngineRead:
    """See the module.

    Args:
        scan: whose rows are read.
        columns: of the result, in the order in which they were asked for.
        expression: the engine's filter, on the scan's columns.
        tasks: the data files to read; None for all that may match.
        batch_size: rows in a batch, at most.
        kept_by_engine: true of every row that the engine will keep. It rules out files and row groups; of what is left, the engine gets all
            rows and filters them itself.

    Raises:
        ConfigurationError: a column that the scan does not have, or a filter that does not fit its columns.
    """

    def __init__(
        self,
        scan: DatasetScan,
        columns: Columns = None,
        expression: pc.Expression | None = None,
        tasks: list[FileScanTask] | None = None,
        batch_size: int | None = None,
        kept_by_engine: BooleanExpression = ALWAYS_TRUE,
    ) -> None:
        self._scan = scan
        self._kept_by_engine = kept_by_engine
        self._columns = columns
        self._expression = expression
        self._tasks = tasks
        self._options = {"fragment_readahead": _SCANNED_AT_ONCE} | ({} if batch_size is None else {"batch_size": batch_size})
        self._all = scan.projection()
        self._engine = None if expression is None else EngineFilter(expression, self._all)
        check_filtered(scan, set() if self._engine is None else self._engine.columns)
        self._needed = self._needed_columns()
        self._arrow = schema_to_pyarrow(self._needed, include_field_ids=False)

        try:
            # Arrow binds names and types here, so a query that does not fit fails before a file is opened.
            empty = ds.dataset(pa.Table.from_batches([], schema_to_pyarrow(self._all, include_field_ids=False)))
            self.schema: pa.Schema = empty.scanner(columns=columns, filter=expression).projected_schema
        except (pa.ArrowException, KeyError) as error:
            raise ConfigurationError(f"the columns or the filter do not fit the columns of the scan: {error}") from error

    def refuse_masks(self) -> None:
        """Refuse a read that takes columns which would be masked, unless the scan was asked for masks.

        Raises:
            ColumnKeyDeniedError: it takes such columns.
        """
        _refuse_masks(self._scan, self._needed)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, file by file."""
        if self._scan.limit is not None:
            narrowed = self._scan.update(selected_fields=tuple(self._arrow.names))
            yield from self._finished(batch.select(self._arrow.names) for batch in narrowed.to_arrow_batch_reader())
            return

        scan = self._pruned()
        native = None if self._is_never_native else self._native()
        reader: TaskReader | None = None
        tasks = itertools.chain.from_iterable(scan.task_batches()) if self._tasks is None else self._tasks

        for group in _opened_ahead(tasks, native):
            for is_native, run in itertools.groupby(group, lambda each: each.file is not None):
                if native is not None and is_native:
                    yield from self._of_native([each.file for each in run if each.file is not None], native)
                    continue
                reader = reader or self._reader(scan, self._needed)
                sources = reader.sources(each.task for each in run)
                yield from self._finished(prefetched(sources, _WORKERS, _QUEUE_LENGTH))

    def tasks(self) -> Iterator[FileScanTask]:
        """Yield the tasks of the data files that may hold rows of this read, as manifests are read."""
        return itertools.chain.from_iterable(self._pruned().task_batches())

    def _pruned(self) -> DatasetScan:
        """The scan, with what of the engine's filter can rule out files."""
        by_expression = ALWAYS_TRUE if self._engine is None else self._engine.row_filter(self._scan.table_metadata.schema())
        ruling_out = And(self._kept_by_engine, by_expression)
        return self._scan if ruling_out == ALWAYS_TRUE else self._scan.update(row_filter=And(self._scan.row_filter, ruling_out))

    @property
    def _is_never_native(self) -> bool:
        # Arrow's own scan knows neither the server's restrictions nor row lineage.
        return read_restrictions_of(self._scan.io) is not None or not LINEAGE_FIELD_IDS.isdisjoint(self._needed.field_ids)

    def _needed_columns(self) -> Schema:
        """The scan's columns that the result or the filter takes, in the scan's order.

        Where neither takes any, the first that everybody may read: rows are only counted.
        """
        names = self._names_of_columns()
        filtered = set() if self._engine is None else self._engine.columns
        if names is None or filtered is None:
            return self._all
        if needed := [field for field in self._all.fields if field.name in names | filtered]:
            return Schema(*needed)

        protected = protected_in(self._scan.table_metadata, self._all)
        in_the_open = [field for field in self._all.fields if protected.isdisjoint(Schema(field).field_ids)]

        return Schema(*(in_the_open or self._all.fields)[:1])

    def _names_of_columns(self) -> set[str] | None:
        if self._columns is None:
            return None
        if isinstance(self._columns, dict):
            looked_at = [EngineFilter(expression, self._all).columns for expression in self._columns.values()]
            return None if None in looked_at else {name for names in looked_at if names is not None for name in names}
        known = {field.name for field in self._all.fields}
        return {name if name in known else name.partition(".")[0] for name in self._columns}

    def _native(self) -> _NativeFiles:
        """Files are read with the needed columns, and those of the table that only the scan's own filter or the engine's looks at."""
        scan = self._scan
        table = scan.table_metadata.schema()
        kept_by_engine = RowFilter(table, self._kept_by_engine)
        looked_at = extract_field_ids(bind(table, scan.row_filter, case_sensitive=scan.case_sensitive)) | kept_by_engine.columns
        known = self._needed.field_ids
        more = [field for field in table.fields if field.field_id not in known and not looked_at.isdisjoint(Schema(field).field_ids)]
        schema = Schema(*self._needed.fields, *more)

        return _NativeFiles(self._reader(scan, schema), schema, kept_by_engine)

    def _reader(self, scan: DatasetScan, projected: Schema) -> TaskReader:
        options = ReadOptions(scan.case_sensitive, read_ahead=_READ_AHEAD, masked=scan.masked or ERROR)
        return TaskReader(scan.table_metadata, encrypting_io(scan.io), projected, scan.row_filter, options)

    def _of_native(self, files: list[UniformParquetFile], native: _NativeFiles) -> Iterator[pa.RecordBatch]:
        prunes_safely = native.may_prune and (self._engine is None or self._engine.prunes_safely)
        together = _together(native.row_filter, self._expression)
        dataset = native.dataset(files)
        if prunes_safely:
            scanned = dataset.scanner(columns=self._columns_or_all, filter=together, **self._options).to_batches()
            yield from _diagnosing(scanned, files, native.columns)
            return

        every = _diagnosing(dataset.to_batches(**self._options), files, native.columns)
        yield from _scanned(every, dataset.schema, self._columns_or_all, together)

    @property
    def _columns_or_all(self) -> Any:
        return self._arrow.names if self._columns is None else self._columns

    def _finished(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Apply the engine's filter and columns to rows in the needed columns."""
        cast = (cast_batch(batch, self._arrow) for batch in rows)
        return _scanned(cast, self._arrow, self._columns_or_all, self._expression)


class _NativeFiles:
    """The files that Arrow can read by itself as a read takes them.

    Args:
        reader: of the read's tasks, in `schema`.
        schema: the columns that the read takes of a file, those of both filters among them.
        kept_by_engine: rules out row groups, and no rows of others.
    """

    def __init__(self, reader: TaskReader, schema: Schema, kept_by_engine: RowFilter) -> None:
        self._reader = reader
        self._schema = schema
        self._arrow = schema_to_pyarrow(schema, include_field_ids=False)
        self.columns: list[str] = self._arrow.names
        self.may_prune = reader.filter.may_prune
        self.row_filter = reader.filter.on(schema)
        self._of_row_groups = kept_by_engine.on(schema) if kept_by_engine.may_prune else None

    def open(self, task: FileScanTask) -> _Opened:
        """Open a task's file, and close it again where Arrow cannot read it by itself."""
        # Arrow knows nothing of Iceberg's deletes: its scan would return the deleted rows.
        if task.delete_files or task.file.file_format != FileFormat.PARQUET:
            return _Opened(task, None, ExitStack())

        with ExitStack() as stack:
            opened = stack.enter_context(self._reader.opened(task))
            if isinstance(opened, UniformParquetFile) and self._reader.projections.stores(opened.schema, self._schema, task.file.file_path):
                return _Opened(task, opened, stack.pop_all())

        return _Opened(task, None, ExitStack())

    def dataset(self, files: list[UniformParquetFile]) -> ds.Dataset:
        """Return the files as one dataset, in `schema`."""
        fragments = [file.fragment() for file in files]
        if self._of_row_groups is not None:
            fragments = [each.subset(filter=self._of_row_groups, schema=self._arrow) for each in fragments]

        return ds.FileSystemDataset(fragments, self._arrow, ds.ParquetFileFormat(), fs.LocalFileSystem())


def _opened_ahead(tasks: Iterable[FileScanTask], native: _NativeFiles | None) -> Iterator[Iterable[_Opened]]:
    """Yield the tasks in groups. The files of one are open until the next is asked for; those of the next are being opened meanwhile."""
    if native is None:
        yield (_Opened(task, None, ExitStack()) for task in tasks)
        return

    executor = ExecutorFactory.get_or_create()
    remaining = iter(tasks)

    def begin() -> list[Future[_Opened]]:
        # All planned before one is opened: where planning fails, nobody would close what is being opened.
        planned = list(itertools.islice(remaining, FILES_OPEN))
        return [executor.submit(native.open, task) for task in planned]

    current, following = begin(), list[Future[_Opened]]()

    try:
        while current:
            following = begin()
            yield [future.result() for future in current]
            _close(current)
            current, following = following, []
    finally:
        _close([*current, *following])


def _close(opened: Iterable[Future[_Opened]]) -> None:
    for future in opened:
        if not future.cancel() and future.exception() is None:
            future.result().files.close()


def _together(*expressions: pc.Expression | None) -> pc.Expression | None:
    given = [each for each in expressions if each is not None]
    return reduce(and_, given) if given else None


def _scanned(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, columns: Any, expression: pc.Expression | None
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from ds.dataset(pa.Table.from_batches([batch], schema)).to_batches(columns=columns, filter=expression, use_threads=False)


def _diagnosing(batches: Iterator[pa.RecordBatch], files: list[UniformParquetFile], columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the batches. Where Arrow cannot decrypt one, find out of which file: it does not say so."""
    try:
        yield from batches
    except (OSError, pa.ArrowException, RuntimeError) as error:
        # An outage is not tampering: reading every file again would only meet it again.
        if isinstance(error, TablecryptError) or is_store_error(error):
            raise

        for file in files:
            with closing(file.batches(ReadRequest(columns))) as rows:  # type: ignore[type-var]
                for _ in rows:
                    pass

        raise
