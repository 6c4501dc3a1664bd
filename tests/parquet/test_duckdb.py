"""DuckDB, whose Parquet reader is its own, reads files of ours under one key, as far as it reads pyarrow's.

That is AES_GCM_V1 with an encrypted footer and without an AAD prefix, flat columns, pages of version 1, no bloom filters.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from tablecrypt.errors import TamperedFileError
from tablecrypt.parquet import FileKeys, encrypt, read_table
from tests.support.modular_files import plain_file, sample_table

# DuckDB takes keys as text.
KEY = "0123456789012345"
FLAT = sample_table(60).drop_columns("tags")


def read_by_duckdb(path: Path) -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        connection.execute(f"PRAGMA add_parquet_key('k', '{KEY}')")
        query = f"SELECT * FROM read_parquet('{path}', encryption_config={{footer_key: 'k'}}) ORDER BY id"
        return connection.execute(query).fetchall()


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
def test_duckdb_reads_what_is_written_here(codec: str, tmp_path: Path) -> None:
    path = tmp_path / "part-0.parquet"
    encrypt(plain_file(FLAT, row_group_size=20, write_page_index=True, compression=codec), path, FileKeys(KEY.encode()))
    rows = [tuple(row.values()) for row in FLAT.to_pylist()]
    assert read_by_duckdb(path) == rows


def test_duckdb_refuses_a_damaged_page(tmp_path: Path) -> None:
    path = tmp_path / "part-0.parquet"
    encrypt(plain_file(FLAT), path, FileKeys(KEY.encode()))
    damaged = bytearray(path.read_bytes())
    damaged[100] ^= 1
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
