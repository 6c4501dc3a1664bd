"""A manifest as its manifest list describes it: PyIceberg's ManifestFile with the fields of version 3, which opens with its own key.

The row of an (encrypted) manifest list holds the manifest's key metadata, so a manifest needs no key but the one it carries. PyIceberg's
scan planning and commits call `fetch_manifest_entry` and get decrypted, complete entries.

    AGS1 stream  →  Avro file (metadata: schema, partition-spec, partition-spec-id, format-version, content)  →  manifest_entry records

The manifest's key metadata comes from the manifest list's row, so a manifest that was swapped, cut or altered fails to authenticate.

What an entry inherits from its manifest, as Iceberg Java's ManifestReader does it:

* snapshot id: the manifest's, where the entry has none.
* sequence number and file sequence number: the manifest's, where an ADDED entry has none (any entry, if the manifest's is 0).
* partition spec id: the manifest's, always.
* first_row_id, in a manifest that has one: an entry that is not DELETED and has none gets the manifest's first_row_id plus the record
  counts of the entries before it that got theirs here. Entries that have one keep it and move nothing.
* first_row_id, in a committed manifest that has none: null for all. A manifest that this commit has just written keeps what it says.

Raises:
    AuthenticationError, TamperedFileError: from the AGS1 layer, naming the file.
    FormatError: the decrypted bytes are not a manifest, or not of the content that the manifest list says.
    PlaintextRefusedError: an entry that is not DELETED and whose file has no key metadata.

Specification: "Manifests", "Manifest Lists", "Sequence Number Inheritance" and "First Row ID Inheritance" of the Iceberg table
specification.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from pyiceberg.io import FileIO
from pyiceberg.manifest import UNASSIGNED_SEQ, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile, PartitionFieldSummary
from pyiceberg.typedef import TableVersion

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError, PlaintextRefusedError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, encrypting_io
from tablecrypt.manifests.avro_reader import AvroContainer
from tablecrypt.manifests.entry_columns import ENTRY_TYPES, ManifestContainer
from tablecrypt.manifests.records import FIRST_ROW_ID, FORMAT_VERSION, MANIFEST_FILE_POSITIONS, SensitiveRecord
from tablecrypt.manifests.stated_layout import StatedLayout

_ADDED = ManifestEntryStatus.ADDED
_DELETED = ManifestEntryStatus.DELETED
CONTENT_NAMES: Final = {ManifestContent.DATA: "data", ManifestContent.DELETES: "deletes"}
_HEADER_LENGTH: Final = 1024 * 1024
"""Plaintext bytes of an AGS1 block, in which a header fits but for that of rows copied from very many files."""
KEY_METADATA = MANIFEST_FILE_POSITIONS["key_metadata"]
PARTITIONS = MANIFEST_FILE_POSITIONS["partitions"]
MANIFEST_FIRST_ROW_ID = MANIFEST_FILE_POSITIONS["first_row_id"]
_FIELDS = len(MANIFEST_FILE_POSITIONS)


def inherit(entries: list[ManifestEntry], manifest: ManifestFile, first_row_id: int | None, encrypted: bool = True) -> None:
    """Complete `entries`, all of one manifest and in its order, in place.

    Args:
        encrypted: whether live files must have key metadata; not those of a plain table.
    """
    sequence_number = manifest.sequence_number
    keeps_row_ids = first_row_id is None and sequence_number == UNASSIGNED_SEQ
    next_row_id = first_row_id

    for entry in entries:
        status, data_file = entry.status, entry.data_file
        if entry.snapshot_id is None and manifest.added_snapshot_id is not None:
            entry.snapshot_id = manifest.added_snapshot_id
        # Sequence number 0: a manifest from before version 2, whose entries have no numbers.
        if status == _ADDED or sequence_number == 0:
            _inherit_sequence_numbers(entry, sequence_number)
        data_file.spec_id = manifest.partition_spec_id
        # A live file without a key would be read as plaintext, which any writer of the storage could exchange.
        if encrypted and status != _DELETED and not data_file.key_metadata:
            raise PlaintextRefusedError(data_file.file_path, f"the entry in {manifest.manifest_path} has no key metadata")

        if next_row_id is None:
            if not keeps_row_ids:
                data_file[FIRST_ROW_ID] = None
        elif status != _DELETED and data_file[FIRST_ROW_ID] is None:
            data_file[FIRST_ROW_ID] = next_row_id
            next_row_id += data_file.record_count


def _inherit_sequence_numbers(entry: ManifestEntry, sequence_number: int) -> None:
    if entry.sequence_number is None:
        entry.sequence_number = sequence_number
    if entry.file_sequence_number is None:
        entry.file_sequence_number = sequence_number


@dataclass(frozen=True)
class DecryptedManifest:
    """A decrypted manifest: its Avro header's metadata, and its entries, deleted ones too, in the file's order."""

    metadata: Mapping[str, str]
    entries: list[ManifestEntry]


def read_manifest(io: EncryptingFileIO, location: str, key_metadata: StandardKeyMetadata, content: ManifestContent) -> DecryptedManifest:
    """Decrypt the manifest at `location`.

    The whole plaintext is in memory while it is decoded: manifests are 8 MB by default (`commit.manifest.target-size-bytes`).
    """
    return _parsed(open_manifest(io, location, key_metadata, content))


def open_manifest(io: EncryptingFileIO, location: str, key_metadata: StandardKeyMetadata, content: ManifestContent) -> ManifestContainer:
    """Decrypt the manifest at `location`, and decode none of its entries yet."""
    with io.decrypting_input(location, key_metadata).open() as stream:
        plaintext = stream.read()
    return _container(plaintext, location, content)


def read_manifest_header(io: EncryptingFileIO, location: str, key_metadata: StandardKeyMetadata) -> Mapping[str, str]:
    """Decrypt the first block of the manifest at `location`, more only for a longer header, and return its Avro header's metadata."""
    with io.decrypting_input(location, key_metadata).open() as stream:
        start = stream.read(_HEADER_LENGTH)
        try:
            return AvroContainer(start, location, ENTRY_TYPES).metadata
        except FormatError:
            rest = stream.read()
            if not rest:
                raise

        return AvroContainer(start + rest, location, ENTRY_TYPES).metadata


