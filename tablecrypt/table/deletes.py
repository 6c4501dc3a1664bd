"""Deletes: deletion vectors, position delete files and equality delete files, read once each for a scan's tasks; and new vectors.

A position or equality delete file may apply to many data files; the first task that needs it reads it, the others wait for that. What a
position delete file says is kept per data file.

An equality delete takes a row that has, in its equality columns, the values of some row of the delete file; null equals null. The
comparison is done on whole columns: each value gets the number of the equal value among the deletes (or null), the numbers of several
columns are combined into one, and rows whose combination occurs among the deletes go.

Deletion vectors are the bitmaps of data files' deleted positions, in a Puffin file that is encrypted as a whole (AGS1):

    plaintext = "PFA1" | blob 0 | blob 1 | … | footer
    blob      = length of magic and bitmap, 4 bytes BE | magic D1 D3 39 64 | bitmap | CRC-32 of magic and bitmap, 4 bytes BE
    bitmap    = number of parts, 8 bytes LE | for each: high 32 bits of its positions, 4 bytes LE | low 32 bits, a portable Roaring bitmap
    footer    = "PFA1" | JSON | length of the JSON, 4 bytes LE | flags, 4 bytes of zero | "PFA1"

The JSON names each blob's type, offset and length, the data file it is about and how many positions it holds. One Puffin file holds the
vectors of one change. Every entry of the delete manifest has the Puffin file's own DEK, and content_offset and content_size_in_bytes of its
blob in the plaintext, so that a reader fetches and decrypts only the AGS1 blocks which hold that blob.

A data file has at most one deletion vector. Two of them would be against the specification, and a vector that lacks what an earlier one
said brings rows back. So a delete hands over the rows that go now; those that went before are read here (`write_row_delta`), and
each attempt to commit compares the vectors that the table has then with those that were read (`RowDelta.check_base`).

Raises TamperedFileError, PlaintextRefusedError or FormatError, naming the delete file. There is no way to skip one: rows that should be
gone would come back. Equality columns that are not named, or cannot be compared (nested ones), are a FormatError too, and so is a blob that
is not of this form or does not hold as many positions as its manifest says.

Iceberg table spec, "Equality Delete Files", "Deletion Vectors"; Puffin spec, "File structure" and "deletion-vector-v1 blob type".
"""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import ValidationException
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyroaring import BitMap64

from tablecrypt import _magics as magics
from tablecrypt._per_process import SizeBoundedCache
from tablecrypt.crypto import ags1
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.manifests.records import FORMAT_VERSION, EncryptedDataFile, is_deletion_vector, key_metadata_of
from tablecrypt.parquet.uniform import ReadRequest
from tablecrypt.table._pyiceberg.arrow import to_requested_schema
from tablecrypt.table.arrow_filter import comparable
from tablecrypt.table.data_file_reader import opened_file
from tablecrypt.table.foreign_engines import location_provider
from tablecrypt.table.planning import FILE_PATH_FIELD_ID
from tablecrypt.table.table_files import TableFileIO

MAGIC: Final = b"\xd1\xd3\x39\x64"
_LENGTH: Final = struct.Struct(">I")
_FRAME_LENGTH: Final = 12
_BITMAP_COUNT_LENGTH: Final = 8
BLOB_TYPE: Final = "deletion-vector-v1"
ROW_POSITION_FIELD_ID: Final = 2147483645
_GREATEST_POSITION: Final = 2**63 - 1
_FOOTER_END: Final = struct.Struct("<II")
_REFERENCED: Final = "referenced-data-file"
_MOST_KEPT: Final = 32 * 2**20
POSITION_FIELD_ID: Final = 2147483545
T = TypeVar("T")


@dataclass(frozen=True)
class DeletionVector:
    """The positions, from 0, of all deleted rows of one data file."""

    data_file: DataFile
    positions: BitMap64


