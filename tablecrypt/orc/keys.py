"""Who opens an encrypted ORC column: master keys by name and version, and the local keys that they seal for each file.

    master key  = name ("pii") and version (0, 1, ...)          stays with its provider
    local key   = 16 or 32 random bytes, one per encrypted column and file: the AES-CTR key of the column's streams
    encrypted local key                                         stands in the file; the provider turns it into the local key

How a local key is encrypted is the provider's affair. Hadoop's key providers, and LocalKeys here, do it thus:

    encrypted local key = 16 or 32 random bytes, as long as the master key
    local key           = AES-CTR(master key, IV = first 16 bytes of the encrypted local key) over the encrypted local key

A rolled key gets the next version: new files take the newest, the files of older versions open as long as the provider holds those.

Every provider raises KeyNotFoundError for a name or version it does not hold and KmsAccessDeniedError where it says no: a reader is then
without rights to the column. Any other error, such as KmsUnavailableError, is a failure and never taken for a missing right.

Specification: Apache ORC v1, "Column Encryption".
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NoReturn, Protocol, runtime_checkable

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tablecrypt.arguments import checked_arguments
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, FormatError, KeyNotFoundError

LOCAL_KEY_LENGTHS: Final = (16, 32)
_IV_LENGTH: Final = 16


class KeyProviderKind(IntEnum):
    """How a file's local keys are encrypted, as its footer says it. Readers take it for information."""

    UNKNOWN = 0
    HADOOP = 1
    AWS = 2
    GCP = 3
    AZURE = 4


@dataclass(frozen=True)
class MasterKeyVersion:
    """One version of a named master key. `length` is the bytes of the local keys under it: 16 (AES_CTR_128) or 32 (AES_CTR_256)."""

    name: str
    version: int
    length: int

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


@dataclass(frozen=True)
class LocalKey:
    """The key of one column in one file, in the clear and as it stands in the file. Refuses to be pickled."""

    encrypted: bytes
    key: Secret = field(repr=False)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a LocalKey is never pickled: it holds a key in the clear")


@runtime_checkable
class KeyProvider(Protocol):
    """Holds master keys. Implementations are safe to call from many threads."""

    @property
    def kind(self) -> KeyProviderKind:
        """What files say about how their local keys are encrypted."""
        ...

    def current_version(self, name: str) -> MasterKeyVersion:
        """Return the version of the named master key that new files use."""
        ...

    def create_local_key(self, master: MasterKeyVersion) -> LocalKey:
        """Make a fresh local key under that version of that master key."""
        ...

    def decrypt_local_key(self, master: MasterKeyVersion, encrypted: bytes) -> Secret:
        """Return the local key of `master.length` bytes that stands encrypted in a file.

        Raises KeyNotFoundError or KmsAccessDeniedError when the caller has no right to it; FormatError or AuthenticationError for bytes
        that are no encrypted local key of this provider.
        """
        ...


class LocalKeys:
    """Master keys in this process. With the same keys, Hadoop's KMS and ORC's in-memory provider open what this one sealed.

    Args:
        keys: for each name its versions in order, from version 0 on: 16 or 32 bytes each. The last one is the newest.
        random: returns as many unpredictable bytes as asked for.
    """

    @checked_arguments()
    def __init__(self, keys: Mapping[str, Sequence[bytes | Secret]], random: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._keys = {name: [_checked_master(name, key) for key in versions] for name, versions in keys.items()}
        self._random = random

    @property
    def kind(self) -> KeyProviderKind:
        return KeyProviderKind.HADOOP

    def current_version(self, name: str) -> MasterKeyVersion:
        versions = self._keys.get(name)
        if not versions:
            raise KeyNotFoundError(f"there is no master key {name!r} among the local keys")
        return MasterKeyVersion(name, len(versions) - 1, len(versions[-1]))

    def create_local_key(self, master: MasterKeyVersion) -> LocalKey:
        encrypted = self._random(master.length)
        return LocalKey(encrypted, self.decrypt_local_key(master, encrypted))

    def decrypt_local_key(self, master: MasterKeyVersion, encrypted: bytes) -> Secret:
        versions = self._keys.get(master.name, [])
        if not 0 <= master.version < len(versions):
            raise KeyNotFoundError(f"there is no version {master.version} of master key {master.name!r} among the local keys")
        return derive_local_key(versions[master.version], master, encrypted)

    def __repr__(self) -> str:
        return f"LocalKeys({ {name: len(versions) for name, versions in self._keys.items()} })"

    def __reduce__(self) -> NoReturn:
        raise TypeError("LocalKeys are never pickled: they hold master keys in the clear")


def derive_local_key(master_key: Secret, master: MasterKeyVersion, encrypted: bytes) -> Secret:
    """Turn an encrypted local key into the local key, the way of Hadoop's key providers.

    Raises FormatError unless both keys are as long as the file says.
    """
    if len(master_key) != master.length or len(encrypted) != master.length:
        raise FormatError(
            f"an encrypted local key of {len(encrypted)} bytes and a master key of {len(master_key)} do not fit a file "
            f"that names {master} for {8 * master.length}-bit keys"
        )
    keystream = Cipher(algorithms.AES(master_key.reveal()), modes.CTR(encrypted[:_IV_LENGTH])).encryptor()
    return Secret(keystream.update(encrypted) + keystream.finalize())


def check_local_key_length(length: int) -> None:
    """Raise ConfigurationError unless `length` is that of one of ORC's two ciphers."""
    if length not in LOCAL_KEY_LENGTHS:
        raise ConfigurationError(f"ORC knows keys of 16 and 32 bytes (AES_CTR_128 and AES_CTR_256), not of {length}")


def _checked_master(name: str, key: bytes | Secret) -> Secret:
    secret = key if isinstance(key, Secret) else Secret(key)
    if len(secret) not in LOCAL_KEY_LENGTHS:
        raise ConfigurationError(f"master key {name!r}: ORC knows keys of 16 and 32 bytes, not of {len(secret)}")
    return secret
