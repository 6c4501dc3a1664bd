"""A key service that lets its caller wrap under some master keys and not unwrap, as one does whose policy allows `Encrypt` alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tablecrypt.errors import KmsAccessDeniedError
from tablecrypt.kms.local_file import LocalFileKeyManagementClient
from tablecrypt.kms.memory import MemoryKeyManagementClient

CLASS: Final = f"{__name__}.WriteOnlyKeyManagementClient"
FILE_CLASS: Final = f"{__name__}.WriteOnlyKeyFile"
REFUSED: Final = "test.kms.write-only"


class _WriteOnly:
    """Refuses to unwrap under the master keys that the property names, with commas between them."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(properties)  # type: ignore[call-arg]
        self._refused = properties[REFUSED].split(",")

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        if wrapping_key_id in self._refused:
            raise KmsAccessDeniedError(f"unwrapping under {wrapping_key_id} is not allowed")
        key: bytes = super().unwrap_key(wrapped_key, wrapping_key_id)  # type: ignore[misc]
        return key


class WriteOnlyKeyManagementClient(_WriteOnly, MemoryKeyManagementClient):
    """With the keys of this process."""


class WriteOnlyKeyFile(_WriteOnly, LocalFileKeyManagementClient):
    """With the keys of a file, which other processes read too."""
