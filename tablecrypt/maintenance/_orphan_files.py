"""Files under a table's location that the table does not know: what failed and cancelled writes left, and what expired snapshots held.

    listed first      every file under the location
    then known        the table as the catalog has it after that: its metadata files, and of every snapshot the manifest list, manifests,
                      data and delete files; statistics; records of shares
    orphans           listed, not known, older than a limit, in no folder and of no name that begins with _ or . , but for records
    refused           orphans that need not be the table's (see files/deletion.py), lie where another table's metadata lies, be it in the
                      table's own folder, or are named by a live share
    empty folders     on a local disk, removed where they are named by values of a column that is protected now

A write that is under way has files that no metadata names yet. They are younger than the limit, unless the write takes longer than that.
Which files a table has is authenticated (its manifests are encrypted), so no edit of a manifest can have a live file deleted.

Do not use it on a table whose location holds another table's, or whose files another catalog's table shares.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.utils.concurrent import ExecutorFactory

from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.files.deletion import LOCAL, DeletionScope, is_share_record_name, place_of
from tablecrypt.files.raw_output import TABLE_METADATA_SUFFIXES
from tablecrypt.files.stores import StoredFile, stored_files
from tablecrypt.maintenance._storage import refused_deletion, remove_empty_folders
from tablecrypt.maintenance.operation import (
    Counted,
    OperationResult,
    ProgressListener,
    checked_moment,
    no_progress,
    reload,
    require_encrypted,
)
from tablecrypt.printable import bytes_shown, counted, shown
from tablecrypt.table._pyiceberg.statistics import statistics_locations
from tablecrypt.table.metadata import read_named_metadata_file
from tablecrypt.table.other_tables import may_be_used_by_another, used_by_another
from tablecrypt.table.protection.exposed_values import ShownPartitions
from tablecrypt.table.shares import deleting_io, keeping_shared, named_records
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import TableFileIO, check_garbage_is_collected, name_of

SAFE_AGE: Final = dt.timedelta(days=3)


@dataclass(frozen=True)
class OrphanFiles(OperationResult):
    """What was found, and what was done about it.

    Attributes:
        found: the files.
        deleted: locations of those that are gone.
        failed: for each location that could not be deleted, what the store said.
        refused: files that no metadata of the table names, and that are not deleted because they need not be the table's, or because a
            live share names them; with the reason.
        known_elsewhere: those of the refused files whose path the table knows in another store, bucket or host.
    """

    found: tuple[StoredFile, ...] = field(metadata=shown("files", is_whole=True))
    deleted: tuple[str, ...] = ()
    failed: dict[str, str] = field(default_factory=dict, metadata=shown("could not be deleted", is_whole=True))
    refused: dict[str, str] = field(
        default_factory=dict, metadata=shown("not deleted, since they need not be the table's or are shared", is_whole=True)
    )
    known_elsewhere: tuple[str, ...] = ()

    def summary(self) -> str:
        """Return what was done in one sentence."""
        if not self.found:
            return f"No file was found that does not belong to {self.table}."
        found = f"{counted(len(self.found), 'file', 'files')} that {'does' if len(self.found) == 1 else 'do'} not belong to {self.table}"
        if self.dry_run:
            return f"Found {found} ({bytes_shown(self.size)})."
        return f"Found {found} ({bytes_shown(self.size)}), and deleted {len(self.deleted):,}."

    @property
    def size(self) -> int:
        """Bytes of all that was found."""
        return sum(file.size for file in self.found)


@checked_arguments(but=("older_than", "listed"))
def remove_orphan_files(
    table: Table,
    older_than: dt.datetime | None = None,
    dry_run: bool = True,
    delete_below: Sequence[str] = (),
    folder: str | None = None,
    listed: Sequence[tuple[str, dt.datetime]] | None = None,
    despite_other_prefixes: bool = False,
    break_shares: bool = False,
    progress: ProgressListener = no_progress,
) -> OrphanFiles:
    """Find the files under an encrypted table's location that nothing in the table names, and delete them if asked to.

    Args:
        table: an encrypted table; its current state is loaded again.
        older_than: only files last written before this moment, which has a time zone; by default three days ago. It must be longer ago
            than the longest write takes.
        dry_run: whether only to find them.
        delete_below: folders of the table in which files may be deleted, where neither a pin nor the place of its metadata file says where
            it lies, or where other tables' files are beside its own.
        folder: only files below this folder, which is the table's location or lies below it. Naming it says that it is the table's.
        listed: location and last change of the files to look at in place of those that the store lists, such as a bucket's inventory. Only
            those below the table's location count.
        despite_other_prefixes: whether a file is an orphan although the table knows one of its path in another store, bucket or host.
        break_shares: whether files go, too, that a live share names, and that the table itself needs no more.
        progress: listener for reports of the files that are deleted.

    Raises:
        ConfigurationError: the table is not encrypted, `older_than` has no time zone, its FileIO cannot list, `folder` is not the table's,
            or files are to be deleted, and the table has gc.enabled=false or nothing but its metadata says where it lies.
        ShareRecordError: what the table remembers of a share cannot be read; nothing was deleted.
        TamperedFileError, KeyNotFoundError, KmsError: the table's own files cannot be listed; nothing was deleted.
    """
    require_encrypted(table)
    limit = dt.datetime.now(dt.UTC) - SAFE_AGE if older_than is None else checked_moment("older_than", older_than)
    location = table.location().rstrip("/")
    within = DeletionScope(named=(location,))
    # The argument may narrow the search, and never widen it beyond the table's own location.
    if folder is not None and not within.contains(folder):
        raise ConfigurationError(f"{folder!r} is not below {location}, where {name_of(table)} lies")

    io = _deleting_io(reload(table), delete_below, folder, dry_run, break_shares)
    chosen = DeletionScope(named=(folder or location,))
    # Listed before the metadata is loaded again: files that a commit adds in between are known then, and no orphans.
    files = stored_files(io.inner, location) if listed is None else _inventory(listed)
    stored = [file for file in files if chosen.contains(file.location)]
    # Manifests and listings spell locations differently: s3a://b/x and s3://b/x are one file.
    known = {place_of(each) for each in known_locations(reload(table))}
    # A file of a local disk may be a link to its content beside it.
    links = [f"/{path}" for store, _, path in known if store == LOCAL and os.path.islink(f"/{path}")]
    known |= {place_of(os.path.realpath(link)) for link in links}
    unknown = [file for file in stored if _is_old(file, limit) and not _is_hidden(file, location) and place_of(file.location) not in known]
    strangers = _foreign_folders(io, stored, known, str(table.metadata.table_uuid))
    refused = {file.location: reason for file in unknown if (reason := _reason_against(io, strangers, file.location)) is not None}
    # The same path in another store or bucket may be the same file by another name: it stays unless the caller knows better.
    elsewhere = {} if despite_other_prefixes else _known_elsewhere(known, [file.location for file in unknown])
    refused |= elsewhere
    found = tuple(file for file in unknown if file.location not in refused)
    deleted, failed = ([], {}) if dry_run else _delete(io, found, Counted("remove_orphan_files", "files", progress))
    if not dry_run and io.deletable.contains(folder or location) and (begins := ShownPartitions.of(table.metadata).folders):
        # Names of folders are all that is left of values by which a table was partitioned before their column was protected.
        remove_empty_folders(folder or location, begins)
    return OrphanFiles(name_of(table), dry_run, found, tuple(deleted), failed, refused, tuple(elsewhere))


def _deleting_io(table: EncryptedTable, delete_below: Sequence[str], folder: str | None, dry_run: bool, break_shares: bool) -> TableFileIO:
    if folder is not None:
        # Naming the folder says where the table's files are, and not that other tables do without them.
        if not dry_run:
            check_garbage_is_collected(table)

        # A caller that names the folder to look at says that it is the table's.
        return keeping_shared(table, table.io.deleting_below(delete_below).deleting_in(folder), break_shares=break_shares)
    if not dry_run:
        return deleting_io(table, delete_below, break_shares=break_shares)

    return keeping_shared(table, table.io.deleting_below(delete_below), break_shares=break_shares)


def _reason_against(io: TableFileIO, strangers: Mapping[str, str], location: str) -> str | None:
    """Return why a file is not deleted: it is not the table's own by its place or name, or another table lies around it."""
    if (reason := io.deletable.reason_against(location)) is not None:
        return reason

    for folder, why in strangers.items():
        # What the caller names outweighs a metadata file that anyone may have put there.
        named = any(DeletionScope((), (each,)).contains(folder) for each in io.deletable.named)
        if location.startswith(f"{folder}/") and not named:
            return why

    return None


