"""Data and delete files of an encrypted table, written one by one, and the manifests that list them: for tests of plan and scan.

A real writer makes only some of these (this package writes no deletes), so they are put together here: the rows as a table of their own
would have them, and the entry as its writer would have committed it.
"""

from __future__ import annotations

import io
import itertools
import json
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.typedef import Record
from pyroaring import BitMap64

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.files.raw_output import RawContent
from tablecrypt.manifests import EncryptedDataFile, EncryptedManifestFile
from tablecrypt.parquet.uniform import UniformParquetWriter
from tablecrypt.table.deletes import MAGIC, RowDelta
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.write import write_data_files
from tests.support.manifests import SNAPSHOT_ID, encrypt_file, new_key, write_manifest
from tests.support.tables import current_snapshot, folder_of, path_of

PUFFIN_MAGIC = b"PFA1"
PATH_ID, POSITION_ID, ROW_ID = 2147483546, 2147483545, 2147483544


class Keys:
    """Fresh keys, as an EncryptionManager makes them."""

    def new_key_metadata(self) -> StandardKeyMetadata:
        return new_key()


class TableFiles:
    """One table's metadata, its FileIO, and writers of its files. `folder` is its location."""

    def __init__(
        self,
        folder: Path,
        schema: Schema,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        properties: dict[str, str] | None = None,
        inner: FileIO | None = None,
    ) -> None:
        self.folder = folder
        self.io = EncryptingFileIO(inner or PyArrowFileIO())
        self.metadata: TableMetadata = new_table_metadata(
            schema, spec, UNSORTED_SORT_ORDER, str(folder), {"format-version": "3", **(properties or {})}
        )
        # new_table_metadata numbers the fields again; tests give files by the ids that they chose.
        kept = schema.model_copy(update={"schema_id": self.metadata.current_schema_id})
        self.metadata = self.metadata.model_copy(update={"schemas": [kept]})
        self._numbers = itertools.count()

    def data(self, rows: pa.Table, first_row_id: int | None = None) -> EncryptedDataFile:
        """One Parquet data file."""
        (file,) = write_data_files(self.metadata, rows, self.io, Keys())
        return self.committed(file, first_row_id)

    def avro_data(
        self, avro_schema: dict[str, Any], records: list[dict[str, Any]], codec: str = "deflate", declared: dict[str, Any] | None = None
    ) -> EncryptedDataFile:
        """One Avro data file. `declared` is the schema in its header, where that says more of the same bytes than `avro_schema`."""
        path, plain = self._path("avro"), io.BytesIO()
        fastavro.writer(plain, avro_schema, records, codec=codec, metadata=None)
        content = plain.getvalue() if declared is None else _redeclared(plain.getvalue(), declared)
        return self.file(DataFileContent.DATA, FileFormat.AVRO, path, len(records), encrypt_file(self.io, path, content))

    def data_of_others(self, rows: pa.Table, **options: Any) -> EncryptedDataFile:
        """One Parquet data file of rows as they are, with the table's field ids and pyarrow's options: as another program writes it."""
        return self._stored(DataFileContent.DATA, rows.cast(self._named(rows.schema)), options)

    def position_deletes(self, targets: Iterable[tuple[str, int]], rows: pa.Table | None = None, **fields: Any) -> EncryptedDataFile:
        """A Parquet position delete file of (path, position), with the rows that it deletes where they are given."""
        paths, positions = zip(*targets, strict=True)
        schema = pa.schema([_field("file_path", pa.string(), PATH_ID), _field("pos", pa.int64(), POSITION_ID)])
        deletes = pa.table([paths, positions], schema=schema)
        if rows is not None:
            named = self._named(rows.schema)
            copied = pa.StructArray.from_arrays([rows[field.name].combine_chunks().cast(field.type) for field in named], fields=list(named))
            deletes = deletes.append_column(_field("row", copied.type, ROW_ID), copied)
        return self._deletes(DataFileContent.POSITION_DELETES, deletes, **fields)

    def equality_deletes(self, rows: pa.Table, equality_ids: list[int], **fields: Any) -> EncryptedDataFile:
        """A Parquet equality delete file; columns are named as the table's."""
        return self._deletes(DataFileContent.EQUALITY_DELETES, rows.cast(self._named(rows.schema)), equality_ids=equality_ids, **fields)

    def deletion_vector(self, target: str, positions: Iterable[int], before: bytes = b"", **fields: Any) -> EncryptedDataFile:
        """A Puffin file with a deletion vector, after `before` other bytes, which readers have no business with."""
        [vector] = self.deletion_vectors([(target, positions)], before, **fields)
        return vector

    def deletion_vectors(self, deleted: Iterable[tuple[str, Iterable[int]]], before: bytes = b"", **fields: Any) -> list[EncryptedDataFile]:
        """One Puffin file with a deletion vector for each data file and its positions."""
        bitmaps = [(target, BitMap64(positions)) for target, positions in deleted]
        blobs = [deletion_vector_blob(bitmap.serialize()) for _, bitmap in bitmaps]
        offsets = itertools.accumulate(map(len, blobs), initial=len(PUFFIN_MAGIC + before))
        path = self._path("puffin")
        key_metadata = encrypt_file(self.io, path, PUFFIN_MAGIC + before + b"".join(blobs) + b"a footer that is not read")

        places = [
            {"content_offset": offset, "content_size_in_bytes": len(blob), "referenced_data_file": target}
            for (target, _), blob, offset in zip(bitmaps, blobs, offsets, strict=False)
        ]
        return [
            self.file(DataFileContent.POSITION_DELETES, FileFormat.PUFFIN, path, len(bitmap), key_metadata, **{**place, **fields})
            for (_, bitmap), place in zip(bitmaps, places, strict=True)
        ]

    def file(
        self, content: DataFileContent, file_format: FileFormat, path: str, records: int, key: StandardKeyMetadata, **fields: Any
    ) -> EncryptedDataFile:
        """The entry's data file for any file."""
        file = EncryptedDataFile.from_args(
            **{
                "content": content,
                "file_path": path,
                "file_format": file_format,
                "partition": Record(),
                "record_count": records,
                "file_size_in_bytes": key.file_length,
                "key_metadata": key.encode(),
                **fields,
            }
        )
        file.spec_id = self.metadata.default_spec_id
        return file

    def committed(self, file: DataFile, first_row_id: int | None = None) -> EncryptedDataFile:
        """The file as it is in a manifest of a committed snapshot."""
        copy = EncryptedDataFile(*(file[at] for at in range(16)), first_row_id)
        copy.spec_id = file.spec_id
        return copy

    def manifests(self, *entries: tuple[int, DataFile]) -> list[EncryptedManifestFile]:
        """Manifests of (data sequence number, file), one for each sequence number and content."""
        rows = []
        groups = itertools.groupby(
            sorted(entries, key=lambda each: (each[0], _content(each[1]).value)), lambda each: (each[0], _content(each[1]))
        )
        for (number, content), group in groups:
            listed = [ManifestEntry(ManifestEntryStatus.ADDED, SNAPSHOT_ID, number, number, file) for _, file in group]
            spec = self.metadata.specs()[listed[0].data_file.spec_id]
            row = write_manifest(
                self.io, self.folder / f"manifest-{next(self._numbers)}.avro", listed, spec, self.metadata.schema(), content
            )
            row.sequence_number = row.min_sequence_number = number
            row.first_row_id = 1000 * number if content == ManifestContent.DATA else None
            rows.append(row)
        return rows

    def _named(self, schema: pa.Schema) -> pa.Schema:
        """The columns with the field ids of the table's."""
        ids = {field.name: field.field_id for field in self.metadata.schema().fields}
        return pa.schema([_field(field.name, field.type, ids[field.name]) for field in schema])

    def _deletes(self, content: DataFileContent, rows: pa.Table, **fields: Any) -> EncryptedDataFile:
        return self._stored(content, rows, {}, **fields)

    def _stored(self, content: DataFileContent, rows: pa.Table, options: dict[str, Any], **fields: Any) -> EncryptedDataFile:
        path, key_metadata = self._path("parquet"), new_key()
        with self.io.raw_output(path, RawContent.SELF_ENCRYPTED).create() as sink:
            writer = UniformParquetWriter(sink, rows.schema, key_metadata, **options)
            writer.write(rows, 1_000_000)
            _, length = writer.close()
        return self.file(content, FileFormat.PARQUET, path, rows.num_rows, key_metadata.with_file_length(length), **fields)

    def _path(self, extension: str) -> str:
        return str(self.folder / f"{next(self._numbers)}.{extension}")


