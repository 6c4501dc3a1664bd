"""The keys of protected columns replaced or destroyed, without reading or writing a data file. Each is one metadata commit.

rotate_column_keks puts every column key under a new column KEK of its master key:

    before    column master key ─▶ column KEK A ─▶ column key of ssn, of email           files name column keys by id,
    after     column master key ─▶ column KEK B ─▶ column key of ssn, of email           so that they stay as they are

rewrap_column_keks wraps the column KEKs again under the newest version of their master keys.

add_column_keys makes the column keys that new files need and the table lacks. A writer in one process needs none of it: there the commit
of the files brings their keys. Worker processes do not commit.

shred_column destroys the column key of one column. Every file of every snapshot keeps the column as noise, and the other columns as they
were. The column keys beside it go under a new column KEK, since the old one opens the destroyed key in older metadata files; these are
written over without it, as shredding of snapshots does.

They need the right to use the columns' master keys, and none to the table's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import ClassVar, Final

from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate, TableUpdate

from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import ConfigurationError, TablecryptError
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.keys.key_ring import EncryptedKey, KeyRing, mark, stored_entries
from tablecrypt.keys.nested_columns import ancestors
from tablecrypt.maintenance._key_commit import commit_keys
from tablecrypt.maintenance._shred_find import OlderFiles, inspect_older, kek_ids
from tablecrypt.maintenance._shred_scrub import DRY_RUN, Scrubbed, after_scrub, foretold, forget_in_log, not_scrubbed, scrub
from tablecrypt.maintenance.operation import Counted, OperationResult, Progress, ProgressListener, no_progress, reload, require_encrypted
from tablecrypt.printable import counted, shown
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.protection.authenticated import check_chosen, check_declared, undeclared_columns
from tablecrypt.table.protection.declaring import declared_anew
from tablecrypt.table.protection.policy import policy_of
from tablecrypt.table.shares import SharedFiles, metadata_deleting_io
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import name_of
from tablecrypt.table.updates import added_keys, lost_column_keys, named_column_keys, refuse_beside_lost, removed_keys, replaced_keys

_ROUNDS: Final = 5


@dataclass(frozen=True)
class RotatedColumnKeks(OperationResult):
    """What `rotate_column_keks` did.

    Attributes:
        new_keks: key-ids of the new column KEKs, by master key; empty in a dry run.
        old_keks: key-ids of those that are gone from the metadata.
        column_keys: how many column keys were wrapped again.
    """

    new_keks: dict[str, str] = field(metadata=shown("new KEKs, by master key", is_whole=True))
    old_keks: tuple[str, ...] = field(metadata=shown("KEKs that they replace"))
    column_keys: int

    def summary(self) -> str:
        """Return what was done in one sentence."""
        if not self.old_keks and not self.new_keks:
            return f"No column of {self.table} has a KEK yet: the next write of a protected column makes one."
        replaced = f"{counted(len(self.old_keks), 'KEK', 'KEKs')} of columns of {self.table}"
        keys = counted(self.column_keys, "column key", "column keys")
        return f"{self._did('Replaced', 'Would replace')} {replaced}, and {self._did('wrapped', 'wrap')} {keys} again."


@dataclass(frozen=True)
class RewrappedColumnKeks(OperationResult):
    """What `rewrap_column_keks` did.

    Attributes:
        keks: key-ids of the column KEKs that were wrapped again, by master key.
    """

    keks: dict[str, tuple[str, ...]] = field(metadata=shown("KEKs, by master key", is_whole=True))

    def summary(self) -> str:
        """Return what was done in one sentence."""
        keks = sum(map(len, self.keks.values()))
        if not keks:
            return f"No column of {self.table} has a KEK yet: nothing {self._did('was', 'would be')} wrapped."
        what = f"{counted(keks, 'KEK', 'KEKs')} of columns of {self.table}"
        return f"{self._did('Wrapped', 'Would wrap')} {what} again under the newest versions of their master keys."


@dataclass(frozen=True)
class ShreddedColumn(OperationResult):
    """What `shred_column` did, and what it could not do.

    Attributes:
        column: the column's name; that of an earlier schema, where it was dropped.
        field_id: its field id.
        column_keys: key-ids of the column keys that are destroyed. Empty where nothing ever wrote the column under a key of its own.
        retired_keks: key-ids of the column KEKs that opened them.
        rewritten: metadata files that were written over without them.
        deleted: files that were deleted.
        left: files that still hold them because the store let them be neither rewritten nor deleted, with what it said.
        refused: files that may hold them and were not touched, because they need not be the table's; with the reason.
        outside: what may still open the column elsewhere, and what ends that.
        shared: live shares whose holders open its values for as long as the shared files are stored.
    """

    also_says: ClassVar = {"complete": "is_complete", "incomplete_because": "incomplete_because"}
    column: str
    field_id: int
    column_keys: tuple[str, ...] = ()
    retired_keks: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    left: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    outside: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether keys were destroyed, and no file or share that the table knows still has them. Not after a dry run."""
        return not self.incomplete_because

    @property
    def incomplete_because(self) -> tuple[str, ...]:
        """Why it is not complete, in sentences without a full stop; nothing where it is."""
        because = [DRY_RUN] if self.dry_run else []
        if not self.retired_keks:
            because.append(f"the table holds no key of column {self.column}: nothing was ever written under one, or it was shredded before")
        if self.shared:
            because.append(f"shared values open as before to whom they were shared with: {'; '.join(self.shared)}")
        return (*because, *not_scrubbed(self.left, self.refused))


