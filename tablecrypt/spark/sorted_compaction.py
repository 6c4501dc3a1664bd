"""A compaction that sorts: Spark sorts all rewritten rows, so that they are in order over all new files of a partition.

    executors   files of the groups, deletes applied ─▶ rows with _row_id, _last_updated_sequence_number and their partition
    Spark       repartitionByRange(partition, columns), sortWithinPartitions(partition, columns): one range, one or more new files
    executors   rows ─▶ new files under fresh DEKs ─▶ their entries, encrypted
    driver      one commit for all groups

Spark looks at a sample of the rows first, to choose ranges of about equal size, so the files are read twice. It sorts on disk what does not
fit into memory.

Raises ConfigurationError for a table with a column of a type that Spark does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE

from tablecrypt.engines.access import TableAccess
from tablecrypt.engines.job_keys import JobTicket, Role
from tablecrypt.engines.tasks import decrypted_results, encrypt_tasks
from tablecrypt.maintenance import Compacted, Progress, ProgressListener
from tablecrypt.maintenance._file_rewrite import check_open
from tablecrypt.maintenance.compaction import OPERATION, Compaction
from tablecrypt.maintenance.sorting import SortKey, ZOrder, z_values
from tablecrypt.spark.columns import batch_for_spark, batch_for_table, schema_for_spark, schema_for_table, spark_schema
from tablecrypt.spark.distribution import partition_texts
from tablecrypt.spark.executor_job import filled_batches, open_task, result_batch, results_of, skip_per_task_setup, task_numbers
from tablecrypt.spark.session import Sizing, in_tasks
from tablecrypt.spark.shared.written_columns import quoted
from tablecrypt.spark.tables import LocatedTable, table_access
from tablecrypt.table.deletes import check_rows
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.lineage import LINEAGE_FIELDS, with_lineage
from tablecrypt.table.parquet_options import with_target_file_size
from tablecrypt.table.reader import READ_AHEAD, ReadOptions, TaskReader
from tablecrypt.table.table_files import removing_on_error

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_PARTITION: Final = "__tablecrypt_partition"
_Z_VALUE: Final = "__tablecrypt_z"
_LINEAGE_NAMES: Final = tuple(field.name for field in LINEAGE_FIELDS)


def rewritten_in_order(spark: SparkSession, compaction: Compaction, progress: ProgressListener) -> Compacted:
    """Rewrite all groups of a compaction in the order that it asks for, and commit.

    Raises:
        FormatError: the files do not hold as many live rows as their manifests say. Nothing was committed.
        AuthenticationError: a file is not what its worker says of it. Nothing was committed.
    """
    planned = LocatedTable.of_table(compaction.table)
    z_order = tuple(name for key in compaction.sort_by if isinstance(key, ZOrder) for name in key.names)
    schema = _row_schema(planned.table.schema(), z_order)
    ticket, job_key = planned.issue_job(spark)
    encrypted_access = job_key.share(_access(compaction))
    tasks = [task for group in compaction.groups for task in group.tasks]
    codec = FileEntryCodec(planned.table.metadata)
    encrypted_tasks = encrypt_tasks(job_key, codec, Sizing.of(spark).partitions(tasks))

    def read_encrypted_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return read_rows(ticket, encrypted_access, encrypted_tasks, z_order, batches)

    def write_encrypted_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_rows(ticket, encrypted_access, batches)

    rows = in_tasks(spark, len(encrypted_tasks), read_encrypted_rows, spark_schema(schema))
    results = results_of(_ordered(rows, compaction), write_encrypted_files)
    files = [file for result in decrypted_results(job_key, codec, results) for file in result.files]
    # Compared before the commit: a task whose result is missing would lose its rows for good.
    with removing_on_error(planned.table.io, files):
        check_rows([group.live_rows for group in compaction.groups], files, tasks[0].file.file_path)
        check_open(planned.table.io, files)
    compaction.add(compaction.groups, files)
    progress(Progress(OPERATION, len(tasks), len(tasks), "files"))

    return compaction.finish()


def read_rows(
    ticket: JobTicket, encrypted_access: bytes, encrypted_tasks: Sequence[bytes], z_order: Sequence[str], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of a task's files, with their identity, partition and Z-values. Runs on an executor."""
    skip_per_task_setup()
    job_key = ticket.redeem()
    access: TableAccess = job_key.shared(encrypted_access)
    metadata = access.metadata()
    table, spec = metadata.schema(), metadata.spec()
    reader = TaskReader(metadata, access.io(), with_lineage(table), ALWAYS_TRUE, ReadOptions(read_ahead=READ_AHEAD))
    schema = _row_schema(table, z_order)

    for number in task_numbers(numbers):
        for task in FileEntryCodec(metadata).decode_tasks(job_key.decrypt(Role.TASK, number, encrypted_tasks[number])):
            for rows in reader.batches(task):
                partitions = pa.nulls(len(rows), pa.string()) if spec.is_unpartitioned() else partition_texts(rows, table, spec)
                placed = rows.append_column(_PARTITION, partitions)
                for name, values in zip(_z_names(z_order), z_values([rows.column(name) for name in z_order]), strict=True):
                    placed = placed.append_column(name, values)
                yield batch_for_spark(placed, schema)


