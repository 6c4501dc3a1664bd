"""What lies in a table's folders besides the files that the table knows.

    a metadata file that the log does not name     older metadata, read like those of the log
    AGS1, PARE                                     ciphertext that nothing refers to: failed writes, expired snapshots
    .x.crc beside x                                checksums of x that Hadoop keeps on local disks: 8 bytes, and 4 for each
                                                   512 bytes of x
    tablecrypt-<verb>/*.json of wrapped keys       the journal of a verb that is under way or was interrupted (maintenance/journal.py)
    a plaintext format, anything else              plaintext

The folders are the table's location, and those that write.data.path and write.metadata.path name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata

from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.files.raw_output import TABLE_METADATA_SUFFIXES
from tablecrypt.keys.encrypted_key import EncryptedKey
from tablecrypt.maintenance._storage import StoredFile, canonical, stored_files
from tablecrypt.maintenance.audit.findings import Finding, FindingKind
from tablecrypt.maintenance.audit.heads import Head, Seal

Place = tuple[str, str, str]

_FOLDERS: Final = (TableProperties.WRITE_DATA_PATH, TableProperties.WRITE_METADATA_PATH)
_VERSION_HINT: Final = "version-hint.text"
_SHOWN: Final = 3
_CHECKSUMS_NAME: Final = re.compile(r"(?P<folder>.*/)\.(?P<name>[^/]+)\.crc")
_CHECKSUMS_HEADER: Final = 8
_CHECKSUM_LENGTH: Final = 4
_CHECKED_BYTES: Final = 512
_JOURNAL_NAME: Final = re.compile(r".*/metadata/tablecrypt-(?P<verb>[a-z-]+)/[^/]+\.json")
_JOURNAL_FIELDS: Final = {"encryption-keys", "key-id"}
_KEY_FIELDS: Final = {"key-id", "encrypted-key-metadata", "encrypted-by-id", "properties"}
_LONGEST_JOURNAL: Final = 64 * 1024


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


def unfinished_verb(file: StoredFile, io: FileIO) -> str | None:
    """Return the verb whose journal a file is, by its name and because it holds wrapped keys and nothing else; None for any other file.

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
    return match["verb"] if holds_keys_alone else None


def orphan_findings(files: Iterable[StoredFile], heads: dict[str, Head], folder: Folder) -> Iterator[Finding]:
    """Yield what files are that the table does not know, by how they begin."""
    ciphertext: list[StoredFile] = []
    for file in files:
        head = heads[file.location]
        if head.seal == Seal.CHECKSUMS and _are_checksums(file, folder):
            continue
        if head.seal.is_ciphertext:
            ciphertext.append(file)
        elif head.seal == Seal.PLAINTEXT:
            yield Finding(FindingKind.PLAINTEXT_ORPHAN, file.location, f"{head.shown}, {file.size} bytes")
        elif head.seal in (Seal.UNKNOWN, Seal.UNREADABLE, Seal.CHECKSUMS):
            yield Finding(FindingKind.UNKNOWN_CONTENT, file.location, f"{head.shown}, {file.size} bytes")
    if ciphertext:
        shown = ", ".join(file.location for file in ciphertext[:_SHOWN])
        message = f"{len(ciphertext)} with {sum(file.size for file in ciphertext)} bytes, such as {shown}"
        yield Finding(FindingKind.ORPHANS, "the table's folder", message)


def _are_checksums(file: StoredFile, folder: Folder) -> bool:
    """Whether a file has the name and the length of the checksums of a file beside it."""
    match = _CHECKSUMS_NAME.fullmatch(file.location)
    checked = None if match is None else folder.at(match["folder"] + match["name"])
    return checked is not None and file.size == _CHECKSUMS_HEADER + _CHECKSUM_LENGTH * -(-checked.size // _CHECKED_BYTES)
