"""The modules of a column chunk, decrypted but neither decompressed nor decoded: its pages, its indexes and its bloom filter.

    in the clear   PageHeader (Thrift, of any length) | body                       (compressed_page_size bytes)
    encrypted      header as a module | body as a module, or in AES_GCM_CTR_V1 as a CTR frame (compressed_page_size with all its overhead)

A header is kept as the bytes it is. Only two of its fields change when a page is encrypted or decrypted, and are replaced in place: the
size of the body and its checksum, which the format computes over what is stored. A checksum in the source is checked before it is replaced.

The chunk is read in pieces of PIECE_LENGTH bytes, or a page where that is longer.

A chunk decrypted whole has its pages as a plaintext file has them:

    encrypted    header module | body module   | header module | body module
    decrypted    header | body | header | body | zeros, up to the length of the encrypted chunk

Each body is decrypted at the place where it is wanted, and so written once: behind a header as long as it was encrypted. In the clear a
header has another size and checksum, which now and then take another number of bytes; then the body is moved.

Beside the pages:

    index          encrypted: one module           in the clear: Thrift
    bloom filter   encrypted: header module | bitset module    in the clear: BloomFilterHeader (Thrift) | bitset (numBytes of the header)

They are decrypted, not interpreted: an index is its Thrift bytes, a bloom filter its header's bytes and its bits.

Raises TamperedFileError or FormatError, naming the module.

Specification: Apache Parquet, "Parquet Modular Encryption", section 5.1; parquet.thrift, PageHeader; "Parquet Bloom Filter"; "Page Index".
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tablecrypt.errors import FormatError, TamperedFileError
from tablecrypt.parquet import thrift
from tablecrypt.parquet.footer import described
from tablecrypt.parquet.layout import Chunk, Span
from tablecrypt.parquet.modules import (
    CTR_OVERHEAD,
    GCM_OVERHEAD,
    LENGTH_BYTES,
    ModuleCipher,
    ModuleType,
    check_page,
    module_length,
    stated_length,
)
from tablecrypt.parquet.storage import Source
from tablecrypt.parquet.structs import BloomFilterHeader, PageHeader, PageType
from tablecrypt.parquet.thrift import FLAT

if TYPE_CHECKING:
    from typing_extensions import Buffer

PIECE_LENGTH: Final = 4 * 1024 * 1024

_HEADER_GUESS: Final = 256
_KNOWN_TYPES: Final = (PageType.DATA, PageType.DICTIONARY, PageType.DATA_V2)
_LONGEST_BLOOM_FILTER_HEADER: Final = 64


class LevelsInTheClearError(TamperedFileError):
    """A page of version 2 that is no module as a whole: nothing authenticates which of its values are null."""


@dataclass(frozen=True, slots=True)
class StoredHeader:
    """A PageHeader as bytes, and where in them the fields are that encryption changes.

    Attributes:
        page_type: one of PageType.
        body_length: compressed_page_size: bytes of the body as stored, with its encryption.
        crc: over the body as stored; None without one.
    """

    encoded: bytes
    page_type: int
    body_length: int
    crc: int | None
    _length_at: thrift.Located
    _crc_at: thrift.Located | None

    @classmethod
    def decode_at(cls, data: bytes) -> StoredHeader:
        """Read the header that `data` begins with. CutShortError when `data` ends in it."""
        found, end = thrift.locate_fields(data)
        for field_id in (PageHeader.TYPE, PageHeader.COMPRESSED_PAGE_SIZE, PageHeader.CRC):
            if field_id in found and found[field_id].kind != thrift.I32:
                raise FormatError(f"field {field_id} of a page header is not a 32-bit number")
        if PageHeader.TYPE not in found or PageHeader.COMPRESSED_PAGE_SIZE not in found:
            raise FormatError("a page header has no type or no size")

        page_type = thrift.decode_integer(data, found[PageHeader.TYPE])
        length_at, crc_at = found[PageHeader.COMPRESSED_PAGE_SIZE], found.get(PageHeader.CRC)
        length = thrift.decode_integer(data, length_at)
        if page_type not in _KNOWN_TYPES or length < 0:
            raise FormatError(f"a page of type {page_type} and {length} bytes is not one that modular encryption knows")

        crc = None if crc_at is None else thrift.decode_integer(data, crc_at)

        return cls(data[:end], page_type, length, crc, length_at, crc_at)

    def of_body(self, stored: Buffer) -> bytes:
        """The same header for a page whose body is stored as these bytes."""
        out = bytearray(self.encoded)
        replaced = [(self._length_at, memoryview(stored).nbytes)]
        if self._crc_at is not None:
            replaced.append((self._crc_at, _checksum(stored)))
        # From the back, so that a number of another length moves none of the places to come.
        for at, value in sorted(replaced, key=lambda pair: pair[0].start, reverse=True):
            number = bytearray()
            thrift.write_integer(number, value)
            out[at.start : at.end] = number

        return bytes(out)


BodyMemory = Callable[[StoredHeader], memoryview]
"""Gives the memory into which the body of the page with this header is decrypted: at least as long as the body was encrypted."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page, decrypted.

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


