"""Branches and tags of a table: looking them up, letting them point somewhere, dropping them. Each change is one commit.

Raises ConfigurationError for a name or snapshot that the table lacks, and for what cannot be done to a branch or tag.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from tablecrypt.errors import ConfigurationError
from tablecrypt.table.snapshots import RETENTION, check_retention
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import name_of

LIMITS: Final = RETENTION
"""What a branch may say of how long it and its snapshots are kept. A tag has the first alone."""


def head_of(table: EncryptedTable) -> int | None:
    """Return the snapshot that is current; None before the first."""
    return table.metadata.current_snapshot_id


def snapshot_of(table: EncryptedTable, snapshot_id: int) -> Snapshot:
    """Return a snapshot by its id. ConfigurationError where the table has none."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise ConfigurationError(f"{name_of(table)} has no snapshot {snapshot_id}")
    return snapshot


def begins_history(table: EncryptedTable, snapshot: Snapshot) -> bool:
    """Whether a snapshot never had a parent: all that is in it came with it, and it took nothing away.

    Its metadata does not tell it from one whose parent has expired: then it names none either.
    """
    return snapshot.parent_snapshot_id is None and all(
        manifest.added_snapshot_id == snapshot.snapshot_id and not manifest.existing_files_count and not manifest.deleted_files_count
        for manifest in snapshot.manifests(table.io)
    )


def ref_of(table: EncryptedTable, name: str, kind: SnapshotRefType | None = None) -> SnapshotRef:
    """Return a branch or tag, or one of a kind."""
    ref = table.metadata.refs.get(name)
    if ref is None or kind not in (None, ref.snapshot_ref_type):
        raise ConfigurationError(f"{name_of(table)} has no {'branch or tag' if kind is None else kind.value} {name}")
    return ref


def check_is_new(table: EncryptedTable, name: str) -> None:
    """Check that nothing has a name."""
    if (present := table.metadata.refs.get(name)) is not None:
        raise ConfigurationError(f"{name_of(table)} has a {present.snapshot_ref_type.value} {name} already")


def point(table: EncryptedTable, kind: SnapshotRefType, name: str, snapshot_id: int | None, limits: Mapping[str, int | None]) -> int:
    """Make a branch or tag, or move it, and return the snapshot that it points to.

    It is the one that is asked for, or the current one. A new branch of a table without a current one gets an empty snapshot.
    One that moves keeps the limits of age and number that are not given.

    Raises:
        ConfigurationError: no such snapshot, or none yet; or the name is of the other kind, or blank; or a limit is none that tables have.
    """
    _check_name(table, name)
    check_retention(f"{name_of(table)}, {name}", limits)
    limits = {**_limits_of(table, name, kind), **limits}
    target = head_of(table) if snapshot_id is None else snapshot_of(table, snapshot_id).snapshot_id
    if target is None and kind == SnapshotRefType.BRANCH and name not in table.metadata.refs:
        return begin(table, name, limits)
    if target is None:
        raise ConfigurationError(f"{name_of(table)} has no snapshot yet that {name} could point to")

    management = table.manage_snapshots()
    make = management.create_branch if kind == SnapshotRefType.BRANCH else management.create_tag
    make(target, name, **limits).commit()

    return target


def _check_name(table: EncryptedTable, name: str) -> None:
    # A session that sets it from a variable which is not there would put its rows where nobody looks for them.
    if not name.strip() and name not in table.metadata.refs:
        raise ConfigurationError(f"{name_of(table)}: the name {name!r} of a branch or tag is blank: give it a name, or unset the setting")


def _limits_of(table: EncryptedTable, name: str, kind: SnapshotRefType) -> dict[str, int]:
    if name not in table.metadata.refs:
        return {}
    present = ref_of(table, name, kind)
    return {limit: value for limit in LIMITS if (value := getattr(present, limit)) is not None}


def begin(table: EncryptedTable, name: str, limits: Mapping[str, int | None]) -> int:
    """Make a branch with an empty snapshot that follows no other, and return that: where a table has nothing yet to branch from."""
    _check_name(table, name)
    transaction = table.transaction()
    with transaction:
        producer = transaction.update_snapshot(branch=name).fast_append()
        producer.new_branch = producer.new_branch.model_copy(update=dict(limits))
        producer.commit()
    return producer.snapshot_id


def drop(table: EncryptedTable, kind: SnapshotRefType, name: str) -> int:
    """Drop a branch or tag, and return the snapshot that it pointed to."""
    ref = ref_of(table, name, kind)
    management = table.manage_snapshots()
    (management.remove_tag(name) if kind == SnapshotRefType.TAG else management.remove_branch(name)).commit()
    return ref.snapshot_id
