"""Placeholder columns: what a file holds under the table's key in the place of a protected column.

    masked values       written by pyarrow like any column
    error placeholder   pages that say that their values are in a dictionary, which is not there: every reader fails on them, and names
                        the column; readers of other columns never see them

pyarrow cannot write an error placeholder. It writes blanks, which hold nothing of the values: nulls, or empty values where the column
is required. Then their page headers are encrypted again, with another encoding of the values, in the place where they lie:

    page header    encoding PLAIN  ──▶  encoding RLE_DICTIONARY        one byte each, so that no length and no offset changes
    page body      levels, and what empty values there are             as pyarrow wrote it: right levels, which readers look at first

The chunk's metadata names the encodings that pyarrow wrote, PLAIN and RLE: for a chunk that names a dictionary's encoding parquet-java
expects a dictionary page, and reports the file as tampered with. It has no statistics, and no statistics of encodings, which pyarrow writes
for every other chunk: that tells an error placeholder from masked values without looking at its pages.

A chunk is found among the modules of its row group by what authenticates: the AAD of a module says which column and page it belongs to.

Specification: parquet.thrift, DataPageHeader; Apache Parquet, "Parquet Modular Encryption", section 5.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from tablecrypt._bytes import write_all
from tablecrypt.errors import FormatError
from tablecrypt.parquet import thrift
from tablecrypt.parquet.chunk_modules import Page, StoredHeader, read_pages
from tablecrypt.parquet.layout import Chunk
from tablecrypt.parquet.modules import GCM_OVERHEAD, ModuleCipher, ModuleOrdinals, ModuleType, stated_length
from tablecrypt.parquet.structs import ColumnChunk, ColumnMetaData, DataPageHeader, Encoding, PageHeader
from tablecrypt.parquet.thrift import FLAT, Struct
from tablecrypt.parquet.writing import STRIPPED

_LOCATION: Final = "the new Parquet file"


class ErrorPlaceholderSink:
    """Passes on the modules of a row group as pyarrow writes them, with blanks turned into error placeholders.

    Args:
        sink: takes the bytes.
        cipher: of the file's DEK.
        placeholders: the columns that hold blanks, without dictionaries, in their order.
    """

    def __init__(self, sink: Any, cipher: ModuleCipher, placeholders: Sequence[ModuleOrdinals]) -> None:
        self._sink = sink
        self._cipher = cipher
        self._left = list(reversed(placeholders))
        self._page = 0
        self._begun = bytearray()
        self._is_header = True

    def write(self, data: memoryview) -> None:
        """Take bytes of the row group, from any place in a module to any other."""
        self._begun += data
        while 0 < (length := stated_length(self._begun)) <= len(self._begun):
            module = self._begun[:length]
            del self._begun[:length]
            # Every other module is the header of a page.
            write_all(self._sink, self._of_placeholder(module) if self._is_header else module)
            self._is_header = not self._is_header

    def finish(self) -> None:
        """End the row group. FormatError where blanks were not there."""
        if self._page:
            self._left.pop()
        if self._left or self._begun:
            missing = self._left[-1] if self._left else "the last column"
            raise FormatError(f"{_LOCATION}: the placeholder of {missing} is not among its modules")

    def _of_placeholder(self, header: bytearray) -> bytearray:
        # pyarrow has not written the footer that says where columns are: what authenticates as one of its headers tells.
        while self._left:
            changed = self._saying_dictionary(header, self._left[-1])
            if changed is not None:
                self._page += 1
                return changed
            # The pages of a column lie together: either this one is still to come, or it is the next one's turn.
            if not self._page:
                break
            self._left.pop()
            self._page = 0

        return header

    def _saying_dictionary(self, header: bytearray, ordinals: ModuleOrdinals) -> bytearray | None:
        """Return a header of this column's next page with the encoding of a dictionary; None for any other header."""
        suffix = ordinals.suffix(ModuleType.DATA_PAGE_HEADER, self._page)
        encoded = bytearray(max(0, len(header) - GCM_OVERHEAD))
        with memoryview(header) as framed, memoryview(encoded) as plaintext:
            if len(header) < GCM_OVERHEAD or not self._cipher.opens(suffix, framed, plaintext):
                return None

        changed = self._cipher.encrypt(suffix, _with_encoding(bytes(encoded), Encoding.RLE_DICTIONARY))
        # pyarrow has counted its bytes already: another length would move what its footer says of all that follows.
        if len(changed) != len(header):
            raise FormatError(
                f"{_LOCATION}: {ordinals.describe(ModuleType.DATA_PAGE_HEADER, self._page)} is not encoded as Thrift encodes it"
            )
        return changed


