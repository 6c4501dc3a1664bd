"""The metadata of a table's copy: its manifests and manifest lists, under fresh DEKs, and its metadata.json.

Manifests and manifest lists hold the same entries and rows as the table's, with other locations:

    entry   file_path, referenced_data_file                 mapped
            file_path, size, key_metadata, path bounds      those of the new file, where a delete file was rewritten
            status, snapshot id, sequence numbers, row ids, statistics, partition, key_metadata of data files     as they were
    row     manifest_path, manifest_length, key_metadata    the new manifest's; all else as it was
    list    table-uuid, properties and refs of its header   the copy's, where the copying changes them
            all else of header and rows                     as it was

What an entry inherits (sequence number, row id) it still inherits: nothing is filled in.

In metadata.json:

    location, manifest lists, properties that name folders    of the new place; a folder outside the table is forgotten, not shared
    table-uuid                                                a new one: a copy is another table, with a history of its own from here on
    encryption-keys, key-id of snapshots                      new: a KEK and manifest-list keys of the copy alone
    snapshots, branches, tags, snapshot-log                   all, or the current snapshot and what points to it
    metadata-log, statistics                                  empty: older metadata and statistics files are not copied
    all else                                                  as it was
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import from_json
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties

from tablecrypt import properties as names
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError
from tablecrypt.keys.key_ring import EncryptedKey, copy_of, is_copy, is_own
from tablecrypt.maintenance._relocate_files import PathMap, RewrittenCopy
from tablecrypt.manifests.avro_container import BlockAvroOutputFile
from tablecrypt.manifests.copied_files import fingerprints_in, header_field
from tablecrypt.manifests.manifest_file import COPIED_NAME_ENDING, DecryptedManifest, EncryptedManifestFile, ManifestWriterV3
from tablecrypt.manifests.manifest_list import ManifestListHeader, further_fields
from tablecrypt.manifests.records import (
    DATA_FILE_POSITIONS,
    MANIFEST_FILE_POSITIONS,
    MANIFEST_RECORDS,
    REFERENCED_DATA_FILE,
    EncryptedDataFile,
)
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata, changed_metadata
from tablecrypt.table.planning import FILE_PATH_FIELD_ID
from tablecrypt.table.table_files import TableFileIO

_NAMESPACE: Final = uuid.UUID("6a2f1d0e-5b0c-5f43-9a57-0d3c1c1e7b42")
_FOLDER_PROPERTIES: Final = (
    TableProperties.WRITE_DATA_PATH,
    TableProperties.WRITE_METADATA_PATH,
    "write.object-storage.path",
    "write.folder-storage.path",
)


@dataclass(frozen=True)
class NewDeletes:
    """A delete file that was rewritten, with its key metadata, which knows its length."""

    file: RewrittenCopy
    key_metadata: StandardKeyMetadata


class ManifestCopier:
    """Writes one copy's manifests.

    Args:
        source, target: the table's FileIO, and that of the copy, whose manager makes the new DEKs.
        paths: from old to new locations.
        new_deletes: the delete files that were rewritten, by old location.
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
        # Snapshots share manifests: each is written once, under one DEK.
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
            **further_fields(header.protected_columns, header.column_keys, header.table_state, header.share_secret),
        }
        output = self._target.new_encrypted_output(location)
        with BlockAvroOutputFile[EncryptedManifestFile](output, MANIFEST_RECORDS, fields, self._codec) as avro:
            avro.write_block(list(rows))
        return output.key_metadata

    def _write(self, manifest: EncryptedManifestFile) -> tuple[str, StandardKeyMetadata]:
        opened = manifest.read(self._source)
        copied = fingerprints_in(opened.metadata, manifest.manifest_path)
        output = self._target.new_encrypted_output(f"{self._prefix}{len(self._rows)}{COPIED_NAME_ENDING if copied else ''}.avro")
        schema, spec = _schema_and_spec(opened, manifest)
        if manifest.added_snapshot_id is None:
            raise FormatError(f"{manifest.manifest_path}: its manifest list does not say which snapshot added it")

        further = header_field(copied)
        with ManifestWriterV3(spec, schema, output, manifest.added_snapshot_id, self._codec, manifest.content, further) as writer:
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
        # A deleted entry is history: it keeps the key of the old file, and no scan opens that.
        new = self._new_deletes.get(old.file_path) if is_live else None
        if new is None:
            return file

        file[DATA_FILE_POSITIONS["file_path"]] = new.file.location
        file[DATA_FILE_POSITIONS["file_size_in_bytes"]] = new.key_metadata.file_length
        file[DATA_FILE_POSITIONS["key_metadata"]] = new.key_metadata.encode()

        if old.content == DataFileContent.POSITION_DELETES and new.file.first_path is not None:
            # Readers skip a position delete file by its bounds of file_path, which have to be of the new locations.
            file[DATA_FILE_POSITIONS["lower_bounds"]] = {**(old.lower_bounds or {}), FILE_PATH_FIELD_ID: _encoded(new.file.first_path)}
            file[DATA_FILE_POSITIONS["upper_bounds"]] = {**(old.upper_bounds or {}), FILE_PATH_FIELD_ID: _encoded(new.file.last_path)}
            # These were of the old file's bytes.
            file[DATA_FILE_POSITIONS["column_sizes"]] = None
            file[DATA_FILE_POSITIONS["split_offsets"]] = None

        return file


