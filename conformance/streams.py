"""AGS1 streams and Standard Key Metadata in plain Python, which shares no code with an implementation that is judged.

Needs the package cryptography to encrypt and decrypt; lengths and nonces can be seen without it.

    stream        "AGS1" | block length, 4 bytes little endian, = 1048576 | block 0 | block 1 | …
    block         nonce (12) | ciphertext | tag (16)      AES-GCM, AAD = AAD prefix | number of the block, 4 bytes little endian
    key metadata  0x01 | Avro's binary form of {key: bytes, AAD prefix: null or bytes, length of the encrypted file: null or long}

Every block but the last has 1048576 bytes of plaintext; an empty plaintext is one block without any.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

BLOCK: Final = 1 << 20
HEADER: Final = b"AGS1" + BLOCK.to_bytes(4, "little")
NONCE: Final = 12
TAG: Final = 16
_OVERHEAD: Final = NONCE + TAG


class StreamError(Exception):
    """These bytes are no such stream or key metadata."""


class NotAuthenticError(StreamError):
    """A block, or what wraps a key, was changed, or belongs elsewhere."""


@dataclass(frozen=True)
class KeyMetadata:
    """The key of a file, and what its reader needs besides."""

    key: bytes = field(repr=False)
    aad_prefix: bytes | None = None
    file_length: int | None = None

    def encode(self) -> bytes:
        """As the specification writes it."""
        prefix = _long(0) if self.aad_prefix is None else _long(1) + _bytes(self.aad_prefix)
        length = _long(0) if self.file_length is None else _long(1) + _long(self.file_length)
        return b"\x01" + _bytes(self.key) + prefix + length

    @classmethod
    def decode(cls, data: bytes) -> KeyMetadata:
        """Read it. StreamError for anything that `encode` does not write."""
        if data[:1] != b"\x01":
            raise StreamError("key metadata is not of version 1")
        key, at = _read_bytes(data, 1)
        prefix, length = None, None
        branch, at = _read_long(data, at)
        if branch:
            prefix, at = _read_bytes(data, at)
        branch, at = _read_long(data, at)
        if branch:
            length, at = _read_long(data, at)
        read = cls(key, prefix, length)
        # Not field by field: what another spelling hides, bytes behind the record among it, is found by writing it again.
        if at != len(data) or len(key) not in (16, 24, 32) or (length or 0) < 0 or read.encode() != data:
            raise StreamError("key metadata is no record of a key, an AAD prefix and a length")
        return read


def stream_length(plaintext_length: int) -> int:
    """How many bytes the stream of so many bytes has."""
    return len(HEADER) + plaintext_length + _OVERHEAD * max(1, -(-plaintext_length // BLOCK))


def blocks(data: bytes) -> Iterator[bytes]:
    """The blocks of a stream, encrypted as they are. StreamError where its bytes end in a block that is none."""
    if not data.startswith(HEADER):
        raise StreamError("it does not begin as an AGS1 stream of blocks of 1048576 bytes")
    for start in range(len(HEADER), max(len(data), len(HEADER) + 1), BLOCK + _OVERHEAD):
        block = data[start : start + BLOCK + _OVERHEAD]
        # An empty block is the only one of an empty plaintext.
        if len(block) < _OVERHEAD or (len(block) == _OVERHEAD and start > len(HEADER)):
            raise StreamError("it ends inside of a block")
        yield block


def encrypt_stream(plaintext: bytes, key: KeyMetadata) -> bytes:
    """A stream with fresh nonces."""
    parts = [HEADER]
    for number, start in enumerate(range(0, max(1, len(plaintext)), BLOCK)):
        parts.append(encrypt_gcm(key.key, plaintext[start : start + BLOCK], _aad(key, number)))
    return b"".join(parts)


def decrypt_stream(data: bytes, key: KeyMetadata) -> bytes:
    """The plaintext. StreamError, or NotAuthenticError, for a stream that is not what was written."""
    if key.file_length is not None and key.file_length != len(data):
        raise StreamError(f"it has {len(data)} bytes, and its key metadata says {key.file_length}")
    return b"".join(decrypt_gcm(key.key, block, _aad(key, number)) for number, block in enumerate(blocks(data)))


def encrypt_gcm(key: bytes, plaintext: bytes, aad: bytes) -> bytes:
    """nonce | ciphertext | tag"""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(NONCE)
    return nonce + AESGCM(key).encrypt(nonce, plaintext, aad)


def decrypt_gcm(key: bytes, sealed: bytes, aad: bytes | None) -> bytes:
    """The reverse. NotAuthenticError where the tag is not right."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(sealed[:NONCE], sealed[NONCE:], aad)
    except InvalidTag as error:
        raise NotAuthenticError("a tag is not right") from error


def _aad(key: KeyMetadata, block: int) -> bytes:
    return (key.aad_prefix or b"") + block.to_bytes(4, "little")


def _long(value: int) -> bytes:
    zigzag, parts = (value << 1) ^ (value >> 63), bytearray()
    while zigzag > 0x7F:
        parts.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*parts, zigzag])


def _bytes(value: bytes) -> bytes:
    return _long(len(value)) + value


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    zigzag, shift = 0, 0
    while at < len(data) and shift < 70:
        byte, at = data[at], at + 1
        zigzag |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (zigzag >> 1) ^ -(zigzag & 1), at
    raise StreamError("a number has no end")


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _read_long(data, at)
    if not 0 <= length <= len(data) - at:
        raise StreamError("it is cut")
    return data[at : at + length], at + length
