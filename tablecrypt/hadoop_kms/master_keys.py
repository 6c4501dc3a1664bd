"""The key file of the Hadoop KMS: ORC's master keys by name and version, encrypted under keys that only a key service can unwrap.

    {"format": "tablecrypt-orc-keys", "version": 1,
     "keys": {"pii": [{"created": 1767225600000, "length": 16, "master-key": "alias/orc", "wrapped-key": "...", "sealed": "..."}, ...]}}
              │        └─ one entry for each version, from version 0 on; the last one is for new files
              └─ what orc.encrypt calls the key

    KMS master key, named by "master-key"
      └─ wraps     a random 32-byte key         "wrapped-key": what the KMS client returned
          └─ encrypts  the ORC master key       "sealed" = nonce (12) | ciphertext (16 or 32) | tag (16), AES-GCM
                                                AAD = "tablecrypt-orc-key:" name "@" version ":" length, in UTF-8

ORC needs the master key's bytes, because local keys are derived from them (tablecrypt/orc/key_providers.py); a cloud's KMS never gives out
its own. So they are random bytes under a key of the KMS. The AAD binds them to their name and version: anyone who can write the file can
remove keys or put an older file back, but cannot pass one key off as another. Both blobs are URL-safe base64. Nothing in the file can be
decrypted without the KMS. It is read at each call, so a new version is used at once; only the KMS client keeps unwrapped keys, for
`encryption.kms.cache-ttl-ms`.

Raises: ConfigurationError when the file cannot be read or changed as asked, FormatError for other content, KeyNotFoundError for a name
or version that is not there, AuthenticationError for changed entries, and what the KMS client raises.
"""

from __future__ import annotations

import errno
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import Base64UrlBytes, BaseModel, ConfigDict, Field, ValidationError

from tablecrypt._bytes import small_content
from tablecrypt._parsed_json import problem_of
from tablecrypt.crypto.aes_gcm import NONCE_LENGTH, AesGcm
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, ConfigurationError, FormatError, KeyNotFoundError
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.local_file import changed_key_file
from tablecrypt.kms.resilient import generate_key, unwrap_key
from tablecrypt.orc.key_providers import DerivingProvider, MasterKeyVersion, check_local_key_length, derive_local_key

