"""Reading an encrypted table into a Spark DataFrame.

    driver     scan.plan_files() ─▶ balanced lists of tasks ─▶ each list encrypted as one TASK message; table, columns and filter as SHARED
    executor   range(n).mapInArrow: partition i opens message i and streams its files: deletes, filter, schema evolution, projection

That is the Python path. Where the JVM path supports the read, the same plan is a relation of the connector (sql/programs/reads.py), which
is faster.

The plan is made when `read_table` is called, of one snapshot, and holds for the life of the DataFrame. Spark prunes neither columns nor
files of a mapInArrow, so name the columns and the filter here. A long Parquet file is read by several tasks, each some of its row groups.

Decimals go to Spark as whole numbers:

    decimal(9, 2)   12.34 ──worker──▶ int64 1234 ──socket──▶ long 1234 ──JVM: MakeDecimal──▶ decimal(9, 2)  12.34

Of Arrow's own decimal the JVM makes a byte array, a BigInteger and a BigDecimal for each value, which takes about as long as all else of
reading a column of them. MakeDecimal is the expression with which Spark itself makes decimals of its sums. It is evaluated in a projection
of all columns, which takes its time too: so decimals are sent like this where they are a quarter of the columns or more.

Only classic sessions can be given that expression, and it holds up to 18 digits. Others get Arrow's decimals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema

from tablecrypt.engines.access import TableAccess
from tablecrypt.engines.job_keys import JobTicket, Role
from tablecrypt.engines.tasks import encrypt_tasks
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.spark.columns import batch_for_spark, schema_for_spark
from tablecrypt.spark.exchange import pieces_for_spark
from tablecrypt.spark.executor_job import skip_per_task_setup, task_numbers
from tablecrypt.spark.masked_columns import marked_schema, masked_ids, masks_asked_for, refuses_conditions
from tablecrypt.spark.session import Sizing, check_session, in_tasks
from tablecrypt.spark.shared.written_columns import quoted
from tablecrypt.spark.tables import PlannedRead, readable_columns, table_access
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.reader import READ_AHEAD, ReadOptions, TaskReader, prefetched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


Path = Literal["jvm", "python"]

_WORKERS: Final = 2
_QUEUE_LENGTH: Final = 2
"""A task reads this many files at once, and keeps this many batches of each waiting."""
MOST_DIGITS: Final = 18
_SHARE: Final = 4
_WORDS: Final = 2
_SIGN: Final = 63


@dataclass(frozen=True)
class SharedReadContent:
    """What every task of a read needs."""

    access: TableAccess
    projected: Schema
    row_filter: BooleanExpression
    masked: str

    @classmethod
    def of(cls, read: PlannedRead) -> SharedReadContent:
        """Return what the tasks of a plan need."""
        return cls(table_access(read.located.table, read.readable), read.projected, read.row_filter, read.masked)


def read_table(
    spark: SparkSession,
    identifier: str,
    columns: Sequence[str] | None = None,
    row_filter: str | BooleanExpression | None = None,
    *,
    snapshot_id: int | None = None,
    path: Path | None = None,
    masked: str | None = None,
    catalog_properties: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows of an encrypted table as a DataFrame.

    Args:
        spark: a session of Spark 4.0 or newer. On the Python path its executors need this package and rights to decrypt with the
            table's master key.
        identifier: "catalog.namespace.table"; the catalog is loaded as PyIceberg's load_catalog does, configuration file and
            environment included.
        columns: the columns to read, in this order; by default all.
        row_filter: PyIceberg's filter, as text ("id > 3 and region = 'eu'") or expression. Prunes files and row groups.
        snapshot_id: the snapshot to read, by default the current one.
        path: "jvm" for Spark's own Parquet reader, "python" for mapInArrow; by default the first where it gives the same rows and keeps
            keys off the wire (see shared/support.py), else the second.
        masked: "mask" gives masks of protected columns whose keys this user may not use, "error" refuses to read them; by default as the
            catalog says by encryption.masked-reads. The driver's rights decide. No condition is evaluated on masks. A session of Spark
            Connect cannot refuse those that Spark evaluates by itself: there it is "error" unless this or the catalog says "mask".
        catalog_properties: properties for load_catalog, beside those that it finds.

    Raises:
        ColumnKeyDeniedError: values of a protected column are needed that this user may not see.
        ConfigurationError: not an encrypted table, a column of a type that Spark lacks, credentials that would travel in the clear, or a
            Spark older than 4.0; path="jvm" where it is not supported.
        ValueError: a column or snapshot that the table does not have.
        KmsError: the KMS refused the table's key to the driver.

    What goes wrong on an executor (a file that was tampered with, no right to decrypt) fails the job when the DataFrame is used, with
    an error that names the file: a PythonException of PySpark on the Python path, Spark's FAILED_READ_FILE on the other.
    """
    check_session(spark)
    if path not in (None, *get_args(Path)):
        raise ConfigurationError(f"path {path!r} is not known: use jvm or python")

    read = PlannedRead.of(identifier, columns, row_filter, snapshot_id, catalog_properties, masked)
    if masked_ids(read.located.table, read.projected, read.readable) and not refuses_conditions(spark):
        # This session cannot refuse conditions on masks, so they are shown only to a reader who asked for masks.
        readable_columns(read.located.table, read.projected, set(), masks_asked_for(read.located.table, masked))
    schema = marked_schema(read.located.table, read.projected, read.readable)
    if not read.tasks:
        return spark.createDataFrame([], schema)

    # Imported here: executors use this module too, and need nothing of the connector.
    from tablecrypt.spark.sql.programs.reads import jvm_rows

    rows = None if path == "python" else jvm_rows(spark, read, forced=path == "jvm")

    return python_rows(spark, ReadJob.of(spark, read), schema) if rows is None else rows


