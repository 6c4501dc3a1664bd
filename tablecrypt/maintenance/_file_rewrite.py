"""New files in the place of a table's old ones: written one by one on a runner, noted in a journal, and committed in one snapshot.

    plan       which files, and where each new one goes: reencrypt and migrate say it
    files      each written again under a fresh DEK and AAD prefix, without decoding a value (`write_again`), or as an operation's own
               function does it
    journal    a run that was killed loses no file that is in it, and is continued with what is done
    commit     one snapshot of operation "replace" (see table/replace_files.py)

The journal lies beside the table:

    <location>/metadata/tablecrypt-<operation>/
        <part>.entries    AGS1 stream: length of the JSON, 8 bytes LE | JSON list of old locations | entries of the new files, in that order
        <part>.json       {"encryption-keys": [KEK, key of the stream], "key-id": …}, as metadata.json would hold them

Part after part is added and none is ever changed. The JSON of a part is written last: entries without it, or with half of it, are of a run
that was killed meanwhile, and count as not done. The new files' DEKs are in the stream, whose own key is wrapped under the table's KEK.

What a journal says is believed only as far as its key opens it under the KEK of the branch's head, and a caller checks that an old location
is (still) the table's. Any other KEK under the master key may be known to who writes storage: the one before a rotation, one of another
table, one of whoever may wrap. So a run that was killed begins again after the KEK was rotated, or where it is too old to wrap. A plain
table has no KEK, and nothing that others could not write. The files that the old and new locations name are never written again, so a part
that is brought back later says nothing that is not true. A part that does not open, for whatever reason, is not done, and a warning names
it: who writes storage must not stop the work by a file. Where the key service does not answer, KmsUnavailableError is raised; what it
refuses is a part that does not open.

`write_again` copies, of each format:

    Parquet    module by module (see parquet/writing.py), or value by value where its writer had dictionaries (parquet/dictionaries.py)
    Avro       AGS1 block by block; plaintext as it is, into an AGS1 stream

Raises TamperedFileError or FormatError, naming the old file, where it does not authenticate or is not of the format that its manifest says;
nothing is left of the new file then.

A compaction shares the commit: a group of its files becomes others (`done_files`), without a journal, and what no snapshot took is deleted.
A copy at another location shares the runner (see `run_counted`): the names of its files follow from those of the old ones, so the store
says what is done.
"""

from __future__ import annotations

import json
import logging
import secrets
import shutil
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.table.snapshots import Operation

from tablecrypt._bytes import ByteReader, frame
from tablecrypt._parsed_json import ParsedJson
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import AuthenticationError, FormatError, KmsUnavailableError, TablecryptError
from tablecrypt.files.deletion import DeletionScope
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, WrappedFileKey, read_wrapped, write_wrapped
from tablecrypt.files.raw_output import JOURNAL_ENTRIES, JOURNAL_FOLDER, JOURNAL_KEYS, RawContent, operation_of_journal
from tablecrypt.files.stores import stored_files
from tablecrypt.keys.column_keys import ProtectedColumn
from tablecrypt.keys.key_ring import EncryptedKey, KeyRing
from tablecrypt.maintenance._verify.files import FileToInspect, inspect_file
from tablecrypt.maintenance.operation import ProgressListener, metadata_folder
from tablecrypt.maintenance.reachable import EntryCounts
from tablecrypt.maintenance.runner import FileDone, FileFunction, FileWork, LocalRunner, Runner, passed, run_counted
from tablecrypt.manifests.records import DATA_FILE_POSITIONS, EncryptedDataFile, key_metadata_of, with_key
from tablecrypt.parquet.dictionaries import write_values
from tablecrypt.parquet.file_keys import FileKeys
from tablecrypt.parquet.footer import described
from tablecrypt.parquet.layout import encrypted_layout, plain_layout
from tablecrypt.parquet.protected.mapped_ids import number_columns
from tablecrypt.parquet.storage import open_sink, open_source
from tablecrypt.parquet.writing import rewrite
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.snapshots import EncryptedProducer
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import FreshKeys, ReportedFiles, RunNames, TableFileIO, deleting_on_error

logger = logging.getLogger(__name__)

