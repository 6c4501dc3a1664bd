"""Taking retired KEKs out of the files beside a table's current metadata that hold them.

    older metadata.json         written over in place without them; live snapshots get the keys that the current metadata has for them.
                                Where the store refuses that, or half a file is all there is: deleted
    journals of operations      deleted, if their keys are wrapped under a retired KEK: their run starts from the beginning
    all else in the file        stays as it is, in spelling and order of JSON's fields too

A retired KEK is one that an older metadata file holds and the current one does not. A file without one is never touched: it may be that of
a commit on its way. What a run that was killed has written over by half is deleted by the next one; the metadata-log says that it was the
table's.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.serializers import Compressor
from pyiceberg.table.update import TableUpdate

from tablecrypt.errors import FormatError
from tablecrypt.files.deletion import DeletionScope, place_of
from tablecrypt.files.raw_output import ENCRYPTION_KEYS, JOURNAL_FOLDER, JOURNAL_KEYS, TABLE_METADATA_SUFFIXES, RawContent
from tablecrypt.files.stores import stored_files
from tablecrypt.keys.key_ring import EncryptedKey, is_copy
from tablecrypt.maintenance._key_commit import commit_keys
from tablecrypt.maintenance._shred_find import OlderFiles, kek_ids
from tablecrypt.maintenance._storage import delete_checksums
from tablecrypt.maintenance.operation import Counted, metadata_folder
from tablecrypt.printable import counted
from tablecrypt.table.metadata import EncryptedTableMetadata, decompressed, read_named_metadata_file
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import TableFileIO, name_of
from tablecrypt.table.updates import RemoveMetadataLogEntriesUpdate

logger = logging.getLogger(__name__)

_PROPERTIES: Final = "properties"
# A log may name any file, such as one with rows, which must not go as half of a metadata file.
NOT_NAMED_SO: Final = "is in the metadata-log, and not named as a metadata file is"
"""Why a file is not deleted that metadata calls older metadata."""
OF_ANOTHER: Final = "is in the metadata-log, and says that it is another table's"
"""Why a file is neither written over nor deleted: the table's own may be elsewhere, or come back, with its keys."""
DRY_RUN: Final = "this was a dry run: nothing was destroyed"
"""Why a shredding is not complete that was none."""


@dataclass(frozen=True)
class Holder:
    """A file that holds a retired KEK, or half of a file that the table once had; whether it can be written over without the KEK.

    `is_of_another`: another table's metadata is in the place of what the table once had.
    """

    location: str
    is_readable: bool
    is_of_another: bool = False

    def reason_against(self, scope: DeletionScope) -> str | None:
        """Return why the file may not be written over or, where that is what becomes of it, deleted; None where it may."""
        if not self.location.endswith((*TABLE_METADATA_SUFFIXES, JOURNAL_KEYS)):
            return NOT_NAMED_SO
        if self.is_of_another:
            return OF_ANOTHER
        return scope.reason_against_writing_over(self.location) if self.is_readable else scope.reason_against(self.location)


def holders(table: EncryptedTable, older: OlderFiles, retired: Collection[str]) -> Iterator[Holder]:
    """Yield each file beside the current metadata that is to be written over or deleted.

    Args:
        table: as the catalog has it now.
        older: what its older metadata files hold.
        retired: key-ids of the KEKs that no file is to hold.
    """
    io = table.io
    # Half of a commit that failed may hold the keys of snapshots that are gone, under a KEK that never came into the table.
    kept = {snapshot.key_id for snapshot in table.metadata.snapshots}
    keys = {each.key_id for each in older.snapshots.values() if each.key_id is not None} - kept
    for location, unread in older.unread.items():
        # What cannot be parsed is searched for the ids as text.
        if (unread.is_logged and unread.problem) or _names_any(content_of(io, location), {*retired, *keys}):
            yield Holder(location, is_readable=False, is_of_another=unread.is_of_another)

    for stored in stored_files(io.inner, metadata_folder(table.metadata)):
        is_journal = f"/{JOURNAL_FOLDER}" in stored.location and stored.location.endswith(JOURNAL_KEYS)
        if is_journal and _names_any(_stored(io, stored.location), retired):
            yield Holder(stored.location, is_readable=False)

    # Last: of a run that was killed before the end, they tell the next one which KEKs are retired.
    for location, keks in older.keks.items():
        if location != table.metadata_location and not keks.isdisjoint(retired):
            yield Holder(location, is_readable=True)