@dataclass(frozen=True)
class RowDelta:
    """How rows leave a table while their data files stay as they are.

    Attributes:
        dropped: data files whose every row goes.
        replaced: deletion vectors whose place a new one takes.
        added: new deletion vectors.
    """

    dropped: Sequence[DataFile] = ()
    replaced: Sequence[EncryptedDataFile] = ()
    added: Sequence[EncryptedDataFile] = ()

    def __bool__(self) -> bool:
        return bool(self.dropped or self.added)

    def check_base(self, live: Iterable[EncryptedDataFile]) -> None:
        """Compare the vectors that are replaced with those that a snapshot has for the same data files.

        Args:
            live: the delete files of the snapshot that the delta is committed on.

        Raises:
            ValidationException: others added a vector for one of the data files since it was scanned, or removed the one that was read.
        """
        about = {vector.referenced_data_file for vector in self.added}
        found = {file for file in live if is_deletion_vector(file) and file.referenced_data_file in about}
        # A vector that came since the scan would be lost, and one that went was counted as if it still applied.
        if differing := sorted(str(file.referenced_data_file) for file in found.symmetric_difference(self.replaced)):
            raise ValidationException(
                f"{differing[0]}: others changed its deletion vector while rows of it were deleted. Nothing was committed: delete again"
            )


