"""The files of one read on their way from Python to the key broker in the driver's JVM.

    content = number of files (4) | file | file | ...
    file    = path | length of the file (8) | key | deletes      path, key, deletes: each its length in bytes (4), then the bytes
    key     = length of the DEK (1) | DEK | AAD prefix
    deletes = a 32-bit Roaring bitmap of deleted positions, in its portable form; empty for a file without deletes

Lengths are big endian. The content is sealed for the broker alone, because Py4J writes what it sends to debug logs:

    sealed key   = a fresh AES-256 key, RSA-OAEP under the broker's public key, SHA-256 for both hashes
    sealed files = nonce (12) | ciphertext | tag (16), AES-256-GCM under that key, AAD the read's name
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from pyroaring import BitMap

from tablecrypt.crypto.aes_gcm import NONCE_LENGTH, AesGcm
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.table.deletion_vectors import DeletedPositions

KEY_LENGTH: Final = 32
_COUNT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")


@dataclass(frozen=True)
class PlannedFile:
    """One data file: where it is, its length in bytes, its key, and the positions (from 0, below 2^31) that are deleted from it."""

    location: str
    length: int
    key_metadata: StandardKeyMetadata
    deletes: DeletedPositions | None


def encode(files: Sequence[PlannedFile]) -> bytes:
    """Return the content drawn above. It holds DEKs in the clear."""
    return _COUNT.pack(len(files)) + b"".join(_encoded(file) for file in files)


def seal(content: bytes, read: str, public_key: bytes, random: Callable[[int], bytes] = secrets.token_bytes) -> tuple[bytes, bytes]:
    """Return (sealed key, sealed files).

    Args:
        content: as `encode` gives it.
        read: the read's name.
        public_key: the broker's RSA key, a SubjectPublicKeyInfo in DER.
    """
    key = random(KEY_LENGTH)
    rsa = cast("RSAPublicKey", serialization.load_der_public_key(public_key))
    oaep = padding.OAEP(mgf=padding.MGF1(hashes.SHA256()), algorithm=hashes.SHA256(), label=None)
    return rsa.encrypt(key, oaep), AesGcm(Secret(key)).encrypt(random(NONCE_LENGTH), content, read.encode())


def _encoded(file: PlannedFile) -> bytes:
    dek = file.key_metadata.encryption_key.reveal()
    key = bytes([len(dek)]) + dek + file.key_metadata.aad_prefix
    deletes = b"" if file.deletes is None else BitMap(file.deletes).serialize()
    return _sized(file.location.encode()) + _LONG.pack(file.length) + _sized(key) + _sized(deletes)


def _sized(content: bytes) -> bytes:
    return _COUNT.pack(len(content)) + content
