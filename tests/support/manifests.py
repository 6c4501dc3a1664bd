"""Builders of manifests, manifest lists and their entries, for tests that need one in storage."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.manifests import EncryptedDataFile, EncryptedManifestFile, ManifestListWriterV3, ManifestWriterV3
from tablecrypt.manifests.manifest_list import protected_columns_header

SNAPSHOT_ID = 4231690591278360264
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
UNPARTITIONED = PartitionSpec()


def new_key(length: int = 16) -> StandardKeyMetadata:
    """Fresh key metadata for one file."""
    return StandardKeyMetadata.generate(length, secrets.token_bytes)


def local_io() -> EncryptingFileIO:
    """An encrypting FileIO over the local file system."""
    return EncryptingFileIO(PyArrowFileIO())


def data_file(path: str = "s3://bucket/data/a.parquet", **fields: Any) -> EncryptedDataFile:
    """A data file with key metadata, of 10 records, unless told otherwise."""
    defaults = {
        "content": DataFileContent.DATA,
        "file_path": path,
        "file_format": FileFormat.PARQUET,
        "partition": Record(),
        "record_count": 10,
        "file_size_in_bytes": 1000,
        "key_metadata": new_key().with_file_length(1000).encode(),
    }
    return EncryptedDataFile.from_args(**{**defaults, **fields})


def entry(
    status: ManifestEntryStatus = ManifestEntryStatus.ADDED,
    snapshot_id: int | None = SNAPSHOT_ID,
    sequence_number: int | None = None,
    file_sequence_number: int | None = None,
    **fields: Any,
) -> ManifestEntry:
    """A manifest entry; `fields` are its data file's."""
    return ManifestEntry(status, snapshot_id, sequence_number, file_sequence_number, data_file(**fields))


def file_of(each: ManifestEntry) -> EncryptedDataFile:
    """The entry's data file, typed with the fields of version 3."""
    return EncryptedDataFile.of(each.data_file)


def write_manifest(
    io: EncryptingFileIO,
    location: Path | str,
    entries: Iterable[ManifestEntry],
    spec: PartitionSpec = UNPARTITIONED,
    schema: Schema = SCHEMA,
    content: ManifestContent = ManifestContent.DATA,
    compression: str = "gzip",
) -> EncryptedManifestFile:
    """Write one manifest and return its row, with no sequence number and no first row id yet."""
    output = io.encrypting_output(str(location), new_key())
    with ManifestWriterV3(spec, schema, output, SNAPSHOT_ID, compression, content) as writer:
        for each in entries:
            writer.add_entry(each)
    return writer.to_manifest_file()


def write_manifest_list(
    io: EncryptingFileIO,
    location: Path | str,
    manifests: Iterable[EncryptedManifestFile],
    sequence_number: int = 1,
    first_row_id: int = 0,
    parent_snapshot_id: int | None = None,
    protected_columns: Iterable[int] = (),
) -> StandardKeyMetadata:
    """Write a manifest list and return its key metadata."""
    output = io.encrypting_output(str(location), new_key())
    numbers = SNAPSHOT_ID, parent_snapshot_id, sequence_number, first_row_id
    with ManifestListWriterV3(output, *numbers, "gzip", protected_columns_header(protected_columns)) as writer:
        writer.add_manifests(list(manifests))
    return output.key_metadata


def encrypt_file(io: EncryptingFileIO, location: Path | str, plaintext: bytes) -> StandardKeyMetadata:
    """Write any plaintext as an AGS1 file, as a writer that has the keys but not the format might."""
    output = io.encrypting_output(str(location), new_key())
    with output.create() as stream:
        stream.write(plaintext)
    return output.key_metadata


def decrypt_file(io: EncryptingFileIO, location: Path | str, key_metadata: StandardKeyMetadata) -> bytes:
    """Decrypt a whole AGS1 file."""
    with io.decrypting_input(str(location), key_metadata).open() as stream:
        return stream.read()
