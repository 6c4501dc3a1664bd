"""A Polars LazyFrame over an encrypted scan.

Polars' own Iceberg reader opens data files itself and cannot decrypt them, so Polars asks this source for batches instead: it gets the
columns and the number of rows that it needs, and filters them itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow

from tablecrypt.errors import MissingExtraError
from tablecrypt.table.scan import EncryptedDataScan

if TYPE_CHECKING:
    import polars as pl


def scan_lazily(scan: EncryptedDataScan) -> pl.LazyFrame:
    """Return a LazyFrame that runs the scan when it is collected, with projection and limit pushed down.

    Raises:
        MissingExtraError: Polars is not installed.
    """
    try:
        import polars as pl
        from polars.io.plugins import register_io_source
    except ImportError as error:
        raise MissingExtraError("to_polars() needs Polars: pip install polars") from error

    empty = pa.Table.from_batches([], schema_to_pyarrow(scan.projection(), include_field_ids=False))
    schema = pl.DataFrame(empty).schema

    def batches(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        narrowed = scan if with_columns is None else scan.update(selected_fields=tuple(with_columns))
        if n_rows is not None and predicate is None:
            narrowed = narrowed.update(limit=n_rows)
        for batch in narrowed.to_arrow_batch_reader():
            frame = pl.DataFrame(pa.Table.from_batches([batch]))
            frame = frame if with_columns is None else frame.select(with_columns)
            yield frame if predicate is None else frame.filter(predicate)

    return register_io_source(batches, schema=schema)
