"""A key management service inside this process, for tests. Never for real data: its master keys are gone when the process ends.

Its keyrings have names and belong to the process: every client with the same `kms.memory.name` sees the same master keys, as every
client of one real service would. A keyring starts empty and gets keys only through `create_key` or the constructor's `keys`; a key id
that it does not hold is refused, never invented.

Wrapped keys have the layout that tablecrypt/kms/client.py draws.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from typing import Final

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, KeyNotFoundError
from tablecrypt.kms.client import GeneratedKey, check_key_length, generate_by_wrapping, unwrap_with_master_key, wrap_with_master_key
from tablecrypt.properties import KMS_MEMORY_NAME

_VERSION: Final = 1

_keyrings: dict[str, dict[str, Secret]] = {}
_keyrings_lock = threading.Lock()


class MemoryKeyManagementClient:
    """The master keys of one named keyring of this process.

    Properties: `kms.memory.name`, the keyring ("default" when absent).
    Permissions: none; any code in the process holds the keys.
    """

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        keys: Mapping[str, bytes] | None = None,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._name = KMS_MEMORY_NAME.read(properties or {})
        self._random = random
        with _keyrings_lock:
            self._keyring = _keyrings.setdefault(self._name, {})
        for key_id, key in (keys or {}).items():
            self.create_key(key_id, key)

    def create_key(self, key_id: str, key: bytes | None = None) -> str:
        """Add a master key of 16, 24 or 32 bytes (32 random ones when none is given) and return its id.

        Giving a key that is there already with the same bytes changes nothing; with other bytes it is a ConfigurationError, because
        everything wrapped under the first would be lost.
        """
        secret = Secret(self._random(32) if key is None else key)
        check_key_length(len(secret))
        with _keyrings_lock:
            # One step under the lock: of two threads that create one id, the second one must meet the key of the first.
            held = self._keyring.setdefault(key_id, secret)
        if held is not secret and (key is None or held != secret):
            raise ConfigurationError(f"the keyring {self._name!r} already has another key {key_id!r}")

        return key_id

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        check_key_length(len(key))
        return wrap_with_master_key(key, {_VERSION: self._master_key(wrapping_key_id)}, wrapping_key_id, self._random)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        return unwrap_with_master_key(wrapped_key, {_VERSION: self._master_key(wrapping_key_id)}, wrapping_key_id)

    def generate_key(self, wrapping_key_id: str, length: int = 16) -> GeneratedKey:
        return generate_by_wrapping(self, wrapping_key_id, length, self._random)

    def close(self) -> None:
        """Do nothing: the keyring belongs to the process."""

    def _master_key(self, key_id: str) -> Secret:
        secret = self._keyring.get(key_id)
        if secret is None:
            raise KeyNotFoundError(f"the keyring {self._name!r} has no key {key_id!r}: create it with create_key")
        return secret

    def __repr__(self) -> str:
        return f"MemoryKeyManagementClient(name={self._name!r})"