def _known_elsewhere(known: Collection[tuple[str, str, str]], locations: Iterable[str]) -> dict[str, str]:
    """Return the locations whose path the table knows in another store, bucket or host, each with the reason."""
    prefixes = {path: f"{store}://{authority}" for store, authority, path in known}
    paths = {location: place_of(location)[2] for location in locations}
    return {location: f"is known to the table under {prefixes[path]}" for location, path in paths.items() if path in prefixes}


def _foreign_folders(io: TableFileIO, listed: Iterable[StoredFile], known: Collection[tuple[str, str, str]], own: str) -> dict[str, str]:
    """Return the folders in which other tables keep, or may keep, their files, each with why: metadata files are read for their uuid."""
    candidates = [file.location for file in listed if file.location.endswith(TABLE_METADATA_SUFFIXES)]
    unknown = [location for location in candidates if place_of(location) not in known]
    found: dict[str, str] = {}
    unread: dict[str, str] = {}

    for location in sorted(unknown):
        folder = location.rpartition("/")[0]
        root = folder.rpartition("/")[0] if folder.endswith("/metadata") else folder
        # One metadata file of another table is enough for its folder: each look reads a whole file.
        if root in found:
            continue
        table_uuid = _table_uuid(io, location)
        if table_uuid is None and root != folder:
            unread.setdefault(root, may_be_used_by_another(location))
        elif table_uuid not in (own, None):
            found[root] = used_by_another(location)

    # Elsewhere any file of that name would keep orphans. In the table's own folders it may be half of a commit of its own.
    own_folders = {folder.rstrip("/").removesuffix("/metadata") for folder in io.own_folders.folders}
    return {root: why for root, why in unread.items() if root not in own_folders} | found


