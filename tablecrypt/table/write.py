"""Writing data files: Arrow data in, encrypted Parquet files and their manifest entries out.

    Table    partitioned, packed to write.target-file-size-bytes of Arrow memory as PyIceberg packs ──▶ files written side by side
    stream   row groups written as they fill up, files ended at write.target-file-size-bytes of stored bytes

A stream is written with bounded memory:

    batches ─▶ chunk (one row group's worth) ─▶ parts by partition ─▶ row group ─▶ file of the partition ─▶ next file at the target size
               └──────────── this thread ─────────────┘   └────────────────── one thread beside it ─────────────────┘

A row group has at most `write.parquet.row-group-limit` rows and about ROW_GROUP_BYTES of Arrow memory, or the target size where that is
less. A file ends at the first row group that brings it to `write.target-file-size-bytes`, measured in stored bytes as Iceberg Java does.

In memory are, at most: the chunk that is being collected, the rows that wait for their partition's row group, and the row group that is
being encoded, each of about ROW_GROUP_BYTES. Of a partitioned table OPEN_FILES are written at a time: rows that come ordered by partition
fill theirs one after another; rows of more partitions than that, mixed, end in more and smaller files.

Transforms, statistics and locations are PyIceberg's. Nothing is registered here: the caller commits the entries. If any file fails, those
already written are deleted and the error is raised.

Each file, from its first row group to its manifest entry:

    rows as they came ──columns by the table's schema, row lineage──▶ rows as stored ──row groups──▶ Parquet under a fresh DEK ──▶ DataFile

Values of protected columns go into hidden columns under column keys, and nothing of them into the manifest entry (protection/writing.py).
The DataFile's key_metadata holds the DEK, the AAD prefix and the length of the ciphertext. sort_order_id stays null: rows are written in
the order in which they came, and an id would promise readers more than that.

Iceberg table spec, "Manifests" (data_file) and "Row Lineage".
"""

from __future__ import annotations

import itertools
import math
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Self, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import ParquetFormatModel, bin_pack_arrow_table, pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionKey
from pyiceberg.schema import Schema, index_by_name, sanitize_column_names
from pyiceberg.table import DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StructType
from pyiceberg.utils.concurrent import ExecutorFactory
from pyiceberg.utils.config import Config

from tablecrypt._arrow_types import without_nulls_of_null_structs
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.files.raw_output import RawContent
from tablecrypt.iceberg_properties import ROW_GROUP_LIMIT
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.keys.nested_columns import all_ancestors, displaced, field_ids
from tablecrypt.manifests.records import FORMAT_VERSION, EncryptedDataFile, partition_values
from tablecrypt.parquet.protected.hidden_column_writer import ProtectedField, ProtectedParquetWriter
from tablecrypt.parquet.text_columns import plain_rows
from tablecrypt.parquet.uniform import UniformParquetWriter
from tablecrypt.table._pyiceberg.arrow import to_requested_schema
from tablecrypt.table.foreign_engines import location_provider
from tablecrypt.table.lineage import lineage_columns, with_lineage, without_lineage, without_lineage_ids
from tablecrypt.table.parquet_options import FileStatistics, dictionary_columns, parquet_writer_options, target_file_size
from tablecrypt.table.partitions import rows_by_partition
from tablecrypt.table.protection.policy import names_of_protected, protection_of_leaves, taken_names
from tablecrypt.table.protection.writing import WriteProtection
from tablecrypt.table.table_files import DataKeySource, delete_written

OPEN_FILES: Final = 16
ArrowData: TypeAlias = pa.Table | pa.RecordBatchReader
_WITHOUT_IDS: Final = (
    "Leave the ids out, so that columns are found by their names: pa.schema([field.remove_metadata() for field in rows.schema])"
)
_LEAST_ROWS: Final = 1000
"""A file's size is not looked at more often, as in Iceberg Java."""
_IN_FLIGHT: Final = 32
"""Files of a table written at once."""
ROW_GROUP_BYTES: Final = 24 * 1024 * 1024
"""Arrow memory of a row group, about: what a filter on a sorted column has to read at least, and a reader to hold at once."""


