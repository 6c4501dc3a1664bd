"""How rows go from Spark's JVM to its Python workers and back: in Arrow batches, through a socket.

To Python    Before it adds a row to a batch, Spark 4 works out how many bytes the batch has by then, to end it at
             spark.sql.execution.arrow.maxBytesPerBatch. That takes longer than all else it does to hand a row over. Where rows are short,
             a limit to their number bounds memory as well, so the jobs here end batches at MOST_ROWS rows instead. Rows with binary values,
             which may be long, are measured as ever; and so are all where the session sets one of the two limits itself.

             Tasks take Spark's settings from the local properties of the thread that started the job. A setting of the session comes
             before a property of that name, and no other thread sees it, so nothing of the session changes. Workers gather the batches,
             which are short then, before they look into them.

To Spark     The JVM makes rows of a batch one after another, column by column. A batch that fits into a processor's cache takes less
             time for that than one of 131,072 rows, as Arrow reads them from Parquet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tablecrypt.spark.session import ArrowFunction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

MOST_ROWS: Final = 1000
"""Rows of a batch to Python where Spark does not measure them: 64 MiB, its default limit, where rows have 64 KiB on average."""
GATHERED_ROWS: Final = 10_000
GATHERED_BYTES: Final = 4 * 1024 * 1024
"""A worker's work on a batch has a fixed cost, so the worker waits for this many rows, or bytes of Arrow memory."""
PIECE_ROWS: Final = 16_384
PIECE_BYTES: Final = 1024 * 1024
"""A batch for Spark has at most PIECE_ROWS rows, and about PIECE_BYTES of Arrow memory, but at least LEAST_PIECE_ROWS."""
LEAST_PIECE_ROWS: Final = 1024
_BYTE_LIMIT: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_ROW_LIMIT: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_NO_BYTE_LIMIT: Final = 2**31 - 1


def collected_from(rows: DataFrame, function: ArrowFunction, schema: str) -> list[Any]:
    """Return what a function of Arrow batches makes of all rows, as Spark collects it.

    Args:
        rows: of a classic session or of Spark Connect.
        function: runs on executors.
        schema: what it yields, as Spark takes schemas.
    """
    with _row_limit_alone(rows):
        return mapped_in_arrow(rows, function, schema).collect()


def mapped_in_arrow(rows: DataFrame, function: ArrowFunction, schema: str | StructType) -> DataFrame:
    """Return what a function of Arrow batches makes of rows.

    PySpark takes a dot in a column's name for the way into a struct, so such rows travel under other names.
    """
    names = rows.columns
    if not any("." in name or "`" in name for name in names):
        return rows.mapInArrow(function, schema)

    def named(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from function(batch.rename_columns(names) for batch in batches)

    return rows.toDF(*(f"_{number}" for number in range(len(names)))).mapInArrow(named, schema)


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches in fewer batches."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= GATHERED_ROWS or size >= GATHERED_BYTES:
            yield from _combined(waiting)
            waiting, rows, size = [], 0, 0

    yield from _combined(waiting)


def pieces_for_spark(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch in such pieces as the JVM takes fastest."""
    size = batch.nbytes
    fitting = batch.num_rows * PIECE_BYTES // size if size else PIECE_ROWS
    # Each piece costs the JVM a message, so even wide rows come in pieces of a least length.
    step = max(LEAST_PIECE_ROWS, min(fitting, PIECE_ROWS))
    if batch.num_rows <= step:
        yield batch
        return

    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _combined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) < 2 or not batches[0].num_columns:
        return batches
    combined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return combined


@contextmanager
def _row_limit_alone(rows: DataFrame) -> Iterator[None]:
    """Let jobs of this thread count the rows of batches that they hand to Python, and not measure them, where that is safe."""
    context: Any = getattr(rows.sparkSession, "sparkContext", None)
    # A limit to the rows alone would let a batch of long values fill the worker's memory.
    if context is None or _is_limited(rows) or _may_be_long(rows.schema):
        yield
        return

    limits = {_BYTE_LIMIT: str(_NO_BYTE_LIMIT), _ROW_LIMIT: str(MOST_ROWS)}
    # Put back afterwards: the thread is the caller's, whose other jobs must not count rows.
    before = {name: context.getLocalProperty(name) for name in limits}
    _set_local(context, limits)
    try:
        yield
    finally:
        _set_local(context, before)


def _set_local(context: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        context.setLocalProperty(name, value)


def _is_limited(rows: DataFrame) -> bool:
    """Whether the session sets one of the limits; the default that is passed here comes back if it does not."""
    settings = rows.sparkSession.conf
    return any(settings.get(name, None) is not None for name in (_BYTE_LIMIT, _ROW_LIMIT))


def _may_be_long(spark: DataType) -> bool:
    """Whether values may be images, documents and the like. Text may be long too, but not on average."""
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType, VariantType

    if isinstance(spark, StructType):
        return any(_may_be_long(field.dataType) for field in spark.fields)
    if isinstance(spark, ArrayType):
        return _may_be_long(spark.elementType)
    if isinstance(spark, MapType):
        return _may_be_long(spark.keyType) or _may_be_long(spark.valueType)

    return isinstance(spark, (BinaryType, VariantType))
