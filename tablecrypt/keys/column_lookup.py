"""Finding the keys of protected columns among the entries of one version of a table's metadata. Pure: the KMS is not asked.

Entries are not authenticated: what is found here counts only once it opens (column_key_ring.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from tablecrypt.errors import AuthenticationError, ColumnKeyDeniedError, FormatError, KeyIdChangedError, KeyNotFoundError
from tablecrypt.keys.column_keys import ProtectedColumn
from tablecrypt.keys.key_ring import EncryptedKey, KeyRing


@dataclass(frozen=True)
class KeyedColumn:
    """A column under one of its master keys, among the keys of a version of metadata.

    Attributes:
        ring: these keys, perhaps with others that were made for a commit to come.
        field_id: the column's.
        master_key_id: the master key's id in the KMS.
    """

    ring: KeyRing
    field_id: int
    master_key_id: str

    @classmethod
    def of(cls, column: ProtectedColumn, ring: KeyRing) -> Self:
        """Take a column under the master key that it has now."""
        return cls(ring, column.field_id, column.column_key_id)

    def among(self, ring: KeyRing) -> Self:
        """Return the same column among other keys."""
        return replace(self, ring=ring)

    @property
    def made_for(self) -> str | None:
        """The table that new keys of the column are made for: in some copies the other one (column_key_ring.py, rule 4)."""
        known = {entry.made_for for entry in self.ring.keys_of_column(self.field_id, self.master_key_id)}
        is_copy = len(known) == 1 and None not in known
        return known.pop() if is_copy else self.ring.table_uuid

    def column_keys(self, *, write_only: bool) -> Iterator[tuple[EncryptedKey, EncryptedKey]]:
        """Yield the entries of its column keys, each with its KEK; none that only lists DEKs of files or is strange.

        Args:
            write_only: those that their makers alone may write under, or all others. A maker keeps such a key in memory, without the right
                to read the column: others must not write under it.
        """
        for entry in self.ring.column_keys:
            if (
                entry.field_id == self.field_id
                and entry.wraps_deks
                and entry.is_write_only == write_only
                and not self.ring.is_strange(entry)
            ):
                kek = kek_of(self.ring, entry)
                if kek.encrypted_by_id == self.master_key_id:
                    yield entry, kek

    def mask_key(self) -> EncryptedKey | None:
        """Return the entry of the key of its `hash` mask; None where nobody has made it.

        Raises:
            KeyNotFoundError: the KEK of an entry of the column is missing.
        """
        mask_keys = (entry for entry in self.ring.keys_of_column(self.field_id, self.master_key_id) if entry.is_mask_key)
        # Equal values of this table and of another one would have equal hashes under its mask key.
        return next((entry for entry in mask_keys if not self.ring.is_strange(entry)), None)

    def denied(self, reason: str) -> ColumnKeyDeniedError:
        """Return the error of a user to whom the KMS refuses the master key."""
        return ColumnKeyDeniedError(self.field_id, self.master_key_id, reason, column_name=self.ring.name_of(self.field_id))


def column_key_entry(ring: KeyRing, key_id: str, field_id: int, master_key_ids: Sequence[str]) -> EncryptedKey:
    """Return the entry of the column key that a file names: it is that of the file's column, under one of these master keys.

    Raises:
        KeyNotFoundError: there is none.
        KeyIdChangedError: it is under another master key than those that the table's properties name for the column.
        AuthenticationError: it is another column's.
    """
    try:
        entry = ring.entry(key_id)
    except KeyNotFoundError:
        raise KeyNotFoundError(
            f"column key {key_id} of {ring.column(field_id)} is not in the table's encryption-keys: the column was shredded, or "
            "somebody removed the entry and its copy. rescue brings it back if an older metadata.json holds it and nobody shredded it"
        ) from None

    # Whoever may use the key of one column could else wrap a DEK for another under it, and forge values of that one.
    if entry.field_id != field_id:
        raise AuthenticationError(
            f"column key {key_id} is that of {ring.column(entry.field_id)}, and a file names it for {ring.column(field_id)}"
        )

    master_key_id = ring.master_key_id(entry)

    # Entries are not authenticated: one under a master key of an attacker's choice would count like the right ones.
    if master_key_id not in master_key_ids:
        raise KeyIdChangedError(
            f"{ring.column(field_id)} is encrypted under master key {master_key_id!r}, and the table's properties do not name that "
            "key for it: the properties or an entry of encryption-keys were changed. Restore them"
        )

    return entry


def is_under_another_key(ring: KeyRing, key_id: str, column: ProtectedColumn) -> bool:
    """Whether a column key that a file names is under another master key than the column's own. One that was shredded is under none."""
    kek_id = ring.entry(key_id).encrypted_by_id if key_id in ring else None
    return kek_id is not None and kek_id in ring and ring.entry(kek_id).encrypted_by_id != column.column_key_id


def kek_of(ring: KeyRing, entry: EncryptedKey) -> EncryptedKey:
    """Return the column KEK of a column key's entry. FormatError where the entry above it is none."""
    kek = ring.entry(entry.encrypted_by_id or "")
    if not kek.is_column_kek:
        raise FormatError(f"encryption key {kek.key_id} wraps column key {entry.key_id} but is a {kek.kind}")
    return kek
