"""Batches between the JVM and Python have the sizes that are said, hold all rows, and leave the session as it was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from tablecrypt.spark.exchange import (
    GATHERED_BYTES,
    GATHERED_ROWS,
    LEAST_PIECE_ROWS,
    MOST_ROWS,
    PIECE_BYTES,
    PIECE_ROWS,
    collected_from,
    gathered,
    pieces_for_spark,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROW_LIMIT: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTE_LIMIT: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
COUNT: Final = 3 * MOST_ROWS


def batch_sizes(rows: DataFrame) -> list[int]:
    def sizes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"size": [batch.num_rows]})

    return [row["size"] for row in collected_from(rows, sizes, "size long")]


def short_rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, COUNT, 1, 1).selectExpr("id", "cast(id AS string) AS note", "array(id) AS ids")


@pytest.mark.java
def test_short_rows_are_counted_and_nothing_of_the_session_changes(spark: SparkSession) -> None:
    settings = dict(spark.conf.getAll)

    assert batch_sizes(short_rows(spark)) == [MOST_ROWS] * 3

    assert dict(spark.conf.getAll) == settings
    assert spark.sparkContext.getLocalProperty(ROW_LIMIT) is None
    assert spark.sparkContext.getLocalProperty(BYTE_LIMIT) is None


@pytest.mark.java
def test_a_job_that_fails_leaves_the_thread_as_it_was(spark: SparkSession) -> None:
    def fail(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, _ in enumerate(batches):
            if number:
                raise ValueError("the second batch fails")
        yield from ()

    spark.sparkContext.setLocalProperty(ROW_LIMIT, "5000")
    try:
        with pytest.raises(Exception, match="the second batch fails"):
            collected_from(short_rows(spark), fail, "size long")
        assert spark.sparkContext.getLocalProperty(ROW_LIMIT) == "5000"
        assert spark.sparkContext.getLocalProperty(BYTE_LIMIT) is None
    finally:
        spark.sparkContext.setLocalProperty(ROW_LIMIT, None)  # type: ignore[arg-type]


@pytest.mark.java
def test_the_limit_of_a_session_comes_first(spark: SparkSession) -> None:
    spark.conf.set(ROW_LIMIT, "2000")
    try:
        assert batch_sizes(short_rows(spark)) == [2000, 1000]
    finally:
        spark.conf.unset(ROW_LIMIT)


@pytest.mark.java
def test_a_byte_limit_of_a_session_is_kept(spark: SparkSession) -> None:
    spark.conf.set(BYTE_LIMIT, "16k")
    try:
        sizes = batch_sizes(short_rows(spark))
    finally:
        spark.conf.unset(BYTE_LIMIT)

    assert sum(sizes) == COUNT
    assert max(sizes) < MOST_ROWS


@pytest.mark.java
@pytest.mark.parametrize(
    "column", ["encode(note, 'utf-8')", "array(encode(note, 'utf-8'))", "map(id, named_struct('b', encode(note, 'utf-8')))"]
)
def test_rows_with_binary_values_are_measured_as_spark_does_it(spark: SparkSession, column: str) -> None:
    assert batch_sizes(short_rows(spark).selectExpr(f"{column} AS value")) == [COUNT]


@pytest.mark.parametrize("rows", [0, 1, PIECE_ROWS, PIECE_ROWS + 1, 5 * PIECE_ROWS + 3])
def test_pieces_hold_the_rows_in_their_order(rows: int) -> None:
    batch = pa.RecordBatch.from_pydict({"id": pa.arange(0, rows), "note": pa.arange(0, rows).cast(pa.string())})

    pieces = list(pieces_for_spark(batch))

    assert pa.Table.from_batches(pieces).equals(pa.Table.from_batches([batch]))
    assert all(piece.num_rows <= PIECE_ROWS for piece in pieces)


def test_pieces_of_wide_rows_are_of_about_as_many_bytes() -> None:
    wide = pa.RecordBatch.from_pydict({"note": ["x" * 256] * PIECE_ROWS})
    wider = pa.RecordBatch.from_pydict({"note": ["x" * 4096] * PIECE_ROWS})

    assert max(piece.nbytes for piece in pieces_for_spark(wide)) <= PIECE_BYTES
    assert {piece.num_rows for piece in pieces_for_spark(wider)} == {LEAST_PIECE_ROWS}


@pytest.mark.parametrize("sizes", [[], [1], [1, 2, 3], [GATHERED_ROWS, 1], [700] * 40, [50_000, 3, 50_000]])
def test_gathered_batches_hold_the_rows_in_their_order(sizes: list[int]) -> None:
    ids = pa.arange(0, sum(sizes))
    rows = pa.RecordBatch.from_pydict({"id": ids, "note": ids.cast(pa.string())})
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    batches = [rows.slice(start, size) for start, size in zip(starts, sizes, strict=True)]

    found = list(gathered(iter(batches)))

    assert pa.Table.from_batches(found, rows.schema).equals(pa.Table.from_batches([rows]))
    assert all(batch.num_rows >= GATHERED_ROWS for batch in found[:-1])


def test_long_rows_are_not_gathered_beyond_some_bytes() -> None:
    batch = pa.RecordBatch.from_pydict({"note": ["x" * (GATHERED_BYTES // 2)]})

    assert [found.num_rows for found in gathered([batch] * 5)] == [2, 2, 1]


def test_batches_without_columns_are_not_gathered() -> None:
    batch = pa.RecordBatch.from_struct_array(pa.array([{}] * 3, pa.struct([])))

    assert [found.num_rows for found in gathered([batch] * 2)] == [3, 3]


def test_a_batch_without_columns_stays_whole() -> None:
    batch = pa.RecordBatch.from_struct_array(pa.array([{}] * (2 * PIECE_ROWS), pa.struct([])))

    assert sum(piece.num_rows for piece in pieces_for_spark(batch)) == 2 * PIECE_ROWS
