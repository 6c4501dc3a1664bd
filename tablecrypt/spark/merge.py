"""Merge: a DataFrame's rows replace the table's rows with the same keys; rows with new keys are added. All of it runs on executors.

    table  ──job──▶ keys, _row_id, file and position of each row ─┐
                                                                  ├─ left join on the keys, rows of one key in one task, in order
    DataFrame ────────────────────────────────────────────────────┘      │
                                                                         ▼
    one task: refuses a key that occurs twice or is null; writes all rows, updated ones with the _row_id of the row that they replace;
              returns its files and the positions of the replaced rows
    driver:   copy-on-write job or deletion vectors for the replaced rows, as the table says; one snapshot; one commit

The driver holds one Roaring bitmap of positions per data file with matches and no keys or rows. Every matched row is written again, even if
it does not differ.

Raises ConfigurationError for keys that cannot be compared safely.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from pyroaring import BitMap64

from tablecrypt.engines.access import TableAccess
from tablecrypt.engines.changes import RowChange, numbered
from tablecrypt.engines.job_keys import JobTicket, Role
from tablecrypt.engines.job_messages import FileNumber, merge_positions, positions_by_file
from tablecrypt.engines.tasks import decrypted_results, encrypt_tasks
from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.columns import batch_for_spark, batch_for_table, schema_for_spark, schema_for_table, spark_schema
from tablecrypt.spark.executor_job import filled_batches, open_task, result_batch, results_of, skip_per_task_setup, task_numbers
from tablecrypt.spark.session import Sizing, in_tasks
from tablecrypt.spark.tables import LocatedTable, table_access
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.lineage import LAST_UPDATED, LINEAGE_FIELDS, ROW_ID
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.reader import TaskReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEY: Final = "__tablecrypt_key_"
_ROW_COLUMNS: Final = ("__tablecrypt_row_id", "__tablecrypt_task", "__tablecrypt_file", "__tablecrypt_position")
_COMPARABLE: Final = (
    *(BinaryType, BooleanType, DateType, DecimalType, FixedType, IntegerType, LongType, StringType, TimestampType, TimestamptzType),
)


@dataclass(frozen=True)
class KeysContent:
    """What every task that looks up keys needs: the table, and the key columns with _row_id after them."""

    access: TableAccess
    projected: Schema


@dataclass(frozen=True)
class MergeContent:
    """What every task that writes needs."""

    access: TableAccess
    keys: tuple[str, ...]


def checked_keys(table: Schema, columns: Sequence[str], keys: Sequence[str] | None) -> tuple[str, ...]:
    """Return the key columns: those given, else the schema's identifier fields.

    Args:
        table: the table's schema.
        columns: the DataFrame's columns.
        keys: names of columns at the top level.

    Raises:
        ConfigurationError: there are none, one is missing or nested, or of a type whose equal values may differ (float, double, uuid as
            text) or that Spark does not compare.
    """
    names = list(keys) if keys is not None else [str(table.find_column_name(each)) for each in sorted(table.identifier_field_ids)]
    if not names:
        raise ConfigurationError("merge needs keys=[...], or identifier fields in the table's schema")
    own = {field.name: field for field in table.fields}
    for name in names:
        if name not in own:
            raise ConfigurationError(f"merge key {name!r} is not a column of the table; it has {', '.join(own)}")
        if name not in columns:
            raise ConfigurationError(f"merge key {name!r} is missing from the DataFrame")
        if not isinstance(own[name].field_type, _COMPARABLE):
            raise ConfigurationError(f"merge key {name!r} is of type {own[name].field_type}, whose values are not compared safely")
    taken = {field.name for field in LINEAGE_FIELDS} & own.keys()
    if taken:
        raise ConfigurationError(f"the table has a column {taken.pop()!r} of its own, so merged rows cannot keep their identity")
    return tuple(names)


def merged_change(df: DataFrame, located: LocatedTable, keys: tuple[str, ...], branch: str | None) -> RowChange:
    """Write the DataFrame's rows, and find the rows that they replace; `rewrite_unless_merge_on_read` and a commit make it a merge."""
    spark = df.sparkSession
    tasks = cast("list[EncryptedFileScanTask]", list(located.scan(ALWAYS_TRUE, branch).plan_files()))
    partitions = Sizing.of(spark).partitions(tasks) if tasks else []
    joined = _joined(df, _keys_of_table(df, located, keys, partitions), keys)

    ticket, job_key = located.issue_job(spark)
    encrypted_content = job_key.encrypt(Role.SHARED, 0, pickle.dumps(MergeContent(table_access(located.table), keys)))

    def write_merged_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_merged_partition(ticket, encrypted_content, batches)

    results = results_of(joined, write_merged_files)
    change = RowChange(branch=branch)
    replaced: dict[FileNumber, BitMap64] = {}
    for result in decrypted_results(job_key, FileEntryCodec(located.table.metadata), results):
        change.added += result.files
        merge_positions(replaced, result.marks)
    numbers = numbered(partitions)
    change.marked = [(numbers[number], bitmap) for number, bitmap in replaced.items()]
    return change


