"""What an audit reads of one table: its metadata and manifests, what its folders hold, and the ends of its files.

All reading happens here. What the rules say of it is in table_audit.py, which reads nothing.

A table's folders are its location, and those that properties such as write.data.path and write.metadata.path name. Besides the files that
the table knows they may hold:

    a metadata file that the log does not name     older metadata, read like those of the log
    AGS1, PARE                                     ciphertext that nothing refers to: failed writes, expired snapshots
    .x.crc beside x                                checksums of x that Hadoop keeps on local disks: 8 bytes, and 4 for each
                                                   512 bytes of x
    tablecrypt-<operation>/*.json of wrapped keys  the journal of one that is under way or was interrupted (maintenance/_file_rewrite.py)
    a plaintext format, anything else              plaintext

Older metadata files, which a table leaves behind with each commit, are read for what they still say and still lead to:

    format version below 3, or no encryption.key-id      from before the table was encrypted; its snapshots' files may still be there
    another encryption.key-id, another table-uuid        it was edited or exchanged
    encryption-keys that the table has no more           with the master key they still open what they opened

A metadata file is plaintext by specification. It is read whole, so only so many of them are: by their names the oldest, which may be from
before encryption, and the newest.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from pyiceberg.io import FileIO
from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from tablecrypt import properties as names
from tablecrypt._parsed_json import ParsedJson
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError, KeyIdChangedError, KmsAccessDeniedError, KmsError, TablecryptError
from tablecrypt.files.deletion import DeletionScope, FilePlace, place_of
from tablecrypt.files.encrypting_file_io import store_io
from tablecrypt.files.raw_output import ENCRYPTION_KEYS, JOURNAL_KEYS, TABLE_METADATA_SUFFIXES, are_wrapped_keys, operation_of_journal
from tablecrypt.files.stores import StoredFile, stored_files
from tablecrypt.keys.key_ring import EncryptedKey
from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.maintenance._audit.authenticated_state import state_findings
from tablecrypt.maintenance._audit.columns import ColumnsInFile, read_columns
from tablecrypt.maintenance._audit.file_signatures import FileStart, Signature, read_file_starts, wrong_ends
from tablecrypt.maintenance._audit.findings import Finding, FindingKind
from tablecrypt.maintenance._audit.shares import ObservedShares, observed_shares
from tablecrypt.maintenance.operation import Counted, moment_of
from tablecrypt.maintenance.reachable import Reachable, ReachableFile, reachable_files
from tablecrypt.printable import counted
from tablecrypt.table._pyiceberg.statistics import statistics_locations
from tablecrypt.table.metadata import EncryptedTableMetadata, read_named_metadata_file
from tablecrypt.table.protection.authenticated import undeclared_columns
from tablecrypt.table.protection.policy import check_still_protected
from tablecrypt.table.table_files import TableFileIO, folders_named, folders_of, name_of

_VERSION_HINT: Final = "version-hint.text"
_SHOWN: Final = 3
_CHECKSUMS_NAME: Final = re.compile(r"(?P<folder>.*/)\.(?P<name>[^/]+)\.crc")
_CHECKSUMS_HEADER: Final = 8
_CHECKSUM_LENGTH: Final = 4
_CHECKED_BYTES: Final = 512
_LONGEST_JOURNAL: Final = 64 * 1024
MAX_READ: Final = 200
_THREADS: Final = 16


@dataclass(frozen=True)
class Observed:
    """What was read of one table.

    Attributes:
        name: the table's.
        metadata, metadata_location: its current metadata.
        manager: its encryption manager; None for a plain table.
        reachable: every file that its snapshots lead to, and what could not be opened on the way.
        unopened: locations of the latter.
        folder: what its folders hold.
        statistics: locations of its statistics files.
        journals: the operation that each journal is of, by the journal's location.
        orphans: files that the table does not know.
        older: what its older metadata files say.
        only_older: plaintext files that only older metadata leads to.
        starts: how files begin, by location.
        wrong_ends: what is wrong with the ends of Parquet files, by location.
        written: when files were written: as the store says, else when the snapshot that added them was made.
        kek_lengths: bytes of each KEK, by its key-id; None where the key service does not open it.
        columns: what the footers of data files say of protected columns, by location; empty where the table has none.
        undeclared: columns that are protected less than was declared under their keys, or manifest lists say, by field id.
        since_commit: what the metadata says that no manifest list does.
        shares: what the table remembers of its shares.
    """

    name: str
    metadata: TableMetadata
    metadata_location: str
    manager: EncryptionManager | None
    reachable: Reachable
    unopened: frozenset[str]
    folder: Folder
    statistics: tuple[str, ...]
    journals: dict[str, str]
    orphans: tuple[StoredFile, ...]
    older: OlderFindings
    only_older: tuple[str, ...]
    starts: dict[str, FileStart]
    wrong_ends: dict[str, str]
    written: dict[str, dt.datetime]
    kek_lengths: dict[str, int | None]
    columns: dict[str, ColumnsInFile] = field(default_factory=dict)
    undeclared: Mapping[int, KeyIdChangedError] = field(default_factory=dict)
    since_commit: tuple[Finding, ...] = ()
    shares: ObservedShares = field(default_factory=ObservedShares)

    @property
    def files(self) -> Iterable[ReachableFile]:
        """Every file that the table's snapshots lead to."""
        return self.reachable.files.values()

    @property
    def hides_files(self) -> bool:
        """Whether a manifest list or manifest could not be read, so that live files below it are not known."""
        return any(each.kind.is_metadata for each in self.reachable.unopened)

    def is_encrypted(self, file: ReachableFile) -> bool:
        """Whether a file has a key, and begins as one that is encrypted."""
        return file.key is not None and self.starts[file.location].signature == wanted_signature(file)