@dataclass
class Scrubbed:
    """What became of the files that held retired KEKs, by location.

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

    def then(self, later: Scrubbed) -> Scrubbed:
        """Return what became of the files after a later round."""
        return Scrubbed(
            rewritten=list(dict.fromkeys((*self.rewritten, *later.rewritten))),
            deleted=[*self.deleted, *later.deleted],
            # What one round could not touch, a later one may have: only the failures of the last round count.
            left=later.left,
            refused={**self.refused, **later.refused},
        )


def foretold(table: EncryptedTable, older: OlderFiles, retired: frozenset[str], delete_below: Sequence[str]) -> Scrubbed:
    """Return what is known beforehand of what a run would do to the files that hold retired KEKs."""
    # Not `deleting_io`, which raises where nothing may be touched: a dry run reports what would be refused.
    scope, expected = table.io.deletable.and_below(delete_below), Scrubbed()
    for file in holders(table, older, retired):
        if (reason := file.reason_against(scope)) is not None:
            expected.refused[file.location] = reason
        else:
            expected.rewritten.append(file.location)
    return expected


def not_scrubbed(left: Collection[str], refused: Mapping[str, str]) -> Iterator[str]:
    """Yield sentences on files that still hold, or may hold, keys which were to go, by their locations; of `refused` with the reason."""
    if left:
        yield f"{counted(len(left), 'file still holds', 'files still hold')} destroyed keys: the store let nobody rewrite or delete them"

    in_the_log = sum(reason == OF_ANOTHER for reason in refused.values())
    if in_the_log < len(refused):
        files = counted(len(refused) - in_the_log, "file that may hold destroyed keys was", "files that may hold destroyed keys were")
        yield f"{files} not touched, because nothing says that they are the table's: name their folder with delete_below (--delete-below)"
    if in_the_log:
        files = counted(in_the_log, "file of the metadata-log says", "files of the metadata-log say")
        yield f"{files} to be another table's: put the table's own back, which may hold destroyed keys, or delete what is there"


def scrub(table: EncryptedTable, older: OlderFiles, retired: frozenset[str], io: TableFileIO, counted: Counted) -> Scrubbed:
    """Take retired KEKs, and the keys that they wrap, out of every file beside the current metadata.

    Args:
        table: as the catalog has it now, after the KEKs left it.
        older: what its older metadata files hold.
        retired: key-ids of the KEKs that are to go. One that the current metadata holds again stays.
        io: the table's, which writes over and deletes what lies below its folders, and nothing else.
        counted: listener for reports of the files.
    """
    current, done = table.metadata, Scrubbed()
    for file in counted.track(list(holders(table, older, retired - kek_ids(current)))):
        if (reason := file.reason_against(io.deletable)) is not None:
            done.refused[file.location] = reason
        elif not file.is_readable:
            _delete(io, file.location, done)
        else:
            _rewrite_or_delete(current, io, file.location, done)

    return done


def after_scrub(older: OlderFiles, done: Scrubbed, current: EncryptedTableMetadata) -> OlderFiles:
    """Return what the files hold after a scrub: those that were written over, at most the KEKs of the current metadata."""
    gone, rewritten, present = set(done.deleted), set(done.rewritten), kek_ids(current)
    keks = {location: keks & present if location in rewritten else keks for location, keks in older.keks.items() if location not in gone}
    return replace(older, keks=keks, unread={location: each for location, each in older.unread.items() if location not in gone})


def forget_in_log(table: EncryptedTable, locations: Collection[str]) -> None:
    """Take deleted metadata files out of the metadata-log, where the catalog writes the metadata in this process: a server has its own.

    A store that takes no more, such as a full disk, leaves the log as it is, and a warning says so.
    """
    if isinstance(table.catalog, RestCatalog):
        return
    gone = {place_of(location) for location in locations}
    try:
        commit_keys(table, lambda base: _Forgotten.of(base, gone))
    except OSError as error:
        # Readers pass over files of the log that are gone. What was destroyed for good must not go unsaid because of it.
        logger.warning("the metadata-log of %s still names files that are gone: %s", name_of(table), error)


@dataclass(frozen=True)
class _Forgotten:
    """The plan of a commit that takes files out of the log."""

    updates: tuple[TableUpdate, ...]

    @classmethod
    def of(cls, table: EncryptedTable, gone: Collection[tuple[str, str, str]]) -> _Forgotten:
        logged = [entry.metadata_file for entry in table.metadata.metadata_log if place_of(entry.metadata_file) in gone]
        return cls((cast("TableUpdate", RemoveMetadataLogEntriesUpdate(metadata_files=logged)),) if logged else ())


def _rewrite_or_delete(current: EncryptedTableMetadata, io: TableFileIO, location: str, done: Scrubbed) -> None:
    try:
        content = read_named_metadata_file(io.inner, location, io.own_folders).content
    except FileNotFoundError:
        done.deleted.append(location)
        return
    except FormatError as error:
        # What cannot be read cannot be written over without its keys.
        _delete(io, location, done, because=error)
        return

    try:
        _rewrite(current, io, location, content)
    except Exception as error:  # noqa: BLE001  every store has errors of its own: what cannot be written over is deleted
        _delete(io, location, done, because=error)
    else:
        done.rewritten.append(location)


def _rewrite(current: EncryptedTableMetadata, io: TableFileIO, location: str, content: bytes) -> None:
    document: dict[str, Any] = json.loads(content)
    kept = _kept_entries(current, document)
    document[ENCRYPTION_KEYS] = [key.model_dump() for key in kept]
    if not kept:
        del document[ENCRYPTION_KEYS]
    # The entries stay or go as above; a copy of one that goes would open what it opened.
    document[_PROPERTIES] = {name: value for name, value in document.get(_PROPERTIES, {}).items() if not is_copy(name)}
    written = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    # In place, under the same name: the log names the file, and readers of that version still find the live snapshots.
    with io.raw_output(location, RawContent.METADATA_JSON).create(overwrite=True) as stream:
        # The name says how the bytes are compressed, and readers go by it.
        stream.write(Compressor.get_compressor(location).bytes_compressor()(written))
    delete_checksums(io, location)


def _kept_entries(current: EncryptedTableMetadata, document: dict[str, Any]) -> list[EncryptedKey]:
    """Return what an older metadata file may hold: the current entries that its snapshots need."""
    # The current entries and not the file's own: those are wrapped by KEKs that are gone.
    needed = current.key_ring.needed_by(snapshot["key-id"] for snapshot in document.get("snapshots", ()) if snapshot.get("key-id"))
    return [key for key in current.key_ring.entries if key.key_id in needed]


def _delete(io: TableFileIO, location: str, done: Scrubbed, because: Exception | None = None) -> None:
    try:
        io.delete(location)
        delete_checksums(io, location)
    except FileNotFoundError:
        done.deleted.append(location)
    except Exception as error:  # noqa: BLE001  as above; the result tells of it
        # The first failure is the one to mend: it kept the file from being rewritten.
        problem = because or error
        done.left[location] = f"{type(problem).__name__}: {problem}"
    else:
        done.deleted.append(location)


def _stored(io: TableFileIO, location: str) -> bytes:
    """Return a file's bytes; none where it is gone."""
    try:
        with io.raw_input(location).open() as stream:
            return bytes(stream.read())
    except FileNotFoundError:
        return b""


def content_of(io: TableFileIO, location: str) -> bytes:
    """Return what can be read of a metadata file's broken JSON; nothing where the file is gone."""
    stored = _stored(io, location)
    try:
        return decompressed(location, stored, may_be_cut=True)
    except FormatError:
        # No gzip in spite of the name, so the bytes may name a key as they are.
        return stored


def _names_any(content: bytes, key_ids: Collection[str]) -> bool:
    """Whether bytes that cannot be parsed name one of the keys. JSON may escape the slashes of base64."""
    plain = content.replace(b"\\/", b"/")
    return any(key_id.encode() in plain for key_id in key_ids)
