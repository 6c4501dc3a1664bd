"""DEKs of Parquet files, wrapped and unwrapped through a KMS: one call for each key, or one for many files (double wrapping).

    single     KMS master key ── wraps ──▶ DEK
    double     KMS master key ── wraps ──▶ KEK ── AES-GCM, AAD = the KEK's id ──▶ DEK

With double wrapping one KEK serves all files that are written under a master key while it is fresh, and a KEK that was unwrapped serves all
files that are read meanwhile.

Raises KmsError and its kin where the KMS refuses, AuthenticationError for a wrapped key that does not open.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from tablecrypt.crypto.aes_gcm import NONCE_LENGTH, AesGcm
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError
from tablecrypt.kms.allowed_keys import AllowedKeys
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.new_blobs import unwrap_key, wrap_key
from tablecrypt.parquet.key_material import KeyMaterial

KEK_ID_LENGTH: Final = 16
DEFAULT_LIFETIME_S: Final = 600.0


@dataclass(frozen=True)
class _Kek:
    key: Secret
    kek_id: bytes
    wrapped: bytes
    until: float


@dataclass
class KeyWrapper:
    """Wraps and unwraps DEKs; used by many threads.

    Args:
        kms: holds the master keys.
        random: gives keys, ids and nonces.
        lifetime_s: for how long a KEK is used again.
        clock: seconds, from any moment.
        allowed: the master keys that may be named; all of them unless given.
    """

    kms: KeyManagementClient
    random: Callable[[int], bytes]
    lifetime_s: float = DEFAULT_LIFETIME_S
    clock: Callable[[], float] = time.monotonic
    allowed: AllowedKeys = field(default_factory=AllowedKeys)
    _lock: Lock = field(default_factory=Lock, repr=False)
    _writing: dict[tuple[str, int], _Kek] = field(default_factory=dict, repr=False)
    _reading: dict[tuple[str, bytes], _Kek] = field(default_factory=dict, repr=False)

    def wrap(self, dek: Secret, master_key_id: str, is_footer_key: bool, kek_length: int | None) -> KeyMaterial:
        """Wrap a DEK.

        Args:
            dek: the key.
            master_key_id: names the master key.
            is_footer_key: whether it is a file's footer key.
            kek_length: bytes of the KEK, for double wrapping; None for single.

        Raises:
            MasterKeyRefusedError: the master key is not allowed.
        """
        self.allowed.check((master_key_id,), "the configuration of a Parquet file's keys")
        if kek_length is None:
            return KeyMaterial(is_footer_key, master_key_id, wrap_key(self.kms, dek, master_key_id))
        kek = self._kek_for_writing(master_key_id, kek_length)
        wrapped = AesGcm(kek.key).encrypt(self.random(NONCE_LENGTH), dek.reveal(), kek.kek_id)
        return KeyMaterial(is_footer_key, master_key_id, wrapped, kek.kek_id, kek.wrapped)

    def unwrap(self, material: KeyMaterial) -> Secret:
        """Return the DEK.

        Raises:
            MasterKeyRefusedError: the key material names a master key that is not allowed.
        """
        self.allowed.check((material.master_key_id,), "the key material of a Parquet file")
        if material.kek_id is None or material.wrapped_kek is None:
            return unwrap_key(self.kms, material.wrapped_dek, material.master_key_id)
        kek = self._kek_for_reading(material.master_key_id, material.kek_id, material.wrapped_kek)
        try:
            return Secret(AesGcm(kek.key).decrypt(material.wrapped_dek, material.kek_id))
        except AuthenticationError as error:
            raise AuthenticationError(
                f"a key wrapped under master key {material.master_key_id} does not open under its KEK: the key material was changed"
            ) from error

    def _kek_for_writing(self, master_key_id: str, length: int) -> _Kek:
        with self._lock:
            known = self._writing.get((master_key_id, length))
            if known is None or known.until <= self.clock():
                key = Secret(self.random(length))
                wrapped = wrap_key(self.kms, key, master_key_id)
                known = _Kek(key, self.random(KEK_ID_LENGTH), wrapped, self.clock() + self.lifetime_s)
                self._writing[master_key_id, length] = known
            return known

    def _kek_for_reading(self, master_key_id: str, kek_id: bytes, wrapped: bytes) -> _Kek:
        with self._lock:
            known = self._reading.get((master_key_id, kek_id))
            if known is None or known.until <= self.clock() or known.wrapped != wrapped:
                key = unwrap_key(self.kms, wrapped, master_key_id)
                known = _Kek(key, kek_id, wrapped, self.clock() + self.lifetime_s)
                self._reading[master_key_id, kek_id] = known
            return known
