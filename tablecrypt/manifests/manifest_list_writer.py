"""Writing a snapshot's manifest list, encrypted.

    manifest_file records  →  Avro file (header: snapshot-id, parent-snapshot-id, sequence-number, first-row-id, format-version)  →  AGS1

Here the commit's numbers reach its manifests: one without a sequence number gets the commit's, and a data manifest without first_row_id
gets the next free row id, which then moves on by the manifest's existing and added rows. (Existing rows too, because existing files that
came from before version 3 may still be without row ids.) Delete manifests have no first_row_id.

Raises:
    PlaintextRefusedError: a manifest without key metadata.
    FormatError: a manifest whose key metadata cannot be read back.
    ConfigurationError: a manifest without sequence number from another snapshot, or without row counts.

Specification: "Manifest Lists" and "First Row ID Assignment" of the Iceberg table specification.
"""

from __future__ import annotations

from types import TracebackType

from pyiceberg.manifest import UNASSIGNED_SEQ, ManifestContent, ManifestFile, ManifestListWriter

from tablecrypt.errors import ConfigurationError
from tablecrypt.files.encrypting_file_io import EncryptingOutputFile
from tablecrypt.manifests.avro_writer import BlockAvroOutputFile
from tablecrypt.manifests.manifest_file import EncryptedManifestFile
from tablecrypt.manifests.schemas import FORMAT_VERSION, MANIFEST_LIST_SCHEMA

_MANIFEST_NAME = "manifest_file"


class ManifestListWriterV3(ManifestListWriter):
    """PyIceberg's manifest list writer for version 3 and an encrypting output file; use as a context manager.

    Left by an exception, the file is abandoned: `complete` stays False and the output file has no length.
    """

    def __init__(
        self,
        output_file: EncryptingOutputFile,
        snapshot_id: int,
        parent_snapshot_id: int | None,
        sequence_number: int,
        first_row_id: int,
        compression: str,
    ) -> None:
        header = {
            "snapshot-id": str(snapshot_id),
            "parent-snapshot-id": "null" if parent_snapshot_id is None else str(parent_snapshot_id),
            "sequence-number": str(sequence_number),
            "first-row-id": str(first_row_id),
            "format-version": str(FORMAT_VERSION),
        }
        super().__init__(FORMAT_VERSION, output_file, header)
        self.snapshot_id = snapshot_id
        self.sequence_number = sequence_number
        self.next_row_id = first_row_id
        self.complete = False
        self.avro_file = BlockAvroOutputFile[EncryptedManifestFile](
            output_file=output_file,
            file_schema=MANIFEST_LIST_SCHEMA,
            schema_name=_MANIFEST_NAME,
            metadata=header,
            compression=compression,
        )

    def __enter__(self) -> ManifestListWriterV3:
        self.avro_file.__enter__()
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None) -> None:
        """Complete the file, or abandon it."""
        self.avro_file.__exit__(exc_type, exc_value, traceback)
        self.complete = exc_type is None

    def add_manifests(self, manifest_files: list[ManifestFile]) -> ManifestListWriterV3:
        """Write one row for each manifest, in the order given."""
        for manifest in manifest_files:
            self.avro_file.write_block([self.prepare_manifest(manifest)])
        return self

    def prepare_manifest(self, manifest_file: ManifestFile) -> EncryptedManifestFile:
        """Return a copy of the manifest's row with its numbers assigned. Moves `next_row_id`."""
        row = EncryptedManifestFile.of(manifest_file)
        row.open_key_metadata()
        self._assign_sequence_numbers(row)
        self._assign_first_row_id(row)
        return row

    def _assign_sequence_numbers(self, row: EncryptedManifestFile) -> None:
        if UNASSIGNED_SEQ not in (row.sequence_number, row.min_sequence_number):
            return
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
