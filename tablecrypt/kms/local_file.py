"""Master keys in a file of this machine, for one-person use, tests of a whole system, and places where no key service is.

Whoever can read the file can read every table, so its mode must keep everyone but its owner out (tablecrypt/kms/key_file.py), and a
copy of it belongs in a safe: without it the tables are lost. Wrapped keys have the layout that tablecrypt/kms/sealed_key.py draws.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, KeyNotFoundError
from tablecrypt.kms.client import GeneratedKey, check_key_length, generate_by_wrapping
from tablecrypt.kms.key_file import read_key_file
from tablecrypt.kms.sealed_key import open_key, seal_key
from tablecrypt.properties import KMS_LOCAL_KEY_FILE


class LocalFileKeyManagementClient:
    """Wraps keys with the master keys of a key file that `tablecrypt keygen` made.

    Properties: `kms.local.key-file`, the path ("~" is the home folder). Required.
    Permissions: read access to the file; its mode is 0600 or narrower, anything wider is refused at every call.

    The file is read at each call, so a rotated key takes effect at once and no master key stays in this object.
    """

    def __init__(self, properties: Mapping[str, str], random: Callable[[int], bytes] = secrets.token_bytes) -> None:
        path = properties.get(KMS_LOCAL_KEY_FILE.name)
        if not path:
            raise ConfigurationError(f"set {KMS_LOCAL_KEY_FILE.name} to the path of a key file; tablecrypt keygen makes one")
        self._path = Path(path).expanduser()
        self._random = random

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        check_key_length(len(key))
        return seal_key(key, self._versions(wrapping_key_id), wrapping_key_id, self._random)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        return open_key(wrapped_key, self._versions(wrapping_key_id), wrapping_key_id)

    def generate_key(self, wrapping_key_id: str, length: int = 16) -> GeneratedKey:
        return generate_by_wrapping(self, wrapping_key_id, length, self._random)

    def close(self) -> None:
        """Nothing to let go: the file is open only during a call."""

    def _versions(self, key_id: str) -> dict[int, Secret]:
        versions = read_key_file(self._path).get(key_id)
        if versions is None:
            raise KeyNotFoundError(f"the key file {self._path} has no key {key_id!r}: tablecrypt keygen adds one")
        return versions

    def __repr__(self) -> str:
        return f"LocalFileKeyManagementClient(path={str(self._path)!r})"
