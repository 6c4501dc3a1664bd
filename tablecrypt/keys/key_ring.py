"""The keys of one version of a table's metadata, and the rules by which they may be trusted and used. Pure: no I/O, no clock.

An entry of `encryption-keys` is a key that is stored wrapped by another key:

    {"key-id": "…", "encrypted-key-metadata": "<base64>", "encrypted-by-id": "…", "properties": {…}}

Six kinds of entry share this shape and are told apart by their properties:

    KEK                  encrypted-by-id = the master key's id in the KMS; encrypted-key-metadata = what the KMS returned for wrap;
                         properties = {"KEY_TIMESTAMP": "<milliseconds since the epoch>"}
    manifest-list key    encrypted-by-id = the KEK's key-id; no properties; encrypted-key-metadata = AES-GCM under the KEK of the
                         StandardKeyMetadata of one manifest list
    column KEK           as a KEK, but encrypted-by-id = the master key of protected columns, and a property more:
                         {"KEY_TIMESTAMP": …, "tablecrypt.column-kek": "1"}
    column key           encrypted-by-id = a column KEK's key-id; properties = {"tablecrypt.column-key": "<field id>"}; see
                         column_key_ring.py
    mask key             as a column key, and a property more: {"tablecrypt.mask-key": "1"}
    given DEKs           as a column key, and a property more: {"tablecrypt.given-deks": "1"}; see given_deks.py
    declaration          encrypted-by-id = a column key's key-id; properties = {"tablecrypt.column-declaration": "<field id>"}; see
                         column_declarations.py

A column KEK or column key with the property {"tablecrypt.write-only": "1"} was made by a writer who may wrap and not unwrap: see
write_only_keys.py. A column key, mask key or list of DEKs with {"tablecrypt.of-table": "<table-uuid>"} was made for that table.

Nothing here is secret: entries are stored in plaintext metadata.json.

Rules:
    1. Only the KEK that its encrypted-by-id names unwraps a manifest-list key, and only the table's master key unwraps that KEK.
    2. A KEK wraps new keys only while its encrypted-by-id is the table's master key and its age is under its lifespan. One that says it
       was made later than now, by more than CLOCK_SKEW_MS, wraps none.
    3. Of the KEKs in the metadata only that which unwraps the key of the snapshot that a commit follows may wrap the commit's key: an
       entry that somebody adds to metadata.json cannot make an older KEK unwrap that key. Where there is no such KEK, a new one is made.
    4. An entry is needed while a snapshot names it, or while a needed manifest-list key is wrapped by it. Files name column keys, which
       metadata does not tell: so a column key, and the column KEK above it, is always needed, and a declaration under it too.
    5. A column KEK wraps and unwraps nothing but column keys, a declaration nothing at all.

`now_ms` is always given by the caller.

Copies and marks of column entries. An engine that knows nothing of protected columns may drop every entry of `encryption-keys` that no
snapshot leads to: files name column keys, metadata does not. Such an engine keeps properties as they are. So each entry of this package's
own, which a property beginning with `tablecrypt.` tells, is in the table's properties as well:

    encryption.column-entry.<key-id> = {"encrypted-key-metadata":"…","encrypted-by-id":"…","properties":{…}}
    encryption.column-gone.<hash>    = the field id of a column key that was removed on purpose, 0 for another entry

One property for each entry, so that no writer overwrites another's. A copy holds wrapped bytes alone, as the entry does. The hash is the
first 32 hexadecimal digits of SHA-256 of the key-id: shredding searches files that cannot be parsed for the ids themselves, and a commit on
its way that holds a mark is none of those.

Rules of copies:
    1. An entry in `encryption-keys` counts where its copy says otherwise: releases that know no copies change entries alone. Whoever can
       edit one can edit the other, and neither is authenticated: what an entry opens is, by its KEK and its AAD.
    2. Where there is no entry, its copy is the entry. A copy of a KEK counts below which a copy is that counts, and a copy whose KEK is
       nowhere does not. A copy that cannot be read, or is of an entry that is not this package's own, is none: it brings no key of a table.
    3. A mark beats both: a writer who began before a key was shredded, a server or an engine that puts old entries back brings none back.
       Who removes the mark as well has the old entry, and could use it without the table.
    4. A commit through this package writes, removes and marks a copy with its entry, writes the copies that are missing, and brings back
       the entries that are.

Iceberg table spec, "Encryption Keys".
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from pydantic import Field, ValidationError
from pyiceberg.typedef import IcebergBaseModel

from tablecrypt.errors import FormatError, KeyNotFoundError, column_shown
from tablecrypt.keys.bound_schemas import FieldsOf

KEY_TIMESTAMP: Final = "KEY_TIMESTAMP"
COLUMN_KEK: Final = "tablecrypt.column-kek"
COLUMN_KEY: Final = "tablecrypt.column-key"
COLUMN_DECLARATION: Final = "tablecrypt.column-declaration"
COLUMN_KEK_VERSION: Final = "1"
WRITE_ONLY: Final = "tablecrypt.write-only"
MASK_KEY: Final = "tablecrypt.mask-key"
GIVEN_DEKS: Final = "tablecrypt.given-deks"
OF_TABLE: Final = "tablecrypt.of-table"
_TIMESTAMP: Final = re.compile("[0-9]{1,19}")
_FIELD_ID: Final = re.compile("[1-9][0-9]{0,9}")
_MAX_LONG: Final = 2**63 - 1
ENTRY_PREFIX: Final = "encryption.column-entry."
GONE_PREFIX: Final = "encryption.column-gone."
_OWN: Final = "tablecrypt."
_NO_COLUMN: Final = 0
_HASH_DIGITS: Final = 32


class EncryptedKey(IcebergBaseModel):
    """An entry of `encryption-keys`. `model_dump()` has the names and the order of fields that Iceberg Java writes."""

    key_id: str = Field(alias="key-id")
    encrypted_key_metadata: str = Field(alias="encrypted-key-metadata")
    encrypted_by_id: str | None = Field(alias="encrypted-by-id", default=None)
    properties: dict[str, str] | None = Field(default=None)

    @property
    def is_kek(self) -> bool:
        """Whether this entry is a KEK of the table: wrapped by the KMS, and wraps manifest-list keys."""
        return self.is_wrapped_by_kms and not self.is_column_kek

    @property
    def is_column_kek(self) -> bool:
        """Whether this entry is a column KEK: wrapped by the KMS, and wraps column keys."""
        return self.properties is not None and COLUMN_KEK in self.properties

    @property
    def is_wrapped_by_kms(self) -> bool:
        """Whether this entry is a KEK, of the table or of columns, so that encrypted-by-id names a master key."""
        return self.properties is not None and (KEY_TIMESTAMP in self.properties or COLUMN_KEK in self.properties)

    @property
    def is_column_key(self) -> bool:
        """Whether this entry is a key of a protected column: of its values in all files or in some, or of its `hash` mask."""
        # Each entry is of one kind, whatever properties an editor of the metadata puts together.
        return self.properties is not None and COLUMN_KEY in self.properties and not self.is_wrapped_by_kms

    @property
    def is_column_declaration(self) -> bool:
        """Whether this entry says how a column is protected, and wraps nothing."""
        return self.declared_field is not None and not self.is_wrapped_by_kms and not self.is_column_key

    @property
    def declared_field(self) -> str | None:
        """The field id of a declaration's column, as stored; None for an entry of another kind."""
        return (self.properties or {}).get(COLUMN_DECLARATION)

    @property
    def is_of_columns(self) -> bool:
        """Whether this entry is there for protected columns: a column KEK, a column key, or a declaration."""
        return self.is_column_kek or self.is_column_key or self.is_column_declaration

    @property
    def is_mask_key(self) -> bool:
        """Whether this column key makes the hashes that a mask shows, and wraps no DEK."""
        return self.is_column_key and MASK_KEY in (self.properties or {})

    @property
    def has_given_deks(self) -> bool:
        """Whether this entry holds the DEKs of some files in the place of a column key, and wraps none."""
        return self.is_column_key and GIVEN_DEKS in (self.properties or {})

    @property
    def wraps_deks(self) -> bool:
        """Whether this is a column key by which DEKs in footers are wrapped, and no other key that a column has."""
        return self.is_column_key and not (self.is_mask_key or self.has_given_deks)

    @property
    def is_write_only(self) -> bool:
        """Whether a writer made this entry who could not open it again, and whom every later user of it would show what is below it."""
        return self.properties is not None and WRITE_ONLY in self.properties

    @property
    def made_for(self) -> str | None:
        """The table-uuid of the table that this key of a column was made for; None where it does not say, as of early builds."""
        return (self.properties or {}).get(OF_TABLE)

    @property
    def is_manifest_list_key(self) -> bool:
        """Whether this is a manifest-list key: neither a KEK nor a column key, nor the declaration of one."""
        return not self.is_wrapped_by_kms and not self.is_column_key and not self.is_column_declaration

    @property
    def kind(self) -> str:
        """What people call such an entry."""
        if self.is_wrapped_by_kms:
            return "column KEK" if self.is_column_kek else "KEK"
        if self.is_mask_key:
            return "mask key"
        if self.has_given_deks:
            return "list of column DEKs"
        if self.is_column_declaration:
            return "declaration"

        return "column key" if self.is_column_key else "manifest-list key"

    @property
    def field_id(self) -> int:
        """The field id of a column key's column.

        Raises:
            FormatError: the entry is no column key, or names no field id.
        """
        stored = (self.properties or {}).get(COLUMN_KEY, "")
        if not self.is_column_key or not _FIELD_ID.fullmatch(stored):
            raise FormatError(f"encryption key {self.key_id} is not the key of a column: {COLUMN_KEY} is {stored[:24]!r}")
        return int(stored)

    @property
    def timestamp(self) -> str:
        """A KEK's KEY_TIMESTAMP as stored: its UTF-8 digits are the AAD of every key that this KEK wraps.

        Raises:
            FormatError: there is none, or it is no 64-bit number of milliseconds.
        """
        stored = (self.properties or {}).get(KEY_TIMESTAMP)
        if stored is None:
            raise FormatError(f"encryption key {self.key_id} has no {KEY_TIMESTAMP}: it is not a KEK")
        # Returned as stored, and not as a number that is written again: the digits are AAD, leading zeros included.
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
            # Without `validate` Python skips characters that are not base64, so that many texts would be one key.
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
    """An immutable view on the `encryption-keys` of one metadata version.

    Args:
        entries: those of the metadata.
        name_of: returns a column's name by its field id, for messages.
        fields_of: returns what a column is, and was in earlier schemas, by its field id: for files that do not bind it themselves.
        table_uuid: of the table; None where there is none yet.
    """

    def __init__(
        self,
        entries: Iterable[EncryptedKey] = (),
        name_of: Callable[[int], str | None] = lambda field_id: None,
        fields_of: FieldsOf = lambda field_id: (),
        table_uuid: str | None = None,
    ) -> None:
        self._entries = {entry.key_id: entry for entry in entries}
        self.name_of = name_of
        self.fields_of = fields_of
        self.table_uuid = table_uuid

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key_id: object) -> bool:
        return key_id in self._entries

    @property
    def entries(self) -> tuple[EncryptedKey, ...]:
        """Every entry, in the order of the metadata."""
        return tuple(self._entries.values())

    @cached_property
    def keks(self) -> list[EncryptedKey]:
        """Every KEK of the table, in the order of the metadata. Column KEKs are not among them."""
        return [entry for entry in self._entries.values() if entry.is_kek]

    @cached_property
    def column_keks(self) -> list[EncryptedKey]:
        """Every column KEK, in the order of the metadata."""
        return [entry for entry in self._entries.values() if entry.is_column_kek]

    @cached_property
    def column_keys(self) -> list[EncryptedKey]:
        """Every column key, in the order of the metadata."""
        return [entry for entry in self._entries.values() if entry.is_column_key]

    @cached_property
    def column_declarations(self) -> list[EncryptedKey]:
        """Every declaration of a column, in the order of the metadata."""
        return [entry for entry in self._entries.values() if entry.is_column_declaration]

    def with_others(self, entries: Iterable[EncryptedKey]) -> KeyRing:
        """Return a ring that has these entries too, where it has none of their ids."""
        # Entries of the ring count first: none that is added can exchange a key that snapshots or files name.
        both = {entry.key_id: entry for entry in entries} | self._entries
        return KeyRing(both.values(), self.name_of, self.fields_of, self.table_uuid)

    def is_foreign(self, entry: EncryptedKey) -> bool:
        """Whether a key of a column was made for another table."""
        return entry.made_for not in (None, self.table_uuid)

    def is_strange(self, entry: EncryptedKey) -> bool:
        """Whether a foreign key of a column is beside this table's own under the same master key, where nobody but an attacker puts it.

        A copy by somebody who may not use the keys has foreign ones alone.
        """
        if not self.is_foreign(entry):
            return False
        return not all(map(self.is_foreign, self.keys_of_column(entry.field_id, self.master_key_id(entry))))

    def keys_of_column(self, field_id: int, master_key_id: str | None) -> list[EncryptedKey]:
        """Return the keys of a column under one master key."""
        return [each for each in self.column_keys if each.field_id == field_id and self.master_key_id(each) == master_key_id]

    def master_key_id(self, entry: EncryptedKey) -> str | None:
        """Return the master key of a column key's KEK. KeyNotFoundError where the KEK is missing."""
        return self.entry(entry.encrypted_by_id or "").encrypted_by_id

    def column(self, field_id: int) -> str:
        """Return how messages name a column."""
        return column_shown(field_id, self.name_of(field_id))

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
            FormatError: the entry is no manifest-list key, or is wrapped by something that is no KEK of the table.
        """
        key = self.entry(manifest_list_key_id)
        # Whoever edits metadata can have a snapshot name any entry: one of another kind must never become the key of a file.
        if not key.is_manifest_list_key:
            raise FormatError(f"encryption key {manifest_list_key_id} is a {key.kind}: a snapshot must name a manifest-list key")
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
        """Return the ids of the entries that these snapshots need: their manifest-list keys, all column keys with their declarations,
        and the KEKs above them.

        Rule 4.
        """
        needed: set[str] = set()
        for key_id in (*snapshot_key_ids, *(key.key_id for key in self.column_keys)):
            # A snapshot may name a key that was shredded, and needs no KEK for it any more.
            if (entry := self._entries.get(key_id)) is None:
                continue
            needed.add(key_id)
            if entry.encrypted_by_id in self._entries:
                needed.add(entry.encrypted_by_id)

        return needed | {entry.key_id for entry in self.column_declarations if entry.encrypted_by_id in needed}


def is_kept_by_commits(name: str) -> bool:
    """Whether a property is a copy or a mark, which commits write and nobody sets by hand."""
    return name.startswith((ENTRY_PREFIX, GONE_PREFIX))


def is_copy(name: str) -> bool:
    """Whether a property is a copy of an entry."""
    return name.startswith(ENTRY_PREFIX)


def is_own(entry: EncryptedKey) -> bool:
    """Whether an entry is one of those that have a copy: of columns, and not the table's own keys."""
    return any(name.startswith(_OWN) for name in entry.properties or {})


