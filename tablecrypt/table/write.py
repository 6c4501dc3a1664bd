"""Writing data files: Arrow data in, encrypted Parquet files and their manifest entries out.

    Arrow ──partitioned, packed to write.target-file-size-bytes──▶ one task per file ──▶ Parquet under a fresh DEK ──▶ DataFile

Partitioning, packing, statistics and locations are PyIceberg's, so files are laid out as PyIceberg lays them out. The DataFile's
key_metadata holds the DEK, the AAD prefix and the length of the ciphertext. Nothing is registered here: the caller commits the entries.
If any file fails, those already written are deleted and the error is raised.

sort_order_id stays null: rows are written in the order in which they came, and an id would promise readers more than that.

Iceberg table spec, "Manifests" (data_file) and "Row Lineage".
"""

from __future__ import annotations

import itertools
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    ParquetFormatModel,
    bin_pack_arrow_table,
    bin_pack_record_batches,
    pyarrow_to_schema,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionKey
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE, WriteTask
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StructType
from pyiceberg.utils.concurrent import ExecutorFactory
from pyiceberg.utils.config import Config

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.parquet.uniform import UniformParquetWriter
from tablecrypt.table._pyiceberg.arrow import determine_partitions, to_requested_schema
from tablecrypt.table.data_keys import DataKeySource
from tablecrypt.table.lineage import LINEAGE_FIELD_IDS, lineage_columns, with_lineage, without_lineage
from tablecrypt.table.parquet_properties import parquet_writer_options, row_group_limit, target_file_size
from tablecrypt.table.statistics import data_file_statistics

logger = logging.getLogger(__name__)

FORMAT_VERSION: Final = 3
ArrowData: TypeAlias = pa.Table | pa.RecordBatchReader

_IN_FLIGHT: Final = 32
_IN_FLIGHT_STREAMED: Final = 2
"""Files written at once. Of a stream each of them holds rows that are nowhere else in memory, so there are few."""


def write_data_files(
    table_metadata: TableMetadata,
    arrow: ArrowData,
    io: EncryptingFileIO,
    manager: DataKeySource,
    write_uuid: uuid.UUID | None = None,
    counter: itertools.count[int] | None = None,
) -> Iterator[DataFile]:
    """Write Arrow data as encrypted Parquet files of the table and return their manifest entries, all written when this returns.

    A RecordBatchReader is read as it is written, in portions of write.target-file-size-bytes, a few of them in memory at a time; in a
    partitioned table each portion becomes one file per partition that it touches. Columns _row_id and _last_updated_sequence_number that
    are not the table's own are stored under their reserved field ids.

    Args:
        table_metadata: its current schema, partition spec, location and properties are used.
        arrow: rows whose columns match the schema by name, or by field id where the Arrow schema has ids.
        io: writes ciphertext only.
        manager: gives each file its DEK.
        write_uuid: part of every file name.
        counter: numbers the files of one write_uuid.

    Raises:
        ConfigurationError: a table property that cannot be honoured. Nothing was written.
    """
    writer = _DataFileWriter.of(table_metadata, arrow.schema, io, manager)
    tasks = _write_tasks(table_metadata, arrow, writer.arrow_file_schema, write_uuid or uuid.uuid4(), counter or itertools.count())
    try:
        return iter(_run_all(writer.write, tasks, _IN_FLIGHT if isinstance(arrow, pa.Table) else _IN_FLIGHT_STREAMED))
    except BaseException:
        writer.delete_written()
        raise