def parse_manifest(plaintext: bytes, location: str, content: ManifestContent) -> DecryptedManifest:
    """Parse a manifest's plaintext."""
    return _parsed(_container(plaintext, location, content))


def _parsed(container: ManifestContainer) -> DecryptedManifest:
    return DecryptedManifest(container.metadata, list(container))


def _container(plaintext: bytes, location: str, content: ManifestContent) -> ManifestContainer:
    container = AvroContainer(plaintext, location, ENTRY_TYPES)
    written = container.metadata.get("content", CONTENT_NAMES[ManifestContent.DATA])
    # Both kinds have one record schema: delete files that are listed as data would come up as rows, and their deletes would be lost.
    if written != CONTENT_NAMES[content]:
        raise FormatError(f"{location}: the manifest says it holds {written!r}, the manifest list {CONTENT_NAMES[content]!r}")
    return container


class EncryptedManifestFile(SensitiveRecord, ManifestFile):
    """One row of a version 3 manifest list. Equal to another when the path is, as PyIceberg's."""

    _layout: StatedLayout | None = None

    def __init__(self, *data: Any) -> None:
        super().__init__(*data, *[None] * (_FIELDS - len(data)))

    @classmethod
    def from_args(cls, _table_format_version: TableVersion = FORMAT_VERSION, **arguments: Any) -> Self:
        """Make a manifest's row from named fields of the version 3 schema; those not named are null."""
        return cls(*(arguments.get(name) for name in MANIFEST_FILE_POSITIONS))

    @classmethod
    def of(cls, manifest: ManifestFile) -> EncryptedManifestFile:
        """Return a copy of `manifest` with the fields of version 3."""
        row = cls(*(manifest[position] for position in range(len(manifest))))
        if isinstance(manifest, EncryptedManifestFile) and manifest._layout is not None:
            row.stated_by(manifest._layout)
        return row

    def copied(self) -> EncryptedManifestFile:
        """Return the row as its list has it, in an object that shares with this one nothing that can be changed."""
        values = self.values()
        if self.partitions is not None:
            values[PARTITIONS] = [PartitionFieldSummary(*(each[field] for field in range(len(each)))) for each in self.partitions]
        return EncryptedManifestFile(*values)

    @property
    def first_row_id(self) -> int | None:
        """The row id that the first row without one gets; null in delete manifests and until the manifest list is written."""
        return self[MANIFEST_FIRST_ROW_ID]  # type: ignore[no-any-return]

    @first_row_id.setter
    def first_row_id(self, value: int | None) -> None:
        self[MANIFEST_FIRST_ROW_ID] = value

    def with_key_metadata(self, key_metadata: StandardKeyMetadata) -> EncryptedManifestFile:
        """Return a copy that carries `key_metadata`, which must know the length of the ciphertext."""
        # AGS1 does not mark its last block: this length, not the store's, is what shows that blocks were cut off the end.
        if key_metadata.file_length is None:
            raise ConfigurationError(f"{self.manifest_path}: the key metadata has no file_length: the file is not closed yet")
        values = self.values()
        values[KEY_METADATA] = key_metadata.encode()
        return EncryptedManifestFile(*values)

    def open_key_metadata(self) -> StandardKeyMetadata:
        """Return this manifest's DEK, AAD prefix and ciphertext length.

        Raises:
            PlaintextRefusedError: there is no key metadata.
            FormatError: it is not of the standard form.
        """
        if not self.key_metadata:
            raise PlaintextRefusedError(self.manifest_path, "the manifest has no key metadata in its manifest list")
        try:
            return StandardKeyMetadata.decode(self.key_metadata)
        except FormatError as error:
            raise FormatError(f"{self.manifest_path}: its key metadata: {error}") from error

    def stated_by(self, layout: StatedLayout) -> Self:
        """Take over what the table's metadata says: a manifest that is read and contradicts it is refused. Returns this row."""
        self._layout = layout
        return self

    def read(self, io: EncryptingFileIO) -> DecryptedManifest:
        """Decrypt the manifest, as it is; nothing is inherited.

        Raises:
            PlaintextRefusedError, AuthenticationError, FormatError: as `fetch_manifest_entry`.
            TamperedFileError: its header contradicts the metadata of the table.
        """
        opened = read_manifest(io, self.manifest_path, self.open_key_metadata(), self.content)
        self.check_layout(opened.metadata)
        return opened

    def check_layout(self, header: Mapping[str, str]) -> None:
        """Hold the metadata of this manifest's Avro header against that of the table.

        Raises:
            TamperedFileError: they contradict each other.
        """
        if self._layout is not None:
            self._layout.check(header, self.partition_spec_id, self.manifest_path)

    def check_header(self, io: FileIO) -> None:
        """Hold this manifest's header against the table's metadata without reading its entries; once for each manifest and metadata.

        Raises:
            TamperedFileError, AuthenticationError, FormatError: as `read`.
        """
        if self._layout is None or self._layout.has_checked(self.manifest_path) or not isinstance(io, EncryptingFileIO):
            return
        header = read_manifest_header(io, self.manifest_path, self.open_key_metadata())
        self._layout.check(header, self.partition_spec_id, self.manifest_path)

    def fetch_manifest_entry(self, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:
        """Decrypt the manifest and return its entries with all that they inherit, in the file's order.

        Args:
            io: the table's EncryptingFileIO.
            discard_deleted: leave out the entries of status DELETED.

        Raises:
            PlaintextRefusedError: the manifest, or the file of a live entry, has no key metadata.
            AuthenticationError: the manifest is not what was written (naming it).
            FormatError: the decrypted manifest is malformed.
        """
        entries = self.read(encrypting_io(io, f"{self.manifest_path}: an encrypted manifest")).entries
        inherit(entries, self, self.first_row_id)
        if not discard_deleted:
            return entries
        return [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ManifestFile) and self.manifest_path == other.manifest_path

    def __hash__(self) -> int:
        return hash(self.manifest_path)

    def __repr__(self) -> str:
        return f"EncryptedManifestFile[{self.content!r}, {self.manifest_path}, {self.manifest_length} bytes]"
