"""Every codec and encoding in every mode: read by us, by pyarrow's core where it can, and decrypted to the bytes of before."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from tablecrypt.errors import TamperedFileError
from tablecrypt.parquet import FileKeys, read_table, verify
from tablecrypt.parquet.footer import read_footer
from tablecrypt.parquet.layout import FileLayout
from tablecrypt.parquet.storage import open_source
from tablecrypt.parquet.structs import ColumnMetaData
from tests.support.modular_files import (
    AAD_PREFIX,
    FOOTER_KEY,
    ID_KEY,
    MODES,
    NAME_KEY,
    PARTLY_PLAIN,
    Mode,
    decrypted,
    encrypted,
    every_module,
    plain_file,
    reencrypted,
    sample_table,
)
from tests.support.pyarrow_keytools import read_by_pyarrow, with_key_material

pytestmark = pytest.mark.slow

CODECS = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]
ENCODINGS = {
    "plain": "PLAIN",
    "delta": "DELTA_BINARY_PACKED",
    "lengths": "DELTA_LENGTH_BYTE_ARRAY",
    "prefixes": "DELTA_BYTE_ARRAY",
    "split": "BYTE_STREAM_SPLIT",
    "flags": "RLE",
}
# Type, encodings, path, codec, number of values, two sizes, offset of the first data page.
REQUIRED_METADATA = {1, 2, 3, 4, 5, 6, 7, 9}
VECTORS = Path(__file__).parents[1] / "vectors" / "parquet"

every_mode = pytest.mark.parametrize("mode", [*MODES, PARTLY_PLAIN], ids=str)


def encodings_table(rows: int = 60) -> pa.Table:
    """A column for each encoding that pyarrow writes, dictionaries included, with nulls and nesting; `id` and `name` have keys in MODES."""
    texts = [None if number % 4 == 0 else f"text {number % 9}" for number in range(rows)]
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "name": pa.array(texts, pa.string()),
            "plain": pa.array([decimal.Decimal(number).scaleb(-2) for number in range(rows)], pa.decimal128(20, 2)),
            "delta": pa.array([number * number for number in range(rows)], pa.int32()),
            "lengths": pa.array(texts, pa.binary()),
            "prefixes": pa.array(texts, pa.string()),
            "split": pa.array([number / 7 for number in range(rows)], pa.float32()),
            "flags": pa.array([number % 3 == 0 for number in range(rows)], pa.bool_()),
            "ratio": pa.array(
                [datetime.datetime(2026, 1, 1) + datetime.timedelta(hours=number) for number in range(rows)], pa.timestamp("us")
            ),
            "nested": pa.array([{"l": [number] * (number % 3), "m": [("k", number)]} for number in range(rows)], NESTED),
        }
    )


NESTED = pa.struct([("l", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int64()))])


def _encoded(codec: str, page_version: str) -> bytes:
    options: dict[str, Any] = every_module(compression=codec, data_page_version=page_version, data_page_size=100, write_page_checksum=True)
    dictionaries = ["id", "name", "ratio", "nested.l.list.element"]
    return plain_file(encodings_table(), **options, use_dictionary=dictionaries, column_encoding=ENCODINGS)


FILES = {(codec, version): _encoded(codec, version) for codec in CODECS for version in ("1.0", "2.0")}


def test_the_files_have_every_encoding() -> None:
    chunks = pq.ParquetFile(pa.BufferReader(FILES["none", "1.0"])).metadata.row_group(0)
    found = {encoding for number in range(chunks.num_columns) for encoding in chunks.column(number).encodings}
    assert found >= {*ENCODINGS.values(), "RLE_DICTIONARY"}


@every_mode
@pytest.mark.parametrize("page_version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", CODECS)
def test_each_codec_and_encoding_is_read_in_each_mode(codec: str, page_version: str, mode: Mode) -> None:
    plaintext = FILES[codec, page_version]
    data = encrypted(plaintext, mode.keys)

    assert read_table(data, mode.keys) == encodings_table()
    assert decrypted(data, mode.keys) == plaintext
    if not mode.column_keys and not mode.plaintext_columns:
        properties = pe.create_decryption_properties(FOOTER_KEY, aad_prefix=AAD_PREFIX)
        assert pq.read_table(pa.BufferReader(data), decryption_properties=properties, page_checksum_verification=True) == encodings_table()


@every_mode
def test_pyarrows_core_reads_column_keys_by_their_key_metadata(mode: Mode) -> None:
    keys = with_key_material(mode.keys)
    for plaintext in (FILES["snappy", "1.0"], FILES["zstd", "2.0"]):
        assert read_by_pyarrow(encrypted(plaintext, keys)) == encodings_table()


@pytest.mark.parametrize("old", [MODES[0], MODES[4], MODES[7], PARTLY_PLAIN], ids=str)
@every_mode
def test_each_mode_is_reencrypted_into_each_other(old: Mode, mode: Mode) -> None:
    plaintext = FILES["snappy", "1.0"]
    new = FileKeys(
        b"another-footer-k",
        {name: bytes(reversed(key)) for name, key in mode.column_keys.items()},
        b"another prefix",
        True,
        mode.algorithm,
        mode.plaintext_footer,
        plaintext_columns=mode.plaintext_columns,
    )

    data = reencrypted(encrypted(plaintext, old.keys), old.keys, new)

    assert decrypted(data, new) == plaintext
    verify(data, new)


@pytest.mark.parametrize("name", ["hadoop_lz4_compressed", "non_hadoop_lz4_compressed", "lz4_raw_compressed"])
def test_what_others_wrote_with_lz4_is_read_in_each_mode(name: str) -> None:
    plaintext = (VECTORS / f"{name}.parquet").read_bytes()
    expected = pq.read_table(pa.BufferReader(plaintext))
    for mode in MODES:
        keys = FileKeys(FOOTER_KEY, {"c0": ID_KEY} if mode.column_keys else {}, b"", False, mode.algorithm, mode.plaintext_footer)
        data = encrypted(plaintext, keys)
        assert read_table(data, keys) == expected
        assert pq.read_table(pa.BufferReader(decrypted(data, keys))) == expected


@pytest.mark.parametrize("footer_key", [b"f" * 16, b"f" * 24, b"f" * 32])
@pytest.mark.parametrize("column_key", [b"c" * 16, b"c" * 24, b"c" * 32])
def test_every_length_of_key_is_read(footer_key: bytes, column_key: bytes) -> None:
    for algorithm in ("AES_GCM_V1", "AES_GCM_CTR_V1"):
        keys = FileKeys(footer_key, {"id": column_key}, algorithm=algorithm)
        assert read_table(encrypted(plain_file(sample_table()), keys), keys) == sample_table()


@every_mode
@pytest.mark.parametrize("rows", [0, 1])
def test_files_of_no_or_one_row_are_read(mode: Mode, rows: int) -> None:
    plaintext = plain_file(sample_table(rows), write_page_index=True)
    data = encrypted(plaintext, mode.keys)
    assert read_table(data, mode.keys) == sample_table(rows)
    assert decrypted(data, mode.keys) == plaintext
    verify(data, mode.keys)


def test_nested_leaves_have_keys_of_their_own() -> None:
    plaintext = FILES["snappy", "1.0"]
    keys = FileKeys(FOOTER_KEY, {"nested.l.list.element": ID_KEY, "nested.m": NAME_KEY})
    data = encrypted(plaintext, keys)
    assert read_table(data, keys) == encodings_table()
    assert read_by_pyarrow(encrypted(plaintext, with_key_material(keys))) == encodings_table()
    only_footer = FileKeys(FOOTER_KEY)
    assert read_table(data, only_footer, ["delta"]) == encodings_table().select(["delta"])


def test_the_aad_prefix_is_stored_only_if_that_is_asked_for() -> None:
    plaintext = plain_file(sample_table())
    for mode in (Mode(), Mode(plaintext_footer=True)):
        assert AAD_PREFIX not in encrypted(plaintext, mode.keys)
        stored = Mode(plaintext_footer=mode.plaintext_footer, store_aad_prefix=True)
        data = encrypted(plaintext, stored.keys)
        assert AAD_PREFIX in data
        for keys in (FileKeys(FOOTER_KEY, strict=False), FileKeys(FOOTER_KEY, aad_prefix=AAD_PREFIX)):
            assert read_table(data, keys) == sample_table()
        with pytest.raises(TamperedFileError, match="stores an AAD prefix, where none is expected"):
            read_table(data, FileKeys(FOOTER_KEY))


def test_a_reader_without_keys_sees_what_a_plaintext_footer_leaves_in_the_clear() -> None:
    mode = Mode(plaintext_footer=True, column_keys={"id": ID_KEY}, plaintext_columns=("ratio",))
    data = encrypted(plain_file(sample_table(), **every_module()), mode.keys)

    file = pq.ParquetFile(pa.BufferReader(data))

    assert file.read(columns=["ratio"]) == sample_table().select(["ratio"])
    assert file.schema_arrow == sample_table().schema
    with pytest.raises(OSError, match=r".+"):
        file.read(columns=["name"])


def test_statistics_of_encrypted_columns_are_in_no_plaintext_footer() -> None:
    mode = Mode(plaintext_footer=True, column_keys={"id": ID_KEY}, plaintext_columns=("ratio",))
    data = encrypted(plain_file(sample_table(), **every_module()), mode.keys)

    with open_source(data) as source:
        chunks = FileLayout(source, read_footer(source), None).row_groups[0]

    told = {}
    for chunk in chunks:
        metadata = chunk.read_metadata_in_the_clear()
        assert metadata is not None
        told[chunk.path[0]] = metadata.fields.keys() - REQUIRED_METADATA
    assert told == {
        "id": {ColumnMetaData.DICTIONARY_PAGE_OFFSET},
        "name": {ColumnMetaData.DICTIONARY_PAGE_OFFSET},
        "tags": {ColumnMetaData.DICTIONARY_PAGE_OFFSET},
        "ratio": {
            ColumnMetaData.DICTIONARY_PAGE_OFFSET,
            ColumnMetaData.STATISTICS,
            ColumnMetaData.ENCODING_STATS,
            ColumnMetaData.SIZE_STATISTICS,
        },
    }


@every_mode
def test_no_value_is_left_in_the_clear(mode: Mode) -> None:
    options = every_module(compression="none", use_dictionary=False)
    plaintext = plain_file(sample_table(), **options)
    assert b"c4nary" in plaintext
    assert b"c4nary" not in encrypted(plaintext, mode.keys)
