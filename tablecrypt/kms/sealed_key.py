"""How the clients that hold their master keys themselves (local, memory) wrap a key: AES-GCM, with the master key's id as AAD.

    wrapped key = 0x01 | key version, 4 bytes big endian | nonce (12) | ciphertext (16, 24 or 32) | tag (16)
                  └─ version of this layout
    key = that version of the master key named by wrapping_key_id;   AAD = wrapping_key_id as UTF-8

The key version names the generation of the master key that did the wrapping, so that an older blob still opens after a rotation.
Changing it, like changing any other byte behind the first, makes the blob fail to authenticate.
The same key twice gives two different blobs.

Raises: FormatError for a blob that cannot be of this layout, KeyNotFoundError for a key version that is gone, AuthenticationError for
a changed blob or one that belongs to another master key.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final

from tablecrypt.crypto.aes_gcm import KEY_LENGTHS, NONCE_LENGTH, OVERHEAD, AesGcm
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, FormatError, KeyNotFoundError

LAYOUT_VERSION: Final = 1
_HEADER: Final = struct.Struct(">BI")
_BLOB_LENGTHS: Final = tuple(_HEADER.size + OVERHEAD + length for length in KEY_LENGTHS)


def seal_key(key: bytes, versions: Mapping[int, Secret], wrapping_key_id: str, random: Callable[[int], bytes]) -> bytes:
    """Wrap `key` under the newest of a master key's versions. `random(12)` gives the nonce."""
    newest = max(versions)
    sealed = AesGcm(versions[newest]).encrypt(random(NONCE_LENGTH), key, wrapping_key_id.encode())
    return _HEADER.pack(LAYOUT_VERSION, newest) + sealed


def open_key(blob: bytes, versions: Mapping[int, Secret], wrapping_key_id: str) -> bytes:
    """Return the key inside `blob`, using the version of the master key that the blob names."""
    if len(blob) not in _BLOB_LENGTHS:
        raise FormatError(f"a wrapped key has {_BLOB_LENGTHS[0]}, {_BLOB_LENGTHS[1]} or {_BLOB_LENGTHS[2]} bytes here, not {len(blob)}")
    layout, version = _HEADER.unpack_from(blob)
    if layout != LAYOUT_VERSION:
        raise FormatError(f"a wrapped key of layout version {layout}; this release reads version {LAYOUT_VERSION}")
    if version not in versions:
        raise KeyNotFoundError(f"the wrapped key asks for version {version} of master key {wrapping_key_id!r}, which is not there")
    try:
        return AesGcm(versions[version]).decrypt(blob[_HEADER.size :], wrapping_key_id.encode())
    except AuthenticationError as error:
        raise AuthenticationError(f"the wrapped key was changed, or master key {wrapping_key_id!r} did not wrap it") from error
