"""A scan as a Polars LazyFrame: columns, filters and the number of rows reach planning and the row groups of files.

Polars' own Iceberg reader opens data files itself and cannot decrypt them, so Polars asks a source of ours for batches instead. It gives
its filter as an expression of its own, and turns it into Arrow's only for an Arrow dataset. So an empty dataset asks for it:

    predicate ──▶ LazyFrame over a dataset without rows ──▶ the filter that Polars gives it ──▶ which files may match (engine_filter.py)

What is read is filtered by Polars itself: where the two differ, as in NaN, which Polars takes for the greatest number, Polars is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import ALWAYS_TRUE

from tablecrypt.errors import MissingExtraError
from tablecrypt.table.datasets.dataset import EncryptedDataset
from tablecrypt.table.datasets.engine_filter import EngineFilter
from tablecrypt.table.datasets.engine_read import DatasetScan, check_filtered

if TYPE_CHECKING:
    import polars as pl

_ROWS_OF_A_FRAME: Final = 262_144
"""At least. Each frame that Polars takes has a cost of its own: with the 100,000 rows that it suggests, a filter takes a tenth longer."""


def scan_lazily(scan: DatasetScan) -> pl.LazyFrame:
    """Return a LazyFrame that runs the scan when it is collected.

    Raises:
        MissingExtraError: Polars is not installed.
    """
    try:
        import polars as pl
        from polars.io.plugins import register_io_source
    except ImportError as error:
        raise MissingExtraError.named("to_polars() needs Polars", "polars") from error

    empty = pa.Table.from_batches([], schema_to_pyarrow(scan.projection(), include_field_ids=False))
    schema = pl.DataFrame(empty).schema

    def batches(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        # A filter tells about values even where its column is not selected.
        if predicate is not None:
            check_filtered(scan, set(predicate.meta.root_names()))
        # The first rows, and those of a scan's limit, are counted before the filter: what it rules out would let others in.
        are_counted = n_rows is not None or scan.limit is not None
        kept = ALWAYS_TRUE if predicate is None or are_counted else _kept_by(predicate, scan, empty)
        rows = EncryptedDataset(scan).scanner(with_columns, kept_by_engine=kept, batch_size=max(batch_size or 0, _ROWS_OF_A_FRAME))
        left = n_rows

        for batch in rows.to_batches():
            frame = pl.DataFrame(pa.Table.from_batches([batch if left is None else batch.slice(0, left)]))
            yield frame if predicate is None else frame.filter(predicate)
            left = None if left is None else left - min(left, len(batch))
            if left == 0:
                return

    return register_io_source(batches, schema=schema)


def _kept_by(predicate: pl.Expr, scan: DatasetScan, empty: pa.Table) -> BooleanExpression:
    """A filter that is true of every row that Polars' own keeps."""
    given = _arrow_filter(predicate, empty)
    if given is None:
        return ALWAYS_TRUE
    return EngineFilter(given, scan.projection()).row_filter(scan.table_metadata.schema(), nan_is_greatest=True)


def _arrow_filter(predicate: pl.Expr, empty: pa.Table) -> pc.Expression | None:
    """The Arrow expression that Polars makes of its filter; None where it makes none."""
    import polars as pl

    asked = _Asked(empty)
    try:
        pl.scan_pyarrow_dataset(asked).filter(predicate).collect()
    # Not every filter of Polars has a form in Arrow. Polars applies all of them to the rows anyway.
    except pl.exceptions.PolarsError:
        return None

    return asked.filter_of_polars


class _Asked(ds.InMemoryDataset):  # type: ignore[misc]  # pyarrow has no types
    """A dataset without rows, which remembers the filter that it was read with."""

    filter_of_polars: pc.Expression | None = None

    def to_batches(self, **options: Any) -> Iterator[pa.RecordBatch]:
        self.filter_of_polars = options.get("filter")
        return iter(())
