"""DuckDB, whose Parquet reader is its own, reads files of ours under one key, as far as it reads pyarrow's.

That is AES_GCM_V1 with an encrypted footer and without an AAD prefix, flat columns, one page of version 1 in each chunk, no bloom filters.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from tablecrypt.errors import TamperedFileError
from tablecrypt.parquet import FileKeys, dataset, encrypt, read_table
from tests.support.modular_files import plain_file, sample_table
from tests.support.mutations import flipped

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
        with pytest.raises(duckdb.Error, match="AES tag differs"):
            read_by_duckdb(tmp_path / name)
    for name, file_keys in keys.items():
        with duckdb.connect() as connection:
            connection.register("rows", dataset(tmp_path / name, file_keys))
            assert connection.execute("SELECT * FROM rows ORDER BY id").fetchall() == [tuple(row.values()) for row in FLAT.to_pylist()]


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
