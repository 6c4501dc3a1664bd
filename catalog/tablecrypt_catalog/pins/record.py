"""Rollback protection: which version of a table may follow the one that was seen before. Pure rules, without a file, a database or a clock.

metadata.json is plaintext and nothing authenticates it. Who can write to the storage can edit it or put back an old one; who can write to
the catalog can point it anywhere. A pin is what a trusted place (the catalog's database, or a file of this client) remembers of the newest
version that was seen, so that the next answer can be held against it:

    TableVersion   table-uuid | encryption.key-id | encryption.data-key-length | metadata location | hash of the metadata
                   | last-sequence-number | heads of branches and tags | hashes of the wrapped KEKs | retired KEKs
                   | folders: the table's location, and those of its properties write.*.path
                   | protected columns: by field id, master keys, mask, `since` and names (protected_columns.py)

last-sequence-number is a number in plaintext, and who edits metadata.json can write any number there. The sequence number of a snapshot
is in the authenticated header of its manifest list too, so a head cannot claim a greater one than it has and still be read: that is why
the head of each branch and tag is remembered, and must not fall.

The hash is SHA-256 over the bytes of the metadata's JSON, uncompressed; its place decides what exactly those are (file or server answer).
A pin sees replays and edits. It cannot see a forged version that continues the pinned one in every field: only the authenticated manifest
lists can, see table/metadata.py. A commit that moves a branch, a tag or the table itself says so: Moves.

The folders say where files of the table may be deleted (files/deletion.py). So a pin keeps those that it has: metadata that adds a
write.*.path is accepted, and its folder is not, until this client sets it itself or a user accepts it. Metadata that is seen for the
first time may have been edited before: of its folders only the location counts, and that only where the metadata file lies in the folder
metadata of it, as the catalog says. A location that nothing confirms is pinned with a "?" at its end, which no folder has in which
files may be deleted: the table must stay there, and nothing there is deleted. It stays so: every commit writes its metadata file to
where the metadata before it says, this client's own too, so that later files confirm nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from pydantic import TypeAdapter
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)
from pyiceberg.typedef import IcebergBaseModel

from tablecrypt import properties
from tablecrypt.errors import FormatError, KeyIdChangedError, MetadataRollbackError, TamperedFileError
from tablecrypt.files.deletion import names_location
from tablecrypt.keys.key_ring import EncryptedKey
from tablecrypt.keys.manager import DEFAULT_DATA_KEY_LENGTH
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.protection.policy import Leaves
from tablecrypt.table.table_files import WRITE_PATHS, folders_named
from tablecrypt_catalog.pins.protected_columns import PinnedColumn, changed_columns, columns_of, leaves_of, merged_columns, taken, weaker

FOLDERS: Final = TypeAdapter(tuple[str, ...])
"""How the pins of a catalog store folders, in JSON."""
_HASH_LENGTH: Final = 32
_UNCONFIRMED: Final = "?"
"""Stands after the pinned location of a table of which only its own metadata says that it lies there."""
MOST_VANISHED_REFS: Final = 1000
"""How many branches and tags that are gone a pin remembers, those with the newest heads."""
_WHOLE_NUMBER: Final = re.compile("[0-9]{1,9}")
_VERSION: Final = re.compile(r"(?:.*/)?(\d+)-[^/]*\.metadata\.json(?:\.gz)?", re.DOTALL)
_TO_FORGET: Final = "If it is right now, and was edited when this client saw it first: catalog.forget_pin(identifier)"
_TO_ACCEPT: Final = "If somebody you trust did that on purpose: catalog.accept_rollback(identifier)"


class Head(NamedTuple):
    """The snapshot to which a branch or tag points."""

    snapshot_id: int
    sequence_number: int


@dataclass(frozen=True)
class TableVersion:
    """One version of a table, as a catalog answered it or a commit wrote it. A pin is the newest that was accepted.

    Attributes:
        table_key_id: None for a plaintext table, which is never pinned.
        metadata_hash: None where the bytes are not known; then they are not compared.
        kek_hashes: 16 bytes of SHA-256, in hexadecimal, of each KEK as the KMS wrapped it.
        heads: of each branch and tag. A pin keeps those of vanished ones too: what comes back under that name must not have fallen.
        retired_keks: KEKs that a newer one has replaced, by their hashes and by their key-ids (`id:…`). They open, and wrap nothing new.
        folders: the table's location, and those that its properties write.*.path name. A pin has only those in which files may be
            deleted, and a "?" after a location that nothing confirms. Empty in pins of before: not known.
        columns: the protected columns, by field id. Empty in pins of before.
        leaves: columns of the schema and their master keys, see protection/policy.py. Told by metadata, not kept in a pin.
        wrapping_keks: the newest KEK that a snapshot needs, in the same form, which wraps what is new. Told by metadata, not kept in a pin.
        uses: by the hash of each KEK its key-id, and the greatest sequence number of a snapshot under it. Told by metadata, not kept.
    """

    table_uuid: str
    table_key_id: str | None
    data_key_length: int
    metadata_location: str
    metadata_hash: str | None
    last_sequence_number: int
    kek_hashes: frozenset[str] = frozenset()
    heads: Mapping[str, Head] = field(default_factory=dict)
    retired_keks: frozenset[str] = frozenset()
    folders: tuple[str, ...] = ()
    columns: Mapping[int, PinnedColumn] = field(default_factory=dict)
    leaves: Leaves = field(default_factory=dict, compare=False)
    wrapping_keks: frozenset[str] = field(default=frozenset(), compare=False)
    uses: Mapping[str, tuple[str, int]] = field(default_factory=dict, compare=False)

    @property
    def location(self) -> str | None:
        """Where the table lies, without the slash that Java leaves out; None where that is not known."""
        return self.folders[0].removesuffix(_UNCONFIRMED).rstrip("/") if self.folders else None

    @property
    def version(self) -> int | None:
        """The number that a metadata file's name begins with, which grows by one with each commit; None where it has none."""
        match = _VERSION.fullmatch(self.metadata_location)
        return int(match.group(1)) if match else None


