"""prod.db.t.position_deletes: the rows of a snapshot's data files that deletion vectors and position deletes hide.

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

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.schema import Schema

from tablecrypt.errors import ConfigurationError
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.spark.sql.scans.partition_values import PartitionStruct
from tablecrypt.table.deletes import DeleteReader
from tablecrypt.table.planning import EncryptedFileScanTask, ScanPlanner, listed_manifests
from tablecrypt.table.restrictions.read_restrictions import refuse_restricted
from tablecrypt.table.table_files import name_of

if TYPE_CHECKING:
    from tablecrypt.table.table import EncryptedTable

MOST_ROWS: Final = 10_000_000


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
