"""The key of a data or delete file, and which kind of delete file an entry is.

Iceberg table spec, "Manifests" (data_file) and "Encryption".
"""

from __future__ import annotations

from copy import copy
from typing import Final

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError, PlaintextRefusedError
from tablecrypt.manifests.records import DATA_FILE_POSITIONS, EncryptedDataFile

_KEY_METADATA: Final = DATA_FILE_POSITIONS["key_metadata"]


def key_metadata_of(file: DataFile) -> StandardKeyMetadata:
    """Return the DEK, AAD prefix and length of a data or delete file.

    Raises:
        PlaintextRefusedError: the manifest names no key for it.
        FormatError: the key metadata is not StandardKeyMetadata version 1.
    """
    refuse_plaintext(file)
    try:
        return StandardKeyMetadata.decode(bytes(file.key_metadata or b""))
    except FormatError as error:
        raise FormatError(f"{file.file_path}: its key metadata: {error}") from error


def refuse_plaintext(file: DataFile) -> None:
    """Raise PlaintextRefusedError for a file that the manifest names no key for."""
    if not file.key_metadata:
        raise PlaintextRefusedError(file.file_path, "has no key metadata in its manifest, so it is not an encrypted file of this table")


def is_deletion_vector(file: DataFile) -> bool:
    """Whether a delete file entry is a deletion vector in a Puffin file."""
    return file.content == DataFileContent.POSITION_DELETES and file.file_format == FileFormat.PUFFIN


def with_key(file: DataFile, key_metadata: StandardKeyMetadata | None) -> EncryptedDataFile:
    """Return a copy of a file's entry with another key, or with none, to travel apart from it."""
    other = copy(EncryptedDataFile.of(file))
    other.spec_id = file.spec_id
    other[_KEY_METADATA] = None if key_metadata is None else key_metadata.encode()
    return other
