"""The pages of a column chunk, one after the other, opened but neither decompressed nor decoded.

    in the clear   PageHeader (Thrift, of any length) | body                       (compressed_page_size bytes)
    sealed         header as a module | body as a module, or in AES_GCM_CTR_V1 as a CTR frame (compressed_page_size with all its overhead)

A header is kept as the bytes it is. Only two of its fields change when a page is sealed or opened, and are replaced in place: the size of
the body and its checksum, which the format computes over what is stored. A checksum in the source is checked before it is replaced.

The chunk is read in pieces of PIECE_LENGTH bytes, or a page where that is longer.

Raises TamperedFileError or FormatError, naming the page.

Specification: Apache Parquet, "Parquet Modular Encryption", section 5.1; parquet.thrift, PageHeader.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tablecrypt.errors import FormatError, TamperedFileError
from tablecrypt.parquet import thrift, thrift_reader
from tablecrypt.parquet.footer import described
from tablecrypt.parquet.layout import Chunk, Span
from tablecrypt.parquet.modules import CTR_OVERHEAD, GCM_OVERHEAD, LENGTH_BYTES, ModuleCipher, ModuleType, sealed_length
from tablecrypt.parquet.storage import Source
from tablecrypt.parquet.structures import PageHeader, PageType

if TYPE_CHECKING:
    from typing_extensions import Buffer

PIECE_LENGTH: Final = 8 * 1024 * 1024

_HEADER_GUESS: Final = 256
_KNOWN_TYPES: Final = (PageType.DATA, PageType.DICTIONARY, PageType.DATA_V2)


@dataclass(frozen=True, slots=True)
class StoredHeader:
    """A PageHeader as bytes, and where in them the fields are that sealing changes.

    Attributes:
        page_type: one of PageType.
        body_length: compressed_page_size: bytes of the body as stored, with its encryption.
        crc: over the body as stored; None without one.
    """

    encoded: bytes
    page_type: int
    body_length: int
    crc: int | None
    _length_at: tuple[int, int]
    _crc_at: tuple[int, int] | None

    @classmethod
    def decode_at(cls, data: bytes) -> StoredHeader:
        """Read the header that `data` begins with. CutShortError when `data` ends in it."""
        reader = thrift_reader.Reader(data)
        found: dict[int, tuple[int, int, int]] = {}
        field_id = 0
        while (header := reader.read_byte()) != 0:
            field_id, kind = reader.read_field_id(header, field_id), header & 0x0F
            start = reader.position
            if field_id not in (PageHeader.TYPE, PageHeader.COMPRESSED_PAGE_SIZE, PageHeader.CRC):
                reader.skip(kind, 1)
                continue
            if kind != thrift.I32 or field_id in found:
                raise FormatError(f"field {field_id} of a page header is no single 32-bit number")
            found[field_id] = (reader.read_integer(kind), start, reader.position)
        if PageHeader.TYPE not in found or PageHeader.COMPRESSED_PAGE_SIZE not in found:
            raise FormatError("a page header has no type or no size")
        page_type, (length, *length_at) = found[PageHeader.TYPE][0], found[PageHeader.COMPRESSED_PAGE_SIZE]
        if page_type not in _KNOWN_TYPES or length < 0:
            raise FormatError(f"a page of type {page_type} and {length} bytes is none that modular encryption knows")
        crc = found.get(PageHeader.CRC)
        return cls(
            data[: reader.position],
            page_type,
            length,
            None if crc is None else crc[0],
            (length_at[0], length_at[1]),
            None if crc is None else crc[1:],
        )

    def of_body(self, stored: Buffer) -> bytes:
        """The same header for a page whose body is stored as these bytes."""
        out = bytearray(self.encoded)
        replaced = [(self._length_at, memoryview(stored).nbytes)]
        if self._crc_at is not None:
            replaced.append((self._crc_at, _checksum(stored)))
        # From the back, so that a number of another length moves none of the places to come.
        for at, value in sorted(replaced, reverse=True):
            number = bytearray()
            thrift.write_integer(number, value)
            out[at[0] : at[1]] = number
        return bytes(out)


@dataclass(frozen=True, slots=True)
class Page:
    """A page, opened.

    Attributes:
        header: as its writer made it for the stored body.
        body: compressed as it was, without encryption.
        number: of a data page, from 0 in the chunk; 0 for the dictionary.
        header_span, body_span: the bytes in the file, with their encryption.
    """

    header: StoredHeader
    body: Buffer
    is_dictionary: bool
    number: int
    header_span: Span
    body_span: Span

    @property
    def header_type(self) -> ModuleType:
        return ModuleType.DICTIONARY_PAGE_HEADER if self.is_dictionary else ModuleType.DATA_PAGE_HEADER

    @property
    def body_type(self) -> ModuleType:
        return ModuleType.DICTIONARY_PAGE if self.is_dictionary else ModuleType.DATA_PAGE


def read_pages(chunk: Chunk) -> Iterator[Page]:
    """Yield the pages of a chunk, each when it is authenticated (in AES_GCM_CTR_V1: its header)."""
    cipher = chunk.cipher
    window = Window(chunk.source, chunk.pages)
    number = 0
    while window.left:
        page = _read_plain(window, chunk, number) if cipher is None else _read_sealed(window, chunk, cipher, number)
        yield page
        number += not page.is_dictionary


class Window:
    """A span of the file, read front to back."""

    def __init__(self, source: Source, span: Span) -> None:
        self._source = source
        self._end = span.end
        self.position = span.start
        self._piece = memoryview(b"")
        self._piece_start = span.start

    @property
    def left(self) -> int:
        return self._end - self.position

    def peek(self, length: int) -> memoryview:
        """The next `length` bytes, or as many as are left."""
        length = min(length, self.left)
        offset = self.position - self._piece_start
        if offset + length > self._piece.nbytes:
            self._piece_start, offset = self.position, 0
            self._piece = self._source.read_at(self.position, min(max(length, PIECE_LENGTH), self.left))
        return self._piece[offset : offset + length]

    def take(self, length: int) -> tuple[memoryview, Span]:
        """The next `length` bytes, of which so many must be left."""
        taken, span = self.peek(length), Span(self.position, length)
        self.position += length
        return taken, span


def _read_plain(window: Window, chunk: Chunk, number: int) -> Page:
    what = f"a page header of {chunk.place}, at byte {window.position}"
    with described(chunk.location, what):
        header = _find_header(window)
        is_dictionary = header.page_type == PageType.DICTIONARY
        if is_dictionary and window.position != chunk.pages.start:
            raise FormatError("a dictionary can only be the first page of a column chunk")
        _, header_span = window.take(len(header.encoded))
        if header.body_length > window.left:
            raise FormatError(f"its page has {header.body_length} bytes, where {window.left} are left in the column chunk")
    body, body_span = window.take(header.body_length)
    page = Page(header, body, is_dictionary, number, header_span, body_span)
    _check_crc(page, body, chunk)
    return page


def _find_header(window: Window) -> StoredHeader:
    """Read a header of unknown length, looking at more and more bytes of the chunk."""
    length = _HEADER_GUESS
    while True:
        try:
            return StoredHeader.decode_at(bytes(window.peek(length)))
        except thrift_reader.CutShortError:
            if length >= window.left:
                raise
        length *= 16


def _read_sealed(window: Window, chunk: Chunk, cipher: ModuleCipher, number: int) -> Page:
    location, place = chunk.location, chunk.place
    is_dictionary = window.position == chunk.pages.start and chunk.has_dictionary
    header_type = ModuleType.DICTIONARY_PAGE_HEADER if is_dictionary else ModuleType.DATA_PAGE_HEADER
    what = place.describe(header_type, number)
    framed, header_span = window.take(sealed_length(window.peek(LENGTH_BYTES), window.left, what, location))
    opened = bytes(cipher.open(place.suffix(header_type, number), framed, what))
    with described(location, what):
        header = StoredHeader.decode_at(opened)
        if (header.page_type == PageType.DICTIONARY) != is_dictionary:
            raise FormatError(f"it is of a page of type {header.page_type}")
    body_type = ModuleType.DICTIONARY_PAGE if is_dictionary else ModuleType.DATA_PAGE
    what = place.describe(body_type, number)
    least = CTR_OVERHEAD if cipher.ctr else GCM_OVERHEAD
    length = sealed_length(window.peek(LENGTH_BYTES), window.left, what, location, least)
    if length != header.body_length:
        raise TamperedFileError(location, f"{what} has {length} bytes, where its header says {header.body_length}{_hint(header)}")
    framed, body_span = window.take(length)
    suffix = place.suffix(body_type, number)
    # Nothing authenticates the name of the algorithm: a GCM file renamed to CTR would be read without authentication. Its first page tells.
    if cipher.ctr and header_span.start == chunk.pages.start and cipher.authenticates(suffix, framed):
        raise TamperedFileError(location, f"{what} is sealed with AES_GCM_V1, though the file says AES_GCM_CTR_V1")
    page = Page(header, cipher.open_page(suffix, framed, what), is_dictionary, number, header_span, body_span)
    _check_crc(page, framed, chunk)
    return page


def _hint(header: StoredHeader) -> str:
    """Why a page of version 2 may not be a module: parquet-java writes part of it in the clear, where nothing authenticates it."""
    if header.page_type != PageType.DATA_V2:
        return ""
    return "; pages of version 2 whose levels are left in the clear, as parquet-java writes them, are refused"


def _checksum(stored: Buffer) -> int:
    """CRC-32 as the format's signed number."""
    crc = zlib.crc32(stored)
    return crc - 2**32 if crc >= 2**31 else crc


def _check_crc(page: Page, stored: Buffer, chunk: Chunk) -> None:
    if page.header.crc is not None and _checksum(stored) != page.header.crc:
        raise TamperedFileError(
            chunk.location, f"{chunk.place.describe(page.body_type, page.number)} does not have the checksum that its header says"
        )