def _table_uuid(io: TableFileIO, location: str) -> str | None:
    """Return the table-uuid that a metadata file names; None for a file that is not readable as such, or is gone."""
    try:
        return str(read_named_metadata_file(io.inner, location, io.own_folders).table_uuid)
    except (FormatError, FileNotFoundError):
        return None


def known_locations(table: EncryptedTable) -> set[str]:
    """Return every location that a table's current metadata leads to."""
    metadata = table.metadata
    known = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    known |= {*statistics_locations(metadata), *(named.location for named in named_records(metadata))}
    known |= {snapshot.manifest_list for snapshot in metadata.snapshots}
    executor = ExecutorFactory.get_or_create()
    listed = executor.map(lambda snapshot: snapshot.manifests(table.io), metadata.snapshots)
    # Snapshots share most of their manifests: each is read once.
    manifests = {manifest.manifest_path: manifest for each in listed for manifest in each}
    known |= manifests.keys()

    def files(manifest: ManifestFile) -> list[str]:
        # An entry that says that a file was deleted does not keep it: a snapshot that still reads the file has a live entry of it.
        return [entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)]

    for paths in executor.map(files, manifests.values()):
        known.update(paths)
    return known


def _delete(io: TableFileIO, found: Collection[StoredFile], counted: Counted) -> tuple[list[str], dict[str, str]]:
    """Delete files; return the locations of those that are gone, and why others are not."""
    failed = {file.location: said for file in counted.track(found) if (said := refused_deletion(io, file.location))}
    return [file.location for file in found if file.location not in failed], failed


def _inventory(listed: Sequence[tuple[str, dt.datetime]]) -> list[StoredFile]:
    """Return the files of an inventory that a caller has. ConfigurationError if it is not one."""
    if not isinstance(listed, (list, tuple)) or not all(_is_listed(each) for each in listed):
        raise ConfigurationError("listed must be a list of pairs: a file's location, and when it was last written")
    return [StoredFile(location, 0, checked_moment("listed", moment)) for location, moment in listed]


def _is_listed(pair: object) -> bool:
    return isinstance(pair, (list, tuple)) and [type(each) for each in pair] == [str, dt.datetime]


def _is_old(file: StoredFile, limit: dt.datetime) -> bool:
    # Without a time of writing, a file may belong to a write that is under way.
    return file.modified is not None and file.modified < limit


def _is_hidden(file: StoredFile, location: str) -> bool:
    """Whether a part of the path begins with _ or . ; a partition folder, name=value, may begin so, and what held the record of a share."""
    return not is_share_record_name(file.location) and any(
        part.startswith(("_", ".")) and "=" not in part for part in file.location[len(location) :].split("/")
    )
