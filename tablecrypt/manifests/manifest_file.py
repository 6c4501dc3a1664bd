"""A manifest as its manifest list describes it: PyIceberg's ManifestFile with the fields of version 3, which opens with its own key.

The row of an (encrypted) manifest list holds the manifest's key metadata, so a manifest needs no key but the one it carries. PyIceberg's
scan planning and commits call `fetch_manifest_entry` and get decrypted, complete entries.

Specification: "Manifest Lists" of the Iceberg table specification.
"""

from __future__ import annotations

from typing import Any, Self

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.typedef import TableVersion

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError, PlaintextRefusedError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.manifests.inheritance import inherit
from tablecrypt.manifests.manifest_reader import OpenedManifest, read_manifest, read_manifest_header
from tablecrypt.manifests.records import KeyBearingRecord
from tablecrypt.manifests.schemas import FORMAT_VERSION, MANIFEST_FILE_POSITIONS
from tablecrypt.manifests.stated_layout import StatedLayout

KEY_METADATA = MANIFEST_FILE_POSITIONS["key_metadata"]
FIRST_ROW_ID = MANIFEST_FILE_POSITIONS["first_row_id"]
_FIELDS = len(MANIFEST_FILE_POSITIONS)


class EncryptedManifestFile(KeyBearingRecord, ManifestFile):
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

    @property
    def first_row_id(self) -> int | None:
        """The row id that the first row without one gets; null in delete manifests and until the manifest list is written."""
        return self[FIRST_ROW_ID]  # type: ignore[no-any-return]

    @first_row_id.setter
    def first_row_id(self, value: int | None) -> None:
        self[FIRST_ROW_ID] = value

    def with_key_metadata(self, key_metadata: StandardKeyMetadata) -> EncryptedManifestFile:
        """Return a copy that carries `key_metadata`, which must know the length of the ciphertext."""
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

    def read(self, io: EncryptingFileIO) -> OpenedManifest:
        """Decrypt the manifest, as it is; nothing is inherited.

        Raises:
            PlaintextRefusedError, AuthenticationError, FormatError: as `fetch_manifest_entry`.
            TamperedFileError: its header contradicts the metadata of the table.
        """
        opened = read_manifest(io, self.manifest_path, self.open_key_metadata(), self.content)
        if self._layout is not None:
            self._layout.check(opened.metadata, self.partition_spec_id, self.manifest_path)
        return opened

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
        if not isinstance(io, EncryptingFileIO):
            raise ConfigurationError(
                f"{self.manifest_path}: an encrypted manifest is read through an EncryptingFileIO, not {type(io).__name__}"
            )
        entries = self.read(io).entries
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
