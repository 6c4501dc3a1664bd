"""The keys of one version of a table's metadata, and the rules by which they may be trusted and used. Pure: no I/O, no clock.

An entry of `encryption-keys` is a key that is stored wrapped by another key:

    {"key-id": "…", "encrypted-key-metadata": "<base64>", "encrypted-by-id": "…", "properties": {…}}

Two kinds of entry share this shape and are told apart by the property KEY_TIMESTAMP:

    KEK                  encrypted-by-id = the master key's id in the KMS; encrypted-key-metadata = what the KMS returned for wrap;
                         properties = {"KEY_TIMESTAMP": "<milliseconds since the epoch>"}
    manifest-list key    encrypted-by-id = the KEK's key-id; no properties; encrypted-key-metadata = AES-GCM under the KEK of the
                         StandardKeyMetadata of one manifest list

Nothing here is secret: entries are stored in plaintext metadata.json.

Rules:
    1. Only the KEK that its encrypted-by-id names unwraps a manifest-list key, and only the table's master key unwraps that KEK.
    2. A KEK wraps new keys only while its encrypted-by-id is the table's master key and its age is under its lifespan. One that says it
       was made later than now, by more than CLOCK_SKEW_MS, wraps none.
    3. Of the KEKs in the metadata only that which unwraps the key of the snapshot that a commit follows may wrap the commit's key: an
       entry that somebody adds to metadata.json cannot make an older KEK unwrap that key. Where there is no such KEK, a new one is made.
    4. An entry is needed while a snapshot names it, or while a needed manifest-list key is wrapped by it.

`now_ms` is always given by the caller.

Iceberg table spec, "Encryption Keys".
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pydantic import Field
from pyiceberg.typedef import IcebergBaseModel

from tablecrypt.errors import FormatError, KeyNotFoundError

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


CLOCK_SKEW_MS: Final = 15 * 60 * 1000
"""By how much the clocks of two writers may differ: a quarter of an hour, beyond which AWS refuses their requests as well."""


def may_wrap(kek: EncryptedKey, now_ms: int, lifespan_ms: int) -> bool:
    """Whether a KEK's age lets it wrap new keys (rule 2)."""
    return -CLOCK_SKEW_MS <= now_ms - kek.created_at_ms < lifespan_ms


def is_ahead(kek: EncryptedKey, now_ms: int) -> bool:
    """Whether a KEK says that it was made later than now, by more than clocks differ."""
    return kek.created_at_ms - now_ms > CLOCK_SKEW_MS


@dataclass(frozen=True)
class KeyChain:
    """What decrypts one manifest list: its own wrapped key and the wrapped KEK above it. Both are ciphertext."""

    manifest_list_key: EncryptedKey
    kek: EncryptedKey


class KeyRing:
    """An immutable view on the `encryption-keys` of one metadata version."""

    def __init__(self, entries: Iterable[EncryptedKey] = ()) -> None:
        self._entries = {entry.key_id: entry for entry in entries}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key_id: object) -> bool:
        return key_id in self._entries

    @property
    def keks(self) -> list[EncryptedKey]:
        """Every KEK, in the order of the metadata."""
        return [entry for entry in self._entries.values() if entry.is_kek]

    def entry(self, key_id: str) -> EncryptedKey:
        """Return the entry of that id.

        Raises:
            KeyNotFoundError: no entry has it.
        """
        entry = self._entries.get(key_id)
        if entry is None:
            raise KeyNotFoundError(
                f"encryption key {key_id} is not in the table's encryption-keys; an older metadata.json may still hold it"
            )
        return entry

    def chain(self, manifest_list_key_id: str) -> KeyChain:
        """Return what decrypts the manifest list whose snapshot has this key-id.

        Raises:
            KeyNotFoundError: the key or its KEK is missing.
            FormatError: the entry is a KEK, or is wrapped by something that is none.
        """
        key = self.entry(manifest_list_key_id)
        if key.is_kek:
            raise FormatError(f"encryption key {manifest_list_key_id} is a KEK: a snapshot must name a manifest-list key")
        if key.encrypted_by_id is None:
            raise FormatError(f"encryption key {manifest_list_key_id} does not name the KEK that wraps it")
        kek = self.entry(key.encrypted_by_id)
        if not kek.is_kek:
            raise FormatError(f"encryption key {key.encrypted_by_id} wraps {manifest_list_key_id} but is not a KEK")
        return KeyChain(key, kek)

    def current_kek(self, parent_key_id: str | None, table_key_id: str, now_ms: int, lifespan_ms: int) -> KeyChain | None:
        """Return the chain whose KEK may wrap a new key once it has unwrapped its manifest-list key; None when a new KEK has to be made.

        Rules 2 and 3. Nothing is unwrapped here.

        Args:
            parent_key_id: the key-id of the snapshot that the commit follows; None when there is none.
            table_key_id: the table's master key.
            now_ms, lifespan_ms: milliseconds since the epoch, and milliseconds.

        Raises:
            KeyNotFoundError, FormatError: the parent's key, or the KEK above it, is missing or no key.
        """
        if parent_key_id is None:
            return None
        chain = self.chain(parent_key_id)
        usable = chain.kek.encrypted_by_id == table_key_id and may_wrap(chain.kek, now_ms, lifespan_ms)
        return chain if usable else None

    def needed_by(self, snapshot_key_ids: Iterable[str]) -> set[str]:
        """Return the ids of the entries that these snapshots need: their manifest-list keys and the KEKs above them (rule 4)."""
        needed: set[str] = set()
        for key_id in snapshot_key_ids:
            if (entry := self._entries.get(key_id)) is None:
                continue
            needed.add(key_id)
            if entry.encrypted_by_id in self._entries:
                needed.add(entry.encrypted_by_id)
        return needed
