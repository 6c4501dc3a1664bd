"""Changes of an encrypted table's metadata: the updates that encryption adds, and what must hold for every commit of any program.

The updates, in the wire form of Iceberg's REST catalog:

    add-encryption-key           {"action": "add-encryption-key", "encryption-key": { … EncryptedKey … }}
    remove-encryption-key        {"action": "remove-encryption-key", "key-id": "…"}
    encryption-keys              of this package alone, never sent to a server: several of both, applied at once
    remove-metadata-log-entries  likewise: {"metadata-files": ["…"]}
    next-share-state             likewise: the metadata of a share's next state, in the place of that of the one before
    add-snapshot                 as PyIceberg's, with a snapshot that keeps key-id
    upgrade-format-version       as PyIceberg's, but version 3 is reached at creation, or by a table that is encrypted in the same commit

Each is applied by a function registered with PyIceberg's own dispatch, which takes new update types without being changed itself.

The rules of a commit are pure, old and new metadata in, an error or nothing out:

    1. encryption.key-id never changes and never goes.
    2. The format version stays 3.
    3. Every snapshot names a manifest-list key, and that key and its KEK are in the metadata being committed. No KEK goes without the
       column keys below it.
    4. No statistics file is added, also not in place of another: those that exist are plaintext.
    5. The properties that say which keys to make, and the name mapping, can be used: with others the table would not load again.
    6. Protected columns stay protected, and nothing of the layout tells their values (protection/policy.py).

A commit that makes a plain table an encrypted one leaves nothing of the plain one behind: rules 3 to 5 hold for all that it has then.

Commits keep the copies of column entries (keys/key_ring.py, rule 4 of copies). Every manifest list names the keys of columns that the table
had then, authenticated as it is. So a commit knows a key that is gone without a mark, even where its entry and its copy both are, and makes
no new key beside it: rows would be in the table under two keys of which one is nowhere, and nobody would hear of it before they are read.

    updates of a commit ──▶ entries to bring back ─ updates ─ copies to remove ─ copies and marks to set

A catalog that commits in this process does so on the metadata that it finds; a REST server is sent what this client's metadata asks for.

Iceberg REST catalog specification, "TableUpdate".
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, cast

from pydantic import Field
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    RemovePartitionStatisticsUpdate,
    RemovePropertiesUpdate,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    TableUpdate,
    UpgradeFormatVersionUpdate,
    update_table_metadata,
)
from pyiceberg.transforms import BucketTransform
from pyiceberg.typedef import IcebergBaseModel
from pyiceberg.types import StructType

from tablecrypt import properties
from tablecrypt.errors import ConfigurationError, FormatError, KeyIdChangedError, KeyNotFoundError, PlaintextRefusedError
from tablecrypt.iceberg_properties import OF_TABLES
from tablecrypt.keys.column_keys import COLUMN_PREFIX, ColumnPolicy
from tablecrypt.keys.key_ring import EncryptedKey, KeyRing, copy_of, entries_with_copies, is_copy, is_gone, is_marked, is_own, mark_of
from tablecrypt.keys.manager import KeySettings
from tablecrypt.keys.nested_columns import fields_by_id
from tablecrypt.setting_kinds import check_spelling, check_values
from tablecrypt.table._pyiceberg.transactions import TableMetadataUpdateContext, apply_table_update
from tablecrypt.table.metadata import (
    EncryptedSnapshot,
    EncryptedTableMetadata,
    check_name_mapping,
    check_types,
    encrypted_metadata,
    has_column_keys,
    id_of_two_columns,
)
from tablecrypt.table.protection.policy import check_policy

_MOST_BUCKETS: Final = 2**31


class AssertHead(AssertRefSnapshotId):
    """That a branch still has the head that a snapshot was made on. A table's first snapshot may be of any branch.

    PyIceberg lets that be one of the main branch alone.
    """

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        """Raise CommitFailedException where the branch has another head, or none."""
        if base_metadata is None or base_metadata.snapshots or self.snapshot_id is not None:
            super().validate(base_metadata)


class AddEncryptionKeyUpdate(IcebergBaseModel):
    """Adds one entry to `encryption-keys`."""

    action: Literal["add-encryption-key"] = Field(default="add-encryption-key")
    key: EncryptedKey = Field(alias="encryption-key")

    is_of_transaction: ClassVar[bool] = False
    """Whether it stays when an attempt to commit files is given up and tried again."""


class AddDeclarationUpdate(AddEncryptionKeyUpdate):
    """Adds an entry that a declaration of protected columns brings."""

    is_of_transaction: ClassVar[bool] = True


class RemoveEncryptionKeyUpdate(IcebergBaseModel):
    """Removes one entry from `encryption-keys`."""

    action: Literal["remove-encryption-key"] = Field(default="remove-encryption-key")
    key_id: str = Field(alias="key-id")


class EncryptionKeysUpdate(IcebergBaseModel):
    """Changes of `encryption-keys` that follow one another, on their way into the metadata of this process; see `applied`."""

    action: Literal["encryption-keys"] = Field(default="encryption-keys")
    updates: list[AddEncryptionKeyUpdate | RemoveEncryptionKeyUpdate]


class RemoveMetadataLogEntriesUpdate(IcebergBaseModel):
    """Removes files that are gone from `metadata-log`. No REST server knows this update: it is for catalogs that commit in this process."""

    action: Literal["remove-metadata-log-entries"] = Field(default="remove-metadata-log-entries")
    metadata_files: list[str] = Field(alias="metadata-files")


class NextShareStateUpdate(IcebergBaseModel):
    """Puts the next state of a share, which its sharer made, in the place of the one before. No REST server knows this update."""

    action: Literal["next-share-state"] = Field(default="next-share-state")
    metadata: EncryptedTableMetadata


class SnapshotGoneError(ConfigurationError, ValidationException):
    """The table has no longer the snapshot whose files a commit takes over. Nothing is committed."""


class AddEncryptedSnapshotUpdate(AddSnapshotUpdate):
    """Adds a snapshot that keeps its key-id.

    `written_under` is the WrittenUnder of its new files; None where it has no new data files and its summary names no partitions.
    `picked_from` is the id of the snapshot whose files it takes over, if any. Neither is sent to a server.
    """

    snapshot: EncryptedSnapshot
    # Any, because pydantic 2.5 looks into the annotations of a dataclass, and finds names that are not here.
    written_under: Any = Field(default=None, exclude=True, repr=False)
    picked_from: int | None = Field(default=None, exclude=True, repr=False)


class RemoveUnnamedSnapshotsUpdate(RemoveSnapshotsUpdate):
    """Removes snapshots to which no branch or tag points. PyIceberg's own update takes these branches and tags away with them."""