def write_data_files(
    table_metadata: TableMetadata,
    arrow: ArrowData,
    io: EncryptingFileIO,
    keys: DataKeySource,
    write_uuid: uuid.UUID | None = None,
    counter: itertools.count[int] | None = None,
    locations: LocationProvider | None = None,
) -> list[DataFile]:
    """Write Arrow data as encrypted Parquet files of the table and return their manifest entries.

    A RecordBatchReader is read as it is written, with bounded memory. Columns _row_id and _last_updated_sequence_number that are not the
    table's own are stored under their reserved field ids.

    Args:
        table_metadata: its current schema, partition spec, location and properties are used.
        arrow: rows whose columns match the schema by name, or by field id where the Arrow schema has ids, which no names contradict.
        io: writes ciphertext only.
        keys: gives each file its DEK.
        write_uuid: part of every file name.
        counter: numbers the files of one write_uuid.
        locations: names the files; by default as the table's properties say.

    Raises:
        ConfigurationError: a table property that cannot be honoured, or field ids of the rows that contradict their names. Nothing was
            written.
    """
    arrow = plain_rows(arrow)
    size = target_file_size(table_metadata.properties)
    numbers = counter or itertools.count()
    writer = DataFileWriter.of(table_metadata, arrow.schema, io, keys, write_uuid or uuid.uuid4(), numbers, locations)

    try:
        if isinstance(arrow, pa.RecordBatchReader):
            return write_stream(writer, arrow, size)
        return _run_all(_writes(writer, arrow, size))
    except BaseException:
        writer.delete_written()
        raise


def cuts_nanoseconds(schema: pa.Schema) -> bool:
    """Whether PyIceberg's configuration has nanoseconds in rows of this schema cut to microseconds."""
    # Without nanoseconds it does not matter, and PyIceberg parses its file at each look.
    has_some = any("[ns" in str(each) for each in schema.types)
    return has_some and bool(Config().get_bool(DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE))


def _check_field_ids(table_metadata: TableMetadata, given: Schema) -> None:
    """Check that rows with field ids have the names that the table gives these, each within the structs, lists and maps of the table.

    Raises:
        ConfigurationError: a column has the name of another one, an id that the table does not have there, or one that another has too.
    """
    schema = table_metadata.schema()
    own, names = index_by_name(schema), index_by_name(given)
    # PyIceberg goes by the ids, users by the names: values of a protected column would lie in another one, under the table's key.
    wrong = [name for name, field_id in names.items() if own.get(name, field_id) != field_id]
    if policy := ColumnPolicy.from_properties(table_metadata.properties):
        taken = taken_names(names_of_protected(table_metadata), policy, protection_of_leaves(policy, given).items())
        wrong += [each.name for each in taken]
    if wrong:
        raise ConfigurationError(
            f"column {wrong[0]!r} of the rows has a field id (PARQUET:field_id or iceberg.id) that is not the one of the table's column "
            f"with that name: the rows are another table's. {_WITHOUT_IDS}"
        )

    # PyIceberg takes the last column with an id, where the table has that one, and leaves out all others without a word.
    ids, places = Counter(field_ids(given)), all_ancestors(schema)
    elsewhere = displaced(all_ancestors(given).items(), places)
    lost = [name for name, field_id in names.items() if field_id not in places or field_id == elsewhere or ids[field_id] > 1]
    if lost:
        raise ConfigurationError(
            f"column {lost[0]!r} of the rows has the field id {names[lost[0]]} (PARQUET:field_id or iceberg.id), which the table does not "
            f"have there, or another column of the rows has too: values would be lost. {_WITHOUT_IDS}"
        )


def _writes(writer: DataFileWriter, table: pa.Table, size: int) -> Iterator[Callable[[], DataFile]]:
    for partition_key, rows in _partitions_of(writer.table_metadata, table):
        if rows.num_rows == 0:
            continue
        for batches in bin_pack_arrow_table(rows, size) if rows.nbytes else [rows.to_batches()]:
            yield partial(writer.write, next(writer.counter), partition_key, batches)


def _partitions_of(table_metadata: TableMetadata, table: pa.Table) -> Iterator[tuple[PartitionKey | None, pa.Table]]:
    spec = table_metadata.spec()
    if spec.is_unpartitioned():
        yield None, table
        return
    yield from rows_by_partition(spec, table_metadata.schema(), table)