def read_pages(chunk: Chunk, memory_of: BodyMemory | None = None) -> Iterator[Page]:
    """Yield the pages of a chunk, each when it is authenticated (in AES_GCM_CTR_V1: its header).

    Args:
        chunk: encrypted or in the clear.
        memory_of: says into which memory an encrypted body is decrypted. None: each into its own.
    """
    cipher = chunk.cipher
    window = Window(chunk.source, chunk.pages)
    number = 0
    while window.left:
        page = _read_plain(window, chunk, number) if cipher is None else _read_encrypted(window, chunk, cipher, number, memory_of)
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
        begin = self.position - self._piece_start
        end = begin + length
        if end <= self._piece.nbytes:
            return self._piece[begin:end]

        length = min(length, self.left)
        if begin + length > self._piece.nbytes:
            self._piece_start, begin = self.position, 0
            self._piece = self._source.read_at(self.position, min(max(length, PIECE_LENGTH), self.left))
        return self._piece[begin : begin + length]

    def take(self, length: int) -> tuple[memoryview, Span]:
        """The next `length` bytes, of which so many must be left."""
        taken, span = self.peek(length), Span(self.position, length)
        self.position += length
        return taken, span


def _read_plain(window: Window, chunk: Chunk, number: int) -> Page:
    what = f"a page header of {chunk.ordinals}, at byte {window.position}"
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
        except thrift.CutShortError:
            if length >= window.left:
                raise
        length *= 16


def _read_encrypted(window: Window, chunk: Chunk, cipher: ModuleCipher, number: int, memory_of: BodyMemory | None) -> Page:
    location, ordinals = chunk.location, chunk.ordinals
    is_dictionary = window.position == chunk.pages.start and chunk.has_dictionary
    header_type = ModuleType.DICTIONARY_PAGE_HEADER if is_dictionary else ModuleType.DATA_PAGE_HEADER
    what = ordinals.describe(header_type, number)
    check_page(number, ordinals, location)
    framed, header_span = window.take(module_length(window.peek(LENGTH_BYTES), window.left, what, location))
    # Authenticated before Thrift's parser sees a byte of it.
    decrypted = bytes(cipher.decrypt(ordinals.suffix(header_type, number), framed, what))

    with described(location, what):
        header = StoredHeader.decode_at(decrypted)
        # The AAD follows from the place and readers go by the type, so the two must not differ.
        if (header.page_type == PageType.DICTIONARY) != is_dictionary:
            raise FormatError(f"it is of a page of type {header.page_type}")

    body_type = ModuleType.DICTIONARY_PAGE if is_dictionary else ModuleType.DATA_PAGE
    what = ordinals.describe(body_type, number)
    least = CTR_OVERHEAD if cipher.ctr else GCM_OVERHEAD
    framing = window.peek(LENGTH_BYTES)
    # The length before a module is in the clear. The header, which is authentic, says what it has to be.
    if header.page_type == PageType.DATA_V2 and len(framing) == LENGTH_BYTES and stated_length(framing) != header.body_length:
        refused = "pages of version 2 whose levels are left in the clear, as parquet-java writes them, are refused"
        raise LevelsInTheClearError(location, f"{what} is no module; {refused}")
    length = module_length(framing, window.left, what, location, least)
    if length != header.body_length:
        raise TamperedFileError(location, f"{what} has {length} bytes, where its header says {header.body_length}")

    framed, body_span = window.take(length)
    suffix = ordinals.suffix(body_type, number)
    # Nothing authenticates the name of the algorithm: a GCM file renamed to CTR would be read without authentication. Its first page tells.
    if cipher.ctr and header_span.start == chunk.pages.start and cipher.authenticates(suffix, framed):
        raise TamperedFileError(location, f"{what} is encrypted with AES_GCM_V1, though the file says AES_GCM_CTR_V1")

    body = (
        cipher.decrypt_page(suffix, framed, what)
        if memory_of is None
        else cipher.decrypt_page_into(suffix, framed, what, memory_of(header))
    )
    page = Page(header, body, is_dictionary, number, header_span, body_span)
    # In AES_GCM_CTR_V1 this is all that can tell of a damaged body. It keeps no forger out.
    _check_crc(page, framed, chunk)

    return page


