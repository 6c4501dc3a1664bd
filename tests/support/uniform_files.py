"""Encrypted Parquet files in memory, for tests that read or tamper with one."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.parquet.uniform import ReadRequest, UniformParquetFile, UniformParquetWriter
from tests.support.plaintext import CANARY

LOCATION = "s3://bucket/data/00000-0.parquet"
UNION = b"\x1c\x1c"
"""FileCryptoMetaData and the union in it begin with these headers: the second says field 1, which is AES_GCM_V1."""
CTR_UNION = b"\x1c\x2c"


@dataclass(frozen=True)
class EncryptedFile:
    """The bytes of an encrypted Parquet file, its key metadata (with its length) and what it holds."""

    data: bytes
    key_metadata: StandardKeyMetadata
    table: pa.Table


def sample_table(rows: int = 60) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "text": pa.array([f"{CANARY} {number % 7}" for number in range(rows)], pa.string()),
            "ratio": pa.array([number / 3 for number in range(rows)], pa.float64()),
        }
    )


def encrypt_uniform(
    table: pa.Table, key_length: int = 16, row_group_size: int = 1_000_000, key_metadata: StandardKeyMetadata | None = None, **options: Any
) -> EncryptedFile:
    key_metadata = key_metadata or StandardKeyMetadata.generate(key_length, secrets.token_bytes)
    sink = pa.BufferOutputStream()
    writer = UniformParquetWriter(sink, table.schema, key_metadata, **options)
    writer.write(table, row_group_size)
    _, length = writer.close()
    data = sink.getvalue().to_pybytes()
    assert length == len(data)
    return EncryptedFile(data, key_metadata.with_file_length(length), table)


def read(data: bytes, key_metadata: StandardKeyMetadata, columns: list[str] | None = None, **options: Any) -> pa.Table:
    """Every row, through the reader that scans use."""
    file = UniformParquetFile(pa.BufferReader(data), key_metadata, LOCATION, **options)
    names = file.schema.names if columns is None else columns
    return pa.Table.from_batches(list(file.batches(ReadRequest(names))), schema=pa.schema([file.schema.field(name) for name in names]))


def downgraded(data: bytes) -> bytes:
    """The same file, saying in its plaintext that it is of AES_GCM_CTR_V1."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert data[start : start + 2] == UNION
    return data[:start] + CTR_UNION + data[start + 2 :]
