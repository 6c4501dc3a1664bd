"""What lies in a table's folders besides the files that the table knows.

    a metadata file that the log does not name     older metadata, read like those of the log
    AGS1, PARE                                     ciphertext that nothing refers to: failed writes, expired snapshots
    .x.crc beside x                                checksums of x that Hadoop keeps on local disks: 8 bytes, and 4 for each
                                                   512 bytes of x
    tablecrypt-<operation>/*.json of wrapped keys  the journal of one that is under way or was interrupted (maintenance/_journal.py)
    a plaintext format, anything else              plaintext

The folders are the table's location, and those that write.data.path and write.metadata.path name.

Older metadata files, which a table leaves behind with each commit, are read for what they still say and still lead to:

    format version below 3, or no encryption.key-id      from before the table was encrypted; its snapshots' files may still be there
    another encryption.key-id, another table-uuid        somebody edited or exchanged it
    encryption-keys that the table has no more           anybody with the master key can still open what they open

A metadata file is plaintext by specification. It is read whole, so only so many of them are: by their names the oldest, which may be from
before encryption, and the newest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from pyiceberg.io import FileIO
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata

from tablecrypt import properties as names
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.files.deletion import DeletionScope
from tablecrypt.files.raw_output import TABLE_METADATA_SUFFIXES
from tablecrypt.keys.key_ring import EncryptedKey
from tablecrypt.maintenance._audit.file_signatures import FileStart, Signature
from tablecrypt.maintenance._audit.findings import Finding, FindingKind
from tablecrypt.maintenance._storage import StoredFile, canonical, stored_files
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.metadata_file import read_named_metadata_file
from tablecrypt.table.table_files import folders_of

Place = tuple[str, str, str]

_FOLDERS: Final = (TableProperties.WRITE_DATA_PATH, TableProperties.WRITE_METADATA_PATH)
_VERSION_HINT: Final = "version-hint.text"
_SHOWN: Final = 3
_CHECKSUMS_NAME: Final = re.compile(r"(?P<folder>.*/)\.(?P<name>[^/]+)\.crc")
_CHECKSUMS_HEADER: Final = 8
_CHECKSUM_LENGTH: Final = 4
_CHECKED_BYTES: Final = 512
_JOURNAL_NAME: Final = re.compile(r".*/metadata/tablecrypt-(?P<operation>[a-z-]+)/[^/]+\.json")
_JOURNAL_FIELDS: Final = {"encryption-keys", "key-id"}
_KEY_FIELDS: Final = {"key-id", "encrypted-key-metadata", "encrypted-by-id", "properties"}
_LONGEST_JOURNAL: Final = 64 * 1024

MAX_READ: Final = 200
_THREADS: Final = 16


@dataclass
class Folder:
    """What was listed: every file by the place it is at, and why nothing could be listed, if so."""

    files: dict[Place, StoredFile] = field(default_factory=dict)
    problem: str | None = None

    def at(self, location: str) -> StoredFile | None:
        """Return the file at a location, however that is spelled."""
        return self.files.get(canonical(location))

    def unknown(self, known: Iterable[str]) -> list[StoredFile]:
        """Return the files that are not at one of these locations."""
        places = {canonical(location) for location in known}
        return [file for place, file in self.files.items() if place not in places and not file.location.endswith(f"/{_VERSION_HINT}")]


def list_folders(metadata: TableMetadata, io: FileIO) -> Folder:
    """List a table's folders.

    Args:
        metadata: says where they are.
        io: the store's own FileIO.
    """
    folder = Folder()
    roots = {metadata.location, *(str(metadata.properties[name]) for name in _FOLDERS if name in metadata.properties)}
    try:
        for root in roots:
            folder.files.update({canonical(file.location): file for file in stored_files(io, root.rstrip("/"))})
    except (ConfigurationError, OSError) as error:
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
    match = _JOURNAL_NAME.fullmatch(file.location)
    if match is None or file.size > _LONGEST_JOURNAL:
        return None
    try:
        with io.new_input(file.location).open() as stream:
            content = json.loads(stream.read())
        keys = content["encryption-keys"]
        for key in keys:
            EncryptedKey.model_validate(key).wrapped_bytes()
        holds_keys_alone = content.keys() == _JOURNAL_FIELDS and all(key.keys() <= _KEY_FIELDS for key in keys)
    except (ValueError, TypeError, KeyError, AttributeError, FormatError, FileNotFoundError):
        return None
    return match["operation"] if holds_keys_alone else None


def orphan_findings(files: Iterable[StoredFile], starts: dict[str, FileStart], folder: Folder) -> Iterator[Finding]:
    """Yield what files are that the table does not know, by how they begin."""
    ciphertext: list[StoredFile] = []
    for file in files:
        start = starts[file.location]
        if start.signature == Signature.CHECKSUMS and _are_checksums(file, folder):
            continue
        if start.signature.is_ciphertext:
            ciphertext.append(file)
        elif start.signature == Signature.PLAINTEXT:
            yield Finding(FindingKind.PLAINTEXT_ORPHAN, file.location, f"{start.shown}, {file.size} bytes")
        elif start.signature in (Signature.UNKNOWN, Signature.UNREADABLE, Signature.CHECKSUMS):
            yield Finding(FindingKind.UNKNOWN_CONTENT, file.location, f"{start.shown}, {file.size} bytes")
    if ciphertext:
        shown = ", ".join(file.location for file in ciphertext[:_SHOWN])
        message = f"{len(ciphertext)} with {sum(file.size for file in ciphertext)} bytes, such as {shown}"
        yield Finding(FindingKind.ORPHANS, "the table's folder", message)


def _are_checksums(file: StoredFile, folder: Folder) -> bool:
    """Whether a file has the name and the length of the checksums of a file beside it."""
    match = _CHECKSUMS_NAME.fullmatch(file.location)
    checked = None if match is None else folder.at(match["folder"] + match["name"])
    return checked is not None and file.size == _CHECKSUMS_HEADER + _CHECKSUM_LENGTH * -(-checked.size // _CHECKED_BYTES)


@dataclass(frozen=True)
class OlderMetadata:
    """What older metadata files came to: findings, and the plaintext files that they lead to, with the metadata that names each."""

    findings: tuple[Finding, ...]
    plaintext_locations: dict[str, str]


def look_at_older(metadata: TableMetadata, locations: Iterable[str], io: FileIO, limit: int = MAX_READ) -> OlderMetadata:
    """Read metadata files that are not the table's current one.

    Args:
        metadata: the current one.
        locations: of the older ones, in the metadata log or found in the table's folder. Those that are gone are passed over.
        io: the store's own FileIO.
        limit: how many are read.
    """
    own_folders = folders_of(metadata)
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
                continue
            plaintext.update((each, location) for each in older.plaintext_locations())
            stale_keys[location] = older.keys_beside(metadata)
    having = [location for location, count in stale_keys.items() if count]
    if having:
        message = f"{len(having)} of them hold up to {max(stale_keys.values())} such keys, first {having[0]}"
        findings.append(Finding(FindingKind.STALE_KEYS, "older metadata", message))
    return OlderMetadata(tuple(findings), plaintext)


def _read(io: FileIO, location: str, own_folders: DeletionScope) -> dict[str, Any] | Exception | None:
    try:
        content = json.loads(read_named_metadata_file(io, location, own_folders).content)
    except FileNotFoundError:
        return None
    except (FormatError, ValueError, RecursionError) as error:
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
            yield Finding(FindingKind.FOREIGN_METADATA, self._location, f"is the metadata of table {uuid}, not of this one")
            return
        key_id = self._dict("properties").get(names.KEY_ID.name)
        if key_id is None and current is not None:
            version = self._content.get("format-version")
            message = f"format version {version} without {names.KEY_ID.name}, with {len(self._list('snapshots'))} snapshots"
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
