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

`ManifestWriterV3` writes a manifest in blocks of about 64 kB, with the Avro metadata that Iceberg Java writes: schema (the table's, as
JSON), partition-spec, partition-spec-id, format-version "3", content "data" or "deletes". A caller may add fields, which readers that do
not know them ignore. Its row for the manifest list has the length of the ciphertext, and key metadata that holds the DEK, the AAD prefix
and that same length; sequence number and first_row_id are left for the manifest list's writer.

Raises:
    AuthenticationError, TamperedFileError: from the AGS1 layer, naming the file.
    FormatError: the decrypted bytes are not a manifest, or not of the content that the manifest list says; an added entry claims a number
        of rows that no file has.
    PlaintextRefusedError: an entry that is not DELETED and whose file has no key metadata.
    ConfigurationError: an entry that does not belong into the manifest that is written (content, sequence number), or a manifest asked for
        before it is complete.

Specification: "Manifests", "Manifest Lists", "Sequence Number Inheritance" and "First Row ID Inheritance" of the Iceberg table
specification.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeAlias

from pydantic_core import to_json
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    UNASSIGNED_SEQ,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    PartitionFieldSummary,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import EMPTY_DICT, TableVersion

from tablecrypt.arguments import interruptible
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError, PlaintextRefusedError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, EncryptingOutputFile, encrypting_io
from tablecrypt.manifests.avro_container import AvroContainer, BlockAvroOutputFile, RecordTypes, avro_codec_name
from tablecrypt.manifests.records import (
    DATA_FILE_FIELD_ID,
    ENTRY_READ_SCHEMA,
    FILE_CONTENT_FIELD_ID,
    FILE_FORMAT_FIELD_ID,
    FIRST_ROW_ID,
    FORMAT_VERSION,
    MANIFEST_FILE_POSITIONS,
    ROOT_STRUCT,
    STATUS_FIELD_ID,
    EncryptedDataFile,
    SensitiveRecord,
    entry_records,
)
from tablecrypt.manifests.table_state import StatedLayout

ENTRY_TYPES: Final = RecordTypes[ManifestEntry](
    schema=ENTRY_READ_SCHEMA,
    structs={ROOT_STRUCT: ManifestEntry, DATA_FILE_FIELD_ID: EncryptedDataFile},
    enums={STATUS_FIELD_ID: ManifestEntryStatus, FILE_FORMAT_FIELD_ID: FileFormat, FILE_CONTENT_FIELD_ID: DataFileContent},
)
ManifestContainer: TypeAlias = AvroContainer[ManifestEntry]
_ADDED = ManifestEntryStatus.ADDED
_DELETED = ManifestEntryStatus.DELETED
CONTENT_NAMES: Final = {ManifestContent.DATA: "data", ManifestContent.DELETES: "deletes"}
COPIED_NAME_ENDING: Final = "-copied"
_HEADER_LENGTH: Final = 1024 * 1024
"""Plaintext bytes of an AGS1 block, in which a header fits but for that of rows copied from very many files."""
_MOST_ROWS: Final = 2**40
"""Of a file that is added."""
KEY_METADATA = MANIFEST_FILE_POSITIONS["key_metadata"]
PARTITIONS = MANIFEST_FILE_POSITIONS["partitions"]
MANIFEST_FIRST_ROW_ID = MANIFEST_FILE_POSITIONS["first_row_id"]


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


def lists_files(manifest: ManifestFile) -> bool:
    """Whether a manifest lists files that its snapshot has. One without any says what a snapshot removed."""
    return manifest.has_added_files() or manifest.has_existing_files()


def remembers_files(manifest: ManifestFile) -> bool:
    """Whether a manifest's name says that its header names files its rows were copied from (copied_files.py), and some are live."""
    # The name stands in the authenticated manifest list, so an attacker cannot hide a manifest from the check by renaming it.
    is_named = manifest.content == ManifestContent.DATA and manifest.manifest_path.endswith(f"{COPIED_NAME_ENDING}.avro")
    return is_named and bool(manifest.added_files_count or manifest.existing_files_count)


class EncryptedManifestFile(SensitiveRecord, ManifestFile):
    """One row of a version 3 manifest list. Equal to another when the path is, as PyIceberg's."""

    positions = MANIFEST_FILE_POSITIONS
    _layout: StatedLayout | None = None

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

    def read_with(self, schema_id: int) -> None:
        """Have this manifest held against what its rows are read with, where that is not its snapshot's own schema."""
        if self._layout is not None:
            self._layout = self._layout.read_with(schema_id)

    def columns_of_another_type(self, schema_id: int) -> frozenset[int]:
        """Return the field ids of a schema's columns whose bounds and partitions here are not of a type that it could read."""
        return frozenset() if self._layout is None else self._layout.columns_of_another_type(schema_id)

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


