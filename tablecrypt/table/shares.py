"""What a table remembers of its shares: for each, who got which of its files, and under which key; and that no shared file is deleted.

    property    encryption.share.<share uuid> = {"record": location, "encryption-keys": [KEK, key of the record], "key-id": …}
    record      <location>/metadata/_tablecrypt-shares/<uuid>.entries: an AGS1 stream of a JSON object

      table-uuid          of the table that shares
      share-uuid          the table-uuid of the share
      key-id              the partner's master key, or the fingerprint of his public key
      location            of the share's folder
      metadata-location   of the metadata that the partner gets
      snapshot-id         of this table, from which the files are
      created-ms          milliseconds since the epoch
      row-filter          what the shared rows match; without its values where it compares a protected column
      columns             protected columns that were shared, as objects: field-id, name, key-id of the partner's master key, and the proof
                          that somebody with the column's key shared it (keys/share_proofs.py), without which no update goes on with it
      files               data and delete files of this table that the share names
      former-files        further ones, which only states before name that are still stored; records of earlier releases have none
      former-columns      protected columns that only such states have, as above; likewise
      without             field ids of columns that may not leave, which updates leave out too; likewise
      with-statistics     whether the partner gets bounds and counts; likewise
      secret              what the lists of all states of the share say, as base64; records of earlier releases have none

Each record is a new file under a DEK of its own, and the property holds what opens it. So who writes storage cannot put another record in
its place. One that is removed or damaged is missed: metadata names it. That a property of metadata.json is missing, or one from before is
back, a pin notices; where there is none, an audit does, as manifest lists say which properties the table had.

The KEK of records is none of the table's: it opens records alone, so that no KEK which `shred` destroys is left in a property. There is one
property for each share, so that two shares at once do not meet, and a new record of a share takes the place of the old one.

The name of the folder begins with _, since others' removal of orphans, Iceberg Java's too, leaves such files alone.

Files that a live share names are not deleted:

    expiry, orphans                    go on without the shared files, and say so: a nightly job does not stop because of a share
    erasure, purge                     stop before anything is changed: rows that were to be erased, or a table, would be left in part
    shredding of snapshots, columns    stops: whom the files were shared with opens them all the same
    compaction, re-encryption          delete nothing: the share goes on with the files that it names

Each goes on with `break_shares`. Nothing here keeps others from deleting a file, such as the expiry of Iceberg Java: a tag on the snapshot
that is shared does.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, cast

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from tablecrypt._parsed_json import ParsedJson
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, FormatError, KmsError, SharedFilesError, ShareRecordError, TablecryptError
from tablecrypt.files.deletion import SHARE_RECORDS, FilePlace, is_share_record_name, place_of, unusable_location
from tablecrypt.files.encrypting_file_io import WrappedFileKey, encrypting_io, read_wrapped, write_wrapped
from tablecrypt.keys.key_ring import EncryptedKey
from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.manifests.manifest_list import share_secret_in, share_secret_text
from tablecrypt.printable import counted, shell_word, sql_string
from tablecrypt.properties import SHARE
from tablecrypt.table.table_files import TableFileIO, check_garbage_is_collected, name_of

_RECORD: Final = "record"
_TABLE_UUID: Final = "table-uuid"
_TEXTS: Final = ("share_uuid", "key_id", "location", "metadata_location", "row_filter")
_NUMBERS: Final = ("snapshot_id", "created_ms")
_LAST_MOMENT_MS: Final = 253_402_300_799_999
"""Of the year 9999: Python has no later one."""
_COLUMNS: Final = "columns"
_FILES: Final = "files"
_FORMER_FILES: Final = "former-files"
_FORMER_COLUMNS: Final = "former-columns"
_WITHOUT: Final = "without"
_WITH_STATISTICS: Final = "with-statistics"
_SECRET: Final = "secret"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SharedColumn:
    """A protected column that a share has.

    Attributes:
        field_id: the column's.
        name: its name when it was shared.
        key_id: the partner's master key that opens it.
        proof: that somebody with the column's key shared it (keys/share_proofs.py); empty where nothing proves it.
    """

    field_id: int
    name: str
    key_id: str
    proof: str = field(default="", repr=False, compare=False)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Return what a record says of a column. KeyError or TypeError where it says none."""
        return cls(
            _typed(fields["field-id"], int),
            _typed(fields["name"], str),
            _typed(fields["key-id"], str),
            _typed(fields.get("proof", ""), str),
        )


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
        row_filter: what the shared rows match, as it was given; with "?" in place of values where it compares a protected column.
        columns: the protected columns that were shared.
        files: locations of the source's data and delete files that the share names.
        former_files, former_columns: further ones, and columns, of states before that are still stored: who is at one opens them still.
        without: field ids of columns that may not leave: no update gives them.
        with_statistics: whether the partner gets bounds and counts of the columns.
        secret: what the manifest lists of all its states say, by which the partner tells that one follows the other; None in records of
            earlier releases.
    """

    share_uuid: str
    key_id: str
    location: str
    metadata_location: str
    snapshot_id: int
    created_ms: int
    row_filter: str
    columns: tuple[SharedColumn, ...]
    files: tuple[str, ...] = field(repr=False)
    former_files: tuple[str, ...] = field(default=(), repr=False)
    former_columns: tuple[SharedColumn, ...] = ()
    without: tuple[int, ...] = ()
    with_statistics: bool = True
    secret: Secret | None = field(default=None, repr=False, compare=False)

    @property
    def all_files(self) -> tuple[str, ...]:
        """The files of all states that are stored."""
        return (*self.files, *self.former_files)

    @property
    def all_columns(self) -> tuple[SharedColumn, ...]:
        """The protected columns of all states that are stored."""
        return (*self.columns, *self.former_columns)


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

    def with_kek(self, kek: EncryptedKey) -> NamedRecord:
        """Return the same with another entry for its KEK, which opens the same."""
        key = replace(self.key, entries=(kek, self.key.chain.manifest_list_key))
        return replace(self, key=key)


def new_record(metadata: TableMetadata, io: TableFileIO, record: ShareRecord) -> NamedRecord:
    """Write a record, and return what metadata is to say of it.

    Args:
        metadata: of the table that shares.
        io: the table's.
        record: what to remember.

    Raises:
        AuthenticationError, KmsError: the KEK of the table's records cannot be used.
    """
    location = f"{metadata.location.rstrip('/')}/metadata/{SHARE_RECORDS}/{uuid.uuid4()}.entries"
    named = readably_named(metadata)
    # Records share a KEK while it may wrap: each new one would cost requests to the KMS.
    last = named.get(record.share_uuid) or next(iter(named.values()), None)
    keys, key_id = ((), None) if last is None else (last.key.entries, last.key.key_id)

    key = write_wrapped(io, _record_manager(io), location, _encoded(metadata, record), keys, key_id)
    return NamedRecord(record.share_uuid, location, key)


def live_shares(table: Table) -> list[ShareRecord]:
    """Return what a table remembers of its shares, the oldest first. For a table without shares the KMS is not asked.

    Args:
        table: an encrypted table, as it was loaded.

    Raises:
        ConfigurationError: the table is not encrypted.
        ShareRecordError: a record that the metadata names is not there or does not open.
        KmsError: the KMS does not unwrap under the table's master key.
    """
    try:
        return _live_shares(table)
    except ShareRecordError:
        # A share that was updated or ended meanwhile has another record than this metadata names, or none.
        fresh = table.catalog.load_table(table.name())
        if fresh.metadata_location == table.metadata_location:
            raise
        return _live_shares(fresh)


def _live_shares(table: Table) -> list[ShareRecord]:
    records = [read_record(table, named) for named in named_records(table.metadata)]
    return sorted(records, key=lambda record: (record.created_ms, record.share_uuid))


def readable_shares(table: Table) -> list[ShareRecord]:
    """Return those of a table's shares whose records open. KmsError where the KMS does not unwrap."""
    found = []
    for named in readably_named(table.metadata).values():
        try:
            found.append(read_record(table, named))
        except ShareRecordError as error:
            logger.warning("%s", error)
    return found


