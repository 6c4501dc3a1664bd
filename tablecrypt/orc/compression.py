"""How ORC compresses its footers, statistics and streams: in chunks with a header each.

    section = chunk ...                                     or, in a file without compression, the bare bytes
    chunk   = header, 3 bytes LE: length << 1 | original | `length` bytes

`original` says that the chunk's bytes are stored as they are, because compressing did not make them shorter. A chunk holds at most
the file's compression block size, before compression. ZLIB is raw deflate, SNAPPY and ZSTD are their own formats, LZ4 is bare blocks,
which do not say how much they hold, so their sequences are added up first. LZO is read and never written: all chunks written to an LZO file
are `original`. BROTLI is neither read nor written.

    LZ4 block = sequence ...;   sequence = token | more literal length | literals | offset, 2 bytes LE | more match length
    token     = literal length (4 bits, 15: more follows) | match length - 4 (4 bits, 15: more follows); the last one ends with its literals

Nothing in LZO1X says how much a chunk holds either, and each zero byte of a length means 255 bytes. So, unless a chunk is short, its
instructions are added up before the package lzallright decompresses it, and a chunk that would exceed the limit is refused.

    LZO chunk = [first] instruction ... end
    first            18 to 255: that - 17 literals

    instruction      0000LLLL   after no literals: 3 + L literals (L = 0: 15 + more)
                     0000DDSS   after 1 to 3: match of 2 │ H        after more: match of 3 │ H
                     0001HLLL   match of 2 + L (L = 0: 7 + more)  │ D, 2 bytes LE        the end: neither H nor D, but for its last 2 bits
                     001LLLLL   match of 2 + L (L = 0: 31 + more) │ D, 2 bytes LE
                     01LDDDSS   match of 3 + L │ H
                     1LLDDDSS   match of 5 + L │ H

    more = 00 ... and a byte that is not: 255 for each 00, and that byte
    S    = how many literals follow the match; where there is a D of 2 bytes, its last 2 bits
    H, D = how far back the match is: nothing to count

lzallright is safe Rust from 0.3 on; the library behind earlier versions reads past the end of a chunk that ends in zeros.

Footers and statistics are decompressed here; streams move as they are, except those of LZO files (plain_view.py). The output is
bounded by the block size for each chunk, and as a whole by SMALL_SECTION or SECTION_RATIO times what is stored, and by
MAX_SECTION_LENGTH, because parsed it takes more memory still. Lengths are bytes. Raises FormatError, and MissingExtraError for LZO
without lzallright.

Specification: Apache ORC v1, "Compression"; LZ4 block format; Linux kernel documentation, "LZO stream format as understood by Linux' LZO
decompressor".
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import pyarrow as pa

from tablecrypt._bytes import ByteReader
from tablecrypt.errors import FormatError, MissingExtraError

HEADER_LENGTH: Final = 3
MAX_CHUNK_LENGTH: Final = 2**23 - 1
DEFAULT_BLOCK_SIZE: Final = 256 * 1024
MAX_SECTION_LENGTH: Final = 256 * 1024 * 1024
SMALL_SECTION: Final = 4 * 1024 * 1024
SECTION_RATIO: Final = 32

_RAW_DEFLATE: Final = -15
_LZ4_MIN_MATCH: Final = 4
_LZ4_MORE: Final = 15

_LZO_FIRST_BASE: Final = 17
_LZO_LONG_MATCH: Final = 0x10
_LZO_MIDDLE_MATCH: Final = 0x20
_LZO_SHORT_MATCH: Final = 0x40
LZO_SHORT_CHUNK: Final = 256 * 1024
"""ORC's default block size. Such a chunk is decompressed at once: it cannot hold more than 64 MiB, and adding up
its instructions takes 40 times as long."""
_LZO_MANY: Final = 4
"""From this number of literals on, the exact number makes no difference."""


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
    max_section_length: int = MAX_SECTION_LENGTH

    def __post_init__(self) -> None:
        if self.kind is not CompressionKind.NONE and not 0 < self.block_size <= MAX_CHUNK_LENGTH:
            raise FormatError(f"a compression block size of {self.block_size} bytes; a chunk has 1 to {MAX_CHUNK_LENGTH}")

    def decompress(self, section: bytes, what: str) -> bytes:
        """Return the section's contents; `what` names it in errors."""
        if self.kind is CompressionKind.NONE:
            return section

        # Each chunk keeps to the block size, but their number is free: a few kilobytes of footer could become gigabytes.
        limit = min(self.max_section_length, max(SMALL_SECTION, SECTION_RATIO * len(section)))
        parts: list[bytes] = []
        total = 0

        for _, part in self.open_chunks(section, what):
            total += len(part)
            # Checked at each chunk: memory never holds more than one block above the limit.
            if total > limit:
                raise FormatError(
                    f"{what} has more than {limit} bytes when decompressed, out of {len(section)}: "
                    "if long texts in its statistics made it so, write the file uncompressed"
                )
            parts.append(part)

        return b"".join(parts)

    def open_chunks(self, section: bytes, what: str) -> Iterator[tuple[int, bytes]]:
        """Yield of each chunk of a compressed section where it ends and what it holds."""
        end = 0
        while end < len(section):
            header = int.from_bytes(section[end : end + HEADER_LENGTH], "little")
            begin = end + HEADER_LENGTH
            end = begin + (header >> 1)
            # A slice past the end would pass on a shorter chunk without an error.
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

        # ORC bounds a chunk by the block size of the postscript ("Compression"): a larger one is a bomb or a changed header.
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
            inflate = zlib.decompressobj(_RAW_DEFLATE)
            opened = inflate.decompress(chunk, limit + 1)
            # pyarrow may take what follows for more contents: it would decode lengths that were not checked here.
            if inflate.unused_data or not (inflate.eof or len(opened) > limit):
                raise FormatError(f"{what}: a ZLIB chunk does not end where its contents do")
            return opened
        case CompressionKind.ZSTD:
            with pa.CompressedInputStream(pa.BufferReader(chunk), "zstd") as stream:
                return bytes(stream.read(limit + 1))
        case CompressionKind.SNAPPY:
            # Snappy states the length in front. It is checked before pyarrow allocates that many bytes.
            length = ByteReader(chunk, what).varint()
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
        # The last sequence of a block consists of literals alone (LZ4 block format, "End of block restrictions").
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


