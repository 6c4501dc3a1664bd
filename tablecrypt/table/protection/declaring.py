"""Writing the declarations of protected columns, in the commit that changes how they are protected.

    what changes                               proof                                       declaration
    a column is protected less                 a column key under each master key that     under each of them, and under the new master key
                                               the column is or was under
    it is protected better, or renamed         none                                        where the changer has the keys; else as it was
    it is protected for the first time         none                                        under a new column key; of a writer who may only
                                                                                           wrap, under one of his own
    a column key is shredded                   none                                        anew under a new column key, where the properties
                                                                                           need one to be believed

The first declaration in a copy that somebody made without the column's key makes the copy's column keys its own.

A column whose properties somebody has changed past its declaration is not declared anew by the way: what the user names counts, by
encryption.column-mask.<column> and encryption.column-keys. The latter also takes away a former master key and a `since` of somebody else,
and restores the master key and the mask of a column that was dropped.

A change says of every protected column what it is to be, as its writer knows it. Made ready before somebody else changed the protection,
it would undo that, and the declaration would be right-holders' own: `AssertProtectionUnchanged` refuses it.

Raises ColumnKeyDeniedError where a proof is missing, and KeyIdChangedError for such a column; nothing was changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate, update_table_metadata

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, ColumnKeyDeniedError, KeyIdChangedError
from tablecrypt.keys.column_declarations import (
    FORMER,
    KEY,
    MASK,
    PROTECTION,
    SINCE,
    UNTIL,
    ColumnDeclaration,
    Declarations,
    opened,
    sealed,
    weakened,
)
from tablecrypt.keys.column_key_ring import ColumnKeyMaker
from tablecrypt.keys.column_keys import COLUMN_PREFIX, DECLARED_KEYS, DECLARED_MASK_PREFIX, ColumnPolicy, ProtectedColumn
from tablecrypt.keys.key_ring import EncryptedKey, KeyRing
from tablecrypt.keys.write_only_keys import own_keys
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.protection.authenticated import changed_error, needs_declaration
from tablecrypt.table.updates import AddDeclarationUpdate, removed_keys


@dataclass(frozen=True)
class DeclarationChanges:
    """What a change of a table's protection does beside.

    Attributes:
        added: entries of `encryption-keys`, in the order in which to add them.
        removed: ids of those that go.
        restored: properties that somebody else had changed, as they are to be; None for one that goes.
    """

    added: tuple[EncryptedKey, ...] = ()
    removed: tuple[str, ...] = ()
    restored: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def updates(self) -> tuple[TableUpdate, ...]:
        """The updates; none where nothing changes."""
        kept = {name: value for name, value in self.restored.items() if value is not None}
        gone = [name for name, value in self.restored.items() if value is None]
        return (
            *((RemovePropertiesUpdate(removals=gone),) if gone else ()),
            *((SetPropertiesUpdate(updates=kept),) if kept else ()),
            *removed_keys(self.removed),
            *(cast("TableUpdate", AddDeclarationUpdate(key=each)) for each in self.added),
        )


def declaration_updates(
    before: EncryptedTableMetadata, updates: tuple[TableUpdate, ...], maker: ColumnKeyMaker, given: Iterable[str]
) -> tuple[TableUpdate, ...]:
    """Return the updates by which the declarations follow others: see `declaration_changes`.

    Args:
        before: the table's metadata.
        updates: what is to be committed.
        maker: makes and opens column keys.
        given: the names of the properties that the user has set or removed.
    """
    after = cast("EncryptedTableMetadata", update_table_metadata(before, updates))
    return declaration_changes(before, after, maker, given).updates


def first_declarations(metadata: EncryptedTableMetadata, maker: ColumnKeyMaker) -> tuple[TableUpdate, ...]:
    """Return the updates that declare the protected columns of a new table.

    Args:
        metadata: the new table's.
        maker: makes column keys.
    """
    # Held against a table that protects no column, each column of the new one is declared for the first time.
    without = {name: value for name, value in metadata.properties.items() if not name.startswith(COLUMN_PREFIX)}
    return declaration_changes(metadata.model_copy(update={"properties": without}), metadata, maker).updates


def copied_keys(metadata: EncryptedTableMetadata, table_uuid: str, maker: ColumnKeyMaker) -> tuple[EncryptedKey, ...]:
    """Return a table's column keys and declarations as a copy of it has them.

    Column keys that this user cannot open go with it as they are, and their declarations stay behind: those are this table's alone. So do
    keys that were made for another table, which are no more the copy's than this table's.

    Args:
        metadata: the table's.
        table_uuid: that of the copy.
        maker: opens column keys.
    """
    ring, copied = metadata.key_ring, list[EncryptedKey]()
    column_keys = {entry.key_id: entry for entry in ring.column_keys}
    for entry in column_keys.values():
        try:
            copied.append(entry if ring.is_foreign(entry) else maker.for_table(ring, entry, table_uuid))
        except (ColumnKeyDeniedError, AuthenticationError):
            copied.append(entry)

    for entry in ring.column_declarations:
        if (column_key := column_keys.get(entry.encrypted_by_id or "")) is None:
            continue

        try:
            key = maker.open(ring, column_key)
            declaration = opened(entry, column_key.field_id, key, str(metadata.table_uuid))
        except (ColumnKeyDeniedError, AuthenticationError):
            continue

        # Encrypted anew: the AAD has the table's uuid, so that no declaration counts in another table.
        copied.append(sealed(declaration, column_key.key_id, key, table_uuid, maker.random))

    return tuple(copied)


def declared_anew(metadata: EncryptedTableMetadata, field_id: int, maker: ColumnKeyMaker) -> DeclarationChanges:
    """Return a column's declaration under a new column key, after all of its column keys were shredded; nothing where it needs none.

    Args:
        metadata: the table's, without these keys. What it says of the column was checked before they went.
        field_id: the column's.
        maker: makes column keys.
    """
    stated = ColumnDeclaration.stated(ColumnPolicy.from_properties(metadata.properties), field_id)
    is_there = any(entry.field_id == field_id for entry in metadata.key_ring.column_keys)
    if is_there or not needs_declaration(stated):
        return DeclarationChanges()
    return _Change(metadata, metadata, maker, stated, stated, set()).entries(metadata.key_ring)


def declaration_changes(
    before: EncryptedTableMetadata, after: EncryptedTableMetadata, maker: ColumnKeyMaker, given: Iterable[str] = ()
) -> DeclarationChanges:
    """Return the declarations that a change of a table's properties, schema or column keys brings about.

    Args:
        before: what the change is based on.
        after: what it leaves.
        maker: makes and opens column keys.
        given: the names of the properties that the user has set or removed.

    Raises:
        ColumnKeyDeniedError: a column would be protected less, and this user may not use its key; nothing was changed.
        KeyIdChangedError: somebody without its key has changed its protection before, and this change would declare that.
        KmsError: the KMS failed.
    """
    earlier, later = (ColumnPolicy.from_properties(each.properties) for each in (before, after))
    gone = {entry.key_id for entry in before.key_ring.column_keys} - {entry.key_id for entry in after.key_ring.column_keys}
    named = set(given)
    added: list[EncryptedKey] = []
    # Without its column key a declaration opens for nobody.
    removed = [each.key_id for each in after.key_ring.column_declarations if each.encrypted_by_id in gone]
    restored: dict[str, str | None] = {}

    for field_id in sorted({*earlier.columns, *earlier.former, *later.columns, *later.former}):
        change = _Change(
            before, after, maker, ColumnDeclaration.stated(earlier, field_id), ColumnDeclaration.stated(later, field_id), named
        )
        if not change.is_declared:
            continue

        done = change.entries(after.key_ring.with_others(added))
        added += done.added
        removed += done.removed
        restored |= done.restored

    return DeclarationChanges(tuple(added), tuple(dict.fromkeys(removed)), restored)


@dataclass(frozen=True)
class _Change:
    """A change of one column's declaration."""

    before: EncryptedTableMetadata
    after: EncryptedTableMetadata
    maker: ColumnKeyMaker
    old: ColumnDeclaration
    new: ColumnDeclaration
    given: set[str]

    @property
    def is_declared(self) -> bool:
        """Whether a declaration is to be written."""
        if self.old != self.new or self.names != _names(self.before, self.new.field_id):
            return True
        # A user who names what the properties say already asks for the declaration, which may be missing.
        return not self.allowed.isdisjoint({KEY, MASK})

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that the column has or had."""
        return _names(self.after, self.new.field_id)

    @property
    def is_dropped(self) -> bool:
        """Whether the schema does not have the column any more."""
        return self.after.schema().find_column_name(self.new.field_id) is None

    @property
    def allowed(self) -> set[str]:
        """In which respects the user has said himself what is to be."""
        # Nobody can name it, and so say otherwise than what was declared: see `_restored`.
        if self.is_dropped:
            return {KEY, PROTECTION, MASK, SINCE, FORMER, UNTIL} if DECLARED_KEYS in self.given else set()
        names = {f"{DECLARED_MASK_PREFIX}{name}" for name in self.names}
        return ({MASK} if names & self.given else set()) | (
            {KEY, PROTECTION, SINCE, FORMER, UNTIL} if DECLARED_KEYS in self.given else set()
        )

    def entries(self, ring: KeyRing) -> DeclarationChanges:
        """Return the new declarations, one under each master key that the column is or was under, and the ids of those that go."""
        # Before anything is encrypted under the column's key: what an attacker put into the properties must not be made authentic.
        self._check_unchanged_before()
        new, restored = self._restored()
        # What somebody else had said of a column that was dropped is neither proved nor declared: it was as it is again.
        change = replace(self, old=new, new=new) if restored and self.is_dropped else self
        return DeclarationChanges(*change._declared(ring, new), restored)

    def _declared(self, ring: KeyRing, new: ColumnDeclaration) -> tuple[tuple[EncryptedKey, ...], tuple[str, ...]]:
        declaration = self._declaration(new)
        declarations = Declarations(self.maker, ring, str(self.after.table_uuid))
        column_keys = declarations.column_keys(new.field_id)
        added: list[EncryptedKey] = []
        removed: list[str] = []

        for master_key_id in self._master_keys(column_keys):
            known = column_keys.get(master_key_id, [])
            if (found := self._column_key(ring, known, master_key_id)) is None:
                continue

            key_id, key, made = found
            ring = ring.with_others(made)
            taken = self._taken_over(ring, master_key_id)
            added += [*made, *taken, sealed(declaration, key_id, key, str(self.after.table_uuid), self.maker.random)]
            removed += [each.key_id for each in (*declarations.entries(new.field_id, known), *taken)]

        return tuple(added), tuple(removed)

    def _taken_over(self, ring: KeyRing, master_key_id: str) -> list[EncryptedKey]:
        """Return the keys that a copy has from the table that it was made of, as its own: rule 4 of column_declarations.py."""
        known = ring.keys_of_column(self.new.field_id, master_key_id)
        foreign = [each for each in known if ring.is_foreign(each) and not ring.is_strange(each)]
        if len(tables := sorted({str(each.made_for) for each in foreign})) > 1:
            raise KeyIdChangedError(
                f"{ring.column(self.new.field_id)} has column keys that were made for the tables {' and '.join(tables)}: somebody has "
                "brought in those of one of them. Remove their entries and files, and declare the column then"
            )

        return [self.maker.for_table(ring, each, str(self.after.table_uuid)) for each in foreign]

    @cached_property
    def _found(self) -> dict[str, tuple[ColumnDeclaration, ...]]:
        return Declarations(self.maker, self.before.key_ring, str(self.before.table_uuid)).newest(self.new.field_id)

    @property
    def _known(self) -> list[ColumnDeclaration]:
        return [each for newest in self._found.values() for each in newest]

    def _check_unchanged_before(self) -> None:
        """Refuse to declare what somebody without the key has put into the properties, unless the user names it himself."""
        for newest in self._found.values():
            changed = [weakened(each, self.old).keys() & weakened(each, self.new).keys() - self.allowed for each in newest]
            # Of two declarations of one revision (two users at the same time), one that allows the properties is enough.
            if newest and all(changed):
                raise changed_error(self.after.key_ring, self.old, weakened(newest[0], self.old))

    def _restored(self) -> tuple[ColumnDeclaration, dict[str, str | None]]:
        """Return what is declared, without what somebody else had put into the properties; and the properties that are to say so."""
        wrong = {respect for each in self._known for respect in weakened(each, self.old).keys() & weakened(each, self.new).keys()}
        new, prefix = self.new, f"{COLUMN_PREFIX}{self.new.field_id}"
        restored: dict[str, str | None] = {}
        if self.is_dropped and wrong & {KEY, MASK}:
            column = self._declared_column()
            new = replace(new, column=column)
            restored |= {f"{prefix}.key-id": column.column_key_id, f"{prefix}.mask": str(column.mask)}
        if FORMER in wrong:
            new = replace(new, former={})
            names = (f"{prefix}.former-key-id", f"{prefix}.former-until")
            restored |= {name: None for name in names if name in self.after.properties}

        until = self._ends(new, is_changed=UNTIL in wrong)
        if until != new.former:
            new = replace(new, former=until)
            restored |= {f"{prefix}.former-until": str(each) for each in until.values()}
        if SINCE in wrong and new.column is not None:
            since = min((each.column.since for each in self._known if each.column and each.column.since is not None), default=None)
            new = replace(new, column=replace(new.column, since=since))
            restored[f"{prefix}.since"] = None if since is None else str(since)

        return new, restored

    def _declared_column(self) -> ProtectedColumn:
        """Return how a column that was dropped is protected. KeyIdChangedError: declarations under two master keys say two things."""
        columns = {each.column for each in self._known if each.column is not None}
        # Whoever has another master key may have declared it his, under that key.
        if len(columns) != 1:
            raise changed_error(self.after.key_ring, self.old, weakened(self._known[0], self.old) or {KEY: "is declared in two ways"})
        return columns.pop()

    def _ends(self, new: ColumnDeclaration, *, is_changed: bool) -> dict[str, int]:
        """Return until when former master keys count: as the properties say, unless somebody else has changed that, or they do not."""
        ends: dict[str, int] = {}
        for key_id, stated in new.former.items():
            known = [until for each in self._known if (until := each.former.get(key_id)) is not None]
            # Where no end is known, all files so far may be under the former key, and none that comes.
            ends[key_id] = min(known, default=self.after.last_sequence_number) if is_changed or stated is None else stated
        return ends

    def _declaration(self, new: ColumnDeclaration) -> ColumnDeclaration:
        return replace(
            new,
            # Names of earlier declarations too: whoever edits metadata can take out the schemas that had them.
            names=tuple(sorted({*self.names, *(name for each in self._known for name in each.names)})),
            # Above those under every master key, as the highest revision counts.
            revision=1 + max((each.revision for each in self._known), default=0),
        )

    def _master_keys(self, column_keys: Iterable[str]) -> Iterator[str]:
        yield from dict.fromkeys((*_of(self.old), *_of(self.new), *column_keys))

    def _column_key(
        self, ring: KeyRing, known: list[EncryptedKey], master_key_id: str
    ) -> tuple[str, Secret, tuple[EncryptedKey, ...]] | None:
        """Return the id and value of the column key under which to declare the column, and the entries that the table lacks for it.

        None where there is none and none is needed, or where this user may not use it.

        Raises:
            ColumnKeyDeniedError: this user may not use it, and would protect the column less.
        """
        now, before = self.new.column, self.old.column
        needs_proof = bool(weakened(self.old, self.new))
        is_now = master_key_id == now.column_key_id if now is not None else master_key_id in self.new.former
        proves = needs_proof and before is not None and master_key_id == before.column_key_id
        # A table's own master key protects nothing from its readers: the rules of the commit refuse it.
        if (not known and not is_now and not proves) or master_key_id == self.maker.table_key_id:
            return None

        # Under a master key that the column comes under only now, nothing has to be proved: who declares it may only wrap.
        is_new = is_now and master_key_id not in _of(self.old)

        try:
            return self._opened_key(ring, known, master_key_id)
        except ColumnKeyDeniedError:
            if needs_proof and not is_new:
                raise

        return self._own_key(ring, master_key_id) if is_new and not known else None

    def _opened_key(self, ring: KeyRing, known: list[EncryptedKey], master_key_id: str) -> tuple[str, Secret, tuple[EncryptedKey, ...]]:
        if known:
            return known[0].key_id, self.maker.open(ring, known[0]), ()
        made = self.maker.entries_for(ring, [ProtectedColumn(self.new.field_id, master_key_id)])
        # The very key that was made: asked again, the maker would make another once the KEK's lifespan is over, and no commit brings that.
        [entry] = (each for each in made if each.is_column_key)
        return entry.key_id, self.maker.open(ring.with_others(made), entry), made

    def _own_key(self, ring: KeyRing, master_key_id: str) -> tuple[str, Secret, tuple[EncryptedKey, ...]] | None:
        """Make a key that this user cannot open again (write_only_keys.py); None where he may not even wrap."""
        try:
            made = self.maker.entries_for(ring, [ProtectedColumn(self.new.field_id, master_key_id)], write_only=True)
        except ColumnKeyDeniedError:
            return None
        own = own_keys(self.maker.kms).among(each for each in made if each.is_column_key)
        return None if own is None else (own[0].key_id, own[1], made)


def _of(declaration: ColumnDeclaration) -> tuple[str, ...]:
    """The master keys that a declaration names."""
    return (*(() if declaration.column is None else (declaration.column.column_key_id,)), *declaration.former)


def _names(metadata: EncryptedTableMetadata, field_id: int) -> tuple[str, ...]:
    names = {schema.find_column_name(field_id) for schema in metadata.schemas}
    return tuple(sorted(name for name in names if name is not None))
