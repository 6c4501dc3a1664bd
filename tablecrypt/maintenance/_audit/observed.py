"""What an audit reads of one table: its metadata and manifests, what its folders hold, and the ends of its files.

All reading happens here. What the rules say of it is in table_audit.py, which reads nothing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import KmsAccessDeniedError, KmsError, TablecryptError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.keys.key_ring import EncryptedKey
from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.maintenance._audit.file_signatures import FileStart, Signature, read_file_starts, wrong_ends
from tablecrypt.maintenance._audit.folder import Folder, OlderMetadata, is_metadata_file, list_folders, look_at_older, unfinished_operation
from tablecrypt.maintenance._storage import StoredFile, canonical
from tablecrypt.maintenance.progress import Counted
from tablecrypt.maintenance.reachable import Reachable, ReachableFile, reachable_files
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.table_files import TableFileIO

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Observed:
    """What was read of one table.

    Attributes:
        name: the table's.
        metadata, metadata_location: its current metadata.
        manager: its encryption manager; None for a plain table.
        reachable: every file that its snapshots lead to, and what could not be opened on the way.
        unopened: locations of the latter.
        folder: what its folders hold.
        statistics: locations of its statistics files.
        journals: the operation that each journal is of, by the journal's location.
        orphans: files that the table does not know.
        older: what its older metadata files say.
        only_older: plaintext files that only older metadata leads to.
        starts: how files begin, by location.
        wrong_ends: what is wrong with the ends of Parquet files, by location.
        written: when files were written: as the store says, else when the snapshot that added them was made.
        kek_lengths: bytes of each KEK, by its key-id; None where the key service does not open it.
    """

    name: str
    metadata: TableMetadata
    metadata_location: str
    manager: EncryptionManager | None
    reachable: Reachable
    unopened: frozenset[str]
    folder: Folder
    statistics: tuple[str, ...]
    journals: dict[str, str]
    orphans: tuple[StoredFile, ...]
    older: OlderMetadata
    only_older: tuple[str, ...]
    starts: dict[str, FileStart]
    wrong_ends: dict[str, str]
    written: dict[str, dt.datetime]
    kek_lengths: dict[str, int | None]

    @property
    def files(self) -> Iterable[ReachableFile]:
        """Every file that the table's snapshots lead to."""
        return self.reachable.files.values()

    def is_encrypted(self, file: ReachableFile) -> bool:
        """Whether a file has a key, and begins as one that is encrypted."""
        return file.key is not None and self.starts[file.location].signature == wanted_signature(file)


def observe(table: Table, counted: Counted) -> Observed:
    """Read what an audit looks at.

    Args:
        table: encrypted or plain.
        counted: hears of the files that were looked at.

    Raises:
        KmsError: the key service refused or failed.
    """
    metadata = table.metadata
    store = table.io.inner if isinstance(table.io, EncryptingFileIO) else table.io
    manager = table.io.manager if isinstance(table.io, TableFileIO) else None
    reachable, folder = reachable_files(metadata, table.io), list_folders(metadata, store)
    statistics = tuple(each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics))
    log = {entry.metadata_file for entry in metadata.metadata_log}
    unknown = folder.unknown({*reachable.files, *statistics, *log, table.metadata_location})
    journals = dict(_journals(unknown, store))
    orphans = tuple(file for file in unknown if not is_metadata_file(file) and file.location not in journals)
    older_locations = (log | {file.location for file in unknown if is_metadata_file(file)}) - {table.metadata_location}
    older = look_at_older(metadata, older_locations, store)
    only_older = tuple(_only_older(metadata, older, folder, {*reachable.files, *statistics}))
    wanted = [*reachable.files, *statistics, *(file.location for file in orphans), *only_older]
    starts = read_file_starts(store, wanted, counted)
    return Observed(
        name=".".join(table.name()),
        metadata=metadata,
        metadata_location=table.metadata_location,
        manager=manager,
        reachable=reachable,
        unopened=frozenset(each.location for each in reachable.unopened),
        folder=folder,
        statistics=statistics,
        journals=journals,
        orphans=orphans,
        older=older,
        only_older=only_older,
        starts=starts,
        wrong_ends=wrong_ends(store, _encrypted_parquet(reachable, starts)),
        written=dict(_times(metadata, reachable, folder)),
        kek_lengths=_kek_lengths(metadata, manager),
    )


def wanted_signature(file: ReachableFile) -> Signature:
    """Return how a file of the table should be encrypted."""
    is_parquet = not file.kind.is_metadata and file.file_format == FileFormat.PARQUET.value
    return Signature.PARQUET if is_parquet else Signature.AGS1


def _journals(files: Iterable[StoredFile], store: FileIO) -> Iterator[tuple[str, str]]:
    for file in files:
        if (operation := unfinished_operation(file, store)) is not None:
            yield file.location, operation


def _only_older(metadata: TableMetadata, older: OlderMetadata, folder: Folder, known: set[str]) -> Iterator[str]:
    """Plaintext files that only older metadata leads to. Other stores are left alone: anyone may have named them."""
    store = canonical(metadata.location)[:2]
    for location in older.plaintext_locations:
        if location not in known and folder.at(location) is None and canonical(location)[:2] == store:
            yield location


def _encrypted_parquet(reachable: Reachable, starts: dict[str, FileStart]) -> Iterator[tuple[str, StandardKeyMetadata]]:
    for file in reachable.files.values():
        if file.key is not None and starts[file.location].signature == wanted_signature(file) == Signature.PARQUET:
            yield file.location, file.key


def _times(metadata: TableMetadata, reachable: Reachable, folder: Folder) -> Iterator[tuple[str, dt.datetime]]:
    snapshots = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in metadata.snapshots}
    for file in reachable.files.values():
        stored = folder.at(file.location)
        if stored is not None and stored.modified is not None:
            yield file.location, stored.modified
        elif file.added_by in snapshots:
            yield file.location, _EPOCH + dt.timedelta(milliseconds=snapshots[file.added_by])


def _kek_lengths(metadata: TableMetadata, manager: EncryptionManager | None) -> dict[str, int | None]:
    if manager is None or not isinstance(metadata, EncryptedTableMetadata):
        return {}
    return {kek.key_id: _key_length(manager, kek) for kek in metadata.key_ring.keks}


def _key_length(manager: EncryptionManager, kek: EncryptedKey) -> int | None:
    """Return the length of a KEK: only opening it shows that."""
    try:
        return len(manager.kms.unwrap_key(kek.wrapped_bytes(), manager.table_key_id))
    except TablecryptError as error:
        if isinstance(error, KmsError) and not isinstance(error, KmsAccessDeniedError):
            raise
        return None
