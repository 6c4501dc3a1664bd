"""Whether all columns of a table's file are encrypted with the file's one key.

An Iceberg manifest has room for one key per data file. Parquet Modular Encryption could give a column a key of its own, or leave it in the
clear. Neither is read from a table: Arrow would read the column in the clear without authenticating it, and while it looks at the
statistics of a column whose key it lacks, it ends the process.

Each column chunk says in the authenticated footer which key it has. All chunks are asked, and nothing else of them is decoded, which
reading a few columns of a wide file would wait for. What other bytes look like never counts: a name or a statistic can hold any.

What a footer says is kept in the process under the SHA-256 of its plaintext. A scan decrypts and authenticates the footer as it is then,
and looks into it again only where it is another one.

    a chunk's field 8, as it is stored     0c | 1c 00 | 00     the struct's field 1, an empty struct: the footer's key
                                           0c | 2c … | 00      its field 2, a struct: a key of the column's own
                                           not there           the column is in the clear

Specification: Apache Parquet, "Parquet Modular Encryption", section 5.2; parquet.thrift, ColumnCryptoMetaData.
"""

from __future__ import annotations

import os
from hashlib import sha256
from typing import Any, Final, TypeAlias

import pyarrow.parquet as pq

from tablecrypt._size_bounded_cache import SizeBoundedCache
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.parquet.columns_apart import ENTRY, with_columns_apart
from tablecrypt.parquet.file_keys import FileKeys
from tablecrypt.parquet.footer import StoredFooter, described
from tablecrypt.parquet.layout import FileCiphers, FileLayout
from tablecrypt.parquet.modules import FOOTER_SUFFIX
from tablecrypt.parquet.storage import Source
from tablecrypt.parquet.thrift import FILE_META_DATA_SHAPE, ColumnChunk, FileMetaData, RowGroup
from tablecrypt.parquet.thrift_reader import decode_padded, stored_values

_KEY_OF_CHUNK: Final = (FileMetaData.ROW_GROUPS, RowGroup.COLUMNS, ColumnChunk.CRYPTO_METADATA)
_FOOTER_KEY: Final = b"\x1c\x00\x00"
_OWN_KEY: Final = b"\x2c"
_MOST_BYTES: Final = 4 * 1024 * 1024
_BYTES_OF_ONE: Final = 128
_Keys: TypeAlias = tuple[bool | None, ...]
_KEPT: Final = SizeBoundedCache[bytes, _Keys]()
"""What footers say, up to about so many bytes. No key and no value is in it."""
os.register_at_fork(after_in_child=_KEPT.start_empty)


def check_one_key(footer: StoredFooter, key_metadata: StandardKeyMetadata, opened: pq.FileMetaData, source: Any) -> bytes:
    """Check that every column chunk of a table's file is encrypted with the file's key. Returns the SHA-256 of the footer's plaintext.

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
    # The quick answer decodes no chunk. Where it differs, the slow way names the column.
    digest, keys = _read(footer, ciphers)
    if keys != (False,) * (opened.num_row_groups * opened.num_columns):
        for chunk in FileLayout(Source(source, footer.location), footer, ciphers).chunks():
            _ = chunk.cipher  # an error for every other than that of the footer
    return digest


def keys_of_chunks(footer: StoredFooter, ciphers: FileCiphers) -> _Keys:
    """Return of each chunk, in the order of the footer, whether it has a key of its own; None: in the clear, or said in no known way.

    Raises:
        FormatError: the footer is none of Parquet.
        TamperedFileError: the footer does not authenticate.
    """
    return _read(footer, ciphers)[1]


def _read(footer: StoredFooter, ciphers: FileCiphers) -> tuple[bytes, _Keys]:
    # pyarrow's FileMetaData does not say under which key a column is, so the stored footer is opened once more.
    metadata = bytes(ciphers.footer.decrypt(FOOTER_SUFFIX, memoryview(footer.stored), "the footer"))
    # By the hash of the very bytes that were authenticated just now: of a footer that was exchanged, nothing is kept.
    digest = sha256(metadata).digest()
    if (known := _KEPT.find(digest)) is not None:
        return digest, known

    with described(footer.location, "the footer"):
        stored = stored_values(_listing_all(metadata), _KEY_OF_CHUNK)
    # Bytes are compared and not decoded: what a writer says in other bytes is left to the slow way.
    keys = tuple(False if key == _FOOTER_KEY else True if key.startswith(_OWN_KEY) else None for key in stored)
    _KEPT.keep(digest, keys, _BYTES_OF_ONE + 8 * len(keys), _MOST_BYTES)

    return digest, keys


def _listing_all(metadata: bytes) -> bytes:
    """Return the footer with the chunks of columns that it holds apart: they have keys too."""
    return with_columns_apart(decode_padded(metadata, FILE_META_DATA_SHAPE)).encode() if ENTRY in metadata else metadata
