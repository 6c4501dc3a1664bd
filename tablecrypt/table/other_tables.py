"""Tables that lie below, around or in place of the folders of a table: their files are theirs, whatever the table names.

Whoever may commit to a table can name any file in it, and any folder as its own (write.data.path). What the table names and needs no more
is deleted by whoever maintains it. So a file is that of the nearest folder around it which has a table's metadata:

    <location>/data/a=1/x.parquet           no folder nearer than the table's own: may be deleted, and nothing is listed for it
    <location>/sales/data/x.parquet         <location>/sales/metadata has metadata.json of another table-uuid: stays
    <write.data.path>/x.parquet             the folders up to the root of the bucket or disk are looked at

The table's location, where it is trusted, and what a caller names end the search: where another table's metadata lies by mistake, or by
ill will, naming its folder helps. Of two tables in one folder nothing here can tell whose a file is; nor of a table whose metadata lies
elsewhere (write.metadata.path).
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.files.deletion import LOCAL, SHARE_RECORDS, ParsedLocation
from tablecrypt.files.raw_output import TABLE_METADATA_SUFFIXES
from tablecrypt.files.stores import check_reached, stored_files
from tablecrypt.table.metadata import read_metadata_file

_FOLDERS_OF_A_TABLE: Final = ("data", "metadata")
_MADE_BY_A_TABLE: Final = re.compile(rf"data|metadata|{SHARE_RECORDS}|[^/]+=[^/]*|[01]{{4,8}}|[0-9a-f]{{8}}")
"""Names of folders in which tables put their own files: partitions, and the bits or digits that spread files over a bucket."""

logger = logging.getLogger(__name__)


def tables_at(io: FileIO, location: str) -> Iterator[tuple[str, uuid.UUID]]:
    """Yield each metadata file in the folder of a table, with the table-uuid in it; half of one is none. As `metadata_files_at`."""
    return ((file, found) for file, found in metadata_files_at(io, location) if found is not None)


def metadata_files_at(io: FileIO, location: str) -> Iterator[tuple[str, uuid.UUID | None]]:
    """Yield what is named as a metadata file in the folder of a table, with the table-uuid in it; None for what cannot be read.

    Args:
        io: the store's own FileIO.
        location: where a table may be, without a slash at the end.

    Raises:
        ConfigurationError: no store has such a location.
    """
    check_reached(io, location)
    for file in stored_files(io, f"{location}/metadata"):
        if not file.location.endswith(TABLE_METADATA_SUFFIXES):
            continue
        try:
            found = read_metadata_file(io.new_input(file.location)).table_uuid
        except (FileNotFoundError, FormatError):
            yield file.location, None
        else:
            yield file.location, found


def check_no_table_around(io: FileIO, location: str) -> None:
    """Refuse a place for a table's files inside the folder of another, whose audits and erasures would meet files that are not its own.

    Args:
        io: the store's own FileIO.
        location: the place, without a slash at the end; it may hold a table. Folders around it that cannot be listed are passed over.

    Raises:
        ConfigurationError: a folder around it holds a table.
    """
    for around in _possible_tables(location.rpartition("/")[0], ()):
        try:
            found = next(tables_at(io, around), None)
        except Exception as error:  # noqa: BLE001  every store has errors of its own, and who may write below a folder need not see it
            logger.debug("%s cannot be listed: %s", around, error)
            continue
        if found is not None:
            raise ConfigurationError(f"{location} lies in the folder of another table ({found[0]}): choose a location outside of it")


def metadata_at(io: FileIO, location: str) -> TableMetadata | None:
    """Return what a metadata file says; None where there is none, or half of one, as of a run that was killed."""
    try:
        return read_metadata_file(io.new_input(location)).parse()
    except (FileNotFoundError, FormatError, ValueError):
        return None


@dataclass(frozen=True)
class OtherTables:
    """The tables around the files of one table, each folder looked at once.

    Attributes:
        io: the store's own FileIO, which lists.
        own: the table-uuid of the table.
    """

    io: FileIO
    own: uuid.UUID
    _reasons: dict[tuple[str, tuple[str, ...]], str | None] = field(default_factory=dict, repr=False, compare=False)

    def reason_against(self, location: str, trusted: tuple[str, ...]) -> str | None:
        """Return why a file is another table's; None where it is not, as far as the store shows.

        Args:
            location: of a file; its spelling has one meaning.
            trusted: folders that are the table's, by a pin or because a caller names them.
        """
        folder = location.rpartition("/")[0]
        if (folder, trusted) not in self._reasons:
            self._reasons[folder, trusted] = self._reason_in(folder, trusted)
        return self._reasons[folder, trusted]

    def _reason_in(self, folder: str, trusted: tuple[str, ...]) -> str | None:
        for around in _possible_tables(folder, trusted):
            unread = None
            try:
                for file, found in metadata_files_at(self.io, around):
                    if found is not None:
                        return None if found == self.own else used_by_another(file)
                    unread = file
            except Exception as error:  # noqa: BLE001  every store has errors of its own
                # Who may not look cannot know whose the file is.
                logger.debug("%s cannot be listed: %s", around, error)
                return f"may be another table's, as {around}/metadata cannot be listed ({type(error).__name__}): name the folder if not"
            if unread is not None:
                return may_be_used_by_another(unread)

        return None


def used_by_another(metadata_location: str) -> str:
    """Return why a file stays that lies in the folder of a table with that metadata file."""
    return f"lies in a folder that another table uses, as {metadata_location} says"


def may_be_used_by_another(metadata_location: str) -> str:
    """Return why a file stays that lies in a folder where a file is named as a table's metadata, and cannot be read."""
    # A store that cuts the one answer must not make another table's files anybody's.
    return f"may be another table's, as {metadata_location} is named as its metadata and cannot be read: name the folder if not"


def _possible_tables(folder: str, trusted: tuple[str, ...]) -> Iterator[str]:
    """Yield a folder and those around it that may be tables, the nearest first, up to a trusted one."""
    folder = _without_links(folder)
    parsed, own = ParsedLocation.of(folder), {ParsedLocation.of(_without_links(each)) for each in trusted}
    inside = ""

    for depth in range(len(parsed.names), 0, -1):
        if replace(parsed, names=parsed.names[:depth]) in own:
            return
        name = parsed.names[depth - 1]
        if _may_be_a_table(name, inside):
            yield folder.rsplit("/", len(parsed.names) - depth)[0]
        inside = name


def _may_be_a_table(name: str, inside: str) -> bool:
    """Whether a folder may be a table's, by its name and that of the folder in it on the way to a file."""
    # A table has thousands of partitions, and a request for each would cost more than the deletion.
    return inside in _FOLDERS_OF_A_TABLE or _MADE_BY_A_TABLE.fullmatch(name) is None


def _without_links(folder: str) -> str:
    """Return a local folder as it is without links: one below the table's folder may lead to that of a table which lies there too."""
    parsed = ParsedLocation.of(folder)
    return os.path.realpath(parsed.local_path) if parsed.store == LOCAL else folder.rstrip("/")