def is_gone(entry: EncryptedKey, properties: Mapping[str, Any]) -> bool:
    """Whether an entry is marked as removed on purpose (rule 3). The table's own keys never are."""
    return is_own(entry) and is_marked(entry.key_id, properties)


def is_marked(key_id: str, properties: Mapping[str, Any]) -> bool:
    """Whether a mark says that the column entry of this id was removed on purpose."""
    return _mark_name(key_id) in properties


def entries_with_copies(entries: Iterable[EncryptedKey], properties: Mapping[str, Any]) -> list[EncryptedKey]:
    """Return the keys of a version of metadata: the entries that count, and after them those of which there is a copy alone, KEKs first.

    Args:
        entries: of `encryption-keys`.
        properties: the table's.
    """
    # Few tables have marks: without them no key-id is hashed.
    has_marks = any(name.startswith(GONE_PREFIX) for name in properties)
    present = {entry.key_id: entry for entry in entries if not (has_marks and is_gone(entry, properties))}
    copies: dict[str, EncryptedKey] = {}

    for name, value in properties.items():
        key_id = name.removeprefix(ENTRY_PREFIX)
        if not name.startswith(ENTRY_PREFIX) or key_id in present or is_marked(key_id, properties):
            continue
        if (entry := _entry(key_id, value)) is not None:
            copies[key_id] = entry

    leaves = [each for each in copies.values() if not each.is_wrapped_by_kms and each.encrypted_by_id in {**present, **copies}]
    # A KEK with nothing below it opens nothing, so that its copy is not brought back.
    keks = dict.fromkeys(each.encrypted_by_id for each in leaves if each.encrypted_by_id not in present)

    return [*present.values(), *(copies[str(kek)] for kek in keks), *leaves]


