"""A data or delete file opened for reading rows, whatever its format: Parquet through Modular Encryption, Avro inside AGS1.

Both give their columns as an Arrow schema with Iceberg field ids in its metadata, and their rows as batches in file order.

Raises FormatError for a format that is not read (ORC), PlaintextRefusedError for a file without key metadata.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile, FileFormat

from tablecrypt.errors import FormatError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.parquet.uniform import PositionedBatch, UniformParquetFile
from tablecrypt.table.avro_data import AvroDataFile
from tablecrypt.table.content_files import key_metadata_of


class OpenedFile(Protocol):
    """Rows of one file."""

    @property
    def schema(self) -> pa.Schema:
        """The columns as they are stored, with field ids."""

    def batches(
        self,
        columns: list[str],
        row_filter: pc.Expression | None = None,
        read_ahead: int | None = None,
        part: Container[int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that pass the filter; with `part`, those of row groups whose first byte lies in it."""

    def positioned_batches(
        self,
        columns: list[str],
        prune_by: pc.Expression | None = None,
        read_ahead: int | None = None,
        part: Container[int] | None = None,
    ) -> Iterator[PositionedBatch]:
        """Yield rows with their positions in the file, at least those that pass the filter; `part` as for `batches`."""


@contextmanager
def opened_file(io: EncryptingFileIO, file: DataFile, dictionary_columns: tuple[str, ...] = ()) -> Iterator[OpenedFile]:
    """Open a data file, or a delete file that holds rows."""
    key_metadata = key_metadata_of(file)
    if file.file_format == FileFormat.PARQUET:
        with io.raw_input(file.file_path).open() as source:
            yield UniformParquetFile(source, key_metadata, file.file_path, dictionary_columns=dictionary_columns)
    elif file.file_format == FileFormat.AVRO:
        with io.decrypting_input(file.file_path, key_metadata).open() as plaintext:
            yield AvroDataFile(plaintext, file.file_path)
    else:
        raise FormatError(f"{file.file_path}: {file.file_format.value} files are not read from encrypted tables; Parquet and Avro are")
