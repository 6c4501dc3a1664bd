"""What a writing task reports of its files, and the manifest entries that the driver makes from it.

    result    = attempt (8) | number of files (4) | file | ... | number of files with deleted rows (4) | deletes | ...
    deletes   = location of a data file of the table | positions of its rows, a 32-bit Roaring bitmap in its portable form
    file      = 0 (1) | location | length of the file (8) | DEK | AAD prefix | partition | NaN counts | footer      of Parquet's Java writer
              | 1 (1) | location | entry                                               of Python's (sql/writes/python_writes.py)
    partition = for each of its fields: 00 for null, or 01, length (4), the value in Iceberg's single-value form
    NaN counts = how many (4), for each: field id (4) | NaNs in that column (8)
    footer    = the file's Parquet FileMetaData in plaintext, Thrift's compact protocol
    entry     = the manifest entry of the file (table/file_entries.py)

location, DEK, AAD prefix, partition, footer, entry, positions: each its length (4), then the bytes. Numbers are big endian; lengths are in
bytes. DEKs are in the clear here: the whole is only ever encrypted (task_keys.py).

The entries of files of that writer are those that the Python path would make: from the footer by the same code, with the table's metrics
modes.

Raises FormatError for bytes that are no such result, AuthenticationError where a result names a file that its task was not given, or one
twice.

Iceberg table spec, "Manifests" (data_file), appendix D "Binary single-value serialization".
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey, PartitionSpec
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, FloatType, IcebergType, PrimitiveType
from pyroaring import BitMap, BitMap64

from tablecrypt import _magics as magics
from tablecrypt._bytes import ByteReader
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, ConfigurationError, FormatError
from tablecrypt.files.locations import with_scheme
from tablecrypt.manifests.records import DATA_FILE_POSITIONS, EncryptedDataFile
from tablecrypt.table.file_entries import FileEntryCodec, check_counts
from tablecrypt.table.lineage import with_lineage, without_lineage_ids
from tablecrypt.table.parquet_options import FileStatistics
from tablecrypt.table.partitions import StoredPartitionKey

if TYPE_CHECKING:
    from tablecrypt.files.encrypting_file_io import EncryptingFileIO
    from tablecrypt.spark.shared.coordinator import FileLocations
    from tablecrypt.spark.shared.task_keys import ResultKey

_OF_SPARK: Final = 0
_OF_PYTHON: Final = 1
_ONE_BITMAP: Final = struct.pack("<QI", 1, 0)
"""Before a 32-bit Roaring bitmap it makes a 64-bit one in its portable form: how many there are, and the upper half of their positions."""
_BROKEN: Final = (pa.ArrowException, ConfigurationError, struct.error, KeyError, IndexError, OSError, OverflowError, TypeError, ValueError)


@dataclass(frozen=True)
class WrittenFile:
    """One file, as its task reports it."""

    location: str
    key_metadata: StandardKeyMetadata
    partition: bytes
    nan_counts: dict[int, int]
    footer: bytes

    def entry(self, metadata: TableMetadata, *, keeps_lineage: bool = False) -> DataFile:
        """Return the manifest entry of the file. FormatError where its parts do not fit the table.

        Args:
            metadata: of the table.
            keeps_lineage: whether the columns of row lineage are in the file.
        """
        try:
            entry = self._entry(metadata, sanitize_column_names(metadata.schema()), keeps_lineage)
        except _BROKEN as error:
            raise FormatError(f"{self.location}: its task's description of it is malformed: {type(error).__name__}") from error

        check_counts(entry)
        return entry

    def _entry(self, metadata: TableMetadata, stored: Schema, keeps_lineage: bool) -> EncryptedDataFile:
        statistics = FileStatistics.of(with_lineage(stored) if keeps_lineage else stored, metadata.properties).read(self._parsed_footer())
        statistics = {name: without_lineage_ids(value) for name, value in statistics.items()}
        # Readers would compare with NaN, which is false of everything, and skip files that have matching rows.
        _leave_out_nan_bounds(statistics, metadata.schema())
        counted = statistics["value_counts"]
        # Only columns that the metrics modes count: bounds and counts of others are not to be in the manifest.
        statistics["nan_value_counts"] = {field_id: count for field_id, count in self.nan_counts.items() if field_id in counted}
        entry = EncryptedDataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self.location,
            file_format=FileFormat.PARQUET,
            partition=partition_record(self.partition, metadata.spec(), metadata.schema()),
            file_size_in_bytes=self.key_metadata.file_length,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=self.key_metadata.encode(),
            **statistics,
        )
        entry.spec_id = metadata.default_spec_id

        return entry

    def _parsed_footer(self) -> pq.FileMetaData:
        return pq.read_metadata(io.BytesIO(magics.PARQUET + self.footer + struct.pack("<I", len(self.footer)) + magics.PARQUET))


@dataclass(frozen=True)
class FileOfPython:
    """One file that Python wrote, as its task reports it."""

    location: str
    content: bytes = field(repr=False)

    def entry(self, metadata: TableMetadata, *, keeps_lineage: bool = False) -> DataFile:
        """Return the manifest entry of the file. FormatError where it is that of another file, or of several.

        Args:
            metadata: of the table.
            keeps_lineage: not needed, since the entry is complete.
        """
        files = FileEntryCodec(metadata).decode_files(self.content)
        # The entry comes from the executor: it may name another file than the one that its task was given.
        if [(with_scheme(file.file_path), file.content, file.spec_id) for file in files] != [
            (with_scheme(self.location), DataFileContent.DATA, metadata.default_spec_id)
        ]:
            raise FormatError(f"{self.location}: its task's description of it is that of another file")

        # The table's form of the location, without the scheme that Hadoop needs.
        files[0][DATA_FILE_POSITIONS["file_path"]] = self.location
        return files[0]


@dataclass(frozen=True)
class TaskResult:
    """What one attempt did: the files that it wrote, and the positions of rows that it deletes, by data file."""

    attempt: int
    files: list[WrittenFile | FileOfPython]
    deleted: dict[str, BitMap64]


def decode_result(content: bytes) -> TaskResult:
    """Return a task's result. FormatError for other bytes."""
    parts = _Parts(content, "a task's result")
    try:
        attempt, count = parts.count(8), parts.count(4)
        files = [_decoded(parts) for _ in range(count)]
        deleted = [(parts.sized().decode(), _positions(parts.sized())) for _ in range(parts.count(4))]
    except _BROKEN as error:
        raise FormatError(f"a task's result cannot be understood: {type(error).__name__}") from error

    parts.check_exhausted()
    return TaskResult(attempt, files, dict(deleted))


