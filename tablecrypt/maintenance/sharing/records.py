"""Remembering a share, and forgetting it: one commit each of the table's metadata, which names the record (see table/shares.py).

A share is remembered before it exists, by a commit on metadata that still has its snapshot. What deletes files looks for records once its
own commit has taken the files out of the metadata. So one of the two sees the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate

from tablecrypt.errors import ConfigurationError, TablecryptError
from tablecrypt.maintenance._key_commit import commit_keys
from tablecrypt.maintenance._tables import require_encrypted
from tablecrypt.properties import SHARE
from tablecrypt.table.shares import NamedRecord, ShareRecord, live_shares, new_record, readably_named
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import delete_written, name_of

__all__ = ["ShareRecord", "forget_share", "live_shares", "remember_share"]


def remember_share(table: Table, record: ShareRecord) -> None:
    """Remember a share, before it exists, or what it has become in the place of what was remembered of it.

    One commit of metadata, tried again on what others commit. Killed before it, nothing is remembered.

    Args:
        table: the table that shares; its state in memory is brought up to date.
        record: what to remember.

    Raises:
        ConfigurationError: the table is not encrypted, or has no longer the snapshot that the files are from.
        AuthenticationError, KmsError: the KMS did not wrap or unwrap under the table's master key.
        CommitFailedException: others committed too often in the meantime; nothing is remembered.
    """
    source = require_encrypted(table)
    new = new_record(source.metadata, source.io, record)
    try:
        former = commit_keys(table, lambda base: _Naming.of(base, new, record.snapshot_id)).plan.former
    except (TablecryptError, CommitFailedException):
        # Not after other errors: the catalog may have made the commit, and then names the record.
        delete_written(source.io, [new.location])
        raise

    if former is not None:
        delete_written(source.io, [former.location])


def forget_share(table: Table, share_uuid: str) -> None:
    """Forget a share, whether its record opens or not. Nothing happens where none of this uuid is remembered.

    Args:
        table: the table that shares; its state in memory is brought up to date.
        share_uuid: of the share.

    Raises:
        ConfigurationError: the table is not encrypted.
        CommitFailedException: others committed too often in the meantime; the share is still remembered.
    """
    source = require_encrypted(table)
    former = commit_keys(table, lambda base: _Forgetting.of(base, share_uuid)).plan.former
    if former is not None:
        delete_written(source.io, [former.location])


@dataclass(frozen=True)
class _Naming:
    """The plan of the commit that names a record; the record that was named before, if any."""

    updates: tuple[TableUpdate, ...]
    former: NamedRecord | None

    @classmethod
    def of(cls, base: EncryptedTable, new: NamedRecord, snapshot_id: int) -> _Naming:
        if base.metadata.snapshot_by_id(snapshot_id) is None:
            # What expired it may have deleted its files by now.
            raise ConfigurationError(f"{name_of(base)} has no snapshot {snapshot_id} any more, so its files are not shared: share again")
        return cls((SetPropertiesUpdate(updates={new.name: new.value}),), readably_named(base.metadata).get(new.share_uuid))


@dataclass(frozen=True)
class _Forgetting:
    """The plan of the commit that forgets a share; the record that was named, if any."""

    updates: tuple[TableUpdate, ...]
    former: NamedRecord | None = None

    @classmethod
    def of(cls, base: EncryptedTable, share_uuid: str) -> _Forgetting:
        name = f"{SHARE.name}{share_uuid}"
        if name not in base.metadata.properties:
            return cls(())
        removal = cast("TableUpdate", RemovePropertiesUpdate(removals=[name]))
        return cls((removal,), readably_named(base.metadata).get(share_uuid))
