"""The copies of column entries that a table keeps in its properties, and the marks of those that were removed on purpose. Pure.

An engine that knows nothing of protected columns may drop every entry of `encryption-keys` that no snapshot leads to: files name column
keys, metadata does not. Such an engine keeps properties as they are. So each entry of this package's own, which a property beginning with
`tablecrypt.` tells, is in the table's properties as well:

    encryption.column-entry.<key-id> = {"encrypted-key-metadata":"…","encrypted-by-id":"…","properties":{…}}
    encryption.column-gone.<hash>    = the field id of a column key that was removed on purpose, 0 for another entry

One property for each entry, so that no writer overwrites another's. A copy holds wrapped bytes alone, as the entry does. The hash is the
first 32 hexadecimal digits of SHA-256 of the key-id: shredding searches files that cannot be parsed for the ids themselves, and a commit on
its way that holds a mark is none of those.

Rules:
    1. An entry in `encryption-keys` counts where its copy says otherwise: releases that know no copies change entries alone. Whoever can
       edit one can edit the other, and neither is authenticated: what an entry opens is, by its KEK and its AAD.
    2. Where there is no entry, its copy is the entry. A copy of a KEK counts below which a copy is that counts, and a copy whose KEK is
       nowhere does not. A copy that cannot be read, or is of an entry that is not this package's own, is none: it brings no key of a table.
    3. A mark beats both: a writer who began before a key was shredded, a server or an engine that puts old entries back brings none back.
       Who removes the mark as well has the old entry, and could use it without the table.
    4. A commit through this package writes, removes and marks a copy with its entry, writes the copies that are missing, and brings back
       the entries that are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import ValidationError

from tablecrypt.keys.key_ring import EncryptedKey

ENTRY_PREFIX: Final = "encryption.column-entry."
GONE_PREFIX: Final = "encryption.column-gone."
_OWN: Final = "tablecrypt."
_NO_COLUMN: Final = 0
_HASH_DIGITS: Final = 32


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