def observe(table: Table, counted: Counted) -> Observed:
    """Read what an audit inspects.

    Args:
        table: encrypted or plain.
        counted: listener for reports of the files that were looked at.

    Raises:
        KmsError, KeyNotFoundError, MasterKeyMismatchError: the key service failed, or no KEK opens.
    """
    metadata = table.metadata
    # The store's own FileIO: the table's refuses plaintext, which is what an audit looks for.
    store = store_io(table.io)
    manager = table.io.manager if isinstance(table.io, TableFileIO) else None
    reachable, folder = reachable_files(metadata, table.io), list_folders(metadata, store)
    statistics = tuple(statistics_locations(metadata))
    log = {entry.metadata_file for entry in metadata.metadata_log}
    shares = observed_shares(table)
    unknown = folder.unknown({*reachable.files, *statistics, *log, table.metadata_location, *shares.locations, *shares.files})
    journals = dict(_journals(unknown, store))
    orphans = tuple(file for file in unknown if not is_metadata_file(file) and file.location not in journals)
    # A metadata file that no log names is older metadata too: an edit of the log must not hide it.
    older_locations = (log | {file.location for file in unknown if is_metadata_file(file)}) - {table.metadata_location}
    older = inspect_older(metadata, older_locations, store)
    only_older = tuple(_only_older(metadata, older, folder, {*reachable.files, *statistics}))
    of_shares = shares.files.difference(reachable.files)
    wanted = [*reachable.files, *statistics, *(file.location for file in orphans), *only_older, *of_shares]
    starts = read_file_starts(store, wanted, folders_of(metadata), counted)

    return Observed(
        name=name_of(table),
        metadata=metadata,
        metadata_location=table.metadata_location,
        manager=manager,
        reachable=reachable,
        unopened=frozenset(each.location for each in reachable.unopened),
        folder=folder,
        statistics=statistics,
        journals=journals,
        orphans=orphans,
        older=older,
        only_older=only_older,
        starts=starts,
        wrong_ends=wrong_ends(store, _encrypted_parquet(reachable, starts)),
        written=dict(_times(metadata, reachable, folder)),
        kek_lengths=_kek_lengths(metadata, manager),
        # Reading footers takes a request for each file: only tables with column keys pay for it.
        columns=read_columns(store, _begun_right(reachable, starts), metadata) if _may_have_column_keys(metadata) else {},
        undeclared=_less_protected(metadata, manager, table.io),
        since_commit=tuple(state_findings(metadata, table.io)) if isinstance(metadata, EncryptedTableMetadata) else (),
        shares=shares,
    )


def _less_protected(metadata: TableMetadata, manager: EncryptionManager | None, io: FileIO) -> Mapping[int, KeyIdChangedError]:
    if manager is None or not isinstance(metadata, EncryptedTableMetadata):
        return {}
    try:
        return {**undeclared_columns(metadata, manager.columns), **_protected_no_more(metadata, io)}
    except (ConfigurationError, FormatError):
        return {}  # other findings are about properties and entries that cannot be read