_MAX_BYTES: Final = 4 * 1024 * 1024
_ENTRY_KEY_LENGTH: Final = 32
KEY_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class _Version(BaseModel):
    """One version of a key, as the file holds it."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    created: int = Field(ge=0)
    length: Literal[16, 32]
    master_key: str = Field(alias="master-key", min_length=1)
    wrapped_key: Base64UrlBytes = Field(alias="wrapped-key")
    encrypted_key: Base64UrlBytes = Field(alias="sealed")


class _Document(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["tablecrypt-orc-keys"]
    version: Literal[1]
    keys: dict[str, list[_Version]]


@dataclass(frozen=True)
class KeyDescription:
    """What anyone may know about a key. `created` is the time of version 0, in milliseconds since 1970."""

    name: str
    length: int
    versions: int
    created: int


class MasterKeyFile(DerivingProvider):
    """A provider of the master keys in `path`, which `client` unwraps. Safe to use from many threads."""

    def __init__(self, path: Path, client: KeyManagementClient) -> None:
        self._path = path
        self._client = client

    def names(self) -> list[str]:
        """Return the names of all keys."""
        return sorted(_read(self._path).keys)

    def describe(self, name: str) -> KeyDescription:
        """Describe the named key."""
        versions = _versions(self._path, _read(self._path), name)
        return KeyDescription(name, versions[-1].length, len(versions), versions[0].created)

    def current_version(self, name: str) -> MasterKeyVersion:
        described = self.describe(name)
        return MasterKeyVersion(name, described.versions - 1, described.length)

    def decrypt_local_key(self, master: MasterKeyVersion, encrypted: bytes) -> Secret:
        versions = _versions(self._path, _read(self._path), master.name)
        # Python would take -1 for the newest version.
        if not 0 <= master.version < len(versions):
            raise KeyNotFoundError(f"the key file {self._path} has no version {master.version} of {master.name!r}")
        return derive_local_key(self._open(master, versions[master.version]), master, encrypted)

    def _open(self, master: MasterKeyVersion, stored: _Version) -> Secret:
        entry_key = unwrap_key(self._client, stored.wrapped_key, stored.master_key)
        try:
            return Secret(AesGcm(entry_key).decrypt(stored.encrypted_key, _aad(master.name, master.version, stored.length)))
        except AuthenticationError as error:
            raise AuthenticationError(f"the entry of {master} in the key file {self._path} was changed or is another key's") from error

    def __repr__(self) -> str:
        return f"MasterKeyFile({str(self._path)!r}, {self._client!r})"


def create_key(
    path: Path,
    client: KeyManagementClient,
    name: str,
    master_key: str,
    now_ms: int,
    length: int = 16,
    random: Callable[[int], bytes] = secrets.token_bytes,
) -> None:
    """Add version 0 of a new key of 16 or 32 bytes, under the KMS key `master_key`. Makes the file if it is not there.

    Raises ConfigurationError for a name that is taken or cannot be one.
    """
    check_local_key_length(length)
    # "@" and ":" separate the parts of the AAD: a name that held one could stand for another key's version.
    if not KEY_NAME.fullmatch(name):
        raise ConfigurationError(f"{name!r} cannot be the name of a key: letters, digits, '.', '_' and '-', at most 128, not '.' first")

    with changed_key_file(path) as file:
        # Read inside the lock, so that a version which another process has just added is not lost.
        document = _read(path) if path.exists() else _document({})
        if name in document.keys:
            raise ConfigurationError(f"the key file {path} has a key {name!r} already: roll it for a new version")
        file.write(_encode(document, name, [_new_version(client, name, 0, master_key, now_ms, length, random)]))


def roll_key(path: Path, client: KeyManagementClient, name: str, now_ms: int, master_key: str | None = None) -> int:
    """Add a version of the same length, under the same KMS key or another, and return its number. Older versions stay for their files."""
    with changed_key_file(path) as file:
        document = _read(path)
        versions = _versions(path, document, name)
        newest = versions[-1]
        added = _new_version(client, name, len(versions), master_key or newest.master_key, now_ms, newest.length, secrets.token_bytes)
        file.write(_encode(document, name, [*versions, added]))
        return len(versions)


def _new_version(
    client: KeyManagementClient, name: str, version: int, master_key: str, now_ms: int, length: int, random: Callable[[int], bytes]
) -> _Version:
    entry_key = generate_key(client, master_key, _ENTRY_KEY_LENGTH)
    # A fresh entry key for each version, so its random nonce is never used with a second plaintext.
    encrypted = AesGcm(Secret(entry_key.key)).encrypt(random(NONCE_LENGTH), random(length), _aad(name, version, length))
    # Base64UrlBytes decodes whatever it is given, so the model starts from the encoded form.
    return _Version.model_validate(
        {
            "created": now_ms,
            "length": length,
            "master-key": master_key,
            "wrapped-key": urlsafe_b64encode(entry_key.wrapped_key),
            "sealed": urlsafe_b64encode(encrypted),
        }
    )


def _aad(name: str, version: int, length: int) -> bytes:
    return f"tablecrypt-orc-key:{name}@{version}:{length}".encode()


def _read(path: Path) -> _Document:
    try:
        content = small_content(path, _MAX_BYTES)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise FormatError(f"the key file {path}: {error.strerror}") from error
        raise ConfigurationError(f"the key file {path} cannot be read ({error.strerror}): tablecrypt hadoop-kms-key makes one") from error

    try:
        document = _Document.model_validate_json(content)
    except ValidationError as error:
        raise FormatError(f"the key file {path}: {problem_of(error)}") from None

    return document


def _versions(path: Path, document: _Document, name: str) -> list[_Version]:
    versions = document.keys.get(name)
    if not versions:
        raise KeyNotFoundError(f"the key file {path} has no key {name!r}: tablecrypt hadoop-kms-key adds one")
    return versions


def _encode(document: _Document, name: str, versions: list[_Version]) -> bytes:
    return _document({**document.keys, name: versions}).model_dump_json(by_alias=True, indent=2).encode() + b"\n"


def _document(keys: dict[str, list[_Version]]) -> _Document:
    return _Document(format="tablecrypt-orc-keys", version=1, keys=keys)
