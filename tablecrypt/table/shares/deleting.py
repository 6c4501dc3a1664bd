"""Which files of an encrypted table may be deleted: none that other tables need, none elsewhere, and none that a live share names.

    expiry, orphans                    go on without the shared files, and say so: a nightly job does not stop because of a share
    erasure, purge                     stop before anything is changed: rows that were to be erased, or a table, would be left in part
    shredding of snapshots, columns    stops: whom the files were shared with opens them all the same
    compaction, re-encryption          delete nothing: the share goes on with the files that it names

Each goes on with `break_shares`. Nothing here keeps others from deleting a file, such as the expiry of Iceberg Java: a tag on the snapshot
that is shared does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from pyiceberg.table import Table

from tablecrypt.errors import ConfigurationError, SharedFilesError
from tablecrypt.files.deletion import ParsedLocation, unusable_location
from tablecrypt.printable import counted
from tablecrypt.table.shares.records import ShareRecord, live_shares, readable_shares
from tablecrypt.table.table_files import TableFileIO, check_garbage_is_collected, name_of

logger = logging.getLogger(__name__)


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
            f"--delete-below '{location}', or in SQL delete_below => array('{location}')"
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
    return io.keeping({location: f"is named by {_shown(record)}" for record in live_shares(table) for location in record.files})


@dataclass(frozen=True)
class SharedFiles:
    """Live shares of a table, each with how many files it names of those that are asked for."""

    table: str
    shares: Mapping[ShareRecord, int]

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
        return cls(name_of(table), {record: len(record.files) for record in records})

    def among(self, locations: Iterable[str]) -> SharedFiles:
        """Return what is shared of these files."""
        wanted = {_any_spelling(location) for location in locations}
        return self._only(lambda location: location in wanted)

    def but(self, locations: Iterable[str]) -> SharedFiles:
        """Return what is shared beside these files."""
        others = {_any_spelling(location) for location in locations}
        return self._only(lambda location: location not in others)

    def with_column(self, field_id: int) -> SharedFiles:
        """Return the shares that have a protected column."""
        found = {record: files for record, files in self.shares.items() if any(each.field_id == field_id for each in record.columns)}
        return SharedFiles(self.table, found)

    def _only(self, is_wanted: Callable[[ParsedLocation | str], bool]) -> SharedFiles:
        found = {record: sum(is_wanted(_any_spelling(each)) for each in record.files) for record in self.shares}
        return SharedFiles(self.table, {record: files for record, files in found.items() if files})

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
                f"{self.table}: {because}: {'; '.join(self.said)}. Nothing was changed. End the shares first (unshare), or go on with "
                "break_shares=True, --break-shares, or in SQL break_shares => true"
            )

    @property
    def said(self) -> tuple[str, ...]:
        """Of each share what it is, and how many files."""
        return tuple(f"{_shown(record)}, {counted(files, 'file', 'files')}" for record, files in self.shares.items())


def _shown(record: ShareRecord) -> str:
    return f"share {record.share_uuid} for {record.key_id}"


def _any_spelling(location: str) -> ParsedLocation | str:
    return ParsedLocation.of(location).any_spelling if unusable_location(location) is None else location
