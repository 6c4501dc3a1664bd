"""What a plain view consists of: bytes made for it, and streams of the encrypted file that are fetched and decrypted when they are read."""

from __future__ import annotations

from dataclasses import dataclass

from tablecrypt.crypto.secret import Secret
from tablecrypt.orc.source import Source
from tablecrypt.orc.stream_cipher import crypt_stream
from tablecrypt.orc.stream_places import PlacedStream


@dataclass(frozen=True)
class MadeBytes:
    """Bytes of the view itself, from `start` on: its header, stripe footers and tail."""

    start: int
    data: bytes

    @property
    def length(self) -> int:
        return len(self.data)

    def read(self, source: Source, begin: int, length: int) -> bytes:
        return self.data[begin : begin + length]


@dataclass(frozen=True)
class StreamBytes:
    """A stream that stands in the view from `start` on. Without a key it is not encrypted."""

    start: int
    placed: PlacedStream
    stripe_id: int
    key: Secret | None
    encoding_version: int

    @property
    def length(self) -> int:
        return self.placed.stream.length

    def read(self, source: Source, begin: int, length: int) -> bytes:
        raw = source.read_at(self.placed.offset + begin, length)
        if self.key is None:
            return raw
        return crypt_stream(self.key, self.placed.stream.column, self.placed.stream.kind, self.stripe_id, raw, begin)
