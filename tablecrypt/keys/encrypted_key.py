"""One entry of `encryption-keys` in table metadata: a key that is stored wrapped by another key.

    {"key-id": "…", "encrypted-key-metadata": "<base64>", "encrypted-by-id": "…", "properties": {…}}

Two kinds of entry share this shape and are told apart by the property KEY_TIMESTAMP:

    KEK                  encrypted-by-id = the master key's id in the KMS; encrypted-key-metadata = what the KMS returned for wrap;
                         properties = {"KEY_TIMESTAMP": "<milliseconds since the epoch>"}
    manifest-list key    encrypted-by-id = the KEK's key-id; no properties; encrypted-key-metadata = AES-GCM under the KEK of the
                         StandardKeyMetadata of one manifest list

Iceberg table spec, "Encryption Keys". Nothing here is secret: entries are stored in plaintext metadata.json.
"""

from __future__ import annotations

import base64
import re
from typing import Final

from pydantic import Field
from pyiceberg.typedef import IcebergBaseModel

from tablecrypt.errors import FormatError

KEY_TIMESTAMP: Final = "KEY_TIMESTAMP"
_TIMESTAMP: Final = re.compile("[0-9]{1,19}")
_MAX_LONG: Final = 2**63 - 1


class EncryptedKey(IcebergBaseModel):
    """An entry of `encryption-keys`, with the names and the order of fields that Iceberg Java writes."""

    key_id: str = Field(alias="key-id")
    encrypted_key_metadata: str = Field(alias="encrypted-key-metadata")
    encrypted_by_id: str | None = Field(alias="encrypted-by-id", default=None)
    properties: dict[str, str] | None = Field(default=None)

    @property
    def is_kek(self) -> bool:
        """Whether this entry is a KEK (wrapped by the KMS) rather than a manifest-list key (wrapped by a KEK)."""
        return self.properties is not None and KEY_TIMESTAMP in self.properties

    @property
    def timestamp(self) -> str:
        """A KEK's KEY_TIMESTAMP as stored: its UTF-8 digits are the AAD of every key that this KEK wraps.

        Raises:
            FormatError: there is none, or it is no 64-bit number of milliseconds.
        """
        if not self.is_kek or self.properties is None:
            raise FormatError(f"encryption key {self.key_id} has no {KEY_TIMESTAMP}: it is not a KEK")
        stored = self.properties[KEY_TIMESTAMP]
        if not _TIMESTAMP.fullmatch(stored) or int(stored) > _MAX_LONG:
            raise FormatError(f"encryption key {self.key_id}: {KEY_TIMESTAMP} {stored[:24]!r} is not a number of milliseconds")
        return stored

    @property
    def created_at_ms(self) -> int:
        """A KEK's KEY_TIMESTAMP in milliseconds since the epoch."""
        return int(self.timestamp)

    def wrapped_bytes(self) -> bytes:
        """The decoded `encrypted-key-metadata`."""
        try:
            return base64.b64decode(self.encrypted_key_metadata, validate=True)
        except ValueError as error:
            raise FormatError(f"encryption key {self.key_id}: encrypted-key-metadata is not base64") from error