def named_records(metadata: TableMetadata) -> list[NamedRecord]:
    """Return which records metadata names. ShareRecordError for a property that says of none where it is."""
    named = []
    for share_uuid, value in _properties(metadata):
        try:
            named.append(_parsed(share_uuid, value))
        except FormatError as error:
            raise ShareRecordError(share_uuid, f"its property cannot be read: {error}") from error
    return named


def read_record(table: Table, named: NamedRecord, kms: KeyManagementClient | None = None) -> ShareRecord:
    """Return the record that a table's metadata names.

    Args:
        table: as it was loaded.
        named: what its metadata says of the record.
        kms: unwraps the record's KEK; by default the table's client.

    Raises:
        ConfigurationError: the table is not encrypted.
        ShareRecordError: it is not there, does not open, or is that of another table or share.
        KmsError: the KMS does not unwrap.
    """
    io = cast("TableFileIO", encrypting_io(table.io, "the record of a share"))
    try:
        record, table_uuid = _decoded(named.location, read_wrapped(io, _record_manager(io, kms), named.location, named.key))
    except KmsError:
        # The record may be whole.
        raise
    except (TablecryptError, FileNotFoundError) as error:
        raise ShareRecordError(named.share_uuid, f"its record {named.location} does not open: {error}") from error

    # The record of another table under the same master key opens here as well.
    if (table_uuid, record.share_uuid) != (str(table.metadata.table_uuid), named.share_uuid):
        raise ShareRecordError(named.share_uuid, f"its record {named.location} is of share {record.share_uuid} of table {table_uuid}")
    return record


