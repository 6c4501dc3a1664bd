"""Values that dictionaries of a file's writer have and none of its rows: they are found, and stay behind where values are written again."""

from __future__ import annotations

import io
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import FormatError, TamperedFileError
from tablecrypt.parquet import FileKeys, encrypt
from tablecrypt.parquet.dictionaries import keeps_unused_values, write_values
from tablecrypt.parquet.layout import plain_layout
from tablecrypt.parquet.storage import source_of
from tablecrypt.parquet.text_columns import plain_rows
from tablecrypt.parquet.uniform import UniformParquetFile

OLD: Final = StandardKeyMetadata(Secret(bytes(range(16))), b"old prefix")
NEW: Final = StandardKeyMetadata(Secret(bytes(range(16, 32))), b"new prefix")
WORDS: Final = st.sampled_from(["", "a", "b", "c", "ä"])


def coded(values: list[str | None], dictionary: list[str]) -> pa.DictionaryArray:
    indices = [None if value is None else dictionary.index(value) for value in values]
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(dictionary))


def nested(shape: str, values: pa.Array) -> pa.Array:
    """The values as a column of their own, or in something with one of them in each row."""
    each = pa.array(range(len(values) + 1), pa.int32())
    return {
        "column": lambda: values,
        "struct": lambda: pa.StructArray.from_arrays([values], ["value"]),
        "list": lambda: pa.ListArray.from_arrays(each, values),
        "fixed list": lambda: pa.FixedSizeListArray.from_arrays(values, 1),
        "map": lambda: pa.MapArray.from_arrays(each, pa.array(["key"] * len(values), pa.string()), values),
        "struct in a list": lambda: pa.ListArray.from_arrays(each, pa.StructArray.from_arrays([values], ["value"])),
    }[shape]()


def written(rows: pa.Table, **options: Any) -> io.BytesIO:
    plain = io.BytesIO()
    pq.write_table(rows, plain, **options)
    return plain


def encrypted(plain: io.BytesIO) -> io.BytesIO:
    out = io.BytesIO()
    encrypt(plain, out, FileKeys.of_table_file(OLD), location="plain.parquet")
    return out


def opened(file: io.BytesIO, key: StandardKeyMetadata, **options: Any) -> UniformParquetFile:
    return UniformParquetFile(file, key, "file.parquet", **options)


SHAPES: Final = ["column", "struct", "list", "fixed list", "map", "struct in a list"]


@pytest.mark.parametrize("shape", SHAPES)
@given(st.lists(st.none() | WORDS, min_size=1, max_size=9), st.sets(WORDS), st.integers(1, 4))
def test_values_are_found_that_no_row_of_their_row_group_has(
    shape: str, values: list[str | None], others: set[str], row_group_size: int
) -> None:
    dictionary = sorted({*others, *(value for value in values if value is not None)})
    rows = pa.table({"id": range(len(values)), "value": nested(shape, coded(values, dictionary))})

    file = opened(encrypted(written(rows, row_group_size=row_group_size)), OLD, dictionary_columns=None)

    groups = [set(values[start : start + row_group_size]) - {None} for start in range(0, len(values), row_group_size)]
    assert keeps_unused_values(file) == any(group != set(dictionary) for group in groups)


@pytest.mark.parametrize("is_encrypted", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
@given(st.lists(st.none() | WORDS, max_size=9), st.integers(1, 4))
def test_rows_and_row_groups_stay_where_values_are_written_again(
    shape: str, is_encrypted: bool, values: list[str | None], row_group_size: int
) -> None:
    field_id = {b"PARQUET:field_id": b"7"}
    column = nested(shape, coded(values, ["", "a", "b", "c", "ä"]))
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("value", column.type, metadata=field_id)])
    rows = pa.table([pa.array(range(len(values))), column], schema=schema)
    plain = written(
        rows, row_group_size=row_group_size, compression={"id": "gzip", pq.ParquetFile(written(rows)).schema.column(1).path: "none"}
    )
    source, out = encrypted(plain) if is_encrypted else plain, io.BytesIO()

    length = write_values(source, OLD if is_encrypted else None, out, NEW, "file.parquet")

    assert length == len(out.getvalue())
    again, before = opened(out, NEW, dictionary_columns=None), pq.ParquetFile(plain)
    # Arrow does not read dictionaries inside of other values from several row groups at once.
    expected = plain_rows(pa.concat_tables([before.read_row_group(number) for number in range(before.num_row_groups)]))
    assert again.read(None, None, None, use_threads=False).equals(expected)
    # Whatever Arrow calls the entries of a map.
    assert again.footer().schema.equals(pq.ParquetFile(written(expected)).schema)
    assert again.schema.field("value").metadata == field_id and not again.schema.field("id").nullable
    assert not keeps_unused_values(again)
    groups = [before.metadata.row_group(number) for number in range(before.num_row_groups)]
    now = [again.footer().row_group(number) for number in range(again.footer().num_row_groups)]
    assert [group.num_rows for group in now] == [group.num_rows for group in groups]
    codecs = [[group.column(number).compression for number in range(group.num_columns)] for group in (*groups, *now)]
    assert codecs[: len(groups)] == codecs[len(groups) :]


def test_only_a_footer_that_says_so_is_of_a_writer_with_dictionaries() -> None:
    rows = pa.table({"value": coded(["a"], ["a", "b"]), "number": pa.array([1]).dictionary_encode()})

    def notes(file: io.BytesIO) -> bool:
        return plain_layout(source_of(file.getvalue(), "file.parquet")).notes_dictionaries

    assert notes(written(rows))
    assert notes(written(rows.select(["number"])))
    assert not notes(written(plain_rows(rows)))
    assert not notes(written(rows, store_schema=False))
    for note in (b"", b"%", b"AAAA", b"/////w=="):
        plain = plain_rows(rows).replace_schema_metadata({b"ARROW:schema": note})
        assert not notes(written(plain, store_schema=False))


def test_a_changed_file_is_no_source_of_values() -> None:
    stored = bytearray(encrypted(written(pa.table({"value": coded(["a"], ["a", "b"])}))).getvalue())
    stored[40] ^= 1

    with pytest.raises(TamperedFileError):
        write_values(io.BytesIO(bytes(stored)), OLD, io.BytesIO(), NEW, "file.parquet")


def test_a_plaintext_file_that_arrow_does_not_read_is_named() -> None:
    stored = bytearray(written(pa.table({"value": coded(["a"], ["a", "b"])}), compression="zstd").getvalue())
    stored[4:40] = bytes(36)

    with pytest.raises(FormatError, match=r"file\.parquet"):
        write_values(io.BytesIO(bytes(stored)), None, io.BytesIO(), NEW, "file.parquet")
