"""Metadata tables: prod.db.orders.snapshots, .files, .keys, … as Iceberg names them, and two of ours. None of them shows a key.

.history .snapshots .refs .metadata_log_entries            what the table's metadata says
.manifests .entries .files .data_files .delete_files .partitions .position_deletes    of the current snapshot, or of … AS OF
.all_manifests .all_files .all_data_files .all_delete_files           of every snapshot
.keys     the entries of encryption-keys: which key wraps which, how old it is and which snapshots need it
.audit    what an audit of the table finds

.position_deletes    the rows of a snapshot's data files that deletion vectors and position deletes hide

    file_path, pos                            the data file and the row's position in it
    row                                       null: an encrypted table keeps no copy of a deleted row
    partition                                 of the data file; left out in a table without partitions
    spec_id, delete_file_path                 of the delete file
    content_offset, content_size_in_bytes     where the deletion vector lies in its file; null for a file of position deletes

Raises:
    ConfigurationError: there are more rows than the driver should hold.
    ReadRestrictionError: the catalog's server restricts what may be read of the table.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table.metadata import TableMetadata

from tablecrypt.errors import ConfigurationError
from tablecrypt.files.encrypting_file_io import refuse_restricted
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.spark.sql.scans.partition_values import PartitionStruct
from tablecrypt.table.deletes import DeleteReader
from tablecrypt.table.metadata import EncryptedTableMetadata, readable_at
from tablecrypt.table.planning import EncryptedFileScanTask, ScanPlanner, listed_manifests
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import name_of

if TYPE_CHECKING:
    from tablecrypt.table.table import EncryptedTable


_MOMENT: Final = pa.timestamp("ms")
_KEYS: Final = pa.schema(
    [
        pa.field("key_id", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("wrapped_by", pa.string()),
        pa.field("created_at", _MOMENT),
        pa.field("snapshot_ids", pa.list_(pa.field("element", pa.int64(), nullable=False)), nullable=False),
    ]
)
_FINDINGS: Final = pa.schema(
    [pa.field(name, pa.string(), nullable=False) for name in ("severity", "code", "title", "location", "message", "advice")]
)
_NEVER: Final = dt.datetime.min
_PARTITION: Final = "partition"
_DATA_FILE: Final = "data_file"
_COUNTED: Final = ("_count", "_size_in_bytes")
MOST_ROWS: Final = 10_000_000


def metadata_table(table: EncryptedTable, name: str, snapshot_id: int | None) -> pa.Table:
    """Return the rows of a metadata table.

    Args:
        table: whose.
        name: one of `NAMES`.
        snapshot_id: the snapshot that VERSION or TIMESTAMP AS OF asks for; None where nothing does.

    Raises:
        ConfigurationError: the rows do not depend on a snapshot, but one is asked for.
        ReadRestrictionError: the catalog's server restricts what may be read of the table, and the rows would show more.
        TamperedFileError, KeyNotFoundError: as reading the table.
    """
    table = _with(table, partition_specs=_with_last_names(table.metadata))
    if name in _OF_A_SNAPSHOT:
        at = snapshot_id if snapshot_id is not None else table.metadata.current_snapshot_id
        return _without_no_partitions(_OF_A_SNAPSHOT[name](_at(table, at)))
    if snapshot_id is not None:
        raise ConfigurationError(f"{name} describes the whole table: leave out VERSION or TIMESTAMP AS OF")

    return _without_no_partitions(_OF_THE_TABLE[name](table))


def _at(table: EncryptedTable, snapshot_id: int | None) -> EncryptedTable:
    """Return the table as if a snapshot were the current one; one without files counts as none, of which PyIceberg shows no rows."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id) if snapshot_id is not None else None
    current = snapshot_id if snapshot is not None and snapshot.manifests(table.io) else None
    schema_id = readable_at(table.metadata, snapshot_id, as_now=snapshot_id == table.metadata.current_snapshot_id).current_schema_id
    return _with(table, current_snapshot_id=current, current_schema_id=schema_id)


def _with(table: EncryptedTable, **changes: Any) -> EncryptedTable:
    changed = copy(table)
    changed.metadata = cast("TableMetadata", table.metadata.model_copy(update=changes))
    return changed


def _of_all_snapshots(name: str) -> Callable[[EncryptedTable], pa.Table]:
    def rows(table: EncryptedTable) -> pa.Table:
        with_files = [snapshot for snapshot in table.metadata.snapshots if snapshot.manifests(table.io)]
        return methodcaller(name)(_with(_of_leaves(table), snapshots=with_files).inspect)

    return rows


def _inspected(name: str) -> Callable[[EncryptedTable], pa.Table]:
    return lambda table: methodcaller(name)(_of_leaves(table).inspect)