@dataclass
class _DataFileWriter:
    """Writes the files of one call; it knows what they share, and which locations it has begun to write."""

    table_metadata: TableMetadata
    io: EncryptingFileIO
    keys: DataKeySource
    locations: LocationProvider
    arrow_file_schema: Schema
    file_schema: Schema
    lineage: tuple[NestedField, ...]
    options: dict[str, Any]
    row_group_size: int
    downcast_ns: bool
    begun: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, table_metadata: TableMetadata, arrow_schema: pa.Schema, io: EncryptingFileIO, keys: DataKeySource) -> _DataFileWriter:
        schema, properties = table_metadata.schema(), table_metadata.properties
        lineage = lineage_columns(arrow_schema, schema)
        downcast_ns = Config().get_bool(DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE) or False
        return cls(
            table_metadata,
            io,
            keys,
            load_location_provider(table_metadata.location, properties),
            pyarrow_to_schema(
                without_lineage(arrow_schema, lineage),
                name_mapping=schema.name_mapping,
                downcast_ns_timestamp_to_us=downcast_ns,
                format_version=FORMAT_VERSION,
            ),
            _file_schema(schema),
            lineage,
            parquet_writer_options(properties),
            row_group_limit(properties),
            downcast_ns,
        )

    def write(self, task: WriteTask) -> DataFile:
        """Write one file."""
        table = pa.Table.from_batches([self._as_stored(batch) for batch in task.record_batches])
        location = self.locations.new_data_location(task.generate_data_file_filename("parquet"), task.partition_key)
        key_metadata = self.keys.new_key_metadata()
        self.begun.append(location)
        with self.io.sealed_output(location).create(overwrite=True) as sink:
            writer = UniformParquetWriter(sink, table.schema, key_metadata, **self.options)
            writer.write(table, self.row_group_size)
            footer, length = writer.close()
        return self._data_file(task.partition_key, location, footer, key_metadata.with_file_length(length))

    def delete_written(self) -> None:
        """Delete what was begun, as far as the store lets it be. A file that stays is in no manifest and holds only ciphertext."""
        for location in self.begun:
            try:
                self.io.delete(location)
            except Exception as error:  # noqa: BLE001  the error that made the write fail is the one to raise
                logger.warning("could not delete %s of a failed write: %s", location, type(error).__name__)

    def _as_stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
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
        return stored

    def _data_file(
        self, partition_key: PartitionKey | None, location: str, footer: pq.FileMetaData, key_metadata: StandardKeyMetadata
    ) -> DataFile:
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
        stored = with_lineage(self.file_schema, self.lineage)
        statistics = data_file_statistics(footer, stored, self.table_metadata.properties)
        return {name: _without_lineage_ids(value) for name, value in statistics.items()}


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


def _without_lineage_ids(value: object) -> object:
    # Manifest statistics are about the table's columns; the reserved ids are not in any table schema.
    if not isinstance(value, dict):
        return value
    return {field_id: each for field_id, each in value.items() if field_id not in LINEAGE_FIELD_IDS}


def _write_tasks(
    table_metadata: TableMetadata, arrow: ArrowData, schema: Schema, write_uuid: uuid.UUID, counter: itertools.count[int]
) -> Iterator[WriteTask]:
    for partition_key, batches in _files_of(table_metadata, arrow):
        yield WriteTask(write_uuid, next(counter), schema, batches, partition_key=partition_key)


def _files_of(table_metadata: TableMetadata, arrow: ArrowData) -> Iterator[tuple[PartitionKey | None, list[pa.RecordBatch]]]:
    size = target_file_size(table_metadata.properties)
    if isinstance(arrow, pa.RecordBatchReader):
        for portion in bin_pack_record_batches(arrow, size):
            if not any(batch.num_rows for batch in portion):
                continue
            if table_metadata.spec().is_unpartitioned():
                yield None, portion
            else:
                yield from _files_of(table_metadata, pa.Table.from_batches(portion))
        return
    for partition_key, table in _partitions_of(table_metadata, arrow):
        if table.num_rows == 0:
            continue
        for batches in bin_pack_arrow_table(table, size):
            yield partition_key, batches


def _partitions_of(table_metadata: TableMetadata, table: pa.Table) -> Iterator[tuple[PartitionKey | None, pa.Table]]:
    spec = table_metadata.spec()
    if spec.is_unpartitioned():
        yield None, table
        return
    for partition in determine_partitions(spec=spec, schema=table_metadata.schema(), arrow_table=table):
        yield partition.partition_key, partition.arrow_table_partition


def _run_all(write: Callable[[WriteTask], DataFile], tasks: Iterable[WriteTask], in_flight: int) -> list[DataFile]:
    """Write on PyIceberg's executor. Tasks hold rows, and Executor.map would draw all of them into memory at once."""
    executor = ExecutorFactory.get_or_create()
    futures: list[Future[DataFile]] = []
    running: set[Future[DataFile]] = set()
    try:
        for task in tasks:
            if len(running) >= in_flight:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
            future = executor.submit(write, task)
            futures.append(future)
            running.add(future)
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()
        wait(futures)
