"""Authenticating an encrypted Parquet file module by module, naming every bad module.

short look    length, both magics, footer
full look     those, and every module that the footer leads to: page headers, pages, dictionaries, indexes, bloom filters
"""

from __future__ import annotations

import os

from pyiceberg.io import InputStream

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import PlaintextRefusedError, TamperedFileError
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
        UniformParquetFile(raw, key_metadata, location).footer()
    except (TamperedFileError, PlaintextRefusedError) as refused:
        return FileLook(stored, 0, (Problem("footer", refused.what),))
    return FileLook(stored, 1)