def _run_all(writes: Iterable[Callable[[], DataFile]]) -> list[DataFile]:
    """Write on PyIceberg's executor. Writes hold rows, and Executor.map would draw all of them into memory at once."""
    executor = ExecutorFactory.get_or_create()
    futures: list[Future[DataFile]] = []
    running: set[Future[DataFile]] = set()

    try:
        for write in writes:
            if len(running) >= _IN_FLIGHT:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()

            future = executor.submit(write)
            futures.append(future)
            running.add(future)

        return [future.result() for future in futures]
    finally:
        for future in futures:
            # Nothing may still be writing when the caller deletes what was begun.
            future.cancel()
        wait(futures)


@dataclass
class PendingRowGroup:
    """Rows of one file that wait for their row group to be full."""

    partition_key: PartitionKey | None = None
    batches: list[pa.RecordBatch] = field(default_factory=list)
    count: int = 0
    size: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self.batches.append(batch)
        self.count += batch.num_rows
        self.size += batch.nbytes

    def take_combined(self) -> list[pa.RecordBatch]:
        """Return the rows in one batch, which is brought into the file's columns faster than many, and hold the many no longer."""
        combined: list[pa.RecordBatch] = pa.Table.from_batches(self.batches).combine_chunks().to_batches()
        self.batches.clear()
        return combined


def write_stream(
    writer: DataFileWriter,
    rows: pa.RecordBatchReader,
    target_size: int,
    open_files: int = OPEN_FILES,
) -> list[DataFile]:
    """Write a stream and return its files, in the order in which they were finished.

    Args:
        writer: of the rows' Arrow schema.
        rows: drawn as they are written.
        target_size: stored bytes of a file.
        open_files: how many files are written at a time.
    """
    limit = RowGroupLimit.of(writer, target_size)
    files = _RollingFiles(writer, target_size, open_files)
    waiting = _Waiting(limit, writer.row_group_bytes)

    with ThreadPoolExecutor(1, thread_name_prefix="tablecrypt-write") as thread:
        encoder = _OneAtATime(thread)
        try:
            for part in _parts(writer, rows, limit):
                for full in waiting.add(part):
                    encoder.run(files, full)
            for rest in waiting.remaining():
                encoder.run(files, rest)
            encoder.wait()
            return files.finish()
        except BaseException:
            # A file must not be closed while the thread writes to it.
            encoder.stop()
            files.abandon()
            raise


@dataclass(frozen=True)
class RowGroupLimit:
    """When a row group is full.

    Attributes:
        rows: number of rows.
        size: bytes of Arrow memory.
    """

    rows: int
    size: int

    @classmethod
    def of(cls, writer: DataFileWriter, target_size: int) -> Self:
        """Return the limit for files that end at `target_size` stored bytes."""
        return cls(writer.row_group_size, min(writer.row_group_bytes, target_size))

    def is_reached(self, rows: PendingRowGroup) -> bool:
        """Whether the rows fill a row group."""
        return rows.count >= self.rows or rows.size >= self.size


def _parts(writer: DataFileWriter, rows: pa.RecordBatchReader, limit: RowGroupLimit) -> Iterator[PendingRowGroup]:
    """Yield chunks of the stream, each cut by partition."""
    chunk = PendingRowGroup()
    for batch in _cut(rows, limit):
        chunk.add(batch)
        if limit.is_reached(chunk):
            yield from _by_partition(writer, chunk)
            chunk = PendingRowGroup()

    if chunk.count:
        yield from _by_partition(writer, chunk)