def decompress_lzo(chunk: bytes, limit: int, what: str, short_chunk: int = LZO_SHORT_CHUNK) -> bytes:
    """Return what a chunk holds; `what` names it in errors. More than `limit` bytes are refused, or from a short chunk returned."""
    try:
        from lzallright import LZOCompressor, LZOError
    except ImportError as error:
        raise MissingExtraError.named(f"{what} is compressed with LZO, which needs the package lzallright", "lzo") from error

    length = limit if len(chunk) <= short_chunk else _LzoInstructions(chunk, limit, what).length()
    try:
        return LZOCompressor.decompress(chunk, length)
    except LZOError as error:
        raise FormatError(f"{what}: an LZO chunk cannot be decompressed") from error


class _LzoInstructions:
    """Goes through a chunk's instructions and adds up what they make."""

    def __init__(self, chunk: bytes, limit: int, what: str) -> None:
        self._chunk = chunk
        self._limit = limit
        self._what = what
        self._position = 0
        self._total = 0

    def length(self) -> int:
        """Return how many bytes the chunk holds."""
        literals: int | None = 0
        if self._chunk and self._chunk[0] > _LZO_FIRST_BASE:
            literals = self._literals(self._byte() - _LZO_FIRST_BASE)
        while literals is not None:
            literals = self._instruction(literals)
        return self._total

    def _instruction(self, literals: int) -> int | None:
        """Pass an instruction after `literals` literals; return how many literals it has itself, or None at the end."""
        first = self._byte()
        if first >= _LZO_SHORT_MATCH:
            self._add(5 + (first >> 5 & 3) if first >= 0x80 else 3 + (first >> 5 & 1))
        elif first >= _LZO_LONG_MATCH:
            return self._far_match(first)
        elif literals == 0:
            return self._literals(3 + self._counted(first, 15))
        else:
            self._add(3 if literals >= _LZO_MANY else 2)

        self._byte()
        return self._literals(first & 3)

    def _far_match(self, first: int) -> int | None:
        length = 2 + (self._counted(first & 31, 31) if first >= _LZO_MIDDLE_MATCH else self._counted(first & 7, 7))
        distance = self._byte() | self._byte() << 8
        if first < _LZO_MIDDLE_MATCH and not first & 8 and distance < 4:
            return None
        self._add(length)
        return self._literals(distance & 3)

    def _counted(self, stored: int, base: int) -> int:
        """Return the length in an instruction, or the one after it if that is 0."""
        if stored:
            return stored

        length = base
        while (more := self._byte()) == 0:
            length += 0xFF
            # Checked in the loop: each zero byte counts as 255, so a chunk of zeros would claim gigabytes.
            self._check(self._total + length)

        return length + more

    def _literals(self, count: int) -> int:
        self._position += count
        if self._position > len(self._chunk):
            raise FormatError(f"{self._what}: an LZO chunk ends inside its literals")
        self._add(count)
        return count

    def _byte(self) -> int:
        if self._position >= len(self._chunk):
            raise FormatError(f"{self._what}: an LZO chunk ends inside an instruction")
        self._position += 1
        return self._chunk[self._position - 1]

    def _add(self, count: int) -> None:
        self._total += count
        self._check(self._total)

    def _check(self, total: int) -> None:
        if total > self._limit:
            raise FormatError(f"{self._what}: a chunk holds {total} bytes or more, more than the file's block size of {self._limit}")
