"""Reading a snapshot's manifest list.

    AGS1 stream  →  Avro file  →  manifest_file records
                    └ metadata: snapshot-id, parent-snapshot-id ("null" for none), sequence-number, first-row-id, format-version

The header is authenticated with the file, the same numbers in the table's metadata.json are not: callers compare the two.

Raises:
    AuthenticationError, TamperedFileError: from the AGS1 layer, naming the file.
    FormatError: the decrypted bytes are not a manifest list of version 2 or 3 (naming the file).

Specification: "Manifest Lists" of the Iceberg table specification.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.manifest import ManifestContent, PartitionFieldSummary

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.manifests.avro_reader import AvroContainer, RecordTypes
from tablecrypt.manifests.manifest_file import EncryptedManifestFile
from tablecrypt.manifests.schemas import (
    FORMAT_VERSION,
    MANIFEST_CONTENT_FIELD_ID,
    MANIFEST_LIST_SCHEMA,
    PARTITION_SUMMARY_ELEMENT_ID,
    ROOT_STRUCT,
)

_MANIFEST_TYPES: Final = RecordTypes[EncryptedManifestFile](
    schema=MANIFEST_LIST_SCHEMA,
    structs={ROOT_STRUCT: EncryptedManifestFile, PARTITION_SUMMARY_ELEMENT_ID: PartitionFieldSummary},
    enums={MANIFEST_CONTENT_FIELD_ID: ManifestContent},
)
VERSION_WITHOUT_ROW_IDS: Final = 2
"""Snapshots from before a table's upgrade to version 3 keep lists of version 2, which Java encrypts alike."""

_NO_PARENT: Final = "null"
_MAX_LONG: Final = 2**63 - 1
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,18})", re.ASCII)


@dataclass(frozen=True)
class ManifestListHeader:
    """What a manifest list says about its own snapshot."""

    snapshot_id: int
    parent_snapshot_id: int | None
    sequence_number: int
    first_row_id: int | None
    format_version: int


@dataclass(frozen=True)
class ManifestList:
    """A decrypted manifest list: its header and its rows in the file's order."""

    header: ManifestListHeader
    manifests: list[EncryptedManifestFile]


def read_manifest_list(io: EncryptingFileIO, location: str, key_metadata: StandardKeyMetadata) -> ManifestList:
    """Decrypt and parse the manifest list at `location`."""
    with io.decrypting_input(location, key_metadata).open() as stream:
        plaintext = stream.read()
    return parse_manifest_list(plaintext, location)


def parse_manifest_list(plaintext: bytes, location: str) -> ManifestList:
    """Parse a manifest list's plaintext."""
    container = AvroContainer(plaintext, location, _MANIFEST_TYPES)
    return ManifestList(_header(container.metadata, location), list(container))


def _header(metadata: Mapping[str, str], location: str) -> ManifestListHeader:
    format_version = _number(metadata, "format-version", location)
    if format_version not in (VERSION_WITHOUT_ROW_IDS, FORMAT_VERSION):
        raise FormatError(f"{location}: a manifest list of format version {format_version}, which is not read here")
    return ManifestListHeader(
        snapshot_id=_number(metadata, "snapshot-id", location),
        parent_snapshot_id=_parent(metadata, location),
        sequence_number=_count(metadata, "sequence-number", location),
        first_row_id=None if format_version == VERSION_WITHOUT_ROW_IDS else _count(metadata, "first-row-id", location),
        format_version=format_version,
    )


def _parent(metadata: Mapping[str, str], location: str) -> int | None:
    if metadata.get("parent-snapshot-id") == _NO_PARENT:
        return None
    return _number(metadata, "parent-snapshot-id", location)


def _count(metadata: Mapping[str, str], key: str, location: str) -> int:
    value = _number(metadata, key, location)
    if value < 0:
        raise FormatError(f"{location}: the manifest list's {key} is negative: {value}")
    return value


def _number(metadata: Mapping[str, str], key: str, location: str) -> int:
    text = metadata.get(key)
    if text is None:
        raise FormatError(f"{location}: the manifest list's header has no {key}")
    if not _NUMBER.fullmatch(text) or abs(int(text)) > _MAX_LONG:
        raise FormatError(f"{location}: the manifest list's {key} is not a 64-bit number: {text[:32]!r}")
    return int(text)