def _cut(batches: Iterable[pa.RecordBatch], limit: RowGroupLimit) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches none of which is more than a row group: files end between row groups."""
    for batch in batches:
        pieces = max(1, math.ceil(batch.nbytes / limit.size))
        step = min(limit.rows, max(_LEAST_ROWS, batch.num_rows // pieces))
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)


def _by_partition(writer: DataFileWriter, chunk: PendingRowGroup) -> Iterator[PendingRowGroup]:
    spec = writer.table_metadata.spec()
    if spec.is_unpartitioned():
        yield chunk
        return

    table = pa.Table.from_batches(chunk.batches)

    for partition_key, rows in rows_by_partition(spec, writer.table_metadata.schema(), table):
        part = PendingRowGroup(partition_key)
        for batch in rows.to_batches():
            part.add(batch)
        yield part


class _Waiting:
    """Rows of partitions whose row groups are not full yet. When they are too many, the largest row group is taken as it is."""

    def __init__(self, limit: RowGroupLimit, most_bytes: int) -> None:
        self._limit = limit
        self._most_bytes = most_bytes
        self._rows: dict[Hashable, PendingRowGroup] = {}
        self._size = 0

    def add(self, part: PendingRowGroup) -> Iterator[PendingRowGroup]:
        """Add rows of one partition, and yield the row groups that are to be written now."""
        key = _key(part.partition_key)
        known = self._rows.setdefault(key, PendingRowGroup(part.partition_key))
        for batch in part.batches:
            known.add(batch)
        self._size += part.size
        if self._limit.is_reached(known):
            yield self._take(key)
        while self._size > self._most_bytes:
            yield self._take(max(self._rows, key=lambda each: self._rows[each].size))

    def remaining(self) -> Iterator[PendingRowGroup]:
        """Yield what is left."""
        for key in list(self._rows):
            yield self._take(key)

    def _take(self, key: Hashable) -> PendingRowGroup:
        taken = self._rows.pop(key)
        self._size -= taken.size
        return taken


class _RollingFiles:
    """The files of a stream. All of it but `abandon` happens in one thread at a time."""

    def __init__(self, writer: DataFileWriter, target_size: int, open_files: int) -> None:
        self._writer = writer
        self._target_size = target_size
        self._open_files = open_files
        self._open: dict[Hashable, UnfinishedDataFile] = {}
        self._finished: list[DataFile] = []

    def write(self, rows: PendingRowGroup) -> None:
        """Write one row group to its partition's file."""
        key = _key(rows.partition_key)
        file = self._open.pop(key, None)
        if file is None:
            if len(self._open) >= self._open_files:
                # Files are kept in the order of their last use: the one that has waited longest ends.
                self._finish(next(iter(self._open)))
            file = self._writer.begin(next(self._writer.counter), rows.partition_key)

        self._open[key] = file
        file.write(rows.take_combined())
        if file.length >= self._target_size:
            self._finish(key)

    def finish(self) -> list[DataFile]:
        """End all files."""
        for key in list(self._open):
            self._finish(key)
        return self._finished

    def abandon(self) -> None:
        """Close what is open. The writer deletes the files."""
        for file in self._open.values():
            file.abandon()

    def _finish(self, key: Hashable) -> None:
        self._finished.append(self._open[key].finish())
        del self._open[key]