class UpgradeToVersion3Update(UpgradeFormatVersionUpdate):
    """Sets format version 3 when a table is created. PyIceberg's own update refuses it."""

    format_version: Literal[3] = Field(alias="format-version", default=3)


class EncryptTableUpdate(UpgradeToVersion3Update):
    """Makes a plain table of any version one that can hold keys. The same commit sets encryption.key-id and removes all its snapshots."""


def replaced_keys(entries: Iterable[EncryptedKey]) -> tuple[TableUpdate, ...]:
    """Return the updates that give entries of encryption-keys other values under the same ids."""
    return tuple(update for entry in entries for update in (*removed_keys([entry.key_id]), *added_keys([entry])))


def added_keys(entries: Iterable[EncryptedKey]) -> tuple[TableUpdate, ...]:
    """Return the updates that add entries to encryption-keys."""
    return tuple(cast("TableUpdate", AddEncryptionKeyUpdate(key=entry)) for entry in entries)


def removed_keys(key_ids: Iterable[str]) -> tuple[TableUpdate, ...]:
    """Return the updates that remove entries from encryption-keys."""
    return tuple(cast("TableUpdate", RemoveEncryptionKeyUpdate(key_id=key_id)) for key_id in key_ids)


def _encrypted(metadata: TableMetadata) -> EncryptedTableMetadata:
    if not isinstance(metadata, EncryptedTableMetadata):
        raise ConfigurationError("encryption keys belong to tables of format version 3 with encryption.key-id")
    return metadata


def applied(metadata: TableMetadata, updates: tuple[TableUpdate, ...], metadata_location: str | None = None) -> TableMetadata:
    """Return metadata with updates, as PyIceberg's `update_table_metadata` does.

    A rotation changes a key for each snapshot. PyIceberg would make metadata anew for each change, and the time would grow with the square
    of their number: here those that follow one another are one.
    """
    runs = itertools.groupby(updates, lambda update: isinstance(update, (AddEncryptionKeyUpdate, RemoveEncryptionKeyUpdate)))
    joined = (cast("list[TableUpdate]", [EncryptionKeysUpdate(updates=list(run))] if is_of_keys else run) for is_of_keys, run in runs)
    return update_table_metadata(metadata, tuple(itertools.chain.from_iterable(joined)), metadata_location=metadata_location)


