"""What a shredding takes, found before any key goes. Nothing is changed.

    older metadata files, each read once and let go    ─▶ OlderFiles: the KEKs that each holds, and a key for every snapshot
    current metadata, OlderFiles                       ─▶ the snapshots that are selected, and the KEKs to retire
    manifests of live snapshots and of selected ones   ─▶ Inventory: what becomes of each data file

    entry of a selected snapshot's manifests, with a DEK                                            file is
        also a live entry of a live snapshot's                                                      live: shared, and stays
        else a deleted entry of a live snapshot's, which keeps the file's DEK as every entry does    still opened by that snapshot
        else                                                                                        shredded

A file that only deleted entries of live snapshots name is still opened too: it was of a snapshot whose keys went before. Snapshots whose
keys are gone already cannot be looked into: what they alone held is shredded, and its names are not known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.utils.concurrent import ExecutorFactory

from tablecrypt.errors import (
    AuthenticationError,
    ConfigurationError,
    FormatError,
    KeyIdChangedError,
    KeyNotFoundError,
    KmsError,
    MasterKeyMismatchError,
    PlaintextRefusedError,
)
from tablecrypt.keys.key_ring import KeyRing, stored_entries
from tablecrypt.maintenance._storage import OlderMetadata, older_metadata, read_older
from tablecrypt.maintenance.operation import Counted
from tablecrypt.manifests.manifest_file import EncryptedManifestFile
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import TableFileIO, heads_of, name_of

_OUT_OF_REACH: Final = (AuthenticationError, FormatError, KeyIdChangedError, KeyNotFoundError, PlaintextRefusedError, FileNotFoundError)


@dataclass(frozen=True)
class Unread:
    """A file that is no readable metadata with keys: whether a metadata-log names it, and why it cannot be read, if so.

    Of another table's, and only where a log names it, `is_of_another` is set.
    """

    is_logged: bool
    problem: str
    is_of_another: bool = False


@dataclass(frozen=True)
class OlderFiles:
    """What shredding asks of a table's older metadata files. Of each file only this is kept in memory.

    Attributes:
        keks: key-ids of the KEKs that each file holds, by its location.
        unread: files that are not, or not yet, readable as metadata with keys.
        snapshots: the snapshots that the files name, by id: of the newest file that has its key, else of the newest that names it.
            Each is bound to its own key alone.
        wrapped: ids of the keys that each key wraps.
        columns: ids of the column KEKs above keys of each protected column, by field id.
    """

    keks: Mapping[str, frozenset[str]] = field(default_factory=dict)
    unread: Mapping[str, Unread] = field(default_factory=dict)
    snapshots: Mapping[int, EncryptedSnapshot] = field(default_factory=dict)
    wrapped: Mapping[str, frozenset[str]] = field(default_factory=dict)
    columns: Mapping[int, frozenset[str]] = field(default_factory=dict)

    def column_keks(self, field_id: int) -> frozenset[str]:
        """Return the column KEKs that wrap a key of this column in some file."""
        return self.columns.get(field_id, frozenset())

    def retired_keks(self, current: EncryptedTableMetadata) -> frozenset[str]:
        """Return the KEKs that some file holds and the current metadata does not."""
        return frozenset().union(*self.keks.values()) - kek_ids(current)

    def holding(self, keks: frozenset[str]) -> frozenset[str]:
        """Return the files that hold one of these KEKs."""
        return frozenset(location for location, held in self.keks.items() if not held.isdisjoint(keks))

    def without(self, locations: frozenset[str]) -> OlderFiles:
        """Return the other files."""
        return replace(self, keks={location: keks for location, keks in self.keks.items() if location not in locations})

    def logged_retired_keks(self, current: EncryptedTableMetadata) -> frozenset[str]:
        """Return those that files hold which were the table's before the current metadata: its log names them."""
        logged = (self.keks.get(entry.metadata_file, frozenset()) for entry in current.metadata_log)
        return frozenset().union(*logged) - kek_ids(current)