_CHUNK_LENGTH: Final = 4 * 1024 * 1024
_FILES_PER_PART: Final = 32
_BYTES_PER_PART: Final = 256 * 1024 * 1024

W = TypeVar("W")
R = TypeVar("R")
P = TypeVar("P", bound=EncryptedProducer)
T = TypeVar("T")


class Journal:
    """The journal of one operation on one table.

    Args:
        io: the table's, with the manager that wraps the journal's keys.
        metadata: gives the table's location and the partition specs of its files.
        keys: the table's encryption keys.
        key_id: that of a snapshot: parts' keys are wrapped under its KEK, and believed under no other. None for a new KEK.
        operation: names the folder.
    """

    def __init__(self, io: TableFileIO, metadata: TableMetadata, keys: Iterable[EncryptedKey], key_id: str | None, operation: str) -> None:
        self._io = io
        self._codec = FileEntryCodec(metadata)
        self._keys = list(keys)
        self._key_id = key_id
        self._kek = None if key_id is None else KeyRing(self._keys).chain(key_id).kek
        self._folder = f"{metadata_folder(metadata)}/{JOURNAL_FOLDER}{operation}"

    def load(self) -> dict[str, EncryptedDataFile]:
        """Return what is done: for each old location the file that takes its place, if it is still stored."""
        done: dict[str, EncryptedDataFile] = {}
        for file in stored_files(self._io.inner, self._folder):
            if file.location.endswith(JOURNAL_KEYS):
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
        key = write_wrapped(self._io, self._io.manager, part + JOURNAL_ENTRIES, content, self._keys, self._key_id)
        self._keys, self._key_id = list(key.entries), key.key_id
        with self._io.raw_output(part + JOURNAL_KEYS, RawContent.JOURNAL_KEYS).create() as stored:
            stored.write(json.dumps(key.fields).encode())

    def remove(self) -> None:
        """Delete the journal: what it says is committed. A file of another name is not the journal's, and stays."""
        locations = [file.location for file in stored_files(self._io.inner, self._folder) if operation_of_journal(file.location)]
        # The keys go first: entries without them count as not done.
        for location in sorted(locations, key=lambda each: not each.endswith(JOURNAL_KEYS)):
            # Another run that finished the same work may have deleted it a moment ago.
            with suppress(FileNotFoundError):
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
            key = self._under_own_kek(_key_of_part(location, bytes(stored.read())))
        entries = location.removesuffix(JOURNAL_KEYS) + JOURNAL_ENTRIES
        plaintext = read_wrapped(self._io, self._io.manager, entries, key)

        try:
            reader = ByteReader(plaintext, entries)
            locations = json.loads(reader.frame())
            return list(zip(locations, self._codec.decode_files(reader.rest()), strict=True))
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{entries}: not the entries of a journal: {error}") from error

    def _under_own_kek(self, key: WrappedFileKey) -> WrappedFileKey:
        if self._kek is None:
            return key
        # Never the KEK that the part brings: whoever knows it could have a file of their own committed in the place of one of the table's.
        return replace(key, entries=(*(each for each in key.entries if each.is_manifest_list_key), self._kek))


def _key_of_part(location: str, content: bytes) -> WrappedFileKey:
    try:
        return WrappedFileKey.of(ParsedJson(content).document, location)
    except ValueError as error:
        raise FormatError(f"{location}: not the keys of a journal: {type(error).__name__}") from None


