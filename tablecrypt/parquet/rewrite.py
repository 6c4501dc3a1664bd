"""Writing a Parquet file again under other keys, under keys at all, or in the clear: module by module, no value decompressed or decoded.

    source                        new file
    magic                         magic
    pages of each chunk     →     pages of each chunk, in the order of row groups and columns
    bloom filters           →     bloom filters
    column indexes          →     column indexes, as they are
    offset indexes          →     offset indexes, with the new offsets and sizes of pages
    footer                  →     footer, with the new offsets and sizes

A module is opened (and so authenticated, in AES_GCM_CTR_V1 but for the bodies of pages), then sealed and written. In memory are one piece
of a chunk (see tablecrypt.parquet.pages), one page, one index or bloom filter, and the footer.

The uncompressed sizes in the footer count the headers as they are stored, as other writers do, so they change by what the headers change.

Raises what tablecrypt.parquet.layout and .pages raise, and ConfigurationError for what encryption has no room for.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tablecrypt.errors import ConfigurationError, FormatError, TamperedFileError
from tablecrypt.parquet import thrift
from tablecrypt.parquet.chunk_modules import read_bloom_filter, read_index
from tablecrypt.parquet.footer import described, read_footer
from tablecrypt.parquet.keys import FileKeys
from tablecrypt.parquet.layout import Chunk, FileCiphers, FileLayout, Span
from tablecrypt.parquet.modules import ModuleCipher, ModuleType, Place
from tablecrypt.parquet.pages import Page, read_pages
from tablecrypt.parquet.sealing import Sealing
from tablecrypt.parquet.storage import Sink, Source, open_sink, open_source
from tablecrypt.parquet.structures import (
    OFFSET_INDEX_SHAPE,
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    OffsetIndex,
    PageLocation,
    RowGroup,
)
from tablecrypt.parquet.thrift import Struct

if TYPE_CHECKING:
    from typing_extensions import Buffer

Random = Callable[[int], bytes]

_OF_THE_OLD_FILE_IN_FOOTER: Final = (FileMetaData.ENCRYPTION_ALGORITHM, FileMetaData.FOOTER_SIGNING_KEY_METADATA)
_OF_THE_OLD_FILE_IN_CHUNK: Final = (
    ColumnChunk.META_DATA,
    ColumnChunk.OFFSET_INDEX_OFFSET,
    ColumnChunk.OFFSET_INDEX_LENGTH,
    ColumnChunk.COLUMN_INDEX_OFFSET,
    ColumnChunk.COLUMN_INDEX_LENGTH,
    ColumnChunk.CRYPTO_METADATA,
    ColumnChunk.ENCRYPTED_COLUMN_METADATA,
)
_OF_THE_OLD_FILE_IN_METADATA: Final = (
    ColumnMetaData.INDEX_PAGE_OFFSET,
    ColumnMetaData.DICTIONARY_PAGE_OFFSET,
    ColumnMetaData.BLOOM_FILTER_OFFSET,
    ColumnMetaData.BLOOM_FILTER_LENGTH,
)


def encrypt(source: Any, sink: Any, keys: FileKeys, *, location: str | None = None, random: Random = secrets.token_bytes) -> int:
    """Write a plaintext Parquet file encrypted. Returns how many bytes the encrypted file has.

    Args:
        source: a path, URI, buffer or seekable binary file with plaintext Parquet.
        sink: a path, URI or binary file that is open for writing.
        keys: what to encrypt with; give each file keys or an AAD prefix of its own.
        location: names the source in errors.
        random: gives nonces and the random part of the AAD.

    Raises:
        ConfigurationError: the file is encrypted already, keys name columns that it does not have, or it has too many pages.
        FormatError: it is no Parquet file that can be encrypted.
    """
    with open_source(source, location) as opened, open_sink(sink) as out:
        return rewrite(plain_layout(opened), out, keys, random)


def decrypt(source: Any, sink: Any, keys: FileKeys, *, location: str | None = None) -> int:
    """Write an encrypted Parquet file in the clear. Returns how many bytes the plaintext file has. All its keys are needed.

    Every module is authenticated before it is written, but for pages' bodies in AES_GCM_CTR_V1 and columns in the clear. Arguments and
    errors as for `reencrypt`.
    """
    with open_source(source, location) as opened, open_sink(sink) as out:
        return rewrite(encrypted_layout(opened, keys), out, None, secrets.token_bytes)


def reencrypt(
    source: Any, sink: Any, old: FileKeys, new: FileKeys, *, location: str | None = None, random: Random = secrets.token_bytes
) -> int:
    """Write an encrypted Parquet file under other keys, another algorithm or AAD prefix. Returns how many bytes the new file has.

    Args:
        source: a path, URI, buffer or seekable binary file.
        sink: a path, URI or binary file that is open for writing.
        old: keys of the source: those of all its columns.
        new: keys of the new file.
        location: names the source in errors.
        random: gives nonces and the random part of the AAD.

    Raises:
        TamperedFileError: a module does not authenticate, or the file is not what its footer says.
        PlaintextRefusedError: the source is plaintext.
        KeyNotFoundError: a key of the source is missing.
        ConfigurationError: the new keys name columns that the file does not have.
    """
    with open_source(source, location) as opened, open_sink(sink) as out:
        return rewrite(encrypted_layout(opened, old), out, new, random)


def plain_layout(source: Source) -> FileLayout:
    """Open a plaintext file. ConfigurationError for an encrypted one."""
    footer = read_footer(source)
    if footer.algorithm is not None:
        raise ConfigurationError(f"{source.location}: is encrypted already; reencrypt it, or decrypt it first")
    return FileLayout(source, footer, None)


def encrypted_layout(source: Source, keys: FileKeys) -> FileLayout:
    """Open an encrypted file, its footer authenticated. PlaintextRefusedError for a plaintext one."""
    if keys.file_length is not None and source.length != keys.file_length:
        raise TamperedFileError(source.location, f"has {source.length} bytes, but its key metadata says {keys.file_length}")
    footer = read_footer(source)
    return FileLayout(source, footer, FileCiphers(footer, keys))


def rewrite(layout: FileLayout, sink: Sink, keys: FileKeys | None, random: Random) -> int:
    """Write the file again with these keys, or in the clear without. Returns the length in bytes."""
    sealing = Sealing(keys, layout.location, random)
    sealing.check_columns(layout.leaf_paths())
    writer = _Rewriter(layout, sink, sealing)
    start = sink.position
    writer.write()
    return sink.position - start


@dataclass(frozen=True, slots=True)
class _NewChunk:
    """A chunk whose pages are written; what comes after them is put into `struct` and `metadata`."""

    old: Chunk
    place: Place
    struct: Struct
    metadata: Struct
    cipher: ModuleCipher | None
    data_pages: list[Span]

    def sealed(self, module_type: ModuleType, plaintext: Buffer) -> Buffer:
        """A module as the new file stores it."""
        return plaintext if self.cipher is None else self.cipher.seal(self.place.suffix(module_type), plaintext)


class _Rewriter:
    """Copies the modules of one file, in the order that the module's docstring draws."""

    def __init__(self, layout: FileLayout, sink: Sink, sealing: Sealing) -> None:
        self._layout = layout
        self._source = layout.source
        self._location = layout.location
        self._sink = sink
        self._sealing = sealing

    def write(self) -> None:
        self._sink.write(self._sealing.magic)
        old_groups = self._layout.metadata.structs(FileMetaData.ROW_GROUPS)
        groups: list[Struct] = []
        every: list[_NewChunk] = []
        for number, (old_group, old_chunks) in enumerate(zip(old_groups, self._layout.row_groups, strict=True)):
            start = self._sink.position
            chunks = [self._pages(chunk, number, column) for column, chunk in enumerate(old_chunks)]
            groups.append(self._row_group(old_group, chunks, number, Span(start, self._sink.position - start)))
            every += chunks
        for chunk in every:
            self._bloom_filter(chunk)
        for chunk in every:
            self._column_index(chunk)
        for chunk in every:
            self._offset_index(chunk)
        for chunk in every:
            self._sealing.put_metadata(chunk.struct, chunk.metadata, chunk.place, chunk.old.path)
        self._footer(groups)

    def _pages(self, old: Chunk, row_group: int, column: int) -> _NewChunk:
        place = Place(row_group, column, old.place.path)
        cipher = self._sealing.cipher(old.path)
        start, header_growth = self._sink.position, 0
        dictionary_offset: int | None = None
        data_pages: list[Span] = []
        for page in read_pages(self._source, old):
            span, header_length = self._page(page, place, cipher)
            header_growth += header_length - page.header_span.length
            if page.is_dictionary:
                dictionary_offset = span.start
            else:
                data_pages.append(span)
        metadata = old.metadata.copy(without=_OF_THE_OLD_FILE_IN_METADATA)
        with described(self._location, f"the metadata of {old.place}"):
            if not data_pages and dictionary_offset is None:
                raise FormatError("it has no pages")
            uncompressed = metadata.integer(ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE) + header_growth
        first = data_pages[0].start if data_pages else self._sink.position
        metadata.set(ColumnMetaData.DATA_PAGE_OFFSET, thrift.I64, first)
        metadata.set(ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE, thrift.I64, uncompressed)
        metadata.set(ColumnMetaData.TOTAL_COMPRESSED_SIZE, thrift.I64, self._sink.position - start)
        if dictionary_offset is not None:
            metadata.set(ColumnMetaData.DICTIONARY_PAGE_OFFSET, thrift.I64, dictionary_offset)
        struct = old.struct.copy(without=_OF_THE_OLD_FILE_IN_CHUNK)
        struct.set(ColumnChunk.FILE_OFFSET, thrift.I64, 0)
        return _NewChunk(old, place, struct, metadata, cipher, data_pages)

    def _page(self, page: Page, place: Place, cipher: ModuleCipher | None) -> tuple[Span, int]:
        """Write a page. Returns where it is, and how long its header is there."""
        start = self._sink.position
        if cipher is None:
            body = page.body
            header: Buffer = page.header.of_body(body)
        else:
            body = cipher.seal_page(place.suffix(page.body_type, page.number), page.body)
            header = cipher.seal(place.suffix(page.header_type, page.number), page.header.of_body(body))
        self._sink.write(header)
        header_length = self._sink.position - start
        self._sink.write(body)
        return Span(start, self._sink.position - start), header_length

    def _row_group(self, old: Struct, chunks: list[_NewChunk], number: int, span: Span) -> Struct:
        group = old.copy()
        group.set(RowGroup.COLUMNS, thrift.LIST, [chunk.struct for chunk in chunks])
        uncompressed = sum(chunk.metadata.integer(ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE) for chunk in chunks)
        group.set(RowGroup.TOTAL_BYTE_SIZE, thrift.I64, uncompressed)
        group.set(RowGroup.FILE_OFFSET, thrift.I64, span.start)
        group.set(RowGroup.TOTAL_COMPRESSED_SIZE, thrift.I64, span.length)
        if self._sealing.is_encrypted:
            group.set(RowGroup.ORDINAL, thrift.I16, number)
        else:
            group.remove(RowGroup.ORDINAL)
        return group

    def _bloom_filter(self, chunk: _NewChunk) -> None:
        found = read_bloom_filter(self._source, chunk.old)
        if found is None:
            return
        start = self._sink.position
        self._sink.write(chunk.sealed(ModuleType.BLOOM_FILTER_HEADER, found.header))
        self._sink.write(chunk.sealed(ModuleType.BLOOM_FILTER_BITSET, found.bitset))
        chunk.metadata.set(ColumnMetaData.BLOOM_FILTER_OFFSET, thrift.I64, start)
        chunk.metadata.set(ColumnMetaData.BLOOM_FILTER_LENGTH, thrift.I32, self._sink.position - start)

    def _column_index(self, chunk: _NewChunk) -> None:
        span = chunk.old.column_index
        if span is None:
            return
        index = read_index(self._source, chunk.old, span, ModuleType.COLUMN_INDEX)
        start = self._sink.position
        self._sink.write(chunk.sealed(ModuleType.COLUMN_INDEX, index))
        chunk.struct.set(ColumnChunk.COLUMN_INDEX_OFFSET, thrift.I64, start)
        chunk.struct.set(ColumnChunk.COLUMN_INDEX_LENGTH, thrift.I32, self._sink.position - start)

    def _offset_index(self, chunk: _NewChunk) -> None:
        span = chunk.old.offset_index
        if span is None:
            return
        index = self._moved_index(chunk, read_index(self._source, chunk.old, span, ModuleType.OFFSET_INDEX))
        start = self._sink.position
        self._sink.write(chunk.sealed(ModuleType.OFFSET_INDEX, index))
        chunk.struct.set(ColumnChunk.OFFSET_INDEX_OFFSET, thrift.I64, start)
        chunk.struct.set(ColumnChunk.OFFSET_INDEX_LENGTH, thrift.I32, self._sink.position - start)

    def _moved_index(self, chunk: _NewChunk, encoded: bytes) -> bytes:
        with described(self._location, chunk.old.place.describe(ModuleType.OFFSET_INDEX)):
            index = thrift.decode(encoded, OFFSET_INDEX_SHAPE)
            locations = index.structs(OffsetIndex.PAGE_LOCATIONS)
            if len(locations) != len(chunk.data_pages):
                raise FormatError(f"it has {len(locations)} pages, and the chunk {len(chunk.data_pages)}")
        for location, page in zip(locations, chunk.data_pages, strict=True):
            location.set(PageLocation.OFFSET, thrift.I64, page.start)
            location.set(PageLocation.COMPRESSED_PAGE_SIZE, thrift.I32, page.length)
        return index.encode()

    def _footer(self, groups: list[Struct]) -> None:
        metadata = self._layout.metadata.copy(without=_OF_THE_OLD_FILE_IN_FOOTER)
        metadata.set(FileMetaData.ROW_GROUPS, thrift.LIST, groups)
        self._sealing.write_footer(self._sink, metadata)
