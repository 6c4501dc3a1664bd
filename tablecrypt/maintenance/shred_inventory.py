"""Which files a shredding puts out of reach, and which stay readable: found before any key goes.

    entry of a doomed snapshot's manifests                                                          file is
        also a live entry of a live snapshot's                                                      live: shared, and stays
        else a deleted entry of a live snapshot's, which keeps the file's DEK as every entry does    still opened by that snapshot
        else                                                                                        shredded

Snapshots whose keys are gone already cannot be looked into: what they alone held is shredded, and its names are not known.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.utils.concurrent import ExecutorFactory

from tablecrypt.errors import AuthenticationError, FormatError, KeyIdChangedError, KeyNotFoundError, KmsError, PlaintextRefusedError
from tablecrypt.maintenance.progress import Counted
from tablecrypt.manifests.manifest_file import EncryptedManifestFile
from tablecrypt.table.metadata import EncryptedSnapshot
from tablecrypt.table.table_file_io import TableFileIO

_OUT_OF_REACH: Final = (
    AuthenticationError,
    FormatError,
    KeyIdChangedError,
    KeyNotFoundError,
    PlaintextRefusedError,
    FileNotFoundError,
)


@dataclass
class Inventory:
    """What a shredding means for data and delete files.

    Attributes:
        shredded: files that nothing in the table opens any more.
        live: files of doomed snapshots that live ones share.
        still_opened: files of doomed snapshots whose DEKs stand in live snapshots' manifests, as deleted; with the ids of those snapshots.
        unknown: ids of doomed snapshots that could not be looked into.
    """

    shredded: tuple[str, ...] = ()
    live: tuple[str, ...] = ()
    still_opened: dict[str, tuple[int, ...]] = field(default_factory=dict)
    unknown: tuple[int, ...] = ()


class InventoryTaker:
    """Reads the manifests of snapshots, each manifest once.

    Args:
        io: the table's.
        counted: tells of the snapshots that were looked into.
    """

    def __init__(self, io: TableFileIO, counted: Counted) -> None:
        self._io = io
        self._counted = counted
        self._entries: dict[str, list[ManifestEntry]] = {}

    def take(self, doomed: Collection[EncryptedSnapshot], live: Collection[EncryptedSnapshot]) -> Inventory:
        """Return what becomes of the files of doomed snapshots.

        Args:
            doomed: bound to the keys that may open them.
            live: the snapshots that stay.

        Raises:
            AuthenticationError, KeyNotFoundError, FormatError: a live snapshot cannot be read.
            KmsError: the KMS refused.
        """
        of_live: set[str] = set()
        of_deleted: dict[str, set[int]] = {}
        snapshots = self._counted.over([*live, *doomed])
        for snapshot in islice(snapshots, len(live)):
            for entry in self._entries_of(snapshot):
                if entry.status != ManifestEntryStatus.DELETED:
                    of_live.add(entry.data_file.file_path)
                elif entry.data_file.key_metadata:
                    of_deleted.setdefault(entry.data_file.file_path, set()).add(snapshot.snapshot_id)
        of_doomed: dict[str, None] = {}
        unknown: list[int] = []
        for snapshot in snapshots:
            try:
                entries = self._entries_of(snapshot)
            except _OUT_OF_REACH:
                unknown.append(snapshot.snapshot_id)
                continue
            except KmsError as error:
                # An old metadata file may hold a KEK as a version of the master key wrapped it that is gone since.
                if error.retryable:
                    raise
                unknown.append(snapshot.snapshot_id)
                continue
            of_doomed.update({entry.data_file.file_path: None for entry in entries if entry.status != ManifestEntryStatus.DELETED})
        return Inventory(
            shredded=tuple(path for path in of_doomed if path not in of_live and path not in of_deleted),
            live=tuple(path for path in of_doomed if path in of_live),
            still_opened={path: tuple(sorted(of_deleted[path])) for path in of_doomed if path in of_deleted and path not in of_live},
            unknown=tuple(unknown),
        )

    def _entries_of(self, snapshot: EncryptedSnapshot) -> list[ManifestEntry]:
        manifests = snapshot.manifests(self._io)
        missing = [manifest for manifest in manifests if manifest.manifest_path not in self._entries]
        read = ExecutorFactory.get_or_create().map(self._read, missing)
        self._entries.update({manifest.manifest_path: entries for manifest, entries in zip(missing, read, strict=True)})
        return [entry for manifest in manifests for entry in self._entries[manifest.manifest_path]]

    def _read(self, manifest: ManifestFile) -> list[ManifestEntry]:
        return EncryptedManifestFile.of(manifest).read(self._io).entries
