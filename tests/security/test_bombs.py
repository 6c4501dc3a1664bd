"""A few bytes that stand for many: every parser refuses them, with an error of ours, before they have become so many.

Each case gives a parser bytes that an attacker made, and the memory that it may take at its peak. docs/security-campaign.md has the bounds.
"""

from __future__ import annotations

import bz2
import gzip
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
import zstandard
from pyiceberg.manifest import ManifestContent

from tablecrypt.crypto import ags1
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.manifests.avro_schema import to_avro_json
from tablecrypt.manifests.manifest_file import parse_manifest
from tablecrypt.manifests.records import ENTRY_READ_SCHEMA
from tablecrypt.orc.compression import Compression, CompressionKind
from tablecrypt.orc.protobuf import encode, integer_field
from tablecrypt.orc.source import FileSource
from tablecrypt.orc.tail import read_tail
from tablecrypt.parquet import thrift
from tablecrypt.parquet.structs import FILE_META_DATA_SHAPE
from tablecrypt.table.deletes import MAGIC, parse_deletion_vector
from tablecrypt.table.metadata import MetadataFile, decompressed
from tests.support.peak_memory import measured

MIB: Final = 1024 * 1024
SYNC: Final = b"0123456789abcdef"
ZIPPED: Final = "s3://b/1.gz.metadata.json"


@dataclass(frozen=True)
class Bomb:
    """Bytes for a parser.

    Attributes:
        name: what a test calls it.
        make: makes the bytes.
        parse: gives them to the parser.
        bound: the memory that it may take, of their number.
    """

    name: str
    make: Callable[[], bytes]
    parse: Callable[[bytes], Any]
    bound: Callable[[int], int]


def varint(value: int) -> bytes:
    """An Avro long that is not negative."""
    zigzag, out = value << 1, bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*out, zigzag])


def sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, wbits=-15)
    return packer.compress(data) + packer.flush()


def snappy(data: bytes) -> bytes:
    return bytes(pa.Codec("snappy").compress(data, asbytes=True)) + zlib.crc32(data).to_bytes(4, "big")


CODECS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "deflate": deflated,
    "zstandard": lambda data: zstandard.ZstdCompressor(level=3).compress(data),
    "snappy": snappy,
    "bzip2": bz2.compress,
}


def manifest(codec: str, content: bytes, count: int, blocks: int = 1) -> bytes:
    header = {"avro.schema": to_avro_json(ENTRY_READ_SCHEMA, "manifest_entry").encode(), "avro.codec": codec.encode()}
    fields = b"".join(sized(key.encode()) + sized(value) for key, value in header.items())
    block = varint(count) + sized(CODECS[codec](content)) + SYNC
    return b"Obj\x01" + varint(len(header)) + fields + varint(0) + SYNC + block * blocks


def of_manifest(data: bytes) -> Any:
    return parse_manifest(data, "s3://b/m.avro", ManifestContent.DATA)


def vector(bitmap: bytes) -> bytes:
    framed = MAGIC + bitmap
    return struct.pack(">I", len(framed)) + framed + struct.pack(">I", zlib.crc32(framed))