class _Reader:
    """Takes from older metadata files, newest first, what `OlderFiles` keeps."""

    def __init__(self, current: EncryptedTableMetadata) -> None:
        ring = current.key_ring
        self._in_current = {snapshot.snapshot_id for snapshot in current.snapshots if snapshot.key_id in ring}
        self._layout = (current, current.stated_layout)
        self._shared: dict[frozenset[str], frozenset[str]] = {}
        self._keyed: dict[int, EncryptedSnapshot] = {}
        self._keyless: dict[int, EncryptedSnapshot] = {}
        self._wrapped: dict[str, set[str]] = {}
        self._columns: dict[int, set[str]] = {}
        self._keks: dict[str, frozenset[str]] = {}
        self._unread: dict[str, Unread] = {}

    def read(self, file: OlderMetadata) -> None:
        """Take what one file says."""
        if file.metadata is None:
            self._unread[file.location] = Unread(file.is_logged, file.problem, file.is_of_another)
            return

        # Copies in the properties too: each opens what its entry opened.
        held = stored_entries(file.metadata.encryption_keys, file.metadata.properties)
        keks = frozenset(key.key_id for key in held if key.is_wrapped_by_kms)
        # Many files hold the same KEKs: one set stands for all of them in memory.
        self._keks[file.location] = self._shared.setdefault(keks, keks)
        for key in held:
            if key.encrypted_by_id is not None:
                self._wrapped.setdefault(key.encrypted_by_id, set()).add(key.key_id)
        for key in (key for key in held if key.is_column_key):
            self._columns.setdefault(key.field_id, set()).add(str(key.encrypted_by_id))
        self._read_snapshots(file.metadata)

    def after(self, before: OlderFiles) -> OlderFiles:
        """Return what was known before together with what was read."""
        older_keyed = {each: snapshot for each, snapshot in before.snapshots.items() if each not in self._keyed}
        return OlderFiles(
            keks={**before.keks, **self._keks},
            unread=self._unread,
            snapshots={**self._keyless, **older_keyed, **self._keyed},
            wrapped={
                kek: before.wrapped.get(kek, frozenset()) | self._wrapped.get(kek, set()) for kek in {**before.wrapped, **self._wrapped}
            },
            columns={
                each: before.columns.get(each, frozenset()) | self._columns.get(each, set()) for each in {**before.columns, **self._columns}
            },
        )

    def _read_snapshots(self, metadata: EncryptedTableMetadata) -> None:
        ring = metadata.key_ring
        for snapshot in metadata.snapshots:
            # One without a key-id is of a time before the table was encrypted: there is no key to destroy.
            if snapshot.key_id is None or snapshot.snapshot_id in self._in_current or snapshot.snapshot_id in self._keyed:
                continue
            found = self._keyed if snapshot.key_id in ring else self._keyless
            found.setdefault(snapshot.snapshot_id, self._bound_alone(snapshot, metadata, ring))

    def _bound_alone(self, snapshot: EncryptedSnapshot, metadata: EncryptedTableMetadata, ring: KeyRing) -> EncryptedSnapshot:
        """Return a snapshot that does not keep the keys, schemas and specs of its whole file in memory."""
        assert snapshot.key_id is not None
        own = KeyRing(ring.entry(key_id) for key_id in ring.needed_by([snapshot.key_id]))
        # Most files have the layout of the one before, which is then not derived again.
        if _parts_of_layout(metadata) != _parts_of_layout(self._layout[0]):
            self._layout = (metadata.without_history(), metadata.stated_layout)
        return snapshot.bound_to(own, self._layout[1].read_with(snapshot.schema_id))


def _parts_of_layout(metadata: EncryptedTableMetadata) -> tuple[object, ...]:
    parts = (metadata.schemas, metadata.current_schema_id, metadata.partition_specs)
    return (*parts, metadata.sort_orders, metadata.table_uuid)


def inspect_older(table: EncryptedTable, before: OlderFiles | None = None) -> OlderFiles:
    """Read the older metadata files of a table that were not read before."""
    before = before or OlderFiles()
    reader = _Reader(table.metadata)
    found = set()
    for file in older_metadata(table, before.keks):
        found.add(file.location)
        reader.read(file)
    # What could not be read may be complete by now, in a folder that is no longer the table's too.
    for location, unread in before.unread.items():
        if location in found or (again := read_older(table, location)) is None:
            continue
        if unread.is_logged or not again.is_of_another:
            reader.read(replace(again, is_logged=unread.is_logged))
    return reader.after(before)


@dataclass(frozen=True)
class Inventory:
    """What a shredding means for data and delete files.

    Attributes:
        shredded: files that nothing in the table opens any more.
        live: files of selected snapshots that live ones share.
        still_opened: files that no live snapshot has, and whose DEKs live snapshots' manifests hold, as deleted; with those snapshots' ids.
        unknown: ids of selected snapshots that could not be looked into.
    """

    shredded: tuple[str, ...] = ()
    live: tuple[str, ...] = ()
    still_opened: dict[str, tuple[int, ...]] = field(default_factory=dict)
    unknown: tuple[int, ...] = ()


class _Entry(NamedTuple):
    path: str
    is_deleted: bool
    has_key: bool


