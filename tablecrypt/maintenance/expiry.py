"""Expiring snapshots by their age and number, and deleting the files and the metadata that only they needed.

    branches, tags   one whose newest snapshot is older than its max-ref-age-ms goes; the main branch never does
    of each branch   its snapshots stay while they are younger than the limit, and the newest ones in any case
    other snapshots  those that no branch or tag leads to stay while they are younger than the limit
    files            what the table led to before the commit, and does not lead to after it, is deleted; statistics too, which others wrote;
                     but for what a live share names

Limits: arguments, else a branch's own, else the properties history.expire.*, else five days and one snapshot, as Iceberg has them.

Where that is asked for, schemas and partition specs go too that nothing of the table needs any more, which Iceberg calls expired metadata:

    specs      go where no manifest of a remaining snapshot is of them, and new files are not written in them
    schemas    go where no remaining snapshot names them, and schemas that stay have all of their columns, with id, name and type

The second rule is stricter than Iceberg's. Files that stay may have been written under a schema that no snapshot names any more. What tells
their columns apart, which of them were protected, masked or dropped, and what a dropped one can be restored from is in the older schemas.
So a column that was dropped, renamed or given another type keeps the schema that knows it so.

Nothing of encryption-keys goes by this: a key goes with the last snapshot that needs it.

Iceberg table spec, "Snapshot Retention Policy".
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, cast

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    RemovePartitionSpecsUpdate,
    RemoveSchemasUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.table.update.snapshot import ManageSnapshots

from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.files.deletion import place_of
from tablecrypt.files.encrypting_file_io import refuse_restricted
from tablecrypt.iceberg_properties import MAX_REF_AGE, MAX_SNAPSHOT_AGE, MIN_SNAPSHOTS
from tablecrypt.maintenance._storage import refused_deletion
from tablecrypt.maintenance.operation import OperationResult, checked_moment, reload, require_encrypted, snapshot_ids
from tablecrypt.maintenance.reachable import FileKind, Reachable, reachable_files
from tablecrypt.table._pyiceberg.statistics import statistics_locations
from tablecrypt.table.shares import deleting_io
from tablecrypt.table.table import EncryptedExpireSnapshots, EncryptedTable
from tablecrypt.table.table_files import TableFileIO, name_of

_ATTEMPTS: Final = 5
_Column: TypeAlias = tuple[int, str, str]


@dataclass(frozen=True)
class ExpiredSnapshots(OperationResult):
    """What was expired, or with dry_run would be.

    Attributes:
        snapshots: ids of the snapshots.
        refs: branches and tags that went.
        deleted: each file that only they needed and that was deleted, with what it was; for a dry run, none.
        failed: for each location that could not be deleted, what the store said.
        refused: files that need not be the table's, or that a live share names, and that stay; with the reason.
    """

    snapshots: tuple[int, ...]
    refs: tuple[str, ...] = ()
    deleted: dict[str, FileKind] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Limits:
    """When snapshots and refs expire: moments are milliseconds since 1970, ages milliseconds."""

    now: int
    older_than: int
    min_snapshots: int
    max_ref_age: int

    @classmethod
    def of(cls, metadata: TableMetadata, older_than: dt.datetime | None, retain_last: int | None) -> _Limits:
        now = int(dt.datetime.now(dt.UTC).timestamp() * 1000)
        if older_than is not None:
            limit = int(checked_moment("older_than", older_than).timestamp() * 1000)
        else:
            limit = now - MAX_SNAPSHOT_AGE.whole_number(metadata.properties)

        keep = MIN_SNAPSHOTS.whole_number(metadata.properties) if retain_last is None else retain_last
        if keep < 1:
            # With 0 the head of a branch would expire.
            raise ConfigurationError(f"retain_last is {keep}; it must be 1 or more")

        return cls(now, limit, keep, MAX_REF_AGE.whole_number(metadata.properties))


@dataclass(frozen=True)
class _Plan:
    snapshots: frozenset[int]
    refs: dict[str, SnapshotRef]


@checked_arguments(but=("older_than", "snapshots"))
def expire_snapshots(
    table: Table,
    older_than: dt.datetime | None = None,
    retain_last: int | None = None,
    snapshots: Sequence[int] = (),
    dry_run: bool = False,
    delete_below: Sequence[str] = (),
    clean_metadata: bool = False,
    break_shares: bool = False,
) -> ExpiredSnapshots:
    """Expire snapshots of an encrypted table, with the keys and the files that only they needed.

    What deleted files were encrypted under is gone from the metadata, but an older metadata file may still hold it: `shred` ends that.

    Args:
        table: an encrypted table; its current state is loaded again.
        older_than: only snapshots from before this moment, which has a time zone; by default as the table's properties say.
        retain_last: how many of a branch's newest snapshots stay in any case; by default as the branch or the table's properties say.
        snapshots: ids of snapshots that expire in any case.
        dry_run: whether only to find them.
        delete_below: folders of the table in which files may be deleted, where no pin says where it lies.
        clean_metadata: whether schemas and partition specs go, too, that the remaining snapshots do not need.
        break_shares: whether files go, too, that a live share names; by default they stay until the share ends, and are in the result.

    Raises:
        ConfigurationError: the table is not encrypted; an argument cannot be used, among them the id of a snapshot that a branch or tag
            points to; or the table has gc.enabled=false, or neither a pin nor `delete_below` says where it lies. Nothing was changed.
        ShareRecordError: what the table remembers of a share cannot be read. Nothing was changed.
        CommitFailedException: other writers committed first, several times in a row. Nothing was changed.
        FormatError, KmsError: snapshots were expired, but what the others need cannot be read, so that no file was deleted:
            `remove_orphan_files` finds the files when it can.
    """
    require_encrypted(table)
    named = snapshot_ids(snapshots)
    for attempt in range(_ATTEMPTS):
        # Planned anew at each attempt: what others have committed meanwhile may need what the plan before would expire.
        current = reload(table)
        refuse_restricted(current.io, "expire_snapshots")
        if not dry_run:
            # For what it refuses, before anything is changed.
            deleting_io(current, delete_below, break_shares=break_shares)
        plan = _plan(current.metadata, _Limits.of(current.metadata, older_than, retain_last), named)
        result = ExpiredSnapshots(name_of(table), dry_run, tuple(sorted(plan.snapshots)), tuple(sorted(plan.refs)))
        if dry_run or not (plan.snapshots or plan.refs or clean_metadata):
            return result

        # Before the commit: it takes the keys along that open the manifest lists of the expired snapshots.
        before = _kinds(reachable_files(current.metadata, current.io), current.metadata)

        try:
            _commit(current, plan, clean_metadata)
        except CommitFailedException:
            if attempt == _ATTEMPTS - 1:
                raise
            continue

        after = reload(table)
        # Of now: a share that was remembered since names files of snapshots that were there then.
        return _without_files(result, before, after, deleting_io(after, delete_below, break_shares=break_shares))

    raise AssertionError("the last attempt returns or raises")


def _plan(metadata: TableMetadata, limits: _Limits, named: frozenset[int]) -> _Plan:
    expired_refs = {name: ref for name, ref in metadata.refs.items() if name != MAIN_BRANCH and _is_old(metadata, ref, limits)}
    refs = {name: ref for name, ref in metadata.refs.items() if name not in expired_refs}
    known = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    if unknown := named - known:
        raise ConfigurationError(f"the table has no snapshot {', '.join(map(str, sorted(unknown)))}")

    for name, ref in refs.items():
        if ref.snapshot_id in named:
            raise ConfigurationError(f"snapshot {ref.snapshot_id} cannot expire: {name} points to it")
    led_to: set[int] = set()
    kept: set[int] = set()

    for ref in refs.values():
        if ref.snapshot_ref_type == SnapshotRefType.TAG:
            led_to.add(ref.snapshot_id)
            kept.add(ref.snapshot_id)
        else:
            branch = list(_branch(metadata, ref))
            led_to.update(branch)
            kept.update(_kept_of_branch(metadata, ref, branch, limits))

    kept |= {each.snapshot_id for each in metadata.snapshots if each.snapshot_id not in led_to and each.timestamp_ms >= limits.older_than}

    return _Plan(frozenset((known - kept) | named), expired_refs)


def _is_old(metadata: TableMetadata, ref: SnapshotRef, limits: _Limits) -> bool:
    snapshot = metadata.snapshot_by_id(ref.snapshot_id)
    max_age = limits.max_ref_age if ref.max_ref_age_ms is None else ref.max_ref_age_ms
    # A ref whose snapshot is gone leads nowhere, and goes, as in Iceberg Java.
    return snapshot is None or limits.now - snapshot.timestamp_ms > max_age


def _branch(metadata: TableMetadata, ref: SnapshotRef) -> Iterator[int]:
    head = metadata.snapshot_by_id(ref.snapshot_id)
    return (snapshot.snapshot_id for snapshot in ancestors_of(head, metadata))


def _kept_of_branch(metadata: TableMetadata, ref: SnapshotRef, branch: Sequence[int], limits: _Limits) -> Iterator[int]:
    older_than = limits.older_than if ref.max_snapshot_age_ms is None else limits.now - ref.max_snapshot_age_ms
    least = limits.min_snapshots if ref.min_snapshots_to_keep is None else ref.min_snapshots_to_keep
    for position, snapshot_id in enumerate(branch):
        snapshot = metadata.snapshot_by_id(snapshot_id)
        # From the first that expires on, all expire, as in Iceberg Java, even where a clock made an older one look younger.
        if snapshot is None or (position >= least and snapshot.timestamp_ms < older_than):
            return
        yield snapshot_id


def _commit(table: EncryptedTable, plan: _Plan, clean_metadata: bool) -> None:
    transaction = table.transaction()
    with transaction:
        # Refs first: PyIceberg does not expire a snapshot that a ref of the transaction's metadata points to.
        if plan.refs:
            with ManageSnapshots(transaction) as management:
                for name, ref in plan.refs.items():
                    remove = management.remove_tag if ref.snapshot_ref_type == SnapshotRefType.TAG else management.remove_branch
                    remove(name)

        if plan.snapshots:
            EncryptedExpireSnapshots(transaction=transaction).by_ids(list(plan.snapshots)).commit()

        if clean_metadata:
            # What must hold is compared with the table as it is: branches that this commit removes are not among them.
            transaction.apply(*removal_of_unused(transaction.table_metadata, table.io))


def _kinds(found: Reachable, metadata: TableMetadata) -> dict[str, FileKind]:
    """Return what each file is that a table's metadata leads to, by its location."""
    kinds = {file.location: file.kind for file in found.files.values()}
    return kinds | dict.fromkeys(statistics_locations(metadata), FileKind.STATISTICS)