class ManifestWriterV3(ManifestWriter):
    """PyIceberg's manifest writer for version 3 and an encrypting output file; use as a context manager.

    Left by an exception, or after an entry was refused, there is no manifest: the file is abandoned and `to_manifest_file` refuses.

    Attributes:
        protected: field ids of protected columns, of which deleted entries lose what they say.
    """

    def __init__(
        self,
        spec: PartitionSpec,
        schema: Schema,
        output_file: EncryptingOutputFile,
        snapshot_id: int,
        avro_compression: str,
        content: ManifestContent = ManifestContent.DATA,
        further_fields: Mapping[str, str] = EMPTY_DICT,
        protected: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__(spec, schema, output_file, snapshot_id, avro_codec_name(avro_compression))  # type: ignore[arg-type]
        self.spec = spec
        self.schema = schema
        self.output_file = output_file
        self.snapshot_id = snapshot_id
        self.compression = avro_compression
        self.manifest_content = content
        self.further_fields = further_fields
        self.protected = protected
        self.entry_count = 0
        self.refused = False
        self.complete = False

    def __enter__(self) -> ManifestWriterV3:
        super().__enter__()
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None) -> None:
        """Complete the manifest; or abandon the file, on an exception, after a refused entry or with no entries."""
        self.closed = True
        problem = exc_value or self._problem()
        if problem is not None:
            self.avro_file.__exit__(type(problem), problem, traceback)
            if exc_value is None:
                raise problem
            return

        self.avro_file.__exit__(None, None, None)
        self.complete = True

    def content(self) -> ManifestContent:
        """Return whether the manifest lists data files or delete files."""
        return self.manifest_content

    @property
    def version(self) -> TableVersion:
        """The format version, 3."""
        return FORMAT_VERSION

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        """Return the Avro file that the entries go to."""
        with interruptible():
            schema = self.schema.model_dump_json()
        self.avro_file = BlockAvroOutputFile[ManifestEntry](
            output_file=self.output_file,
            records=entry_records(self.spec.partition_type(self.schema)),
            metadata={
                "schema": schema,
                "partition-spec": to_json(self.spec.fields).decode("utf-8"),
                "partition-spec-id": str(self.spec.spec_id),
                "format-version": str(FORMAT_VERSION),
                "content": CONTENT_NAMES[self.manifest_content],
                **self.further_fields,
            },
            compression=self.compression,
        )
        return self.avro_file

    def add_entry(self, entry: ManifestEntry) -> ManifestWriterV3:
        """Write `entry` as it is, after checking that it may be written."""
        try:
            self._check_content(entry)
            self._check_record_count(entry)
            self._check_key_metadata(entry)
            self._check_sequence_number(entry)
            super().add_entry(entry)
        except BaseException:  # the counts may be off by this entry: no manifest may come of it
            self.refused = True
            raise

        self.entry_count += 1
        return self

    def prepare_entry(self, entry: ManifestEntry) -> ManifestEntry:
        """Return the entry with a data file of version 3; row ids belong to data files alone."""
        data_file = EncryptedDataFile.of(entry.data_file)
        if self.manifest_content == ManifestContent.DELETES and data_file.first_row_id is not None:
            # A copy: the entry may be the caller's, and other manifests may list the same object.
            data_file = EncryptedDataFile(*data_file.values())
            data_file[FIRST_ROW_ID] = None
        if entry.status == _DELETED and self.protected:
            # The bounds of a file from before the protection are values. Metadata tables would show them for as long as the manifest stays,
            # also when the file is gone. No reader plans with the statistics of a deleted entry.
            data_file = data_file.without_statistics_of(self.protected)

        if data_file is entry.data_file:
            return entry

        return ManifestEntry(entry.status, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number, data_file)

    def to_manifest_file(self) -> EncryptedManifestFile:
        """Return the manifest's row for a manifest list.

        Raises:
            ConfigurationError: the writer was not left, or was left by an exception.
        """
        if not self.complete:
            raise ConfigurationError(f"{self.output_file.location}: the manifest is not complete")
        row = EncryptedManifestFile.of(super().to_manifest_file())
        # Only a closed file has its length, which the key metadata has to carry: readers trust it against truncation.
        return row.with_key_metadata(self.output_file.key_metadata)

    def _problem(self) -> ConfigurationError | None:
        if self.refused:
            return ConfigurationError(f"{self.output_file.location}: an entry was refused, so the manifest is abandoned")
        if self.entry_count == 0:
            return ConfigurationError(f"{self.output_file.location}: an empty manifest is not written")
        return None

    def _check_content(self, entry: ManifestEntry) -> None:
        is_data = entry.data_file.content == DataFileContent.DATA
        if is_data != (self.manifest_content == ManifestContent.DATA):
            raise ConfigurationError(
                f"{entry.data_file.file_path}: {entry.data_file.content!r} in a manifest of {CONTENT_NAMES[self.manifest_content]}"
            )

    def _check_record_count(self, entry: ManifestEntry) -> None:
        count = entry.data_file.record_count
        # An engine's worker says it, and the table's next row id moves by it: a table whose ids are used up is written to no more, not even
        # after a rollback, and an id that goes back is given twice.
        if entry.status == ManifestEntryStatus.ADDED and not 0 <= count <= _MOST_ROWS:
            raise FormatError(f"{entry.data_file.file_path}: is to be added with {count} rows, a number that no file has")

    def _check_key_metadata(self, entry: ManifestEntry) -> None:
        if entry.status != ManifestEntryStatus.DELETED and not entry.data_file.key_metadata:
            raise PlaintextRefusedError(entry.data_file.file_path, "no key metadata, so it cannot be listed in an encrypted table")

    def _check_sequence_number(self, entry: ManifestEntry) -> None:
        """A null sequence number is inherited at commit, which is right only for what this commit adds."""
        if entry.sequence_number is not None:
            return
        if entry.snapshot_id is not None and entry.snapshot_id != self.snapshot_id:
            raise ConfigurationError(f"{entry.data_file.file_path}: no sequence number, but from another snapshot ({entry.snapshot_id})")
        if entry.status != ManifestEntryStatus.ADDED:
            raise ConfigurationError(f"{entry.data_file.file_path}: only an added file may have no sequence number")