def _protected_no_more(metadata: EncryptedTableMetadata, io: FileIO) -> dict[int, KeyIdChangedError]:
    """Return which columns manifest lists, which are authenticated, say were protected, and the properties name no more."""
    found: dict[int, KeyIdChangedError] = {}
    for snapshot in metadata.snapshots:
        try:
            protected = snapshot.known_header(io).protected_columns if snapshot.key_id is not None else ()
        except (TablecryptError, OSError):
            continue  # it is among what could not be opened

        for field_id in protected:
            try:
                check_still_protected((field_id,), metadata, snapshot.manifest_list)
            except KeyIdChangedError as error:
                found[field_id] = error

    return found


def _may_have_column_keys(metadata: TableMetadata) -> bool:
    # If the properties were removed, the column keys still show that there are protected columns.
    named = any(name.startswith(names.COLUMN.name) for name in metadata.properties)
    return named or (isinstance(metadata, EncryptedTableMetadata) and bool(metadata.key_ring.column_keys))


def wanted_signature(file: ReachableFile) -> Signature:
    """Return how a file of the table should be encrypted."""
    is_parquet = not file.kind.is_metadata and file.file_format == FileFormat.PARQUET.value
    return Signature.PARQUET if is_parquet else Signature.AGS1


def _journals(files: Iterable[StoredFile], store: FileIO) -> Iterator[tuple[str, str]]:
    for file in files:
        if (operation := unfinished_operation(file, store)) is not None:
            yield file.location, operation


def _only_older(metadata: TableMetadata, older: OlderFindings, folder: Folder, known: set[str]) -> Iterator[str]:
    """Plaintext files that only older metadata leads to. Other stores are left alone: anyone may have named them."""
    store = place_of(metadata.location)[:2]
    for location in older.plaintext_locations:
        if location not in known and folder.at(location) is None and place_of(location)[:2] == store:
            yield location


def _begun_right(reachable: Reachable, starts: dict[str, FileStart]) -> Iterator[ReachableFile]:
    """Files that begin as encrypted ones. Findings are about the others, of which nothing more is read: a name may be made up."""
    return (file for file in reachable.files.values() if file.key is not None and starts[file.location].signature == wanted_signature(file))


def _encrypted_parquet(reachable: Reachable, starts: dict[str, FileStart]) -> Iterator[tuple[str, StandardKeyMetadata]]:
    for file in _begun_right(reachable, starts):
        if file.key is not None and wanted_signature(file) == Signature.PARQUET:
            yield file.location, file.key


def _times(metadata: TableMetadata, reachable: Reachable, folder: Folder) -> Iterator[tuple[str, dt.datetime]]:
    snapshots = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in metadata.snapshots}
    for file in reachable.files.values():
        stored = folder.at(file.location)
        # The store's time comes first: that of a snapshot is metadata.json's word alone.
        if stored is not None and stored.modified is not None:
            yield file.location, stored.modified
        elif file.added_by in snapshots:
            yield file.location, moment_of(snapshots[file.added_by])


def _kek_lengths(metadata: TableMetadata, manager: EncryptionManager | None) -> dict[str, int | None]:
    if manager is None or not isinstance(metadata, EncryptedTableMetadata):
        return {}
    return {kek.key_id: _key_length(manager, kek) for kek in metadata.key_ring.keks}


def _key_length(manager: EncryptionManager, kek: EncryptedKey) -> int | None:
    """Return the length of a KEK: only opening it shows that."""
    try:
        return len(manager.kms.unwrap_key(kek.wrapped_bytes(), manager.table_key_id))
    except TablecryptError as error:
        if isinstance(error, KmsError) and not isinstance(error, KmsAccessDeniedError):
            # A refusal concerns this KEK, and becomes a finding. A key service that fails says nothing of any KEK.
            raise
        return None


@dataclass
class Folder:
    """What was listed: every file by the place it is at, and why nothing could be listed, if so."""

    files: dict[FilePlace, StoredFile] = field(default_factory=dict)
    problem: str | None = None

    def at(self, location: str) -> StoredFile | None:
        """Return the file at a location, however that is spelled."""
        return self.files.get(place_of(location))

    def unknown(self, known: Iterable[str]) -> list[StoredFile]:
        """Return the files that are not at one of these locations."""
        # Hadoop catalogs keep a file with the number of the current version in it: no metadata names that.
        places = {place_of(location) for location in known}
        return [file for place, file in self.files.items() if place not in places and not file.location.endswith(f"/{_VERSION_HINT}")]


