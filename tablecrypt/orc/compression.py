"""How ORC compresses its footers, statistics and streams: in chunks, each with a header of its own.

    section = chunk ...                                     or, in a file without compression, the bare bytes
    chunk   = header, 3 bytes LE: length << 1 | original | `length` bytes

`original` says that the chunk's bytes are stored as they are, because compressing did not make them shorter. A chunk holds at most
the file's compression block size, before compression. ZLIB is raw deflate, SNAPPY and ZSTD are their own formats, LZ4 is bare blocks,
which do not say how much they hold, so their sequences are added up first. LZO (lzo.py) is read and never written: all its chunks are
`original` then. BROTLI is neither.

    LZ4 block = sequence ...;   sequence = token | more literal length | literals | offset, 2 bytes LE | more match length
    token     = literal length (4 bits, 15: more follows) | match length - 4 (4 bits, 15: more follows); the last one ends with its literals

Footers and statistics are decompressed here; streams move as they are, except those of LZO files (expanded_stream.py). What comes out is
bounded by the block size for each chunk, and for the whole by SMALL_SECTION or SECTION_RATIO times what is stored, and by
MAX_SECTION_LENGTH, because parsed it takes more memory still. Lengths are bytes. Raises FormatError, and
MissingExtraError for LZO without its package.

Specification: Apache ORC v1, "Compression"; LZ4 block format.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import pyarrow as pa

from tablecrypt.errors import FormatError
from tablecrypt.orc.lzo import decompress_lzo
from tablecrypt.orc.protobuf import parse_varint

HEADER_LENGTH: Final = 3
MAX_CHUNK_LENGTH: Final = 2**23 - 1
DEFAULT_BLOCK_SIZE: Final = 256 * 1024
MAX_SECTION_LENGTH: Final = 256 * 1024 * 1024
SMALL_SECTION: Final = 4 * 1024 * 1024
SECTION_RATIO: Final = 32

_RAW_DEFLATE: Final = -15
_LZ4_MIN_MATCH: Final = 4
_LZ4_MORE: Final = 15


class CompressionKind(IntEnum):
    """The codecs, by their numbers in the postscript."""

    NONE = 0
    ZLIB = 1
    SNAPPY = 2
    LZO = 3
    LZ4 = 4
    ZSTD = 5
    BROTLI = 6


@dataclass(frozen=True)
class Compression:
    """A file's codec and compression block size.

    Raises FormatError when made with a block size that no chunk can have.
    """

    kind: CompressionKind
    block_size: int = DEFAULT_BLOCK_SIZE

    def __post_init__(self) -> None:
        if self.kind is not CompressionKind.NONE and not 0 < self.block_size <= MAX_CHUNK_LENGTH:
            raise FormatError(f"a compression block size of {self.block_size} bytes; a chunk has 1 to {MAX_CHUNK_LENGTH}")

    def decompress(self, section: bytes, what: str) -> bytes:
        """Return the section's contents; `what` names it in errors."""
        if self.kind is CompressionKind.NONE:
            return section
        limit = min(MAX_SECTION_LENGTH, max(SMALL_SECTION, SECTION_RATIO * len(section)))
        parts: list[bytes] = []
        total = 0
        for _, part in self.open_chunks(section, what):
            total += len(part)
            if total > limit:
                raise FormatError(f"{what} has more than {limit} bytes when decompressed, out of {len(section)}")
            parts.append(part)
        return b"".join(parts)

    def open_chunks(self, section: bytes, what: str) -> Iterator[tuple[int, bytes]]:
        """Yield of each chunk of a compressed section where it ends and what it holds."""
        end = 0
        while end < len(section):
            header = int.from_bytes(section[end : end + HEADER_LENGTH], "little")
            begin = end + HEADER_LENGTH
            end = begin + (header >> 1)
            if end > len(section):
                raise FormatError(f"{what} ends inside a compressed chunk")
            yield end, self._open_chunk(section[begin:end], bool(header & 1), what)

    def compress(self, contents: bytes) -> bytes:
        """Return contents as a section; chunks that would not get shorter are stored as they are."""
        if self.kind is CompressionKind.NONE:
            return contents
        section = bytearray()
        for start in range(0, len(contents), self.block_size):
            original = contents[start : start + self.block_size]
            packed = _compress_chunk(self.kind, original)
            stored = packed is None or len(packed) >= len(original)
            chunk = original if packed is None or stored else packed
            section += _with_header(chunk, stored)
        return bytes(section)

    def _open_chunk(self, chunk: bytes, original: bool, what: str) -> bytes:
        if original:
            opened = chunk
        else:
            try:
                opened = _decompress_chunk(self.kind, chunk, self.block_size, what)
            except (pa.ArrowException, OSError, zlib.error) as error:
                raise FormatError(f"{what}: a {self.kind.name} chunk cannot be decompressed") from error
        if len(opened) > self.block_size:
            raise FormatError(f"{what}: a chunk holds more than the file's block size of {self.block_size} bytes")
        return opened


