"""Work on many files as Spark jobs: the Runner of tablecrypt.maintenance on a cluster's executors.

    driver      works spread over parts of about equal size ─▶ each part encrypted as one TASK message; the function and the store as SHARED
                parts go out in several small jobs, a few at a time
    executor    opens its part, runs the function over it ─▶ results, and the keys that it made, encrypted as one RESULT message
    driver      opens the results of each job when it ends, and yields them, so that progress shows while other jobs run

Spark retries a failed task, and takes the result of one attempt. An error of tablecrypt.errors that a retry cannot change is sent back
encrypted, and the driver raises it as it is. Any other error on an executor fails the task; after spark.task.maxFailures attempts Spark
raises its own PythonException with the error's text.

If one work item fails, running jobs are completed, and no other job starts. If the consumer stops, running jobs are cancelled. Spark ends
their tasks a moment later; `tablecrypt.maintenance.remove_orphan_files` finds the files that they write until then.

Raises AuthenticationError for a result that was changed on its way.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression

from tablecrypt import maintenance
from tablecrypt.engines.job_keys import JobTicket, Role
from tablecrypt.engines.job_messages import WorkItem, check_items, decode_items, encode_items, value_type_of
from tablecrypt.engines.protected_columns import JobColumns, ensure_column_keys, file_io_of_task
from tablecrypt.errors import AuthenticationError, ConfigurationError, KmsError, TablecryptError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.maintenance import Compacted, ProgressListener
from tablecrypt.maintenance.compaction import Compaction
from tablecrypt.maintenance.runner import FileDone, FileFunction, FileWork, completed
from tablecrypt.spark.executor_job import RESULT_SCHEMA, collected, result_batch, skip_per_task_setup, task_numbers
from tablecrypt.spark.session import Sizing, check_session, in_tasks
from tablecrypt.spark.sorted_compaction import rewritten_in_order
from tablecrypt.spark.tables import LocatedTable, job_columns
from tablecrypt.table.table import EncryptedTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

W = TypeVar("W")
R = TypeVar("R")

_JOBS_IN_FLIGHT: Final = 4
"""A job is as wide as half of the cluster: while one waits for its slowest task, others have tasks to run."""
_PARTS_PER_CORE: Final = 4
_OWN_PACKAGE: Final = "tablecrypt"


@dataclass(frozen=True)
class SharedWorkContent:
    """What every task of a run needs: the FileIO of the table's storage, pickled, the function, and what it may do with protected columns.

    Only ever sent encrypted.
    """

    inner_io: bytes
    function: FileFunction[Any, Any]
    columns: JobColumns | None

    def io(self) -> EncryptingFileIO:
        """Return a FileIO that reads and writes ciphertext only."""
        return file_io_of_task(self.inner_io, None, self.columns)


class SparkRunner:
    """Runs on the executors of a Spark session, classic or Connect.

    Executors need this package, access to the table's storage, and the right to decrypt with the table's master key in the KMS.

        maintenance.compact(table, runner=SparkRunner(spark))

    Args:
        spark: a session of Spark 4.0 or newer.

    Raises:
        ConfigurationError: an older Spark.
    """

    def __init__(self, spark: SparkSession) -> None:
        check_session(spark)
        self._spark = spark

    def run(self, table: EncryptedTable, function: FileFunction[W, R], works: Sequence[FileWork[W]]) -> Iterator[tuple[int, FileDone[R]]]:
        """Yield the outcome of each work item when its job ends. The table's catalog says how executors reach the KMS.

        Raises:
            ConfigurationError: a function that executors cannot find by name, or a way to the KMS that cannot be sent to them.
            KmsError: the KMS refused to wrap the job key.
        """
        if not works:
            return

        sizing = Sizing.of(self._spark)
        parts = sizing.spread(range(len(works)), lambda index: works[index].size, _PARTS_PER_CORE * sizing.cores)
        ticket, job_key = LocatedTable.of_table(table).issue_job(self._spark)
        encrypted_shared = job_key.encrypt(Role.SHARED, 0, _shared_content(table, function))
        # What a result may be made of: an executor that was taken over must not name classes of its choice.
        packages = frozenset({_OWN_PACKAGE, _module_of(function).partition(".")[0]})
        value_type = value_type_of(function)

        def items_of(number: int, message: bytes) -> list[WorkItem]:
            items = decode_items(job_key.decrypt(Role.RESULT, number, message), packages)
            check_items(items, parts[number], value_type)
            return items

        def job(numbers: Sequence[int]) -> list[WorkItem]:
            tasks = {
                number: encode_items(WorkItem(index, works[index].work, works[index].keys) for index in parts[number]) for number in numbers
            }
            encrypted_tasks = {number: job_key.encrypt(Role.TASK, number, content) for number, content in tasks.items()}
            results = collected_results(self._spark, ticket, encrypted_shared, encrypted_tasks)
            return [item for number, message in results for item in items_of(number, message)]

        width = max(1, sizing.cores // 2)
        jobs = [partial(job, range(start, min(start + width, len(parts)))) for start in range(0, len(parts), width)]
        with _job_threads(self._spark) as pool:
            for items in completed(pool, jobs, _JOBS_IN_FLIGHT):
                yield from _results(items)

    def rewrite_in_order(self, compaction: Compaction, progress: ProgressListener) -> Compacted:
        """Rewrite all groups of a compaction in an order that Spark sorts; see sorted_compaction.py."""
        return rewritten_in_order(self._spark, compaction, progress)


def compact(
    spark: SparkSession,
    identifier: str,
    where: str | BooleanExpression | None = None,
    *,
    catalog_properties: Mapping[str, str] | None = None,
    **options: Any,
) -> Compacted:
    """Compact the table "catalog.namespace.table" on a session's executors; see `tablecrypt.maintenance.compact`.

    Args:
        spark: a session of Spark 4.0 or newer, classic or Connect.
        identifier: the table, as for `read_table`.
        where: only files that may hold matching rows.
        catalog_properties: properties for load_catalog, beside those that it finds.
        options: what else `tablecrypt.maintenance.compact` takes.
    """
    table = LocatedTable.of(identifier, catalog_properties).table
    # Executors make no column key, and a dry run commits none.
    if not options.get("dry_run"):
        ensure_column_keys(table)
    return maintenance.compact(table, where, runner=SparkRunner(spark), **options)


def run_parts(
    ticket: JobTicket, encrypted_shared: bytes, encrypted_tasks: Mapping[int, bytes], first: int, numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run the function over the work items of the parts with these numbers, and yield the results. Runs on an executor.

    Args:
        ticket: of the job.
        encrypted_shared: the SHARED message.
        encrypted_tasks: TASK messages by the number of their part.
        first: what the numbers that come in are added to.
        numbers: of the parts, from 0.
    """
    asked = [first + number for number in task_numbers(numbers)]
    if not asked:
        return

    skip_per_task_setup()
    job_key = ticket.redeem()
    shared: SharedWorkContent = job_key.shared(encrypted_shared)
    io = shared.io()

    for number in asked:
        # Of any class, since the driver made these bytes: they authenticate under the job key as a TASK.
        works = decode_items(job_key.decrypt(Role.TASK, number, encrypted_tasks[number]), None)
        done = encode_items(_done(io, shared.function, works))
        yield result_batch(number, job_key.encrypt(Role.RESULT, number, done))


