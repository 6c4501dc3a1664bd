"""DuckDB, whose Parquet reader is its own, reads files of ours under one key, as far as it reads pyarrow's.

That is AES_GCM_V1 with an encrypted footer and without an AAD prefix, flat columns, one page of version 1 in each chunk, no bloom filters,
and queries that push no filter down. When a test here fails because DuckDB reads more, docs/parquet.md and docs/adr/0020 have to say so.
"""

from __future__ import annotations

import base64
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from tablecrypt.errors import TamperedFileError
from tablecrypt.parquet import FileKeys, dataset, encrypt, read_table, thrift
from tablecrypt.parquet.footer import ENCRYPTED_MAGIC, Algorithm, read_footer
from tablecrypt.parquet.storage import open_source
from tablecrypt.parquet.structs import FileCryptoMetaData
from tablecrypt.parquet.thrift import Struct
from tests.support.modular_files import AAD_PREFIX, plain_file, sample_table
from tests.support.mutations import flipped

# DuckDB takes keys as text.
KEY = "0123456789012345"
FLAT = sample_table(60).drop_columns("tags")
ROWS = [tuple(row.values()) for row in FLAT.to_pylist()]
REFUSED = "AES tag differs"


def read_by_duckdb(path: Path, key: str = KEY, *, where: str = "true") -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        connection.execute(f"PRAGMA add_parquet_key('k', '{key}')")
        query = f"SELECT * FROM read_parquet('{path}', encryption_config={{footer_key: 'k'}}) WHERE {where} ORDER BY id"
        return connection.execute(query).fetchall()


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
def test_duckdb_reads_what_is_written_here(codec: str, tmp_path: Path) -> None:
    path = tmp_path / "part-0.parquet"
    encrypt(plain_file(FLAT, row_group_size=20, write_page_index=True, compression=codec), path, FileKeys(KEY.encode()))
    assert read_by_duckdb(path) == ROWS


def test_what_duckdb_cannot_read_is_read_through_a_dataset(tmp_path: Path) -> None:
    """An AAD prefix, and a second page in a chunk, of whichever writer. When DuckDB reads these, docs/parquet.md has to say so."""
    plaintext = plain_file(FLAT, data_page_size=1, write_batch_size=20, use_dictionary=False)
    keys = {"prefix": FileKeys(KEY.encode(), aad_prefix=b"prefix"), "pages": FileKeys(KEY.encode())}
    for name, file_keys in keys.items():
        encrypt(plain_file(FLAT) if name == "prefix" else plaintext, tmp_path / name, file_keys)
    properties = pe.create_encryption_properties(KEY.encode())
    pq.write_table(
        FLAT, tmp_path / "pyarrow", encryption_properties=properties, data_page_size=1, write_batch_size=20, use_dictionary=False
    )
    for name in ("prefix", "pages", "pyarrow"):
        with pytest.raises(duckdb.Error, match=REFUSED):
            read_by_duckdb(tmp_path / name)
    for name, file_keys in keys.items():
        with duckdb.connect() as connection:
            connection.register("rows", dataset(tmp_path / name, file_keys))
            assert connection.execute("SELECT * FROM rows ORDER BY id").fetchall() == ROWS


def with_joined_prefix(data: bytes) -> bytes:
    """The file with an end that names no AAD prefix: aad_file_unique begins with it, so the modules authenticate as before."""
    with open_source(data, "a file with an AAD prefix") as source:
        footer = read_footer(source)
    assert footer.algorithm is not None
    joined = Algorithm(False, AAD_PREFIX + footer.algorithm.aad_file_unique, None, False)
    crypto = Struct()
    crypto.set(FileCryptoMetaData.ENCRYPTION_ALGORITHM, thrift.STRUCT, joined.encode())
    end = crypto.encode() + footer.stored
    return data[: footer.start] + end + len(end).to_bytes(4, "little") + ENCRYPTED_MAGIC


def test_duckdb_reads_an_aad_prefix_that_is_joined_to_the_file_identifier(tmp_path: Path) -> None:
    path = tmp_path / "part-0.parquet"
    encrypt(plain_file(FLAT), path, FileKeys(KEY.encode(), aad_prefix=AAD_PREFIX))
    path.write_bytes(with_joined_prefix(path.read_bytes()))
    assert read_by_duckdb(path) == ROWS


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}], ids=["a dictionary", "no dictionary"])
def test_duckdb_refuses_a_column_that_a_query_filters(options: dict[str, bool], tmp_path: Path) -> None:
    """It decrypts the columns of a filter without any AAD. The same query without a filter is read."""
    path = tmp_path / "part-0.parquet"
    encrypt(plain_file(FLAT, **options), path, FileKeys(KEY.encode()))
    assert read_by_duckdb(path) == ROWS
    with pytest.raises(duckdb.Error, match=REFUSED):
        read_by_duckdb(path, where="ratio > 5")


def test_duckdb_refuses_a_nested_column(tmp_path: Path) -> None:
    """It decrypts what is inside of a list or struct without any AAD."""
    path = tmp_path / "part-0.parquet"
    encrypt(plain_file(sample_table(60)), path, FileKeys(KEY.encode()))
    with pytest.raises(duckdb.Error, match=REFUSED):
        read_by_duckdb(path)


@pytest.mark.parametrize("length", [16, 24, 32])
def test_duckdb_takes_a_key_that_is_no_text_only_if_it_has_32_bytes(length: int, tmp_path: Path) -> None:
    """In base64, a key of 16 bytes has 24 characters and one of 24 bytes has 32: DuckDB takes the characters for the key."""
    path, key = tmp_path / "part-0.parquet", bytes(range(128, 128 + length))
    encrypt(plain_file(FLAT), path, FileKeys(key))
    encoded = base64.b64encode(key).decode()
    if length == 32:
        assert read_by_duckdb(path, encoded) == ROWS
        return
    with pytest.raises(duckdb.Error, match=REFUSED):
        read_by_duckdb(path, encoded)


def test_duckdb_refuses_a_damaged_page(tmp_path: Path) -> None:
    path = tmp_path / "part-0.parquet"
    encrypt(plain_file(FLAT), path, FileKeys(KEY.encode()))
    damaged = flipped(path.read_bytes(), 100)
    path.write_bytes(damaged)
    with pytest.raises(duckdb.Error):
        read_by_duckdb(path)


def test_what_duckdb_writes_without_a_file_identifier_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "part-0.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"PRAGMA add_parquet_key('k', '{KEY}')")
        connection.execute("SET force_mbedtls_unsafe = 'true'")
        connection.execute(f"COPY (SELECT range AS id FROM range(10)) TO '{path}' (encryption_config {{footer_key: 'k'}})")
    with pytest.raises(TamperedFileError, match="aad_file_unique does not have 8 bytes"):
        read_table(path, FileKeys(KEY.encode()))