def stored_entries(entries: Iterable[EncryptedKey], properties: Mapping[str, Any]) -> list[EncryptedKey]:
    """Return every entry that a metadata file stores, whether it counts or not: those of `encryption-keys`, and every copy."""
    copies = (_entry(name.removeprefix(ENTRY_PREFIX), value) for name, value in properties.items() if is_copy(name))
    return [*entries, *(copy for copy in copies if copy is not None)]


def copy_of(entry: EncryptedKey) -> tuple[str, str]:
    """Return the name and the value of the property that is an entry's copy."""
    fields = entry.model_dump(exclude={"key_id"})
    return ENTRY_PREFIX + entry.key_id, json.dumps(fields, separators=(",", ":"))


def mark_of(entry: EncryptedKey) -> tuple[str, str]:
    """Return the name and the value of the property that says that an entry was removed on purpose."""
    return mark(entry.key_id, entry.field_id if entry.is_column_key else _NO_COLUMN)


def mark(key_id: str, field_id: int) -> tuple[str, str]:
    """Return the same for the key of a column of which nothing but the id is known."""
    return _mark_name(key_id), str(field_id)


def _mark_name(key_id: str) -> str:
    return GONE_PREFIX + hashlib.sha256(key_id.encode()).hexdigest()[:_HASH_DIGITS]


def _entry(key_id: str, value: object) -> EncryptedKey | None:
    try:
        fields = json.loads(str(value))
        # The property's name says the id, whatever the value says: a copy cannot stand for another entry.
        entry = EncryptedKey.model_validate({**fields, "key-id": key_id})
    # Whoever may commit writes properties: one that cannot be read must not keep the table from opening.
    except (ValueError, TypeError, RecursionError, ValidationError):
        return None

    # Else a property could bring back a KEK or a manifest-list key of the table that was shredded.
    return entry if is_own(entry) else None
