"""One data or delete file under a fresh DEK and AAD prefix, without decoding a value.

    Parquet    module by module (see parquet/rewrite.py)
    Avro       AGS1 block by block

The new file is another object in the same folder, or in the table's own data folder where the old one lies elsewhere, as one that
`add_files` took in may. The old one stays as it was, for the snapshots that name it.

Raises TamperedFileError, naming the old file, where a module or block of it does not authenticate; nothing is left of the new file then.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final

from pyiceberg.manifest import DataFile, FileFormat

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError
from tablecrypt.files.deletion import DeletionScope
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.files.raw_output import RawContent
from tablecrypt.maintenance.runner import FileDone, FileWork
from tablecrypt.parquet.keys import FileKeys
from tablecrypt.parquet.rewrite import reencrypt
from tablecrypt.table.content_files import key_metadata_of
from tablecrypt.table.data_keys import FreshKeys
from tablecrypt.table.failed_write import deleting_on_error

_CHUNK_LENGTH: Final = 4 * 1024 * 1024


@dataclass(frozen=True)
class ReencryptWork:
    """Which file, of which format ("PARQUET" or "AVRO"), how many bytes its new DEK has, and the folder of the new file."""

    location: str
    file_format: str
    data_key_length: int
    folder: str


def reencrypt_work(file: DataFile, data_key_length: int, own_folders: DeletionScope, data_folder: str) -> FileWork[ReencryptWork]:
    """Return the work of re-encrypting one file of a table.

    Args:
        file: the old one.
        data_key_length: how many bytes the new DEK has.
        own_folders: of the table. Beside a file that lies elsewhere nothing is written: that place is somebody else's.
        data_folder: where the new file goes then.
    """
    is_own = own_folders.reason_against(file.file_path) is None
    folder = file.file_path.rpartition("/")[0] if is_own else data_folder
    work = ReencryptWork(file.file_path, file.file_format.value, data_key_length, folder)
    return FileWork(work, (key_metadata_of(file),), file.file_size_in_bytes)


def reencrypt_file(io: EncryptingFileIO, work: ReencryptWork, keys: tuple[StandardKeyMetadata, ...]) -> FileDone[str]:
    """Write the new file and return its location and key metadata, which knows the file's length."""
    (old,) = keys
    new = FreshKeys(work.data_key_length).new_key_metadata()
    location = f"{work.folder}/{uuid.uuid4()}.{work.file_format.lower()}"
    copy_one = {FileFormat.PARQUET.value: _copy_parquet, FileFormat.AVRO.value: _copy_avro}.get(work.file_format)
    if copy_one is None:
        raise FormatError(f"{work.location}: {work.file_format} files of encrypted tables are not known")
    with deleting_on_error(io, [location]):
        return FileDone(location, (new.with_file_length(copy_one(io, work.location, old, location, new)),))


def _copy_parquet(io: EncryptingFileIO, source: str, old: StandardKeyMetadata, target: str, new: StandardKeyMetadata) -> int:
    with io.raw_input(source).open() as stored, io.raw_output(target, RawContent.SELF_ENCRYPTED).create() as sink:
        return reencrypt(stored, sink, FileKeys.of_table_file(old), FileKeys.of_table_file(new), location=source)


def _copy_avro(io: EncryptingFileIO, source: str, old: StandardKeyMetadata, target: str, new: StandardKeyMetadata) -> int:
    output = io.encrypting_output(target, new)
    with io.decrypting_input(source, old).open() as plaintext, output.create() as sink:
        while chunk := plaintext.read(_CHUNK_LENGTH):
            sink.write(chunk)
    return len(output)
