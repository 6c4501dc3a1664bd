"""The modules of a column chunk beside its pages: column index, offset index, bloom filter.

    index          sealed: one module           in the clear: Thrift
    bloom filter   sealed: header module | bitset module    in the clear: BloomFilterHeader (Thrift) | bitset (numBytes of the header)

They are opened, not interpreted: an index is its Thrift bytes, a bloom filter its header's bytes and its bits.

Raises TamperedFileError or FormatError, naming the module.

Specification: Apache Parquet, "Parquet Modular Encryption", section 5.1; "Parquet Bloom Filter"; "Page Index".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tablecrypt.errors import FormatError, TamperedFileError
from tablecrypt.parquet import thrift, thrift_reader
from tablecrypt.parquet.footer import described
from tablecrypt.parquet.layout import Chunk, Span
from tablecrypt.parquet.modules import LENGTH_BYTES, ModuleCipher, ModuleType, sealed_length
from tablecrypt.parquet.structures import FLAT, BloomFilterHeader

if TYPE_CHECKING:
    from typing_extensions import Buffer

_LONGEST_BLOOM_FILTER_HEADER: Final = 64


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A bloom filter, opened, and where its two parts lie with their encryption."""

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
    what = chunk.place.describe(module_type)
    if sealed_length(stored, span.length, what, chunk.location) != span.length:
        raise TamperedFileError(chunk.location, f"{what} is followed by bytes that do not belong to it")
    opened = cipher.open(chunk.place.suffix(module_type), stored, what)
    with described(chunk.location, what):
        return thrift_reader.unpadded(opened)


def read_bloom_filter(chunk: Chunk) -> BloomFilter | None:
    """Read the bloom filter of a chunk; None when it has none."""
    span = chunk.bloom_filter
    if span is None:
        return None
    cipher = chunk.cipher
    found = _read_plain(chunk, span) if cipher is None else _read_sealed(chunk, cipher, span)
    if chunk.bloom_filter_has_length and found.bitset_span.end != span.end:
        raise TamperedFileError(
            chunk.location, f"the bloom filter of {chunk.place} ends at byte {found.bitset_span.end}, where the footer says {span.end}"
        )
    return found


def bloom_filter_spans(chunk: Chunk, metadata: thrift.Struct) -> tuple[Span, Span] | None:
    """Where header and bitset of the bloom filter lie by that metadata, without opening a sealed one; None when it has none."""
    span = chunk.bloom_filter_by(metadata)
    if span is None:
        return None
    if not chunk.is_encrypted:
        found = _read_plain(chunk, span)
        return found.header_span, found.bitset_span
    _, header = _take(chunk, span, ModuleType.BLOOM_FILTER_HEADER)
    _, bitset = _take(chunk, Span(header.end, span.length - header.length), ModuleType.BLOOM_FILTER_BITSET)
    return header, bitset


def _read_plain(chunk: Chunk, span: Span) -> BloomFilter:
    data = bytes(chunk.source.read_at(span.start, min(span.length, _LONGEST_BLOOM_FILTER_HEADER)))
    with described(chunk.location, chunk.place.describe(ModuleType.BLOOM_FILTER_HEADER)):
        header, header_length = thrift_reader.decode_at(data, FLAT)
        bitset = Span(span.start + header_length, _bitset_length(header, span.length - header_length))
    return BloomFilter(data[:header_length], chunk.source.read_at(bitset.start, bitset.length), Span(span.start, header_length), bitset)


def _read_sealed(chunk: Chunk, cipher: ModuleCipher, span: Span) -> BloomFilter:
    sealed_header, header_span = _take(chunk, span, ModuleType.BLOOM_FILTER_HEADER)
    what = chunk.place.describe(ModuleType.BLOOM_FILTER_HEADER)
    opened = cipher.open(chunk.place.suffix(ModuleType.BLOOM_FILTER_HEADER), sealed_header, what)
    with described(chunk.location, what):
        header = thrift_reader.unpadded(opened)
    rest = Span(header_span.end, span.length - header_span.length)
    sealed_bitset, bitset_span = _take(chunk, rest, ModuleType.BLOOM_FILTER_BITSET)
    what = chunk.place.describe(ModuleType.BLOOM_FILTER_BITSET)
    bitset = cipher.open(chunk.place.suffix(ModuleType.BLOOM_FILTER_BITSET), sealed_bitset, what)
    with described(chunk.location, what):
        if _bitset_length(thrift_reader.decode(header, FLAT), len(bitset)) != len(bitset):
            raise FormatError("it is longer than its header says")
    return BloomFilter(header, bitset, header_span, bitset_span)


def _take(chunk: Chunk, span: Span, module_type: ModuleType) -> tuple[memoryview, Span]:
    what = chunk.place.describe(module_type)
    framing = chunk.source.read_at(span.start, min(LENGTH_BYTES, span.length))
    taken = Span(span.start, sealed_length(framing, span.length, what, chunk.location))
    return chunk.source.read_at(taken.start, taken.length), taken


def _bitset_length(header: thrift.Struct, available: int) -> int:
    length = header.integer(BloomFilterHeader.NUM_BYTES)
    if not 0 <= length <= available:
        raise FormatError(f"its bitset has {length} bytes, where {available} are left")
    return length