def partition_record(content: bytes, spec: PartitionSpec, schema: Schema) -> Record:
    """Return partition values, as a manifest entry holds them, from the form drawn above. FormatError for other bytes."""
    parts = _Parts(content, "the partition values of a file")
    values: list[Any] = []
    try:
        for field in spec.fields:
            # A dropped partition field has a place in the record and no value in the message.
            is_null = isinstance(field.transform, VoidTransform) or not parts.count(1)
            values.append(None if is_null else _value(field.transform.result_type(schema.find_type(field.source_id)), parts.sized()))
    except _BROKEN as error:
        raise FormatError(f"partition values cannot be understood: {type(error).__name__}") from error

    parts.check_exhausted()

    return Record(*values)


def partition_key(content: bytes, metadata: TableMetadata) -> PartitionKey | None:
    """Return the partition that a file is in, from the form drawn above; None where the table has none. FormatError for other bytes."""
    spec, schema = metadata.spec(), metadata.schema()
    if spec.is_unpartitioned():
        return None
    values = partition_record(content, spec, schema)
    return StoredPartitionKey([PartitionFieldValue(each, values[at]) for at, each in enumerate(spec.fields)], spec, schema)


def split_results(content: bytes) -> list[bytes]:
    """Return encrypted results, each of which comes with its length in 4 bytes."""
    parts = _Parts(content, "the results of a task")
    results = []
    while parts.left:
        results.append(parts.sized())
    return results


