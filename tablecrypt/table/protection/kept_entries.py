"""Commits keep the copies of column entries: see keys/column_entries.py, rule 4.

Every manifest list names the keys of columns that the table had then, authenticated as it is. So a commit knows a key that is gone without
a mark, even where its entry and its copy both are, and makes no new key beside it: rows would be in the table under two keys of which one
is nowhere, and nobody would hear of it before they are read.

    updates of a commit ──▶ entries to bring back ─ updates ─ copies to remove ─ copies and marks to set

A catalog that commits in this process does so on the metadata that it finds; a REST server is sent what this client's metadata asks for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate

from tablecrypt.errors import KeyNotFoundError
from tablecrypt.keys.column_entries import copy_of, entries_with_copies, is_copy, is_marked, is_own, mark_of
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.keys.key_ring import EncryptedKey
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata
from tablecrypt.table.updates import AddEncryptionKeyUpdate, RemoveEncryptionKeyUpdate


def with_copies(before: TableMetadata | None, updates: tuple[TableUpdate, ...]) -> tuple[TableUpdate, ...]:
    """Return a commit's updates with those that keep the copies of column entries.

    Args:
        before: what the commit is based on; None for a new table.
        updates: the commit's; none leave the table as it is.
    """
    if not updates or not (before is None or isinstance(before, EncryptedTableMetadata)):
        return updates

    entries, properties = ([], {}) if before is None else (before.encryption_keys, before.properties)
    own = {entry.key_id: entry for entry in entries_with_copies(entries, properties) if is_own(entry)}
    stored = {entry.key_id: entry for entry in entries if is_own(entry)}
    # An engine that knows nothing of column entries dropped these from `encryption-keys`, and kept their copies.
    back = [entry for key_id, entry in own.items() if key_id not in stored]
    # Marked as removed on purpose: a server or an engine that put them back must not revive a shredded key.
    revived = [key_id for key_id in stored if key_id not in own]

    after = _after(own, updates)
    marks = dict(mark_of(entry) for key_id, entry in own.items() if key_id not in after)
    copies = dict(copy_of(entry) for entry in after.values())
    # A REST server that runs this package is sent removals that it would add again.
    sent = {name for update in updates if isinstance(update, RemovePropertiesUpdate) for name in update.removals}
    removed = [name for name in properties if is_copy(name) and name not in copies and name not in sent]
    # What is there already is not set again, so that most commits get no update.
    written = {name: value for name, value in {**copies, **marks}.items() if properties.get(name) != value}

    return (
        # These before the commit's own updates, which may remove or replace what comes back.
        *(cast("TableUpdate", RemoveEncryptionKeyUpdate(key_id=key_id)) for key_id in revived),
        *(cast("TableUpdate", AddEncryptionKeyUpdate(key=entry)) for entry in back),
        *updates,
        *((RemovePropertiesUpdate(removals=removed),) if removed else ()),
        *((SetPropertiesUpdate(updates=written),) if written else ()),
    )


def _after(own: dict[str, EncryptedKey], updates: Iterable[Any]) -> dict[str, EncryptedKey]:
    """Return the column entries that a commit leaves."""
    left = dict(own)
    for update in updates:
        if isinstance(update, RemoveEncryptionKeyUpdate):
            left.pop(update.key_id, None)
        elif isinstance(update, AddEncryptionKeyUpdate) and is_own(update.key):
            left[update.key.key_id] = update.key

    return left


def named_column_keys(metadata: EncryptedTableMetadata, snapshot: Snapshot | None, io: FileIO) -> frozenset[tuple[int, str]]:
    """Return the keys of columns that a snapshot's manifest list names, each with its column's field id.

    A list of an engine that knows nothing of protected columns names none. Then that of the snapshot before says it, as long as they are
    from after the first protected column was declared.
    """
    columns = ColumnPolicy.from_properties(metadata.properties).columns.values()
    first = min((column.since or 0 for column in columns), default=None)
    while isinstance(snapshot, EncryptedSnapshot) and snapshot.key_id is not None:
        header = snapshot.known_header(io)
        if header.column_keys or header.protected_columns or first is None or header.sequence_number <= first:
            return header.column_keys
        snapshot = None if header.parent_snapshot_id is None else metadata.snapshot_by_id(header.parent_snapshot_id)

    return frozenset()


def lost_column_keys(metadata: EncryptedTableMetadata, named: Iterable[tuple[int, str]]) -> dict[int, tuple[str, ...]]:
    """Return those of the named keys that the table has no more, and that nobody removed on purpose, by field id."""
    ring = metadata.key_ring
    lost: dict[int, tuple[str, ...]] = {}
    for field_id, key_id in sorted(named):
        if key_id not in ring and not is_marked(key_id, metadata.properties):
            lost[field_id] = (*lost.get(field_id, ()), key_id)
    return lost


def refuse_beside_lost(metadata: EncryptedTableMetadata, named: Iterable[tuple[int, str]], new: Iterable[EncryptedKey]) -> None:
    """Refuse a new key of a column of which another is lost.

    New is also a key that the table has and that list does not name: a declaration, or a statement that replaces the table, has made it.

    Args:
        metadata: what the commit is based on.
        named: the keys that the manifest list before names.
        new: the entries that the commit adds.

    Raises:
        KeyNotFoundError: one of them is of such a column.
    """
    known = frozenset(named)
    lost = lost_column_keys(metadata, known)
    for entry in (*new, *metadata.key_ring.column_keys):
        if entry.is_column_key and entry.field_id in lost and (entry.field_id, entry.key_id) not in known:
            column = metadata.key_ring.column(entry.field_id)
            raise KeyNotFoundError(
                f"column key {lost[entry.field_id][0]} of {column}, under which files were written, is gone from the table, and nobody "
                "shredded it: no new key is made beside it. rescue brings it back from older metadata; if it is to be gone, shred_column"
            )


def still_named(
    metadata: EncryptedTableMetadata, named: Iterable[tuple[int, str]], new: Iterable[EncryptedKey]
) -> frozenset[tuple[int, str]]:
    """Return the keys that the next manifest list names: those of the table, those that come with it, and those that are lost.

    As long as a key of a column is lost, none that was made since is named beside it: see `refuse_beside_lost`.
    """
    known = frozenset(named)
    lost = lost_column_keys(metadata, known)
    entries = (entry for entry in (*metadata.key_ring.column_keys, *new) if entry.is_column_key)
    present = ((entry.field_id, entry.key_id) for entry in entries if entry.field_id not in lost or (entry.field_id, entry.key_id) in known)
    return frozenset((*present, *((field_id, key_id) for field_id, key_ids in lost.items() for key_id in key_ids)))
