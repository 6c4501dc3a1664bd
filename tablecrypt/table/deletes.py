"""The deletes of a scan's tasks, read once each: deletion vectors, position delete files and equality delete files; and new vectors.

A position or equality delete file may apply to many data files; the first task that needs it reads it, the others wait for that. What a
position delete file says is kept per data file.

An equality delete takes a row that has, in its equality columns, the values of some row of the delete file; null equals null. The
comparison is done on whole columns: each value gets the number of the equal value among the deletes (or null), the numbers of several
columns are combined into one, and rows whose combination occurs among the deletes go.

Raises TamperedFileError, PlaintextRefusedError or FormatError, naming the delete file. There is no way to skip one: rows that should be
gone would come back. Equality columns that are not named, or cannot be compared (nested ones), are a FormatError too.

A data file has at most one deletion vector. Two of them would be against the specification, and a vector that lacks what an earlier one
said brings rows back. So a delete hands over the rows that go now; those that went before are read here (`write_row_delta`), and
each attempt to commit compares the vectors that the table has then with those that were read (`RowDelta.check_base`).

Iceberg table spec, "Equality Delete Files", "Deletion Vectors".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyroaring import BitMap64

from tablecrypt.errors import FormatError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.manifests.records import FORMAT_VERSION, EncryptedDataFile, is_deletion_vector
from tablecrypt.parquet.uniform import ReadRequest
from tablecrypt.table._pyiceberg.arrow import to_requested_schema
from tablecrypt.table.data_file_reader import opened_file
from tablecrypt.table.deletion_vectors import (
    DeletedPositions,
    DeletionVector,
    DeletionVectorReader,
    RowDelta,
    puffin_location,
    write_deletion_vectors,
)
from tablecrypt.table.planning import FILE_PATH_FIELD_ID
from tablecrypt.table.table_files import TableFileIO

POSITION_FIELD_ID: Final = 2147483545
T = TypeVar("T")


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
        parts: list[pa.ChunkedArray] = []
        for file in task.delete_files:
            if is_deletion_vector(file):
                positions = self._vectors.positions(EncryptedDataFile.of(file), task.file.record_count)
            elif file.content == DataFileContent.POSITION_DELETES:
                parts.extend(self._once(file, self._read_position_deletes).get(task.file.file_path, ()))

        # The writer of a vector took over what position deletes said (table spec, "Deletion Vectors"), so these do not count beside it.
        if positions is None and parts:
            positions = DeletedPositions.of_arrow(parts)
        # Such deletes were made for another file: what else they name would take the wrong rows.
        if positions is not None and positions.last() >= task.file.record_count:
            raise FormatError(f"{task.file.file_path}: has {task.file.record_count} rows, but its deletes name position {positions.last()}")

        return positions

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

    def _read_position_deletes(self, file: DataFile) -> dict[str, list[pa.ChunkedArray]]:
        with opened_file(self._io, file) as opened:
            path, position = position_delete_columns(opened.schema, file.file_path)
            batches = list(opened.batches(ReadRequest([path, position])))
        if not batches:
            return {}

        rows = pa.Table.from_batches(batches).rename_columns(["path", "position"])
        # Which row it means cannot be known, and no row that is gone may come back.
        if rows.column("position").null_count:
            raise FormatError(f"{file.file_path}: this position delete file has a row without a position")
        paths = pc.unique(rows.column("path"))
        if len(paths) == 1:
            return {paths[0].as_py(): [rows.column("position")]}

        by_path = rows.group_by("path").aggregate([("position", "list")])

        return {
            each.as_py(): [pa.chunked_array([positions.values])]
            for each, positions in zip(by_path.column("path"), by_path.column("position_list"), strict=True)
        }

    def _read_equality_deletes(self, file: DataFile) -> EqualityDelete:
        wanted = equality_fields(file, self._table_metadata.schema())
        with opened_file(self._io, file) as opened:
            stored = pyarrow_to_schema(opened.schema, self._table_metadata.name_mapping(), format_version=FORMAT_VERSION)
            read = prune_columns(stored, wanted.field_ids, select_full_types=False)
            missing = wanted.field_ids - read.field_ids
            # Compared by fewer columns, the file would delete rows that it does not mean.
            if missing:
                raise FormatError(f"{file.file_path}: this equality delete file lacks the columns with field ids {sorted(missing)}")

            batches = [
                to_requested_schema(wanted, read, batch, allow_timestamp_tz_mismatch=True)
                for batch in opened.batches(ReadRequest([column.name for column in read.columns]))
            ]

        names = tuple(field.name for field in wanted.fields)
        return EqualityDelete(names, _concatenated(batches, names))


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


def _numbered(deletes: pa.ChunkedArray, rows: pa.Array, match_null: bool = True) -> tuple[pa.ChunkedArray, pa.Array]:
    """Return for both the number of each value among the distinct values of `deletes`; null where `rows` has another value."""
    deletes, rows = comparable(deletes), comparable(rows)
    values = pc.unique(deletes)
    skip_nulls = not match_null
    return (
        pc.cast(pc.index_in(deletes, value_set=values, skip_nulls=skip_nulls), pa.int64()),
        pc.cast(pc.index_in(rows, value_set=values, skip_nulls=skip_nulls), pa.int64()),
    )


def comparable(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return a column in a type that Arrow compares: no dictionary, no extension type, text of one kind."""
    if isinstance(values.type, pa.DictionaryType):
        values = values.cast(values.type.value_type)
    if isinstance(values.type, pa.BaseExtensionType):
        return values.cast(values.type.storage_type)
    if pa.types.is_string(values.type):
        return values.cast(pa.large_string())

    return values.cast(pa.large_binary()) if pa.types.is_binary(values.type) else values
