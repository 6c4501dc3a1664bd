"""Older metadata files, which a table leaves behind with each commit: what they still say and still lead to.

    format version below 3, or no encryption.key-id      from before the table was encrypted; its snapshots' files may still be there
    another encryption.key-id, another table-uuid        somebody edited or exchanged it
    encryption-keys that the table has no more           whoever may use the master key can still open what they open

A metadata file is plaintext by specification. It is read whole, so only so many of them are: by their names the oldest, which may be from
before encryption, and the newest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from tablecrypt import properties as names
from tablecrypt.errors import FormatError
from tablecrypt.files.deletion import DeletionScope
from tablecrypt.maintenance.audit.findings import Finding, FindingKind
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.metadata_file import read_named_metadata_file
from tablecrypt.table.table_file_io import folders_of

MAX_READ: Final = 200
_THREADS: Final = 16


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
        """Whether it is of a commit that landed after the table was loaded."""
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
