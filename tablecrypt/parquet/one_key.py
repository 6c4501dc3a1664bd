"""Whether all columns of a table's file are encrypted with the file's one key.

An Iceberg manifest has room for one key per data file. Parquet Modular Encryption could give a column a key of its own, or leave it in the
clear. Neither is read from a table: Arrow would read the column in the clear without authenticating it, and while it looks at the
statistics of a column whose key it lacks, it ends the process.

Each column chunk says in the footer which key it has. Decoding all of them takes longer than reading a few columns of a wide file, so the
authenticated footer is searched first for the bytes in which Thrift's compact protocol writes that:

    field 8 of the chunk, a struct | its field 1, an empty struct, end | end       the footer's key, as many times as there are chunks
    field 8 of the chunk, a struct | its field 2, a struct | its field 1, a list   a key of the column's own, nowhere

The search begins at the number of rows, behind the schema, whose types look like the first of these. Only where it finds something else,
which statistics can cause by accident, all chunks are decoded, and these decide.

Specification: Apache Parquet, "Parquet Modular Encryption", section 5.2; parquet.thrift, ColumnCryptoMetaData.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow.parquet as pq

from tablecrypt._bytes import varint, zigzag
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.parquet.footer import StoredFooter
from tablecrypt.parquet.keys import FileKeys
from tablecrypt.parquet.layout import FileCiphers, FileLayout
from tablecrypt.parquet.modules import FOOTER_SUFFIX
from tablecrypt.parquet.storage import Source

_ROWS_HEADER: Final = b"\x16"
_GROUPS_HEADER: Final = b"\x19"
_HEADER: Final = rb"[\x1c\x2c\x3c\x4c\x5c\x6c\x7c\x8c]"
"""Of field 8 of a chunk, which says how many ids lie between it and the field before. What begins with a literal is found sooner."""
_FOOTER_KEY: Final = re.compile(rb"\x1c\x00\x00(?<=" + _HEADER + rb"\x1c\x00\x00)(?<!\x19.\x1c\x00\x00)(?=[\x00\x18])", re.DOTALL)
"""And then the chunk ends, or field 9 begins. A list of one column order, whose header begins with 19, reads the same after that."""
_OWN_KEY: Final = re.compile(rb"\x2c\x19(?<=" + _HEADER + rb"\x2c\x19)")


def check_one_key(footer: StoredFooter, key_metadata: StandardKeyMetadata, opened: pq.FileMetaData, source: Any) -> None:
    """Check that every column chunk of a table's file is encrypted with the file's key.

    Args:
        footer: of the file, as it is stored.
        key_metadata: of the file.
        opened: the same footer, as Arrow opened it.
        source: the file, open, of which nothing is read.

    Raises:
        FormatError: a column has a key of its own.
        PlaintextRefusedError: a column is in the clear.
        TamperedFileError: the footer does not authenticate.
    """
    ciphers = FileCiphers(footer, FileKeys.of_table_file(key_metadata))
    if counted_keys(footer, ciphers, opened.num_rows) == (opened.num_row_groups * opened.num_columns, 0):
        return
    for chunk in FileLayout(Source(source, footer.location), footer, ciphers).chunks():
        _ = chunk.cipher  # an error for every other than that of the footer


def counted_keys(footer: StoredFooter, ciphers: FileCiphers, num_rows: int) -> tuple[int, int]:
    """Return how often the footer seems to say that a chunk has the footer's key, and that it has one of its own: at least so often.

    Raises:
        TamperedFileError: the footer does not authenticate.
    """
    metadata = ciphers.footer.decrypt(FOOTER_SUFFIX, memoryview(footer.stored), "the footer")
    start = max(0, metadata.find(_ROWS_HEADER + varint(zigzag(num_rows)) + _GROUPS_HEADER))
    return sum(1 for _ in _FOOTER_KEY.finditer(metadata, start)), sum(1 for _ in _OWN_KEY.finditer(metadata, start))
