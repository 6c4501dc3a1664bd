"""Reading an encrypted table into a Spark DataFrame.

    driver     scan.plan_files() ─▶ balanced lists of tasks ─▶ each list sealed as one TASK message; table, columns and filter as SHARED
    executor   range(n).mapInArrow: partition i opens message i and streams its files: deletes, filter, schema evolution, projection

The plan is made when `read_table` is called, of one snapshot, and holds for the life of the DataFrame. Spark prunes neither columns nor
files of a mapInArrow, so name the columns and the filter here. A data file is read by one task.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE

from tablecrypt.spark.balance import balanced, partition_count
from tablecrypt.spark.columns import batch_for_spark
from tablecrypt.spark.file_entries import FileEntryCodec
from tablecrypt.spark.requirements import check_session
from tablecrypt.spark.sealed_tasks import JobTicket, Role
from tablecrypt.spark.tables import LocatedTable, TableAccess
from tablecrypt.spark.types import schema_for_spark
from tablecrypt.table.plan import EncryptedFileScanTask
from tablecrypt.table.prefetch import prefetched
from tablecrypt.table.scan import EncryptedDataScan
from tablecrypt.table.task_reader import TaskReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LANES: Final = 2
_LANE_DEPTH: Final = 4
_READ_AHEAD: Final = 32 * 1024 * 1024
"""A task reads this many files at once, of each this many bytes ahead (or one row group), and keeps this many batches of each waiting."""
_MAX_PARTITION_BYTES: Final = ("spark.sql.files.maxPartitionBytes", 128 * 1024 * 1024)
_OPEN_COST_IN_BYTES: Final = ("spark.sql.files.openCostInBytes", 4 * 1024 * 1024)
_UNITS: Final = {"b": 1, "k": 2**10, "kb": 2**10, "m": 2**20, "mb": 2**20, "g": 2**30, "gb": 2**30, "t": 2**40, "tb": 2**40}


@dataclass(frozen=True)
class SharedReadContent:
    """What every task of a read needs."""

    access: TableAccess
    projected: Schema
    row_filter: BooleanExpression


def read_table(
    spark: SparkSession,
    identifier: str,
    columns: Sequence[str] | None = None,
    row_filter: str | BooleanExpression | None = None,
    *,
    snapshot_id: int | None = None,
    catalog_properties: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows of an encrypted table as a DataFrame.

    Args:
        spark: a session of Spark 4.0 or newer. Its executors need this package and rights to decrypt with the table's master key.
        identifier: "catalog.namespace.table"; the catalog is loaded as PyIceberg's load_catalog does, configuration file and
            environment included.
        columns: the columns to read, in this order; by default all.
        row_filter: PyIceberg's filter, as text ("id > 3 and region = 'eu'") or expression. Prunes files and row groups.
        snapshot_id: the snapshot to read, by default the current one.
        catalog_properties: properties for load_catalog, beside those that it finds.

    Raises:
        ConfigurationError: not an encrypted table, a column of a type that Spark lacks, credentials that would travel in the clear, or a
            Spark older than 4.0.
        ValueError: a column or snapshot that the table does not have.
        KmsError: the KMS refused the table's key to the driver.

    What goes wrong on an executor (a file that was tampered with, no right to decrypt) is a PythonException of PySpark when the
    DataFrame is used; its text names the error and the file.
    """
    check_session(spark)
    located = LocatedTable.of(identifier, catalog_properties)
    scan = located.table.scan(row_filter=row_filter or ALWAYS_TRUE, selected_fields=tuple(columns or ("*",)), snapshot_id=snapshot_id)
    projected = _projection(scan, columns)
    arrow_schema = schema_for_spark(projected)
    schema = _spark_schema(arrow_schema)
    tasks = cast("list[EncryptedFileScanTask]", list(scan.plan_files()))
    if not tasks:
        return spark.createDataFrame([], schema)

    ticket, job_key = located.issue_job(spark)
    shared = SharedReadContent(TableAccess.of(located.table), projected, scan.row_filter)
    sealed_shared = job_key.seal(Role.SHARED, 0, pickle.dumps(shared))
    codec = FileEntryCodec(located.table.metadata)
    sealed_tasks = [job_key.seal(Role.TASK, number, codec.encode_tasks(part)) for number, part in enumerate(_partitions(spark, tasks))]

    def read_encrypted_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return read_partitions(ticket, sealed_shared, sealed_tasks, batches)

    return spark.range(0, len(sealed_tasks), 1, len(sealed_tasks)).mapInArrow(read_encrypted_files, schema)


def read_partitions(
    ticket: JobTicket, sealed_shared: bytes, sealed_tasks: Sequence[bytes], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Open the tasks whose numbers come in and yield their rows. Runs on an executor.

    Raises:
        AuthenticationError: a task was changed or swapped, or a file does not open.
        KmsError: this executor may not unwrap the job key.
    """
    job_key = ticket.redeem()
    shared: SharedReadContent = pickle.loads(job_key.open(Role.SHARED, 0, sealed_shared))
    metadata = shared.access.metadata()
    codec = FileEntryCodec(metadata)
    reader = TaskReader(metadata, shared.access.io(), shared.projected, shared.row_filter, read_ahead=_READ_AHEAD)
    schema = schema_for_spark(shared.projected)
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            tasks = codec.decode_tasks(job_key.open(Role.TASK, number, sealed_tasks[number]))
            sources: list[Callable[[], Iterator[pa.RecordBatch]]] = [partial(reader.batches, task) for task in tasks]
            for rows in prefetched(sources, _LANES, _LANE_DEPTH):
                yield batch_for_spark(rows, schema)


def _projection(scan: EncryptedDataScan, columns: Sequence[str] | None) -> Schema:
    """Return the scan's columns in the order in which they were asked for; PyIceberg keeps the table's order."""
    projected = scan.projection()
    if columns is None:
        return projected
    asked = [name.partition(".")[0] for name in columns]
    order = {name: position for position, name in reversed(list(enumerate(asked)))}
    fields = sorted(projected.fields, key=lambda field: order.get(field.name, len(order)))
    return Schema(*fields, schema_id=projected.schema_id)


def _partitions(spark: SparkSession, tasks: Sequence[EncryptedFileScanTask]) -> list[list[EncryptedFileScanTask]]:
    open_cost = _size_setting(spark, *_OPEN_COST_IN_BYTES)

    def size(task: EncryptedFileScanTask) -> int:
        return int(task.file.file_size_in_bytes) + open_cost

    count = partition_count(
        [int(task.file.file_size_in_bytes) for task in tasks],
        cores=_cores(spark),
        partition_bytes=_size_setting(spark, *_MAX_PARTITION_BYTES),
        open_cost=open_cost,
    )
    return balanced(tasks, size, count)


def _cores(spark: SparkSession) -> int:
    # A session of Spark Connect has no context.
    context = getattr(spark, "sparkContext", None)
    return int(context.defaultParallelism) if context is not None else 1


def _size_setting(spark: SparkSession, name: str, default: int) -> int:
    """Return a size in bytes; Spark writes sizes as "134217728b" or "128m"."""
    text = str(spark.conf.get(name, str(default))).strip().lower()
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = _UNITS.get(text[len(digits) :] or "b")
    return int(digits) * unit if digits.isdigit() and unit is not None else default


def _spark_schema(arrow_schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(arrow_schema, prefer_timestamp_ntz=True)