def readably_named(metadata: TableMetadata) -> Mapping[str, NamedRecord]:
    """Return which records metadata names, by the uuids of the shares, without what cannot be read."""
    found = {}
    for share_uuid, value in _properties(metadata):
        try:
            found[share_uuid] = _parsed(share_uuid, value)
        except FormatError as error:
            logger.warning("what the metadata says of a share cannot be read: %s", error)
    return found


def said_of_shares(metadata: TableMetadata) -> dict[str, str]:
    """Return what metadata says of all shares of its table, read or not, by their uuids."""
    return dict(_properties(metadata))


def _properties(metadata: TableMetadata) -> Iterator[tuple[str, str]]:
    for name, value in metadata.properties.items():
        if name.startswith(SHARE.name):
            yield name.removeprefix(SHARE.name), str(value)


def _parsed(share_uuid: str, value: str) -> NamedRecord:
    what = f"{SHARE.name}{share_uuid}"
    try:
        fields = ParsedJson(value).document
        location = str(fields[_RECORD])
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{what} does not name a record: {type(error).__name__}") from None
    # A record is deleted once there is a newer one: an edited property must not name another file of the table.
    if not is_share_record_name(location):
        raise FormatError(f"{what}: {location[:80]!r} is not where a record is")

    return NamedRecord(share_uuid, location, WrappedFileKey.of(fields, what))


def _record_manager(io: TableFileIO, kms: KeyManagementClient | None = None) -> EncryptionManager:
    """Return what wraps and unwraps the keys of records, by the table's KMS client or another one."""
    # Of its own, as a manager offers a KEK that was not committed to the table's next commit.
    own = io.manager
    return EncryptionManager(kms or own.kms, own.table_key_id, data_key_length=own.data_key_length, kek_lifespan_ms=own.kek_lifespan_ms)


def _encoded(metadata: TableMetadata, record: ShareRecord) -> bytes:
    fields = {_json_name(name): value for name, value in vars(record).items() if name != _SECRET}
    fields[_COLUMNS] = list(map(_column_fields, record.columns))
    fields[_FORMER_COLUMNS] = list(map(_column_fields, record.former_columns))
    if record.secret is not None:
        fields[_SECRET] = share_secret_text(record.secret)
    return json.dumps({_TABLE_UUID: str(metadata.table_uuid), **fields}).encode()


def _column_fields(column: SharedColumn) -> dict[str, Any]:
    return {_json_name(name): value for name, value in vars(column).items()}


def _decoded(location: str, content: bytes) -> tuple[ShareRecord, str]:
    try:
        fields = ParsedJson(content).document
        given: dict[str, Any] = {name: _typed(fields[_json_name(name)], str) for name in _TEXTS}
        given |= {name: _typed(fields[_json_name(name)], int) for name in _NUMBERS}
        if not 0 <= given["created_ms"] <= _LAST_MOMENT_MS:
            raise ValueError("no moment")
        given[_COLUMNS] = tuple(map(SharedColumn.of, fields[_COLUMNS]))
        given[_FILES] = tuple(_typed(each, str) for each in fields[_FILES])
        given["former_files"] = tuple(_typed(each, str) for each in fields.get(_FORMER_FILES, ()))
        given["former_columns"] = tuple(map(SharedColumn.of, fields.get(_FORMER_COLUMNS, ())))
        given[_WITHOUT] = tuple(_typed(each, int) for each in fields.get(_WITHOUT, ()))
        given["with_statistics"] = _typed(fields.get(_WITH_STATISTICS, True), bool)
        given[_SECRET] = share_secret_in(fields[_SECRET]) if _SECRET in fields else None
        return ShareRecord(**given), str(fields[_TABLE_UUID])
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{location}: not the record of a share: {type(error).__name__}") from None


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"a {type(value).__name__} in the place of a {kind.__name__}")
    return value


def _json_name(attribute: str) -> str:
    return attribute.replace("_", "-")


def deleting_io(table: Table, delete_below: Iterable[str], *, break_shares: bool) -> TableFileIO:
    """Return an encrypted table's FileIO that may delete the table's files.

    Args:
        table: an encrypted table.
        delete_below: folders that the caller names, beside those of pinned metadata.
        break_shares: whether it also deletes files that live shares name.

    Raises:
        ConfigurationError: the table has gc.enabled=false; its location may mean several places; neither a pin, nor the place of the
            metadata file in the catalog, nor the caller says that the table lies where its metadata says; or a location is no folder.
        ShareRecordError: what the table remembers of a share cannot be read.
    """
    check_garbage_is_collected(table)
    io = cast("TableFileIO", table.io).deleting_below(delete_below)
    location = table.location().rstrip("/")
    if reason := unusable_location(location):
        raise ConfigurationError(
            f"{name_of(table)}: {location} {reason}, so nothing there is deleted or overwritten: copy it with tablecrypt relocate"
        )

    if not io.deletable.contains(location):
        raise ConfigurationError(
            f"{name_of(table)}: only its metadata says that the table is in {location}, and no pin of this client, so nothing "
            f"there is deleted or overwritten. If it is there, and no other table is, name the folder: delete_below=[{location!r}], "
            f"--delete-below {shell_word(location)}, or in SQL delete_below => array({sql_string(location)})"
        )

    return keeping_shared(table, io, break_shares=break_shares)