@dataclass(frozen=True)
class _Change:
    """A commit of column keys: what it adds, and what goes, with the declarations under keys that go."""

    new_keks: tuple[EncryptedKey, ...] = ()
    wrapped: tuple[EncryptedKey, ...] = ()
    removed: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    declarations: tuple[str, ...] = ()
    marked: Mapping[str, str] = field(default_factory=dict)

    @property
    def updates(self) -> tuple[TableUpdate, ...]:
        """The updates; none when nothing changes."""
        marks = (SetPropertiesUpdate(updates=dict(self.marked)),) if self.marked else ()
        return (
            *added_keys(self.new_keks),
            *replaced_keys(self.wrapped),
            *removed_keys((*self.removed, *self.retired, *self.declarations)),
            *marks,
        )


def add_column_keys(table: Table, *, write_only: bool) -> None:
    """Commit the column keys that new values of the table's protected columns go under, where it lacks some.

    Args:
        table: an encrypted table. Its state in memory is brought up to date.
        write_only: make keys of this process's own where this user may wrap and not unwrap (keys/write_only_keys.py).

    Raises:
        ColumnKeyDeniedError, KmsError: the KMS refused a column's master key, or failed; nothing has changed.
        KeyIdChangedError: the properties protect a column less than was declared under its key; nothing has changed.
        CommitFailedException: others committed too often in the meantime; nothing has changed.
    """
    commit_keys(table, lambda base: _missing_keys(base, write_only))


def _missing_keys(table: EncryptedTable, write_only: bool) -> _Change:
    metadata = table.metadata
    columns = policy_of(metadata).columns.values()
    # No key goes into the table for a protection that was set without the right to the column's.
    check_declared(metadata, table.io, writing=True)
    entries = table.io.manager.columns.entries_for(metadata.key_ring, columns, write_only=write_only)
    # A new key beside a lost one would make the column look whole, while its earlier values cannot be read.
    refuse_beside_lost(metadata, named_column_keys(metadata, metadata.current_snapshot(), table.io), entries)
    return _Change(new_keks=entries)


