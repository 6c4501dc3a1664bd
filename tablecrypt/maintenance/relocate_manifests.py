"""Writing a table's manifests and manifest lists anew for its copy: the same entries and rows, other locations, fresh DEKs.

    entry   file_path, referenced_data_file                 mapped
            file_path, size, key_metadata, path bounds      those of the new file, where a delete file was written anew
            status, snapshot id, sequence numbers, row ids, statistics, partition, key_metadata of data files     as they were
    row     manifest_path, manifest_length, key_metadata    the new manifest's; all else as it was
    list    header and rows                                 as they were

What an entry inherits (sequence number, row id) it goes on inheriting: nothing is filled in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass

from pydantic import ValidationError
from pydantic_core import from_json
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError
from tablecrypt.maintenance.relocate_files import Rewritten
from tablecrypt.maintenance.relocate_paths import PathMap
from tablecrypt.manifests.avro_writer import BlockAvroOutputFile
from tablecrypt.manifests.manifest_file import EncryptedManifestFile
from tablecrypt.manifests.manifest_list_reader import ManifestListHeader
from tablecrypt.manifests.manifest_reader import OpenedManifest
from tablecrypt.manifests.manifest_writer import ManifestWriterV3
from tablecrypt.manifests.records import REFERENCED_DATA_FILE, EncryptedDataFile
from tablecrypt.manifests.schemas import DATA_FILE_POSITIONS, MANIFEST_FILE_POSITIONS, MANIFEST_LIST_SCHEMA
from tablecrypt.table.delete_index import FILE_PATH_FIELD_ID
from tablecrypt.table.table_file_io import TableFileIO


@dataclass(frozen=True)
class NewDeletes:
    """A delete file that was written anew, with its key metadata, which knows its length."""

    file: Rewritten
    key_metadata: StandardKeyMetadata


class ManifestCopier:
    """Writes one copy's manifests.

    Args:
        source, target: the table's FileIO, and that of the copy, whose manager makes the new DEKs.
        paths: from old to new locations.
        new_deletes: the delete files that were written anew, by old location.
        prefix: how the new manifests' locations begin; a number and .avro follow.
        properties: of the table, for the Avro codec.
    """

    def __init__(
        self,
        source: TableFileIO,
        target: TableFileIO,
        paths: PathMap,
        new_deletes: Mapping[str, NewDeletes],
        prefix: str,
        properties: Mapping[str, str],
    ) -> None:
        self._source = source
        self._target = target
        self._paths = paths
        self._new_deletes = new_deletes
        self._prefix = prefix
        self._codec = properties.get(TableProperties.WRITE_AVRO_COMPRESSION, TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT)
        self._rows: dict[str, tuple[str, StandardKeyMetadata]] = {}

    @property
    def count(self) -> int:
        """How many manifests were written."""
        return len(self._rows)

    def row(self, manifest: EncryptedManifestFile) -> EncryptedManifestFile:
        """Return a manifest's row in the copy's lists; the manifest is written where it was not yet."""
        if manifest.manifest_path not in self._rows:
            self._rows[manifest.manifest_path] = self._write(manifest)
        location, key_metadata = self._rows[manifest.manifest_path]
        row = EncryptedManifestFile.of(manifest).with_key_metadata(key_metadata)
        row[MANIFEST_FILE_POSITIONS["manifest_path"]] = location
        row[MANIFEST_FILE_POSITIONS["manifest_length"]] = key_metadata.file_length
        return row

    def write_list(self, location: str, header: ManifestListHeader, rows: Iterable[EncryptedManifestFile]) -> StandardKeyMetadata:
        """Write a manifest list; return its key metadata."""
        fields = {
            "snapshot-id": str(header.snapshot_id),
            "parent-snapshot-id": "null" if header.parent_snapshot_id is None else str(header.parent_snapshot_id),
            "sequence-number": str(header.sequence_number),
            **({} if header.first_row_id is None else {"first-row-id": str(header.first_row_id)}),
            "format-version": str(header.format_version),
        }
        output = self._target.new_encrypted_output(location)
        with BlockAvroOutputFile[EncryptedManifestFile](output, MANIFEST_LIST_SCHEMA, "manifest_file", fields, self._codec) as avro:
            avro.write_block(list(rows))
        return output.key_metadata

    def _write(self, manifest: EncryptedManifestFile) -> tuple[str, StandardKeyMetadata]:
        opened = manifest.read(self._source)
        output = self._target.new_encrypted_output(f"{self._prefix}{len(self._rows)}.avro")
        schema, spec = _schema_and_spec(opened, manifest)
        if manifest.added_snapshot_id is None:
            raise FormatError(f"{manifest.manifest_path}: its manifest list does not say which snapshot added it")
        with ManifestWriterV3(spec, schema, output, manifest.added_snapshot_id, self._codec, manifest.content) as writer:
            for entry in opened.entries:
                writer.add_entry(self._entry(entry))
        return output.location, output.key_metadata

    def _entry(self, entry: ManifestEntry) -> ManifestEntry:
        file = self._file(entry.data_file, is_live=entry.status != ManifestEntryStatus.DELETED)
        return ManifestEntry(entry.status, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number, file)

    def _file(self, old: DataFile, is_live: bool) -> EncryptedDataFile:
        file = copy(EncryptedDataFile.of(old))
        file[DATA_FILE_POSITIONS["file_path"]] = self._paths(old.file_path)
        if file.referenced_data_file is not None:
            file[REFERENCED_DATA_FILE] = self._paths(file.referenced_data_file)
        new = self._new_deletes.get(old.file_path) if is_live else None
        if new is None:
            return file
        file[DATA_FILE_POSITIONS["file_path"]] = new.file.location
        file[DATA_FILE_POSITIONS["file_size_in_bytes"]] = new.key_metadata.file_length
        file[DATA_FILE_POSITIONS["key_metadata"]] = new.key_metadata.encode()
        if old.content == DataFileContent.POSITION_DELETES and new.file.first_path is not None:
            file[DATA_FILE_POSITIONS["lower_bounds"]] = {**(old.lower_bounds or {}), FILE_PATH_FIELD_ID: _encoded(new.file.first_path)}
            file[DATA_FILE_POSITIONS["upper_bounds"]] = {**(old.upper_bounds or {}), FILE_PATH_FIELD_ID: _encoded(new.file.last_path)}
            file[DATA_FILE_POSITIONS["column_sizes"]] = None
            file[DATA_FILE_POSITIONS["split_offsets"]] = None
        return file


def _schema_and_spec(opened: OpenedManifest, manifest: EncryptedManifestFile) -> tuple[Schema, PartitionSpec]:
    """Return what the manifest was written with: columns that its partition fields are of may be gone from the table since."""
    try:
        schema = Schema.model_validate_json(opened.metadata["schema"])
        fields = [PartitionField.model_validate(field) for field in from_json(opened.metadata["partition-spec"])]
        return schema, PartitionSpec(*fields, spec_id=int(opened.metadata.get("partition-spec-id", manifest.partition_spec_id)))
    except (KeyError, ValueError, TypeError, ValidationError) as error:
        raise FormatError(f"{manifest.manifest_path}: its header has no readable schema or partition spec") from error


def _encoded(path: str | None) -> bytes:
    return (path or "").encode()