def metadata_deleting_io(table: Table, delete_below: Iterable[str]) -> TableFileIO:
    """Return the FileIO of `deleting_io` for metadata files and journals, of which a share may name none."""
    return deleting_io(table, delete_below, break_shares=True)


def keeping_shared(table: Table, io: TableFileIO, *, break_shares: bool) -> TableFileIO:
    """Return a table's FileIO that deletes no file which a live share names, unless it is to break them.

    Raises:
        ShareRecordError: what the table remembers of a share cannot be read.
    """
    if break_shares:
        return io
    return io.keeping({location: f"is named by {_shown(record)}" for record in live_shares(table) for location in record.all_files})


@dataclass(frozen=True)
class SharedFiles:
    """Live shares of a table, each with how many files it names of those that are asked for.

    Attributes:
        table: its name.
        shares: the shares.
        properties: what the metadata says of all of its shares.
    """

    table: str
    shares: Mapping[ShareRecord, int]
    properties: Mapping[str, str]

    @classmethod
    def of(cls, table: Table, *, break_shares: bool) -> SharedFiles:
        """Return all that a table shares.

        Args:
            table: as the catalog has it now.
            break_shares: whether to leave out shares whose records cannot be read.

        Raises:
            ShareRecordError: what the table remembers of a share cannot be read.
        """
        records = readable_shares(table) if break_shares else live_shares(table)
        return cls(name_of(table), {record: len(record.all_files) for record in records}, said_of_shares(table.metadata))

    def among(self, locations: Iterable[str]) -> SharedFiles:
        """Return what is shared of these files."""
        wanted = {place_of(location) for location in locations}
        return self._only(lambda location: location in wanted)

    def but(self, locations: Iterable[str]) -> SharedFiles:
        """Return what is shared beside these files."""
        others = {place_of(location) for location in locations}
        return self._only(lambda location: location not in others)

    def with_column(self, field_id: int) -> SharedFiles:
        """Return the shares that have a protected column."""
        found = {record: files for record, files in self.shares.items() if any(each.field_id == field_id for each in record.all_columns)}
        return replace(self, shares=found)

    def _only(self, is_wanted: Callable[[FilePlace], bool]) -> SharedFiles:
        found = {record: sum(is_wanted(place_of(each)) for each in record.all_files) for record in self.shares}
        return replace(self, shares={record: files for record, files in found.items() if files})

    def check(self, because: str, *, break_shares: bool) -> None:
        """Refuse to touch them, or log that they are broken.

        Args:
            because: what would become of the shares: "would lose files".
            break_shares: whether the caller wants that.

        Raises:
            SharedFilesError: the caller does not, and there are any.
        """
        if self.shares and break_shares:
            logger.warning("%s: shares are broken: %s", self.table, "; ".join(self.said))
        elif self.shares:
            raise SharedFilesError(
                f"{self.table}: {because}: {'; '.join(self.said)}. Nothing was changed. End the shares first (unshare){self._instead}, or "
                "go on with break_shares=True, --break-shares, or in SQL break_shares => true"
            )

    def check_still(self, metadata: TableMetadata) -> None:
        """Refuse a commit on metadata that says of shares what was not looked into.

        Raises:
            SharedFilesError: a share came, or was brought up to date, since.
        """
        if said_of_shares(metadata).items() - self.properties.items():
            raise SharedFilesError(f"{self.table}: files were shared while this ran. No key was destroyed: call it again")

    @property
    def _instead(self) -> str:
        # A state before stays for its readers, and its keys open these files: nothing but the next update takes it away.
        has_former = any(record.former_files or record.former_columns for record in self.shares)
        return " or, where only its state before has them, update the share once more (share --update)" if has_former else ""

    def said_with(self, later: SharedFiles) -> tuple[str, ...]:
        """What is said of these shares and of those that were found later, each once."""
        return tuple(dict.fromkeys((*self.said, *later.said)))

    @property
    def said(self) -> tuple[str, ...]:
        """Of each share what it is, and how many files."""
        return tuple(f"{_shown(record)}, {counted(files, 'file', 'files')}" for record, files in self.shares.items())


def _shown(record: ShareRecord) -> str:
    return f"share {record.share_uuid} for {record.key_id}"