@apply_table_update.register(EncryptionKeysUpdate)
def _change_encryption_keys(  # type: ignore[misc]
    update: EncryptionKeysUpdate, base_metadata: TableMetadata, context: TableMetadataUpdateContext
) -> EncryptedTableMetadata:
    base = _encrypted(base_metadata)
    entries = {key.key_id: key for key in base.encryption_keys}
    for each in update.updates:
        if isinstance(each, RemoveEncryptionKeyUpdate):
            if entries.pop(each.key_id, None) is None:
                continue
        elif entries.get(each.key.key_id) == each.key:
            continue
        else:
            _check_new_key(each.key, entries, base.properties)
            entries[each.key.key_id] = each.key
        context.add_update(each)  # type: ignore[arg-type]

    return base.model_copy(update={"encryption_keys": list(entries.values())})


@apply_table_update.register(AddEncryptionKeyUpdate)
@apply_table_update.register(RemoveEncryptionKeyUpdate)
def _change_encryption_key(  # type: ignore[misc]
    update: AddEncryptionKeyUpdate | RemoveEncryptionKeyUpdate, base_metadata: TableMetadata, context: TableMetadataUpdateContext
) -> EncryptedTableMetadata:
    return _change_encryption_keys(EncryptionKeysUpdate(updates=[update]), base_metadata, context)


def _check_new_key(key: EncryptedKey, entries: Mapping[str, EncryptedKey], table_properties: Mapping[str, Any]) -> None:
    """Check an entry that is not in the metadata.

    Args:
        key: the entry.
        entries: those that the metadata has by now, by their ids.
        table_properties: as the metadata has them.
    """
    if is_gone(key, table_properties):
        # A writer who began before it was shredded, or a copy of older metadata: what is destroyed on purpose stays destroyed.
        raise KeyNotFoundError(f"{key.kind} {key.key_id} was removed from the table on purpose, and is not brought back")
    if key.key_id in entries:
        raise FormatError(f"encryption key {key.key_id} is already in the metadata with another value")
    if key.is_wrapped_by_kms:
        return

    kek = entries.get(key.encrypted_by_id or "")
    # Most are there themselves. Else there may be a copy, for which every entry is looked at.
    is_there = kek is not None and not is_gone(kek, table_properties)
    if not is_there and key.encrypted_by_id not in KeyRing(entries_with_copies(entries.values(), table_properties)):
        # Its KEK was rotated away since it was wrapped. The commit loop wraps it again under the one that is there now.
        raise CommitFailedException(f"KEK {key.encrypted_by_id}, under which the commit's keys are wrapped, is gone from the table")


@apply_table_update.register(RemoveMetadataLogEntriesUpdate)
def _remove_metadata_log_entries(  # type: ignore[misc]
    update: RemoveMetadataLogEntriesUpdate, base_metadata: TableMetadata, context: TableMetadataUpdateContext
) -> EncryptedTableMetadata:
    base = _encrypted(base_metadata)
    kept = [entry for entry in base.metadata_log if entry.metadata_file not in update.metadata_files]
    context.add_update(update)  # type: ignore[arg-type]
    return base.model_copy(update={"metadata_log": kept})


@apply_table_update.register(NextShareStateUpdate)
def _next_share_state(  # type: ignore[misc]
    update: NextShareStateUpdate, base_metadata: TableMetadata, context: TableMetadataUpdateContext
) -> EncryptedTableMetadata:
    base = _encrypted(base_metadata)
    if update.metadata.table_uuid != base.table_uuid:
        raise ConfigurationError(f"the state is of share {update.metadata.table_uuid}, and the table is share {base.table_uuid}")
    context.add_update(update)  # type: ignore[arg-type]
    return update.metadata.model_copy(update={"metadata_log": base.metadata_log})


