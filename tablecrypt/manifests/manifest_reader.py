"""Reading the entries of one manifest.

    AGS1 stream  →  Avro file (metadata: schema, partition-spec, partition-spec-id, format-version, content)  →  manifest_entry records

The manifest's key metadata comes from the manifest list's row, so a manifest that was swapped, cut or altered fails to authenticate.
Inheritance is applied elsewhere (inheritance.py): what is returned here is what the file says.

Raises:
    AuthenticationError, TamperedFileError: from the AGS1 layer, naming the file.
    FormatError: the decrypted bytes are not a manifest, or not of the content that the manifest list says.

Specification: "Manifests" of the Iceberg table specification.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestEntryStatus

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.manifests.avro_reader import AvroContainer, RecordTypes
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.manifests.schemas import (
    DATA_FILE_FIELD_ID,
    ENTRY_READ_SCHEMA,
    FILE_CONTENT_FIELD_ID,
    FILE_FORMAT_FIELD_ID,
    ROOT_STRUCT,
    STATUS_FIELD_ID,
)

CONTENT_NAMES: Final = {ManifestContent.DATA: "data", ManifestContent.DELETES: "deletes"}

_HEADER_LENGTH: Final = 1024 * 1024
"""Plaintext bytes of an AGS1 block, in which any header fits."""

_ENTRY_TYPES: Final = RecordTypes[ManifestEntry](
    schema=ENTRY_READ_SCHEMA,
    structs={ROOT_STRUCT: ManifestEntry, DATA_FILE_FIELD_ID: EncryptedDataFile},
    enums={STATUS_FIELD_ID: ManifestEntryStatus, FILE_FORMAT_FIELD_ID: FileFormat, FILE_CONTENT_FIELD_ID: DataFileContent},
)


@dataclass(frozen=True)
class OpenedManifest:
    """A decrypted manifest: its Avro header's metadata, and its entries, deleted ones too, in the file's order."""

    metadata: Mapping[str, str]
    entries: list[ManifestEntry]


def read_entries(io: EncryptingFileIO, location: str, key_metadata: StandardKeyMetadata, content: ManifestContent) -> list[ManifestEntry]:
    """Return the entries of `read_manifest`."""
    return read_manifest(io, location, key_metadata, content).entries


def read_manifest(io: EncryptingFileIO, location: str, key_metadata: StandardKeyMetadata, content: ManifestContent) -> OpenedManifest:
    """Decrypt the manifest at `location`.

    The whole plaintext is in memory while it is decoded: manifests are 8 MB by default (`commit.manifest.target-size-bytes`).
    """
    with io.decrypting_input(location, key_metadata).open() as stream:
        plaintext = stream.read()
    return parse_manifest(plaintext, location, content)


def read_manifest_header(io: EncryptingFileIO, location: str, key_metadata: StandardKeyMetadata) -> Mapping[str, str]:
    """Decrypt the first block of the manifest at `location`, and return its Avro header's metadata."""
    with io.decrypting_input(location, key_metadata).open() as stream:
        return AvroContainer(stream.read(_HEADER_LENGTH), location, _ENTRY_TYPES).metadata


def parse_manifest(plaintext: bytes, location: str, content: ManifestContent) -> OpenedManifest:
    """Parse a manifest's plaintext."""
    container = AvroContainer(plaintext, location, _ENTRY_TYPES)
    written = container.metadata.get("content", CONTENT_NAMES[ManifestContent.DATA])
    if written != CONTENT_NAMES[content]:
        raise FormatError(f"{location}: the manifest says it holds {written!r}, the manifest list {CONTENT_NAMES[content]!r}")
    return OpenedManifest(container.metadata, list(container))
