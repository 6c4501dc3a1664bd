"""Decompressing a block of an Avro file, up to a bound: a few thousand bytes may say that they are gigabytes.

    deflate     raw deflate; bytes may follow it, as PyIceberg writes them
    zstandard   one frame, whose window is bounded too
    snappy      says first how much it holds; then a CRC-32
    bzip2       one stream

Raises FormatError, without a place, for what is longer than the limit, cut, or not of its codec; ImportError where the codec's library is
not installed.

Specification: Avro 1.11, "Required Codecs", "Optional Codecs".
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable
from io import BytesIO
from typing import Final, cast

import pyarrow as pa

from tablecrypt.errors import FormatError

_RAW_DEFLATE: Final = -15
_MAX_WINDOW: Final = 8 * 1024 * 1024
"""What a Zstandard decoder has to support at least, and no level but the "ultra" ones asks for more."""
_MAX_LENGTH_BYTES: Final = 5
_CRC_LENGTH: Final = 4


def open_block(codec: str, sealed: bytes, limit: int) -> bytes:
    """Return what a block of at most `limit` bytes holds; `codec` is one of PyIceberg's KNOWN_CODECS but null."""
    opened = _CODECS[codec](sealed, limit)
    if len(opened) > limit:
        raise FormatError(f"an Avro block holds more than {limit} bytes when it is decompressed, which no writer's does")
    return opened


def _deflate(sealed: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj(_RAW_DEFLATE)
    return _whole(stream.decompress(sealed, limit + 1), limit, stream.eof)


def _bzip2(sealed: bytes, limit: int) -> bytes:
    stream = bz2.BZ2Decompressor()
    return _whole(stream.decompress(sealed, limit + 1), limit, stream.eof)


def _zstandard(sealed: bytes, limit: int) -> bytes:
    from zstandard import ZstdDecompressor

    opened = bytearray()
    with ZstdDecompressor(max_window_size=_MAX_WINDOW).stream_reader(BytesIO(sealed)) as stream:
        while len(opened) <= limit and (chunk := stream.read(min(limit + 1 - len(opened), _MAX_WINDOW))):
            opened += chunk
    return bytes(opened)


def _snappy(sealed: bytes, limit: int) -> bytes:
    packed, checksum = sealed[:-_CRC_LENGTH], sealed[-_CRC_LENGTH:]
    length = 0
    for index, byte in enumerate(packed[:_MAX_LENGTH_BYTES]):
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    if length > limit:
        raise FormatError(f"an Avro block says that it holds {length} bytes, of which {limit} are allowed")
    opened = pa.Codec("snappy").decompress(packed, decompressed_size=length, asbytes=True) if length else b""
    if zlib.crc32(opened) != int.from_bytes(checksum, "big"):
        raise FormatError("an Avro block's CRC-32 is not that of its bytes")
    return cast("bytes", opened)


def _whole(opened: bytes, limit: int, ended: bool) -> bytes:
    if len(opened) <= limit and not ended:
        raise FormatError("an Avro block is cut short")
    return opened


_CODECS: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    "deflate": _deflate,
    "bzip2": _bzip2,
    "zstandard": _zstandard,
    "snappy": _snappy,
}
