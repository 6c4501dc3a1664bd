"""Merge: a DataFrame's rows replace the table's rows with the same keys; rows with new keys are added. All of it runs on executors.

    table  ──────▶ keys, _row_id, file and position of each row ─┐
                                                                 ├─ left join on the keys, rows of one key in one task
    DataFrame ───────────────────────────────────────────────────┘      │
                                                                        ▼
    one task: fails for a key that occurs twice or is null; writes all rows, updated ones with the _row_id of the row that they replace;
              returns its files and the positions of the replaced rows
    driver:   copy-on-write job or deletion vectors for the replaced rows, as the table says; one snapshot; one commit

It is MERGE INTO … ON equal keys WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *, where each key names one row of the source
and at most one of the table: every matched row is written again, even if it does not differ (`table.upsert` leaves such a row alone).
write.merge.mode and write.merge.isolation-level hold as for the statement, and the snapshot has its counts.

The DataFrame is evaluated once. The driver holds one Roaring bitmap of positions per data file with matches and no keys or rows.

Raises ConfigurationError for keys that cannot be compared safely.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
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
from tablecrypt.engines.changes import marked_files, numbered_files
from tablecrypt.engines.job_keys import JobTicket, Role
from tablecrypt.engines.job_messages import FileNumber, merge_positions, positions_by_file
from tablecrypt.engines.tasks import decrypted_results, encrypt_tasks
from tablecrypt.errors import ConfigurationError
from tablecrypt.parquet.text_columns import with_checked_utf8
from tablecrypt.spark.columns import batch_for_spark, batch_for_table, schema_for_spark, schema_for_table, spark_schema
from tablecrypt.spark.executor_job import filled_batches, open_task, result_batch, results_of, skip_per_task_setup, task_numbers
from tablecrypt.spark.session import Sizing, in_tasks
from tablecrypt.spark.shared.written_columns import quoted
from tablecrypt.spark.tables import LocatedTable, table_access
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.lineage import LAST_UPDATED, LINEAGE_FIELDS, ROW_ID
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.reader import TaskReader
from tablecrypt.table.row_changes import RowChange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEY: Final = "__tablecrypt_key_"
_ROW_COLUMNS: Final = ("__tablecrypt_row_id", "__tablecrypt_task", "__tablecrypt_file", "__tablecrypt_position")
COUNTED: Final = (
    *("copied", "deleted", "updated", "inserted", "matched-updated", "matched-deleted"),
    *("not-matched-by-source-updated", "not-matched-by-source-deleted"),
)
"""What is counted of the table's rows in a merge."""
_NUMBER: Final = "__tablecrypt_number"
_COMPARABLE: Final = (
    *(BinaryType, BooleanType, DateType, DecimalType, FixedType, IntegerType, LongType, StringType, TimestampType, TimestamptzType),
)


@dataclass(frozen=True)
class KeysContent:
    """What every task that looks up keys needs: the table, and the key columns with _row_id after them."""

    access: TableAccess
    projected: Schema


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
        # -0.0 and 0.0 are equal and two values; so are a uuid's text in capitals and in small letters.
        if not isinstance(own[name].field_type, _COMPARABLE):
            raise ConfigurationError(f"merge key {name!r} is of type {own[name].field_type}, whose values are not compared safely")

    # Rows travel with their identity in columns of these names.
    taken = {field.name for field in LINEAGE_FIELDS} & own.keys()
    if taken:
        raise ConfigurationError(f"the table has a column {taken.pop()!r} of its own, so merged rows cannot keep their identity")

    return tuple(names)


def merged_change(df: DataFrame, located: LocatedTable, keys: tuple[str, ...], branch: str | None) -> RowChange:
    """Write the DataFrame's rows, and find the rows that they replace; `rewrite_marked` and a commit make it a merge.

    Args:
        df: rows that fit the table.
        located: the table.
        keys: see `checked_keys`.
        branch: whose rows are replaced.

    Raises:
        ConfigurationError: a key is null in the DataFrame, or occurs twice in it or in the table.
    """
    spark = df.sparkSession
    change = RowChange(is_merge=True)
    # All files: which keys the rows have is known only when Spark evaluates them.
    tasks = located.scan(ALWAYS_TRUE, branch).plan_files()
    partitions = Sizing.of(spark).partitions(tasks) if tasks else []
    rows = _joined(df, _keys_of_table(df, located, keys, partitions), keys)

    ticket, job_key = located.issue_job(spark)
    encrypted_access = job_key.share(table_access(located.table))

    def write_merged_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_merged_partition(ticket, encrypted_access, batches)

    with _refusing_keys(keys):
        results = results_of(rows, write_merged_files)
    replaced: dict[FileNumber, BitMap64] = {}
    for result in decrypted_results(job_key, FileEntryCodec(located.table.metadata), results):
        change.added += result.files
        merge_positions(replaced, result.marks)
    change.position_deleted = marked_files(numbered_files(partitions), replaced)

    return change


def merge_counts(change: RowChange, updated: int) -> dict[str, str]:
    """Return what Spark counts in the MERGE statement that does the same, under Iceberg's names in a snapshot's summary.

    Args:
        change: as it is committed.
        updated: how many rows are replaced.
    """
    written, copied = (sum(file.record_count for file in files) for files in (change.added, change.rewritten))
    counts = {"copied": copied, "updated": updated, "matched-updated": updated, "inserted": written - updated}
    return {summary_name(each): str(counts.get(each, 0)) for each in COUNTED}