def _of_leaves(table: EncryptedTable) -> EncryptedTable:
    """Return the table with the columns whose metrics Iceberg shows: those that hold values, by their full names, in their order."""
    return _with(table, schemas=list(map(_leaves, table.metadata.schemas)))


def _leaves(schema: Schema) -> Schema:
    leaves = (field for field in index_by_id(schema).values() if field.field_type.is_primitive)
    named = (field.model_copy(update={"name": schema.find_column_name(field.field_id)}) for field in leaves)
    return Schema(*sorted(named, key=lambda field: field.name), schema_id=schema.schema_id)


def _with_last_names(metadata: EncryptedTableMetadata) -> list[PartitionSpec]:
    """Return a table's partition specs, each field by the name that it had last: PyIceberg shows a renamed field as two."""
    specs = sorted(metadata.partition_specs, key=lambda spec: spec.spec_id)
    names = {field.field_id: field.name for spec in specs for field in spec.fields}
    ids = {name: field_id for field_id, name in sorted(names.items())}
    names = {field_id: name if ids[name] == field_id else f"{name}_{field_id}" for field_id, name in names.items()}

    return [
        PartitionSpec(*(field.model_copy(update={"name": names[field.field_id]}) for field in spec.fields), spec_id=spec.spec_id)
        for spec in specs
    ]


def _without_no_partitions(rows: pa.Table) -> pa.Table:
    """Return rows without the partition of a table that never had any, as in Iceberg."""
    if _has_no_partitions(rows.schema):
        return rows.drop_columns(_PARTITION)
    if _DATA_FILE not in rows.column_names or not _has_no_partitions(pa.schema(rows.schema.field(_DATA_FILE).type)):
        return rows

    files = pa.Table.from_struct_array(rows[_DATA_FILE]).drop_columns(_PARTITION).to_struct_array()
    return rows.set_column(rows.column_names.index(_DATA_FILE), rows.schema.field(_DATA_FILE).with_type(files.type), files)


def _has_no_partitions(columns: pa.Schema) -> bool:
    return _PARTITION in columns.names and not columns.field(_PARTITION).type.num_fields


def _partitions(table: EncryptedTable) -> pa.Table:
    """Return a row for each partition, as Iceberg does: those of specs with as many fields are one where their values are.

    PyIceberg has one for each order in which specs had their fields.
    """
    rows = table.inspect.partitions()
    if _PARTITION not in rows.column_names:
        return rows

    # Partitions stay Arrow's: Python's dates are of the years 1 to 9999.
    values = [frozenset(value.items()) if value.is_valid else frozenset() for value in rows.column(_PARTITION)]
    counts = rows.drop_columns(_PARTITION)
    shown = {field.field_id for field in PartitionStruct(table.metadata).fields}
    fields = {spec.spec_id: sum(field.field_id in shown for field in spec.fields) for spec in table.metadata.partition_specs}
    first: dict[tuple[int, frozenset[tuple[str, Any]]], int] = {}
    found: dict[int, dict[str, Any]] = {}
    for place, row in enumerate(counts.to_pylist()):
        at = first.setdefault((fields[row["spec_id"]], values[place]), place)
        found[at] = row if at == place else _together(found[at], row)

    joined = pa.Table.from_pylist(list(found.values()), schema=counts.schema)
    partitions = rows.column(_PARTITION).take(pa.array(found, pa.int64()))
    return joined.append_column(rows.schema.field(_PARTITION), partitions).select(rows.column_names)


