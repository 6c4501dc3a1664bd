"""pyarrow reads Parquet files whose keys are given. It knows no encrypted tables."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

from conformance.adapters.protocol import Case, Unsupported, serve
from conformance.rows import write_rows


def read(case: Case) -> str:
    """Read one file."""
    if case["column_keys"]:
        raise Unsupported("pyarrow takes one key for the footer and all columns")
    decryption = pe.create_decryption_properties(
        bytes.fromhex(case["footer_key"]),
        aad_prefix=bytes.fromhex(case["aad_prefix"]) or None,
        check_footer_integrity=True,
    )
    # Not pq.read_table, which guesses partitions from the names of folders.
    write_rows(pq.ParquetFile(case["file"], decryption_properties=decryption).read(), case["out"])
    return "rows"


def refused(error: Exception) -> str:
    """The class of an error: Arrow has one type for all, and says in words what it is."""
    words = ("Failed decryption", "AAD", "ecrypt", "signature", "Signature", "cryptographic")
    if "magic bytes not found" in str(error):
        return "format"
    return "tampered" if any(word in str(error) for word in words) else "other"


if __name__ == "__main__":
    serve("pyarrow", pa.__version__, ["parquet"], read, (OSError, RuntimeError, pa.ArrowException), refused)
