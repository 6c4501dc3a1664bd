"""What a table remembers of its shares: for each, who got which of its files, and under which key.

    property    encryption.share.<share uuid> = {"record": location, "encryption-keys": [KEK, key of the record], "key-id": …}
    record      <location>/metadata/_tablecrypt-shares/<uuid>.entries: an AGS1 stream of a JSON object

      table-uuid          of the table that shares
      share-uuid          the table-uuid of the share
      key-id              the partner's master key, or the fingerprint of his public key
      location            of the share's folder
      metadata-location   of the metadata that the partner gets
      snapshot-id         of this table, from which the files are
      created-ms          milliseconds since the epoch
      row-filter          what the shared rows match
      columns             protected columns that were shared
      files               data and delete files of this table that the share names

Each record is a new file under a DEK of its own, and the property holds what opens it. So who writes storage cannot put another record in
its place. One that is removed or damaged is missed: metadata names it. That a property of metadata.json is missing, or one from before is
back, a pin notices; where there is none, an audit does, as manifest lists say which properties the table had.

The KEK of records is none of the table's: it opens records alone, so that no KEK which `shred` destroys is left in a property. There is one
property for each share, so that two shares at once do not meet, and a new record of a share takes the place of the old one.

A share is remembered before it exists, by a commit on metadata that still has its snapshot. What deletes files looks for records once its
own commit has taken the files out of the metadata. So one of the two sees the other.

The name of the folder begins with _, since others' removal of orphans, Iceberg Java's too, leaves such files alone.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate

from tablecrypt._parsed_json import ParsedJson
from tablecrypt.errors import ConfigurationError, FormatError, KmsError, ShareRecordError, TablecryptError
from tablecrypt.files.deletion import is_journal_name
from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.maintenance._key_commit import commit_keys
from tablecrypt.maintenance._tables import metadata_folder, require_encrypted
from tablecrypt.maintenance._wrapped_files import WrappedFileKey, read_wrapped, write_wrapped
from tablecrypt.properties import SHARE
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import delete_written, name_of

logger = logging.getLogger(__name__)

_FOLDER: Final = "_tablecrypt-shares"
_RECORD: Final = "record"
_TABLE_UUID: Final = "table-uuid"
_TEXTS: Final = ("share_uuid", "key_id", "location", "metadata_location", "row_filter")
_NUMBERS: Final = ("snapshot_id", "created_ms")
_LISTS: Final = ("columns", "files")


@dataclass(frozen=True)
class ShareRecord:
    """What a table remembers of one of its shares.

    Attributes:
        share_uuid: the table-uuid of the share, which is a table of its own.
        key_id: the partner's master key, or the fingerprint of the public key that the share's key is sealed to.
        location: the share's folder.
        metadata_location: the metadata.json that the partner registers.
        snapshot_id: the snapshot of the source from which the files are.
        created_ms: when, in milliseconds since the epoch.
        row_filter: what the shared rows match, as it was given.
        columns: names of the protected columns that were shared.
        files: locations of the source's data and delete files that the share names.
    """

    share_uuid: str
    key_id: str
    location: str
    metadata_location: str
    snapshot_id: int
    created_ms: int
    row_filter: str
    columns: tuple[str, ...]
    files: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True)
class NamedRecord:
    """What metadata says of a share: where its record is, and what opens that."""

    share_uuid: str
    location: str
    key: WrappedFileKey

    @property
    def name(self) -> str:
        """The name of the property that says it."""
        return f"{SHARE.name}{self.share_uuid}"

    @property
    def value(self) -> str:
        """Its value."""
        return json.dumps({_RECORD: self.location, **self.key.fields}, separators=(",", ":"))


def remember_share(table: Table, record: ShareRecord) -> None:
    """Remember a share, before it exists, or what it has become in the place of what was remembered of it.

    One commit of metadata, that others' commits do not keep from being made. Killed before it, nothing is remembered.

    Args:
        table: the table that shares; its state in memory is brought up to date.
        record: what to remember.

    Raises:
        ConfigurationError: the table is not encrypted, or has no longer the snapshot that the files are from.
        KmsError: the KMS did not wrap or unwrap under the table's master key.
        CommitFailedException: others committed too often in the meantime; nothing is remembered.
    """
    source = require_encrypted(table)
    location = f"{metadata_folder(source.metadata)}/{_FOLDER}/{uuid.uuid4()}.entries"
    named = [*_readably_named(source.metadata).values()]
    # Records share a KEK while it may wrap: each new one would cost requests to the KMS.
    last = next((each for each in named if each.share_uuid == record.share_uuid), named[0] if named else None)
    keys, key_id = ((), None) if last is None else (last.key.entries, last.key.key_id)
    key = write_wrapped(source.io, _manager(source), location, _encoded(source.metadata, record), keys, key_id)
    new = NamedRecord(record.share_uuid, location, key)

    try:
        former = commit_keys(table, lambda base: _Naming.of(base, new, record.snapshot_id)).plan.former
    except (TablecryptError, CommitFailedException):
        # Not after other errors: the catalog may have made the commit, and then names the record.
        delete_written(source.io, [location])
        raise

    if former is not None:
        _delete(source, former)


def live_shares(table: Table) -> list[ShareRecord]:
    """Return what a table remembers of its shares, the oldest first. For a table without shares the KMS is not asked.

    Args:
        table: an encrypted table, as it was loaded.

    Raises:
        ShareRecordError: a record that the metadata names is not there or does not open.
        KmsError: the KMS does not unwrap under the table's master key.
    """
    source = require_encrypted(table)
    manager = _manager(source)
    records = [read_record(source, manager, named) for named in named_records(source.metadata)]
    return sorted(records, key=lambda record: (record.created_ms, record.share_uuid))


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
        _delete(source, former)


def named_records(metadata: TableMetadata) -> list[NamedRecord]:
    """Return which records metadata names. ShareRecordError for a property that says of none where it is."""
    named = []
    for name, value in metadata.properties.items():
        if name.startswith(SHARE.name):
            share_uuid = name.removeprefix(SHARE.name)
            try:
                named.append(_parsed(share_uuid, str(value)))
            except FormatError as error:
                raise ShareRecordError(share_uuid, f"its property cannot be read: {error}") from error
    return named


def read_record(table: EncryptedTable, manager: EncryptionManager, named: NamedRecord) -> ShareRecord:
    """Return the record that metadata names.

    Args:
        table: that the metadata is of.
        manager: unwraps under the table's master key.
        named: what the metadata says of it.

    Raises:
        ShareRecordError: it is not there, does not open, or is that of another table or share.
        KmsError: the KMS does not unwrap.
    """
    try:
        content = read_wrapped(table.io, manager, named.location, named.key)
        record, table_uuid = _decoded(named.location, content)
    except KmsError:
        # The record may be whole.
        raise
    except (TablecryptError, FileNotFoundError) as error:
        raise ShareRecordError(named.share_uuid, f"its record {named.location} does not open: {error}") from error

    # The record of another table under the same master key opens here as well.
    if (table_uuid, record.share_uuid) != (str(table.metadata.table_uuid), named.share_uuid):
        raise ShareRecordError(named.share_uuid, f"its record {named.location} is of share {record.share_uuid} of table {table_uuid}")
    return record


def _readably_named(metadata: TableMetadata) -> Mapping[str, NamedRecord]:
    """Return which records metadata names, without what cannot be read."""
    found = {}
    for name, value in metadata.properties.items():
        try:
            if name.startswith(SHARE.name):
                found[name] = _parsed(name.removeprefix(SHARE.name), str(value))
        except FormatError as error:
            logger.warning("the property %s does not say where the record of a share is: %s", name, error)
    return found


def _parsed(share_uuid: str, value: str) -> NamedRecord:
    what = f"{SHARE.name}{share_uuid}"
    try:
        fields = ParsedJson(value).document
        location = str(fields[_RECORD])
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{what} does not name a record: {type(error).__name__}") from None
    # A record is deleted once there is a newer one: an edited property must not name another file of the table.
    if not is_journal_name(location) or f"/{_FOLDER}/" not in location:
        raise FormatError(f"{what}: {location[:80]!r} is not where a record is")

    return NamedRecord(share_uuid, location, WrappedFileKey.of(fields, what))


def _manager(table: EncryptedTable) -> EncryptionManager:
    # Of its own, as one manager offers a KEK that was not committed to the table's next commit.
    own = table.io.manager
    return EncryptionManager(own.kms, own.table_key_id, data_key_length=own.data_key_length, kek_lifespan_ms=own.kek_lifespan_ms)


def _delete(table: EncryptedTable, record: NamedRecord) -> None:
    delete_written(table.io, [record.location])


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
        former = _readably_named(base.metadata).get(new.name)
        return cls((SetPropertiesUpdate(updates={new.name: new.value}),), former)


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
        return cls((cast("TableUpdate", RemovePropertiesUpdate(removals=[name])),), _readably_named(base.metadata).get(name))


def _encoded(metadata: TableMetadata, record: ShareRecord) -> bytes:
    fields = {_json_name(name): value for name, value in vars(record).items()}
    return json.dumps({_TABLE_UUID: str(metadata.table_uuid), **fields}).encode()


def _decoded(location: str, content: bytes) -> tuple[ShareRecord, str]:
    try:
        fields = ParsedJson(content).document
        given: dict[str, Any] = {name: _typed(fields[_json_name(name)], str) for name in _TEXTS}
        given |= {name: _typed(fields[_json_name(name)], int) for name in _NUMBERS}
        given |= {name: tuple(_typed(each, str) for each in fields[_json_name(name)]) for name in _LISTS}
        return ShareRecord(**given), str(fields[_TABLE_UUID])
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{location}: not the record of a share: {type(error).__name__}") from None


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"a {type(value).__name__} in the place of a {kind.__name__}")
    return value


def _json_name(attribute: str) -> str:
    return attribute.replace("_", "-")