class DeletedPositions:
    """Sorted, distinct positions (int64, from 0) of deleted rows."""

    def __init__(self, positions: npt.NDArray[np.int64]) -> None:
        self._positions = positions

    def __len__(self) -> int:
        return len(self._positions)

    def __iter__(self) -> Iterator[int]:
        return iter(self._positions.tolist())

    def last(self) -> int:
        """Return the greatest position; -1 if there is none."""
        return int(self._positions[-1]) if len(self._positions) else -1

    def live(self, parts: Sequence[range]) -> pa.Array | None:
        """Return a mask of the rows in these parts of the file that are not deleted. None: none of them is deleted."""
        live: npt.NDArray[np.bool_] | None = None
        first = 0
        for part in parts:
            begin, end = np.searchsorted(self._positions, (part.start, part.stop))
            if begin < end:
                live = np.ones(sum(map(len, parts)), np.bool_) if live is None else live
                live[self._positions[begin:end] - part.start + first] = False
            first += len(part)

        if live is None:
            return None
        # Arrow would take the values one by one, which takes longer than some columns to read.
        bits = pa.py_buffer(np.packbits(live, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(live), [None, bits])


@dataclass(frozen=True)
class _DecryptedPart:
    """Plaintext of a Puffin file, from `start` on, and the key metadata under which it authenticated."""

    key_metadata: StandardKeyMetadata
    start: int
    content: bytes

    def blob(self, offset: int, size: int) -> bytes | None:
        """Return a blob of the file; None where this part does not hold all of it."""
        begin = offset - self.start
        return self.content[begin : begin + size] if 0 <= begin <= len(self.content) - size else None


class DeletionVectorReader:
    """Reads the deletion vectors of many data files; used by many threads.

    A Puffin file is decrypted in blocks of 1 MiB, and a block holds the vectors of many data files. So the blocks that were decrypted
    last are kept for the vectors that come next, 32 MiB of all files: each block is fetched once where vectors come in their order.
    """

    def __init__(self, io: EncryptingFileIO) -> None:
        self._io = io
        self._kept = SizeBoundedCache[str, _DecryptedPart]()
        self._locks: dict[str, Lock] = {}
        self._lock = Lock()

    def positions(self, file: EncryptedDataFile, rows: int) -> DeletedPositions:
        """Return the positions that a deletion vector's manifest entry stands for.

        Args:
            file: the manifest entry.
            rows: how many the data file has. Memory stays below 24 bytes for each, whatever the vector says.
        """
        return _expanded(self._bitmap(file, rows))

    def check(self, file: EncryptedDataFile, rows: int | None) -> None:
        """Refuse a deletion vector that `positions` refuses, without expanding it: no memory for each position is needed.

        Args:
            file: the manifest entry.
            rows: how many the data file has; None for any number.
        """
        self._bitmap(file, rows)

    def _bitmap(self, file: EncryptedDataFile, rows: int | None) -> BitMap64:
        offset, size = file.content_offset, file.content_size_in_bytes
        if offset is None or size is None or offset < 0 or size < _FRAME_LENGTH:
            raise FormatError(f"{file.file_path}: a deletion vector with an impossible content_offset or content_size_in_bytes")

        return parse_deletion_vector(self._blob(file, offset, size), file.file_path, file.record_count, rows)

    def _blob(self, file: EncryptedDataFile, offset: int, size: int) -> bytes:
        key_metadata = key_metadata_of(file)
        with self._lock:
            lock = self._locks.setdefault(file.file_path, Lock())

        # Who comes meanwhile waits, and finds what was decrypted.
        with lock:
            kept = self._kept.find(file.file_path)
            # An entry with another key must not get what that key does not authenticate.
            blob = kept.blob(offset, size) if kept is not None and kept.key_metadata == key_metadata else None
            if blob is not None:
                return blob
            part = self._decrypted(file.file_path, key_metadata, offset, size)
            self._kept.keep(file.file_path, part, len(part.content), _MOST_KEPT)

        blob = part.blob(offset, size)
        # The stream is authentic, and so are offset and size: a short read means that they do not belong together.
        if blob is None:
            raise FormatError(f"{file.file_path}: ends inside the deletion vector at {offset}, of {size} bytes")
        return blob

    def _decrypted(self, location: str, key_metadata: StandardKeyMetadata, offset: int, size: int) -> _DecryptedPart:
        """Return the whole blocks in which a blob lies."""
        start = ags1.block_of(offset) * ags1.BLOCK_LENGTH
        end = (ags1.block_of(offset + size - 1) + 1) * ags1.BLOCK_LENGTH
        with self._io.decrypting_input(location, key_metadata).open() as puffin:
            puffin.seek(start)
            return _DecryptedPart(key_metadata, start, bytes(puffin.read(end - start)))


def parse_deletion_vector(blob: bytes, location: str, cardinality: int | None = None, rows: int | None = None) -> BitMap64:
    """Return the positions in a deletion-vector-v1 blob.

    Args:
        blob: its bytes.
        location: names the file in errors.
        cardinality: how many positions there should be; None for any number.
        rows: how many the data file has, which bounds the positions; None for any positions.
    """
    length = _LENGTH.unpack_from(blob)[0] if len(blob) >= _FRAME_LENGTH else -1
    if length + 2 * _LENGTH.size != len(blob):
        raise FormatError(f"{location}: a deletion vector of {len(blob)} bytes says that it is {length} bytes long")

    framed = blob[_LENGTH.size : -_LENGTH.size]
    if not framed.startswith(MAGIC):
        raise FormatError(f"{location}: a deletion vector begins with {framed[: len(MAGIC)]!r}, not with {MAGIC!r}")
    # AGS1 has authenticated the bytes: what a wrong CRC-32 shows is a fault of the writer.
    if zlib.crc32(framed) != _LENGTH.unpack(blob[-_LENGTH.size :])[0]:
        raise FormatError(f"{location}: a deletion vector's CRC-32 is not that of its bytes")

    bitmap = framed[len(MAGIC) :]
    if len(bitmap) < _BITMAP_COUNT_LENGTH:
        raise FormatError(f"{location}: a deletion vector ends inside its bitmap")

    try:
        compressed = BitMap64.deserialize(bitmap)
    except (ValueError, IndexError) as error:
        raise FormatError(f"{location}: a deletion vector's bitmap is not a 64-bit Roaring bitmap") from error

    # A run of 65,536 positions has four bytes: what a vector says is compared before it is expanded.
    if cardinality is not None and len(compressed) != cardinality:
        raise FormatError(f"{location}: a deletion vector of {len(compressed)} positions; its manifest says {cardinality}")
    if rows is not None and compressed and compressed.max() >= rows:
        raise FormatError(f"{location}: a deletion vector names position {compressed.max()} of a data file of {rows} rows")

    if compressed and compressed.max() > _GREATEST_POSITION:
        raise FormatError(f"{location}: a deletion vector holds a position over 2^63 - 1")

    return compressed


def _expanded(bitmap: BitMap64) -> DeletedPositions:
    return DeletedPositions(np.frombuffer(bitmap.to_array(), np.uint64).view(np.int64))


def puffin_location(metadata: TableMetadata, write_uuid: uuid.UUID) -> str:
    """Return where the Puffin file of one change goes."""
    return location_provider(metadata).new_data_location(f"00000-{write_uuid}-deletes.puffin")


def write_deletion_vectors(io: TableFileIO, location: str, vectors: Sequence[DeletionVector]) -> list[EncryptedDataFile]:
    """Write vectors into one Puffin file and return the delete files that a manifest lists, one for each vector.

    Args:
        io: the table's FileIO; the Puffin file gets its own DEK.
        location: where the Puffin file goes.
        vectors: at least one; none of them empty, and no two for one data file.
    """
    content = bytearray(magics.PUFFIN)
    places: list[tuple[int, int]] = []
    for vector in vectors:
        blob = encode_deletion_vector(vector.positions)
        places.append((len(content), len(blob)))
        content += blob

    content += _footer_of(vectors, places)

    output = io.new_encrypted_output(location)
    with output.create() as stream:
        stream.write(bytes(content))
    return [
        _delete_file(vector, place, location, len(output), output.key_metadata.encode())
        for vector, place in zip(vectors, places, strict=True)
    ]


def encode_deletion_vector(positions: BitMap64) -> bytes:
    """Return a deletion-vector-v1 blob."""
    # run_optimize changes the bitmap, which is the caller's.
    compact = positions.copy()
    compact.run_optimize()
    framed = MAGIC + compact.serialize()
    return _LENGTH.pack(len(framed)) + framed + _LENGTH.pack(zlib.crc32(framed))


def with_other_paths(puffin: bytes, location: str, path: Callable[[str], str]) -> bytes:
    """Return a plaintext Puffin file with the paths of the data files in its footer replaced, its blobs as they are.

    Raises:
        FormatError: it is no Puffin file, or its footer is compressed or not as specified.
    """
    start, footer = _parsed_footer(puffin, location)
    for named in _named_by_blobs(footer, location):
        named[_REFERENCED] = path(named[_REFERENCED])
    return puffin[:start] + _footer(footer)


def data_files_named_in(puffin: bytes, location: str) -> list[str]:
    """Return the paths of the data files in the footer of a plaintext Puffin file. Errors are those of `with_other_paths`."""
    _, footer = _parsed_footer(puffin, location)
    return [named[_REFERENCED] for named in _named_by_blobs(footer, location)]


def _named_by_blobs(footer: Any, location: str) -> list[dict[str, str]]:
    """Return the properties of the blobs that name a data file."""
    try:
        properties = [blob.get("properties") or {} for blob in footer["blobs"]]
        return [named for named in properties if isinstance(named.get(_REFERENCED, ""), str) and _REFERENCED in named]
    except (KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"{location}: a Puffin footer that is not as specified") from error


def _parsed_footer(puffin: bytes, location: str) -> tuple[int, Any]:
    """Return where the footer begins, and its JSON."""
    end = len(puffin) - len(magics.PUFFIN) - _FOOTER_END.size
    if end < 2 * len(magics.PUFFIN) or not puffin.startswith(magics.PUFFIN) or not puffin.endswith(magics.PUFFIN):
        raise FormatError(f"{location}: not a Puffin file")

    size, flags = _FOOTER_END.unpack_from(puffin, end)
    start = end - size - len(magics.PUFFIN)
    if flags or start < len(magics.PUFFIN) or not puffin.startswith(magics.PUFFIN, start):
        raise FormatError(f"{location}: a Puffin footer that is compressed or malformed, so the data files that it names cannot be changed")

    try:
        return start, json.loads(puffin[end - size : end])
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{location}: a Puffin footer that is not as specified") from error


def _footer_of(vectors: Sequence[DeletionVector], places: list[tuple[int, int]]) -> bytes:
    blobs = [
        {
            "type": BLOB_TYPE,
            "fields": [ROW_POSITION_FIELD_ID],
            # Neither number is known before the commit: the Puffin specification has -1 for both.
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": offset,
            "length": length,
            "properties": {_REFERENCED: vector.data_file.file_path, "cardinality": str(len(vector.positions))},
        }
        for vector, (offset, length) in zip(vectors, places, strict=True)
    ]
    return _footer({"blobs": blobs, "properties": {"created-by": "tablecrypt"}})


def _footer(content: Mapping[str, Any]) -> bytes:
    payload = json.dumps(content, separators=(",", ":")).encode()
    return magics.PUFFIN + payload + _FOOTER_END.pack(len(payload), 0) + magics.PUFFIN


def _delete_file(vector: DeletionVector, place: tuple[int, int], location: str, file_length: int, key_metadata: bytes) -> EncryptedDataFile:
    offset, length = place
    file = EncryptedDataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=location,
        file_format=FileFormat.PUFFIN,
        partition=vector.data_file.partition,
        record_count=len(vector.positions),
        file_size_in_bytes=file_length,
        key_metadata=key_metadata,
        referenced_data_file=vector.data_file.file_path,
        content_offset=offset,
        content_size_in_bytes=length,
    )
    file.spec_id = vector.data_file.spec_id
    return file