def original_chunk(contents: bytes) -> bytes:
    """Return contents as a chunk that is not compressed."""
    return _with_header(contents, True)


def _with_header(chunk: bytes, original: bool) -> bytes:
    return (len(chunk) << 1 | original).to_bytes(HEADER_LENGTH, "little") + chunk


def _decompress_chunk(kind: CompressionKind, chunk: bytes, limit: int, what: str) -> bytes:
    """Return at most limit + 1 bytes, so that the caller sees when there are too many."""
    match kind:
        case CompressionKind.ZLIB:
            return zlib.decompressobj(_RAW_DEFLATE).decompress(chunk, limit + 1)
        case CompressionKind.ZSTD:
            with pa.CompressedInputStream(pa.BufferReader(chunk), "zstd") as stream:
                return bytes(stream.read(limit + 1))
        case CompressionKind.SNAPPY:
            length = parse_varint(chunk, 0, what)[0]
            return _decompress_known("snappy", chunk, length, limit, what)
        case CompressionKind.LZ4:
            return _decompress_known("lz4_raw", chunk, _lz4_length(chunk, what), limit, what)
        case CompressionKind.LZO:
            return decompress_lzo(chunk, limit, what)
        case _:
            raise FormatError(f"{what} is compressed with {kind.name}, which this library does not read: write the file with another codec")


def _decompress_known(codec: str, chunk: bytes, length: int, limit: int, what: str) -> bytes:
    if length > limit:
        raise FormatError(f"{what}: a chunk holds {length} bytes, more than the file's block size of {limit}")
    if length == 0:
        return b""
    opened: bytes = pa.Codec(codec).decompress(chunk, decompressed_size=length, asbytes=True)
    return opened


def _compress_chunk(kind: CompressionKind, original: bytes) -> bytes | None:
    """Return the compressed bytes, or None for a codec that is not written."""
    match kind:
        case CompressionKind.ZLIB:
            deflate = zlib.compressobj(wbits=_RAW_DEFLATE)
            return deflate.compress(original) + deflate.flush()
        case CompressionKind.ZSTD | CompressionKind.SNAPPY | CompressionKind.LZ4:
            name = "lz4_raw" if kind is CompressionKind.LZ4 else kind.name.lower()
            packed: bytes = pa.Codec(name).compress(original, asbytes=True)
            return packed
        case _:
            return None


def _lz4_length(chunk: bytes, what: str) -> int:
    """Return how many bytes an LZ4 block holds."""
    total = position = 0
    while position < len(chunk):
        token = chunk[position]
        literals, position = _lz4_run(chunk, position + 1, token >> 4, what)
        position += literals
        total += literals
        if position > len(chunk):
            raise FormatError(f"{what}: an LZ4 chunk ends inside its literals")
        if position == len(chunk):
            return total
        match_length, position = _lz4_run(chunk, position + 2, token & 0x0F, what)
        total += match_length + _LZ4_MIN_MATCH
    raise FormatError(f"{what}: an LZ4 chunk ends inside a match")


def _lz4_run(chunk: bytes, position: int, length: int, what: str) -> tuple[int, int]:
    if length < _LZ4_MORE:
        return length, position
    while position < len(chunk):
        more = chunk[position]
        position += 1
        length += more
        if more < 0xFF:
            return length, position
    raise FormatError(f"{what}: an LZ4 chunk ends inside a length")