@apply_table_update.register(AddEncryptedSnapshotUpdate)
def _add_encrypted_snapshot(
    update: AddEncryptedSnapshotUpdate, base_metadata: TableMetadata, context: TableMetadataUpdateContext
) -> EncryptedTableMetadata:
    base = _encrypted(base_metadata)
    snapshot = update.snapshot
    if snapshot.sequence_number is None or snapshot.first_row_id is None or snapshot.added_rows is None:
        raise FormatError(f"snapshot {snapshot.snapshot_id} lacks sequence-number, first-row-id or added-rows, which version 3 requires")

    if update.written_under is not None:
        # The base is what the catalog has, with what this commit changes before the snapshot: a change of keys by others is noticed.
        update.written_under.check(base, snapshot.sequence_number)
    if update.picked_from is not None and base.snapshot_by_id(update.picked_from) is None:
        # Expiry and shredding move no branch, so that no requirement of Iceberg's notices them.
        raise SnapshotGoneError(
            f"{base.location}: snapshot {update.picked_from} is gone, and its files with it: nothing was committed. Write its rows again"
        )
    for followed in (snapshot.parent_snapshot_id, update.picked_from):
        check_types(base, followed)
    has_moved = snapshot.first_row_id < (base.next_row_id or 0) or (
        snapshot.parent_snapshot_id is not None and snapshot.sequence_number <= base.last_sequence_number
    )

    if has_moved:
        # Another branch was committed to: no requirement of this commit says so, but its numbers are taken. The commit loop gives new ones.
        raise CommitFailedException(
            f"the table has moved on: it is at sequence number {base.last_sequence_number} and row id {base.next_row_id}, "
            f"snapshot {snapshot.snapshot_id} was made for {snapshot.sequence_number} and {snapshot.first_row_id}"
        )

    add_snapshot = apply_table_update.dispatch(AddSnapshotUpdate)
    bound = snapshot.bound_to(base.key_ring, base.stated_layout)

    return _encrypted(add_snapshot(update.model_copy(update={"snapshot": bound}), base, context))


@apply_table_update.register(RemoveUnnamedSnapshotsUpdate)
def _remove_unnamed_snapshots(
    update: RemoveUnnamedSnapshotsUpdate, base_metadata: TableMetadata, context: TableMetadataUpdateContext
) -> TableMetadata:
    for name, ref in base_metadata.refs.items():
        # Made since the removal was planned: no requirement of Iceberg's says that there is no further branch or tag.
        if ref.snapshot_id in update.snapshot_ids:
            raise CommitFailedException(
                f"{base_metadata.location}: {ref.snapshot_ref_type} {name!r} points to snapshot {ref.snapshot_id}, which was to go: "
                "nothing was committed. Load the table and do that again"
            )
    if gone := set(update.snapshot_ids).difference(each.snapshot_id for each in base_metadata.snapshots):
        raise CommitFailedException(
            f"{base_metadata.location}: others removed snapshot {min(gone)} meanwhile, which was to go: nothing was committed. "
            "Load the table and do that again"
        )

    return apply_table_update.dispatch(RemoveSnapshotsUpdate)(update, base_metadata, context)


@apply_table_update.register(UpgradeToVersion3Update)
def _upgrade_to_version_3(
    update: UpgradeToVersion3Update, base_metadata: TableMetadata, context: TableMetadataUpdateContext
) -> TableMetadata:
    if base_metadata.format_version != update.format_version:
        raise ConfigurationError("a table of format version 1 or 2 cannot be upgraded to an encrypted one in place: migrate it")
    context.add_update(update)
    return base_metadata


@apply_table_update.register(EncryptTableUpdate)
def _encrypt_table(update: EncryptTableUpdate, base_metadata: TableMetadata, context: TableMetadataUpdateContext) -> EncryptedTableMetadata:
    if isinstance(base_metadata, EncryptedTableMetadata):
        raise ConfigurationError("the table is encrypted already")
    plain = base_metadata.to_v2() if isinstance(base_metadata, TableMetadataV1) else base_metadata
    context.add_update(update)
    return encrypted_metadata(plain)


def removed_snapshots(metadata: TableMetadata, snapshot_ids: Collection[int]) -> tuple[TableUpdate, ...]:
    """Return the updates that remove snapshots with all that names them; none when there are no snapshots."""
    if not snapshot_ids:
        return ()
    removal = cast("TableUpdate", RemoveUnnamedSnapshotsUpdate(snapshot_ids=sorted(snapshot_ids)))
    return (*removed_partition_statistics(metadata, snapshot_ids), removal)


def removed_partition_statistics(metadata: TableMetadata, snapshot_ids: Collection[int]) -> tuple[TableUpdate, ...]:
    """Return the updates that remove what metadata says of the partitions' statistics of snapshots that go.

    PyIceberg removes a table's statistics with a snapshot, and not those of its partitions.
    """
    of_partitions = {each.snapshot_id for each in metadata.partition_statistics}.intersection(snapshot_ids)
    return tuple(cast("TableUpdate", RemovePartitionStatisticsUpdate(snapshot_id=each)) for each in sorted(of_partitions))


