"""Where the keys of new data files come from."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Protocol

from tablecrypt.crypto.key_metadata import StandardKeyMetadata


class DataKeySource(Protocol):
    """Gives each file its own key: an EncryptionManager, or FreshKeys where none is."""

    def new_key_metadata(self) -> StandardKeyMetadata:
        """Return a DEK and an AAD prefix that no other file has."""


@dataclass(frozen=True)
class FreshKeys:
    """Gives each file a DEK of `data_key_length` bytes and an AAD prefix of its own. A worker process needs no KMS for that."""

    data_key_length: int

    def new_key_metadata(self) -> StandardKeyMetadata:
        """Return a DEK and an AAD prefix that no other file has."""
        return StandardKeyMetadata.generate(self.data_key_length, secrets.token_bytes)
