"""Master keys of ORC files in a key management service, in two ways.

    KmsKeys        each file's local keys come from the KMS and stand in the file as it wrapped them.
                   Two calls for each encrypted column written, the second of which checks the first, and one for each read. The master
                   key never leaves the KMS.
    KmsMasterKeys  the KMS wraps the master key; local keys are then derived as Hadoop's KMS derives them (tablecrypt/orc/keys.py).
                   One call per version and process. Whoever may unwrap it holds the master key itself, and every key server that
                   speaks Hadoop's protocol can open the same files, and stock writers behind one can write them.

The first is what the specification says of a cloud's KMS (GenerateDataKey, Decrypt); prefer it where only this library writes.
A version of a key is an entry in a list: new files use the last entry, and older entries stay as long as there are files of theirs.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from tablecrypt.arguments import checked_arguments
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import FormatError, KeyNotFoundError
from tablecrypt.kms.allowed_keys import AllowedKeys
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.new_blobs import generate_key, unwrap_key
from tablecrypt.orc.keys import (
    KeyProviderKind,
    LocalKey,
    MasterKeyVersion,
    check_local_key_length,
    derive_local_key,
)

V = TypeVar("V")


class KmsKeys:
    """Local keys that a KMS generates and wraps.

    Args:
        client: any of tablecrypt.kms, for instance tablecrypt.load_kms(properties).
        keys: for each name the KMS key ids of its versions, from version 0 on; one id stands for a list of one.
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
        self._key_ids = {name: [ids] if isinstance(ids, str) else list(ids) for name, ids in keys.items()}
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


class KmsMasterKeys:
    """Master keys that a KMS wrapped, unwrapped when first needed and kept in this object.

    Args:
        client: any of tablecrypt.kms.
        keys: for each name its versions, from version 0 on. The last one is the newest.
        random: returns as many unpredictable bytes as asked for.
        allowed_key_ids: globs of the KMS keys that may have wrapped `keys`; None allows every key.

    Raises:
        MasterKeyRefusedError: another one wraps one of them.
    """

    @checked_arguments()
    def __init__(
        self,
        client: KeyManagementClient,
        keys: Mapping[str, Sequence[WrappedMasterKey]],
        random: Callable[[int], bytes] = secrets.token_bytes,
        *,
        allowed_key_ids: str | Iterable[str] | None = None,
    ) -> None:
        self._client = client
        self._keys = {name: list(versions) for name, versions in keys.items()}
        for name, versions in self._keys.items():
            AllowedKeys.listed(allowed_key_ids).check((version.key_id for version in versions), f"the ORC master key {name!r}")
        self._random = random
        self._unwrapped: dict[WrappedMasterKey, Secret] = {}
        self._lock = threading.Lock()

    @property
    def kind(self) -> KeyProviderKind:
        return KeyProviderKind.HADOOP

    def current_version(self, name: str) -> MasterKeyVersion:
        version = _newest(self._keys, name)
        return MasterKeyVersion(name, version, self._keys[name][version].length)

    def create_local_key(self, master: MasterKeyVersion) -> LocalKey:
        encrypted = self._random(master.length)
        return LocalKey(encrypted, self.decrypt_local_key(master, encrypted))

    def decrypt_local_key(self, master: MasterKeyVersion, encrypted: bytes) -> Secret:
        return derive_local_key(self._unwrap(_version_of(self._keys, master)), master, encrypted)

    def _unwrap(self, wrapped: WrappedMasterKey) -> Secret:
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
    if not 0 <= master.version < len(versions):
        raise KeyNotFoundError(f"no KMS key is configured for version {master.version} of the master key {master.name!r}")
    return versions[master.version]