def _checksum(stored: Buffer) -> int:
    """CRC-32 as the format's signed number."""
    crc = zlib.crc32(stored)
    return crc - 2**32 if crc >= 2**31 else crc


def _check_crc(page: Page, stored: Buffer, chunk: Chunk) -> None:
    if page.header.crc is not None and _checksum(stored) != page.header.crc:
        raise TamperedFileError(
            chunk.location, f"{chunk.ordinals.describe(page.body_type, page.number)} does not have the checksum that its header says"
        )


def decrypt_chunk(chunk: Chunk) -> memoryview:
    """Return the decrypted pages of a chunk, and zeros up to the length of its span in the file."""
    pages = _DecryptedPages(chunk)
    for page in read_pages(chunk, pages.memory_of):
        pages.add(page)
    return pages.finish()


class _DecryptedPages:
    """Pages in the clear, one after the other. They are never longer than the encrypted ones, so the memory holds them."""

    def __init__(self, chunk: Chunk) -> None:
        self._is_encrypted = chunk.cipher is not None
        # Arrow's pool gives memory that it used before, which costs less than fresh memory of the system.
        self._memory = memoryview(pa.allocate_buffer(chunk.pages.length)).cast("B")
        self._end = 0

    def memory_of(self, encrypted: StoredHeader) -> memoryview:
        """Where the body of the next page is decrypted."""
        return self._memory[self._end + len(encrypted.encoded) :]

    def add(self, page: Page) -> None:
        body = memoryview(page.body)
        header = page.header.of_body(body)
        start = self._end + len(header)
        end = start + body.nbytes
        is_in_place = self._is_encrypted and len(header) == len(page.header.encoded)
        if not is_in_place:
            self._memory[start:end] = body
        self._memory[self._end : start] = header
        self._end = end

    def finish(self) -> memoryview:
        # Arrow's pool gives memory that others used: nothing of theirs may be in the view.
        self._memory[self._end :] = bytes(self._memory.nbytes - self._end)
        return self._memory


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A bloom filter, decrypted, and where its two parts lie with their encryption."""

    header: bytes
    bitset: Buffer
    header_span: Span
    bitset_span: Span


def read_index(chunk: Chunk, span: Span, module_type: ModuleType) -> bytes:
    """Return the Thrift bytes of a column index or offset index."""
    stored = chunk.source.read_at(span.start, span.length)
    cipher = chunk.cipher
    if cipher is None:
        return bytes(stored)

    what = chunk.ordinals.describe(module_type)
    if module_length(stored, span.length, what, chunk.location) != span.length:
        raise TamperedFileError(chunk.location, f"{what} is followed by bytes that do not belong to it")

    decrypted = cipher.decrypt(chunk.ordinals.suffix(module_type), stored, what)
    with described(chunk.location, what):
        # parquet-java encrypts its whole buffer, which may be longer than the index.
        return thrift.unpadded(decrypted)


def read_bloom_filter(chunk: Chunk) -> BloomFilter | None:
    """Read the bloom filter of a chunk; None when it has none."""
    span = chunk.bloom_filter
    if span is None:
        return None

    cipher = chunk.cipher
    found = _read_plain_filter(chunk, span) if cipher is None else _read_encrypted_filter(chunk, cipher, span)
    if chunk.bloom_filter_has_length and found.bitset_span.end != span.end:
        raise TamperedFileError(
            chunk.location, f"the bloom filter of {chunk.ordinals} ends at byte {found.bitset_span.end}, where the footer says {span.end}"
        )

    return found


def bloom_filter_spans(chunk: Chunk, metadata: thrift.Struct) -> tuple[Span, Span] | None:
    """Where header and bitset of the bloom filter lie by that metadata, without decrypting it; None when it has none."""
    span = chunk.bloom_filter_by(metadata)
    if span is None:
        return None
    if not chunk.is_encrypted:
        found = _read_plain_filter(chunk, span)
        return found.header_span, found.bitset_span

    _, header = _take(chunk, span, ModuleType.BLOOM_FILTER_HEADER)
    _, bitset = _take(chunk, Span(header.end, span.length - header.length), ModuleType.BLOOM_FILTER_BITSET)

    return header, bitset


def _read_plain_filter(chunk: Chunk, span: Span) -> BloomFilter:
    data = bytes(chunk.source.read_at(span.start, min(span.length, _LONGEST_BLOOM_FILTER_HEADER)))
    with described(chunk.location, chunk.ordinals.describe(ModuleType.BLOOM_FILTER_HEADER)):
        header, header_length = thrift.decode_at(data, FLAT)
        bitset = Span(span.start + header_length, _bitset_length(header, span.length - header_length))
    return BloomFilter(data[:header_length], chunk.source.read_at(bitset.start, bitset.length), Span(span.start, header_length), bitset)


def _read_encrypted_filter(chunk: Chunk, cipher: ModuleCipher, span: Span) -> BloomFilter:
    encrypted_header, header_span = _take(chunk, span, ModuleType.BLOOM_FILTER_HEADER)
    what = chunk.ordinals.describe(ModuleType.BLOOM_FILTER_HEADER)
    decrypted = cipher.decrypt(chunk.ordinals.suffix(ModuleType.BLOOM_FILTER_HEADER), encrypted_header, what)
    with described(chunk.location, what):
        header = thrift.unpadded(decrypted)
    rest = Span(header_span.end, span.length - header_span.length)
    encrypted_bitset, bitset_span = _take(chunk, rest, ModuleType.BLOOM_FILTER_BITSET)
    what = chunk.ordinals.describe(ModuleType.BLOOM_FILTER_BITSET)
    bitset = cipher.decrypt(chunk.ordinals.suffix(ModuleType.BLOOM_FILTER_BITSET), encrypted_bitset, what)
    with described(chunk.location, what):
        if _bitset_length(thrift.decode(header, FLAT), len(bitset)) != len(bitset):
            raise FormatError("it is longer than its header says")
    return BloomFilter(header, bitset, header_span, bitset_span)


def _take(chunk: Chunk, span: Span, module_type: ModuleType) -> tuple[memoryview, Span]:
    what = chunk.ordinals.describe(module_type)
    framing = chunk.source.read_at(span.start, min(LENGTH_BYTES, span.length))
    taken = Span(span.start, module_length(framing, span.length, what, chunk.location))
    return chunk.source.read_at(taken.start, taken.length), taken


def _bitset_length(header: thrift.Struct, available: int) -> int:
    length = header.integer(BloomFilterHeader.NUM_BYTES)
    if not 0 <= length <= available:
        raise FormatError(f"its bitset has {length} bytes, where {available} are left")
    return length
