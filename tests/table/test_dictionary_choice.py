"""Which columns of a data file get a dictionary."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.parquet.uniform import UniformParquetFile
from tablecrypt.table.parquet_options import SAMPLE_VALUES, dictionary_columns
from tablecrypt.table.write import write_data_files
from tests.support.plaintext import CANARY
from tests.support.table_files import Keys, TableFiles

ROWS = 1000
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "region", StringType()))
UUIDS = [uuid.UUID(int=number).bytes for number in range(ROWS)]

NESTED = pa.schema(
    [
        ("flag", pa.bool_()),
        ("place", pa.struct([("city", pa.large_string()), ("zip", pa.int32())])),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("points", pa.large_list(pa.field("element", pa.struct([("x", pa.float64())])))),
        ("props", pa.map_(pa.string(), pa.list_(pa.field("element", pa.int64())))),
    ]
)


@pytest.mark.parametrize(
    "values",
    [
        pa.array(range(ROWS), pa.int64()),
        pa.array(range(ROWS), pa.date32()),
        pa.array([number / 7 for number in range(ROWS)], pa.float64()),
        pa.array([Decimal(number) / 100 for number in range(ROWS)], pa.decimal128(9, 2)),
        pa.array([Decimal(number) / 100 for number in range(ROWS)], pa.decimal128(38, 2)),
        pa.array([f"note {number}" for number in range(ROWS)], pa.string()),
        pa.array([f"note {number}" for number in range(ROWS)], pa.large_string()),
        pa.array([None if number % 2 else f"note {number}" for number in range(ROWS)], pa.string()),
        pa.array(UUIDS, pa.binary(16)),
        pa.array(UUIDS, pa.binary(16)).cast(pa.uuid()),
    ],
    ids=lambda values: str(values.type),
)
def test_values_that_never_repeat_get_none(values: pa.Array) -> None:
    assert dictionary_columns(pa.table({"column": values})) == []


@pytest.mark.parametrize(
    "values",
    [
        pa.array([number % 10 for number in range(ROWS)], pa.int64()),
        pa.array([f"region {number % 4}" for number in range(ROWS)], pa.large_string()),
        pa.array([Decimal(number % 20) for number in range(ROWS)], pa.decimal128(9, 2)),
        pa.array([UUIDS[number % 3] for number in range(ROWS)], pa.binary(16)).cast(pa.uuid()),
        pa.array(["same"] * ROWS, pa.string()),
        pa.array([None] * ROWS, pa.string()),
        pa.nulls(ROWS),
        pa.array(range(ROWS), pa.int64()).dictionary_encode(),
    ],
    ids=lambda values: str(values.type),
)
def test_values_that_repeat_get_one(values: pa.Array) -> None:
    assert dictionary_columns(pa.table({"column": values})) == ["column"]


MANY = 40_000


@pytest.mark.parametrize("distinct", [MANY // 50, MANY // 4, MANY // 2])
@pytest.mark.parametrize(
    "order",
    [
        lambda distinct: np.arange(MANY) % distinct,
        lambda distinct: np.arange(MANY) * distinct // MANY,
        lambda distinct: np.random.default_rng(1).permutation(np.arange(MANY) % distinct),
        lambda distinct: np.maximum(np.arange(MANY) - (MANY - distinct), 0),
    ],
    ids=["again and again", "sorted", "shuffled", "one often"],
)
@pytest.mark.parametrize("nulls", [0, MANY // 4])
def test_values_of_a_long_column_that_repeat_get_one_however_they_lie(
    order: Callable[[int], npt.NDArray[np.int64]], distinct: int, nulls: int
) -> None:
    values = pa.concat_arrays([pa.nulls(nulls, pa.int64()), pa.array(order(distinct))])
    assert dictionary_columns(pa.table({"column": values})) == ["column"]


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.binary()], ids=str)
def test_values_of_a_long_column_that_hardly_ever_repeat_get_none(kind: pa.DataType) -> None:
    numbers = pa.array(np.random.default_rng(1).integers(0, 10**9, MANY)).cast(pa.string() if kind != pa.int64() else kind)
    assert dictionary_columns(pa.table({"column": numbers.cast(kind)})) == []


def test_nested_columns_are_named_as_in_the_file() -> None:
    row = {
        "flag": True,
        "place": {"city": "Oslo", "zip": 150},
        "tags": ["a", "a"],
        "points": [{"x": 1.0}],
        "props": [("k", [1, 2])],
    }
    rows = pa.Table.from_pylist([row] * ROWS, schema=NESTED)
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    group = pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata.row_group(0)

    assert dictionary_columns(rows) == [group.column(index).path_in_schema for index in range(group.num_columns)]


def test_the_leaves_of_a_nested_column_are_told_apart() -> None:
    values = pa.array([[("key", number), ("other", -number)] for number in range(1, ROWS)], pa.map_(pa.string(), pa.int64()))

    assert dictionary_columns(pa.table({"props": values})) == ["props.key_value.key"]


def test_a_slice_is_measured_by_its_own_rows() -> None:
    values = pa.array([["same"]] * ROWS + [[f"note {number}"] for number in range(ROWS)], pa.list_(pa.field("element", pa.string())))
    rows = pa.table({"notes": values})

    assert dictionary_columns(rows.slice(0, ROWS)) == ["notes.list.element"]
    assert dictionary_columns(rows.slice(ROWS)) == []


def test_only_the_first_rows_are_looked_at() -> None:
    values = pa.chunked_array([pa.array(range(SAMPLE_VALUES), pa.int64()), pa.nulls(10 * SAMPLE_VALUES, pa.int64())])

    assert dictionary_columns(pa.table({"column": values})) == []


def test_of_long_values_few_are_looked_at() -> None:
    values = [f"{number:1000}" for number in range(16)] + [f"{0:1000}"] * 16
    rows = pa.table({"column": pa.array(values, pa.large_string())})
    assert dictionary_columns(rows) == ["column"]
    assert dictionary_columns(rows, sample_bytes=8000) == []


def test_rows_without_columns_get_none() -> None:
    assert dictionary_columns(pa.table({})) == []


@pytest.mark.parametrize("streamed", [False, True], ids=["a table", "a stream"])
def test_a_written_file_has_dictionaries_where_values_repeat(tmp_path: Path, streamed: bool) -> None:
    files = TableFiles(tmp_path, SCHEMA)
    rows = pa.table({"id": range(ROWS), "region": [f"{CANARY} {number % 4}" for number in range(ROWS)]}, schema=SCHEMA.as_arrow())
    given = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(100)) if streamed else rows

    (written,) = write_data_files(files.metadata, given, files.io, Keys())

    with files.io.raw_input(written.file_path).open() as source:
        group = UniformParquetFile(source, key_metadata_of(written), written.file_path).footer().row_group(0)
    assert {group.column(index).path_in_schema: "RLE_DICTIONARY" in group.column(index).encodings for index in range(2)} == {
        "id": False,
        "region": True,
    }
