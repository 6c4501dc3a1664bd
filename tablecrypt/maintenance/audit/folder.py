"""What lies in a table's folders besides the files that the table knows.

    a metadata file that the log does not name     older metadata, read like those of the log
    AGS1, PARE                                     ciphertext that nothing refers to: failed writes, expired snapshots
    a plaintext format, anything else              plaintext

The folders are the table's location, and those that write.data.path and write.metadata.path name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata

from tablecrypt.errors import ConfigurationError
from tablecrypt.files.encrypting_file_io import TABLE_METADATA_SUFFIXES
from tablecrypt.maintenance.audit.findings import Finding, FindingKind
from tablecrypt.maintenance.audit.heads import Head, Seal
from tablecrypt.maintenance.stored_files import StoredFile, canonical, stored_files

Place = tuple[str, str, str]

_FOLDERS: Final = (TableProperties.WRITE_DATA_PATH, TableProperties.WRITE_METADATA_PATH)
_VERSION_HINT: Final = "version-hint.text"
_SHOWN: Final = 3


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
    except ConfigurationError as error:
        folder.problem = str(error)
    return folder


def is_metadata_file(file: StoredFile) -> bool:
    """Whether a file is table metadata, by its name."""
    return file.location.endswith(TABLE_METADATA_SUFFIXES)


def orphan_findings(files: Iterable[StoredFile], heads: dict[str, Head]) -> Iterator[Finding]:
    """Yield what files are that the table does not know, by how they begin."""
    ciphertext: list[StoredFile] = []
    for file in files:
        head = heads[file.location]
        if head.seal.is_ciphertext:
            ciphertext.append(file)
        elif head.seal == Seal.PLAINTEXT:
            yield Finding(FindingKind.PLAINTEXT_ORPHAN, file.location, f"{head.shown}, {file.size} bytes")
        elif head.seal in (Seal.UNKNOWN, Seal.UNREADABLE):
            yield Finding(FindingKind.UNKNOWN_CONTENT, file.location, f"{head.shown}, {file.size} bytes")
    if ciphertext:
        shown = ", ".join(file.location for file in ciphertext[:_SHOWN])
        message = f"{len(ciphertext)} with {sum(file.size for file in ciphertext)} bytes, such as {shown}"
        yield Finding(FindingKind.ORPHANS, "the table's folder", message)
