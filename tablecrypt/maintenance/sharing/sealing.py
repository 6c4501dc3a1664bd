"""A share's KEK sealed to a public key, for a partner under whose master key nobody here may wrap.

    HPKE (RFC 9180), base mode: KEM ML-KEM-768 with X25519, KDF HKDF-SHA-256, AEAD AES-256-GCM. So both a break of X25519, by a quantum
    computer for one, and a break of ML-KEM are needed to open it.

    plaintext    the KEK
    info         "tablecrypt share 1" | 0 | table-uuid of the share | 0 | key-id of the KEK | 0 | KEY_TIMESTAMP, all as UTF-8
    the entry    encrypted-by-id = "sealed:" and the fingerprint of the public key; encrypted-key-metadata = what HPKE returns

    key file     {"tablecrypt-share-key": 1, "private": base64 of seed of ML-KEM-768 (64) | X25519 (32)}, readable by its owner alone
    public file  {"tablecrypt-share-key": 1, "public": base64 of ML-KEM-768 (1184) | X25519 (32)}
    fingerprint  first 32 hexadecimal digits of SHA-256 of the public key's bytes

Raises ConfigurationError for a file that is no such key; AuthenticationError for what does not open.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, MLKEM768X25519PrivateKey, MLKEM768X25519PublicKey, Suite

from tablecrypt._atomic_file import atomic_file, check_folder_of
from tablecrypt._bytes import small_content
from tablecrypt._parsed_json import ParsedJson
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, ConfigurationError
from tablecrypt.keys.key_ring import EncryptedKey

SEALED: Final = "sealed:"
_FORMAT: Final = "tablecrypt-share-key"
_VERSION: Final = 1
_PRIVATE: Final = (64, 32)
_PUBLIC: Final = (1184, 32)
_MOST_BYTES: Final = 1024 * 1024
_FINGERPRINT_DIGITS: Final = 32


@dataclass(frozen=True)
class PublicKey:
    """What a partner sends, so that a KEK is sealed to him."""

    encoded: bytes

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a public file."""
        return cls(_read(path, "public", sum(_PUBLIC)))

    @property
    def key_id(self) -> str:
        """What stands in the place of a master key's id in a share that is not accepted yet."""
        return SEALED + hashlib.sha256(self.encoded).hexdigest()[:_FINGERPRINT_DIGITS]

    def seal(self, key: Secret, info: bytes) -> bytes:
        """Return a key that the owner of the private key alone can open, with the same info."""
        lattice, curve = _halves(self.encoded, _PUBLIC)
        try:
            public = MLKEM768X25519PublicKey(MLKEM768PublicKey.from_public_bytes(lattice), X25519PublicKey.from_public_bytes(curve))
            return _suite().encrypt(key.reveal(), public, info)
        except UnsupportedAlgorithm as error:
            raise _unsupported(error) from error
        except ValueError as error:
            raise ConfigurationError(f"the public key {self.key_id} is none of ML-KEM-768 with X25519: {error}") from error


@dataclass(frozen=True)
class PrivateKey:
    """The partner's own half."""

    secret: Secret = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a key file."""
        return cls(Secret(_read(path, "private", sum(_PRIVATE))))

    @cached_property
    def public(self) -> PublicKey:
        """The public key."""
        lattice, curve = self._halves
        return PublicKey(lattice.public_key().public_bytes_raw() + curve.public_key().public_bytes_raw())

    def open(self, sealed: bytes, info: bytes) -> Secret:
        """Return the key that was sealed to this one with this info."""
        try:
            return Secret(_suite().decrypt(sealed, MLKEM768X25519PrivateKey(*self._halves), info))
        except (InvalidTag, ValueError) as error:
            raise AuthenticationError(
                f"the share's key was not sealed to {self.public.key_id}, or the share's metadata was changed: its table-uuid, the entry "
                "of the KEK, or its date"
            ) from error

    @property
    def _halves(self) -> tuple[MLKEM768PrivateKey, X25519PrivateKey]:
        seed, curve = _halves(self.secret.reveal(), _PRIVATE)
        try:
            return MLKEM768PrivateKey.from_seed_bytes(seed), X25519PrivateKey.from_private_bytes(curve)
        except UnsupportedAlgorithm as error:
            raise _unsupported(error) from error


def create_key_pair(path: Path) -> tuple[Path, PublicKey]:
    """Make a key pair: the key file at a path, readable by its owner alone, and the public file beside it, whose path is returned.

    Raises:
        ConfigurationError: one of the files exists, or the path is none of a file that can be written.
    """
    if not path.name:
        raise ConfigurationError("name the key file")
    public_path = path.with_name(f"{path.name}.pub")
    for each in (path, public_path):
        if each.exists():
            raise ConfigurationError(f"{each} exists already: choose another name")
    check_folder_of(path)

    try:
        lattice, curve = MLKEM768PrivateKey.generate(), X25519PrivateKey.generate()
    except UnsupportedAlgorithm as error:
        raise _unsupported(error) from error
    key = PrivateKey(Secret(lattice.private_bytes_raw() + curve.private_bytes_raw()))
    _write(path, "private", key.secret.reveal(), private=True)
    try:
        _write(public_path, "public", key.public.encoded, private=False)
    except BaseException:
        # Nobody has sealed anything to it, and it would keep the next run from making the pair.
        path.unlink(missing_ok=True)
        raise

    return public_path, key.public


def info_of(share_uuid: str, kek: EncryptedKey) -> bytes:
    """Return what a sealed KEK is bound to: it opens for no other share, and under no other entry."""
    return b"\0".join((b"tablecrypt share 1", share_uuid.encode(), kek.key_id.encode(), kek.timestamp.encode()))


def _suite() -> Suite:
    return Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


def _halves(encoded: bytes, lengths: tuple[int, int]) -> tuple[bytes, bytes]:
    return encoded[: lengths[0]], encoded[lengths[0] :]


def _read(path: Path, name: str, length: int) -> bytes:
    try:
        fields = ParsedJson(small_content(path, _MOST_BYTES)).document
        encoded = base64.b64decode(fields[name], validate=True)
        if fields[_FORMAT] != _VERSION or len(encoded) != length:
            raise ValueError("another version or length")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{path} is not the {name} file of a key that tablecrypt share-keygen made") from error
    return encoded


def _write(path: Path, name: str, encoded: bytes, *, private: bool) -> None:
    content: dict[str, Any] = {_FORMAT: _VERSION, name: base64.b64encode(encoded).decode()}
    with atomic_file(path, replace=False, durable=True, private=private) as file:
        file.write(json.dumps(content).encode())


def _unsupported(error: UnsupportedAlgorithm) -> ConfigurationError:
    return ConfigurationError(f"this OpenSSL has no ML-KEM-768, which sealing takes: install cryptography's own wheel ({error})")
