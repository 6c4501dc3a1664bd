"""The keys of one version of a table's metadata, and the rules by which they may be believed and used. Pure: no I/O, no clock.

Rules:
    1. A manifest-list key is opened by the KEK that its encrypted-by-id names, and by no other; that KEK by the table's master key alone.
    2. A KEK wraps new keys only while its encrypted-by-id is the table's master key and its age is under its lifespan.
    3. Of several KEKs that may wrap new keys, the newest does.
    4. An entry is needed while a snapshot names it, or while a needed manifest-list key is wrapped by it.

`now_ms` is always given by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tablecrypt.errors import FormatError, KeyNotFoundError
from tablecrypt.keys.encrypted_key import EncryptedKey


@dataclass(frozen=True)
class KeyChain:
    """What opens one manifest list: its own wrapped key and the wrapped KEK above it. Both are ciphertext."""

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
        """Return what opens the manifest list whose snapshot has this key-id.

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

    def current_kek(self, master_key_id: str, now_ms: int, lifespan_ms: int) -> EncryptedKey | None:
        """Return the KEK that wraps new keys now, or None when a new one has to be made (rules 2 and 3)."""
        usable = [kek for kek in self.keks if kek.encrypted_by_id == master_key_id and now_ms - kek.created_at_ms < lifespan_ms]
        return max(usable, key=lambda kek: kek.created_at_ms, default=None)

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
