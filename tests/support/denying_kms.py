"""A key service that refuses to open some keys, as one does whose old key version was disabled."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from tablecrypt.errors import KmsAccessDeniedError, KmsError
from tablecrypt.kms.memory import MemoryKeyManagementClient

CLASS = f"{__name__}.DenyingKeyManagementClient"
_denied: Final[dict[str, dict[bytes, KmsError]]] = {}
_DISABLED: Final = KmsAccessDeniedError("this version of the key is disabled")


def deny(keyring: str, wrapped_keys: Collection[bytes], refusal: KmsError = _DISABLED) -> None:
    """Have all clients of a keyring refuse to open these keys from now on."""
    _denied[keyring] = dict.fromkeys(wrapped_keys, refusal)


class DenyingKeyManagementClient(MemoryKeyManagementClient):
    """Refuses what its keyring denies."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(properties)
        self._name = properties["kms.memory.name"]

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        if wrapped_key in (denied := _denied.get(self._name, {})):
            raise denied[wrapped_key]
        return super().unwrap_key(wrapped_key, wrapping_key_id)