@dataclass(frozen=True)
class FileRewrite:
    """Files of one table that are written again.

    Attributes:
        table: the old and the new files are its.
        journal: keeps what is done.
        operation: names it for the listener.
        runner: writes the files.
        progress: listener for reports of how many bytes of old files are done.
        folders: where new files go; None: anywhere.
        names: of the new files. Workers get it with their work.
        done: for each old location the file that takes its place; at first what an earlier run had done, filled as the journal is.
    """

    table: EncryptedTable
    journal: Journal
    operation: str
    runner: Runner
    progress: ProgressListener
    folders: DeletionScope | None
    names: RunNames = field(default_factory=RunNames)
    done: dict[str, EncryptedDataFile] = field(default_factory=dict)

    def write(
        self,
        files: Mapping[str, DataFile],
        function: FileFunction[W, R],
        work_of: Callable[[DataFile], FileWork[W]],
        entry_of: Callable[[DataFile, FileDone[R]], EncryptedDataFile],
        phase: str = "",
    ) -> None:
        """Write what is missing in `done`.

        Args:
            files: the old files, by location.
            function: writes one new file.
            work_of: the function's work on one old file, with that file's length.
            entry_of: the new file, from the old one and what came of the work.
            phase: follows the operation's name, where it writes files of several kinds.

        Raises:
            AuthenticationError: a worker reports a file that it did not write, one twice, or one in another place; or that does not open.
        """
        if not files:
            return

        size_done = sum(file.file_size_in_bytes for location, file in files.items() if location in self.done)
        remaining = [file for location, file in files.items() if location not in self.done]
        works = [work_of(file) for file in remaining]

        reported = ReportedFiles(self.names, self.folders)

        def written() -> Generator[tuple[str, list[EncryptedDataFile]], None, None]:
            for index, each in run_counted(self.runner, self.table, function, works, f"{self.operation}{phase}", self.progress, size_done):
                old, new = remaining[index], entry_of(remaining[index], each)
                reported.check(new.file_path, f"the worker that writes {old.file_path} again")
                yield old.file_path, [new]

        with self.journal.keeping(self.done) as keep:
            # Noted in the journal, a file that is not what its worker says would be committed by this run or the next.
            for location, (new,) in opened(self.runner, self.table.io, written()):
                keep(location, new)


@dataclass(frozen=True)
class NewFileWork:
    """A file that is written again.

    Attributes:
        location: of the old file.
        file_format: "PARQUET" or "AVRO".
        folder, suffix: of the new file, and how its name ends.
        data_key_length: how many bytes the new DEK has.
        names: of the run's new files.
    """

    location: str
    file_format: str
    folder: str
    suffix: str
    data_key_length: int
    names: RunNames

    @classmethod
    def of(cls, file: DataFile, folder: str, data_key_length: int, names: RunNames) -> NewFileWork:
        """Return the work on one file, whose new name ends as its format's do."""
        return cls(file.file_path, file.file_format.value, folder, f".{file.file_format.value.lower()}", data_key_length, names)

    def new_location(self) -> str:
        """Return where a new file goes that no other has the name of: a cluster may run the work twice."""
        return f"{self.folder}/{self.names.new_uuid()}{self.suffix}"


def write_again(
    io: EncryptingFileIO, work: NewFileWork, old: StandardKeyMetadata | None, mapping: NameMapping | None = None
) -> FileDone[str]:
    """Write the new file and return its location and key metadata, which knows the file's length.

    Args:
        io: of the table's storage.
        work: which file.
        old: the key of the old file; None says that it is plaintext.
        mapping: gives the new file field ids where the old one, in Parquet, has none; None leaves it without.

    Raises:
        FormatError: the mapping has no field id for a column.
    """
    new = FreshKeys(work.data_key_length).new_key_metadata()
    location = work.new_location()
    copy_one = partial(_copy_parquet, mapping=mapping) if work.file_format == FileFormat.PARQUET.value else _copy_avro
    with deleting_on_error(io, [location]):
        return FileDone(location, (new.with_file_length(copy_one(io, work.location, old, location, new)),))


def _copy_parquet(
    io: EncryptingFileIO,
    source: str,
    old: StandardKeyMetadata | None,
    target: str,
    new: StandardKeyMetadata,
    mapping: NameMapping | None,
) -> int:
    file = io.plaintext_input(source) if old is None else io.raw_input(source)
    with file.open() as stored, io.raw_output(target, RawContent.SELF_ENCRYPTED).create() as out:
        with open_source(stored, source) as opened, open_sink(out) as sink:
            layout = plain_layout(opened) if old is None else encrypted_layout(opened, FileKeys.of_table_file(old))
            if mapping is not None:
                with described(source, "the schema in the footer"):
                    number_columns(layout, mapping.root)
            if not layout.notes_dictionaries:
                return rewrite(layout, sink, FileKeys.of_table_file(new), secrets.token_bytes)
        # Values of no row would stay in its pages, and go with its key to whoever gets rows of it.
        return write_values(stored, old, out, new, source, None if mapping is None else layout.metadata)


