"""Master keys of ORC files, by name and version, and the local keys under them: the providers that decrypt an encrypted column.

    master key            name ("pii") and version (0, 1, ...); stays with its provider
    local key             16 or 32 random bytes, one per encrypted column and file: the AES-CTR key of the column's streams
    encrypted local key   is stored in the file; the provider turns it into the local key

Each provider decides how a local key is encrypted. Hadoop's key providers, LocalKeys and KmsMasterKeys do it like this:

    encrypted local key = 16 or 32 random bytes, as long as the master key
    local key           = AES-CTR(master key, IV = first 16 bytes of the encrypted local key) over the encrypted local key

Two providers use a key management service:

    KmsKeys        the KMS generates the local keys of each file, and they are stored in the file as it wrapped them.
                   Two calls for each encrypted column written, the second of which checks the first, and one for each column read. The
                   master key never leaves the KMS.
    KmsMasterKeys  the KMS wraps the master key; local keys are then derived as Hadoop's KMS derives them.
                   One call per version and process. Anyone who may unwrap it holds the master key itself; every key server that
                   speaks Hadoop's protocol can open the same files, and stock writers can write them through one.

The first is what the specification says of a cloud's KMS (GenerateDataKey, Decrypt); prefer it where only this library writes.

A rolled key gets the next version: new files take the newest, and files of older versions open as long as the provider holds those.

Every provider raises KeyNotFoundError for a name or version that it does not hold and KmsAccessDeniedError where access is denied: the
reader then has no right to the column. Any other error, such as KmsUnavailableError, is a failure and never taken for a missing right.

Specification: Apache ORC v1, "Column Encryption".
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NoReturn, Protocol, TypeVar, runtime_checkable

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tablecrypt.arguments import checked_arguments, described
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, FormatError, KeyNotFoundError
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.resilient import AllowedKeys, generate_key, unwrap_key
from tablecrypt.printable import printable
from tablecrypt.setting_kinds import did_you_mean

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
        # The name may be a file's, whose writer nobody knows, and errors show it.
        return printable(f"{self.name}@{self.version}")


@dataclass(frozen=True)
class LocalKey:
    """The key of one column in one file, decrypted and as the file holds it. Refuses to be pickled."""

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
        """Decrypt a local key of `master.length` bytes from a file.

        Raises KeyNotFoundError or KmsAccessDeniedError when the caller has no right to it; FormatError or AuthenticationError for bytes
        that are no encrypted local key of this provider.
        """
        ...


class DerivingProvider(KeyProvider, Protocol):
    """Holds master keys from which it derives local keys, the way of Hadoop's key providers: what a file holds of one is random bytes."""

    @property
    def kind(self) -> KeyProviderKind:
        return KeyProviderKind.HADOOP

    def create_local_key(self, master: MasterKeyVersion) -> LocalKey:
        return self.local_key(master, secrets.token_bytes(master.length))

    def local_key(self, master: MasterKeyVersion, encrypted: bytes) -> LocalKey:
        """Return the local key that these bytes of a file stand for."""
        return LocalKey(encrypted, self.decrypt_local_key(master, encrypted))


