"""Taking dead keys out of the files beside a table's current metadata that hold them.

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
from typing import Any, Final, cast

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.serializers import Compressor
from pyiceberg.table.update import TableUpdate

from tablecrypt.errors import FormatError
from tablecrypt.files.raw_output import RawContent
from tablecrypt.keys.encrypted_key import EncryptedKey
from tablecrypt.maintenance.encrypted import encrypted_metadata_of, table_io
from tablecrypt.maintenance.key_commit import commit_keys
from tablecrypt.maintenance.older_metadata import OlderMetadata, older_metadata
from tablecrypt.maintenance.progress import Counted
from tablecrypt.maintenance.stored_files import canonical, delete_checksums, stored_files
from tablecrypt.table.encrypted_table import EncryptedTable
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.metadata_file import decompressed
from tablecrypt.table.table_file_io import TableFileIO
from tablecrypt.table.updates import ForgetMetadataFilesUpdate

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
