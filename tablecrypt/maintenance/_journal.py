"""A journal beside a table, which says what new files take the place of which old ones: a run that is killed loses none that are in it.

    <location>/metadata/tablecrypt-<operation>/
        <part>.entries    AGS1 stream: length of the JSON, 8 bytes LE | JSON list of old locations | entries of the new files, in that order
        <part>.json       {"encryption-keys": [KEK, key of the stream], "key-id": …}, as metadata.json would hold them

Part after part is added and none is ever changed. The JSON of a part is written last: entries without it, or with half of it, are of a run
that was killed meanwhile, and count as not done. The new files' DEKs are in the stream, whose own key is wrapped under the table's KEK.

What a journal says is believed only as far as its key opens it, and a caller checks that an old location is (still) the table's. The files
that the old and new locations name are never written again, so a part that is brought back later says nothing that is not true. A part that
does not open, for whatever reason, is not done, and a warning names it: who writes storage must not stop the work by a file.

Raises KmsUnavailableError where the key service does not answer; what it refuses is a part that does not open.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata

from tablecrypt._bytes import ByteReader, frame
from tablecrypt._parsed_json import ParsedJson
from tablecrypt.errors import FormatError, KmsUnavailableError, TablecryptError
from tablecrypt.files.deletion import is_journal_name
from tablecrypt.files.raw_output import RawContent
from tablecrypt.files.wrapped_files import WrappedFileKey, read_wrapped, write_wrapped
from tablecrypt.keys.key_ring import EncryptedKey
from tablecrypt.maintenance._storage import stored_files
from tablecrypt.maintenance._tables import metadata_folder
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.table_files import TableFileIO

logger = logging.getLogger(__name__)

_FILES_PER_PART: Final = 32
_BYTES_PER_PART: Final = 256 * 1024 * 1024
_ENTRIES_SUFFIX: Final = ".entries"
_KEYS_SUFFIX: Final = ".json"


class Journal:
    """The journal of one operation on one table.

    Args:
        io: the table's, with the manager that wraps the journal's keys.
        metadata: gives the table's location and the partition specs of its files.
        keys: the table's encryption keys.
        key_id: that of a snapshot: parts' keys are wrapped under its KEK. None for a new KEK.
        operation: names the folder.
    """

    def __init__(self, io: TableFileIO, metadata: TableMetadata, keys: Iterable[EncryptedKey], key_id: str | None, operation: str) -> None:
        self._io = io
        self._codec = FileEntryCodec(metadata)
        self._keys = list(keys)
        self._key_id = key_id
        self._folder = f"{metadata_folder(metadata)}/tablecrypt-{operation}"

    def load(self) -> dict[str, EncryptedDataFile]:
        """Return what is done: for each old location the file that takes its place, if it is still stored."""
        done: dict[str, EncryptedDataFile] = {}
        for file in stored_files(self._io.inner, self._folder):
            if file.location.endswith(_KEYS_SUFFIX):
                done.update((old, EncryptedDataFile.of(new)) for old, new in self._read(file.location) if self._is_stored(new))
        return done

    @contextmanager
    def keeping(self, done: dict[str, EncryptedDataFile]) -> Iterator[Callable[[str, EncryptedDataFile], None]]:
        """Give a function that takes in finished files: old location and new file. They are in `done` once they are in the journal.

        A part is written for every few files, and the last one at the end, however that comes.
        """
        part: dict[str, EncryptedDataFile] = {}

        def flush() -> None:
            self._add(part)
            done.update(part)
            part.clear()

        def keep(location: str, new: EncryptedDataFile) -> None:
            part[location] = new
            if len(part) >= _FILES_PER_PART or sum(file.file_size_in_bytes for file in part.values()) >= _BYTES_PER_PART:
                flush()

        try:
            yield keep
        finally:
            flush()

    def _add(self, finished: Mapping[str, EncryptedDataFile]) -> None:
        if not finished:
            return

        part = f"{self._folder}/{uuid.uuid4()}"
        content = frame(json.dumps(list(finished)).encode()) + self._codec.encode_files(finished.values())
        key = write_wrapped(self._io, self._io.manager, part + _ENTRIES_SUFFIX, content, self._keys, self._key_id)
        self._keys, self._key_id = list(key.entries), key.key_id
        with self._io.raw_output(part + _KEYS_SUFFIX, RawContent.JOURNAL_KEYS).create() as stored:
            stored.write(json.dumps(key.fields).encode())

    def remove(self) -> None:
        """Delete the journal: what it says is committed. A file of another name is not the journal's, and stays."""
        locations = [file.location for file in stored_files(self._io.inner, self._folder) if is_journal_name(file.location)]
        # The keys go first: entries without them count as not done.
        for location in sorted(locations, key=lambda each: not each.endswith(_KEYS_SUFFIX)):
            self._io.delete_new(location)

    def _is_stored(self, file: DataFile) -> bool:
        # A run that rests for days may find its files taken for orphans.
        stored = self._io.raw_input(file.file_path)
        return stored.exists() and len(stored) == file.file_size_in_bytes

    def _read(self, location: str) -> Iterable[tuple[str, DataFile]]:
        try:
            return self._opened(location)
        except KmsUnavailableError:
            # The part may be whole: its work need not be done again.
            raise
        except (TablecryptError, FileNotFoundError) as error:
            logger.warning("%s: a part of a journal that does not open: its work is done again: %s", location, error)
            return ()

    def _opened(self, location: str) -> list[tuple[str, DataFile]]:
        with self._io.raw_input(location).open() as stored:
            key = _key(location, bytes(stored.read()))
        entries = location.removesuffix(_KEYS_SUFFIX) + _ENTRIES_SUFFIX
        plaintext = read_wrapped(self._io, self._io.manager, entries, key)

        try:
            reader = ByteReader(plaintext, entries)
            locations = json.loads(reader.frame())
            return list(zip(locations, self._codec.decode_files(reader.rest()), strict=True))
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{entries}: not the entries of a journal: {error}") from error


def _key(location: str, content: bytes) -> WrappedFileKey:
    try:
        return WrappedFileKey.of(ParsedJson(content).document, location)
    except ValueError as error:
        raise FormatError(f"{location}: not the keys of a journal: {type(error).__name__}") from None