def summary_name(counted: str) -> str:
    """Return the property of a snapshot's summary that holds a count of COUNTED."""
    return f"spark.merge-into.num-target-rows-{counted}"


def _joined(rows: DataFrame, stored: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Join rows with the table's rows that have the same keys. Rows of one key come into one task, and keys that are null, or that occur
    twice, fail it.

    Args:
        rows: the rows to merge.
        stored: the table's keys, numbered behind _KEY, and _ROW_COLUMNS.
        keys: the key columns of `rows`.
    """
    from pyspark.sql import Window, functions

    columns = [functions.col(quoted(name)) for name in keys]
    on = [column == functions.col(f"{_KEY}{number}") for number, column in enumerate(columns)]
    matched = rows.join(stored, on, "left").drop(*(f"{_KEY}{number}" for number in range(len(keys))))
    # Spark needs no more shuffle for the window than for the join, and no other sort.
    number = functions.row_number().over(Window.partitionBy(*columns).orderBy(*columns))
    is_good = functions.when(functions.col(_NUMBER) > 1, functions.raise_error(_occurs_twice(keys))).otherwise(functions.lit(True))
    for name, column in zip(keys, columns, strict=True):
        is_good = functions.when(column.isNull(), functions.raise_error(_is_null(name))).otherwise(is_good)
    return matched.withColumn(_NUMBER, number).where(is_good).drop(_NUMBER)


def _is_null(name: str) -> str:
    return f"merge key {name!r} is null in the DataFrame: such a row matches nothing"


def _occurs_twice(keys: Sequence[str]) -> str:
    return f"the keys {', '.join(keys)} do not name one row: some occur more than once in the DataFrame or the table"


@contextmanager
def _refusing_keys(keys: Sequence[str]) -> Iterator[None]:
    """Raise what `_joined` refuses as an error of this package, without Spark's account of the job that failed."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        failed = str(error)
        # Spark gives the text of raise_error among its own words, and in no field of the error.
        refusal = next((each for each in (*map(_is_null, keys), _occurs_twice(keys)) if each in failed), None)
        if refusal is None:
            raise
        raise ConfigurationError(refusal) from None


def read_keys(
    ticket: JobTicket, encrypted_content: bytes, encrypted_tasks: Sequence[bytes], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the keys and positions of the rows of these tasks. Runs on an executor."""
    skip_per_task_setup()
    job_key = ticket.redeem()
    content: KeysContent = job_key.shared(encrypted_content)
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


def write_merged_partition(ticket: JobTicket, encrypted_access: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write one partition of joined rows. Runs on an executor."""
    rows_of_partition = filled_batches(batches)
    if rows_of_partition is None:
        return

    first, filled = rows_of_partition
    job = open_task(ticket, encrypted_access)
    table, own = job.metadata.schema(), [name for name in first.schema.names if name not in _ROW_COLUMNS]
    schema = schema_for_table(first.select(own).schema, table)
    stored = pa.schema([*schema, pa.field(ROW_ID.name, pa.int64()), pa.field(LAST_UPDATED.name, pa.int64())])
    marks: dict[FileNumber, BitMap64] = {}

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in filled:
            row_id, *row = (batch.column(name) for name in _ROW_COLUMNS)
            # A new row has no file, and marks nothing.
            merge_positions(marks, positions_by_file(*row))
            converted = batch_for_table(batch.select(own), schema, table)
            # An updated row keeps its _row_id; a null sequence number makes it one that this commit updated.
            columns = [*converted.columns, row_id, pa.nulls(batch.num_rows, pa.int64())]
            yield pa.RecordBatch.from_arrays(columns, schema=stored)

    files = job.write(with_checked_utf8(pa.RecordBatchReader.from_batches(stored, rows())))
    yield result_batch(job.number, job.encrypted_result(files, marks))


def _keys_of_table(df: DataFrame, located: LocatedTable, keys: tuple[str, ...], partitions: list[list[EncryptedFileScanTask]]) -> DataFrame:
    spark, table = df.sparkSession, located.table.schema()
    projected = Schema(*(table.find_field(name) for name in keys), ROW_ID)
    schema = spark_schema(_keys_schema(projected))
    if not partitions:
        return spark.createDataFrame([], schema)

    ticket, job_key = located.issue_job(spark)
    codec = FileEntryCodec(located.table.metadata)
    encrypted_content = job_key.share(KeysContent(table_access(located.table), projected))
    encrypted_tasks = encrypt_tasks(job_key, codec, partitions)

    def read_keys_of_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return read_keys(ticket, encrypted_content, encrypted_tasks, batches)

    return in_tasks(spark, len(encrypted_tasks), read_keys_of_files, schema)


def _keys_schema(projected: Schema) -> pa.Schema:
    *keys, _ = schema_for_spark(projected)
    renamed = [field.with_name(f"{_KEY}{number}").with_nullable(True) for number, field in enumerate(keys)]
    return pa.schema([*renamed, *(pa.field(name, pa.int64()) for name in _ROW_COLUMNS)])