def table_version(metadata: TableMetadata, metadata_location: str, metadata_hash: str | None) -> TableVersion:
    """Return what a pin would keep of this version of a table.

    Raises:
        FormatError: a branch or tag of an encrypted table names a snapshot that is not there, or a KEK's entry cannot be read.
    """
    table_key_id = metadata.properties.get(properties.KEY_ID.name)
    seen = TableVersion(
        table_uuid=str(metadata.table_uuid),
        table_key_id=None if table_key_id is None else str(table_key_id),
        data_key_length=_length(metadata.properties.get(properties.DATA_KEY_LENGTH.name)),
        metadata_location=metadata_location,
        metadata_hash=metadata_hash,
        last_sequence_number=0 if isinstance(metadata, TableMetadataV1) else metadata.last_sequence_number,
        folders=folders_named(metadata),
    )
    if not isinstance(metadata, EncryptedTableMetadata):
        return seen

    keks = [key for key in metadata.encryption_keys if key.is_kek]
    # A KEK that no snapshot needs wraps nothing here, whatever date somebody gave it.
    needed = metadata.key_ring.needed_by(snapshot.key_id for snapshot in metadata.snapshots if snapshot.key_id is not None)
    own = [kek for kek in keks if kek.encrypted_by_id == seen.table_key_id and kek.key_id in needed]
    newest = max((kek.created_at_ms for kek in own), default=0)

    return replace(
        seen,
        kek_hashes=frozenset(_hash(kek) for kek in keks),
        heads=_heads(metadata, metadata_location),
        columns=columns_of(metadata),
        leaves=leaves_of(metadata),
        retired_keks=_hashes_and_ids(kek for kek in own if kek.created_at_ms < newest),
        wrapping_keks=_hashes_and_ids(kek for kek in own if kek.created_at_ms == newest),
        uses=_uses(metadata, keks),
    )


def _heads(metadata: EncryptedTableMetadata, metadata_location: str) -> dict[str, Head]:
    numbers = {snapshot.snapshot_id: snapshot.sequence_number or 0 for snapshot in metadata.snapshots}
    missing = [name for name, ref in metadata.refs.items() if ref.snapshot_id not in numbers]
    if missing:
        raise FormatError(
            f"{metadata_location}: {missing[0]} points to snapshot {metadata.refs[missing[0]].snapshot_id}, which is not there"
        )
    return {name: Head(ref.snapshot_id, numbers[ref.snapshot_id]) for name, ref in metadata.refs.items()}


def _uses(metadata: EncryptedTableMetadata, keks: Iterable[EncryptedKey]) -> dict[str, tuple[str, int]]:
    kek_of = {key.key_id: key.encrypted_by_id for key in metadata.encryption_keys}
    newest: dict[str | None, int] = {}
    for snapshot in metadata.snapshots:
        kek_id = kek_of.get(snapshot.key_id or "")
        newest[kek_id] = max(newest.get(kek_id, 0), snapshot.sequence_number or 0)
    return {_hash(kek): (kek.key_id, newest[kek.key_id]) for kek in keks if kek.key_id in newest}


