"""A key service as somebody has it who knew KEKs once: it opens those, and nothing else, and wraps nothing."""

from __future__ import annotations

from typing import ClassVar, Final

from tablecrypt.errors import KmsAccessDeniedError
from tablecrypt.kms.memory import MemoryKeyManagementClient

CLASS: Final = f"{__name__}.FormerHoldersKeys"


class FormerHoldersKeys(MemoryKeyManagementClient):
    """Knows what is in `known`, by the wrapped form, in this process."""

    known: ClassVar[dict[bytes, bytes]] = {}

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        if wrapped_key not in self.known:
            raise KmsAccessDeniedError("this key was never known")
        return self.known[wrapped_key]

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        raise KmsAccessDeniedError("the master key is not to be used any more")