def list_folders(metadata: TableMetadata, io: FileIO) -> Folder:
    """List a table's folders.

    Args:
        metadata: says where they are.
        io: the store's own FileIO.
    """
    folder = Folder()
    try:
        for root in dict.fromkeys(folders_named(metadata)):
            folder.files.update({place_of(file.location): file for file in stored_files(io, root.rstrip("/"))})
    except (ConfigurationError, OSError) as error:
        # The audit goes on with what manifests name, and a finding says that the folder was not searched.
        folder.problem = str(error)

    return folder


def is_metadata_file(file: StoredFile) -> bool:
    """Whether a file is table metadata, by its name."""
    return file.location.endswith(TABLE_METADATA_SUFFIXES)


def unfinished_operation(file: StoredFile, io: FileIO) -> str | None:
    """Return the operation whose journal a file is, by its name and since it holds wrapped keys and nothing else; None for any other file.

    Args:
        file: one that the table does not know.
        io: the store's own FileIO.
    """
    operation = operation_of_journal(file.location)
    # Any file could be named like a journal. So its content has to be wrapped keys and nothing else, and no long file is read whole.
    if operation is None or not file.location.endswith(JOURNAL_KEYS) or file.size > _LONGEST_JOURNAL:
        return None

    try:
        with io.new_input(file.location).open() as stream:
            content = ParsedJson(bytes(stream.read())).document
        for key in content[ENCRYPTION_KEYS]:
            EncryptedKey.model_validate(key).wrapped_bytes()
    except (ValueError, TypeError, KeyError, AttributeError, FormatError, FileNotFoundError):
        # Anyone may have written a file of this name: whatever is odd about it makes it an orphan, and no error.
        return None

    return operation if are_wrapped_keys(content) else None


def orphan_findings(files: Iterable[StoredFile], starts: dict[str, FileStart], folder: Folder, knows_all: bool) -> Iterator[Finding]:
    """Yield what files are that the table does not know, by how they begin.

    Args:
        files: which the table does not know.
        starts: how they begin, by location.
        folder: what is beside them.
        knows_all: whether every manifest was read. If not, ciphertext that nothing names may be live, and is not to be deleted.
    """
    ciphertext: list[StoredFile] = []
    for file in files:
        start = starts[file.location]
        if start.signature == Signature.CHECKSUMS and are_checksums(file, folder):
            continue

        if start.signature.is_ciphertext:
            ciphertext.append(file)
        elif start.signature == Signature.PLAINTEXT:
            yield Finding(FindingKind.PLAINTEXT_ORPHAN, file.location, f"{start.shown}, {file.size} bytes")
        elif start.signature in (Signature.UNKNOWN, Signature.UNREADABLE, Signature.CHECKSUMS):
            # Rows could hide behind the magic of checksums, or where reading is refused: unless shown harmless, a file is reported.
            yield Finding(FindingKind.UNKNOWN_CONTENT, file.location, f"{start.shown}, {file.size} bytes")

    if ciphertext and knows_all:
        shown = ", ".join(file.location for file in ciphertext[:_SHOWN])
        message = f"{len(ciphertext)} with {sum(file.size for file in ciphertext)} bytes, such as {shown}"
        yield Finding(FindingKind.ORPHANS, "the table's folder", message)


