"""Small files are read at once, without Arrow's scanner: the rows, their order and their types are those that a scanner gives."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.errors import TamperedFileError
from tablecrypt.parquet.uniform import ReadRequest, UniformParquetFile
from tests.support.mutations import flipped
from tests.support.sample_rows import extreme_rows
from tests.support.uniform_files import LOCATION, EncryptedFile, encrypt_uniform, sample_table

EXTREME = encrypt_uniform(extreme_rows(), row_group_size=2)
SAMPLE = encrypt_uniform(sample_table(500), row_group_size=100)
CODED = encrypt_uniform(sample_table(20_000))
FILTERS: dict[str, pc.Expression | None] = {
    "none": None,
    "some rows": (pc.field("id") > 150) & (pc.field("ratio") < 120.5),
    "no row": pc.field("id") < 0,
    "no row that statistics rule out": (pc.field("id") > 10) & (pc.field("ratio") == 3.4),
    "text": pc.field("text").isin([f"{sample_table(1).column('text')[0].as_py()}"]),
    "null": pc.field("text").is_null(),
}


def opened(file: EncryptedFile, at_once: bool, dictionary_columns: tuple[str, ...] = ()) -> UniformParquetFile:
    return UniformParquetFile(
        pa.BufferReader(file.data),
        file.key_metadata,
        LOCATION,
        dictionary_columns=dictionary_columns,
        small_file_length=len(file.data) if at_once else 0,
    )


def rows_of(batches: list[pa.RecordBatch]) -> tuple[list[pa.Schema], str]:
    """The schema of the batches, if there are any, and the rows as they print: NaN differs from itself."""
    schemas = [batch.schema for batch in batches[:1]]
    return schemas, str(pa.Table.from_batches(batches).to_pylist()) if batches else ""


def both_ways(
    file: EncryptedFile, columns: list[str], row_filter: pc.Expression | None = None, dictionary_columns: tuple[str, ...] = ()
) -> list[tuple[list[pa.Schema], str]]:
    read = []
    for at_once in (True, False):
        parquet = opened(file, at_once, dictionary_columns)
        read.append(rows_of([batch for batch in parquet.batches(ReadRequest(columns, row_filter)) if batch.num_rows]))
    return read


@given(columns=st.lists(st.sampled_from(extreme_rows().schema.names), min_size=1, unique=True))
def test_columns_of_every_type_in_any_order_are_those_of_a_scanner(columns: list[str]) -> None:
    at_once, scanned = both_ways(EXTREME, columns)
    assert at_once[1] == scanned[1]
    assert at_once[0][0].equals(scanned[0][0], check_metadata=True)


@pytest.mark.parametrize("row_filter", FILTERS.values(), ids=FILTERS)
@pytest.mark.parametrize("coded", [(), ("text",)], ids=["plain", "dictionaries"])
@pytest.mark.parametrize("file", [SAMPLE, CODED], ids=["row groups", "many rows"])
def test_filtered_rows_are_those_of_a_scanner(file: EncryptedFile, coded: tuple[str, ...], row_filter: pc.Expression | None) -> None:
    if coded and "text" in str(row_filter):
        return
    at_once, scanned = both_ways(file, ["text", "ratio", "id"], row_filter, coded)
    assert at_once == scanned


def test_positions_and_parts_are_those_of_a_scanner() -> None:
    read = []
    for at_once in (True, False):
        file = opened(SAMPLE, at_once)
        middle = file.footer().row_group(2).column(0).data_page_offset
        positioned = list(file.positioned_batches(ReadRequest(["id"], pc.field("id") > 250)))
        part = list(file.batches(ReadRequest(["id"], part=range(middle, len(SAMPLE.data)))))
        read.append([pa.concat_arrays([each.positions for each in positioned]), *(pa.Table.from_batches(part).to_pydict()["id"],)])
    assert read[0] == read[1]
    assert read[0][0].to_pylist() == list(range(200, 500))


def test_columns_with_dots_in_their_names_are_not_taken_for_fields_of_a_struct() -> None:
    table = pa.table({"a": pa.array([{"b": 1}]), "a.b": pa.array([2]), "c": pa.array([3])})
    file = encrypt_uniform(table)
    for columns in (["a"], ["a.b"], ["c", "a.b", "a"]):
        (batch,) = opened(file, True).batches(ReadRequest(columns))
        assert pa.Table.from_batches([batch]) == table.select(columns)


def test_rows_are_counted_without_a_column() -> None:
    for at_once in (True, False):
        assert sum(len(batch) for batch in opened(SAMPLE, at_once).batches(ReadRequest([]))) == 500


@given(at=st.integers(4, len(SAMPLE.data) - 1), bit=st.integers(0, 7))
def test_a_changed_small_file_is_refused(at: int, bit: int) -> None:
    changed = flipped(SAMPLE.data, at, bit)
    with pytest.raises(TamperedFileError):
        list(opened(EncryptedFile(changed, SAMPLE.key_metadata, SAMPLE.table), True).batches(ReadRequest(["id", "text", "ratio"])))
