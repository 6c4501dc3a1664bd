"""A snapshot's manifest list: reading it, and writing it encrypted.

    AGS1 stream  →  Avro file  →  manifest_file records
                    └ metadata: snapshot-id, parent-snapshot-id ("null" for none), sequence-number, first-row-id, format-version;
                      where columns are protected: tablecrypt.protected-columns, their field ids with commas between them, and
                      tablecrypt.column-keys, each key that files of the table may be under as <field id>:<key-id>, with commas too
                      tablecrypt.table-state: the table's uuid and digests of its state, see table_state.py
                      of a share: tablecrypt.share-secret, what all of its states have in common, as base64

The header is authenticated with the file, the same numbers in the table's metadata.json are not: callers compare the two.

In writing, the commit's numbers reach its manifests: one without a sequence number gets the commit's, and a data manifest without
first_row_id gets the next free row id, which then moves on by the manifest's existing and added rows. (Existing rows too, because existing
files that came from before version 3 may still be without row ids.) Delete manifests have no first_row_id.

Raises:
    AuthenticationError, TamperedFileError: from the AGS1 layer, naming the file.
    FormatError: the decrypted bytes are not a manifest list of version 2 or 3 (naming the file); a manifest to list whose key metadata
        cannot be read back.
    PlaintextRefusedError: a manifest to list without key metadata.
    ConfigurationError: a manifest to list without sequence number from another snapshot, or without row counts.

Specification: "Manifest Lists" and "First Row ID Assignment" of the Iceberg table specification.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from pyiceberg.manifest import UNASSIGNED_SEQ, ManifestContent, ManifestFile, ManifestListWriter, PartitionFieldSummary
from pyiceberg.typedef import EMPTY_DICT

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, EncryptingOutputFile
from tablecrypt.manifests.avro_container import AvroContainer, BlockAvroOutputFile, RecordTypes
from tablecrypt.manifests.manifest_file import EncryptedManifestFile
from tablecrypt.manifests.records import (
    FORMAT_VERSION,
    MANIFEST_CONTENT_FIELD_ID,
    MANIFEST_LIST_SCHEMA,
    MANIFEST_RECORDS,
    PARTITION_SUMMARY_ELEMENT_ID,
    ROOT_STRUCT,
)
from tablecrypt.manifests.table_state import ListedTableState, table_state_in

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
_FIELD_IDS: Final = re.compile(r"[1-9][0-9]{0,9}(,[1-9][0-9]{0,9})*", re.ASCII)
_COLUMN_KEY_IDS: Final = re.compile(r"[1-9][0-9]{0,9}:[^,]+(,[1-9][0-9]{0,9}:[^,]+)*", re.ASCII)
_ROW_BYTES: Final = 1024
_SUMMARY_BYTES: Final = 256
"""Of memory, for a row of a list and for each partition field that it sums up."""
PROTECTED_COLUMNS: Final = "tablecrypt.protected-columns"
COLUMN_KEYS: Final = "tablecrypt.column-keys"
SHARE_SECRET: Final = "tablecrypt.share-secret"
SHARE_SECRET_BYTES: Final = 32


@dataclass(frozen=True)
class ManifestListHeader:
    """What a manifest list says about its own snapshot.

    `protected_columns` are the field ids of columns that had their own master keys then, `column_keys` the ids of the keys of columns
    that the table had, each with its column's field id, `table_state` is what the table was. Engines that know nothing of them name none.
    `share_secret` is that of a share: whoever has opened one of its states knows it.
    """

    snapshot_id: int
    parent_snapshot_id: int | None
    sequence_number: int
    first_row_id: int | None
    format_version: int
    protected_columns: frozenset[int] = frozenset()
    column_keys: frozenset[tuple[int, str]] = frozenset()
    table_state: ListedTableState | None = None
    share_secret: Secret | None = None


@dataclass(frozen=True)
class ManifestList:
    """A decrypted manifest list: its header and its rows in the file's order."""

    header: ManifestListHeader
    manifests: list[EncryptedManifestFile]

    @cached_property
    def size(self) -> int:
        """How many bytes of memory it takes, about."""
        summaries = sum(len(row.partitions or ()) for row in self.manifests)
        return len(self.manifests) * _ROW_BYTES + summaries * _SUMMARY_BYTES

    def copied(self) -> ManifestList:
        """Return the same list with copies of its rows."""
        return ManifestList(self.header, [row.copied() for row in self.manifests])


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
        protected_columns=_field_ids(metadata, location),
        column_keys=_column_keys(metadata, location),
        table_state=table_state_in(metadata, location),
        share_secret=_share_secret(metadata, location),
    )