def are_checksums(file: StoredFile, folder: Folder) -> bool:
    """Whether a file has the name and the length of the checksums of a file beside it."""
    match = _CHECKSUMS_NAME.fullmatch(file.location)
    checked = None if match is None else folder.at(match["folder"] + match["name"])
    # A magic and a name say little about content: the length has to be that of the neighbour's checksums, too.
    return checked is not None and file.size == _CHECKSUMS_HEADER + _CHECKSUM_LENGTH * -(-checked.size // _CHECKED_BYTES)


@dataclass(frozen=True)
class OlderFindings:
    """What was found in older metadata files: findings, and the plaintext files that they lead to, with the metadata that names each."""

    findings: tuple[Finding, ...]
    plaintext_locations: dict[str, str]


def inspect_older(metadata: TableMetadata, locations: Iterable[str], io: FileIO, limit: int = MAX_READ) -> OlderFindings:
    """Read metadata files that are not the table's current one.

    Args:
        metadata: the current one.
        locations: of the older ones, in the metadata log or found in the table's folder. Those that are gone are passed over.
        io: the store's own FileIO.
        limit: how many are read.
    """
    own_folders = folders_of(metadata)
    # Names of metadata files begin with the number of their version, so this is the order of commits.
    wanted = sorted(set(locations))
    findings: list[Finding] = []
    if len(wanted) > limit:
        message = f"{len(wanted)} older metadata files, of which the oldest and the newest were read, {limit} in all"
        findings.append(Finding(FindingKind.NOT_READ, "older metadata", message))
        wanted = [*wanted[: limit // 2], *wanted[limit // 2 - limit :]]

    plaintext: dict[str, str] = {}
    stale_keys: dict[str, int] = {}

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="tablecrypt-metadata") as pool:
        for location, content in pool.map(lambda each: (each, _read(io, each, own_folders)), wanted):
            if content is None:
                continue

            older = _Older(location, content)
            findings += older.findings(metadata)
            if older.is_newer_than(metadata):
                # Its keys and files belong to a state that this audit has not seen: they are neither stale nor left over.
                continue

            plaintext.update((each, location) for each in older.plaintext_locations())
            stale_keys[location] = older.keys_beside(metadata)

    having = [location for location, count in stale_keys.items() if count]
    if having:
        message = f"{len(having)} of them hold up to {max(stale_keys.values())} such keys, first {having[0]}"
        findings.append(Finding(FindingKind.STALE_KEYS, "older metadata", message))
    return OlderFindings(tuple(findings), plaintext)


def _read(io: FileIO, location: str, own_folders: DeletionScope) -> dict[str, Any] | Exception | None:
    try:
        content = ParsedJson(read_named_metadata_file(io, location, own_folders).content).document
    except FileNotFoundError:
        return None
    except (FormatError, ValueError) as error:
        return error
    return content if isinstance(content, dict) else FormatError(f"{location} holds no JSON object")


class _Older:
    """One older metadata file's JSON. It may have been written by anyone, so nothing in it is taken to be there."""

    def __init__(self, location: str, content: dict[str, Any] | Exception) -> None:
        self._location = location
        self._problem = content if isinstance(content, Exception) else None
        self._content: dict[str, Any] = {} if isinstance(content, Exception) else content

    def findings(self, metadata: TableMetadata) -> Iterator[Finding]:
        if self._problem is not None:
            yield Finding(FindingKind.UNOPENED, self._location, f"is no table metadata: {self._problem}")
            return

        current, uuid = metadata.properties.get(names.KEY_ID.name), self._content.get("table-uuid")
        if uuid != str(metadata.table_uuid):
            # Keys and snapshots of another table say nothing of this one.
            yield Finding(FindingKind.FOREIGN_METADATA, self._location, f"is the metadata of table {uuid}, not of this one")
            return

        key_id = self._dict("properties").get(names.KEY_ID.name)

        # Without a key id it is a state from before encryption. Under another key id, it was edited.
        if key_id is None and current is not None:
            version = self._content.get("format-version")
            snapshots = counted(len(self._list("snapshots")), "snapshot", "snapshots")
            message = f"format version {version} without {names.KEY_ID.name}, with {snapshots}"
            yield Finding(FindingKind.STALE_PLAINTEXT_METADATA, self._location, message)
        elif key_id != current:
            yield Finding(FindingKind.KEY_ID_DIFFERS, self._location, f"{names.KEY_ID.name} is {key_id}, but the table's is {current}")

    def is_newer_than(self, metadata: TableMetadata) -> bool:
        """Whether it is of a commit that came after the table was loaded."""
        updated = self._content.get("last-updated-ms")
        return isinstance(updated, int) and updated > metadata.last_updated_ms

    def plaintext_locations(self) -> Iterator[str]:
        """Manifest lists without a key, and statistics."""
        for snapshot in self._list("snapshots"):
            if "key-id" not in snapshot and isinstance(location := snapshot.get("manifest-list"), str):
                yield location
        for statistics in (*self._list("statistics"), *self._list("partition-statistics")):
            if isinstance(location := statistics.get("statistics-path"), str):
                yield location

    def keys_beside(self, metadata: TableMetadata) -> int:
        """How many keys it holds that the current metadata does not."""
        known = {key.key_id for key in metadata.encryption_keys} if isinstance(metadata, EncryptedTableMetadata) else set()
        return sum(key.get("key-id") not in known for key in self._list("encryption-keys"))

    def _list(self, name: str) -> list[dict[str, Any]]:
        value = self._content.get(name)
        return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []

    def _dict(self, name: str) -> dict[str, Any]:
        value = self._content.get(name)
        return value if isinstance(value, dict) else {}