def plain_table_of_others(catalog: Catalog, identifier: str, schema: Schema | pa.Schema, name: str, content: bytes, rows: int) -> Table:
    """A plain table with one data file that a program without Iceberg wrote, whose columns are found by their names.

    PyIceberg's own add_files takes neither ORC nor timestamps in nanoseconds; Iceberg Java's takes both.
    """
    plain = catalog.create_table(identifier, schema)
    with plain.transaction() as transaction:
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: plain.schema().name_mapping.model_dump_json()})
    location = f"{plain.location()}/data/{name}"
    path_of(location).parent.mkdir(parents=True, exist_ok=True)
    path_of(location).write_bytes(content)

    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat[name.rpartition(".")[2].upper()],
        partition=Record(),
        record_count=rows,
        file_size_in_bytes=len(content),
    )
    file.spec_id = 0
    with plain.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)

    return plain


def delete_by_file(table: EncryptedTable, kind: str) -> None:
    """Delete ids 3 and 25 as another engine does: by values, or by position in a file about several data files."""
    deletes = TableFiles(folder_of(table), table.schema())
    if kind == "equality":
        file = deletes.equality_deletes(pa.table({"id": pa.array([3, 25], pa.int64())}), [1])
    else:
        tasks = {task.file.lower_bounds[1]: task.file.file_path for task in table.refresh().scan("id in (3, 25)").plan_files()}
        file = deletes.position_deletes(sorted((path, 3 if first < (20).to_bytes(8, "little") else 5) for first, path in tasks.items()))
    with table.transaction() as transaction:
        transaction.update_snapshot().row_delta(RowDelta(added=[file])).commit()  # type: ignore[attr-defined]