def _copy_avro(io: EncryptingFileIO, source: str, old: StandardKeyMetadata | None, target: str, new: StandardKeyMetadata) -> int:
    output = io.encrypting_output(target, new)
    file = io.plaintext_input(source) if old is None else io.decrypting_input(source, old)
    with file.open() as plaintext, output.create() as sink:
        shutil.copyfileobj(plaintext, sink, _CHUNK_LENGTH)
    return len(output)


def replacement_entry(file: DataFile, done: FileDone[str]) -> EncryptedDataFile:
    """Return the entry of a file that holds what another one holds, at another location and under another key, which knows its length."""
    key_metadata = done.key
    new = with_key(file, key_metadata)
    new[DATA_FILE_POSITIONS["file_path"]] = done.result
    new[DATA_FILE_POSITIONS["file_size_in_bytes"]] = key_metadata.file_length
    return new


def done_files(codec: FileEntryCodec, files: Sequence[DataFile]) -> FileDone[bytes]:
    """Return new files as a worker does that decides what is in them: their entries, and their keys apart."""
    return FileDone(codec.encode_files(with_key(file, None) for file in files), tuple(key_metadata_of(file) for file in files))


def new_files(codec: FileEntryCodec, done: FileDone[bytes]) -> list[EncryptedDataFile]:
    """Return the files that a worker has written so, with their keys."""
    files = codec.decode_files(done.result)
    if len(files) != len(done.keys):
        raise FormatError(f"a worker reports {len(files)} files and {len(done.keys)} keys of them")
    return [with_key(file, key) for file, key in zip(files, done.keys, strict=True)]


def opened(
    runner: Runner, io: EncryptingFileIO, results: Generator[tuple[T, Sequence[EncryptedDataFile]], None, None]
) -> Iterator[tuple[T, Sequence[EncryptedDataFile]]]:
    """Yield results with the files that workers report, each of which opens at its end by what they say of it.

    Under a wrong key or length, rows would be unreadable once the old files are replaced. What threads of this process write is not opened.

    Raises:
        AuthenticationError: a file does not open with the key that is said of it, or has another length or number of rows.
    """
    return results if isinstance(runner, LocalRunner) else passed(results, lambda each: _check_all_open(io, each[1]))


def check_open(io: EncryptingFileIO, files: Iterable[DataFile]) -> None:
    """Check files that workers report, as `opened` does. Raises as that does."""
    for _ in passed(([file] for file in files), partial(_check_all_open, io)):
        pass


def _check_all_open(io: EncryptingFileIO, files: Iterable[DataFile]) -> None:
    for file in files:
        if (problem := _problem_of_end(io, file)) is not None:
            raise AuthenticationError(f"{file.file_path}: is not what the worker that wrote it says of it, and is not committed: {problem}")


def _problem_of_end(io: EncryptingFileIO, file: DataFile) -> str | None:
    key, counts = key_metadata_of(file), EntryCounts(file.record_count, file.file_size_in_bytes)
    end = FileToInspect(file.file_path, file.file_format.value, is_content=True, full=False, entries=frozenset({counts}))
    try:
        for problem in inspect_file(io, end, (key,)).result.problems:
            return f"{problem.part}: {problem.message}"
        if file.file_format != FileFormat.PARQUET:
            # It has no footer under the key: its first block tells.
            with io.decrypting_input(file.file_path, key).open() as plaintext:
                plaintext.read(1)
    except TablecryptError as refused:
        return str(refused)
    return None


def commit_replacement(table: EncryptedTable, branch: str, producer_class: Callable[..., P], **changes: Any) -> P:
    """Commit one snapshot of operation "replace", and return what produced it.

    Args:
        table: it is brought up to date.
        branch: whose head the snapshot becomes.
        producer_class: produces the snapshot.
        changes: what it puts in place of what.

    Raises:
        ValidationException: others changed meanwhile what cannot be brought together with it.
        CommitFailedException: other writers committed first, several times in a row.
    """
    transaction = table.transaction()
    with transaction:
        producer = transaction.update_snapshot({}, branch).producer(producer_class, Operation.REPLACE, **changes)
        producer.commit()
    return producer


@dataclass(frozen=True)
class CarriedOverColumns:
    """The hidden columns stay as they are."""