@checked_arguments()
def rotate_column_keks(table: Table, dry_run: bool = False, progress: ProgressListener = no_progress) -> RotatedColumnKeks:
    """Replace the KEKs of a table's protected columns, by one for each of their master keys.

    Keys that somebody brought in from another table, which `audit` reports, are removed.
    It does NOT change column keys or DEKs: a user who opened a column key with an old KEK keeps the column, also in files that are written
    later; another master key for the column ends that. It does NOT take the old KEKs out of older metadata files. Files are not touched,
    and the masks that are hashes stay what they are.

    Args:
        table: an encrypted table. Its state in memory is brought up to date.
        dry_run: only say what would be wrapped again; the KMS is not asked.
        progress: listener for reports of the column keys.

    Raises:
        ConfigurationError: the table is not encrypted.
        ColumnKeyDeniedError, KmsError: the KMS refused a column's master key, or failed; nothing has changed.
        AuthenticationError, KeyIdChangedError: an entry was changed; nothing has changed here.
        CommitFailedException: others committed too often in the meantime; nothing has changed.
    """
    if dry_run:
        ring = reload(table).metadata.key_ring
        return RotatedColumnKeks(name_of(table), True, {}, tuple(kek.key_id for kek in ring.column_keks), len(ring.column_keys))

    done = commit_keys(table, _rotation).plan
    progress(Progress("rotate_column_keks", len(done.wrapped), len(done.wrapped), "keys"))
    new = {str(kek.encrypted_by_id): kek.key_id for kek in done.new_keks}

    return RotatedColumnKeks(name_of(table), False, new, done.retired, len(done.wrapped))


def _rotation(table: EncryptedTable) -> _Change:
    ring = table.metadata.key_ring
    # One that somebody brought in from another table opens nothing here: wrapped again, it would stay beside this table's own for ever.
    strange = [entry.key_id for entry in ring.column_keys if ring.is_strange(entry)]
    own = [entry for entry in ring.column_keys if entry.key_id not in strange]
    return _under_new_keks(table, ring, own, retired=[kek.key_id for kek in ring.column_keks], gone=strange)


def _under_new_keks(
    table: EncryptedTable, ring: KeyRing, entries: Iterable[EncryptedKey], retired: Iterable[str], gone: Iterable[str]
) -> _Change:
    """Return the change that wraps column keys under new KEKs of their master keys, and lets others go."""
    columns = table.io.manager.columns
    # Made anew for each plan: one of an earlier plan that was committed may be above a key that goes, and so be retired here.
    new_kek = cache(columns.new_kek)
    made, wrapped = dict[str, EncryptedKey](), list[EncryptedKey]()

    for entry in entries:
        master_key_id = columns.check_column_kek(ring.entry(entry.encrypted_by_id or ""))
        # The refusal of an old KEK says which column it is about; that of a new one does not.
        columns.open(ring, entry)
        made[master_key_id] = new_kek(master_key_id)
        wrapped.append(columns.under(ring, entry, made[master_key_id]))

    return _Change(tuple(made.values()), tuple(wrapped), tuple(gone), tuple(retired))


@checked_arguments()
def rewrap_column_keks(table: Table, dry_run: bool = False, progress: ProgressListener = no_progress) -> RewrappedColumnKeks:
    """Rewrap the KEKs of a table's protected columns under the newest versions of their master keys.

    A KEK that does not open the column keys below it is not wrapped again: it may be another table's.

    Args:
        table: an encrypted table. Its state in memory is brought up to date.
        dry_run: only say which KEKs there are; the KMS is not asked.
        progress: listener for reports of the KEKs.

    Raises:
        ConfigurationError: the table is not encrypted.
        AuthenticationError, KmsError: a KEK cannot be opened or wrapped; nothing has changed.
        CommitFailedException: others committed too often in the meantime; nothing has changed.
    """
    done: Iterable[EncryptedKey]
    if dry_run:
        done = reload(table).metadata.key_ring.column_keks
    else:
        done = commit_keys(table, _rewrapping).plan.wrapped
        progress(Progress("rewrap_column_keks", len(done), len(done), "keys"))

    by_master: dict[str, tuple[str, ...]] = {}
    for kek in done:
        by_master[str(kek.encrypted_by_id)] = (*by_master.get(str(kek.encrypted_by_id), ()), kek.key_id)
    return RewrappedColumnKeks(name_of(table), dry_run, by_master)