@dataclass(frozen=True)
class TaskDeletes:
    """What is deleted from one data file."""

    positions: DeletedPositions | None
    equality: tuple[EqualityDelete, ...]


class DeleteReader:
    """Reads delete files for the tasks of one scan; used by many threads."""

    def __init__(self, io: EncryptingFileIO, table_metadata: TableMetadata) -> None:
        self._io = io
        self._table_metadata = table_metadata
        self._vectors = DeletionVectorReader(io)
        self._read: dict[str, _Once] = {}
        self._lock = Lock()

    def deletes_of(self, task: FileScanTask) -> TaskDeletes:
        """Return the deletes of a task's data file."""
        by_value = (file for file in task.delete_files if file.content == DataFileContent.EQUALITY_DELETES)
        return TaskDeletes(self.positions_of(task), tuple(self._once(file, self._read_equality_deletes) for file in by_value))

    def positions_of(self, task: FileScanTask) -> DeletedPositions | None:
        """Return which rows of a task's data file are deleted by position; None where nothing deletes them so."""
        positions: DeletedPositions | None = None
        marked = BitMap64()
        for file in task.delete_files:
            if is_deletion_vector(file):
                positions = self._vectors.positions(EncryptedDataFile.of(file), task.file.record_count)
            elif file.content == DataFileContent.POSITION_DELETES:
                marked |= self._once(file, self._read_position_deletes).get(task.file.file_path, BitMap64())

        # The writer of a vector took over what position deletes said (table spec, "Deletion Vectors"), so these do not count beside it.
        last = positions.last() if positions is not None else marked.max() if marked else -1
        # Such deletes were made for another file: what else they name would take the wrong rows.
        if last >= task.file.record_count:
            raise FormatError(f"{task.file.file_path}: has {task.file.record_count} rows, but its deletes name position {last}")

        return _expanded(marked) if positions is None and marked else positions

    def equality_fields_of(self, task: FileScanTask) -> Schema:
        """Return the columns that a task's equality deletes compare, of the table's schema."""
        fields = {
            field.field_id: field
            for file in task.delete_files
            if file.content == DataFileContent.EQUALITY_DELETES
            for field in equality_fields(file, self._table_metadata.schema()).fields
        }
        return Schema(*fields.values())

    def _once(self, file: DataFile, read: Callable[[DataFile], T]) -> T:
        with self._lock:
            known = self._read.setdefault(file.file_path, _Once())
        return known.get(lambda: read(file))

    def _read_position_deletes(self, file: DataFile) -> Mapping[str, BitMap64]:
        # Of a batch only the bits are kept: a small file may hold a path, and a position, millions of times.
        marked: defaultdict[str, BitMap64] = defaultdict(BitMap64)
        with opened_file(self._io, file) as opened:
            columns = position_delete_columns(opened.schema, file.file_path)
            for batch in opened.batches(ReadRequest(list(columns), read_ahead=0)):
                rows = batch.rename_columns(["path", "position"])
                # Which row it means cannot be known, and no row that is gone may come back.
                if rows.column("position").null_count:
                    raise FormatError(f"{file.file_path}: this position delete file has a row without a position")
                for path, positions in _by_path(rows):
                    marked[path] |= BitMap64(array("Q", positions.cast(pa.int64()).to_numpy().tobytes()))

        return marked

    def _read_equality_deletes(self, file: DataFile) -> EqualityDelete:
        names = tuple(field.name for field in equality_fields(file, self._table_metadata.schema()).fields)
        return EqualityDelete(names, _concatenated(equality_rows(self._io, self._table_metadata, file), names))


