"""Single data files: one encrypted Parquet file from its first row group to its manifest entry.

    rows as they came ──columns by the table's schema, row lineage──▶ rows as stored ──row groups──▶ Parquet under a fresh DEK ──▶ DataFile

Values of protected columns go into hidden columns under column keys, and nothing of them into the manifest entry (protection/writing.py).

The DataFile's key_metadata holds the DEK, the AAD prefix and the length of the ciphertext.

sort_order_id stays null: rows are written in the order in which they came, and an id would promise readers more than that.

Iceberg table spec, "Manifests" (data_file) and "Row Lineage".
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import ParquetFormatModel, pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionKey
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StructType
from pyiceberg.utils.config import Config

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.files.raw_output import RawContent
from tablecrypt.manifests.records import FORMAT_VERSION, EncryptedDataFile
from tablecrypt.parquet.protected.hidden_column_writer import ProtectedField, ProtectedParquetWriter
from tablecrypt.parquet.uniform import UniformParquetWriter
from tablecrypt.table._pyiceberg.arrow import to_requested_schema
from tablecrypt.table.foreign_engines import location_provider
from tablecrypt.table.lineage import lineage_columns, with_lineage, without_lineage, without_lineage_ids
from tablecrypt.table.parquet_options import FileStatistics, dictionary_columns, parquet_writer_options, row_group_limit
from tablecrypt.table.protection.writing import WriteProtection
from tablecrypt.table.table_files import DataKeySource, delete_written

ROW_GROUP_BYTES: Final = 24 * 1024 * 1024
"""Arrow memory of a row group, about: what a filter on a sorted column has to read at least, and a reader to hold at once."""


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
    ) -> DataFileWriter:
        """Make a writer of rows with this Arrow schema; arguments and errors are those of `write_data_files`."""
        schema, properties = table_metadata.schema(), table_metadata.properties
        lineage = lineage_columns(arrow_schema, schema)
        downcast_ns = Config().get_bool(DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE) or False
        file_schema = _file_schema(schema)
        writer = cls(
            table_metadata=table_metadata,
            io=io,
            keys=keys,
            locations=location_provider(table_metadata),
            protection=WriteProtection.of(table_metadata, io),
            arrow_file_schema=pyarrow_to_schema(
                without_lineage(arrow_schema, lineage),
                name_mapping=schema.name_mapping,
                downcast_ns_timestamp_to_us=downcast_ns,
                format_version=FORMAT_VERSION,
            ),
            file_schema=file_schema,
            lineage=lineage,
            statistics=FileStatistics.of(with_lineage(file_schema, lineage), properties),
            given_schema=arrow_schema,
            options=parquet_writer_options(properties),
            row_group_size=row_group_limit(properties),
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
        return stored

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