def _together(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    newer = max(one, other, key=lambda row: row["last_updated_at"] or _NEVER)
    return newer | {name: one[name] + other[name] for name in one if name.endswith(_COUNTED)}


def _keys(table: EncryptedTable) -> pa.Table:
    metadata = table.metadata
    ring = metadata.key_ring
    needed = {each.snapshot_id: ring.needed_by([each.key_id]) for each in metadata.snapshots if each.key_id is not None}
    rows = [
        {
            "key_id": key.key_id,
            "kind": key.kind,
            "wrapped_by": key.encrypted_by_id,
            "created_at": key.created_at_ms if key.is_wrapped_by_kms else None,
            "snapshot_ids": [snapshot_id for snapshot_id, key_ids in needed.items() if key.key_id in key_ids],
        }
        for key in ring.entries
    ]
    return pa.Table.from_pylist(rows, schema=_KEYS)


def _audit(table: EncryptedTable) -> pa.Table:
    # The planner starts without it: few of its statements need it.
    from tablecrypt import maintenance

    rows = [
        {
            "severity": finding.severity.label,
            "code": finding.kind.code,
            "title": finding.kind.title,
            "location": finding.where,
            "message": finding.message,
            "advice": finding.kind.advice,
        }
        for audited in maintenance.audit(table).tables
        for finding in audited.findings
    ]
    return pa.Table.from_pylist(rows, schema=_FINDINGS)


def position_deletes(table: EncryptedTable, most_rows: int = MOST_ROWS) -> pa.Table:
    """Return the table's rows, of its current snapshot.

    Args:
        table: whose.
        most_rows: that this process should hold.

    Raises:
        ConfigurationError: there are more.
    """
    # Positions would reveal rows that the server's filter hides.
    refuse_restricted(table.io, "reading position_deletes")
    snapshot = table.current_snapshot()
    tasks = [] if snapshot is None else ScanPlanner(table.metadata, table.io).plan_files(listed_manifests(snapshot, table.io))
    deleted = [(task, file) for task in tasks for file in task.delete_files if file.content != DataFileContent.EQUALITY_DELETES]
    # By the manifests' counts, before a delete file is read into this process's memory.
    if sum(file.record_count for _, file in deleted) > most_rows:
        raise ConfigurationError(
            f"{name_of(table)} has more than {most_rows} deleted rows: SELECT record_count FROM its delete_files, or ask for rows "
            "WHERE _deleted"
        )

    struct = PartitionStruct(table.metadata)
    schema = _schema(table.schema(), struct)
    deletes = DeleteReader(table.io, table.metadata)
    batches = [_rows(task, file, positions, schema, struct) for task, file in deleted if (positions := _positions(deletes, task, file))]

    return pa.Table.from_batches(batches, schema)


def _schema(table: Schema, struct: PartitionStruct) -> pa.Schema:
    row = pa.struct(list(schema_to_pyarrow(table, include_field_ids=False)))
    partition = pa.struct(list(schema_to_pyarrow(Schema(*struct.fields), include_field_ids=False)))
    return pa.schema(
        [
            pa.field("file_path", pa.string(), nullable=False),
            pa.field("pos", pa.int64(), nullable=False),
            pa.field("row", row),
            *([pa.field("partition", partition, nullable=False)] if struct.fields else []),
            pa.field("spec_id", pa.int32(), nullable=False),
            pa.field("delete_file_path", pa.string(), nullable=False),
            pa.field("content_offset", pa.int64()),
            pa.field("content_size_in_bytes", pa.int64()),
        ]
    )


def _positions(deletes: DeleteReader, task: EncryptedFileScanTask, file: DataFile) -> list[int]:
    # One delete file at a time, since the table names for each row the one that deleted it.
    alone = EncryptedFileScanTask(task.file, {file}, task.residual, task.data_sequence_number)
    return list(deletes.deletes_of(alone).positions or ())


def _rows(task: EncryptedFileScanTask, file: DataFile, positions: list[int], schema: pa.Schema, struct: PartitionStruct) -> pa.RecordBatch:
    own = EncryptedDataFile.of(file)
    known: dict[str, Any] = {
        "file_path": task.file.file_path,
        "row": None,
        "partition": dict(_partition(task.file, struct)),
        "spec_id": file.spec_id,
        "delete_file_path": file.file_path,
        "content_offset": own.content_offset,
        "content_size_in_bytes": own.content_size_in_bytes,
    }
    at = pa.array(positions, pa.int64())
    columns = [at if field.name == "pos" else _repeated(known[field.name], field.type, len(at)) for field in schema]

    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _partition(file: DataFile, struct: PartitionStruct) -> Iterator[tuple[str, Any]]:
    spec = next(spec for spec in struct.metadata.partition_specs if spec.spec_id == file.spec_id)
    at = {field.field_id: number for number, field in enumerate(spec.fields)}
    for field in struct.fields:
        yield field.name, file.partition[at[field.field_id]] if field.field_id in at else None


def _repeated(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    return pa.array([value], kind).take(pa.array([0] * count, pa.int64()))


_OF_A_SNAPSHOT: Final[Mapping[str, Callable[[EncryptedTable], pa.Table]]] = {
    **{name: _inspected(name) for name in ("manifests", "entries", "files", "data_files", "delete_files")},
    "partitions": _partitions,
    "position_deletes": position_deletes,
}
_OF_THE_TABLE: Final[Mapping[str, Callable[[EncryptedTable], pa.Table]]] = {
    **{name: _inspected(name) for name in ("history", "snapshots", "refs", "metadata_log_entries", "all_entries")},
    **{name: _of_all_snapshots(name) for name in ("all_manifests", "all_files", "all_data_files", "all_delete_files")},
    "keys": _keys,
    "audit": _audit,
}
NAMES: Final = frozenset(_OF_A_SNAPSHOT) | frozenset(_OF_THE_TABLE)
"""The names of all metadata tables."""