def opened_results(key: ResultKey, locations: FileLocations, encrypted: bytes) -> list[TaskResult]:
    """Return the results of a write's tasks, with the locations of files as the table writes them.

    Args:
        key: the write's.
        locations: those that were given in it.
        encrypted: for each task, in their order, the length of its result (4) and the result.

    Raises:
        AuthenticationError: a result was changed on its way, or names a file that its task was not given, or a file twice.
        FormatError: a result does not hold what it should.
    """
    results = []
    for task, message in enumerate(split_results(encrypted)):
        result = decode_result(key.decrypt(task, message))
        files = [replace(file, location=locations.as_table_has_it(file.location, task, result.attempt)) for file in result.files]
        # Its rows would be committed twice.
        if len({file.location for file in files}) != len(files):
            raise AuthenticationError(f"writing task {task} reports a file twice")
        results.append(replace(result, files=files))
    return results


def check_found(io: EncryptingFileIO, files: Sequence[DataFile]) -> None:
    """Look for one file of each bucket: Hadoop may know another store by the same name.

    Raises:
        ConfigurationError: PyIceberg does not find the file, or finds another one.
    """
    for file in {urlsplit(file.file_path)[:2]: file for file in files}.values():
        try:
            # The stored length, as Hadoop wrote it; nothing is decrypted for this.
            length = len(io.raw_input(file.file_path))
        except OSError as error:
            raise ConfigurationError(f"{file.file_path}: Hadoop wrote it, and PyIceberg does not find it") from error

        if length != file.file_size_in_bytes:
            raise ConfigurationError(f"{file.file_path}: Hadoop wrote {file.file_size_in_bytes} bytes, PyIceberg finds {length}")


class _Parts(ByteReader):
    """What Java writes: numbers in big endian, and bytes behind their length in 4 bytes."""

    def count(self, size: int) -> int:
        return self.number(size, "big")

    def sized(self) -> bytes:
        return self.frame(4, "big")


def _decoded(parts: _Parts) -> WrittenFile | FileOfPython:
    kind = parts.count(1)
    if kind == _OF_PYTHON:
        return FileOfPython(parts.sized().decode(), parts.sized())
    if kind != _OF_SPARK:
        raise ValueError("a file of an unknown writer")

    location, length = parts.sized().decode(), parts.count(8)
    key_metadata = StandardKeyMetadata(Secret(parts.sized()), parts.sized(), length)
    partition = parts.sized()
    nan_counts = dict(_nan_counts(parts))

    return WrittenFile(location, key_metadata, partition, nan_counts, parts.sized())


def _positions(content: bytes) -> BitMap64:
    # A few bytes can hold 2^32 positions: none of them is taken up one by one. Nor is the wider form made of bytes that are not checked.
    positions = BitMap.deserialize(content)
    return BitMap64.deserialize(_ONE_BITMAP + positions.serialize()) if positions else BitMap64()


def _nan_counts(parts: _Parts) -> Iterator[tuple[int, int]]:
    for _ in range(parts.count(4)):
        yield parts.count(4), parts.count(8)


def _value(iceberg: IcebergType, content: bytes) -> Any:
    if not isinstance(iceberg, PrimitiveType):
        raise TypeError(f"{iceberg} is not a type of partition values")
    return from_bytes(iceberg, content)


def _leave_out_nan_bounds(statistics: dict[str, Any], schema: Schema) -> None:
    """Parquet's Java writer sorts NaN above all numbers, and Iceberg's bounds are of numbers alone."""
    for bounds in (statistics["lower_bounds"], statistics["upper_bounds"]):
        for field_id in [each for each in bounds if isinstance(schema.find_type(each), (FloatType, DoubleType))]:
            if math.isnan(_value(schema.find_type(field_id), bounds[field_id])):
                del bounds[field_id]