def _rewrapping(table: EncryptedTable) -> _Change:
    ring, columns = table.metadata.key_ring, table.io.manager.columns
    return _Change(wrapped=tuple(columns.rewrapped(ring, kek) for kek in ring.column_keks))


@checked_arguments()
def shred_column(
    table: Table,
    column: str,
    dry_run: bool = False,
    progress: ProgressListener = no_progress,
    delete_below: Sequence[str] = (),
    break_shares: bool = False,
) -> ShreddedColumn:
    """Put a protected column out of reach for good, in every file of every snapshot, by destroying its column keys.

    The other columns stay as they are. The column stays in the schema: reading it raises KeyNotFoundError until it is dropped, and rows
    that are written later have it under a new column key. It does NOT reach files from before the column was protected, which hold it under
    the table's key (first `reencrypt`, and shred their snapshots), copies of metadata files elsewhere, or keys that
    somebody has read.

    Killed at any moment, the next call continues.

    Args:
        table: an encrypted table. Its state in memory is brought up to date.
        column: its name, in the current schema or an earlier one.
        dry_run: only find what would go.
        progress: listener for reports of the files that were written over or deleted.
        delete_below: folders in which the table's metadata files may be written over or deleted, beside those that pinned metadata names.
        break_shares: go on where the column was shared: whom it was shared with opens its values all the same.

    Raises:
        SharedFilesError, ShareRecordError: it was, or the record of a share cannot be read; nothing has changed.
        ConfigurationError: the table is not encrypted, or the column was never protected, or another protected column had its name; or
            the table has gc.enabled=false, or neither a pin nor `delete_below` says where it lies.
        ColumnKeyDeniedError, KmsError: another column shares the master key, whose keys cannot be wrapped again; nothing has changed.
        CommitFailedException: others committed too often in the meantime; nothing has changed.
    """
    fresh = reload(table)
    metadata = fresh.metadata
    field_id = _protected_field(metadata, column)
    check_chosen(metadata, fresh.io, field_id, column)
    if dry_run:
        return _foretold(fresh, field_id, column, delete_below)

    shared = SharedFiles.of(fresh, break_shares=break_shares).with_column(field_id)
    shared.check(f"whom column {column} was shared with opens its values", break_shares=break_shares)
    metadata_deleting_io(fresh, delete_below)
    # Whether its declaration holds can be told only while its keys are there.
    is_declared = not undeclared_columns(metadata, fresh.io.manager.columns, (field_id,))
    scrubbed, counted = Scrubbed(), Counted("shred_column: metadata files", "files", progress)
    destroyed, retired, older = set[str](), frozenset[str](), OlderFiles()

    def destruction(base: EncryptedTable) -> _Change:
        # Once its keys are gone, nobody can share the column any more.
        if not (break_shares or destroyed):
            shared.check_still(base.metadata)
        return _destruction(base, field_id)

    for _ in range(_ROUNDS):
        # The metadata first: after a kill, the next run finds in older files what is left to scrub.
        change = commit_keys(table, destruction).plan
        destroyed |= set(change.removed)
        fresh = require_encrypted(table)
        older = inspect_older(fresh, older)
        retired |= {*change.retired, *older.column_keks(field_id)} - kek_ids(fresh.metadata)
        again = scrub(fresh, older, frozenset(retired), metadata_deleting_io(fresh, delete_below), counted)
        scrubbed, older = scrubbed.then(again), after_scrub(older, again, fresh.metadata)

        if again.deleted:
            forget_in_log(fresh, again.deleted)
        elif not again.rewritten and not change.updates:
            # Neither the metadata nor an older file has a key of the column any more.
            break

    if is_declared:
        # The declaration has gone with its key: without a new one, an edit of the properties would not be noticed.
        commit_keys(table, lambda base: declared_anew(base.metadata, field_id, base.io.manager.columns))
    # Looked into once more: of two commits of properties and keys at once, a REST server takes both.
    after = SharedFiles.of(require_encrypted(table), break_shares=True).with_column(field_id)
    done = _result(fresh, field_id, column, destroyed, retired, scrubbed, dry_run=False)
    return replace(done, shared=shared.said_with(after))