def _hash(kek: EncryptedKey) -> str:
    return hashlib.sha256(kek.wrapped_bytes()).hexdigest()[:_HASH_LENGTH]


def _hashes_and_ids(keks: Iterable[EncryptedKey]) -> frozenset[str]:
    return frozenset(each for kek in keks for each in (_hash(kek), f"id:{kek.key_id}"))


def refuse_overtaken(name: str, seen: TableVersion, earlier: Mapping[str, TableVersion]) -> None:
    """Refuse a table that was seen newer under a name by which it was known before this one: two catalogs have it, and one fell behind.

    The name that was known first is never refused for what another one answers: else any second catalog could lock the table out.

    Args:
        name: where it was seen now.
        earlier: what is pinned under the names that were known before.

    Raises:
        MetadataRollbackError: a pin of the same table has a greater last-sequence-number.
    """
    for other, pin in earlier.items():
        if is_ahead(pin, seen):
            raise MetadataRollbackError(
                f"{name} is at sequence number {seen.last_sequence_number}, but the same table was seen at {pin.last_sequence_number} as "
                f"{other}: commits of two catalogs do not know of each other. Keep one of them, and drop the other's entry without purge. "
                "If it is this one that counts: catalog.accept_rollback(identifier)"
            )


def is_ahead(pin: TableVersion, seen: TableVersion) -> bool:
    """Whether a pin under another name knows the same table newer than it was seen now."""
    return pin.table_uuid == seen.table_uuid and pin.last_sequence_number > seen.last_sequence_number


def moved_refs(updates: Iterable[IcebergBaseModel]) -> frozenset[str]:
    """Return the branches and tags that a commit sets or removes itself: wherever they point afterwards, its author has asked for it."""
    kinds = (SetSnapshotRefUpdate, RemoveSnapshotRefUpdate)
    return frozenset(update.ref_name for update in updates if isinstance(update, kinds))


@dataclass(frozen=True)
class Moves:
    """What a commit of this client moves itself, so that it may be anywhere afterwards.

    Attributes:
        refs: branches and tags that it sets or removes.
        location: whether it sets the table's location, or makes the table.
        write_paths: the folders to which it sets properties write.*.path; None where it neither sets nor removes one. Others that the
            metadata names beside them may come from another writer.
        columns: field ids of columns whose protection it sets or removes.
    """

    refs: frozenset[str] = frozenset()
    location: bool = False
    write_paths: frozenset[str] | None = None
    columns: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.refs) or self.location or self.write_paths is not None or bool(self.columns)


NO_MOVES: Final = Moves()


def creation(asked: Mapping[str, object]) -> Moves:
    """Return what the making of a table moves, given the properties that this client has asked for."""
    return Moves(location=True, write_paths=_write_paths(asked))


def moves_of(updates: Iterable[IcebergBaseModel]) -> Moves:
    """Return what a commit moves by its updates."""
    listed = list(updates)
    set_paths = [_write_paths(update.updates) for update in listed if isinstance(update, SetPropertiesUpdate)]
    return Moves(
        refs=moved_refs(listed),
        location=any(isinstance(update, SetLocationUpdate) for update in listed),
        write_paths=frozenset().union(*set_paths) if any(_moves_write_paths(update) for update in listed) else None,
        columns=changed_columns(listed),
    )


def _write_paths(set_to: Mapping[str, object]) -> frozenset[str]:
    return frozenset(str(set_to[name]) for name in WRITE_PATHS if set_to.get(name))


def _moves_write_paths(update: IcebergBaseModel) -> bool:
    if isinstance(update, SetPropertiesUpdate):
        return any(name in update.updates for name in WRITE_PATHS)
    return isinstance(update, RemovePropertiesUpdate) and any(name in update.removals for name in WRITE_PATHS)