@dataclass(frozen=True)
class ReadJob:
    """What a read on the Python path sends to the executors: the ticket to the job's key, and what is encrypted with that.

    Attributes:
        ticket: of the job.
        shared: the SHARED message, a SharedReadContent.
        tasks: the TASK messages, in the order of their numbers.
    """

    ticket: JobTicket
    shared: bytes
    tasks: list[bytes]

    @classmethod
    def of(cls, spark: SparkSession, read: PlannedRead) -> ReadJob:
        """Make the job of a planned read."""
        ticket, job_key = read.located.issue_job(spark)
        shared = job_key.share(SharedReadContent.of(read))
        codec = FileEntryCodec(read.located.table.metadata)
        return cls(ticket, shared, encrypt_tasks(job_key, codec, Sizing.of(spark).split_partitions(read.tasks)))


def python_rows(spark: SparkSession, job: ReadJob, schema: Any) -> DataFrame:
    """Return the rows of a job on the Python path.

    Args:
        spark: the session.
        job: what the executors get.
        schema: Spark's, of the rows.
    """
    ticket, encrypted_shared, encrypted_tasks = job.ticket, job.shared, job.tasks
    whole = sent_whole(spark, schema)

    def read_encrypted_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return as_whole_numbers(read_partitions(ticket, encrypted_shared, encrypted_tasks, batches), whole)

    rows = in_tasks(spark, len(encrypted_tasks), read_encrypted_files, with_whole_numbers(schema, whole))
    return with_decimals(rows, schema, whole) if whole else rows


