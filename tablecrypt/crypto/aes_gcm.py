"""AES-GCM with one key: everything encrypted in an Iceberg table is laid out this way.

    encrypted = nonce (12) | ciphertext (as long as the plaintext) | tag (16)

The key is 16, 24 or 32 bytes. The nonce comes in as an argument; the caller draws it at random and never uses it twice with one key.
The AAD is not stored: the reader supplies it again, which binds the bytes to their place. Lengths are bytes.
Follows NIST SP 800-38D with a 96-bit IV and a 128-bit tag, as the Iceberg specification asks for (appendix "AES GCM Stream").

Raises ConfigurationError for an argument that cannot be used, AuthenticationError for bytes that do not authenticate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, ConfigurationError

if TYPE_CHECKING:
    from typing_extensions import Buffer

NONCE_LENGTH: Final = 12
TAG_LENGTH: Final = 16
OVERHEAD: Final = NONCE_LENGTH + TAG_LENGTH
KEY_LENGTHS: Final = (16, 24, 32)

_REFUSED: Final = "AES-GCM did not authenticate: the bytes were changed, or the AAD or the key is another one"


class AesGcm:
    """Encrypts and decrypts bytes under one key. Its repr shows the length of the key, and it cannot be pickled."""

    __slots__ = ("_cipher", "_key")

    def __init__(self, key: Secret) -> None:
        if len(key) not in KEY_LENGTHS:
            raise ConfigurationError(f"an AES key has 16, 24 or 32 bytes, not {len(key)}")
        # Kept only so that pickling meets Secret's refusal, and repr its redaction.
        self._key = key
        self._cipher = AESGCM(key.reveal())

    def __repr__(self) -> str:
        return f"AesGcm({self._key!r})"

    def encrypt(self, nonce: bytes, plaintext: Buffer, aad: bytes) -> bytes:
        """Return nonce | ciphertext | tag. Raises ConfigurationError for a nonce that is not 12 bytes long."""
        return nonce + self.encrypt_detached(nonce, plaintext, aad)

    def encrypt_detached(self, nonce: bytes, plaintext: Buffer, aad: bytes) -> bytes:
        """Return ciphertext | tag, for a caller that writes the nonce itself and so saves a copy of both."""
        _check_length("nonce", len(nonce), NONCE_LENGTH)
        return self._cipher.encrypt(nonce, memoryview(plaintext), aad)

    def decrypt(self, encrypted: Buffer, aad: bytes) -> bytes:
        """Return the plaintext of nonce | ciphertext | tag.

        Raises AuthenticationError when the bytes are too short, were changed, were encrypted with another AAD, or under another key.
        """
        with memoryview(encrypted) as source:
            # Too short is not authentic, and not a fault of the caller: the length comes from the storage.
            _check_openable(source)
            try:
                return self._cipher.decrypt(bytes(source[:NONCE_LENGTH]), source[NONCE_LENGTH:], aad)
            except InvalidTag:
                raise AuthenticationError(_REFUSED) from None

    def decrypt_into(self, encrypted: Buffer, aad: bytes, out: Buffer) -> None:
        """Write the plaintext into `out`, which is exactly OVERHEAD bytes shorter than `encrypted`.

        After a failure `out` holds zeros, never unauthenticated bytes. Raises AuthenticationError as `decrypt` does, and
        ConfigurationError for another length of `out`.
        """
        # An error that is kept keeps this frame: no view of a caller's buffer may stay in it (tablecrypt._bytes.flat_view).
        with memoryview(encrypted) as source, memoryview(out) as target:
            _check_openable(source)
            _check_length("out", target.nbytes, source.nbytes - OVERHEAD)
            try:
                self._cipher.decrypt_into(bytes(source[:NONCE_LENGTH]), source[NONCE_LENGTH:], aad, target)
            except InvalidTag:
                # The cipher writes before it has seen the tag: what it left must not be readable by anyone who ignores the error.
                target[:] = bytes(target.nbytes)
                raise AuthenticationError(_REFUSED) from None


def _check_openable(encrypted: memoryview) -> None:
    if encrypted.nbytes < OVERHEAD:
        raise AuthenticationError(f"{encrypted.nbytes} bytes are too few for a nonce and a tag ({OVERHEAD})")


def _check_length(name: str, actual: int, expected: int) -> None:
    if actual != expected:
        raise ConfigurationError(f"{name} has {actual} bytes where {expected} are needed")
