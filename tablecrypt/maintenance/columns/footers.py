"""What a table's files say of their columns, in the footers of Parquet and the headers of Avro: read without any column's key.

Of data files it is the hidden columns, read by threads or executors. Of delete files it is what they hold, under the file's DEK all of it:

    equality deletes    at least the columns that they compare; Flink writes whole rows
    position deletes    a path and a position; beside them, writers may copy the rows
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import NameMapping

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.maintenance.runner import FileDone, FileWork, Runner
from tablecrypt.manifests.records import FORMAT_VERSION, key_metadata_of
from tablecrypt.parquet.protected.protected_layout import ProtectedLayout, StoredHiddenColumns
from tablecrypt.parquet.storage import source_of
from tablecrypt.parquet.uniform import UniformParquetFile
from tablecrypt.table.data_file_reader import AvroDataFile
from tablecrypt.table.table import EncryptedTable

_FOOTER_SIZE: Final = 64 * 1024
"""Bytes that reading a footer takes, for distributing the work."""


@dataclass(frozen=True)
class FooterWork:
    """A file to look at.

    Attributes:
        location: where it is.
        wanted: the field ids of the columns that are to have hidden columns in a file that it is rewritten as.
        mapping: the table's name mapping, for a file without field ids.
    """

    location: str
    wanted: frozenset[int]
    mapping: NameMapping


def may_have_hidden_columns(file: DataFile) -> bool:
    """Whether a file is one that can have protected columns: a Parquet data file."""
    return file.content == DataFileContent.DATA and file.file_format == FileFormat.PARQUET


def inspect_footers(
    table: EncryptedTable, files: Iterable[DataFile], runner: Runner, wanted: Collection[int] = ()
) -> dict[str, StoredHiddenColumns]:
    """Return what the footers of Parquet data files say, by location.

    Args:
        table: the files are its.
        files: which ones.
        runner: inspects them.
        wanted: field ids of the columns that are to have hidden columns.

    Raises:
        TamperedFileError, FormatError: a footer is not what was written.
    """
    works = footer_works(table.metadata, {file.file_path: key_metadata_of(file) for file in files}, wanted)
    return {works[index].work.location: done.result for index, done in runner.run(table, inspect_hidden_columns, works)}


def footer_works(
    metadata: TableMetadata, files: Mapping[str, StandardKeyMetadata], wanted: Collection[int] = ()
) -> list[FileWork[FooterWork]]:
    """Return the work of reading footers, for `inspect_hidden_columns` or what calls it.

    Args:
        metadata: of the table.
        files: key metadata by location.
        wanted: field ids of the columns that are to have hidden columns.
    """
    mapping = name_mapping_of(metadata)
    works = (FooterWork(location, frozenset(wanted), mapping) for location in files)
    return [FileWork(work, (files[work.location],), _FOOTER_SIZE) for work in works]


def inspect_hidden_columns(io: EncryptingFileIO, work: FooterWork, keys: tuple[StandardKeyMetadata, ...]) -> FileDone[StoredHiddenColumns]:
    """Return what the footer of the file at a location says."""
    with io.raw_input(work.location).open() as stored:
        layout = ProtectedLayout(source_of(stored, work.location), keys[0], mapping=work.mapping.root)
        return FileDone(layout.stored(work.wanted))


def columns_of_deletes(
    io: EncryptingFileIO, location: str, file_format: str, key_metadata: StandardKeyMetadata, mapping: NameMapping
) -> frozenset[int]:
    """Return the field ids of all columns, at every level, of a file of equality or position deletes.

    Args:
        io: of the table's storage.
        location, file_format, key_metadata: the file's.
        mapping: the table's name mapping, for a file without field ids.

    Raises:
        TamperedFileError, FormatError: the file is not what was written, or has a column that the mapping does not name.
    """
    schema = _schema_of_deletes(io, location, file_format, key_metadata)
    try:
        return frozenset(pyarrow_to_schema(schema, mapping, downcast_ns_timestamp_to_us=False, format_version=FORMAT_VERSION).field_ids)
    except (ValueError, TypeError) as error:
        raise FormatError(f"{location}: which columns this delete file holds cannot be told: {error}") from error


def _schema_of_deletes(io: EncryptingFileIO, location: str, file_format: str, key_metadata: StandardKeyMetadata) -> pa.Schema:
    if file_format == FileFormat.AVRO.value:
        with io.decrypting_input(location, key_metadata).open() as plaintext:
            return AvroDataFile(plaintext, location).schema
    with io.raw_input(location).open() as stored:
        return UniformParquetFile(stored, key_metadata, location).schema


def name_mapping_of(metadata: TableMetadata) -> NameMapping:
    """Return the names by which a table's columns are found in files without field ids: as its property says, else those that they have."""
    return metadata.name_mapping() or metadata.schema().name_mapping