def check_properties_keep_key_id(before: Mapping[str, str], after: Mapping[str, object]) -> None:
    """Rule 1 on table properties.

    Raises:
        KeyIdChangedError: the value differs or is gone.
    """
    old, new = before.get(properties.KEY_ID.name), after.get(properties.KEY_ID.name)
    if old == new:
        return
    if new is None:
        raise KeyIdChangedError(
            f"{properties.KEY_ID.name} ({old}) cannot be removed: the table would be written in plaintext from then on. "
            f"A program that replaces all properties of a table needs {properties.KEY_ID.name}={old} among them"
        )

    raise KeyIdChangedError(
        f"{properties.KEY_ID.name} cannot be changed from {old} to {new}: it names the master key for the table's whole life"
    )


def check_table_properties(before: Mapping[str, str], after: Mapping[str, object]) -> None:
    """Rules 1 and 5 on table properties.

    Raises:
        KeyIdChangedError: encryption.key-id differs or is gone.
        ConfigurationError: another property of encryption, or the name mapping, cannot be used; what a property of Iceberg
            is set to here cannot be read, or its name is misspelt.
    """
    check_properties_keep_key_id(before, after)
    # Only what changes: a value that another engine set wrongly must not block commits about something else.
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    check_spelling(changed, OF_TABLES)
    check_values(changed, OF_TABLES)
    KeySettings.of(after)
    check_name_mapping(after)


def depends_on_others(updates: Iterable[IcebergBaseModel]) -> bool:
    """Whether others can have changed what a commit must fit, though all of its requirements are met.

    It adds files that were written under the protection of that moment, changes the protection of columns, or removes snapshots.
    """
    for update in updates:
        if isinstance(update, RemoveSnapshotsUpdate):
            return True
        if isinstance(update, AddEncryptedSnapshotUpdate) and update.written_under is not None:
            return True
    return _protects(updates)


def may_change_declarations(before: TableMetadata, updates: Sequence[TableUpdate]) -> bool:
    """Whether updates protect columns; or, where some are protected, change that, rename or replace columns, or take keys away."""
    if _protects(updates):
        return True
    # Without a protected column there is no declaration that could have to follow.
    return any(_may_unsettle(update) for update in updates) and has_column_keys(before)


def changes_protection(updates: Iterable[TableUpdate]) -> bool:
    """Whether updates say otherwise how columns are protected, or declare it."""
    return any(_protects([update]) or _unprotects(update) or isinstance(update, AddDeclarationUpdate) for update in updates)


def _protects(updates: Iterable[object]) -> bool:
    set_by_them = (name for update in updates if isinstance(update, SetPropertiesUpdate) for name in update.updates)
    return any(name.startswith(COLUMN_PREFIX) for name in set_by_them)


def _unprotects(update: TableUpdate) -> bool:
    return isinstance(update, RemovePropertiesUpdate) and any(name.startswith(COLUMN_PREFIX) for name in update.removals)


def _may_unsettle(update: TableUpdate) -> bool:
    return _unprotects(update) or isinstance(update, (AddSchemaUpdate, SetCurrentSchemaUpdate, RemoveEncryptionKeyUpdate))


def check_commit(before: TableMetadata, after: TableMetadata) -> None:
    """Check the metadata that a commit would write against the metadata that it is based on.

    Raises:
        KeyIdChangedError, ConfigurationError, KeyNotFoundError, PlaintextRefusedError: a rule does not hold.
    """
    check_table_properties(before.properties, after.properties)
    if not isinstance(after, EncryptedTableMetadata):
        raise ConfigurationError(f"an encrypted table has format version 3, the commit would make it {after.format_version}")

    # All snapshots and not the new one alone: a commit that drops a key must not destroy an older snapshot by accident.
    check_snapshots_have_keys(after)
    _check_column_keys_keep_keks(before, after)
    check_policy(before, after)
    _check_refs(before, after)
    if after.current_schema_id != before.current_schema_id:
        check_columns(after.schema())
    for spec_id, spec in after.specs().items():
        if spec_id not in before.specs():
            check_partition_fields(spec)
    added = [each for each in after.statistics if each not in before.statistics]
    if added or any(each not in before.partition_statistics for each in after.partition_statistics):
        raise PlaintextRefusedError(after.location, "statistics files would hold plaintext facts about the data beside an encrypted table")