class TrustedTable:
    """What is trusted of the table behind one identifier, and which version may follow.

    Rules, in the order in which they are checked:
        1. An unknown identifier is trusted on first use: the first encrypted version that is seen becomes the pin.
        2. An identifier that was encrypted is never accepted as plaintext, whatever table it names now.
        3. encryption.key-id never changes, not even with another table-uuid.
        4. Another table-uuid is a new table, and its pin starts afresh, unless
           a. it is pinned under another identifier of the catalog: then the catalog answered with that table;
           b. it holds a KEK of the pinned table: then it is that table in disguise. Nobody without the master key can wrap its KEK again;
           c. or the pinned table has protected columns, and this client has not made the new one: whoever may make tables would otherwise
              have this client write these columns to one that does not protect them.
        5. encryption.data-key-length never shrinks.
        6. The metadata at the pinned location has the pinned hash.
        7. last-sequence-number never shrinks.
        8. Metadata at another location has a greater version number, where both names have one.
        9. The head of no branch or tag falls: it has a greater sequence number, or is the same snapshot. `main` never vanishes; others may,
           and come back no lower.
       10. The newest KEK, which wraps what is new, is none that a newer one had replaced before; and no snapshot that is newer than the pin
           is under one that a rotation took out: whoever knew it may know it still. One that was beside a newer one goes on with the
           branch that begins under it.
       11. The table lies where it lay.
       12. No column is protected less than it was: see protected_columns.py.
    Rules 9, 11 and 12 leave out what this client's own commit has moved. Rules 7 to 12 are lifted by accepting a rollback on purpose.
    A pin is removed only by dropping the table through a catalog that keeps pins, or by forgetting it on purpose.
    """

    def __init__(self, name: str, pin: TableVersion | None) -> None:
        self.name = name
        self.pin = pin

    def verify_update(self, seen: TableVersion, pinned_as: str | None = None, moved: Moves = NO_MOVES) -> TableVersion | None:
        """Return the pin to keep after seeing this version; None where there was none and the table is plaintext.

        Args:
            seen: the version.
            pinned_as: another identifier under which its table-uuid is pinned.
            moved: what the commit of this client moved with which the version came about.

        Raises:
            KeyIdChangedError: rules 2, 3, 4c, 5 and 12.
            TamperedFileError: rules 4a, 4b, 6, 10 and 11.
            MetadataRollbackError: rules 7 to 9.
        """
        pin = self._pin_of_the_same_table(seen, pinned_as, moved)
        if pin is None:
            return None if seen.table_key_id is None else replace(seen, folders=_first_folders(seen, moved))

        self._check_hash(pin, seen)
        self._check_location(pin, seen, moved)
        self._check_is_not_older(pin, seen)
        self._check_heads(pin, seen, moved)
        self._check_keks(pin, seen)
        self._check_columns(pin, seen, moved)

        return _merged(pin, seen, moved)

    def accept_rollback(self, seen: TableVersion, pinned_as: str | None = None) -> TableVersion | None:
        """Return the pin to keep where a user says that a table was rolled back on purpose.

        Raises:
            KeyIdChangedError, TamperedFileError: rules 2 to 6.
        """
        pin = self._pin_of_the_same_table(seen, pinned_as)
        if pin is None:
            return None if seen.table_key_id is None else seen
        self._check_hash(pin, seen)
        # What wraps in the accepted state counts as retired no longer, or every later load would be refused.
        retired = (seen.retired_keks | pin.retired_keks) - seen.wrapping_keks
        return replace(seen, kek_hashes=seen.kek_hashes | pin.kek_hashes, retired_keks=retired)

    def _pin_of_the_same_table(self, seen: TableVersion, pinned_as: str | None, moved: Moves = NO_MOVES) -> TableVersion | None:
        """Check rules 1 to 5; return the pin if it is that of the table that was seen."""
        pin = self.pin
        if pin is None:
            return None

        if seen.table_key_id is None:
            self.refuse_plaintext()
        self.check_key_id(seen.table_key_id)
        if seen.table_uuid != pin.table_uuid:
            self._check_is_new_table(pin, seen, pinned_as, moved)
            return None

        self._check_data_key_length(pin, seen)

        return pin

    def refuse_plaintext(self, found: str = "a plaintext table") -> None:
        """Rule 2 on a plaintext table, or on a view, whose rows are what the catalog says.

        Raises:
            KeyIdChangedError: the identifier is pinned.
        """
        if self.pin is not None:
            raise KeyIdChangedError(
                f"{self.name} was encrypted with {properties.KEY_ID.name} {self.pin.table_key_id}, and is {found} now: refused. "
                "If it was dropped and created again on purpose, forget its pin: catalog.forget_pin(identifier)"
            )

    def check_key_id(self, table_key_id: str | None) -> None:
        """Rule 3 on a master key.

        Raises:
            KeyIdChangedError: the identifier is pinned with another one.
        """
        if self.pin is not None and table_key_id != self.pin.table_key_id:
            raise KeyIdChangedError(
                f"{self.name}: {properties.KEY_ID.name} is {table_key_id}, but was {self.pin.table_key_id} when the table was seen before. "
                "If the table was created again on purpose, forget its pin: catalog.forget_pin(identifier)"
            )

    def _check_is_new_table(self, pin: TableVersion, seen: TableVersion, pinned_as: str | None, moved: Moves) -> None:
        # A new table has a metadata file of its own: this one was written over with another table's.
        self._check_hash(pin, seen)
        if pinned_as is not None:
            raise TamperedFileError(
                seen.metadata_location,
                f"the catalog answered with it for {self.name}, but it is the metadata of {pinned_as}. "
                "If the tables were renamed on purpose, forget their pins: catalog.forget_pin(identifier)",
            )

        if seen.kek_hashes & pin.kek_hashes:
            raise TamperedFileError(
                seen.metadata_location,
                f"{self.name}: table-uuid is {seen.table_uuid}, but the metadata holds the keys of table {pin.table_uuid}. {_TO_FORGET}",
            )

        # Who makes a table says where it lies: then it is this client's own.
        if pin.columns and not moved.location:
            raise KeyIdChangedError(
                f"{self.name} is another table now, {seen.table_uuid} in {seen.metadata_location}, and table {pin.table_uuid}, which this "
                "client saw before, had protected columns. If it was dropped and created again on purpose, and the new one protects "
                "what it should, forget its pin: catalog.forget_pin(identifier)"
            )

    def _check_data_key_length(self, pin: TableVersion, seen: TableVersion) -> None:
        if seen.data_key_length < pin.data_key_length:
            raise KeyIdChangedError(
                f"{self.name}: {properties.DATA_KEY_LENGTH.name} is {seen.data_key_length}, but was {pin.data_key_length} before: "
                f"it cannot shrink. {_TO_FORGET}"
            )

    def _check_hash(self, pin: TableVersion, seen: TableVersion) -> None:
        if seen.metadata_location != pin.metadata_location or None in (pin.metadata_hash, seen.metadata_hash):
            return
        if pin.metadata_hash != seen.metadata_hash:
            raise TamperedFileError(
                seen.metadata_location, f"{self.name}: the table metadata was edited since it was seen before. {_TO_FORGET}"
            )

    def _check_location(self, pin: TableVersion, seen: TableVersion, moved: Moves) -> None:
        if moved.location or None in (pin.location, seen.location) or pin.location == seen.location:
            return
        raise TamperedFileError(
            seen.metadata_location,
            f"{self.name} is at {seen.location} now, but was at {pin.location} when this client saw it before. {_TO_ACCEPT}",
        )

    def _check_is_not_older(self, pin: TableVersion, seen: TableVersion) -> None:
        if seen.last_sequence_number < pin.last_sequence_number:
            raise MetadataRollbackError(
                f"{self.name}: last-sequence-number is {seen.last_sequence_number} in {seen.metadata_location}, "
                f"but {pin.last_sequence_number} was seen before. {_TO_ACCEPT}"
            )

        is_other_file = seen.metadata_location != pin.metadata_location
        if is_other_file and seen.version is not None and pin.version is not None and seen.version <= pin.version:
            raise MetadataRollbackError(
                f"{self.name}: {seen.metadata_location} does not follow {pin.metadata_location}, seen before. {_TO_ACCEPT}"
            )

    def _check_heads(self, pin: TableVersion, seen: TableVersion, moved: Moves) -> None:
        for name, before in pin.heads.items():
            now = seen.heads.get(name)
            # Branches and tags may be dropped; without main the table would read as an empty one.
            if name in moved.refs or (now is None and name != MAIN_BRANCH):
                continue
            if now is None or (now != before and now.sequence_number <= before.sequence_number):
                raise MetadataRollbackError(
                    f"{self.name}: {name} points to {_shown(now)} in {seen.metadata_location}, but to {_shown(before)} when the table was "
                    f"seen before. {_TO_ACCEPT}"
                )

    def _check_keks(self, pin: TableVersion, seen: TableVersion) -> None:
        retired = sorted(seen.wrapping_keks & pin.retired_keks)
        if retired:
            raise TamperedFileError(
                seen.metadata_location,
                f"{self.name}: the KEK that would wrap new keys ({retired[-1]}) is one that a newer KEK had replaced before. {_TO_ACCEPT}",
            )

        # The pin knows the key-id too of those that it has seen beside a newer one.
        taken_out = {kek for kek in seen.uses if kek in pin.retired_keks and f"id:{seen.uses[kek][0]}" not in pin.retired_keks}

        for key_id, number in (seen.uses[kek] for kek in sorted(taken_out)):
            if number > pin.last_sequence_number:
                raise TamperedFileError(
                    seen.metadata_location,
                    f"{self.name}: the snapshot with sequence number {number} is under KEK {key_id}, which a rotation took out before. "
                    f"{_TO_ACCEPT}",
                )

    def _check_columns(self, pin: TableVersion, seen: TableVersion, moved: Moves) -> None:
        # A name is refused to this client's own commits too: metadata without its history of schemas would let them take it.
        found = weaker(pin.columns, seen.columns, moved.columns) or taken(pin.columns, seen.columns, seen.leaves)
        if found is not None:
            field_id, what = found
            raise KeyIdChangedError(f"{self.name}: the column with field id {field_id} {what}, in {seen.metadata_location}. {_TO_ACCEPT}")


