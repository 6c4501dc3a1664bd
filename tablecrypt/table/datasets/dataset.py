"""An encrypted scan as a pyarrow.dataset.Dataset: DuckDB, Polars, DataFusion and Arrow read from it with their own columns and filters.

    engine ── dataset.scanner(columns, filter) ──▶ EngineRead ──▶ batches, decrypted in this process
    engine ── dataset.get_fragments(filter) ──▶ a DatasetFragment for each data file ── fragment.scanner(...) ──▶ EngineRead of that file

Nothing is planned or opened before an engine asks for rows. A dataset may be read many times, in several threads, and each time plans again
with the engine's filter. It stays at the snapshot of its scan.

Engines evaluate conditions, joins and groups on what they get. So a read gets no masks of protected columns, unless its scan was asked for
masks: one that takes such a column is refused, whether the right to it was missing from the start or was withdrawn since.

Keys are in memory while files are read, and live as long as the dataset: it holds the table's FileIO, which unwraps them. They do not leave
the process with it. A dataset cannot be pickled, and what Arrow's C++ would scan by itself, past these methods, has no rows but an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import ALWAYS_TRUE, FileScanTask

from tablecrypt.errors import ConfigurationError, TablecryptError
from tablecrypt.parquet.storage import RefusingFileSystem
from tablecrypt.table.datasets.engine_read import Columns, DatasetScan, EngineRead
from tablecrypt.table.protection.visible_columns import ERROR
from tablecrypt.table.table_files import TableFileIO

_INSTEAD: Final = "use its scanner, to_table, to_batches, filter or get_fragments, or read it with DuckDB, Polars or DataFusion"


class DatasetScanner:
    """One read of a dataset or a fragment, as pyarrow.dataset.Scanner.

    Attributes:
        dataset_schema: of the dataset.
        projected_schema: of the rows.

    Raises:
        ColumnKeyDeniedError: one of the columns would be masked, and masks were not asked for.
    """

    def __init__(self, read: EngineRead, dataset_schema: pa.Schema) -> None:
        # At each read and not once: the right to a column's key may be withdrawn while the dataset is open.
        read.refuse_masks()
        self._read = read
        self.dataset_schema = dataset_schema
        self.projected_schema = read.schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as files are read. Errors are EngineRead's."""
        return self._read.batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows. An engine that takes it puts the text of an error into its own error."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, _without_causes(self.to_batches()))

    def to_table(self) -> pa.Table:
        """Return all rows."""
        return pa.Table.from_batches(self.to_batches(), self.projected_schema)

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows, and read no more files than these take."""
        taken: list[pa.RecordBatch] = []
        for batch in self.to_batches():
            if num_rows <= 0:
                break
            taken.append(batch.slice(0, num_rows))
            num_rows -= len(taken[-1])

        return pa.Table.from_batches(taken, self.projected_schema)

    def count_rows(self) -> int:
        """Return how many rows there are."""
        return sum(len(batch) for batch in self.to_batches())

    def take(self, indices: Any) -> pa.Table:
        """Return the rows at these positions of all."""
        return self.to_table().take(indices)


class DatasetFragment:
    """The rows of one data file, as pyarrow.dataset.Fragment: those of the scan, with its filter and without deleted rows.

    Attributes:
        physical_schema: the columns of the dataset.
    """

    def __init__(self, scan: DatasetScan, task: FileScanTask, expression: pc.Expression | None) -> None:
        self._scan = scan
        self._task = task
        self._expression = expression
        self.physical_schema = schema_to_pyarrow(scan.projection(), include_field_ids=False)

    def __repr__(self) -> str:
        return f"<tablecrypt.DatasetFragment {self._task.file.file_path}>"

    def __reduce__(self) -> NoReturn:
        _refuse_pickling()

    def scanner(
        self,
        schema: pa.Schema | None = None,
        columns: Columns = None,
        filter: pc.Expression | None = None,  # noqa: A002  pyarrow's name
        **options: Any,
    ) -> DatasetScanner:
        """Return a read of the file. `schema` is the dataset's; of the other options `batch_size` counts."""
        read = EngineRead(self._scan, columns, _both(self._expression, filter), [self._task], options.get("batch_size"))
        return DatasetScanner(read, self.physical_schema if schema is None else schema)

    def to_batches(self, schema: pa.Schema | None = None, **options: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        return self.scanner(schema, **options).to_batches()

    def to_table(self, schema: pa.Schema | None = None, **options: Any) -> pa.Table:
        """Return the rows."""
        return self.scanner(schema, **options).to_table()

    def count_rows(self, **options: Any) -> int:
        """Return how many rows there are."""
        return self.scanner(**options).count_rows()

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """Return the first rows."""
        return self.scanner(**options).head(num_rows)


class EncryptedDataset(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow has no types
    """The rows of one scan as a dataset; see the module.

    Args:
        scan: of an encrypted table.
        expression: a filter on top of the scan's.
    """

    def __init__(self, scan: DatasetScan, expression: pc.Expression | None = None) -> None:
        schema = schema_to_pyarrow(scan.projection(), include_field_ids=False)
        # What Arrow's C++ scans by itself, past these methods, ends in this file system's error and not in a table without rows.
        nothing = fs.PyFileSystem(RefusingFileSystem(f"an encrypted dataset is not read by Arrow's own plans: {_INSTEAD}"))
        file_format = ds.ParquetFileFormat()
        super().__init__([file_format.make_fragment(RefusingFileSystem.PATH, nothing)], schema, file_format, nothing)
        # An engine reads file by file, and joins a table with itself: what is masked there must stay equal where it was.
        io = scan.io.of_one_query() if isinstance(scan.io, TableFileIO) else scan.io
        self._scan = scan.update(io=io, masked=scan.masked or ERROR)
        self._expression = expression

    def __repr__(self) -> str:
        return f"<tablecrypt.EncryptedDataset of {self._scan.table_metadata.location}>"

    def __reduce__(self) -> NoReturn:
        _refuse_pickling()

    def scanner(
        self,
        columns: Columns = None,
        filter: pc.Expression | None = None,  # noqa: A002  pyarrow's name
        *,
        kept_by_engine: BooleanExpression = ALWAYS_TRUE,
        **options: Any,
    ) -> DatasetScanner:
        """Return a read of the rows.

        Args:
            columns: names, or expressions by name; None for all.
            filter: which rows to keep.
            kept_by_engine: true of every row that the engine will keep. Files and row groups without one are not read.
            options: of pyarrow's `batch_size` counts.

        Raises:
            ConfigurationError: these do not fit the columns of the scan.
            ColumnKeyDeniedError: one of the columns would be masked, and masks were not asked for; the filter looks at one.
        """
        together = _both(self._expression, filter)
        read = EngineRead(self._scan, columns, together, None, options.get("batch_size"), kept_by_engine)
        return DatasetScanner(read, self.schema)

    def get_fragments(
        self,
        filter: pc.Expression | None = None,  # noqa: A002  pyarrow's name
    ) -> Iterator[DatasetFragment]:
        """Yield a fragment for each data file that may have matching rows; all rows in one, where the scan has a limit."""
        # Each fragment would apply the limit by itself, and together they would return more rows.
        if self._scan.limit is not None:
            raise ConfigurationError(
                "a scan with a limit has no fragments: its rows are counted over all files. Leave the limit to the engine"
            )
        for task in EngineRead(self._scan, None, _both(self._expression, filter)).tasks():
            yield DatasetFragment(self._scan, task, self._expression)

    def filter(self, expression: pc.Expression) -> EncryptedDataset:
        """Return the dataset with a filter on its rows."""
        return EncryptedDataset(self._scan, _both(self._expression, expression))

    def replace_schema(self, schema: pa.Schema) -> NoReturn:
        """Refuse: choose columns with the scan's `select`, or the columns of a read."""
        raise ConfigurationError("an encrypted dataset has the columns of its scan; choose some with scan.select or columns=")


def _without_causes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Engines show the whole traceback as the error, and what went before it says nothing more."""
    try:
        yield from batches
    except TablecryptError as error:
        raise error.with_traceback(None) from None


def _both(one: pc.Expression | None, other: pc.Expression | None) -> pc.Expression | None:
    if one is None or other is None:
        return one if other is None else other
    return one & other


def _refuse_pickling() -> NoReturn:
    raise TypeError("an encrypted dataset cannot be pickled: its keys stay in this process. Open the table in the other one")
