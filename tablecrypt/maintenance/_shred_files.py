"""The files that a shredding is about: data files that go out of reach, and files beside the current metadata that hold dead keys.

    entry of a doomed snapshot's manifests                                                          file is
        also a live entry of a live snapshot's                                                      live: shared, and stays
        else a deleted entry of a live snapshot's, which keeps the file's DEK as every entry does    still opened by that snapshot
        else                                                                                        shredded

Snapshots whose keys are gone already cannot be looked into: what they alone held is shredded, and its names are not known.

Files that hold dead keys:

    older metadata.json      written over in place without them; live snapshots get the keys that the current metadata has for them.
                             Where the store refuses that, or half a file is all there is: deleted
    journals of other verbs  deleted, if sealed under a dead KEK: their run starts anew
    all else in the file     stays as it is, in spelling and order of JSON's fields too

A dead KEK is one that an older metadata file holds and the current one does not. A file without one is never touched: it may be that of a
commit on its way. What a run that was killed has written over by half is deleted by the next one; the metadata-log says that it was the
table's.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, cast

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.serializers import Compressor
from pyiceberg.table.update import TableUpdate
from pyiceberg.utils.concurrent import ExecutorFactory

from tablecrypt.errors import AuthenticationError, FormatError, KeyIdChangedError, KeyNotFoundError, KmsError, PlaintextRefusedError
from tablecrypt.files.raw_output import RawContent
from tablecrypt.keys.encrypted_key import EncryptedKey
from tablecrypt.maintenance._key_commit import commit_keys
from tablecrypt.maintenance._storage import OlderMetadata, canonical, delete_checksums, older_metadata, stored_files
from tablecrypt.maintenance._tables import encrypted_metadata_of, table_io
from tablecrypt.maintenance.progress import Counted
from tablecrypt.manifests.manifest_file import EncryptedManifestFile
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata
from tablecrypt.table.metadata_file import decompressed
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import TableFileIO
from tablecrypt.table.updates import ForgetMetadataFilesUpdate

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


_KEYS: Final = "encryption-keys"
_JOURNAL_FOLDER: Final = "/tablecrypt-"


@dataclass
class Scrubbed:
    """What became of the files that held dead keys, by location.

    Attributes:
        rewritten: files that are there without them.
        deleted: files that are gone.
        left: files that could be neither rewritten nor deleted, with what the store said.
        refused: files that were not touched because they need not be the table's, with the reason.
    """

    rewritten: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def dead_keks(current: EncryptedTableMetadata, older: Collection[OlderMetadata]) -> set[str]:
    """Return the ids of the KEKs that older metadata files hold and the current metadata does not."""
    known = {kek.key_id for file in older if file.metadata is not None for kek in file.metadata.key_ring.keks}
    return known - {kek.key_id for kek in current.key_ring.keks}


def holders(table: EncryptedTable, dead: Collection[str]) -> Iterator[OlderMetadata]:
    """Yield each file beside the current metadata that holds one of these KEKs, or half of a file that the table once had."""
    for file in older_metadata(table):
        if file.metadata is not None:
            if any(kek.key_id in dead for kek in file.metadata.key_ring.keks):
                yield file
        elif (file.is_logged and file.problem) or _names_any(_content(table, file), dead):
            yield file
    inner = table_io(table).inner
    for stored in stored_files(inner, f"{table.location().rstrip('/')}/metadata"):
        if _JOURNAL_FOLDER not in stored.location or not stored.location.endswith(".json"):
            continue
        with inner.new_input(stored.location).open() as stream:
            if _names_any(bytes(stream.read()), dead):
                yield OlderMetadata(stored.location, problem="a journal")


def scrub(table: EncryptedTable, dead: Collection[str], io: TableFileIO, counted: Counted) -> Scrubbed:
    """Take dead KEKs, and the keys that they wrap, out of every file beside the current metadata.

    Args:
        table: as the catalog has it now, after the dead KEKs left it.
        dead: ids of KEKs that are in no current metadata.
        io: the table's, which writes over and deletes what lies below its folders, and nothing else.
        counted: tells of the files.
    """
    done = Scrubbed()
    for file in counted.over(list(holders(table, dead))):
        if (reason := io.deletable.reason_against(file.location)) is not None:
            done.refused[file.location] = reason
            continue
        if file.metadata is None or file.file is None:
            _delete(io, file.location, done)
            continue
        try:
            _rewrite(table, io, file)
        except Exception as error:  # noqa: BLE001  every store has errors of its own: what cannot be written over is deleted
            _delete(io, file.location, done, because=error)
        else:
            done.rewritten.append(file.location)
    return done


def forget_in_log(table: EncryptedTable, locations: Collection[str]) -> None:
    """Take deleted metadata files out of the metadata-log, where the catalog writes the metadata in this process: a server has its own."""
    if isinstance(table.catalog, RestCatalog):
        return
    gone = {canonical(location) for location in locations}
    commit_keys(table, lambda fresh: _Forgotten(fresh, gone))


class _Forgotten:
    """The plan of a commit that takes files out of the log."""

    def __init__(self, table: EncryptedTable, gone: Collection[tuple[str, str, str]]) -> None:
        logged = [entry.metadata_file for entry in table.metadata.metadata_log if canonical(entry.metadata_file) in gone]
        self.updates: tuple[TableUpdate, ...] = (cast("TableUpdate", ForgetMetadataFilesUpdate(metadata_files=logged)),) if logged else ()


def _rewrite(table: EncryptedTable, io: TableFileIO, file: OlderMetadata) -> None:
    assert file.file is not None
    assert file.metadata is not None
    document: dict[str, Any] = json.loads(file.file.content)
    kept = _kept_entries(encrypted_metadata_of(table), file.metadata)
    document[_KEYS] = [key.model_dump(mode="json", by_alias=True, exclude_none=True) for key in kept]
    if not kept:
        del document[_KEYS]
    content = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    with io.raw_output(file.location, RawContent.METADATA_JSON).create(overwrite=True) as stream:
        stream.write(Compressor.get_compressor(file.location).bytes_compressor()(content))
    delete_checksums(io, file.location)


def _kept_entries(current: EncryptedTableMetadata, older: EncryptedTableMetadata) -> list[EncryptedKey]:
    """Return what an older metadata file may hold: the current entries that its snapshots need."""
    needed = current.key_ring.needed_by(snapshot.key_id for snapshot in older.snapshots if snapshot.key_id is not None)
    return [key for key in current.encryption_keys if key.key_id in needed]


def _delete(io: TableFileIO, location: str, done: Scrubbed, because: Exception | None = None) -> None:
    try:
        io.delete(location)
        delete_checksums(io, location)
    except FileNotFoundError:
        done.deleted.append(location)
    except Exception as error:  # noqa: BLE001  as above; the result tells of it
        problem = because or error
        done.left[location] = f"{type(problem).__name__}: {problem}"
    else:
        done.deleted.append(location)


def _content(table: EncryptedTable, file: OlderMetadata) -> bytes:
    """Return the JSON of a file that cannot be parsed, as far as it goes."""
    if file.file is not None:
        return file.file.content
    with table_io(table).raw_input(file.location).open() as stream:
        stored = bytes(stream.read())
    try:
        return decompressed(file.location, stored, may_be_cut=True)
    except FormatError:
        return stored


def _names_any(content: bytes, key_ids: Collection[str]) -> bool:
    """Whether bytes that cannot be parsed name one of the keys. JSON may escape the slashes of base64."""
    plain = content.replace(b"\\/", b"/")
    return any(key_id.encode() in plain for key_id in key_ids)
