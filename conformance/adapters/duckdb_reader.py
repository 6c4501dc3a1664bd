"""DuckDB reads and writes Parquet files under one key, which it takes as text: of other keys it can try none."""

from __future__ import annotations

from typing import Final

import duckdb
import pyarrow as pa

from conformance.adapters.protocol import Case, Unsupported, class_by_words, serve
from conformance.rows import read_rows, write_rows

_ROWS_OF_A_GROUP: Final = 2048
_NO_PREFIX: Final = "DuckDB takes no AAD prefix"


def read(case: Case) -> str:
    """Read one file."""
    _check_keys(case)
    if case["aad_prefix"] and not case["aad_prefix_is_stored"]:
        raise Unsupported(_NO_PREFIX)
    with _connection(case) as connection:
        query = f"SELECT * FROM read_parquet('{case['file']}', encryption_config={{footer_key: 'k'}})"
        write_rows(pa.table(connection.execute(query).to_arrow_table()), case["out"])
    return "rows"


def write(case: Case) -> None:
    """Write one file."""
    _check_keys(case)
    if case["aad_prefix"]:
        raise Unsupported(_NO_PREFIX)
    if case["algorithm"] != "AES_GCM_V1":
        raise Unsupported("DuckDB writes no AES_GCM_CTR_V1")
    if case["row_group_rows"] < _ROWS_OF_A_GROUP:
        raise Unsupported(f"DuckDB's row groups have {_ROWS_OF_A_GROUP} rows or more")
    with _connection(case) as connection:
        # Without it DuckDB writes nothing encrypted: its own cipher takes no randomness from the system, and OpenSSL comes by download.
        connection.execute("SET force_mbedtls_unsafe = 'true'")
        connection.register("rows", read_rows(case["rows"]))
        options = "FORMAT parquet, COMPRESSION uncompressed, ENCRYPTION_CONFIG {footer_key: 'k'}"
        connection.execute(f"COPY rows TO '{case['out']}' ({options})")


def _connection(case: Case) -> duckdb.DuckDBPyConnection:
    # As text: in base64 a key of 16 or 24 bytes is as long as another one in text, for which it is taken.
    key = bytes.fromhex(case["footer_key"]).decode("ascii")
    connection = duckdb.connect()
    connection.execute(f"PRAGMA add_parquet_key('k', '{key}')")
    return connection


def _check_keys(case: Case) -> None:
    if case["column_keys"] or case["plaintext_footer"]:
        raise Unsupported("DuckDB has one key for the footer and all columns, and encrypts the footer")


def refused(error: Exception) -> str:
    """The class of an error."""
    return class_by_words(error, {"tampered": ("AES tag differs", "encrypted")})


if __name__ == "__main__":
    serve("DuckDB", duckdb.__version__, ["parquet"], read, (duckdb.Error,), refused, write, ["parquet"])