def still_needed(table: EncryptedTable) -> set[str]:
    """Return the locations of all that a table needs after snapshots of it were expired.

    Raises:
        FormatError: files of the remaining snapshots cannot be read: what a manifest that does not open names may be shared with the
            expired ones.
    """
    found = reachable_files(table.metadata, table.io)
    if found.unopened:
        raise FormatError(
            f"snapshots of {name_of(table)} were expired, but no file was deleted, since files of the remaining snapshots cannot be read: "
            f"{found.unopened[0].error}"
        )

    # Statistics are whatever the metadata say: a forged entry may name the metadata themselves.
    logged = (entry.metadata_file for entry in table.metadata.metadata_log)
    return {table.metadata_location, *logged, *_kinds(found, table.metadata)}


def _without_files(result: ExpiredSnapshots, before: Mapping[str, FileKind], after: EncryptedTable, io: TableFileIO) -> ExpiredSnapshots:
    needed = set(map(place_of, still_needed(after)))
    unneeded = {location: kind for location, kind in before.items() if place_of(location) not in needed}
    refused = {location: reason for location in unneeded if (reason := io.deletable.reason_against(location)) is not None}
    failed = {location: said for location in unneeded if location not in refused and (said := refused_deletion(io, location))}
    deleted = {location: kind for location, kind in unneeded.items() if location not in refused and location not in failed}

    return replace(result, deleted=deleted, failed=failed, refused=refused)


