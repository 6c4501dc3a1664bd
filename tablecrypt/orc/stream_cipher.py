"""AES-CTR over the streams of encrypted columns: one local key for each column and file, one IV for each stream.

    IV = column id (3 bytes BE) | stream kind (2) | stripe id (3) | block counter (8)

The counter begins at 0 and counts 16-byte blocks, so decryption can begin at any offset of a stream. Ciphertext is as long as plaintext.
Streams are encrypted after compression. Stripe ids begin at 1; the statistics
of a file with n stripes take n + 1. Nothing is authenticated: a changed bit of ciphertext changes the same bit of plaintext.

Raises FormatError for a column, kind or stripe that does not fit into the IV. Specification: Apache ORC v1, "Stream Encryption".
"""

from __future__ import annotations

from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import FormatError

MAX_COLUMN: Final = 0xFFFFFF
MAX_STRIPE_ID: Final = 0xFFFFFF
_MAX_KIND: Final = 0xFFFF
_BLOCK: Final = 16


def crypt_stream(key: Secret, column: int, kind: int, stripe_id: int, data: bytes, offset: int = 0) -> bytes:
    """Encrypt or decrypt (CTR is both) the part of a stream that begins at `offset`."""
    iv = stream_iv(column, kind, stripe_id, offset // _BLOCK)
    keystream = Cipher(algorithms.AES(key.reveal()), modes.CTR(iv)).encryptor()
    # CTR makes its keystream in whole blocks: a range that begins inside one drops the start of the first.
    if skipped := offset % _BLOCK:
        keystream.update(bytes(skipped))
    return keystream.update(data)


def stream_iv(column: int, kind: int, stripe_id: int, block: int = 0) -> bytes:
    """Return the 16-byte IV of a stream's block number `block`."""
    # A number cut to three bytes would give two streams one IV, and with it the XOR of their contents to any reader of the storage.
    if not 0 <= column <= MAX_COLUMN or not 1 <= stripe_id <= MAX_STRIPE_ID:
        raise FormatError(f"ORC encryption has no IV for column {column} in stripe {stripe_id}")
    # Of a stripe's statistics the footer states the kind, which nothing authenticates.
    if not 0 <= kind <= _MAX_KIND:
        raise FormatError(f"ORC encryption has no IV for a stream of kind {kind} of column {column}")
    return column.to_bytes(3, "big") + kind.to_bytes(2, "big") + stripe_id.to_bytes(3, "big") + block.to_bytes(8, "big")