def _parent(metadata: Mapping[str, str], location: str) -> int | None:
    if metadata.get("parent-snapshot-id") == _NO_PARENT:
        return None
    return _number(metadata, "parent-snapshot-id", location)


def _field_ids(metadata: Mapping[str, str], location: str) -> frozenset[int]:
    text = metadata.get(PROTECTED_COLUMNS)
    if text is None:
        return frozenset()
    if not _FIELD_IDS.fullmatch(text):
        raise FormatError(f"{location}: the manifest list's {PROTECTED_COLUMNS} are no field ids: {text[:32]!r}")
    return frozenset(int(each) for each in text.split(","))


def _column_keys(metadata: Mapping[str, str], location: str) -> frozenset[tuple[int, str]]:
    text = metadata.get(COLUMN_KEYS)
    if text is None:
        return frozenset()
    if not _COLUMN_KEY_IDS.fullmatch(text):
        raise FormatError(f"{location}: the manifest list's {COLUMN_KEYS} are no ids of keys: {text[:32]!r}")
    pairs = (each.partition(":") for each in text.split(","))
    return frozenset((int(field_id), key_id) for field_id, _, key_id in pairs)


def _share_secret(metadata: Mapping[str, str], location: str) -> Secret | None:
    try:
        return share_secret_in(metadata[SHARE_SECRET]) if SHARE_SECRET in metadata else None
    except ValueError:
        raise FormatError(f"{location}: the manifest list's {SHARE_SECRET} is none") from None


def share_secret_in(text: str) -> Secret:
    """Return the secret of a share that `share_secret_text` wrote. ValueError for other text."""
    secret = Secret(base64.b64decode(text, validate=True))
    if len(secret) != SHARE_SECRET_BYTES:
        raise ValueError("a share's secret has another length")
    return secret


def share_secret_text(secret: Secret) -> str:
    """Return the secret of a share as lists and records have it: as base64."""
    return base64.b64encode(secret.reveal()).decode()


def protected_columns_header(field_ids: Iterable[int], column_keys: Iterable[tuple[int, str]] = ()) -> dict[str, str]:
    """Return what the header of a manifest list says of protected columns and of their keys: nothing where there are none."""
    named = {
        PROTECTED_COLUMNS: ",".join(str(each) for each in sorted(field_ids)),
        COLUMN_KEYS: ",".join(f"{field_id}:{key_id}" for field_id, key_id in sorted(column_keys)),
    }
    return {name: text for name, text in named.items() if text}


def further_fields(
    protected_columns: Iterable[int],
    column_keys: Iterable[tuple[int, str]],
    table_state: ListedTableState | None,
    share_secret: Secret | None = None,
) -> dict[str, str]:
    """Return what the header of a manifest list says beside what the specification has it say."""
    of_table = {} if table_state is None else table_state.header_fields()
    of_share = {} if share_secret is None else {SHARE_SECRET: share_secret_text(share_secret)}
    return {**protected_columns_header(protected_columns, column_keys), **of_table, **of_share}


def _count(metadata: Mapping[str, str], key: str, location: str) -> int:
    value = _number(metadata, key, location)
    if value < 0:
        raise FormatError(f"{location}: the manifest list's {key} is negative: {value}")
    return value