class _InventoryTaker:
    """Reads the manifests of snapshots, each manifest once."""

    def __init__(self, io: TableFileIO) -> None:
        self._io = io
        self._entries: dict[str, list[_Entry]] = {}
        self._live: set[str] = set()
        self._deleted: dict[str, set[int]] = {}
        self._selected: dict[str, None] = {}
        self._unknown: list[int] = []
        self._mismatch: MasterKeyMismatchError | None = None
        self._has_opened = False

    def add_live(self, snapshot: EncryptedSnapshot) -> None:
        """Note the files of a snapshot that stays. What cannot be read is raised."""
        # Raised and not noted: without knowing what live snapshots share, nothing can be called shredded.
        for entry in self._entries_of(snapshot):
            if not entry.is_deleted:
                self._live.add(entry.path)
            elif entry.has_key:
                # A deleted entry keeps its file's DEK, so the live manifest still opens the file.
                self._deleted.setdefault(entry.path, set()).add(snapshot.snapshot_id)

    def add_selected(self, snapshot: EncryptedSnapshot) -> None:
        """Note the files of a snapshot that goes, or that it cannot be read."""
        try:
            entries = self._entries_of(snapshot)
        except MasterKeyMismatchError as error:
            # Kept for the end: whether another master key wrapped everything is known once all snapshots were tried.
            self._mismatch = error
            self._unknown.append(snapshot.snapshot_id)
        except _OUT_OF_REACH:
            self._unknown.append(snapshot.snapshot_id)
        except KmsError as error:
            # An old metadata file may hold a KEK as a version of the master key wrapped it that is gone since.
            if error.retryable:
                raise
            self._unknown.append(snapshot.snapshot_id)
        else:
            self._selected.update({entry.path: None for entry in entries if not entry.is_deleted or entry.has_key})

    def inventory(self) -> Inventory:
        """Say what becomes of the files, once all snapshots were added.

        Raises:
            MasterKeyMismatchError: nothing opens, since the table's master key is another than the one that wrapped its KEKs.
        """
        if self._mismatch is not None and not self._has_opened:
            raise self._mismatch

        not_live = [path for path in self._selected if path not in self._live]
        return Inventory(
            shredded=tuple(path for path in not_live if path not in self._deleted),
            live=tuple(path for path in self._selected if path in self._live),
            still_opened={path: tuple(sorted(holders)) for path, holders in self._deleted.items() if path not in self._live},
            unknown=tuple(self._unknown),
        )

    def _entries_of(self, snapshot: EncryptedSnapshot) -> list[_Entry]:
        manifests = snapshot.manifests(self._io)
        self._has_opened = True
        missing = [manifest for manifest in manifests if manifest.manifest_path not in self._entries]
        read = ExecutorFactory.get_or_create().map(self._read, missing)
        self._entries.update({manifest.manifest_path: entries for manifest, entries in zip(missing, read, strict=True)})
        return [entry for manifest in manifests for entry in self._entries[manifest.manifest_path]]

    def _read(self, manifest: ManifestFile) -> list[_Entry]:
        entries = EncryptedManifestFile.of(manifest).read(self._io).entries
        return [
            _Entry(entry.data_file.file_path, entry.status == ManifestEntryStatus.DELETED, bool(entry.data_file.key_metadata))
            for entry in entries
        ]


@dataclass(frozen=True)
class Wanted:
    """The snapshots that a caller wants shredded: those of these ids, or all where there is None."""

    snapshot_ids: frozenset[int] | None

    def has(self, snapshot: EncryptedSnapshot) -> bool:
        """Whether a snapshot is one of them."""
        return self.snapshot_ids is None or snapshot.snapshot_id in self.snapshot_ids

    @classmethod
    def all_but_heads(cls, table: EncryptedTable) -> Wanted:
        """Return those of a table that no branch or tag points to."""
        heads = heads_of(table.metadata)
        return cls(frozenset(snapshot.snapshot_id for snapshot in table.metadata.snapshots) - heads)

    def live(self, metadata: EncryptedTableMetadata) -> list[EncryptedSnapshot]:
        """Return the snapshots that stay."""
        return [snapshot for snapshot in metadata.snapshots if not self.has(snapshot)]

    def also(self, snapshot_ids: frozenset[int]) -> Wanted:
        """Return these and further snapshots."""
        return self if self.snapshot_ids is None else Wanted(self.snapshot_ids | snapshot_ids)

    def check_refs(self, table: EncryptedTable) -> None:
        """Refuse snapshots that a branch or tag points to.

        Raises:
            ConfigurationError: one does, and not the whole table is to go.
        """
        for name, ref in table.metadata.refs.items():
            if self.snapshot_ids is not None and ref.snapshot_id in self.snapshot_ids:
                raise ConfigurationError(
                    f"{name_of(table)}: {ref.snapshot_ref_type} {name} points to snapshot {ref.snapshot_id}: "
                    "commit to it or remove it before the snapshot is shredded"
                )


