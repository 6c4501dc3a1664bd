"""What a key management service does for a table: it wraps and unwraps keys under a master key that never leaves it.

    master key, named by wrapping_key_id, inside the KMS
        wrap_key(key)           key         ──►  wrapped key     an opaque blob, kept in the table's metadata
        unwrap_key(wrapped)     wrapped key ──►  key
        generate_key(length)                ──►  key and wrapped key, in one call where the service can
        rewrap_key(wrapped)     wrapped key ──►  the same key wrapped by the newest version of a master key (`RewrappingClient`)

Keys are 16, 24 or 32 bytes. Each service has its own form of wrapped keys, which its client's docstring describes.
A table's KEKs are the only keys that pass through here, so a KMS sees a few calls per table and not one per file.

Clients that hold their master keys themselves (local, memory) wrap a key with AES-GCM, with the master key's id as AAD:

    wrapped key = 0x01 | key version, 4 bytes big endian | nonce (12) | ciphertext (16, 24 or 32) | tag (16)
                  └─ version of this layout
    key = that version of the master key named by wrapping_key_id;   AAD = wrapping_key_id as UTF-8

The key version names the generation of the master key that did the wrapping, so that an older blob still opens after a rotation.
Changing it, like changing any other byte behind the first, makes the blob fail to authenticate.
The same key twice gives two different blobs.

Raises: FormatError for a blob of another layout, KeyNotFoundError for a key version that is gone, AuthenticationError for
a changed blob or one that belongs to another master key.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NoReturn, Protocol, runtime_checkable

from tablecrypt.crypto.aes_gcm import KEY_LENGTHS, NONCE_LENGTH, OVERHEAD, AesGcm
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, ConfigurationError, FormatError, KeyNotFoundError

LAYOUT_VERSION: Final = 1
_HEADER: Final = struct.Struct(">BI")
_BLOB_LENGTHS: Final = tuple(_HEADER.size + OVERHEAD + length for length in KEY_LENGTHS)


@dataclass(frozen=True)
class GeneratedKey:
    """A fresh key, in the clear and wrapped. `key` is left out of the repr, and the object refuses to be pickled."""

    key: bytes = field(repr=False)
    wrapped_key: bytes

    def __reduce__(self) -> NoReturn:
        raise TypeError("a GeneratedKey is never pickled: it holds a key in the clear; pass on its wrapped_key instead")


@runtime_checkable
class KeyManagementClient(Protocol):
    """One key management service. Implementations are safe to call from many threads.

    Every method but `close` raises
        KeyNotFoundError       the service has no key of that id,
        KmsAccessDeniedError   the service refuses: a permission is missing, the credentials are not valid, the key is disabled,
        KmsUnavailableError    the service was not reached or is overloaded; `retryable` is true,
        ConfigurationError     the key's length, the key id's form or a property cannot be used,
        KmsError               any other answer of the service.
    """

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        """Encrypt `key` (16, 24 or 32 bytes) under the named master key and return the blob to store."""
        ...

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        """Return the key inside `wrapped_key`.

        Raises AuthenticationError when the blob was changed, was wrapped under another master key, or is not one of this service's
        (then FormatError where the service tells the difference).
        """
        ...

    def generate_key(self, wrapping_key_id: str, length: int = 16) -> GeneratedKey:
        """Make a fresh random key of `length` bytes (16, 24 or 32) and return it with its wrapped form."""
        ...

    def close(self) -> None:
        """Release connections and cached keys. It may be called twice; a later call of another method opens what it needs again."""
        ...


@runtime_checkable
class RewrappingClient(Protocol):
    """A key management service that can rewrap a key without giving it out."""

    def rewrap_key(self, wrapped_key: bytes, wrapping_key_id: str, from_key_id: str) -> bytes:
        """Return the key inside `wrapped_key`, which `from_key_id` wrapped, wrapped by the newest version of `wrapping_key_id`.

        Raises what `KeyManagementClient.unwrap_key` and `wrap_key` raise.
        """
        ...


def rewrap_unchecked(client: KeyManagementClient, wrapped_key: bytes, wrapping_key_id: str, from_key_id: str) -> bytes:
    """Have `client` rewrap a key, in the service where it can do that and else through this process."""
    rewrap = client.rewrap_key if isinstance(client, RewrappingClient) else partial(rewrap_by_unwrapping, client)
    return rewrap(wrapped_key, wrapping_key_id, from_key_id)


def rewrap_by_unwrapping(client: KeyManagementClient, wrapped_key: bytes, wrapping_key_id: str, from_key_id: str) -> bytes:
    """Unwrap the key in this process and have `client` wrap it again: for services that cannot do both in one call."""
    return client.wrap_key(client.unwrap_key(wrapped_key, from_key_id), wrapping_key_id)


def check_key_length(length: int) -> None:
    """Raise ConfigurationError unless `length` is that of an AES key."""
    if length not in KEY_LENGTHS:
        raise ConfigurationError(f"a key has 16, 24 or 32 bytes, not {length}")


def generate_by_wrapping(
    client: KeyManagementClient, wrapping_key_id: str, length: int, random: Callable[[int], bytes] = secrets.token_bytes
) -> GeneratedKey:
    """Make the key in this process and have `client` wrap it: for services that cannot generate a key of that length."""
    check_key_length(length)
    key = random(length)
    return GeneratedKey(key=key, wrapped_key=client.wrap_key(key, wrapping_key_id))


class WrappingClient(KeyManagementClient, Protocol):
    """A key management service that generates no keys: each is made in this process, and wrapped."""

    def generate_key(self, wrapping_key_id: str, length: int = 16) -> GeneratedKey:
        return generate_by_wrapping(self, wrapping_key_id, length)


def wrap_with_master_key(
    key: bytes, versions: Mapping[int, Secret], wrapping_key_id: str, random: Callable[[int], bytes] = secrets.token_bytes
) -> bytes:
    """Wrap `key` under the newest of a master key's versions. `random(12)` gives the nonce."""
    newest = max(versions)
    encrypted = AesGcm(versions[newest]).encrypt(random(NONCE_LENGTH), key, wrapping_key_id.encode())
    return _HEADER.pack(LAYOUT_VERSION, newest) + encrypted


def unwrap_with_master_key(blob: bytes, versions: Mapping[int, Secret], wrapping_key_id: str) -> bytes:
    """Return the key inside `blob`, using the version of the master key that the blob names."""
    # The layout comes before the key: a blob of another service is a format error and not a sign of tampering.
    if len(blob) not in _BLOB_LENGTHS:
        raise FormatError(f"a wrapped key has {_BLOB_LENGTHS[0]}, {_BLOB_LENGTHS[1]} or {_BLOB_LENGTHS[2]} bytes here, not {len(blob)}")

    layout, version = _HEADER.unpack_from(blob)
    if layout != LAYOUT_VERSION:
        raise FormatError(f"a wrapped key of layout version {layout}; this release reads version {LAYOUT_VERSION}")
    # The version is not authenticated yet. A changed one asks for a key that is not there, or fails its tag below.
    if version not in versions:
        raise KeyNotFoundError(f"the wrapped key asks for version {version} of master key {wrapping_key_id!r}, which does not exist")

    try:
        return AesGcm(versions[version]).decrypt(blob[_HEADER.size :], wrapping_key_id.encode())
    except AuthenticationError as error:
        raise AuthenticationError(f"the wrapped key was changed, or master key {wrapping_key_id!r} did not wrap it") from error