def _merged(pin: TableVersion, seen: TableVersion, moved: Moves) -> TableVersion:
    """The pin after a version that the rules allow; the very pin where that version changes nothing."""
    vanished = {name: head for name, head in pin.heads.items() if name not in seen.heads and name not in moved.refs}
    if len(vanished) > MOST_VANISHED_REFS:
        newest = sorted(vanished, key=lambda name: vanished[name].sequence_number, reverse=True)[:MOST_VANISHED_REFS]
        vanished = {name: vanished[name] for name in newest}
    # A rotation takes the KEK that it replaces out of the metadata, so that only its absence tells. One that is gone and that no other
    # has replaced was lost, and may be rescued.
    vanished_keks = pin.kek_hashes - seen.kek_hashes if seen.wrapping_keks else frozenset()
    merged = replace(
        seen,
        kek_hashes=seen.kek_hashes | pin.kek_hashes,
        heads={**vanished, **seen.heads},
        retired_keks=seen.retired_keks | pin.retired_keks | vanished_keks,
        folders=next_folders(pin.folders, seen, moved),
        columns=merged_columns(pin.columns, seen.columns),
    )
    if seen.metadata_location == pin.metadata_location:
        # Of one file the hash that was known first stays: an answer without a hash must not erase it.
        merged = replace(merged, metadata_hash=pin.metadata_hash or seen.metadata_hash)
    return pin if merged == pin else merged


