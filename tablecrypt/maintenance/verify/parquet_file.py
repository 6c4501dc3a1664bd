"""Authenticating an encrypted Parquet data file of a table: one key for all of it, nothing in the clear.

    short look    length, both magics, footer
    full look     those, and every module: page headers, pages, dictionaries, indexes, bloom filters; every byte belongs to something

What the store raises passes through.
"""

from __future__ import annotations

import os

from pyiceberg.io import InputStream

from tablecrypt import parquet
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError, PlaintextRefusedError, TamperedFileError
from tablecrypt.maintenance.verify.problems import FileLook, Problem
from tablecrypt.parquet.uniform import UniformParquetFile


def verify_parquet(raw: InputStream, key_metadata: StandardKeyMetadata, location: str, full: bool = True) -> FileLook:
    """Authenticate a file.

    Args:
        raw: the stored bytes. The caller closes it.
        key_metadata: the file's DEK, AAD prefix and length.
        location: names the file in messages.
        full: every module; else the length, the magics and the footer alone.
    """
    raw.seek(0, os.SEEK_END)
    stored = raw.tell()
    raw.seek(0)
    try:
        parts = _all_modules(raw, key_metadata, location) if full else _footer(raw, key_metadata, location)
    except (TamperedFileError, PlaintextRefusedError) as refused:
        return FileLook(stored, 0, (Problem("modules" if full else "footer", refused.what),))
    except FormatError as refused:
        return FileLook(stored, 0, (Problem("format", str(refused)),))
    return FileLook(stored, parts)


def _footer(raw: InputStream, key_metadata: StandardKeyMetadata, location: str) -> int:
    UniformParquetFile(raw, key_metadata, location).footer()
    return 1


def _all_modules(raw: InputStream, key_metadata: StandardKeyMetadata, location: str) -> int:
    verified = parquet.verify(raw, parquet.FileKeys.of_table_file(key_metadata), location=location)
    if not verified.complete:
        clear = ", ".join(verified.columns_in_the_clear) or f"{verified.unauthenticated_pages} pages"
        raise TamperedFileError(location, f"is encrypted by {verified.algorithm} in parts only: {clear} cannot be authenticated")
    return sum(verified.modules.values())
