"""A table's file is under one key: a column under another, or under none, is refused each time, and the file is named with the column."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import FormatError, PlaintextRefusedError, TablecryptError
from tablecrypt.parquet import FileKeys
from tablecrypt.parquet.footer import FileCiphers, keys_of_chunks, read_footer
from tablecrypt.parquet.storage import source_of
from tablecrypt.parquet.uniform import UniformParquetFile
from tests.support.modular_files import AAD_PREFIX, FOOTER_KEY, ID_KEY, encrypted, plain_file, sample_table

TABLE = sample_table()


def file_of(keys: FileKeys) -> tuple[bytes, StandardKeyMetadata]:
    data = encrypted(plain_file(TABLE), keys)
    return data, StandardKeyMetadata(Secret(FOOTER_KEY), AAD_PREFIX, len(data))


def test_a_file_under_one_key_is_read() -> None:
    data, key_metadata = file_of(FileKeys(FOOTER_KEY, aad_prefix=AAD_PREFIX))
    for _ in range(2):
        assert UniformParquetFile(pa.BufferReader(data), key_metadata, "part-0").schema.names == TABLE.column_names


@pytest.mark.parametrize(
    ("keys", "error", "reason"),
    [
        (FileKeys(FOOTER_KEY, {"id": ID_KEY}, AAD_PREFIX), FormatError, "part-0: column id is encrypted with a key of its own"),
        (FileKeys(FOOTER_KEY, dict.fromkeys(TABLE.column_names, ID_KEY), AAD_PREFIX), FormatError, "with a key of its own"),
        (
            FileKeys(FOOTER_KEY, aad_prefix=AAD_PREFIX, plaintext_columns=["id"]),
            PlaintextRefusedError,
            "part-0: has column id in the clear",
        ),
    ],
    ids=["key of its own", "keys of their own", "in the clear"],
)
def test_a_file_with_a_column_under_another_key_or_none_is_refused_each_time(
    keys: FileKeys, error: type[TablecryptError], reason: str
) -> None:
    data, key_metadata = file_of(keys)
    for _ in range(2):
        with pytest.raises(error, match=reason):
            UniformParquetFile(pa.BufferReader(data), key_metadata, "part-0")


def test_which_chunks_have_a_key_of_their_own_is_told_from_those_under_the_footers_and_those_in_the_clear() -> None:
    keys = FileKeys(FOOTER_KEY, {"id": ID_KEY}, AAD_PREFIX, plaintext_columns=["name"])
    footer = read_footer(source_of(encrypted(plain_file(TABLE), keys)))
    for _ in range(2):
        _, found = keys_of_chunks(footer, FileCiphers(footer, keys))
        assert {True, None, False} == set(found)
        assert found[TABLE.column_names.index("id")] is True
        assert found[TABLE.column_names.index("name")] is None
