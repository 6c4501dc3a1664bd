"""Keys of protected columns that a table has lost with their copies, found again in older metadata files.

    manifest lists name the keys of columns ─▶ neither in encryption-keys, nor a copy, nor marked as removed on purpose: lost
    older metadata: entries and copies      ─▶ those of that id and column whose KEK is under a master key of the column
    the KMS opens the KEK, that the key     ─▶ both are put back, with the column's declarations under that key

A key that was shredded stays shredded: its mark says so. A user without a column's master key puts none of its keys back, since nothing
else tells a true entry from one that was made up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tablecrypt.errors import (
    AuthenticationError,
    ColumnKeyDeniedError,
    FormatError,
    KeyIdChangedError,
    KeyNotFoundError,
    KmsError,
    PlaintextRefusedError,
)
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.keys.key_ring import EncryptedKey, KeyRing, is_gone, is_own, stored_entries
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.updates import lost_column_keys

_NOWHERE: Final = "is in no metadata file that was found: give one that holds it, or shred_column ends the column's earlier values"
_CANNOT_TELL: Final = (AuthenticationError, FormatError, KeyIdChangedError, KeyNotFoundError, FileNotFoundError, PlaintextRefusedError)


class LostColumnKeys:
    """The lost keys of a table's columns, and what older metadata files have of them.

    Args:
        table: as the catalog has it now.

    Attributes:
        left: the keys that are lost still, by id, each with the reason.
        found: the entries to put back, each KEK before the keys below it.
    """

    def __init__(self, table: EncryptedTable) -> None:
        self._table = table
        self._metadata = table.metadata
        self._ring = self._metadata.key_ring
        lost = lost_column_keys(self._metadata, set(_named(table, self._metadata)))
        self._field_ids = {key_id: field_id for field_id, key_ids in lost.items() for key_id in key_ids}
        self._keks: dict[str, list[EncryptedKey]] = {entry.key_id: [entry] for entry in self._ring.column_keks}
        self.left = dict.fromkeys(self._field_ids, _NOWHERE)
        self.found: dict[str, EncryptedKey] = {}

    def look_in(self, older: EncryptedTableMetadata) -> bool:
        """Take from a metadata file what is lost; return whether it had any of it. Raises KmsError where the KMS was not reached."""
        # Entries of columns alone: whether the table's own keys come back is decided by what they open (_rescue.py).
        held = [entry for entry in stored_entries(older.encryption_keys, older.properties) if is_own(entry)]
        for kek in (entry for entry in held if entry.is_column_kek and not is_gone(entry, self._metadata.properties)):
            if kek not in (known := self._keks.setdefault(kek.key_id, [])):
                known.append(kek)
        before = len(self.left)
        for entry in (entry for entry in held if entry.is_column_key):
            if entry.key_id in self.left:
                self._try(entry)
        # What a declaration says is believed only where its column key opens it, and of several the newest.
        for entry in (entry for entry in held if entry.is_column_declaration and entry.encrypted_by_id in self.found):
            if entry.key_id not in self._ring and not is_gone(entry, self._metadata.properties):
                self.found[entry.key_id] = entry
        return len(self.left) < before

    def _try(self, entry: EncryptedKey) -> None:
        field_id = self._field_ids[entry.key_id]
        masters = ColumnPolicy.from_properties(self._metadata.properties).master_keys(field_id)
        for kek in self._keks.get(entry.encrypted_by_id or "", ()):
            # A key under another master key is not the column's, whoever can open it.
            if kek.encrypted_by_id not in masters or not self._opens(kek, entry, field_id):
                continue

            if kek.key_id not in self._ring:
                self.found[kek.key_id] = kek
            self.found[entry.key_id] = entry
            self.left.pop(entry.key_id, None)

            return

    def _opens(self, kek: EncryptedKey, entry: EncryptedKey, field_id: int) -> bool:
        try:
            if entry.field_id != field_id:
                return False
            self._table.io.manager.columns.open(KeyRing([kek, entry], self._ring.name_of), entry)
        except ColumnKeyDeniedError as error:
            self.left[entry.key_id] = str(error)
            return False
        except KmsError as error:
            if error.retryable:
                raise
            self.left[entry.key_id] = str(error)
            return False
        except _CANNOT_TELL:
            return False

        return True


def _named(table: EncryptedTable, metadata: EncryptedTableMetadata) -> Iterator[tuple[int, str]]:
    """Yield the keys of columns that the manifest lists which open name."""
    for snapshot in metadata.snapshots:
        if not isinstance(snapshot, EncryptedSnapshot) or snapshot.key_id is None:
            continue

        try:
            yield from snapshot.known_header(table.io).column_keys
        except (*_CANNOT_TELL, KmsError):
            # rescue says what becomes of a snapshot whose manifest list does not open.
            continue