def folders_on_first_sight(metadata_location: str, folders: tuple[str, ...]) -> tuple[str, ...]:
    """Return what a pin keeps of a table's folders where no hash vouches for the metadata.

    Args:
        metadata_location: where the catalog says that the metadata is.
        folders: as the metadata says, the location first.
    """
    location = folders[:1]
    if not location or names_location(metadata_location, location[0]):
        return location
    return (f"{location[0]}{_UNCONFIRMED}",)


def _first_folders(seen: TableVersion, moved: Moves) -> tuple[str, ...]:
    confirmed = seen.folders[:1] if moved.location else folders_on_first_sight(seen.metadata_location, seen.folders)
    return (*confirmed, *_set_paths(seen, moved))


def next_folders(trusted: tuple[str, ...], seen: TableVersion, moved: Moves) -> tuple[str, ...]:
    """Return what a pin keeps of a table's folders after a version of it.

    Args:
        trusted: what it kept before; empty where that is not known.
        seen: the version.
        moved: what the commit of this client moved with which it came about.
    """
    if not trusted:
        return _first_folders(seen, moved)
    if not seen.folders:
        return trusted
    location = seen.folders[0] if moved.location else trusted[0]
    paths = trusted[1:] if moved.write_paths is None else _set_paths(seen, moved, trusted[1:])
    return (location, *paths)


def _set_paths(seen: TableVersion, moved: Moves, trusted: Collection[str] = ()) -> Iterator[str]:
    """The folders of properties write.*.path that this client set now, and those that were trusted before and are still there."""
    return (folder for folder in seen.folders[1:] if folder in (moved.write_paths or ()) or folder in trusted)


def _shown(head: Head | None) -> str:
    return "nothing" if head is None else f"snapshot {head.snapshot_id} (sequence number {head.sequence_number})"


def _length(value: object) -> int:
    """A length that is no number counts as none: opening the table says what is wrong with it."""
    text = str(DEFAULT_DATA_KEY_LENGTH if value is None else value)
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else 0