def write_row_delta(
    metadata: TableMetadata,
    io: TableFileIO,
    deleted: Iterable[tuple[FileScanTask, BitMap64]],
    write_uuid: uuid.UUID,
    dropped: Iterable[DataFile] = (),
) -> RowDelta:
    """Write the deletion vectors of one change into one Puffin file; none where every file goes whole.

    Args:
        metadata: the table's.
        io: the table's FileIO.
        deleted: data files, each with the positions of rows that go now. Those that went before are added here.
        write_uuid: part of the Puffin file's name.
        dropped: data files that go whole anyway.

    Raises:
        PlaintextRefusedError, TamperedFileError, FormatError: an earlier delete cannot be read.
    """
    gone = list(dropped)
    replaced: list[EncryptedDataFile] = []
    vectors: list[DeletionVector] = []
    before = DeleteReader(io, metadata)

    for task, positions in _by_file(deleted):
        every = positions | BitMap64(before.positions_of(task) or ())
        if len(every) == task.file.record_count:
            gone.append(task.file)
            continue
        vectors.append(DeletionVector(task.file, every))
        # Vectors alone: a position delete file may be about other data files too.
        replaced.extend(EncryptedDataFile.of(file) for file in task.delete_files if is_deletion_vector(file))

    added = write_deletion_vectors(io, puffin_location(metadata, write_uuid), vectors) if vectors else ()

    return RowDelta(gone, replaced, added)