def full_runs(high: int, containers: int) -> bytes:
    """A 64-bit bitmap of one part, whose containers are full: each a run of 65,536 positions in 4 bytes."""
    bits = bytearray((containers + 7) // 8)
    for each in range(containers):
        bits[each // 8] |= 1 << (each % 8)
    described = b"".join(struct.pack("<HH", key, 0xFFFF) for key in range(containers))
    runs = struct.pack("<HHH", 1, 0, 0xFFFF) * containers
    offsets = b"".join(struct.pack("<I", 0) for _ in range(containers)) if containers >= 4 else b""
    portable = struct.pack("<I", 12347 | (containers - 1) << 16) + bytes(bits) + described + offsets + runs
    return struct.pack("<Q", 1) + struct.pack("<I", high) + portable


def orc_file(footer: bytes, kind: CompressionKind) -> bytes:
    fields = [integer_field(1, len(footer)), integer_field(2, kind.value), integer_field(3, 262_144), integer_field(5, 0)]
    postscript = encode(fields) + b"\x82\xf4\x03\x03ORC"
    return b"ORC" + footer + postscript + bytes([len(postscript)])


def orc_bomb(kind: CompressionKind, content: bytes, times: int) -> Callable[[], bytes]:
    return lambda: orc_file(Compression(kind, 262_144).compress(content) * times, kind)


def of_orc(data: bytes) -> Any:
    return read_tail(FileSource(data))


def of_footer(data: bytes) -> Any:
    return thrift.decode(data, FILE_META_DATA_SHAPE)


def long_list(field: int, kind: int, count: int) -> bytes:
    """The header of a Thrift field that is a list of so many elements."""
    out, left = bytearray(), count
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([field << 4 | 9, 0xF0 | kind, *out, left])


def flat(bytes_more: int) -> Callable[[int], int]:
    """Four times the bytes given, and so many more: what the measuring itself and the allocator take."""
    return lambda length: 4 * length + bytes_more


def times(factor: int, bytes_more: int) -> Callable[[int], int]:
    """A stated bound that is not four times the bytes given."""
    return lambda length: factor * length + bytes_more


SLACK: Final = 12 * MIB
ZEROS: Final = bytes(64 * MIB)

BOMBS: Final = [
    *(Bomb(f"manifest, a block of {codec}", partial(manifest, codec, ZEROS, 1), of_manifest, times(4, 80 * MIB)) for codec in CODECS),
    Bomb("manifest, many blocks of deflate", lambda: manifest("deflate", bytes(4 * MIB), 1, 500), of_manifest, times(4, 80 * MIB)),
    Bomb("manifest, more records than bytes", lambda: manifest("deflate", bytes(4 * MIB), 4 * MIB), of_manifest, flat(SLACK)),
    Bomb(
        "metadata.json.gz",
        lambda: gzip.compress(ZEROS, 9),
        lambda data: decompressed("s3://b/1.gz.metadata.json", data),
        times(0, 100 * MIB),
    ),
    Bomb(
        "metadata.json.gz, nested",
        lambda: gzip.compress(b"[" * (16 * MIB), 9),
        lambda data: MetadataFile(ZIPPED, decompressed(ZIPPED, data)).parse(),
        times(0, 100 * MIB),
    ),
    Bomb(
        "deletion vector of runs, another cardinality",
        lambda: vector(full_runs(0, 30_000)),
        lambda data: parse_deletion_vector(data, "s3://b/d.puffin", cardinality=3, rows=100),
        flat(SLACK),
    ),
    Bomb(
        "deletion vector of runs, of few rows",
        lambda: vector(full_runs(0, 30_000)),
        lambda data: parse_deletion_vector(data, "s3://b/d.puffin", cardinality=30_000 * 65_536, rows=100),
        flat(SLACK),
    ),
    Bomb(
        "deletion vector that says it has 2^63 parts",
        lambda: vector(struct.pack("<Q", 1 << 63) + bytes(64)),
        lambda data: parse_deletion_vector(data, "s3://b/d.puffin", cardinality=3, rows=100),
        flat(SLACK),
    ),
    Bomb("Thrift, a list of 2^40 elements", lambda: long_list(4, 12, 2**40) + bytes(1000), of_footer, flat(SLACK)),
    Bomb("Thrift, a list of empty structs", lambda: long_list(2, 12, 4 * MIB) + bytes(4 * MIB) + b"\0", of_footer, flat(SLACK)),
    Bomb("Thrift, short structs", lambda: long_list(4, 12, 80_000) + b"\x15\x00\x00" * 80_000, of_footer, times(160, SLACK)),
    Bomb("Thrift, binaries of 2^60 bytes", lambda: b"\x18" + b"\xff" * 8 + b"\x0f" + bytes(1000), of_footer, flat(SLACK)),
    Bomb("Thrift, structs in structs", lambda: b"\x1c" * MIB + bytes(MIB), of_footer, flat(SLACK)),
    Bomb("ORC, a footer of zeros", orc_bomb(CompressionKind.ZLIB, bytes(MIB), 300), of_orc, times(0, 80 * MIB)),
    Bomb("ORC, a footer of zeros, zstd", orc_bomb(CompressionKind.ZSTD, bytes(MIB), 300), of_orc, times(0, 80 * MIB)),
    Bomb("ORC, a footer of small fields", orc_bomb(CompressionKind.ZLIB, b"\x08\x00" * (MIB // 4), 4), of_orc, times(0, 200 * MIB)),
    Bomb(
        "ORC, LZO whose lengths are runs of zeros",
        lambda: orc_file((2 * 200_000).to_bytes(3, "little") + b"\x00" * 200_000, CompressionKind.LZO),
        of_orc,
        times(4, 80 * MIB),
    ),
    Bomb("key metadata of 2^62 bytes", lambda: b"\x01" + varint(2**62 - 1) + bytes(64), StandardKeyMetadata.decode, flat(SLACK)),
    Bomb("AGS1 of another block length", lambda: b"AGS1" + b"\xff" * 40, lambda data: ags1.check_header(data[:8]), flat(SLACK)),
]


@pytest.mark.slow
@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.name)
def test_a_bomb_is_refused_within_its_bound(bomb: Bomb, tmp_path: Path, record_property: Any) -> None:
    data = bomb.make()
    outcome = measured(lambda: bomb.parse(data), tmp_path / "outcome")
    record_property("bytes given", len(data))
    record_property("peak", outcome.peak)
    assert outcome.error is not None, "it was read"
    assert outcome.is_ours, outcome.error
    assert outcome.peak <= bomb.bound(len(data)), f"{len(data)} bytes took {outcome.peak}"
