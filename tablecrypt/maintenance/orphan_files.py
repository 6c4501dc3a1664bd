"""Files under a table's location that the table does not know: what failed and cancelled writes left, and what expired snapshots held.

    listed first      every file under the location
    then known        the table as the catalog has it after that: its metadata files, and of every snapshot the manifest list, manifests,
                      data and delete files; statistics
    orphans           listed, not known, older than a limit, in no folder and of no name that begins with _ or .

A write that is under way has files that no metadata names yet. They are younger than the limit, unless the write takes longer than that.
Which files a table has is authenticated (its manifests are encrypted), so nobody can have a live file deleted by editing a manifest.

Do not use it on a table whose location holds another table's, or whose files another catalog's table shares.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.utils.concurrent import ExecutorFactory

from tablecrypt.maintenance.arguments import checked_moment
from tablecrypt.maintenance.encrypted import encrypted, name_of, newest, table_io
from tablecrypt.maintenance.results import VerbResult
from tablecrypt.maintenance.stored_files import StoredFile, canonical, stored_files
from tablecrypt.table.encrypted_table import EncryptedTable
from tablecrypt.table.table_file_io import TableFileIO

logger = logging.getLogger(__name__)

SAFE_AGE: Final = dt.timedelta(days=3)


@dataclass(frozen=True)
class OrphanFiles(VerbResult):
    """What was found, and what was done about it.

    Attributes:
        found: the files.
        deleted: locations of those that are gone.
        failed: for each location that could not be deleted, what the store said.
    """

    found: tuple[StoredFile, ...]
    deleted: tuple[str, ...] = ()
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of all that was found."""
        return sum(file.size for file in self.found)


def remove_orphan_files(table: Table, older_than: dt.datetime | None = None, dry_run: bool = True) -> OrphanFiles:
    """Find the files under an encrypted table's location that nothing in the table names, and delete them if asked to.

    Args:
        table: an encrypted table; its current state is loaded anew.
        older_than: only files last written before this moment, which has a time zone; by default three days ago. It must be longer ago
            than the longest write takes.
        dry_run: whether to find only.

    Raises:
        ConfigurationError: the table is not encrypted, `older_than` has no time zone, or its FileIO cannot list.
        TamperedFileError, KeyNotFoundError, KmsError: the table's own files cannot be listed; nothing was deleted.
    """
    io = table_io(encrypted(table))
    limit = dt.datetime.now(dt.UTC) - SAFE_AGE if older_than is None else checked_moment("older_than", older_than)
    location = table.location().rstrip("/")
    listed = list(stored_files(io.inner, location))
    known = {canonical(each) for each in known_locations(newest(table))}
    candidates = [file for file in listed if _is_old(file, limit) and not _is_hidden(file, location)]
    found = tuple(file for file in candidates if canonical(file.location) not in known)
    deleted, failed = ([], {}) if dry_run else _delete(io, found)
    return OrphanFiles(name_of(table), dry_run, found, tuple(deleted), failed)


def known_locations(table: EncryptedTable) -> set[str]:
    """Return every location that a table's current metadata leads to."""
    metadata = table.metadata
    known = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    known |= {each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics)}
    known |= {snapshot.manifest_list for snapshot in metadata.snapshots}
    executor = ExecutorFactory.get_or_create()
    listed = executor.map(lambda snapshot: snapshot.manifests(table.io), metadata.snapshots)
    manifests = {manifest.manifest_path: manifest for each in listed for manifest in each}
    known |= manifests.keys()

    def files(manifest: ManifestFile) -> list[str]:
        return [entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)]

    for paths in executor.map(files, manifests.values()):
        known.update(paths)
    return known


def _delete(io: TableFileIO, found: Iterable[StoredFile]) -> tuple[list[str], dict[str, str]]:
    """Delete files; return the locations of those that are gone, and why others are not."""
    deleted: list[str] = []
    failed: dict[str, str] = {}
    for file in found:
        try:
            io.delete(file.location)
        except FileNotFoundError:
            logger.debug("%s is gone already", file.location)
        except Exception as error:  # noqa: BLE001  every store has errors of its own; all of them are reported together
            failed[file.location] = f"{type(error).__name__}: {error}"
            continue
        deleted.append(file.location)
    return deleted, failed


def _is_old(file: StoredFile, limit: dt.datetime) -> bool:
    return file.modified is not None and file.modified < limit


def _is_hidden(file: StoredFile, location: str) -> bool:
    """Whether a part of the path begins with _ or . ; a partition folder, name=value, may begin so."""
    return any(part.startswith(("_", ".")) and "=" not in part for part in file.location[len(location) :].split("/"))
