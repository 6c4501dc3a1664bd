"""The metadata files that a table has left behind, newest first: what its log names, what their logs name, and what its folder holds.

    metadata-log of the current metadata ─▶ each file's own log ─▶ …          a log names only so many files before its own
    <location>/metadata/*.metadata.json, and below write.metadata.path        files that no log names any more, or none ever did

Nothing authenticates such a file but what it says opens or does not. Files of another table-uuid are passed over.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyiceberg.table import TableProperties

from tablecrypt.errors import FormatError
from tablecrypt.files.raw_output import TABLE_METADATA_SUFFIXES
from tablecrypt.maintenance.encrypted import encrypted_metadata_of, table_io
from tablecrypt.maintenance.stored_files import canonical, stored_files
from tablecrypt.table.encrypted_table import EncryptedTable
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.metadata_file import MetadataFile, read_metadata_file, read_named_metadata_file

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OlderMetadata:
    """One metadata file of the table.

    Attributes:
        location: where it is.
        file: its bytes; None where they are not a metadata file's, as half a file that was being written.
        metadata: what they say; None where they cannot be read, or are of a version without keys.
        problem: why they cannot be read.
        is_logged: whether a metadata-log names it, so that it was the table's once; a file that none names may be about to become that.
    """

    location: str
    file: MetadataFile | None = None
    metadata: EncryptedTableMetadata | None = None
    problem: str = ""
    is_logged: bool = False


def older_metadata(table: EncryptedTable) -> Iterator[OlderMetadata]:
    """Yield every metadata file of a table that is there, but for the current one.

    What the store raises, other than that a file is not there, is passed on. ConfigurationError: its FileIO cannot list.
    """
    metadata = encrypted_metadata_of(table)
    seen = {canonical(table.metadata_location)}
    waiting = [entry.metadata_file for entry in reversed(metadata.metadata_log)]
    listed = iter(_listed(table))
    while True:
        is_logged = bool(waiting)
        location = waiting.pop(0) if waiting else next(listed, None)
        if location is None:
            return
        if canonical(location) in seen:
            continue
        seen.add(canonical(location))
        found = read_older(table, location)
        if found is None:
            continue
        if found.metadata is not None:
            waiting += [entry.metadata_file for entry in reversed(found.metadata.metadata_log)]
        yield replace(found, is_logged=is_logged)


def read_older(table: EncryptedTable, location: str, is_given: bool = False) -> OlderMetadata | None:
    """Read one metadata file; None where there is none, or it is another table's.

    Args:
        table: the table.
        location: of the file.
        is_given: whether the caller names the file, in whatever folder and by whatever name, and not other metadata.
    """
    io = table_io(table)
    try:
        file = (
            read_metadata_file(io.inner.new_input(location)) if is_given else read_named_metadata_file(io.inner, location, io.own_folders)
        )
    except FileNotFoundError:
        logger.debug("%s is gone", location)
        return None
    except FormatError as error:
        return OlderMetadata(location, problem=str(error))
    try:
        metadata = file.parse()
    except (FormatError, ValueError) as error:
        return OlderMetadata(location, file, problem=f"{type(error).__name__}: not readable as table metadata")
    if metadata.table_uuid != table.metadata.table_uuid:
        logger.debug("%s is the metadata of another table", location)
        return None
    return OlderMetadata(location, file, metadata if isinstance(metadata, EncryptedTableMetadata) else None)


def _listed(table: EncryptedTable) -> list[str]:
    folders = {f"{table.location().rstrip('/')}/metadata"}
    if (elsewhere := table.properties.get(TableProperties.WRITE_METADATA_PATH)) is not None:
        folders.add(elsewhere.rstrip("/"))
    inner = table_io(table).inner
    found = {file.location for folder in folders for file in stored_files(inner, folder) if file.location.endswith(TABLE_METADATA_SUFFIXES)}
    return sorted(found, key=lambda location: location.rpartition("/")[2], reverse=True)
