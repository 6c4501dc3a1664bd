"""The column keys of one version of a table's metadata, as the writer and the reader of its files ask for them."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, KeyIdChangedError, TamperedFileError
from tablecrypt.keys.bound_schemas import BoundSchema
from tablecrypt.keys.column_key_ring import ColumnKeyMaker
from tablecrypt.keys.column_keys import ColumnKey, ColumnPolicy, key_id_in, unwrap_dek, wrap_dek
from tablecrypt.keys.column_lookup import KeyedColumn, column_key_entry, kek_of
from tablecrypt.keys.given_deks import FileColumn, GivenDeks
from tablecrypt.keys.key_ring import EncryptedKey, KeyRing

_MASK_KEY_OF: Final = b"tablecrypt column mask 1"


class TableColumnKeys:
    """The column keys of one version of a table's metadata: see `column_keys.ColumnKeys`.

    Args:
        maker: makes and opens entries.
        policy: the table's.
        ring: the keys of that version.
    """

    def __init__(self, maker: ColumnKeyMaker, policy: ColumnPolicy, ring: KeyRing) -> None:
        self._maker = maker
        self._policy = policy
        self._ring = ring
        self._masks: dict[int, tuple[str, Secret]] = {}
        self._given_deks: dict[str, GivenDeks] = {}

    def generate(self, field_ids: Iterable[int], aad_prefix: bytes) -> dict[int, ColumnKey]:
        """Return a fresh key for each of these columns in the file with this AAD prefix."""
        return {field_id: self._generated(field_id, aad_prefix) for field_id in field_ids}

    def unwrap(self, field_id: int, key_metadata: bytes, aad_prefix: bytes, schema: BoundSchema, sequence_number: int | None) -> bytes:
        """Return the DEK of a column in the file with this AAD prefix, this schema of the column and this data sequence number."""
        named, key_id = self._policy.master_keys(field_id), key_id_in(key_metadata)
        # First: a file that is too young would open, since whoever made it may use the former master key.
        self._check_age(field_id, key_id, schema.location, sequence_number)
        entry = column_key_entry(self._ring, key_id, field_id, named)
        self._check_own(entry, schema.location)
        if entry.has_given_deks:
            return self._given(entry).dek(FileColumn(field_id, key_metadata, aad_prefix, schema))
        return unwrap_dek(self._maker.open(self._ring, entry), field_id, key_metadata, aad_prefix, schema, self._ring.fields_of)

    def check_readable(self, field_ids: Iterable[int]) -> None:
        """Return if this user may open the column keys of all these columns. Of one without keys a new one tells, which is not kept."""
        for field_id in field_ids:
            # What somebody has brought in from another table keeps nobody from the column: files under it are refused one by one.
            entries = [entry for entry in self._ring.column_keys if entry.field_id == field_id and not self._ring.is_strange(entry)]
            for entry in entries:
                self._maker.column_key(self._ring, entry.key_id, field_id, self._policy.master_keys(field_id))
            if not entries and field_id in self._policy.columns:
                self._current(field_id)

    def mask_key(self, field_id: int) -> Secret:
        """Return the key of a column's `hash` mask: HMAC-SHA-256 of a fixed text under the mask key that the table keeps."""
        _, key = self._mask(field_id)
        return Secret(hmac.new(key.reveal(), _MASK_KEY_OF, hashlib.sha256).digest())

    def _given(self, entry: EncryptedKey) -> GivenDeks:
        if (known := self._given_deks.get(entry.key_id)) is None:
            return self._given_deks.setdefault(entry.key_id, GivenDeks.decode(self._maker.open(self._ring, entry)))
        # Read once for all files; the right to the KEK is asked for with each, as that to a column key is.
        self._maker.open_kek(self._ring, kek_of(self._ring, entry), entry.field_id)
        return known

    def _check_age(self, field_id: int, key_id: str, location: str, sequence_number: int | None) -> None:
        """Refuse a file under a former master key that is younger than that: see former_keys.py. Asks no KMS."""
        now, former = self._policy.columns.get(field_id), self._policy.former.get(field_id)
        # A column that is protected no more has no end (former_keys.py). A key that is gone is reported where it is opened.
        if now is None or former is None or key_id not in self._ring or former.opens(sequence_number):
            return

        master_key_id = self._ring.master_key_id(self._ring.entry(key_id))
        if master_key_id != former.key_id or master_key_id == now.column_key_id:
            return

        column = self._ring.column(field_id)

        if former.until is None:
            raise KeyIdChangedError(
                f"{location}: {column} is under the former master key {former.key_id!r} there, and the table's properties do not say until "
                f"when that counts: encryption.column.{field_id}.former-until is missing. Restore it, or have somebody with the column's "
                "key declare the column again (encryption.column-keys)"
            )

        raise TamperedFileError(
            location,
            f"holds {column} under the former master key {former.key_id!r}, which counts for files up to sequence number {former.until}, "
            f"and the file has {'none' if sequence_number is None else sequence_number}: somebody who may use that key has made it, or "
            "an engine that knows nothing of protected columns appended a file from before once more",
        )

    def _check_own(self, entry: EncryptedKey, location: str) -> None:
        """Refuse a file whose column is under a strange key: this table's masks, and whom it is shared with, would show its values."""
        if self._ring.is_strange(entry):
            raise TamperedFileError(
                location,
                f"holds {self._ring.column(entry.field_id)} under {entry.kind} {entry.key_id}, which was made for the table "
                f"{entry.made_for}: somebody has brought in a file of that table with its key. Delete its rows, or go back to a snapshot "
                "without it",
            )

    def _generated(self, field_id: int, aad_prefix: bytes) -> ColumnKey:
        key_id, key = self._current(field_id, aad_prefix)
        if self._policy.columns[field_id].mask.needs_key:
            # Masks of the file are hashes under the mask key, so that its commit brings that as well.
            self._maker.pending.bring_with(aad_prefix, self._mask(field_id)[0])
        dek = Secret(self._maker.random(self._maker.data_key_length))
        return wrap_dek(key_id, key, field_id, aad_prefix, dek, self._maker.random)

    def _mask(self, field_id: int) -> tuple[str, Secret]:
        # One for all files of a write: their commit says which mask key it brings by the files, whenever each was made.
        if (known := self._masks.get(field_id)) is not None:
            return known
        return self._masks.setdefault(field_id, self._maker.mask_key(self._column(field_id)))

    def _current(self, field_id: int, aad_prefix: bytes | None = None) -> tuple[str, Secret]:
        return self._maker.current_column_key(self._column(field_id), aad_prefix)

    def _column(self, field_id: int) -> KeyedColumn:
        column = self._policy.columns.get(field_id)
        if column is None:
            raise ConfigurationError(f"{self._ring.column(field_id)} is not protected, and has no key")
        return KeyedColumn.of(column, self._ring)