@dataclass(frozen=True)
class Plan:
    """What a shredding takes.

    Attributes:
        wanted: what the caller wants shredded, and heads of branches that were replaced.
        snapshots: ids of the snapshots that the caller wants shredded, sorted; those of the whole table where that is wanted.
        expired_before: ids of other snapshots that go too.
        not_found: ids of snapshots that no metadata names.
        retired: key-ids of the KEKs that go.
        older: what older metadata files hold.
        inventory: what becomes of data and delete files.
        unsettled: files with such KEKs that came after the last look and that no log names: a commit on its way may make one current.
    """

    wanted: Wanted
    snapshots: tuple[int, ...]
    expired_before: tuple[int, ...]
    not_found: tuple[int, ...]
    retired: frozenset[str]
    older: OlderFiles
    inventory: Inventory
    unsettled: frozenset[str] = frozenset()


def find(table: EncryptedTable, wanted: Wanted, counted: Counted, before: OlderFiles | None = None) -> Plan:
    """Find what a shredding takes. Nothing is changed.

    Args:
        table: as the catalog has it now.
        wanted: the snapshots to shred.
        counted: listener for reports of the snapshots that were looked into.
        before: what is known of older metadata files.

    Raises:
        ConfigurationError: a branch or tag points to one of the snapshots.
        AuthenticationError, KeyNotFoundError, FormatError: a live snapshot cannot be read.
        KmsError: the KMS refused.
    """
    wanted.check_refs(table)
    current, older = table.metadata, inspect_older(table, before)
    live = wanted.live(current)
    selected = _selected(current, older, live)
    asked = frozenset(selected) if wanted.snapshot_ids is None else wanted.snapshot_ids
    retired = older.retired_keks(current)
    if _must_rotate(current, older, live):
        # A KEK that opens more than live snapshots opens it in every copy of the metadata: the live ones get another.
        retired |= _table_kek_ids(current)
    return Plan(
        wanted=wanted,
        snapshots=tuple(sorted(asked)),
        expired_before=tuple(sorted(selected.keys() - asked)),
        not_found=tuple(sorted(asked - selected.keys())),
        retired=retired,
        older=older,
        inventory=_take_inventory(table.io, live, list(selected.values()), counted),
    )


def kek_ids(metadata: EncryptedTableMetadata) -> frozenset[str]:
    """Return the key-ids of the KEKs that metadata holds, those of columns among them."""
    return frozenset(key.key_id for key in metadata.key_ring.entries if key.is_wrapped_by_kms)


def _table_kek_ids(metadata: EncryptedTableMetadata) -> frozenset[str]:
    return frozenset(kek.key_id for kek in metadata.key_ring.keks)


def _selected(current: EncryptedTableMetadata, older: OlderFiles, live: Collection[EncryptedSnapshot]) -> dict[int, EncryptedSnapshot]:
    """Return the snapshots that go: of the current metadata where it has their keys, else of the newest older file that does."""
    live_ids, ring = {snapshot.snapshot_id for snapshot in live}, current.key_ring
    named = {each.snapshot_id: each for each in current.snapshots if each.key_id is not None and each.snapshot_id not in live_ids}
    opened = {each for each, snapshot in named.items() if snapshot.key_id in ring}
    elsewhere = {each: snapshot for each, snapshot in older.snapshots.items() if each not in live_ids and each not in opened}
    return {**named, **elsewhere}


def _must_rotate(current: EncryptedTableMetadata, older: OlderFiles, live: Collection[EncryptedSnapshot]) -> bool:
    """Whether a KEK of the current metadata opens more than the live snapshots."""
    if len(live) < len(current.snapshots):
        return True

    live_keys = {snapshot.key_id for snapshot in live}
    keks = _table_kek_ids(current)
    in_current = {key.key_id for key in current.encryption_keys if key.encrypted_by_id in keks}
    in_older = (older.wrapped.get(kek, frozenset()) for kek in keks)

    # Any key below a current KEK that no live snapshot needs opens an expired one.
    return bool(in_current.union(*in_older) - live_keys)


def _take_inventory(
    io: TableFileIO, live: Collection[EncryptedSnapshot], selected: Collection[EncryptedSnapshot], counted: Counted
) -> Inventory:
    taker = _InventoryTaker(io)
    live_ids = {snapshot.snapshot_id for snapshot in live}
    for snapshot in counted.track([*live, *selected]):
        if snapshot.snapshot_id in live_ids:
            taker.add_live(snapshot)
        else:
            taker.add_selected(snapshot)

    return taker.inventory()
