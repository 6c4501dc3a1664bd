"""pyarrow reads and writes Parquet files whose keys are given. It knows no encrypted tables."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

from conformance.adapters.protocol import Case, Unsupported, class_by_words, serve
from conformance.rows import read_rows, write_rows


def read(case: Case) -> str:
    """Read one file."""
    _check_keys(case)
    decryption = pe.create_decryption_properties(
        bytes.fromhex(case["footer_key"]),
        aad_prefix=bytes.fromhex(case["aad_prefix"]) or None,
        check_footer_integrity=True,
    )
    # Not pq.read_table, which guesses partitions from the names of folders.
    write_rows(pq.ParquetFile(case["file"], decryption_properties=decryption).read(), case["out"])
    return "rows"


def write(case: Case) -> None:
    """Write one file."""
    _check_keys(case)
    encryption = pe.create_encryption_properties(
        bytes.fromhex(case["footer_key"]),
        aad_prefix=bytes.fromhex(case["aad_prefix"]) or None,
        store_aad_prefix=case["aad_prefix_is_stored"],
        encryption_algorithm=case["algorithm"],
        plaintext_footer=case["plaintext_footer"],
    )
    pq.write_table(read_rows(case["rows"]), case["out"], encryption_properties=encryption, **writer_options(case))


def writer_options(case: Case) -> dict[str, Any]:
    """What pyarrow's writer is told of pages and row groups, besides that nothing is compressed."""
    pages = {"max_rows_per_page": case["page_rows"], "write_batch_size": case["page_rows"]}
    return pages | {"row_group_size": case["row_group_rows"], "compression": "none"}


def _check_keys(case: Case) -> None:
    if case["column_keys"]:
        raise Unsupported("pyarrow takes one key for the footer and all columns")


def refused(error: Exception) -> str:
    """The class of an error: Arrow has one type for all, and says in words what it is."""
    words = {
        "format": ("magic bytes not found",),
        "tampered": ("Failed decryption", "AAD", "ecrypt", "signature", "Signature", "cryptographic"),
    }
    return class_by_words(error, words)


if __name__ == "__main__":
    errors = (OSError, RuntimeError, pa.ArrowException)
    serve("pyarrow", pa.__version__, ["parquet"], read, errors, refused, write, ["parquet"])