class _OneAtATime:
    """Runs one write beside the caller; the next one waits for it."""

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
        self._running: Future[None] | None = None

    def run(self, files: _RollingFiles, rows: PendingRowGroup) -> None:
        self.wait()
        self._running = self._thread.submit(files.write, rows)

    def wait(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def stop(self) -> None:
        """Wait until nothing runs any more, whatever came of it."""
        if self._running is not None:
            self._running.exception()


def _key(partition_key: PartitionKey | None) -> Hashable:
    return None if partition_key is None else partition_values(partition_key.partition)


@dataclass(kw_only=True)
class DataFileWriter:
    """Writes the files of one call; it knows what they share, and which locations it has begun to write. Used by many threads.

    Attributes:
        as_given: the Arrow schema of the files, where rows with `given_schema` are stored as they come but for field ids; else None.
        row_group_size: rows of a row group at most.
        row_group_bytes: Arrow memory of a row group, about, and of all rows that wait for theirs to be full.
        begun: locations.
    """

    table_metadata: TableMetadata
    io: EncryptingFileIO
    keys: DataKeySource
    locations: LocationProvider
    protection: WriteProtection | None
    arrow_file_schema: Schema
    file_schema: Schema
    lineage: tuple[NestedField, ...]
    statistics: FileStatistics
    given_schema: pa.Schema
    as_given: pa.Schema | None = None
    options: dict[str, Any]
    row_group_size: int
    row_group_bytes: int = ROW_GROUP_BYTES
    downcast_ns: bool
    write_uuid: uuid.UUID
    counter: itertools.count[int]
    begun: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        table_metadata: TableMetadata,
        arrow_schema: pa.Schema,
        io: EncryptingFileIO,
        keys: DataKeySource,
        write_uuid: uuid.UUID,
        counter: itertools.count[int],
        locations: LocationProvider | None = None,
    ) -> DataFileWriter:
        """Make a writer of rows with this Arrow schema; arguments and errors are those of `write_data_files`."""
        schema, properties = table_metadata.schema(), table_metadata.properties
        protection = WriteProtection.of(table_metadata, io)
        options = parquet_writer_options(properties)
        lineage = lineage_columns(arrow_schema, schema)
        downcast_ns = cuts_nanoseconds(arrow_schema)
        file_schema = _file_schema(schema)
        without_ours = without_lineage(arrow_schema, lineage)
        arrow_file_schema = pyarrow_to_schema(
            without_ours,
            name_mapping=schema.name_mapping,
            downcast_ns_timestamp_to_us=downcast_ns,
            format_version=FORMAT_VERSION,
        )
        # PyIceberg takes ids from more than one entry of a field's metadata (Parquet's, ORC's). Without ids it goes by names alone.
        if all(each.metadata for each in without_ours):
            _check_field_ids(table_metadata, arrow_file_schema)
        writer = cls(
            table_metadata=table_metadata,
            io=io,
            keys=keys,
            locations=locations or location_provider(table_metadata),
            protection=protection,
            arrow_file_schema=arrow_file_schema,
            file_schema=file_schema,
            lineage=lineage,
            statistics=FileStatistics.of(with_lineage(file_schema, lineage), properties),
            given_schema=arrow_schema,
            options=options,
            row_group_size=ROW_GROUP_LIMIT.whole_number(properties),
            downcast_ns=downcast_ns,
            write_uuid=write_uuid,
            counter=counter,
        )
        writer.as_given = writer._schema_as_given()

        return writer

    def write(self, number: int, partition_key: PartitionKey | None, batches: Iterable[pa.RecordBatch]) -> DataFile:
        """Write one file whose rows are all there."""
        file = self.begin(number, partition_key)
        try:
            file.write(batches)
            return file.finish()
        except BaseException:
            file.abandon()
            raise

    def begin(self, number: int, partition_key: PartitionKey | None) -> UnfinishedDataFile:
        """Begin a file. `number` is that of the file in this write, from `counter`."""
        name = f"00000-{number}-{self.write_uuid}.parquet"
        return self.begin_at(self.locations.new_data_location(name, partition_key), partition_key)

    def begin_at(self, location: str, partition_key: PartitionKey | None) -> UnfinishedDataFile:
        """Begin a file at a location that no other file has."""
        key_metadata = self.keys.new_key_metadata()
        protected = [] if self.protection is None else self.protection.fields(key_metadata)
        # Noted before the file exists, so that whatever fails from here on leaves nothing behind.
        self.begun.append(location)
        return UnfinishedDataFile(self, partition_key, location, key_metadata, protected)

    def delete_written(self) -> None:
        """Delete what was begun, where the store allows it. A file that stays is in no manifest and holds only ciphertext."""
        delete_written(self.io, self.begun)

    def as_stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows in the columns of the file."""
        if self.as_given is not None and batch.schema == self.given_schema:
            return pa.RecordBatch.from_arrays(batch.columns, schema=self.as_given)

        stored = to_requested_schema(
            requested_schema=self.file_schema,
            file_schema=self.arrow_file_schema,
            batch=batch,
            downcast_ns_timestamp_to_us=self.downcast_ns,
            include_field_ids=True,
            format_model=ParquetFormatModel(),
        )
        for lineage_field in schema_to_pyarrow(Schema(*self.lineage)):
            stored = stored.append_column(lineage_field, batch.column(lineage_field.name).cast(lineage_field.type))

        is_flat = all(field.field_type.is_primitive for field in self.file_schema.fields)
        return stored if is_flat else without_nulls_of_null_structs(stored)

    def _schema_as_given(self) -> pa.Schema | None:
        given = self.given_schema
        # What lies in a nested column has field ids of its own, which only projecting the rows gives it.
        if any(pa.types.is_nested(each) for each in given.types):
            return None

        no_rows = pa.RecordBatch.from_arrays([pa.nulls(0, each) for each in given.types], schema=given)
        stored = self.as_stored(no_rows).schema

        return stored if stored.names == given.names and stored.types == given.types else None

    def data_file(
        self, partition_key: PartitionKey | None, location: str, footer: pq.FileMetaData, key_metadata: StandardKeyMetadata
    ) -> DataFile:
        """Return the manifest entry of a file that is written."""
        data_file = EncryptedDataFile.from_args(
            content=DataFileContent.DATA,
            file_path=location,
            file_format=FileFormat.PARQUET,
            partition=partition_key.partition if partition_key else Record(),
            file_size_in_bytes=key_metadata.file_length,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=key_metadata.encode(),
            **self._statistics(footer),
        )
        data_file.spec_id = self.table_metadata.default_spec_id
        return data_file

    def _statistics(self, footer: pq.FileMetaData) -> dict[str, Any]:
        statistics = {name: without_lineage_ids(value) for name, value in self.statistics.read(footer).items()}
        return statistics if self.protection is None else self.protection.without_protected(statistics)


class UnfinishedDataFile:
    """A data file that row groups can be added to. Ends with `finish` or `abandon`."""

    def __init__(
        self,
        writer: DataFileWriter,
        partition_key: PartitionKey | None,
        location: str,
        key_metadata: StandardKeyMetadata,
        protected: Sequence[ProtectedField],
    ) -> None:
        self._writer = writer
        self._protected = protected
        self._partition_key = partition_key
        self._location = location
        self._key_metadata = key_metadata
        self._sink = writer.io.raw_output(location, RawContent.SELF_ENCRYPTED).create(overwrite=True)
        self._parquet: UniformParquetWriter | ProtectedParquetWriter | None = None

    @property
    def length(self) -> int:
        """Stored bytes so far."""
        return int(self._sink.tell())

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Add rows as one row group of about `row_group_bytes`, or several; none has more rows than the table's limit."""
        table = pa.Table.from_batches([self._writer.as_stored(batch) for batch in batches])
        # Rows that are written again may be from before the column was required, or before somebody had the schema say so.
        for stored, column in zip(table.schema, table.columns, strict=True):
            if not stored.nullable and column.null_count:
                raise ConfigurationError(f"column {stored.name!r} is required in the table, and the rows have nulls in it")
        if self._parquet is None:
            options = {**self._writer.options, "use_dictionary": dictionary_columns(table)}
            self._parquet = (
                ProtectedParquetWriter(self._sink, table.schema, self._key_metadata, self._protected, **options)
                if self._protected
                else UniformParquetWriter(self._sink, table.schema, self._key_metadata, **options)
            )

        groups = max(1, round(table.nbytes / self._writer.row_group_bytes))
        if self._protected:
            # Alike in size, so that no few rows are left over for a last group: its length would tell of each.
            groups = max(groups, -(-table.num_rows // self._writer.row_group_size))
        self._parquet.write(table, max(1, min(self._writer.row_group_size, -(-table.num_rows // groups))))

    def finish(self) -> DataFile:
        """Write the footer and return the file's entry. Rows were written before."""
        if self._parquet is None:
            raise ConfigurationError(f"{self._location}: a data file without rows is not written")
        # Readers trust the length in the key metadata and not the store's: it is known only once the file is closed.
        footer, length = self._parquet.close()
        self._sink.close()
        return self._writer.data_file(self._partition_key, self._location, footer, self._key_metadata.with_file_length(length))

    def abandon(self) -> None:
        """Close what is open; the file is deleted by its writer."""
        # The error that brought us here is the one to raise.
        with suppress(Exception):
            if self._parquet is not None:
                self._parquet.close()
        with suppress(Exception):
            self._sink.abandon()


def _file_schema(table_schema: Schema) -> Schema:
    """Return the columns as they are written: a column that rows come without is filled with its write-default.

    PyIceberg's writer fills it with nulls. Iceberg table spec, "Default values".
    """

    def filled(field: NestedField) -> NestedField:
        stored = field.field_type
        if isinstance(stored, StructType):
            stored = StructType(*map(filled, stored.fields))
        default = table_schema.find_field(field.field_id).write_default
        return field.model_copy(update={"field_type": stored, "initial_default": default})

    return Schema(*map(filled, sanitize_column_names(table_schema).fields))
