"""Writes of Spark SQL that fail, are killed or meet other writers: exact rows, or an unchanged table and no file."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.types import StringType

from tests.spark.conftest import Lake
from tests.spark.sql.test_write import SIMPLE, create, files, stored
from tests.spark.test_failing_tasks import failing
from tests.support.plaintext import CANARY
from tests.support.processes import command_line
from tests.support.tables import ids
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
# Small enough for several files per task, so that a task fails with files written and one open.
SMALL_FILES: Final = {"write.target-file-size-bytes": "20000"}
ROWS: Final = 20_000
ENDLESS: Final = "an endless write"


@pytest.fixture
def table(prod: Lake, new_name: str) -> Table:
    return create(prod, new_name, SIMPLE, properties=SMALL_FILES)


def source(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    return spark.range(0, rows, 1, 2).selectExpr("id", f"concat('{CANARY}', cast(rand(1) as string)) as note")


def name_of(table: Table) -> str:
    return f"prod.{'.'.join(table.name())}"


def after_some_rows(df: DataFrame, act: Callable[[], None]) -> DataFrame:
    """The same rows, but the first task does something after some of them."""

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        for number, batch in enumerate(batches):
            if number == 1 and context is not None and context.partitionId() == 0:
                act()
            yield batch

    return df.mapInArrow(rows, df.schema)


def in_background(work: Callable[[], None]) -> tuple[threading.Thread, list[BaseException]]:
    from pyspark import InheritableThread

    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  looked at by the test
            raised.append(error)

    thread = InheritableThread(target=run)
    thread.start()
    return thread, raised


def test_a_task_that_fails_once_leaves_exact_rows_and_its_files_go(spark: SparkSession, table: Table) -> None:
    failing(source(spark, 100_000), lambda context: context.attemptNumber() == 0).writeTo(name_of(table)).append()

    assert ids(table.refresh()) == list(range(100_000))
    assert len(files(table)) > 2
    assert stored(table) == files(table)


def test_a_task_that_always_fails_leaves_the_table_and_the_folder_as_they_were(spark: SparkSession, table: Table) -> None:
    spark.sql(f"INSERT INTO {name_of(table)} VALUES (-1, '{CANARY}')")
    before = table.refresh().metadata_location, stored(table)

    with pytest.raises(Exception, match="this task fails on purpose"):
        failing(source(spark, 100_000), lambda context: context.partitionId() == 1).writeTo(name_of(table)).overwritePartitions()

    assert (table.refresh().metadata_location, stored(table)) == before
    assert ids(table.refresh()) == [-1]


@contextmanager
def endless_write(spark: SparkSession, table: Table) -> Iterator[Callable[[], str]]:
    """Write rows until the block ends it, or its end does. Gives a function that waits for the write's end and returns its error."""

    def write() -> None:
        spark.sparkContext.setJobGroup(ENDLESS, "an endless write", interruptOnCancel=False)
        source(spark, 2**40).writeTo(name_of(table)).append()

    thread, raised = in_background(write)

    def error_at_its_end() -> str:
        thread.join(300)
        assert not thread.is_alive()
        return str(raised[0])

    try:
        wait_until(lambda: len(stored(table)) > 2)
        yield error_at_its_end
    finally:
        # A test that fails here must not leave a write behind, which would fill the disk.
        spark.sparkContext.cancelJobGroup(ENDLESS)
        thread.join(300)


def test_a_write_that_is_cancelled_leaves_nothing(spark: SparkSession, table: Table) -> None:
    with endless_write(spark, table) as error_at_its_end:
        spark.sparkContext.cancelJobGroup(ENDLESS)
        assert "cancelled" in error_at_its_end()

    assert table.refresh().current_snapshot() is None
    wait_until(lambda: not stored(table))


@pytest.mark.first
def test_a_planner_that_is_killed_in_a_write_leaves_nothing_and_the_session_goes_on(spark: SparkSession, table: Table) -> None:
    with endless_write(spark, table) as error_at_its_end:
        killed = planners(spark)
        for planner in killed:
            os.kill(planner, signal.SIGKILL)
        assert "the catalog's Python process does not respond" in error_at_its_end()

    assert table.refresh().current_snapshot() is None
    wait_until(lambda: not stored(table))

    spark.sql(f"INSERT INTO {name_of(table)} VALUES (1, 'a')")
    assert ids(table.refresh()) == [1]
    assert killed
    assert not set(killed) & set(planners(spark))


def planners(spark: SparkSession) -> list[int]:
    """The process ids of the driver's planners: one for the catalogs of this program, and one where sessions configured others."""
    jvm: Any = spark.sparkContext._jvm
    children = jvm.java.lang.ProcessHandle.current().children().toArray()
    return [child.pid() for child in children if b"tablecrypt.spark.sql" in command_line(child.pid())]


def test_a_table_whose_schema_changes_under_the_write_is_left_as_it_is(spark: SparkSession, prod: Lake, table: Table) -> None:
    properties, name = prod.properties, ".".join(table.name())

    def change() -> None:
        from pyiceberg.catalog import load_catalog

        with load_catalog("prod", **properties).load_table(name).update_schema() as update:
            update.add_column("later", StringType())

    with pytest.raises(Exception, match="its schema was changed while the rows were written"):
        after_some_rows(source(spark, 50_000), change).writeTo(name_of(table)).append()

    assert table.refresh().current_snapshot() is None
    assert not stored(table)


def test_writers_at_the_same_time_lose_no_row(spark: SparkSession, prod: Lake, table: Table) -> None:
    def add(first: int) -> Callable[[], None]:
        rows = spark.range(first, first + 1000, 1, 2).selectExpr("id", "'x' as note")
        return lambda: rows.writeTo(name_of(table)).append()

    running = [in_background(add(first)) for first in (0, 1000)]
    prod.catalog.load_table(".".join(table.name())).append(pa.table({"id": [5000], "note": ["y"]}, schema=SIMPLE.as_arrow()))
    for thread, raised in running:
        thread.join(300)
        assert not raised

    assert ids(table.refresh()) == [*range(2000), 5000]
    assert stored(table) == files(table)