@dataclass(frozen=True)
class FreshHiddenColumns:
    """New hidden_columns. Their DEKs, those of the old ones and the keys of hashes travel apart, in the order of these fields.

    Attributes:
        aad_prefix: of the new file, which the new hidden columns are bound to.
        old: field id and key metadata of each old hidden column.
        new: the same of each new one.
        columns: of the new ones, in their order.
        hashed: the field ids of those whose mask is a hash.
        schema: the table's.
        mapping: its name mapping, for an old file without field ids.
    """

    aad_prefix: bytes
    old: tuple[tuple[int, bytes], ...]
    new: tuple[tuple[int, bytes], ...]
    columns: tuple[ProtectedColumn, ...]
    hashed: tuple[int, ...]
    schema: Schema
    mapping: NameMapping


@dataclass(frozen=True)
class ReencryptWork:
    """A file to re-encrypt; `hidden_columns` is None for one that cannot have any."""

    file: NewFileWork
    hidden_columns: CarriedOverColumns | FreshHiddenColumns | None = None


@dataclass(frozen=True)
class NewFile:
    """Where a new file is, and at which byte each of its row groups begins; None where they are where they were."""

    location: str
    group_starts: tuple[int, ...] | None = None


class FilesToReencrypt:
    """The data files of a table for one re-encryption. This class is for a table that never had a protected column, and has nothing to ask.

    The order is: `conforms`; `refuse_masks` and `check_readable`, which refuse before anything is written; `open_all`; `rewrite_shown`;
    then `usable`, and `work` and `entry` of each file; `forget_former_protection` last, where every file conformed.
    """

    @property
    def shown(self) -> Collection[str]:
        """Where the data files are that show a protected column whatever is done to their columns (shown_files.py)."""
        return frozenset()

    @property
    def kept(self) -> int:
        """How many of the opened files keep their hidden columns as they are."""
        return 0

    def conforms(self, location: str) -> bool:
        """Whether a file's protected columns are as the properties declare, and its partition shows none of them."""
        return True

    def refuse_masks(self, files: Mapping[str, DataFile], sequence_numbers: Mapping[str, int | None]) -> None:
        """Refuse files in which masks would become values. Arguments and errors are those of `masks.refuse_masks`."""

    def check_readable(self, locations: Iterable[str]) -> None:
        """Check that this user may read all protected columns of files whose rows are to be read and written again.

        Raises:
            ColumnKeyDeniedError: this user may not use a column's key.
            KeyNotFoundError: a column was shredded, and the table has it still.
        """

    def open_all(self, files: Mapping[str, DataFile], sequence_numbers: Mapping[str, int | None]) -> None:
        """Open the hidden columns of files, and make sure that new ones can be made.

        Args:
            files: by location.
            sequence_numbers: data sequence numbers, by location.

        Raises:
            ColumnKeyDeniedError: a file does not conform, and this user may not use a key that changing it takes.
            KmsError: the KMS failed.
        """

    def rewrite_shown(self, data_key_length: int | None, progress: ProgressListener) -> int | None:
        """Write the files of `shown` again, commit, and return the branch's new head; None where there was nothing to do.

        Arguments and errors are those of `ShownFiles.rewrite`.
        """
        return None

    def usable(self, swaps: Mapping[str, EncryptedDataFile]) -> Collection[str]:
        """Return which old files can be replaced by what a run that was killed has written: its column keys may be gone with it."""
        return swaps.keys()

    def work(self, plain: FileWork[NewFileWork]) -> FileWork[ReencryptWork]:
        """Return the work of re-encrypting one file.

        Args:
            plain: the same without its protected columns.

        Raises:
            RuntimeError: the file has protected columns and was not opened: they would be written as if they were none.
        """
        return FileWork(ReencryptWork(plain.work), plain.keys, plain.size)

    def entry(self, file: DataFile, done: FileDone[NewFile]) -> EncryptedDataFile:
        """Return the new file's entry, which says nothing of protected columns."""
        return replacement_entry(file, FileDone(done.result.location, done.keys))

    def forget_former_protection(self) -> None:
        """Forget what no file needs of earlier protection. This refreshes the table, and with it what makes the column keys of new files.

        Raises:
            TamperedFileError, FormatError: a footer is not what was written.
            CommitFailedException: others committed first, several times in a row.
        """