def write_rows(ticket: JobTicket, encrypted_access: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write one range of rows, in the order in which they come. Runs on an executor."""
    rows_of_partition = filled_batches(batches)
    if rows_of_partition is None:
        return

    first, filled = rows_of_partition
    job = open_task(ticket, encrypted_access)
    table = job.metadata.schema()
    own = [field.name for field in table.fields]
    schema = schema_for_table(first.select(own).schema, table)
    stored = pa.schema([*schema, *(pa.field(name, pa.int64()) for name in _LINEAGE_NAMES)])

    def converted() -> Iterator[pa.RecordBatch]:
        for batch in filled:
            columns = batch_for_table(batch.select(own), schema, table).columns
            yield pa.RecordBatch.from_arrays([*columns, *(batch.column(name) for name in _LINEAGE_NAMES)], schema=stored)

    yield result_batch(job.number, job.encrypted_result(job.write(pa.RecordBatchReader.from_batches(stored, converted()))))


def _access(compaction: Compaction) -> TableAccess:
    """Return access to the table in the planned state, with the compaction's file size."""
    metadata = compaction.table.metadata
    # In the tasks' copy of the metadata only: the table's own property stays.
    rolling = with_target_file_size(metadata, max(group.roll_size for group in compaction.groups))
    return replace(table_access(compaction.table), metadata_json=rolling.without_history().model_dump_json())


def _ordered(rows: DataFrame, compaction: Compaction) -> DataFrame:
    from pyspark.sql import functions

    # The partition comes first, so that a range has rows of few partitions, and each of these gets few files.
    order = [functions.col(_PARTITION), *(column for key in compaction.sort_by for column in _order_of(key))]
    ranges = sum(group.new_files for group in compaction.groups)
    added = [name for name in rows.columns if name == _PARTITION or name.startswith(_Z_VALUE)]
    return rows.repartitionByRange(ranges, *order).sortWithinPartitions(*order).drop(*added)


def _order_of(key: SortKey) -> list[Column]:
    from pyspark.sql import functions

    if isinstance(key, ZOrder):
        return [functions.col(name) for name in _z_names(key.names)]

    column = functions.col(quoted(key.name))
    if key.descending:
        return [column.desc_nulls_first() if key.nulls_first else column.desc_nulls_last()]

    return [column.asc_nulls_first() if key.nulls_first else column.asc_nulls_last()]


def _z_names(z_order: Sequence[str]) -> list[str]:
    return [f"{_Z_VALUE}{number}" for number in range(len(z_order))]


def _row_schema(table: Schema, z_order: Sequence[str]) -> pa.Schema:
    schema = schema_for_spark(with_lineage(table)).append(pa.field(_PARTITION, pa.string()))
    for name in _z_names(z_order):
        schema = schema.append(pa.field(name, pa.int64()))
    return schema
