"""Remembering a share, and forgetting it: one commit each of the table's metadata, which names the record (table/shares.py); and a list.

A share is remembered before it exists, by a commit on metadata that still has its snapshot. What deletes files looks for records once its
own commit has taken the files out of the metadata. So one of the two sees the other.

So do an update and the end of a share. Each commits only where the record is still the one that it began with; an update looks again once
its state is written, and takes it away where the share has ended; and the end looks into the folder again once the share is forgotten.

The list of live shares is what the records say: to whom, how many files, since when, under which key.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Literal, cast

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate

from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import ConfigurationError, TablecryptError
from tablecrypt.maintenance._key_commit import commit_keys
from tablecrypt.maintenance.operation import moment_of, reload, require_encrypted
from tablecrypt.printable import AsJson, counted, local_moment, shown
from tablecrypt.properties import SHARE
from tablecrypt.table.shares import NamedRecord, ShareRecord, live_shares, new_record, readably_named
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import delete_written, name_of

__all__ = ["ShareRecord", "forget_share", "live_shares", "remember_share"]


Former = NamedRecord | Literal["any"] | None
"""The record that an operation began with; None: there was none; "any": whichever is named by now."""


def remember_share(table: Table, record: ShareRecord, former: Former = "any") -> NamedRecord:
    """Remember a share, before it exists, or what it has become in the place of what was remembered of it.

    One commit of metadata, tried again on what others commit. Killed before it, nothing is remembered.

    Args:
        table: the table that shares; its state in memory is brought up to date.
        record: what to remember.
        former: the record whose place it takes.

    Returns:
        What the metadata says of the share now.

    Raises:
        ConfigurationError: the table is not encrypted, or has no longer the snapshot that the files are from.
        AuthenticationError, KmsError: the KMS did not wrap or unwrap under the table's master key.
        CommitFailedException: others committed too often in the meantime, or ended or updated the share; nothing is remembered.
    """
    source = require_encrypted(table)
    new = new_record(source.metadata, source.io, record)
    try:
        replaced = commit_keys(table, lambda base: _Naming.of(base, new, record.snapshot_id, former)).plan.former
    except (TablecryptError, CommitFailedException):
        # Not after other errors: the catalog may have made the commit, and then names the record.
        delete_written(source.io, [new.location])
        raise

    if table.metadata.snapshot_by_id(record.snapshot_id) is None:
        # Of two commits at once, of a property and of keys and snapshots, a REST server takes both.
        commit_keys(table, lambda base: _Undoing.of(base, new, replaced))
        delete_written(source.io, [new.location])
        raise _without_snapshot(table, record.snapshot_id)
    if replaced is not None:
        delete_written(source.io, [replaced.location])
    return new


def check_named(metadata: TableMetadata, share_uuid: str, expected: Former) -> NamedRecord | None:
    """Return the record of a share that metadata names, if any. CommitFailedException where it is not the expected one."""
    named = readably_named(metadata).get(share_uuid)
    if expected == "any":
        return named
    # By its place alone: a rotation wraps the key of the same record again.
    if (named and named.location) != (expected and expected.location):
        raise CommitFailedException(
            f"share {share_uuid} was ended, or brought up to date, by another process meanwhile: look at the table's shares, and try again"
        )
    return named


def forget_share(table: Table, share_uuid: str, former: Former = "any") -> None:
    """Forget a share, whether its record opens or not. Nothing happens where none of this uuid is remembered.

    Args:
        table: the table that shares; its state in memory is brought up to date.
        share_uuid: of the share.
        former: its record.

    Raises:
        ConfigurationError: the table is not encrypted.
        CommitFailedException: others committed too often in the meantime, or updated the share; it is still remembered.
    """
    source = require_encrypted(table)
    forgotten = commit_keys(table, lambda base: _Forgetting.of(base, share_uuid, former)).plan.former
    if forgotten is not None:
        delete_written(source.io, [forgotten.location])


@dataclass(frozen=True)
class _Naming:
    """The plan of the commit that names a record; the record that was named before, if any."""

    updates: tuple[TableUpdate, ...]
    former: NamedRecord | None

    @classmethod
    def of(cls, base: EncryptedTable, new: NamedRecord, snapshot_id: int, former: Former) -> _Naming:
        if base.metadata.snapshot_by_id(snapshot_id) is None:
            raise _without_snapshot(base, snapshot_id)
        return cls((SetPropertiesUpdate(updates={new.name: new.value}),), check_named(base.metadata, new.share_uuid, former))


def _without_snapshot(table: Table, snapshot_id: int) -> ConfigurationError:
    # What expired it may have deleted its files by now.
    return ConfigurationError(f"{name_of(table)} has no snapshot {snapshot_id} any more, so its files are not shared: share again")


@dataclass(frozen=True)
class _Undoing:
    """The plan of the commit that names again what was named before a record."""

    updates: tuple[TableUpdate, ...]

    @classmethod
    def of(cls, base: EncryptedTable, new: NamedRecord, former: NamedRecord | None) -> _Undoing:
        if base.metadata.properties.get(new.name) != new.value:
            return cls(())
        if former is None:
            return cls((cast("TableUpdate", RemovePropertiesUpdate(removals=[new.name])),))
        return cls((SetPropertiesUpdate(updates={former.name: former.value}),))


@dataclass(frozen=True)
class _Forgetting:
    """The plan of the commit that forgets a share; the record that was named, if any."""

    updates: tuple[TableUpdate, ...]
    former: NamedRecord | None = None

    @classmethod
    def of(cls, base: EncryptedTable, share_uuid: str, former: Former) -> _Forgetting:
        name = f"{SHARE.name}{share_uuid}"
        if name not in base.metadata.properties:
            return cls(())
        removal = cast("TableUpdate", RemovePropertiesUpdate(removals=[name]))
        return cls((removal,), check_named(base.metadata, share_uuid, former))


@dataclass(frozen=True)
class LiveShare:
    """One share.

    Attributes:
        share_uuid: the table-uuid of the share.
        key_id: the partner's master key, or the fingerprint of the public key that the share's key is sealed to.
        since: when it was shared, or last updated.
        location: its folder.
        metadata_location: the metadata that the partner gets.
        snapshot_id: of the table, from which the files are.
        row_filter: what the shared rows match; empty for all.
        columns: protected columns that were shared, by name with the partner's master key of each.
        files: how many data and delete files of the table it names.
    """

    share_uuid: str
    key_id: str
    since: dt.datetime
    location: str
    metadata_location: str
    snapshot_id: int
    row_filter: str
    columns: dict[str, str]
    files: int

    @classmethod
    def of(cls, record: ShareRecord) -> LiveShare:
        """Return what a record says."""
        return cls(
            record.share_uuid,
            record.key_id,
            moment_of(record.created_ms),
            record.location,
            record.metadata_location,
            record.snapshot_id,
            record.row_filter,
            {each.name: each.key_id for each in record.columns},
            len(record.files),
        )

    def __str__(self) -> str:
        """Return it for people."""
        rows = f" where {self.row_filter}" if self.row_filter else ""
        files, since = counted(self.files, "file", "files"), local_moment(self.since)
        columns = "".join(f", with column {name} under {key_id}" for name, key_id in self.columns.items())
        return f"{self.share_uuid}: {files}{rows}{columns}, to {self.key_id} since {since}, at {self.location}"


@dataclass(frozen=True)
class Shares(AsJson):
    """The live shares of a table, the oldest first."""

    table: str
    shares: tuple[LiveShare, ...] = field(metadata=shown("shares", is_whole=True))

    def summary(self) -> str:
        """Return how many there are in one sentence."""
        return f"{self.table} has {counted(len(self.shares), 'live share', 'live shares') if self.shares else 'no live share'}."


@checked_arguments()
def shares(table: Table) -> Shares:
    """List the live shares of an encrypted table.

    Args:
        table: an encrypted table; its current state is loaded again.

    Raises:
        ConfigurationError: the table is not encrypted.
        ShareRecordError: what the table remembers of a share cannot be read.
        KmsError: the KMS does not unwrap under the table's master key.
    """
    fresh = reload(table)
    return Shares(name_of(fresh), tuple(LiveShare.of(record) for record in live_shares(fresh)))
