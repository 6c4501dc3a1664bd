"""Finding keys that a table's metadata has lost in the metadata files it left behind, and committing them back.

    snapshot names key K ─▶ K or its KEK is not in encryption-keys, or does not open
                                 │
        files that were given, then older metadata ─▶ every K and KEK that they hold
                                 │ K opens under the KEK, and the snapshot's manifest list under K, header included?
                                 ▼
                          one commit: the entries are back

Nothing is believed that does not open: the KMS authenticates a KEK, the KEK a manifest-list key, and that the list of this very snapshot.
Where the snapshot's key opens and its list does not, nothing under another KEK is: that KEK is there, and others may know an earlier one.

Keys of protected columns that a table has lost with their copies are looked for in the same files:

    manifest lists name the keys of columns ─▶ neither in encryption-keys, nor a copy, nor marked as removed on purpose: lost
    older metadata: entries and copies      ─▶ those of that id and column whose KEK is under a master key of the column
    the KMS opens the KEK, that the key     ─▶ both are put back, with the column's declarations under that key

A key that was shredded stays shredded: its mark says so. A user without a column's master key puts none of its keys back, since nothing
else tells a true entry from one that was made up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.update import TableUpdate
from pyiceberg.utils.concurrent import ExecutorFactory

from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import (
    AuthenticationError,
    ColumnKeyDeniedError,
    ConfigurationError,
    FormatError,
    KeyIdChangedError,
    KeyNotFoundError,
    KmsError,
    MasterKeyMismatchError,
    PlaintextRefusedError,
)
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.keys.key_ring import EncryptedKey, KeyChain, KeyRing, is_gone, is_own, stored_entries
from tablecrypt.maintenance._key_commit import commit_keys
from tablecrypt.maintenance._storage import OlderMetadata, older_metadata, read_older
from tablecrypt.maintenance.operation import Counted, OperationResult, ProgressListener, no_progress, reload
from tablecrypt.printable import counted, shown
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import name_of
from tablecrypt.table.updates import added_keys, lost_column_keys, removed_snapshots, replaced_keys

_DOES_NOT_OPEN = (AuthenticationError, FormatError, KeyIdChangedError, KeyNotFoundError)
_NOWHERE: Final = "is in no metadata file that was found: give one that holds it, or shred_column ends the column's earlier values"
_CANNOT_TELL: Final = (AuthenticationError, FormatError, KeyIdChangedError, KeyNotFoundError, FileNotFoundError, PlaintextRefusedError)


@dataclass(frozen=True)
class Rescued(OperationResult):
    """What `rescue` did.

    Attributes:
        snapshots: ids of the snapshots that can be read again.
        keys: key-ids of the entries that were put back.
        found_in: the metadata files that held them.
        expired: ids of the snapshots that went because their keys are nowhere.
        damaged: ids of the snapshots whose keys open and whose manifest lists do not, so that no key helps them.
        unreadable: for each metadata file that could not be read, why.
        column_keys_left: for each key of a protected column that is lost still, why it was not put back.
    """

    snapshots: tuple[int, ...] = field(metadata=shown("snapshots that can be read again"))
    keys: tuple[str, ...]
    found_in: tuple[str, ...] = field(metadata=shown("keys found in"))
    expired: tuple[int, ...] = field(metadata=shown("snapshots removed, since their keys are nowhere", is_whole=True))
    damaged: tuple[int, ...] = field(metadata=shown("snapshots whose manifest lists are damaged, though their keys open", is_whole=True))
    unreadable: dict[str, str] = field(metadata=shown("metadata files that could not be read", is_whole=True))
    column_keys_left: dict[str, str] = field(default_factory=dict, metadata=shown("keys of columns that stay lost", is_whole=True))

    def summary(self) -> str:
        """Return what was done in one sentence."""
        if self.keys:
            keys = counted(len(self.keys), "lost key", "lost keys")
            return f"{self._did('Put', 'Would put')} {keys} of {self.table} back into its metadata."
        if self.expired:
            snapshots = counted(len(self.expired), "snapshot", "snapshots")
            return f"{self._did('Removed', 'Would remove')} {snapshots} of {self.table} whose keys are nowhere."
        if self.column_keys_left:
            return f"{self.table} lacks {counted(len(self.column_keys_left), 'key', 'keys')} of columns, and none was found that opens."

        return f"{self.table} lacks no key: nothing {self._did('was', 'would be')} put back."


@dataclass(frozen=True)
class _Found:
    """The snapshots whose keys were found, those keys by id, and where they were; files that cannot be read, and snapshots still broken."""

    snapshots: tuple[int, ...]
    entries: dict[str, EncryptedKey]
    found_in: tuple[str, ...]
    unreadable: dict[str, str]
    broken: list[EncryptedSnapshot]
    column_keys_left: dict[str, str]


@dataclass(frozen=True)
class _Plan:
    """What was found; ids of the keys to put back; snapshots whose keys are nowhere, and those whose keys open and whose files do not."""

    found: _Found
    keys: tuple[str, ...]
    lost: list[EncryptedSnapshot]
    damaged: tuple[int, ...]
    updates: tuple[TableUpdate, ...]


@checked_arguments()
def rescue(
    table: Table,
    metadata: Sequence[str] | None = None,
    expire_lost: bool = False,
    dry_run: bool = False,
    progress: ProgressListener = no_progress,
) -> Rescued:
    """Put back the keys that an encrypted table's metadata has lost.

    For a table whose metadata another tool wrote and dropped entries of `encryption-keys`. It does NOT help against a lost master key, nor
    bring back a file, and of snapshots it does NOT ask whether a key is gone on purpose: given a metadata file from before a `shred`, it
    brings back what that destroyed. A column that was shredded stays shredded. Keys of a protected column come back by who may use the
    column's master key. A snapshot without `key-id` cannot be rescued: what it would name is not known.

    Killed at any moment, either all that was found is back or nothing. Calling it again finds nothing more to do.

    Args:
        table: an encrypted table. Its state in memory is brought up to date.
        metadata: location of a metadata file that may hold the keys, or several; asked before those that the table left behind.
        expire_lost: whether to remove the snapshots whose keys are nowhere. One that a branch or tag points to is never removed.
        dry_run: only say what would be put back.
        progress: listener for reports of the snapshots whose keys were tried.

    Raises:
        ConfigurationError: the table is not encrypted, or a given file is not metadata of this table.
        KeyNotFoundError: the key of a snapshot is nowhere, and `expire_lost` is not set or a branch or tag needs it; nothing has changed.
        KmsError: the KMS was not reached, or refused a key without which a snapshot does not open; nothing has changed.
        MasterKeyMismatchError: no KEK opens, since another master key wrapped them; nothing has changed.
        CommitFailedException: others committed too often in the meantime; nothing has changed.
    """
    given, counted = list(metadata or ()), Counted("rescue", "snapshots", progress)

    def plan(fresh: EncryptedTable) -> _Plan:
        return _plan(fresh, given, expire_lost, counted)

    done = plan(reload(table)) if dry_run else commit_keys(table, plan).plan
    return Rescued(
        table=name_of(table),
        dry_run=dry_run,
        snapshots=done.found.snapshots,
        keys=done.keys,
        found_in=done.found.found_in,
        expired=tuple(snapshot.snapshot_id for snapshot in done.lost),
        damaged=done.damaged,
        unreadable=done.found.unreadable,
        column_keys_left=done.found.column_keys_left,
    )


def _plan(table: EncryptedTable, given: list[str], expire_lost: bool, counted: Counted) -> _Plan:
    current, opener = table.metadata, _Opener(table)
    found = _search(table, opener, opener.broken(counted), given)
    # A key that opens is not lost: expiring its snapshot would lose what a restored file brings back.
    damaged = [each.snapshot_id for each in found.broken if opener.opens(current.key_ring, str(each.key_id))]
    lost = [each for each in found.broken if each.snapshot_id not in damaged]
    if lost and opener.refusal is not None:
        # Whether a key is lost or only refused cannot be told apart: no snapshot expires for want of a permission.
        raise opener.refusal
    if lost and opener.mismatch is not None and not opener.has_opened:
        # Nothing at all has opened: that is the wrong key service, and not lost entries.
        raise opener.mismatch

    _refuse_to_lose(table, lost, expire_lost)
    known = {entry.key_id: entry for entry in current.encryption_keys}
    entries = [entry for entry in found.entries.values() if known.get(entry.key_id) != entry]
    put_back = [replaced_keys([entry]) if entry.key_id in known else added_keys([entry]) for entry in entries]
    expired = removed_snapshots(current, [snapshot.snapshot_id for snapshot in lost])
    updates = (*chain.from_iterable(put_back), *expired)

    return _Plan(found, tuple(entry.key_id for entry in entries), lost, tuple(damaged), updates)


def _search(table: EncryptedTable, opener: _Opener, broken: list[EncryptedSnapshot], given: list[str]) -> _Found:
    """Look for the keys of snapshots in one metadata file after the other, until all are found."""
    snapshots: list[int] = []
    entries: dict[str, EncryptedKey] = {}
    found_in: list[str] = []
    unreadable: dict[str, str] = {}
    candidates, sources, columns = _Candidates(opener, table.metadata), _sources(table, given), LostColumnKeys(table)

    while (broken or columns.left) and (source := next(sources, None)) is not None:
        if source.metadata is None:
            unreadable[source.location] = source.problem
            continue

        candidates.add(source.metadata)
        # A key may be in one file and its KEK in another: everything that was found so far is tried together.
        opened = {each.snapshot_id: keys for each in broken if (keys := candidates.chain_of(each)) is not None}
        if columns.look_in(source.metadata) or opened:
            found_in.append(source.location)
        snapshots += opened
        entries |= {entry.key_id: entry for keys in opened.values() for entry in (keys.kek, keys.manifest_list_key)}
        broken = [each for each in broken if each.snapshot_id not in opened]

    return _Found(tuple(snapshots), entries | columns.found, tuple(found_in), unreadable, broken, columns.left)


class _Opener:
    """Tries keys on the snapshots of one table.

    Attributes:
        refusal: what the KMS said when it refused a key. An old version of the master key may be gone, or a permission may be missing:
            that is told apart by whether every snapshot opens in the end.
        mismatch: what was said of a KEK that its master key does not open. If another one opens, an edit changed that KEK's entry.
        has_opened: whether any KEK has opened.
    """

    def __init__(self, table: EncryptedTable) -> None:
        self._table = table
        self.refusal: KmsError | None = None
        self.mismatch: MasterKeyMismatchError | None = None
        self.has_opened = False

    def broken(self, counted: Counted) -> list[EncryptedSnapshot]:
        """Return the snapshots that have a key-id and whose manifest lists do not open."""
        metadata = self._table.metadata
        ring = metadata.key_ring
        snapshots = [snapshot for snapshot in metadata.snapshots if snapshot.key_id is not None]
        read = ExecutorFactory.get_or_create().map(lambda snapshot: self.reads(snapshot, ring), snapshots)
        return [snapshot for snapshot, is_read in zip(counted.track(snapshots), read, strict=True) if not is_read]

    def reads(self, snapshot: EncryptedSnapshot, ring: KeyRing) -> bool:
        """Whether a snapshot's manifest list opens with these keys, and is this snapshot's."""
        # The list and not the key alone: the key of another snapshot opens under the same KEK.
        return self._succeeds(lambda: snapshot.bound_to(ring).manifests(self._table.io))

    def opens(self, ring: KeyRing, key_id: str) -> bool:
        """Whether a manifest-list key opens under its KEK, whatever it opens in turn."""
        return self._succeeds(lambda: self._table.io.manager.decrypt_manifest_list_key_metadata(ring.chain(key_id)))

    def _succeeds(self, attempt: Callable[[], object]) -> bool:
        try:
            attempt()
        except MasterKeyMismatchError as error:
            self.mismatch = error
            return False
        except (*_DOES_NOT_OPEN, FileNotFoundError):
            return False
        except KmsError as error:
            if error.retryable:
                # A key service that does not answer for the moment says nothing about the key.
                raise
            self.refusal = error
            return False

        self.has_opened = True
        return True


def _sources(table: EncryptedTable, given: list[str]) -> Iterator[OlderMetadata]:
    # Read at once: one that is misspelt is refused also where the table lacks no key, or the others hold all that it lacks.
    return chain([_given(table, location) for location in given], older_metadata(table))


def _given(table: EncryptedTable, location: str) -> OlderMetadata:
    # As an unset variable leaves it. It would be the folder that the process runs in.
    if not location.strip():
        raise ConfigurationError(
            "metadata is blank: give the location of a metadata file, or leave it out for those that the table left behind"
        )
    source = read_older(table, location, is_given=True)
    if source is None or source.is_of_another:
        raise ConfigurationError(f"{location} is not there, or is not metadata of {name_of(table)}")
    if source.parsed is None:
        raise ConfigurationError(f"{location} is not metadata of {name_of(table)}: {source.problem}")
    return source


def _refuse_to_lose(table: EncryptedTable, lost: list[EncryptedSnapshot], expire_lost: bool) -> None:
    if not lost:
        return

    named = {ref.snapshot_id: name for name, ref in table.metadata.refs.items()}
    # A branch or tag needs its snapshot: the loss of a head must not pass for tidying up.
    needed = [snapshot for snapshot in lost if not expire_lost or snapshot.snapshot_id in named]
    if not needed:
        return

    snapshots = ", ".join(
        f"{each.snapshot_id} ({named[each.snapshot_id]})" if each.snapshot_id in named else str(each.snapshot_id) for each in needed
    )
    raise KeyNotFoundError(
        f"{name_of(table)}: the keys of snapshots {snapshots} are in no metadata file that was found: give a file that holds them; "
        "expire_lost removes those of them that no branch or tag points to"
    )


class _Candidates:
    """Every entry that the current metadata and the sources so far have for an id."""

    def __init__(self, opener: _Opener, current: EncryptedTableMetadata) -> None:
        self._opener = opener
        self._ring = current.key_ring
        self._entries: dict[str, list[EncryptedKey]] = {}
        self.add(current)

    def add(self, metadata: EncryptedTableMetadata) -> None:
        """Take over the entries of a metadata file."""
        for entry in metadata.encryption_keys:
            known = self._entries.setdefault(entry.key_id, [])
            if entry not in known:
                known.append(entry)

    def chain_of(self, snapshot: EncryptedSnapshot) -> KeyChain | None:
        """Return the keys that open a snapshot's manifest list; None where no two of the entries do."""
        key_id = snapshot.key_id or ""
        # A KEK that the table has is not lost. Of two entries under it one may be the right one; but who writes storage and knew an earlier
        # KEK could have exchanged the list, and made an older file of their own.
        own = self._ring.chain(key_id).kek if self._opener.opens(self._ring, key_id) else None

        # Nothing authenticates ids: files may have different entries under one id, and only opening tells.
        for key in self._entries.get(key_id, ()):
            for kek in self._entries.get(key.encrypted_by_id or "", ()):
                if own in (None, kek) and self._opener.reads(snapshot, KeyRing([kek, key])):
                    return KeyChain(key, kek)
        return None


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