class LocalKeys(DerivingProvider):
    """Master keys in this process. With the same keys, Hadoop's KMS and ORC's in-memory provider decrypt what this one encrypted.

    Args:
        keys: for each name its versions in order, from version 0 on: 16 or 32 bytes each. The last one is the newest.
        random: returns the given number of unpredictable bytes.
    """

    @checked_arguments()
    def __init__(self, keys: Mapping[str, Sequence[bytes | Secret]], random: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._keys = {name: [_checked_master(name, key) for key in _versions(name, versions)] for name, versions in keys.items()}
        self._random = random

    def current_version(self, name: str) -> MasterKeyVersion:
        versions = self._keys.get(name)
        if not versions:
            others = sorted(other for other, its in self._keys.items() if its)
            has = ", ".join(map(repr, others)) or "none"
            raise KeyNotFoundError(f"there is no master key {name!r} among the local keys; there is {has}{did_you_mean(name, others)}")
        return MasterKeyVersion(name, len(versions) - 1, len(versions[-1]))

    def create_local_key(self, master: MasterKeyVersion) -> LocalKey:
        versions = self._keys.get(master.name, [])
        # Only writing is refused: files that exist under such a key have to be read before they can be rewritten.
        if 0 <= master.version < len(versions) and versions[master.version].is_zero:
            raise ConfigurationError(
                f"master key {master.name!r} is all zeros, which everybody can guess: make one with secrets.token_bytes(32)"
            )

        return self.local_key(master, self._random(master.length))

    def decrypt_local_key(self, master: MasterKeyVersion, encrypted: bytes) -> Secret:
        versions = self._keys.get(master.name, [])
        # The version comes from a file or manifest. Python would take -1 for the newest one.
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
    # The length stands for the footer's algorithm, which nothing authenticates: the key decides the cipher, not the file.
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


def _versions(name: str, versions: object) -> Sequence[Any]:
    # Bytes are a sequence as well: a bare key would pass as many versions of one byte each.
    if isinstance(versions, (bytes, bytearray, Secret)) or not isinstance(versions, Sequence):
        raise ConfigurationError(f"master key {name!r}: give a list of its versions, the oldest first, even if there is one")
    return versions


def _checked_master(name: str, key: bytes | Secret) -> Secret:
    if not isinstance(key, bytes | bytearray | Secret):
        raise ConfigurationError(f"a version of master key {name!r} is {described(key)}; a key is bytes or a Secret")
    secret = key if isinstance(key, Secret) else Secret(key)
    if len(secret) not in LOCAL_KEY_LENGTHS:
        raise ConfigurationError(f"master key {name!r}: ORC knows keys of 16 and 32 bytes, not of {len(secret)}")
    return secret


def _checked_wrapped(name: str, key: object) -> WrappedMasterKey:
    if not isinstance(key, WrappedMasterKey):
        raise ConfigurationError(f"a version of master key {name!r} is {described(key)}; it must be a WrappedMasterKey")
    return key


V = TypeVar("V")


class KmsKeys:
    """Local keys that a KMS generates and wraps.

    Args:
        client: any of tablecrypt.kms, for instance tablecrypt.load_kms(properties).
        keys: for each name the KMS key ids of its versions, from version 0 on; a single id means a list of one.
        length: bytes of the local keys: 16 or 32.
        kind: what files say about how their local keys are encrypted, for information.
        allowed_key_ids: globs of the KMS keys that `keys` may name; None allows every key.

    Raises:
        MasterKeyRefusedError: `keys` names one that is not allowed.
    """

    @checked_arguments()
    def __init__(
        self,
        client: KeyManagementClient,
        keys: Mapping[str, str | Sequence[str]],
        length: int = 16,
        kind: KeyProviderKind = KeyProviderKind.UNKNOWN,
        *,
        allowed_key_ids: str | Iterable[str] | None = None,
    ) -> None:
        check_local_key_length(length)
        self._client = client
        self._key_ids = {name: list(_versions(name, [ids] if isinstance(ids, str) else ids)) for name, ids in keys.items()}
        # Checked before any file is read: a file names a version in this list and can never add a KMS key to it.
        for name, ids in self._key_ids.items():
            AllowedKeys.listed(allowed_key_ids).check(ids, f"the ORC master key {name!r}")
        self._length = length
        self._kind = kind

    @property
    def kind(self) -> KeyProviderKind:
        return self._kind

    def current_version(self, name: str) -> MasterKeyVersion:
        return MasterKeyVersion(name, _newest(self._key_ids, name), self._length)

    def create_local_key(self, master: MasterKeyVersion) -> LocalKey:
        generated = generate_key(self._client, _version_of(self._key_ids, master), master.length)
        return LocalKey(generated.wrapped_key, Secret(generated.key))

    def decrypt_local_key(self, master: MasterKeyVersion, encrypted: bytes) -> Secret:
        key = unwrap_key(self._client, encrypted, _version_of(self._key_ids, master))
        # A key of another length would run another AES than the one that the file was written with, and return noise.
        if len(key) != master.length:
            raise FormatError(f"the KMS unwrapped a local key of {len(key)} bytes under {master}, but the file says {master.length}")
        return key

    def __repr__(self) -> str:
        return f"KmsKeys({self._client!r}, {self._key_ids!r})"


@dataclass(frozen=True)
class WrappedMasterKey:
    """A master key as the KMS key `key_id` wrapped it: not secret by itself, store it where the provider is configured."""

    key_id: str
    wrapped_key: bytes
    length: int

    @classmethod
    def generate(cls, client: KeyManagementClient, key_id: str, length: int = 16) -> WrappedMasterKey:
        """Make a fresh master key of 16 or 32 bytes."""
        check_local_key_length(length)
        return cls(key_id, generate_key(client, key_id, length).wrapped_key, length)


class KmsMasterKeys(DerivingProvider):
    """Master keys that a KMS wrapped, unwrapped when first needed and kept in this object.

    Args:
        client: any of tablecrypt.kms.
        keys: for each name its versions, from version 0 on. The last one is the newest.
        allowed_key_ids: globs of the KMS keys that may have wrapped `keys`; None allows every key.

    Raises:
        MasterKeyRefusedError: another one wraps one of them.
    """

    @checked_arguments()
    def __init__(
        self,
        client: KeyManagementClient,
        keys: Mapping[str, Sequence[WrappedMasterKey]],
        *,
        allowed_key_ids: str | Iterable[str] | None = None,
    ) -> None:
        self._client = client
        self._keys = {name: [_checked_wrapped(name, key) for key in _versions(name, versions)] for name, versions in keys.items()}
        # The configuration may lie where others write: a key id outside the list never reaches the KMS.
        for name, versions in self._keys.items():
            AllowedKeys.listed(allowed_key_ids).check((version.key_id for version in versions), f"the ORC master key {name!r}")
        self._unwrapped: dict[WrappedMasterKey, Secret] = {}
        self._lock = threading.Lock()

    def current_version(self, name: str) -> MasterKeyVersion:
        version = _newest(self._keys, name)
        return MasterKeyVersion(name, version, self._keys[name][version].length)

    def decrypt_local_key(self, master: MasterKeyVersion, encrypted: bytes) -> Secret:
        return derive_local_key(self._unwrap(_version_of(self._keys, master)), master, encrypted)

    def _unwrap(self, wrapped: WrappedMasterKey) -> Secret:
        # Held during the call, so that threads that open many files at once cost one unwrap. A failed unwrap is not kept.
        with self._lock:
            if wrapped not in self._unwrapped:
                self._unwrapped[wrapped] = unwrap_key(self._client, wrapped.wrapped_key, wrapped.key_id)
            return self._unwrapped[wrapped]

    def __repr__(self) -> str:
        return f"KmsMasterKeys({self._client!r}, { {name: len(versions) for name, versions in self._keys.items()} })"

    def __reduce__(self) -> NoReturn:
        raise TypeError("KmsMasterKeys are never pickled: they may hold master keys in the clear")


def _newest(keys: Mapping[str, Sequence[V]], name: str) -> int:
    versions = keys.get(name)
    if not versions:
        raise KeyNotFoundError(f"no KMS key is configured for the master key {name!r}")
    return len(versions) - 1


def _version_of(keys: Mapping[str, Sequence[V]], master: MasterKeyVersion) -> V:
    versions = keys.get(master.name, ())
    # A manifest may say -1, which Python would take for the newest version.
    if not 0 <= master.version < len(versions):
        raise KeyNotFoundError(f"no KMS key is configured for version {master.version} of the master key {master.name!r}")
    return versions[master.version]