def read_keys(
    ticket: JobTicket, encrypted_content: bytes, encrypted_tasks: Sequence[bytes], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the keys and positions of the rows of these tasks. Runs on an executor."""
    skip_per_task_setup()
    job_key = ticket.redeem()
    content: KeysContent = pickle.loads(job_key.decrypt(Role.SHARED, 0, encrypted_content))
    metadata = content.access.metadata()
    reader = TaskReader(metadata, content.access.io(), content.projected, ALWAYS_TRUE)
    schema = _keys_schema(content.projected)
    for number in task_numbers(numbers):
        tasks = FileEntryCodec(metadata).decode_tasks(job_key.decrypt(Role.TASK, number, encrypted_tasks[number]))
        for index, task in enumerate(tasks):
            for positions, rows in reader.positioned_batches(task):
                file_number = [pa.array([each] * rows.num_rows, pa.int64()) for each in (number, index)]
                columns = [*rows.columns, *file_number, positions.cast(pa.int64())]
                yield batch_for_spark(pa.RecordBatch.from_arrays(columns, names=schema.names), schema)


def write_merged_partition(ticket: JobTicket, encrypted_content: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write one partition of joined rows. Runs on an executor."""
    rows_of_partition = filled_batches(batches)
    if rows_of_partition is None:
        return
    first, filled = rows_of_partition
    job = open_task(ticket, encrypted_content)
    table, own = job.metadata.schema(), [name for name in first.schema.names if name not in _ROW_COLUMNS]
    schema = schema_for_table(first.select(own).schema, table)
    stored = pa.schema([*schema, pa.field(ROW_ID.name, pa.int64()), pa.field(LAST_UPDATED.name, pa.int64())])
    marks: dict[FileNumber, BitMap64] = {}

    def rows() -> Iterator[pa.RecordBatch]:
        previous: pa.RecordBatch | None = None
        for batch in filled:
            previous = _check_keys(batch.select(list(job.shared.keys)), previous)
            row_id, *row = (batch.column(name) for name in _ROW_COLUMNS)
            merge_positions(marks, positions_by_file(*row))
            converted = batch_for_table(batch.select(own), schema, table)
            columns = [*converted.columns, row_id, pa.nulls(batch.num_rows, pa.int64())]
            yield pa.RecordBatch.from_arrays(columns, schema=stored)

    files = job.write(pa.RecordBatchReader.from_batches(stored, rows()))
    yield result_batch(job.number, job.encrypted_result(files, marks))


def _keys_of_table(df: DataFrame, located: LocatedTable, keys: tuple[str, ...], partitions: list[list[EncryptedFileScanTask]]) -> DataFrame:
    spark, table = df.sparkSession, located.table.schema()
    projected = Schema(*(table.find_field(name) for name in keys), ROW_ID)
    schema = spark_schema(_keys_schema(projected))
    if not partitions:
        return spark.createDataFrame([], schema)
    ticket, job_key = located.issue_job(spark)
    codec = FileEntryCodec(located.table.metadata)
    encrypted_content = job_key.encrypt(Role.SHARED, 0, pickle.dumps(KeysContent(table_access(located.table), projected)))
    encrypted_tasks = encrypt_tasks(job_key, codec, partitions)

    def read_keys_of_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return read_keys(ticket, encrypted_content, encrypted_tasks, batches)

    return in_tasks(spark, len(encrypted_tasks), read_keys_of_files, schema)


def _keys_schema(projected: Schema) -> pa.Schema:
    *keys, _ = schema_for_spark(projected)
    renamed = [field.with_name(f"{_KEY}{number}").with_nullable(True) for number, field in enumerate(keys)]
    return pa.schema([*renamed, *(pa.field(name, pa.int64()) for name in _ROW_COLUMNS)])


def _joined(df: DataFrame, located: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    from pyspark.sql import functions

    on = [functions.col(f"`{name}`") == functions.col(f"{_KEY}{number}") for number, name in enumerate(keys)]
    joined = df.join(located, on, "left").drop(*(f"{_KEY}{number}" for number in range(len(keys))))
    columns = [functions.col(f"`{name}`") for name in keys]
    return joined.repartition(*columns).sortWithinPartitions(*columns)


def _check_keys(keys: pa.RecordBatch, previous: pa.RecordBatch | None) -> pa.RecordBatch:
    """Check rows that are sorted by their keys. Return the last row, to compare with the next batch."""
    nulls = [name for name, column in zip(keys.schema.names, keys.columns, strict=True) if column.null_count]
    if nulls:
        raise ConfigurationError(f"merge key {nulls[0]!r} is null in the DataFrame: such a row matches nothing")
    rows = pa.Table.from_batches([keys] if previous is None else [previous, keys]).combine_chunks()
    if rows.num_rows > 1:
        same = [pc.equal(column.slice(1), column.slice(0, rows.num_rows - 1)) for column in rows.columns]
        every = same[0]
        for column in same[1:]:
            every = pc.and_(every, column)
        if pc.any(every).as_py():
            raise ConfigurationError(
                f"the keys {', '.join(keys.schema.names)} do not name one row: some occur more than once in the DataFrame or the table"
            )
    return keys.slice(keys.num_rows - 1)
