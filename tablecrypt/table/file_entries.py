"""Data and delete files as bytes, keys included, for the inside of an encrypted message.

    entries = number of entries | entry | entry | ...
    entry   = partition spec id | manifest_entry record
    tasks   = entries, each data file followed by its delete files | part of each data file
    part    = first stored byte | byte after the last; 0 | 0 for the whole file

Numbers are Avro longs (zigzag varints), records are Avro binary without a header, in the schema that a version 3 manifest of that partition
spec has: what a table's manifests can hold, these bytes hold. Nothing in them is code, so a driver may open what an executor sent.

The bytes hold DEKs in the clear. Raises FormatError for bytes that are not such entries.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_writer, resolve_reader
from pyiceberg.avro.writer import Writer
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from tablecrypt.errors import FormatError
from tablecrypt.manifests.avro_container import bounded_decoder
from tablecrypt.manifests.records import (
    COUNTS,
    DATA_FILE_FIELD_ID,
    DATA_FILE_POSITIONS,
    ENTRY_READ_SCHEMA,
    FILE_CONTENT_FIELD_ID,
    FILE_FORMAT_FIELD_ID,
    FIRST_ROW_ID,
    ROOT_STRUCT,
    STATISTICS,
    STATUS_FIELD_ID,
    EncryptedDataFile,
    entry_write_schema,
)
from tablecrypt.table.planning import EncryptedFileScanTask, FilePart

_GREATEST_COUNT: Final = 2**63 - 1


class FileEntryCodec:
    """Encodes and decodes files of one table, of which this is the metadata."""

    def __init__(self, table_metadata: TableMetadata) -> None:
        self.table_metadata = table_metadata
        self._schema = table_metadata.schema()
        self._specs = table_metadata.specs()
        self._writers: dict[int, Writer] = {}
        self._readers: dict[int, Reader] = {}

    def encode_tasks(self, tasks: Iterable[EncryptedFileScanTask]) -> bytes:
        """Encode scan tasks. Statistics, which reading needs no more, are left out."""
        listed = list(tasks)
        buffer = io.BytesIO()
        encoder = BinaryEncoder(buffer)
        self._encode(encoder, (entry for task in listed for entry in _entries_of(task)))
        for task in listed:
            encoder.write_int(task.part.start if task.part is not None else 0)
            encoder.write_int(task.part.end if task.part is not None else 0)
        return buffer.getvalue()

    def decode_tasks(self, content: bytes) -> list[EncryptedFileScanTask]:
        """Decode scan tasks."""
        with _decoding(content) as decoder:
            tasks = _tasks_of(self._decode(decoder, len(content)))
            for task in tasks:
                start, end = decoder.read_int(), decoder.read_int()
                task.part = FilePart(start, end) if end else None
        return tasks

    def encode_files(self, files: Iterable[DataFile]) -> bytes:
        """Encode data files that were written, statistics included."""
        buffer = io.BytesIO()
        self._encode(BinaryEncoder(buffer), (_entry(EncryptedDataFile.of(file), file.spec_id, None) for file in files))
        return buffer.getvalue()

    def decode_files(self, content: bytes) -> list[DataFile]:
        """Decode data files that were written, whose rows get their ids when the table takes the files."""
        with _decoding(content) as decoder:
            files = [entry.data_file for entry in self._decode(decoder, len(content))]

        for file in files:
            check_counts(file)
            # An engine's worker says it, and may name the ids of other rows.
            file[FIRST_ROW_ID] = None
        return files

    def _encode(self, encoder: BinaryEncoder, entries: Iterable[ManifestEntry]) -> None:
        listed = list(entries)
        encoder.write_int(len(listed))
        for entry in listed:
            encoder.write_int(entry.data_file.spec_id)
            self._writer(entry.data_file.spec_id).write(encoder, entry)

    def _decode(self, decoder: BinaryDecoder, length: int) -> list[ManifestEntry]:
        entries: list[ManifestEntry] = []
        for _ in range(decoder.read_int()):
            spec_id = decoder.read_int()
            entry = self._reader(spec_id).read(decoder)
            entry.data_file.spec_id = spec_id
            entries.append(entry)
            # A wrong count must not go on making entries from the zeros behind the bytes.
            if decoder.tell() > length:
                break

        return entries

    def _writer(self, spec_id: int) -> Writer:
        if spec_id not in self._writers:
            self._writers[spec_id] = construct_writer(self._entry_schema(spec_id))
        return self._writers[spec_id]

    def _reader(self, spec_id: int) -> Reader:
        if spec_id not in self._readers:
            self._readers[spec_id] = resolve_reader(
                self._entry_schema(spec_id),
                ENTRY_READ_SCHEMA,
                {ROOT_STRUCT: ManifestEntry, DATA_FILE_FIELD_ID: EncryptedDataFile},
                {STATUS_FIELD_ID: ManifestEntryStatus, FILE_FORMAT_FIELD_ID: FileFormat, FILE_CONTENT_FIELD_ID: DataFileContent},
            )

        return self._readers[spec_id]

    def _entry_schema(self, spec_id: int) -> Schema:
        if spec_id not in self._specs:
            raise FormatError(f"the table has no partition spec {spec_id}")
        return entry_write_schema(self._specs[spec_id].partition_type(self._schema))


def check_counts(file: DataFile) -> None:
    """FormatError for a count that no manifest can hold: PyIceberg reads negative ones as numbers over 2^63 - 1."""
    for name in COUNTS:
        counts = file[DATA_FILE_POSITIONS[name]] or {}
        if any(not 0 <= count <= _GREATEST_COUNT for count in counts.values()):
            raise FormatError(f"{file.file_path}: is to be added with {name} that no file has")


@contextmanager
def _decoding(content: bytes) -> Iterator[BinaryDecoder]:
    """Give a decoder of all of the content: what is decoded ends where the content ends."""
    decoder = bounded_decoder(content)
    try:
        yield decoder
    except (ArithmeticError, AttributeError, EOFError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise FormatError(f"file entries cannot be decoded: {type(error).__name__}") from error

    if decoder.tell() != len(content):
        raise FormatError(f"{len(content)} bytes of file entries end at byte {decoder.tell()}")


def _tasks_of(entries: Iterable[ManifestEntry]) -> list[EncryptedFileScanTask]:
    tasks: list[EncryptedFileScanTask] = []
    for entry in entries:
        if entry.data_file.content == DataFileContent.DATA:
            tasks.append(EncryptedFileScanTask(entry.data_file, set(), data_sequence_number=entry.sequence_number))
        elif tasks:
            tasks[-1].delete_files.add(entry.data_file)
        else:
            raise FormatError("a scan task begins with a delete file")

    return tasks


def _entries_of(task: EncryptedFileScanTask) -> list[ManifestEntry]:
    deletes = [_entry(_without_statistics(file), file.spec_id, None) for file in task.delete_files]
    return [_entry(_without_statistics(task.file), task.file.spec_id, task.data_sequence_number), *deletes]


def _entry(file: EncryptedDataFile, spec_id: int, sequence_number: int | None) -> ManifestEntry:
    file.spec_id = spec_id
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED, snapshot_id=None, sequence_number=sequence_number, file_sequence_number=None, data_file=file
    )


def _without_statistics(file: DataFile) -> EncryptedDataFile:
    values = EncryptedDataFile.of(file).values()
    for name in STATISTICS:
        values[DATA_FILE_POSITIONS[name]] = None
    return EncryptedDataFile(*values)