def _done(io: EncryptingFileIO, function: FileFunction[Any, Any], works: Iterable[WorkItem]) -> Iterator[WorkItem]:
    """Yield results, then the error of the work item that failed, if there is one."""
    for each in works:
        try:
            done = function(io, each.value, each.keys)
        except TablecryptError as error:
            # Spark tries the task again, perhaps on another machine; an error that is sent back ends the run.
            if isinstance(error, KmsError) and error.retryable:
                raise
            # Sent behind the results before it, whose files the driver has to know.
            yield WorkItem(each.index, error)
            return

        yield WorkItem(each.index, done.result, done.keys)


def _shared_content(table: EncryptedTable, function: FileFunction[Any, Any]) -> bytes:
    # The inner FileIO alone: that of the table has the key manager, and does not leave the driver.
    inner_io = pickle.dumps(table.io.inner)
    try:
        return pickle.dumps(SharedWorkContent(inner_io, function, job_columns(table)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigurationError(f"{function} cannot be sent to executors: it must be a function of a module: {error}") from error


def _results(items: Iterable[WorkItem]) -> Iterator[tuple[int, FileDone[Any]]]:
    """Yield the results of a job, then raise the first error in it."""
    errors: list[TablecryptError] = []
    for item in items:
        if item.failed:
            errors.append(item.value)
        else:
            yield item.index, FileDone(item.value, item.keys)

    for error in errors:
        raise error


def collected_results(
    spark: SparkSession, ticket: JobTicket, encrypted_shared: bytes, encrypted_tasks: Mapping[int, bytes]
) -> list[tuple[int, bytes]]:
    """Run `run_parts` on executors; return the RESULT messages with the numbers of their parts.

    Args:
        spark: the session.
        ticket, encrypted_shared: as for `run_parts`.
        encrypted_tasks: likewise; the numbers follow one another.

    Raises:
        AuthenticationError: not each part has one result.
    """
    first = min(encrypted_tasks)

    def run_encrypted_parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_parts(ticket, encrypted_shared, encrypted_tasks, first, batches)

    results = collected(in_tasks(spark, len(encrypted_tasks), run_encrypted_parts, RESULT_SCHEMA).collect())
    # Each message authenticates by itself. That none was left out or sent twice shows only in their numbers.
    if sorted(number for number, _ in results) != sorted(encrypted_tasks):
        raise AuthenticationError(
            f"of {len(encrypted_tasks)} tasks of the Spark job, {len(results)} sent a result: one of each is expected"
        )

    return results


@contextmanager
def _job_threads(spark: SparkSession) -> Iterator[ThreadPoolExecutor]:
    """Threads whose Spark jobs have the settings of the calling thread. Leaving the context early cancels the jobs."""
    tag = f"tablecrypt-{uuid.uuid4()}"
    pool = ThreadPoolExecutor(_JOBS_IN_FLIGHT, thread_name_prefix="tablecrypt-spark", initializer=_adopt(spark, tag))
    try:
        yield pool
    except BaseException:
        # By the tag alone, since the session may run other jobs.
        spark.interruptTag(tag)
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _adopt(spark: SparkSession, tag: str) -> Callable[[], None]:
    """Return a function that gives a thread's jobs the properties of the calling thread, and a tag."""
    from pyspark.util import inheritable_thread_target

    def add_tag() -> None:
        spark.addTag(tag)

    adopting: Any = inheritable_thread_target(spark)
    # If Python's threads are not pinned to threads of the JVM, PySpark has nothing to hand on and returns the session.
    return add_tag if adopting is spark else cast("Callable[[], None]", adopting(add_tag))


def _module_of(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__module__", ""))
