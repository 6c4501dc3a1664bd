"""A key service that refuses to open some keys, as one does whose old key version was disabled."""

from __future__ import annotations

from tablecrypt.errors import KmsAccessDeniedError
from tablecrypt.kms.memory import MemoryKeyManagementClient

CLASS = f"{__name__}.DenyingKeyManagementClient"


class DenyingKeyManagementClient(MemoryKeyManagementClient):
    """Refuses what is in `denied`, for all its clients in this process."""

    denied: set[bytes] = set()  # noqa: RUF012  shared on purpose

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        if wrapped_key in self.denied:
            raise KmsAccessDeniedError("this version of the key is disabled")
        return super().unwrap_key(wrapped_key, wrapping_key_id)
