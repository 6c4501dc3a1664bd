"""AGS1 files for tests: made by an independent writer, and stores that answer awkwardly or keep a record."""

from __future__ import annotations

import io

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.files.ags1_streams import Ags1InputStream

MIB = 1024 * 1024
ENCRYPTED_MIB = 12 + MIB + 16
KEY = bytes.fromhex("d7a3c1590b7e4f6288a1f3e05c9b2d46")
PREFIX = bytes.fromhex("00112233445566778899aabbccddeeff")
LOCATION = "s3://bucket/db/t/metadata/one.avro"


def pattern(length: int) -> bytes:
    """`length` bytes in which no two blocks, and no two neighbouring kilobytes, are alike."""
    return np.arange(-(-length // 4), dtype=">u4").tobytes()[:length]


def key_metadata(file_length: int | None = None, key: bytes = KEY, prefix: bytes = PREFIX) -> StandardKeyMetadata:
    return StandardKeyMetadata(Secret(key), prefix, file_length)


def ags1_file(plaintext: bytes, key: bytes = KEY, prefix: bytes = PREFIX) -> bytes:
    """The layout of the specification spelled out with the cipher alone; nonces are counted, so that the bytes are always the same."""
    cipher = AESGCM(key)
    parts = [b"AGS1", bytes([0, 0, 16, 0])]
    for index, start in enumerate(range(0, max(1, len(plaintext)), MIB)):
        nonce = b"nonce" + index.to_bytes(7, "big")
        parts += [nonce, cipher.encrypt(nonce, plaintext[start : start + MIB], prefix + index.to_bytes(4, "little"))]
    return b"".join(parts)


def opened(data: bytes, metadata: StandardKeyMetadata | None = None) -> Ags1InputStream:
    """A reader of `data`, which by default trusts the length that `data` has."""
    return Ags1InputStream(io.BytesIO(data), metadata or key_metadata(len(data)), LOCATION, len(data))


class RecordingStore(io.BytesIO):
    """Bytes in memory that remember which ranges were read: (offset, length) in `reads`."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.reads: list[tuple[int, int]] = []

    def read(self, size: int | None = -1) -> bytes:
        offset = self.tell()
        data = super().read(size)
        self.reads.append((offset, len(data)))
        return data


class ShortReadingStore(io.BytesIO):
    """Bytes in memory that come at most `most` at a time."""

    def __init__(self, data: bytes, most: int) -> None:
        super().__init__(data)
        self._most = most

    def read(self, size: int | None = -1) -> bytes:
        return super().read(self._most if size is None or size < 0 else min(size, self._most))


class KeepingSink(io.BytesIO):
    """Keeps every object it is given, as a store that uploads in the background does, and remembers what was in it then."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[bytes, bytes]] = []
        self.content = b""

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.kept.append((data, bytes(data)))
        return super().write(data)

    def close(self) -> None:
        self.content = self.getvalue()
        super().close()
