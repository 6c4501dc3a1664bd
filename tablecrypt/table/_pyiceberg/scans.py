"""Scans and metadata tables of PyIceberg: they work out which snapshots and entries are meant, files are planned and read here.

IncrementalAppendScan: _validate_and_resolve_snapshots     which appends lie between two snapshots
InspectTable: _get_snapshot, tbl                           which snapshot and which partitions a metadata table is about
InspectTable: _get_files_schema, _get_files_from_manifest  the columns of files, and the rows of a manifest
InspectTable: _files, _all_files                           the files of one snapshot, and of all
InspectTable: _generate_manifests_table                    the manifests of one snapshot

Iceberg's tables of files and entries have columns that PyIceberg's lack, and ours do not, each null where it means nothing:

    first_row_id                             the row id of the file's first row
    referenced_data_file                     the data file whose rows a deletion vector hides
    content_offset, content_size_in_bytes    where the deletion vector lies in its file

Iceberg's entries say besides with which partition spec a file was written: spec_id.

A snapshot's files and entries are shown by the schema that its rows are read with. Those of every snapshot are shown by the current one:
bounds and partitions of a column that was of another type then are null.

InspectTable.entries takes the sizes of columns for granted, which deletion vectors do not have, nor files of writers without statistics.
Such an entry is shown with no sizes, as PyIceberg shows the other statistics that are not there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Final, Self, cast

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import IncrementalAppendScan, Table
from pyiceberg.table.inspect import InspectTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import FixedType, IcebergType, ListType, MapType, StructType, UUIDType

from tablecrypt.manifests.manifest_file import EncryptedManifestFile
from tablecrypt.manifests.records import DATA_FILE_POSITIONS, EncryptedDataFile
from tablecrypt.table.metadata import readable_at

__all__ = ["IncrementalAppendScanAdapter"]

_OF_VERSION_3: Final = tuple(
    pa.field(name, pa.string() if name == "referenced_data_file" else pa.int64())
    for name in ("first_row_id", "referenced_data_file", "content_offset", "content_size_in_bytes")
)
_SPEC_ID: Final = pa.field("spec_id", pa.int32(), nullable=False)


class IncrementalAppendScanAdapter(IncrementalAppendScan):
    """An incremental scan whose resolved range has a public name."""

    def snapshot_range(self) -> tuple[int | None, int]:
        """Return the snapshot before the first (None: from the oldest on) and the last one.

        Raises:
            ValueError: a bound is not a snapshot of the table, or not an ancestor of the other.
        """
        return self._validate_and_resolve_snapshots()


class InspectAdapter(InspectTable):
    """InspectTable that shows no rows of a table without snapshots or manifests, and partitions of specs whose columns were dropped.

    PyIceberg raises errors of all three. Files have the columns of version 3 besides.
    """

    def __init__(self, tbl: Table) -> None:
        self._table = tbl
        shown = copy(tbl)
        shown.metadata = cast("TableMetadata", _ShownPartitions(tbl.metadata))
        super().__init__(shown)

    def at(self, snapshot_id: int | None) -> Self:
        """Return what shows a snapshot by the schema that its rows are read with."""
        table = copy(self._table)
        table.metadata = readable_at(table.metadata, snapshot_id)
        return type(self)(table)

    def _get_snapshot(self, snapshot_id: int | None = None) -> Any:
        # PyIceberg raises an error for a table to which nothing was written yet.
        if snapshot_id is None and self.tbl.metadata.current_snapshot() is None:
            return _NoSnapshot()
        return super()._get_snapshot(snapshot_id)

    def _files(self, snapshot_id: int | None = None, data_file_filter: set[DataFileContent] | None = None) -> pa.Table:
        has_some = bool(self._get_snapshot(snapshot_id).manifests(self.tbl.io))
        return super()._files(snapshot_id, data_file_filter) if has_some else self._get_files_schema().empty_table()

    def _all_files(self, data_file_filter: set[DataFileContent] | None = None) -> pa.Table:
        has_some = any(snapshot.manifests(self.tbl.io) for snapshot in self.tbl.snapshots())
        return super()._all_files(data_file_filter) if has_some else self._get_files_schema().empty_table()

    def _generate_manifests_table(self, snapshot: Snapshot | None, is_all_manifests_table: bool = False) -> pa.Table:
        shown = self if snapshot is None else self.at(snapshot.snapshot_id)
        return super(InspectAdapter, shown)._generate_manifests_table(snapshot, is_all_manifests_table)

    def _get_files_schema(self) -> pa.Schema:
        *fields, metrics = super()._get_files_schema()
        return pa.schema([*fields, *_OF_VERSION_3, metrics])

    def _get_files_from_manifest(self, manifest_list: ManifestFile, data_file_filter: set[DataFileContent] | None = None) -> pa.Table:
        manifest = _Manifest(manifest_list, self._table.metadata)
        rows = super()._get_files_from_manifest(cast("ManifestFile", manifest), data_file_filter)
        shown = [file for file in manifest.shown if not data_file_filter or file.content in data_file_filter]

        for field, values in zip(_OF_VERSION_3, _values(shown), strict=True):
            rows = rows.set_column(rows.schema.get_field_index(field.name), field, values)
        return rows


class EntriesTable(InspectAdapter):
    """InspectTable for `entries` alone."""

    def __init__(self, tbl: Table) -> None:
        super().__init__(tbl)
        self._manifests: list[_Manifest] = []

    def entries(self, snapshot_id: int | None = None) -> pa.Table:
        """Manifest entries of a snapshot."""
        rows = super().entries(snapshot_id)
        at = rows.schema.get_field_index("data_file")
        file = rows.column(at).combine_chunks()
        shown = [each for manifest in self._manifests for each in manifest.shown]
        fields = [*file.type, *_OF_VERSION_3]
        columns = [*file.flatten(), *_values(shown)]

        # Where Iceberg has it: behind the file's format.
        place = file.type.get_field_index("file_format") + 1
        fields.insert(place, _SPEC_ID)
        columns.insert(place, pa.array([each.spec_id for each in shown], _SPEC_ID.type))

        return rows.set_column(at, rows.schema.field(at).with_type(pa.struct(fields)), pa.StructArray.from_arrays(columns, fields=fields))

    def _get_snapshot(self, snapshot_id: int | None = None) -> Any:
        return _Snapshot(super()._get_snapshot(snapshot_id), self._table.metadata, self._manifests)


class AllEntriesTable(EntriesTable):
    """InspectTable whose `entries` are those of every snapshot: of each manifest once, as Iceberg has them."""

    def _get_snapshot(self, snapshot_id: int | None = None) -> Any:
        return _Snapshot(_EverySnapshot(self.tbl.metadata.snapshots), self._table.metadata, self._manifests)


class _ShownPartitions:
    """A table's metadata, with partition fields of dropped columns left out of what is shown, as Iceberg Java leaves them out."""

    def __init__(self, metadata: TableMetadata) -> None:
        self._metadata = metadata
        columns = metadata.schema()
        self._dropped = {
            field.field_id
            for spec in metadata.partition_specs
            for field in spec.fields
            if columns.find_column_name(field.source_id) is None
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(self._metadata, name)

    def schema(self) -> Schema:
        """Return the schema, with 16 bytes for each uuid: Arrow makes no uuids of Python's values inside structs, where bounds are."""
        schema = self._metadata.schema()
        return Schema(*cast("StructType", _as_bytes(schema.as_struct())).fields, schema_id=schema.schema_id)

    def specs(self) -> dict[int, PartitionSpec]:
        """Return the specs. A field that is not shown has no name that another one could have: PyIceberg shows values by names."""
        return {
            spec.spec_id: PartitionSpec(*map(self._renamed, spec.fields), spec_id=spec.spec_id) for spec in self._metadata.partition_specs
        }

    def specs_struct(self, spec_ids: Iterable[int] | None = None) -> StructType:
        """Return the type of partitions, see `TableMetadata.specs_struct`: of those of every spec, as Iceberg Java has it."""
        shown = [
            PartitionSpec(*(field for field in spec.fields if field.field_id not in self._dropped), spec_id=spec.spec_id)
            for spec in self._metadata.partition_specs
        ]
        return cast("StructType", _as_bytes(self._metadata.model_copy(update={"partition_specs": shown}).specs_struct()))

    def _renamed(self, field: PartitionField) -> PartitionField:
        if field.field_id not in self._dropped:
            return field
        return PartitionField(field.source_id, field.field_id, field.transform, f"dropped {field.field_id}")


def _as_bytes(iceberg: IcebergType) -> IcebergType:
    match iceberg:
        case UUIDType():
            return FixedType(16)
        case StructType():
            return StructType(*(field.model_copy(update={"field_type": _as_bytes(field.field_type)}) for field in iceberg.fields))
        case ListType():
            return iceberg.model_copy(update={"element_type": _as_bytes(iceberg.element_type)})
        case MapType():
            return iceberg.model_copy(update={"key_type": _as_bytes(iceberg.key_type), "value_type": _as_bytes(iceberg.value_type)})
        case _:
            return iceberg


class _NoSnapshot:
    snapshot_id = None

    def manifests(self, io: FileIO) -> list[ManifestFile]:
        return []


class _EverySnapshot:
    def __init__(self, snapshots: Sequence[Snapshot]) -> None:
        self._snapshots = snapshots

    def manifests(self, io: FileIO) -> list[ManifestFile]:
        return list({each.manifest_path: each for snapshot in self._snapshots for each in snapshot.manifests(io)}.values())


class _Snapshot:
    def __init__(self, snapshot: Snapshot | _NoSnapshot | _EverySnapshot, metadata: TableMetadata, read: list[_Manifest]) -> None:
        self._snapshot = snapshot
        self._metadata = metadata
        self._read = read

    def manifests(self, io: FileIO) -> list[_Manifest]:
        self._read[:] = (_ManifestOfEntries(each, self._metadata) for each in self._snapshot.manifests(io))
        return self._read


class _Manifest:
    """A manifest that knows which files it has shown, without values that the schema of the metadata cannot read."""

    def __init__(self, manifest: ManifestFile, metadata: TableMetadata) -> None:
        self._manifest = manifest
        self.partition_spec_id = manifest.partition_spec_id
        self.shown: list[EncryptedDataFile] = []
        self._unreadable = frozenset[int]()
        if isinstance(manifest, EncryptedManifestFile):
            self._unreadable = manifest.columns_of_another_type(metadata.current_schema_id)
        spec = metadata.specs()[manifest.partition_spec_id] if self._unreadable else PartitionSpec()
        # What other transforms make is of one type, whatever the column's is.
        self._hidden_partitions = [
            position
            for position, field in enumerate(spec.fields)
            if field.source_id in self._unreadable and isinstance(field.transform, (IdentityTransform, TruncateTransform))
        ]

    def fetch_manifest_entry(self, io: FileIO, discard_deleted: bool = True) -> Iterator[ManifestEntry]:
        for entry in self._manifest.fetch_manifest_entry(io, discard_deleted):
            self.shown.append(EncryptedDataFile.of(entry.data_file))
            yield self._readable(entry) if self._unreadable else entry

    def _readable(self, entry: ManifestEntry) -> ManifestEntry:
        file = copy(EncryptedDataFile.of(entry.data_file))
        for name in ("lower_bounds", "upper_bounds"):
            if (bounds := file[DATA_FILE_POSITIONS[name]]) is not None:
                file[DATA_FILE_POSITIONS[name]] = _BoundsToShow(bounds, self._unreadable)
        if self._hidden_partitions:
            hidden = (None if at in self._hidden_partitions else file.partition[at] for at in range(len(file.partition)))
            file[DATA_FILE_POSITIONS["partition"]] = Record(*hidden)
        return _with_file(entry, file)


class _BoundsToShow(dict[int, bytes]):
    """Bounds as a file's entry has them, of which some are not to be decoded: for these, `get` finds none."""

    def __init__(self, bounds: Mapping[int, bytes], unreadable: Collection[int]) -> None:
        super().__init__(bounds)
        self._unreadable = unreadable

    def get(self, key: int, default: Any = None) -> Any:
        return default if key in self._unreadable else super().get(key, default)


class _ManifestOfEntries(_Manifest):
    """A manifest that PyIceberg shows the entries of, with sizes of columns in each."""

    def fetch_manifest_entry(self, io: FileIO, discard_deleted: bool = True) -> Iterator[ManifestEntry]:
        return map(_with_sizes, super().fetch_manifest_entry(io, discard_deleted))


def _values(files: Sequence[EncryptedDataFile]) -> Iterator[pa.Array]:
    """Yield the columns of `_OF_VERSION_3`."""
    for field in _OF_VERSION_3:
        yield pa.array([file[DATA_FILE_POSITIONS[field.name]] for file in files], field.type)


def _with_sizes(entry: ManifestEntry) -> ManifestEntry:
    values = EncryptedDataFile.of(entry.data_file).values()
    if values[DATA_FILE_POSITIONS["column_sizes"]] is not None:
        return entry

    # PyIceberg reads the sizes without a check, and the entry of a deletion vector has none.
    values[DATA_FILE_POSITIONS["column_sizes"]] = {}
    file = EncryptedDataFile(*values)
    file.spec_id = entry.data_file.spec_id

    return _with_file(entry, file)


def _with_file(entry: ManifestEntry, file: EncryptedDataFile) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=entry.status,
        snapshot_id=entry.snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=file,
    )