def _number(metadata: Mapping[str, str], key: str, location: str) -> int:
    text = metadata.get(key)
    if text is None:
        raise FormatError(f"{location}: the manifest list's header has no {key}")
    # int() also takes "+1", " 1" and "1_0": two readers must not see two numbers in one header.
    if not _NUMBER.fullmatch(text) or abs(int(text)) > _MAX_LONG:
        raise FormatError(f"{location}: the manifest list's {key} is not a 64-bit number: {text[:32]!r}")
    return int(text)


class ManifestListWriterV3(ManifestListWriter):
    """PyIceberg's manifest list writer for version 3 and an encrypting output file; use as a context manager.

    Left by an exception, the file is abandoned: `complete` stays False and the output file has no length.
    What its header says beside the numbers is given in `stated`: see `further_fields`.
    """

    def __init__(
        self,
        output_file: EncryptingOutputFile,
        snapshot_id: int,
        parent_snapshot_id: int | None,
        sequence_number: int,
        first_row_id: int,
        compression: str,
        stated: Mapping[str, str] = EMPTY_DICT,
    ) -> None:
        header = {
            "snapshot-id": str(snapshot_id),
            "parent-snapshot-id": "null" if parent_snapshot_id is None else str(parent_snapshot_id),
            "sequence-number": str(sequence_number),
            "first-row-id": str(first_row_id),
            "format-version": str(FORMAT_VERSION),
            **stated,
        }
        super().__init__(FORMAT_VERSION, output_file, header)
        self.snapshot_id = snapshot_id
        self.sequence_number = sequence_number
        self.next_row_id = first_row_id
        self.complete = False
        self.avro_file = BlockAvroOutputFile[EncryptedManifestFile](
            output_file=output_file, records=MANIFEST_RECORDS, metadata=header, compression=compression
        )

    def __enter__(self) -> ManifestListWriterV3:
        self.avro_file.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        """Complete the file, or abandon it."""
        self.avro_file.__exit__(*raised)
        self.complete = raised[0] is None

    def add_manifests(self, manifest_files: list[ManifestFile]) -> ManifestListWriterV3:
        """Write one row for each manifest, in the order given."""
        for manifest in manifest_files:
            self.avro_file.write_block([self.prepare_manifest(manifest)])
        return self

    def prepare_manifest(self, manifest_file: ManifestFile) -> EncryptedManifestFile:
        """Return a copy of the manifest's row with its numbers assigned. Moves `next_row_id`."""
        row = EncryptedManifestFile.of(manifest_file)
        # Tried before the list exists: one row that no reader can open would make the whole snapshot unreadable.
        row.open_key_metadata()
        self._assign_sequence_numbers(row)
        self._assign_first_row_id(row)
        return row

    def _assign_sequence_numbers(self, row: EncryptedManifestFile) -> None:
        if UNASSIGNED_SEQ not in (row.sequence_number, row.min_sequence_number):
            return
        # An older manifest would get the number of this commit, and its deletes would take rows that were written after them.
        if row.added_snapshot_id != self.snapshot_id:
            raise ConfigurationError(f"{row.manifest_path}: no sequence number, but from another snapshot ({row.added_snapshot_id})")

        if row.sequence_number == UNASSIGNED_SEQ:
            row.sequence_number = self.sequence_number
        if row.min_sequence_number == UNASSIGNED_SEQ:
            row.min_sequence_number = self.sequence_number

    def _assign_first_row_id(self, row: EncryptedManifestFile) -> None:
        if row.content != ManifestContent.DATA:
            row.first_row_id = None
            return
        if row.first_row_id is not None:
            return
        if row.existing_rows_count is None or row.added_rows_count is None:
            raise ConfigurationError(f"{row.manifest_path}: no row counts, so its rows cannot be given ids")

        row.first_row_id = self.next_row_id
        self.next_row_id += row.existing_rows_count + row.added_rows_count