def _by_file(deleted: Iterable[tuple[FileScanTask, BitMap64]]) -> Iterable[tuple[FileScanTask, BitMap64]]:
    """Each data file once, with all positions that were given for it, where there are any."""
    by_location: dict[str, tuple[FileScanTask, BitMap64]] = {}
    for task, positions in deleted:
        _, known = by_location.get(task.file.file_path, (task, BitMap64()))
        if union := known | positions:
            by_location[task.file.file_path] = task, union
    return by_location.values()


class _Once:
    """A value that the first caller makes while the others wait. If it fails, the next caller tries again."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._values: list[Any] = []

    def get(self, make: Callable[[], T]) -> T:
        with self._lock:
            if not self._values:
                self._values.append(make())
            return cast("T", self._values[0])


def _by_path(rows: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    paths = pc.unique(rows.column("path"))
    if len(paths) == 1:
        yield paths[0].as_py(), rows.column("position")
        return
    grouped = pa.Table.from_batches([rows]).group_by("path").aggregate([("position", "list")])
    for path, positions in zip(grouped.column("path"), grouped.column("position_list"), strict=True):
        yield path.as_py(), positions.values


def _concatenated(batches: Iterable[pa.RecordBatch], names: tuple[str, ...]) -> pa.Table:
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    return pa.concat_tables(tables) if tables else pa.table({name: pa.array([], pa.null()) for name in names})


def position_delete_columns(schema: pa.Schema, location: str) -> tuple[str, str]:
    """Return the names of the columns of a position delete file that hold the path of a data file and the position in it."""
    return _column(schema, FILE_PATH_FIELD_ID, location), _column(schema, POSITION_FIELD_ID, location)


def _column(schema: pa.Schema, field_id: int, location: str) -> str:
    for field in schema:
        if (field.metadata or {}).get(b"PARQUET:field_id") == str(field_id).encode():
            return str(field.name)
    raise FormatError(f"{location}: this position delete file lacks the column with field id {field_id}")


@dataclass(frozen=True)
class EqualityDelete:
    """The rows of an equality delete file, in columns named as `names`."""

    names: tuple[str, ...]
    rows: pa.Table

    def live(self, batch: pa.RecordBatch) -> pa.Array | None:
        """Return a mask of the rows of a batch that are not deleted. None: none of them is deleted."""
        if not self.rows.num_rows:
            return None
        live = pc.is_null(row_numbers(self.rows, batch, self.names))
        return None if pc.all(live).as_py() else live


def row_numbers(of: pa.Table, rows: pa.RecordBatch, names: Sequence[str]) -> pa.Array:
    """Return for each row the number of the row of another table that has the same values in these columns; null where none has.

    Args:
        of: not empty. Of rows with the same values the first counts, and is counted alone: where no values occur twice, a number is that
            of the row.
        rows: null is equal to null.
    """
    numbers, found = _numbered(of.column(names[0]), rows.column(names[0]))
    for name in names[1:]:
        next_numbers, next_found = _numbered(of.column(name), rows.column(name))
        # The combined numbers are numbered anew at each column: a product over many columns would not fit into 64 bits.
        width = pa.scalar(of.num_rows, pa.int64())
        numbers, found = _numbered(
            pc.add(pc.multiply(numbers, width), next_numbers), pc.add(pc.multiply(found, width), next_found), match_null=False
        )

    return found


def equality_fields(file: DataFile, schema: Schema) -> Schema:
    """Return the part of the table's schema that a delete file compares.

    Raises:
        FormatError: the file names no columns, one that the schema does not have, or one that is nested or not primitive.
    """
    ids = set(file.equality_ids or ())
    fields = [field for field in schema.fields if field.field_id in ids]
    # A column that was dropped since, or that Arrow cannot compare, leaves the delete undecidable: rows must not come back.
    if not ids or len(fields) != len(ids) or not all(field.field_type.is_primitive for field in fields):
        raise FormatError(
            f"{file.file_path}: an equality delete file on the field ids {sorted(ids)}; "
            "each must be a primitive top-level column of the table"
        )

    return Schema(*fields)


def live_rows(tasks: Iterable[FileScanTask]) -> int | None:
    """Return how many rows files have left when their deletes are applied; None if only applying them can tell."""
    files = list(tasks)
    deletes = [file for task in files for file in task.delete_files]
    if not all(is_deletion_vector(file) for file in deletes):
        return None
    return sum(int(task.file.record_count) for task in files) - sum(int(file.record_count) for file in deletes)


def check_rows(left: Sequence[int | None], files: Iterable[DataFile], what: str) -> None:
    """Check that new files hold all rows that the old ones had left.

    Args:
        left: how many rows each of the old files, or each group of them, had left; None where that is not known.
        files: the new files.
        what: names the old files.

    Raises:
        FormatError: they do not hold as many as the old files' manifests say.
    """
    known = [count for count in left if count is not None]
    written = sum(int(file.record_count) for file in files)
    if len(known) == len(left) and sum(known) != written:
        raise FormatError(f"{what} and what was rewritten with it have {sum(known)} rows by their manifests, but {written} were read")


def equality_rows(io: EncryptingFileIO, metadata: TableMetadata, file: DataFile) -> list[pa.RecordBatch]:
    """Return the rows of an equality delete file, in the columns that it compares.

    Raises:
        FormatError: as `equality_fields`; or the file lacks one of these columns.
    """
    wanted = equality_fields(file, metadata.schema())
    with opened_file(io, file) as opened:
        # Engines may have written the file without field ids: the table's name mapping tells its columns, as in scans.
        stored = pyarrow_to_schema(opened.schema, metadata.name_mapping(), format_version=FORMAT_VERSION)
        read = prune_columns(stored, wanted.field_ids, select_full_types=False)
        # Compared by fewer columns, the file would delete rows that it does not mean.
        if missing := wanted.field_ids - read.field_ids:
            raise FormatError(f"{file.file_path}: this equality delete file lacks the columns with field ids {sorted(missing)}")

        return [
            to_requested_schema(wanted, read, batch, allow_timestamp_tz_mismatch=True)
            for batch in opened.batches(ReadRequest([column.name for column in read.columns]))
        ]


def _numbered(deletes: pa.ChunkedArray, rows: pa.Array, match_null: bool = True) -> tuple[pa.ChunkedArray, pa.Array]:
    """Return for both the number of each value among the distinct values of `deletes`; null where `rows` has another value."""
    deletes, rows = comparable(deletes), comparable(rows)
    values = pc.unique(deletes)
    skip_nulls = not match_null
    return (
        pc.cast(pc.index_in(deletes, value_set=values, skip_nulls=skip_nulls), pa.int64()),
        pc.cast(pc.index_in(rows, value_set=values, skip_nulls=skip_nulls), pa.int64()),
    )