def read_partitions(
    ticket: JobTicket, encrypted_shared: bytes, encrypted_tasks: Sequence[bytes], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Open the tasks whose numbers come in and yield their rows. Runs on an executor.

    Raises:
        AuthenticationError: a task was changed or swapped, or a file does not open.
        KmsError: this executor may not unwrap the job key.
    """
    skip_per_task_setup()
    job_key = ticket.redeem()
    shared: SharedReadContent = job_key.shared(encrypted_shared)
    metadata = shared.access.metadata()
    codec = FileEntryCodec(metadata)
    options = ReadOptions(read_ahead=READ_AHEAD, masked=shared.masked)
    reader = TaskReader(metadata, shared.access.io(), shared.projected, shared.row_filter, options)
    schema = schema_for_spark(shared.projected)
    for number in task_numbers(numbers):
        tasks = codec.decode_tasks(job_key.decrypt(Role.TASK, number, encrypted_tasks[number]))
        for rows in prefetched(reader.sources(tasks), _WORKERS, _QUEUE_LENGTH):
            yield from pieces_for_spark(batch_for_spark(rows, schema))


def sent_whole(spark: SparkSession, schema: StructType) -> list[int]:
    """Return which columns of a read are better sent as whole numbers, by their places in the schema."""
    from pyspark.sql.types import DecimalType

    kinds = [field.dataType for field in schema.fields]
    places = [place for place, kind in enumerate(kinds) if isinstance(kind, DecimalType) and kind.precision <= MOST_DIGITS]
    # A projection would stand between a condition and the marks of masked columns, and finds no names that differ in case alone.
    marked = any(field.metadata for field in schema.fields)
    alike = len({name.lower() for name in schema.names}) < len(schema.names)
    if len(places) * _SHARE < len(kinds) or not places or marked or alike or _expressions(spark) is None:
        return []

    return places


def with_whole_numbers(schema: StructType, places: list[int]) -> StructType:
    """Return the schema in which Spark gets the columns, those at `places` as whole numbers."""
    from pyspark.sql.types import LongType, StructField, StructType

    fields = [
        StructField(field.name, LongType(), field.nullable) if place in places else field for place, field in enumerate(schema.fields)
    ]
    return StructType(fields)


def as_whole_numbers(batches: Iterable[pa.RecordBatch], places: list[int]) -> Iterator[pa.RecordBatch]:
    """Yield batches with the decimals at `places` as whole numbers. Runs on an executor.

    Raises:
        FormatError: a value has more than 64 bits, which no decimal of up to 18 digits has.
    """
    for batch in batches:
        sent = batch
        for place in places:
            sent = sent.set_column(place, batch.schema.field(place).with_type(pa.int64()), unscaled(batch.column(place)))
        yield sent


def unscaled(decimals: pa.Array) -> pa.Array:
    """Return the unscaled values of 128-bit decimals, which are 16 bytes little endian each. FormatError for one of more than 64 bits."""
    if not len(decimals):
        return pa.array([], pa.int64())

    # Read in place: a slice of an array shares the buffer, so its offset counts.
    words = np.frombuffer(decimals.buffers()[1], np.int64, _WORDS * len(decimals), decimals.offset * _WORDS * 8)
    low, high = words[::_WORDS].copy(), words[1::_WORDS]
    missing = np.asarray(decimals.is_null()) if decimals.null_count else None
    # The upper word of a number that fits has nothing but the sign of the lower one.
    fits = (low >> _SIGN) == high
    if not (fits if missing is None else fits | missing).all():
        raise FormatError(f"a value of a column of type {decimals.type} has more digits than that")

    return pa.array(low, mask=missing)


def with_decimals(rows: DataFrame, schema: StructType, places: list[int]) -> DataFrame:
    """Return rows of `with_whole_numbers` with decimals in place of the whole numbers."""
    from pyspark.sql import functions
    from pyspark.sql.classic.column import Column as ClassicColumn

    utilities, make_decimal = _expressions(rows.sparkSession)
    columns = []

    for place, field in enumerate(schema.fields):
        column: Any = functions.col(quoted(field.name))
        if place in places:
            kind: Any = field.dataType
            # An unscaled value that its type cannot hold is an error, and no null.
            made = make_decimal(utilities.expression(column._jc), kind.precision, kind.scale, False)
            column = ClassicColumn(utilities.column(made)).alias(field.name)

        columns.append(column)

    return rows.select(*columns)


def _expressions(spark: SparkSession) -> Any:
    """Return Spark's Java classes ExpressionUtils and MakeDecimal; None for a session that has none, or whose Spark lacks them."""
    if not hasattr(spark, "_jsparkSession"):
        return None

    from py4j.java_gateway import JavaClass

    jvm: Any = spark.sparkContext._jvm
    sql = jvm.org.apache.spark.sql
    found = sql.classic.ExpressionUtils, sql.catalyst.expressions.MakeDecimal

    return found if all(isinstance(each, JavaClass) for each in found) else None
