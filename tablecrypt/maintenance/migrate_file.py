"""One plaintext data or delete file of a table, encrypted under a DEK of its own without decoding a value.

    Parquet    module by module (see parquet/rewrite.py)
    Avro       as an AGS1 stream, byte for byte

Raises FormatError, naming the file, for one that is not of the format that its manifest says; nothing is left of the new file then.
"""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass
from typing import Final

from pyiceberg.manifest import DataFile, FileFormat

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.files.raw_output import RawContent
from tablecrypt.maintenance.runner import FileDone, FileWork
from tablecrypt.parquet.keys import FileKeys
from tablecrypt.parquet.writing import encrypt
from tablecrypt.table.data_keys import FreshKeys
from tablecrypt.table.failed_write import deleting_on_error

_CHUNK_LENGTH: Final = 4 * 1024 * 1024


@dataclass(frozen=True)
class MigrateWork:
    """Which plaintext file, the folder for its ciphertext, and how many bytes its DEK has."""

    location: str
    folder: str
    file_format: str
    data_key_length: int


def migrate_work(file: DataFile, folder: str, data_key_length: int) -> FileWork[MigrateWork]:
    """Return the work of encrypting one file of a plain table."""
    return FileWork(MigrateWork(file.file_path, folder, file.file_format.value, data_key_length), size=file.file_size_in_bytes)


def migrate_file(io: EncryptingFileIO, work: MigrateWork, keys: tuple[StandardKeyMetadata, ...]) -> FileDone[str]:
    """Write the encrypted file and return its location and key metadata, which knows the file's length."""
    new = FreshKeys(work.data_key_length).new_key_metadata()
    location = f"{work.folder}/{uuid.uuid4()}.{work.file_format.lower()}"
    with deleting_on_error(io, [location]):
        encrypt_one = _encrypt_parquet if work.file_format == FileFormat.PARQUET.value else _encrypt_avro
        return FileDone(location, (new.with_file_length(encrypt_one(io, work.location, location, new)),))


def _encrypt_parquet(io: EncryptingFileIO, source: str, target: str, new: StandardKeyMetadata) -> int:
    with io.plaintext_input(source).open() as stored, io.raw_output(target, RawContent.SELF_ENCRYPTED).create() as sink:
        return encrypt(stored, sink, FileKeys.of_table_file(new), location=source)


def _encrypt_avro(io: EncryptingFileIO, source: str, target: str, new: StandardKeyMetadata) -> int:
    output = io.encrypting_output(target, new)
    with io.plaintext_input(source).open() as stored, output.create() as sink:
        shutil.copyfileobj(stored, sink, _CHUNK_LENGTH)
    return len(output)
