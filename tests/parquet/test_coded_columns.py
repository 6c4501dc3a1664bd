"""Text that a file stores in dictionaries is read as it was written, through filters and in parts, and authenticated like all else."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import TamperedFileError
from tablecrypt.parquet.text_columns import CodingLimits, coded_columns
from tablecrypt.parquet.uniform import ReadRequest, UniformParquetFile
from tests.support.mutations import flipped
from tests.support.uniform_files import LOCATION, EncryptedFile, encrypt_uniform

TEXT = [None, "", "ä", 'a "quoted" name', "x" * 40]


SMALL_FILES: Final = CodingLimits(least_rows=1, share=1)


def file_of(rows: pa.Table, row_group: int = 1 << 20, limits: CodingLimits = SMALL_FILES) -> tuple[EncryptedFile, UniformParquetFile]:
    encrypted = encrypt_uniform(rows, row_group_size=row_group)
    return encrypted, opened(encrypted.data, encrypted.key_metadata, limits)


def opened(data: bytes, key_metadata: StandardKeyMetadata, limits: CodingLimits = SMALL_FILES) -> UniformParquetFile:
    return UniformParquetFile(pa.BufferReader(data), key_metadata, LOCATION, coding=limits)


def coded(file: UniformParquetFile, columns: list[str], row_filter: pc.Expression | None = None) -> frozenset[str]:
    return coded_columns(file.footer(), file.schema, columns, row_filter, SMALL_FILES)


def rows_of(text: list[str | None], repeated: int = 1) -> pa.Table:
    values = text * repeated
    encoded = [None if each is None else each.encode() for each in values]
    return pa.table(
        {
            "n": pa.array(range(len(values)), pa.int64()),
            "text": pa.array(values, pa.string()),
            "bytes": pa.array(encoded, pa.binary()),
            "s.b": pa.array(values, pa.string()),
            "s": pa.array([{"b": each} for each in values], pa.struct([("b", pa.string())])),
        }
    )


def read(file: UniformParquetFile, columns: list[str], row_filter: pc.Expression | None = None) -> pa.Table:
    schema = pa.schema([file.schema.field(name) for name in columns])
    return pa.Table.from_batches(file.batches(ReadRequest(columns, row_filter)), schema)


@settings(max_examples=150, deadline=None)
@given(text=st.lists(st.sampled_from(TEXT), min_size=1, max_size=30), row_group=st.integers(1, 40), data=st.data())
def test_filtered_rows_and_positions_are_those_that_were_written(text: list[str | None], row_group: int, data: st.DataObject) -> None:
    rows = rows_of(text, 3)
    _, file = file_of(rows, row_group)
    limit = data.draw(st.integers(0, rows.num_rows))
    n, words, raw = pc.field("n"), pc.field("text"), pc.field("bytes")
    filters = [("n", None), ("n", n < limit), ("text", words == "ä"), ("text", pc.starts_with(words, "x")), ("bytes", raw.is_null())]
    compared, row_filter = data.draw(st.sampled_from(filters))
    columns = data.draw(st.lists(st.sampled_from(rows.column_names), unique=True).filter(lambda chosen: compared in chosen))
    expected = rows if row_filter is None else rows.filter(row_filter)
    assert read(file, columns, row_filter).to_pydict() == expected.select(columns).to_pydict()
    positioned = list(file.positioned_batches(ReadRequest(columns)))
    assert [at for each in positioned for at in each.positions.to_pylist()] == list(range(rows.num_rows))
    assert pa.Table.from_batches([each.batch for each in positioned]).to_pydict() == rows.select(columns).to_pydict()


def test_columns_in_small_dictionaries_are_coded_unless_they_are_compared_or_their_path_is_ambiguous() -> None:
    rows = rows_of(["one", "two", None], 2000)
    _, file = file_of(rows)
    assert coded(file, rows.column_names) == {"text", "bytes"}
    assert coded(file, rows.column_names, pc.field("text") == "one") == {"bytes"}
    assert coded(file, ["n", "s"]) == frozenset()


def test_rows_that_one_batch_cannot_hold_come_in_several() -> None:
    rows = rows_of(TEXT, 20)
    _, file = file_of(rows, limits=replace(SMALL_FILES, most_bytes=100))
    batches = list(file.batches(ReadRequest(["text"])))
    assert all(batch.column(0).get_total_buffer_size() <= 1000 and len(batch) <= 2 for batch in batches)
    assert pa.Table.from_batches(batches).to_pydict() == rows.select(["text"]).to_pydict()


def test_no_flipped_bit_in_a_coded_file_changes_a_row() -> None:
    rows = rows_of(["canary", "bird", None], 50).select(["text"])
    encrypted, file = file_of(rows)
    assert coded(file, ["text"]) == {"text"}
    refused = 0
    for at in range(len(encrypted.data)):
        changed = flipped(encrypted.data, at, at * 3 % 8)
        try:
            assert read(opened(changed, encrypted.key_metadata), ["text"]).to_pydict() == rows.to_pydict()
        except TamperedFileError as error:
            assert error.location == LOCATION
            refused += 1
    assert refused >= len(encrypted.data) - 3