def vectors_of(table: Table, status: ManifestEntryStatus | None = None) -> list[EncryptedDataFile]:
    """The deletion vectors that the manifests of the table's snapshot list: the live ones, or those of a status."""
    return [
        EncryptedDataFile.of(entry.data_file)
        for manifest in current_snapshot(table).manifests(table.io)
        if manifest.content == ManifestContent.DELETES
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        if entry.status == status or (status is None and entry.status != ManifestEntryStatus.DELETED)
    ]


def deletion_vector_blob(bitmap: bytes, magic: bytes = MAGIC) -> bytes:
    """A deletion-vector-v1 blob around a serialized bitmap."""
    framed = magic + bitmap
    return struct.pack(">I", len(framed)) + framed + struct.pack(">I", zlib.crc32(framed))


def _content(file: DataFile) -> ManifestContent:
    return ManifestContent.DATA if file.content == DataFileContent.DATA else ManifestContent.DELETES


def _field(name: str, data_type: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, data_type, metadata={b"PARQUET:field_id": str(field_id).encode()})


_HEADER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "org.apache.avro.file.Header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": 16}},
        ],
    }
)


def _redeclared(content: bytes, declared: dict[str, Any]) -> bytes:
    source, sink = io.BytesIO(content), io.BytesIO()
    header: Any = fastavro.schemaless_reader(source, _HEADER, None)
    header["meta"]["avro.schema"] = json.dumps(declared).encode()
    fastavro.schemaless_writer(sink, _HEADER, header)
    return sink.getvalue() + source.read()
