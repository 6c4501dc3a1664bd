"""New files in the place of a table's old ones: written one by one on a runner, noted in a journal, and committed in one snapshot.

    plan       which files, and where each new one goes: reencrypt and migrate say it
    files      each written again under a fresh DEK and AAD prefix, without decoding a value (`write_again`), or as an operation's own
               function does it
    journal    a run that was killed is continued with what is done (see _journal.py)
    commit     one snapshot of operation "replace" (see table/replace_files.py)

`write_again` copies, of each format:

    Parquet    module by module (see parquet/writing.py)
    Avro       AGS1 block by block; plaintext as it is, into an AGS1 stream

Raises TamperedFileError or FormatError, naming the old file, where it does not authenticate or is not of the format that its manifest says;
nothing is left of the new file then.

A compaction shares the commit: a group of its files becomes others (`done_files`), without a journal, and what no snapshot took is deleted.
A copy at another location shares the runner (see `run_counted`): the names of its files follow from those of the old ones, so the store
says what is done.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table.snapshots import Operation

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.files.raw_output import RawContent
from tablecrypt.maintenance._journal import Journal
from tablecrypt.maintenance.progress import ProgressListener
from tablecrypt.maintenance.runner import FileDone, FileFunction, FileWork, Runner, run_counted
from tablecrypt.manifests.records import DATA_FILE_POSITIONS, EncryptedDataFile
from tablecrypt.parquet.file_keys import FileKeys
from tablecrypt.parquet.writing import encrypt, reencrypt
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.snapshots import EncryptedProducer
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import FreshKeys, deleting_on_error, key_metadata_of, with_key

_CHUNK_LENGTH: Final = 4 * 1024 * 1024

W = TypeVar("W")
R = TypeVar("R")
P = TypeVar("P", bound=EncryptedProducer)


@dataclass(frozen=True)
class FileRewrite:
    """Files of one table that are written again.

    Attributes:
        table: the old and the new files are its.
        journal: keeps what is done.
        operation: names it for the listener.
        runner: writes the files.
        progress: listener for reports of how many bytes of old files are done.
        done: for each old location the file that takes its place; at first what an earlier run had done, filled as the journal is.
    """

    table: EncryptedTable
    journal: Journal
    operation: str
    runner: Runner
    progress: ProgressListener
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
        """
        if not files:
            return

        size_done = sum(file.file_size_in_bytes for location, file in files.items() if location in self.done)
        remaining = [file for location, file in files.items() if location not in self.done]
        works = [work_of(file) for file in remaining]

        with self.journal.keeping(self.done) as keep:
            for index, each in run_counted(self.runner, self.table, function, works, f"{self.operation}{phase}", self.progress, size_done):
                keep(remaining[index].file_path, entry_of(remaining[index], each))


@dataclass(frozen=True)
class NewFileWork:
    """A file that is written again.

    Attributes:
        location: of the old file.
        file_format: "PARQUET" or "AVRO".
        folder, suffix: of the new file, and how its name ends.
        data_key_length: how many bytes the new DEK has.
    """

    location: str
    file_format: str
    folder: str
    suffix: str
    data_key_length: int

    @classmethod
    def of(cls, file: DataFile, folder: str, data_key_length: int) -> NewFileWork:
        """Return the work on one file, whose new name ends as its format's do."""
        return cls(file.file_path, file.file_format.value, folder, f".{file.file_format.value.lower()}", data_key_length)

    def new_location(self) -> str:
        """Return where a new file goes that no other has the name of: a cluster may run the work twice."""
        return f"{self.folder}/{uuid.uuid4()}{self.suffix}"


def write_again(io: EncryptingFileIO, work: NewFileWork, old: StandardKeyMetadata | None) -> FileDone[str]:
    """Write the new file and return its location and key metadata, which knows the file's length.

    Args:
        io: of the table's storage.
        work: which file.
        old: the key of the old file; None says that it is plaintext.
    """
    new = FreshKeys(work.data_key_length).new_key_metadata()
    location = work.new_location()
    copy_one = _copy_parquet if work.file_format == FileFormat.PARQUET.value else _copy_avro
    with deleting_on_error(io, [location]):
        return FileDone(location, (new.with_file_length(copy_one(io, work.location, old, location, new)),))


def _copy_parquet(io: EncryptingFileIO, source: str, old: StandardKeyMetadata | None, target: str, new: StandardKeyMetadata) -> int:
    keys = FileKeys.of_table_file(new)
    file = io.plaintext_input(source) if old is None else io.raw_input(source)
    with file.open() as stored, io.raw_output(target, RawContent.SELF_ENCRYPTED).create() as sink:
        if old is None:
            return encrypt(stored, sink, keys, location=source)
        return reencrypt(stored, sink, FileKeys.of_table_file(old), keys, location=source)


def _copy_avro(io: EncryptingFileIO, source: str, old: StandardKeyMetadata | None, target: str, new: StandardKeyMetadata) -> int:
    output = io.encrypting_output(target, new)
    file = io.plaintext_input(source) if old is None else io.decrypting_input(source, old)
    with file.open() as plaintext, output.create() as sink:
        shutil.copyfileobj(plaintext, sink, _CHUNK_LENGTH)
    return len(output)


def replacement_entry(file: DataFile, done: FileDone[str]) -> EncryptedDataFile:
    """Return the entry of a file that holds what another one holds, at another location and under another key, which knows its length."""
    (key_metadata,) = done.keys
    new = with_key(file, key_metadata)
    new[DATA_FILE_POSITIONS["file_path"]] = done.result
    new[DATA_FILE_POSITIONS["file_size_in_bytes"]] = key_metadata.file_length
    return new


def done_files(codec: FileEntryCodec, files: Sequence[DataFile]) -> FileDone[bytes]:
    """Return new files as a worker does that decides what is in them: their entries, and their keys apart."""
    return FileDone(codec.encode_files(with_key(file, None) for file in files), tuple(key_metadata_of(file) for file in files))


def new_files(codec: FileEntryCodec, done: FileDone[bytes]) -> list[EncryptedDataFile]:
    """Return the files that a worker has written so, with their keys."""
    return [with_key(file, key) for file, key in zip(codec.decode_files(done.result), done.keys, strict=True)]


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
