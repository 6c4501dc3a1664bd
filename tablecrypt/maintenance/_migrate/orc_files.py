"""ORC data files of a plain table, rewritten as encrypted Parquet files: encrypted tables hold no ORC.

Every row stays at its position, those that position deletes name too, so that deletes and row ids still refer to the same rows. The
columns are those of the table's current schema.

Raises FormatError, naming the file, for one that does not hold as many rows as its manifest says.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import ALWAYS_TRUE, FileScanTask

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.maintenance._file_rewrite import done_files, new_files
from tablecrypt.maintenance.runner import FileDone, FileWork
from tablecrypt.manifests.records import DATA_FILE_POSITIONS, EncryptedDataFile
from tablecrypt.table.datasets.castable import cast_batch
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.parquet_options import with_target_file_size
from tablecrypt.table.table_files import FreshKeys, delete_written
from tablecrypt.table.write import write_data_files

_ONE_FILE: Final = 2**62
_PARTITION: Final = DATA_FILE_POSITIONS["partition"]


@dataclass(frozen=True)
class RewriteOrcWork:
    """The file's entry, the metadata of the table that it will be in, without history, and how many bytes the DEK has."""

    entry: bytes
    metadata_json: str
    data_key_length: int


def rewrite_orc_work(file: DataFile, metadata: EncryptedTableMetadata, data_key_length: int) -> FileWork[RewriteOrcWork]:
    """Return the work of rewriting one file."""
    entry = FileEntryCodec(metadata).encode_files([file])
    return FileWork(RewriteOrcWork(entry, metadata.without_history().model_dump_json(), data_key_length), size=file.file_size_in_bytes)


def rewrite_orc_file(io: EncryptingFileIO, work: RewriteOrcWork, keys: tuple[StandardKeyMetadata, ...]) -> FileDone[bytes]:
    """Write the encrypted file; the result is its entry without the key, in no partition."""
    metadata = EncryptedTableMetadata.model_validate_json(work.metadata_json)
    [old] = FileEntryCodec(metadata).decode_files(work.entry)
    one_file = with_target_file_size(_unpartitioned(metadata), _ONE_FILE)
    files = write_data_files(one_file, _rows(metadata, io, old), io, FreshKeys(work.data_key_length), uuid.uuid4())
    if [file.record_count for file in files] != [old.record_count]:
        delete_written(io, [file.file_path for file in files])
        raise FormatError(f"{old.file_path}: holds {sum(file.record_count for file in files)} rows, its manifest says {old.record_count}")

    return done_files(FileEntryCodec(one_file), files)


def rewritten_entry(metadata: EncryptedTableMetadata, file: DataFile, done: FileDone[bytes]) -> EncryptedDataFile:
    """Return the new file's entry, in the partition of the old one."""
    [new] = new_files(FileEntryCodec(_unpartitioned(metadata)), done)
    new[_PARTITION] = file.partition
    new.spec_id = file.spec_id
    return new


def _rows(metadata: EncryptedTableMetadata, io: EncryptingFileIO, file: DataFile) -> pa.RecordBatchReader:
    schema = metadata.schema()
    arrow_schema = schema_to_pyarrow(schema, include_field_ids=False)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in ArrowScan(metadata, io.inner, schema, ALWAYS_TRUE).to_record_batches([FileScanTask(file)]):
            yield cast_batch(batch, arrow_schema)

    return pa.RecordBatchReader.from_batches(arrow_schema, batches())


def _unpartitioned(metadata: EncryptedTableMetadata) -> EncryptedTableMetadata:
    spec = UNPARTITIONED_PARTITION_SPEC
    return metadata.model_copy(update={"partition_specs": [spec], "default_spec_id": spec.spec_id})
