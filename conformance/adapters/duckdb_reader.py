"""DuckDB reads Parquet files under one key, which it takes as text: of other keys it can try none."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from conformance.adapters.protocol import Case, Unsupported, serve
from conformance.rows import write_rows


def read(case: Case) -> str:
    """Read one file."""
    if case["column_keys"] or case["plaintext_footer"]:
        raise Unsupported("DuckDB has one key for the footer and all columns, and encrypts the footer")
    if case["aad_prefix"] and not case["aad_prefix_is_stored"]:
        raise Unsupported("DuckDB takes no AAD prefix")
    # As text: in base64 a key of 16 or 24 bytes is as long as another one in text, for which it is taken.
    key = bytes.fromhex(case["footer_key"]).decode("ascii")
    with duckdb.connect() as connection:
        connection.execute(f"PRAGMA add_parquet_key('k', '{key}')")
        query = f"SELECT * FROM read_parquet('{case['file']}', encryption_config={{footer_key: 'k'}})"
        write_rows(pa.table(connection.execute(query).to_arrow_table()), case["out"])
    return "rows"


def refused(error: Exception) -> str:
    """The class of an error."""
    return "tampered" if "AES tag differs" in str(error) or "encrypted" in str(error) else "other"


if __name__ == "__main__":
    serve("DuckDB", duckdb.__version__, ["parquet"], read, (duckdb.Error,), refused)