def error_placeholder_chunk(blanks: Struct) -> Struct:
    """Return the ColumnChunk of an error placeholder: that of its blanks, without statistics and page indexes."""
    chunk = Struct({key: blanks.fields[key] for key in (ColumnChunk.FILE_OFFSET, ColumnChunk.CRYPTO_METADATA)})
    chunk.set(ColumnChunk.META_DATA, thrift.STRUCT, blanks.struct(ColumnChunk.META_DATA).copy(without=STRIPPED))
    return chunk


def error_placeholder_pages(blanks: Chunk) -> Iterator[Page]:
    """Yield the pages of blanks in the clear, without a dictionary, as those of an error placeholder.

    Raises:
        FormatError: they are no data pages of version 1.
    """
    for page in read_pages(blanks):
        yield replace(page, header=StoredHeader.decode_at(_with_encoding(page.header.encoded, Encoding.RLE_DICTIONARY)))


def is_error_placeholder(metadata: Struct) -> bool:
    """Whether a placeholder's ColumnMetaData is that of an error placeholder."""
    return ColumnMetaData.ENCODING_STATS not in metadata


def nulls_of_error_placeholder(chunk: Chunk) -> memoryview:
    """Return the pages of an error placeholder in the clear, as pyarrow wrote them, and zeros up to the length of its span in the file.

    Raises:
        TamperedFileError, FormatError: they do not authenticate, or are no pages.
    """
    pages = bytearray()
    for page in read_pages(chunk):
        body = memoryview(page.body)
        pages += _with_encoding(page.header.of_body(body), Encoding.PLAIN)
        pages += body
    return memoryview(bytes(pages) + bytes(chunk.pages.length - len(pages)))


@lru_cache(maxsize=64)
def _with_encoding(header: bytes, encoding: int) -> bytes:
    """Return a page header that says another encoding. Most pages of blanks have the same one."""
    decoded = thrift.decode(header, {PageHeader.DATA_PAGE_HEADER: FLAT})
    decoded.struct(PageHeader.DATA_PAGE_HEADER).set(DataPageHeader.ENCODING, thrift.I32, encoding)
    return decoded.encode()


def blanks(field: pa.Field, values: pa.Array) -> pa.Array:
    """Return as many nulls of a field as there are values, or as many empty values where it is required."""
    return blank_array(field, len(values))


def blank_array(field: pa.Field, length: int) -> pa.Array:
    """Return so many nulls of a field, or so many empty values where it is required."""
    return pa.nulls(length, field.type) if field.nullable else empty_values(field.type, length)


def empty_values(kind: pa.DataType, length: int) -> pa.Array:
    """Return so many empty values of a type: zero, no characters, no elements, a struct of nulls."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, empty_values(kind.storage_type, length))
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([blank_array(field, length) for field in kind], fields=list(kind))
    if pa.types.is_null(kind):
        return pa.nulls(length)

    return pa.array([_empty_value(kind)], kind).take(pa.repeat(pa.scalar(0, pa.int64()), length))


def _empty_value(kind: pa.DataType) -> object:
    if pa.types.is_nested(kind):
        return []
    if pa.types.is_fixed_size_binary(kind):
        return bytes(kind.byte_width)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return ""
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return b""

    return False if pa.types.is_boolean(kind) else 0
