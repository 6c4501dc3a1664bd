"""A key service that is overloaded when it is first asked, and answers then."""

from __future__ import annotations

from typing import ClassVar

from tablecrypt.errors import KmsUnavailableError
from tablecrypt.kms.memory import MemoryKeyManagementClient

CLASS = f"{__name__}.BusyKeyManagementClient"


class BusyKeyManagementClient(MemoryKeyManagementClient):
    """Refuses as often as `failures` says, for all its clients in this process. The key `orders` is there."""

    failures: ClassVar[int] = 0

    def __init__(self, properties: dict[str, str]) -> None:
        super().__init__({"kms.memory.name": "busy", **properties})
        if not self._keyring:
            self.create_key("orders")

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        if BusyKeyManagementClient.failures > 0:
            BusyKeyManagementClient.failures -= 1
            raise KmsUnavailableError("throttled: \x1b[2J")
        return super().wrap_key(key, wrapping_key_id)