def removal_of_unused(metadata: TableMetadata, io: FileIO) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Return the updates that remove what is not needed, and what must hold when they are committed; nothing where all is needed.

    Args:
        metadata: the table's, without the snapshots that expire.
        io: opens the lists of the remaining ones.

    Raises:
        FormatError, TamperedFileError, KmsError: a manifest list does not open.
    """
    specs, schemas = _unused_specs(metadata, io), _unused_schemas(metadata)
    updates: list[TableUpdate] = []
    if specs:
        updates.append(cast("TableUpdate", RemovePartitionSpecsUpdate(spec_ids=specs)))
    if schemas:
        updates.append(cast("TableUpdate", RemoveSchemasUpdate(schema_ids=schemas)))
    if not updates:
        return (), ()

    # A commit that lands in between may be of a spec or schema that looks unused here.
    heads = [
        AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id)
        for name, ref in metadata.refs.items()
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH
    ]
    current = AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id)

    return tuple(updates), (*heads, current, AssertDefaultSpecId(default_spec_id=metadata.default_spec_id))


def _unused_specs(metadata: TableMetadata, io: FileIO) -> list[int]:
    # New files are written under the default spec, whether or not a manifest is of it yet.
    used = {metadata.default_spec_id}
    for snapshot in metadata.snapshots:
        # A list says of which spec each manifest is, so no manifest has to be opened.
        used |= {manifest.partition_spec_id for manifest in snapshot.manifests(io)}
    return sorted(spec.spec_id for spec in metadata.partition_specs if spec.spec_id not in used)


def _unused_schemas(metadata: TableMetadata) -> list[int]:
    named = {metadata.current_schema_id, *(snapshot.schema_id for snapshot in metadata.snapshots)}
    known = {column for schema in metadata.schemas if schema.schema_id in named for column in _columns(schema)}
    unused: list[int] = []

    # Newest first: of several schemas that know a column alike, the newest one stays.
    for schema in sorted(metadata.schemas, key=lambda each: each.schema_id, reverse=True):
        if schema.schema_id in named:
            continue
        if _columns(schema) <= known:
            unused.append(schema.schema_id)
        else:
            known |= _columns(schema)

    return sorted(unused)


def _columns(schema: Schema) -> set[_Column]:
    return {(field_id, str(schema.find_column_name(field_id)), _kind(schema, field_id)) for field_id in schema.field_ids}


def _kind(schema: Schema, field_id: int) -> str:
    """The type of a column; of a struct, list or map that it is one, since the columns inside are columns too."""
    found = schema.find_type(field_id)
    return str(found) if found.is_primitive else type(found).__name__
