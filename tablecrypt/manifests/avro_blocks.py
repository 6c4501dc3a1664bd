"""The blocks of an Avro data file, one after the other from a stream, each decompressed up to a bound.

    file  = "Obj" 0x01 | metadata map | sync (16 bytes) | block 0 | block 1 | ...
    block = number of records | length of what follows | records, compressed by avro.codec | sync

Frame and blocks are Avro records themselves and are read as such. Only the stored bytes of one block and what they hold are in memory. A
few thousand bytes may say that they are gigabytes, so a block holds at most 64 MiB, or 64 times what is stored: writers begin a new block
after some 64 KiB, and only a single larger row makes a larger one.

Raises FormatError for a file that is not Avro, is cut, has a codec that Iceberg does not write, or a block that holds too much;
MissingExtraError where the library of a codec is not installed. Errors of the stream pass through.

Specification: Avro 1.11, "Object Container Files".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, cast

import fastavro

from tablecrypt._bytes import length_of
from tablecrypt._magics import AVRO
from tablecrypt.errors import FormatError, MissingExtraError
from tablecrypt.manifests.avro_container import decompress_block

LARGE_BLOCK: Final = 64 * 1024 * 1024
_RATIO: Final = 64
_CODECS: Final = ("null", "deflate", "zstandard", "snappy", "bzip2")


def _record(**fields: Any) -> Any:
    return fastavro.parse_schema({"type": "record", "name": "frame", "fields": [{"name": name, "type": of} for name, of in fields.items()]})


_SYNC: Final = {"type": "fixed", "name": "sync_marker", "size": 16}
_HEADER: Final = _record(
    magic={"type": "fixed", "name": "magic_bytes", "size": len(AVRO)}, metadata={"type": "map", "values": "bytes"}, sync=_SYNC
)
_BLOCK: Final = _record(count="long", stored="bytes", sync=_SYNC)


@dataclass(frozen=True)
class AvroBlock:
    """How many records a block says that it holds, and their bytes."""

    count: int
    content: bytes


class AvroBlocks:
    """The blocks of a file; iterating yields them once through. `schema` is the JSON text of the header.

    Args:
        source: the plaintext, a seekable binary stream.
    """

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._length = length_of(source)
        source.seek(0)
        header = self._read(_HEADER)
        if header["magic"] != AVRO:
            raise FormatError(f"it does not begin with {AVRO!r}")

        self._sync = header["sync"]
        self.schema = header["metadata"]["avro.schema"].decode()
        self._codec = header["metadata"].get("avro.codec", b"null").decode()
        if self._codec not in _CODECS:
            raise FormatError(f"its codec is {self._codec!r}, which Iceberg does not write")

    def __iter__(self) -> Iterator[AvroBlock]:
        while self._source.tell() < self._length:
            block = self._read(_BLOCK)
            if block["sync"] != self._sync:
                raise FormatError("a sync marker differs from its header's")
            # Counted, it would take away what another block holds too much.
            if block["count"] < 0:
                raise FormatError(f"a block says that it holds {block['count']} rows")
            yield AvroBlock(block["count"], self._decompressed(block["stored"]))

    def _decompressed(self, stored: bytes) -> bytes:
        if self._codec == "null":
            return stored

        try:
            return decompress_block(self._codec, stored, max(LARGE_BLOCK, _RATIO * len(stored)))
        except ImportError as error:
            raise MissingExtraError(str(error)) from error

    def _read(self, schema: Any) -> dict[str, Any]:
        return cast("dict[str, Any]", fastavro.schemaless_reader(self._source, schema, None))
