"""Text that a file stores in dictionaries is read as it was written, through filters and in parts, and authenticated like all else."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tablecrypt.errors import TamperedFileError
from tablecrypt.parquet import coded_columns
from tablecrypt.parquet.uniform import UniformParquetFile
from tests.support.uniform_files import LOCATION, EncryptedFile, encrypt_uniform

TEXT = [None, "", "ä", 'a "quoted" name', "x" * 40]


@pytest.fixture(autouse=True, scope="module")
def small_files_count() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coded_columns, "LEAST_ROWS", 1)
        patch.setattr(coded_columns, "_SHARE", 1)
        yield


def file_of(rows: pa.Table, row_group: int = 1 << 20) -> tuple[EncryptedFile, UniformParquetFile]:
    encrypted = encrypt_uniform(rows, row_group_size=row_group)
    return encrypted, UniformParquetFile(pa.BufferReader(encrypted.data), encrypted.key_metadata, LOCATION)


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
    return pa.Table.from_batches(file.batches(columns, row_filter), schema)


@settings(max_examples=150, deadline=None)
@given(text=st.lists(st.sampled_from(TEXT), min_size=1, max_size=30), row_group=st.integers(1, 40), data=st.data())
def test_filtered_rows_and_positions_are_those_that_were_written(text: list[str | None], row_group: int, data: st.DataObject) -> None:
    rows = rows_of(text, 3)
    _, file = file_of(rows, row_group)
    columns = data.draw(st.lists(st.sampled_from(rows.column_names), min_size=1, unique=True))
    limit = data.draw(st.integers(0, rows.num_rows))
    filters = [None, pc.field("n") < limit, pc.field("text") == "ä", pc.starts_with(pc.field("text"), "x"), pc.field("bytes").is_null()]
    row_filter = data.draw(st.sampled_from(filters))
    expected = rows if row_filter is None else rows.filter(row_filter)
    assert read(file, columns, row_filter).to_pydict() == expected.select(columns).to_pydict()
    positioned = list(file.positioned_batches(columns))
    assert [at for each in positioned for at in each.positions.to_pylist()] == list(range(rows.num_rows))
    assert pa.Table.from_batches([each.batch for each in positioned]).to_pydict() == rows.select(columns).to_pydict()


def test_columns_in_small_dictionaries_are_coded_unless_they_are_compared_or_their_path_is_ambiguous() -> None:
    rows = rows_of(["one", "two", None], 2000)
    _, file = file_of(rows)
    fragment = file.fragment()
    assert coded_columns.coded_columns(fragment, file.schema, rows.column_names, None) == {"text", "bytes"}
    assert coded_columns.coded_columns(fragment, file.schema, rows.column_names, pc.field("text") == "one") == {"bytes"}
    assert coded_columns.coded_columns(fragment, file.schema, ["n", "s"], None) == frozenset()


def test_rows_that_one_batch_cannot_hold_come_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coded_columns, "_MOST_BYTES", 100)
    rows = rows_of(TEXT, 20)
    _, file = file_of(rows)
    batches = list(file.batches(["text"]))
    assert all(batch.column(0).get_total_buffer_size() <= 1000 and len(batch) <= 2 for batch in batches)
    assert pa.Table.from_batches(batches).to_pydict() == rows.select(["text"]).to_pydict()


def test_no_flipped_bit_in_a_coded_file_changes_a_row() -> None:
    rows = rows_of(["canary", "bird", None], 50).select(["text"])
    encrypted, file = file_of(rows)
    assert coded_columns.coded_columns(file.fragment(), file.schema, ["text"], None) == {"text"}
    refused = 0
    for at in range(len(encrypted.data)):
        changed = bytearray(encrypted.data)
        changed[at] ^= 1 << (at * 3 % 8)
        try:
            opened = UniformParquetFile(pa.BufferReader(bytes(changed)), encrypted.key_metadata, LOCATION)
            assert read(opened, ["text"]).to_pydict() == rows.to_pydict()
        except TamperedFileError as error:
            assert error.location == LOCATION
            refused += 1
    assert refused >= len(encrypted.data) - 3