def _destruction(table: EncryptedTable, field_id: int) -> _Change:
    """Return the change that takes a column's keys out of the metadata, with the KEKs above them."""
    metadata = table.metadata
    ring = metadata.key_ring
    # Of entries that count and of those that were put back: no stored byte is to open the column.
    held = stored_entries(metadata.encryption_keys, metadata.properties)
    gone = {entry.key_id: entry for entry in held if entry.is_column_key and entry.field_id == field_id}
    retired = {str(entry.encrypted_by_id) for entry in gone.values()}
    beside = [entry for entry in ring.column_keys if entry.encrypted_by_id in retired and entry.field_id != field_id]
    change = _under_new_keks(table, ring, beside, sorted(retired), sorted(gone))
    # One that was lost before is gone on purpose from now on: the column may be written again.
    lost = lost_column_keys(metadata, _named(table, metadata)).get(field_id, ())
    declarations = tuple(sorted(entry.key_id for entry in held if entry.is_column_declaration and entry.encrypted_by_id in gone))

    return replace(change, declarations=declarations, marked=dict(mark(key_id, field_id) for key_id in lost))


def _named(table: EncryptedTable, metadata: EncryptedTableMetadata) -> Iterable[tuple[int, str]]:
    """Return the column keys that the newest manifest list names; none where it does not open: every user who may commit may shred."""
    try:
        return named_column_keys(metadata, metadata.current_snapshot(), table.io)
    except (TablecryptError, FileNotFoundError):
        return ()


def _foretold(table: EncryptedTable, field_id: int, column: str, delete_below: Sequence[str]) -> ShreddedColumn:
    ring, older = table.metadata.key_ring, inspect_older(table)
    gone = [entry for entry in ring.column_keys if entry.field_id == field_id]
    retired = frozenset(str(entry.encrypted_by_id) for entry in gone) | older.column_keks(field_id)
    expected = foretold(table, older, retired, delete_below)
    return _result(table, field_id, column, {entry.key_id for entry in gone}, retired, expected, dry_run=True)


def _protected_field(metadata: EncryptedTableMetadata, column: str) -> int:
    """Return the field id of a column that is or was protected: of the current schema, else of the newest that has the name."""
    policy, known = ColumnPolicy.from_properties(metadata.properties), {entry.field_id for entry in metadata.key_ring.column_keys}
    for schema in (metadata.schema(), *reversed(metadata.schemas)):
        for field_id in schema.field_ids:
            if schema.find_column_name(field_id) != column:
                continue
            # By its keys too: a column that is no longer protected has no property.
            if policy.master_keys(field_id) or field_id in known:
                return field_id
            if schema is metadata.schema() and (above := {field_id, *ancestors(schema, field_id)} & policy.columns.keys()):
                whole = schema.find_column_name(above.pop())
                raise ConfigurationError(f"column {column!r} has no key of its own: it is protected with {whole!r}. Shred that")

    raise ConfigurationError(f"no column {column!r} of the table is or was protected, so there is no key of it to destroy")


def _result(
    table: EncryptedTable, field_id: int, column: str, destroyed: Iterable[str], retired: Iterable[str], done: Scrubbed, dry_run: bool
) -> ShreddedColumn:
    return ShreddedColumn(
        table=name_of(table),
        dry_run=dry_run,
        column=column,
        field_id=field_id,
        column_keys=tuple(sorted(destroyed)),
        retired_keks=tuple(sorted(retired)),
        rewritten=tuple(done.rewritten),
        deleted=tuple(done.deleted),
        left=done.left,
        refused=done.refused,
        outside=(
            "A copy of an older metadata file (backup, replica, object version, file system snapshot) still opens the column for everybody "
            "who may use its master key. Destroying that key ends it.",
            "Files from before the column was protected hold it under the table's key: an audit lists them.",
            "A process that has read the column may hold its keys in memory, column KEKs for encryption.kms.cache-ttl-ms.",
        ),
    )