def _check_refs(before: TableMetadata, after: TableMetadata) -> None:
    kinds = {name: ref.snapshot_ref_type for name, ref in before.refs.items()} | {MAIN_BRANCH: SnapshotRefType.BRANCH}
    for name, ref in after.refs.items():
        # What another client has stored must not block commits about something else.
        if ref == before.refs.get(name):
            continue
        if name not in kinds and not name.strip():
            raise ConfigurationError(f"{name!r} is no name for a {ref.snapshot_ref_type}: choose another one")
        # Nobody could write to a branch that has become a tag, and where its head was would be forgotten.
        if ref.snapshot_ref_type != (kind := kinds.get(name, ref.snapshot_ref_type)):
            raise ConfigurationError(
                f"{name} is a {kind} and cannot become a {ref.snapshot_ref_type}: choose another name, or remove it first"
            )


def check_columns(schema: Schema) -> None:
    """Refuse columns that no file can hold, on whatever level: without a name, structs without fields, two with one id.

    Raises:
        ConfigurationError: there is one.
    """
    if (twice := id_of_two_columns(schema)) is not None:
        raise ConfigurationError(f"two columns of the schema have the field id {twice}: give each its own")
    for field in fields_by_id(schema).values():
        if not field.name:
            raise ConfigurationError("the schema has a column with an empty name, which no file can hold: give it a name")
        if isinstance(field.field_type, StructType) and not field.field_type.fields:
            name = schema.find_column_name(field.field_id)
            raise ConfigurationError(f"the struct {name!r} has no fields, so no Parquet file can hold it: give it one, or leave it out")


def check_partition_fields(spec: PartitionSpec) -> None:
    """Refuse partition fields without a name, of 0 buckets, or of values cut to 0 letters. ConfigurationError: there is one."""
    for field in spec.fields:
        if not field.name:
            raise ConfigurationError("a partition field has an empty name, which no manifest can hold: give it another one")
        transform = field.transform
        number = transform.num_buckets if isinstance(transform, BucketTransform) else getattr(transform, "width", 1)
        if not isinstance(number, int) or not 1 <= number < _MOST_BUCKETS:
            raise ConfigurationError(
                f"the partition field {field.name!r} is {transform}: its number must be between 1 and {_MOST_BUCKETS - 1}"
            )


def check_migration(after: TableMetadata) -> None:
    """Check the metadata with which a plain table becomes an encrypted one.

    Raises:
        ConfigurationError: it is not that of an encrypted table.
        KeyNotFoundError, PlaintextRefusedError: a snapshot cannot be read under its keys, or something in plaintext is still named.
    """
    if not isinstance(after, EncryptedTableMetadata) or not after.properties.get(properties.KEY_ID.name):
        raise ConfigurationError(f"a table becomes an encrypted one only in format version 3 and with {properties.KEY_ID.name}")

    KeySettings.of(after.properties)
    check_name_mapping(after.properties)
    check_snapshots_have_keys(after)
    if after.statistics or after.partition_statistics:
        raise PlaintextRefusedError(
            after.location, "statistics files from before the table was encrypted are plaintext, and would stay beside it"
        )


def check_snapshots_have_keys(metadata: EncryptedTableMetadata) -> None:
    """Rule 3: no metadata is written from which a snapshot could not be read again.

    Raises:
        PlaintextRefusedError: a snapshot has no key-id.
        KeyNotFoundError: its key or the KEK above is missing.
    """
    ring = metadata.key_ring
    for snapshot in metadata.snapshots:
        key_id = snapshot.key_id_of_list()
        if key_id not in ring:
            raise KeyNotFoundError(
                f"snapshot {snapshot.snapshot_id} needs encryption key {key_id}, which the metadata would lack after the commit"
            )

        ring.chain(key_id)


def _check_column_keys_keep_keks(before: TableMetadata, after: EncryptedTableMetadata) -> None:
    """Rule 3 on column keys, which no snapshot names."""
    present, known = after.key_ring, before.key_ring if isinstance(before, EncryptedTableMetadata) else KeyRing()
    for key in present.column_keys:
        # Only what this commit takes out: one that is lost already must not block commits about something else.
        if key.encrypted_by_id in known and key.encrypted_by_id not in present:
            column = present.column(key.field_id)
            raise KeyNotFoundError(
                f"column key {key.key_id} of {column} needs KEK {key.encrypted_by_id}, which the metadata would lack after the commit"
            )


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
        *removed_keys(revived),
        *added_keys(back),
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