def _schema_and_spec(opened: DecryptedManifest, manifest: EncryptedManifestFile) -> tuple[Schema, PartitionSpec]:
    """Return what the manifest was written with: columns that its partition fields are of may be gone from the table since."""
    try:
        schema = Schema.model_validate_json(opened.metadata["schema"])
        fields = [PartitionField.model_validate(field) for field in from_json(opened.metadata["partition-spec"])]
        return schema, PartitionSpec(*fields, spec_id=int(opened.metadata.get("partition-spec-id", manifest.partition_spec_id)))
    except (KeyError, ValueError, TypeError, ValidationError) as error:
        raise FormatError(f"{manifest.manifest_path}: its header has no readable schema or partition spec") from error


def _encoded(path: str | None) -> bytes:
    return (path or "").encode()


@dataclass(frozen=True)
class CopyIdentity:
    """Names that are the same in every run of one copy, so that a run that was killed is continued by the next.

    Attributes:
        table_uuid: of the copy: the same for every state of one table that is copied to one place.
        copy_id: of this state under this master key.
    """

    table_uuid: uuid.UUID
    copy_id: uuid.UUID

    @classmethod
    def of(
        cls, metadata: EncryptedTableMetadata, metadata_location: str, new_location: str, key_id: str, all_snapshots: bool
    ) -> CopyIdentity:
        """Return the identity of a copy."""
        table_uuid = uuid.uuid5(_NAMESPACE, f"{metadata.table_uuid} {new_location}")
        return cls(table_uuid, uuid.uuid5(table_uuid, f"{metadata_location} {key_id} {all_snapshots}"))


def kept_snapshots(metadata: EncryptedTableMetadata, all_snapshots: bool) -> list[EncryptedSnapshot]:
    """Return the snapshots that a copy has."""
    if all_snapshots:
        return list(metadata.snapshots)
    return [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id == metadata.current_snapshot_id]


def only_snapshots(metadata: EncryptedTableMetadata, snapshots: Collection[EncryptedSnapshot]) -> EncryptedTableMetadata:
    """Return metadata with these snapshots, and of branches, tags and the log what is about them."""
    ids = {snapshot.snapshot_id for snapshot in snapshots}
    return metadata.model_copy(
        update={
            "snapshots": list(snapshots),
            "refs": {name: ref for name, ref in metadata.refs.items() if ref.snapshot_id in ids},
            "snapshot_log": [entry for entry in metadata.snapshot_log if entry.snapshot_id in ids],
        }
    )


def copied_metadata(
    metadata: EncryptedTableMetadata,
    paths: PathMap,
    identity: CopyIdentity,
    key_id: str,
    lists: Mapping[int, tuple[str, str]],
    encryption_keys: list[EncryptedKey],
) -> EncryptedTableMetadata:
    """Return the copy's metadata.

    Args:
        metadata: with the snapshots that the copy has.
        paths: from old to new locations.
        identity: of the copy.
        key_id: its encryption.key-id.
        lists: for each snapshot id the location of its new manifest list, and the id of the list's key.
        encryption_keys: the copy's keys.
    """
    snapshots = [
        snapshot.model_copy(update={"manifest_list": lists[snapshot.snapshot_id][0], "key_id": lists[snapshot.snapshot_id][1]})
        for snapshot in metadata.snapshots
    ]
    changed: dict[str, Any] = {
        "location": paths.new,
        "table_uuid": identity.table_uuid,
        "properties": {**_properties(metadata.properties, paths, key_id), **dict(copy_of(key) for key in encryption_keys if is_own(key))},
        "snapshots": snapshots,
        "encryption_keys": encryption_keys,
        "metadata_log": [],
        "statistics": [],
        "partition_statistics": [],
    }
    return changed_metadata(metadata, changed)


def copied_header(
    header: ManifestListHeader,
    table: EncryptedTableMetadata,
    copied: EncryptedTableMetadata,
    paths: PathMap,
    identity: CopyIdentity,
    key_id: str,
) -> ManifestListHeader:
    """Return what a manifest list of the copy says.

    Args:
        header: of the table's own list.
        table: its metadata.
        copied: the same with the snapshots that the copy has.
        paths, identity, key_id: as for `copied_metadata`.
    """
    if header.table_state is None:
        # A list that Iceberg Java wrote says nothing of its table, and neither does its copy.
        return header

    before, after = copied.properties, _properties(copied.properties, paths, key_id)
    changed = {name: after.get(name) for name in (*before, *after) if before.get(name) != after.get(name)}
    state = header.table_state.in_copy(identity.table_uuid, changed, table.refs.keys() - copied.refs.keys())

    return replace(header, table_state=state)


def _properties(properties: Mapping[str, str], paths: PathMap, key_id: str) -> dict[str, str]:
    # A share names files of the original, which goes on to share them.
    gone = {name for name in properties if name in _FOLDER_PROPERTIES or is_copy(name) or name.startswith(names.SHARE.name)}
    kept = {name: value for name, value in properties.items() if name not in gone}
    folders = {name: paths.folder(properties[name]) for name in _FOLDER_PROPERTIES if name in properties}
    return {**kept, **{name: folder for name, folder in folders.items() if folder is not None}, names.KEY_ID.name: key_id}
