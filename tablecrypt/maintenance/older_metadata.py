"""The metadata files that a table has left behind, newest first:

    metadata-log of the current metadata ─▶ each file's own log ─▶ …          a log names only so many files before its own
    <location>/metadata/*.metadata.json, and below write.metadata.path        files that no log names any more, or none ever did

Nothing authenticates such a file but what it says opens or does not. Files of another table-uuid are passed over.

An audit does not ask here: it also tells of files of other tables and versions, and of JSON that is no metadata (_audit/observed.py).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata

from tablecrypt.errors import FormatError
from tablecrypt.files.raw_output import TABLE_METADATA_SUFFIXES
from tablecrypt.maintenance._storage import canonical, stored_files
from tablecrypt.maintenance._tables import metadata_folder
from tablecrypt.table.metadata import EncryptedTableMetadata, MetadataFile, read_metadata_file, read_named_metadata_file
from tablecrypt.table.table import EncryptedTable

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OlderMetadata:
    """One metadata file of the table.

    Attributes:
        location: where it is.
        file: its bytes; None where they are not a metadata file's, as half a file that was being written.
        parsed: what they say; None where they cannot be read.
        error: why they cannot be read.
        is_logged: whether a metadata-log names it, so that it was the table's once; a file that none names may be about to become that.
    """

    location: str
    file: MetadataFile | None = None
    parsed: TableMetadata | None = None
    error: Exception | None = None
    is_logged: bool = False

    @property
    def metadata(self) -> EncryptedTableMetadata | None:
        """What it says; None where it cannot be read, or is of a version without keys."""
        return self.parsed if isinstance(self.parsed, EncryptedTableMetadata) else None

    @property
    def problem(self) -> str:
        """Why it cannot be read, for people: without what a parser cites of it."""
        if self.error is None or self.file is None:
            return str(self.error or "")
        return f"{type(self.error).__name__}: not readable as table metadata"


def older_metadata(table: EncryptedTable, known: Iterable[str] = ()) -> Iterator[OlderMetadata]:
    """Yield every metadata file of a table that is there, but for the current one. One at a time: a caller need not hold them all.

    What the store raises, other than that a file is not there, is passed on. ConfigurationError: its FileIO cannot list.

    Args:
        table: the table.
        known: locations of files to pass over, with their logs: the caller has read them before.
    """
    metadata = table.metadata
    seen = {canonical(location) for location in (table.metadata_location, *known)}
    logged: deque[str] = deque()

    def follow_log(of: EncryptedTableMetadata) -> None:
        for entry in reversed(of.metadata_log):
            place = canonical(entry.metadata_file)
            if place not in seen:
                seen.add(place)
                logged.append(entry.metadata_file)

    def read(location: str, is_logged: bool) -> Iterator[OlderMetadata]:
        found = read_older(table, location)
        if found is None:
            return
        if found.metadata is not None:
            follow_log(found.metadata)
        yield replace(found, is_logged=is_logged)

    def read_logged() -> Iterator[OlderMetadata]:
        while logged:
            yield from read(logged.popleft(), is_logged=True)

    follow_log(metadata)
    yield from read_logged()

    for location in _listed(table):
        if canonical(location) not in seen:
            seen.add(canonical(location))
            yield from read(location, is_logged=False)
            yield from read_logged()


def read_older(table: EncryptedTable, location: str, is_given: bool = False) -> OlderMetadata | None:
    """Read one metadata file; None where there is none, or it is another table's.

    Args:
        table: the table.
        location: of the file.
        is_given: whether the caller names the file, in whatever folder and by whatever name, and not other metadata.
    """
    io = table.io
    try:
        file = (
            read_metadata_file(io.inner.new_input(location)) if is_given else read_named_metadata_file(io.inner, location, io.own_folders)
        )
    except FileNotFoundError:
        logger.debug("%s is gone", location)
        return None
    except FormatError as error:
        return OlderMetadata(location, error=error)

    try:
        metadata = file.parse()
    except (FormatError, ValueError) as error:
        return OlderMetadata(location, file, error=error)

    if metadata.table_uuid != table.metadata.table_uuid:
        logger.debug("%s is the metadata of another table", location)
        return None

    return OlderMetadata(location, file, metadata)


def _listed(table: EncryptedTable) -> list[str]:
    folders = {metadata_folder(table.metadata)}
    if (elsewhere := table.properties.get(TableProperties.WRITE_METADATA_PATH)) is not None:
        folders.add(elsewhere.rstrip("/"))
    inner = table.io.inner
    found = {file.location for folder in folders for file in stored_files(inner, folder) if file.location.endswith(TABLE_METADATA_SUFFIXES)}
    return sorted(found, key=lambda location: location.rpartition("/")[2], reverse=True)
