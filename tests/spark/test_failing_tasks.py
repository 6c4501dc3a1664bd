"""Tasks of the Python path that fail: once, and the rows are exact; for good, and nothing was committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

import tablecrypt.spark as tcs
from tablecrypt.errors import AuthenticationError, ConfigurationError
from tablecrypt.spark.read import ReadJob, python_rows
from tablecrypt.spark.tables import PlannedRead
from tests.spark.conftest import Lake
from tests.support.driver_only_kms import for_this_process
from tests.support.interrupted_catalog import INTERRUPTED, at_commits, once
from tests.support.plaintext import CANARY
from tests.support.tables import data_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "note", StringType()))
# Small enough for several files per task, so that a task fails with files written and others begun.
PROPERTIES = {"encryption.key-id": "alias/orders", "write.target-file-size-bytes": "20000"}


def failing(df: DataFrame, fails: Callable[[Any], bool]) -> DataFrame:
    """The same rows, but a task that `fails` says of raises after some of them."""

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        for number, batch in enumerate(batches):
            if number == 3 and fails(TaskContext.get()):
                raise RuntimeError("this task fails on purpose")
            yield batch

    return df.mapInArrow(rows, df.schema)


def source(spark: SparkSession) -> DataFrame:
    return spark.range(0, 100_000, 1, 2).selectExpr("id", f"'{CANARY}' AS note")


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.catalog.create_table("db.rows", SCHEMA, properties=PROPERTIES)


def test_a_task_that_fails_once_leaves_exact_rows(spark: SparkSession, lake: Lake, table: Table) -> None:
    rows = failing(source(spark), lambda context: context.attemptNumber() == 0)

    tcs.write_table(rows, lake.identifier("db.rows"), path="python", catalog_properties=lake.properties)

    back = table.refresh().scan().to_arrow()
    assert sorted(back["id"].to_pylist()) == list(range(100_000))
    files = data_files(table)
    assert len(files) > 2
    assert len({file.file_path.rpartition("/")[2].split("-")[1] for file in files}) == 2


def test_a_reader_that_fails_once_yields_exact_rows(spark: SparkSession, lake: Lake, table: Table) -> None:
    tcs.write_table(source(spark), lake.identifier("db.rows"), path="python", catalog_properties=lake.properties)

    rows = failing(
        tcs.read_table(spark, lake.identifier("db.rows"), path="python", catalog_properties=lake.properties),
        lambda c: c.attemptNumber() == 0,
    )

    assert sorted(row["id"] for row in rows.collect()) == list(range(100_000))


def test_a_job_that_fails_commits_nothing(spark: SparkSession, lake: Lake, table: Table) -> None:
    before = sorted(lake.warehouse.rglob("*.metadata.json"))

    with pytest.raises(Exception, match="this task fails on purpose"):
        tcs.write_table(
            failing(source(spark), lambda context: context.partitionId() == 1),
            lake.identifier("db.rows"),
            "overwrite",
            path="python",
            catalog_properties=lake.properties,
        )

    assert table.refresh().current_snapshot() is None
    assert sorted(lake.warehouse.rglob("*.metadata.json")) == before


def changing(df: DataFrame, lake: Lake) -> DataFrame:
    """The same rows, but somebody adds a column to db.rows while the first task runs."""
    catalog, properties = lake.catalog.name, lake.properties

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyiceberg.catalog import load_catalog
        from pyspark import TaskContext

        if TaskContext.get().partitionId() == 0:  # type: ignore[union-attr]
            with load_catalog(catalog, **properties).load_table("db.rows").update_schema() as change:
                change.add_column("later", StringType())
        yield from batches

    return df.mapInArrow(rows, df.schema)


def test_a_table_whose_schema_changes_under_the_job_is_left_as_it_is(spark: SparkSession, lake: Lake, table: Table) -> None:
    with pytest.raises(ConfigurationError, match="its schema was changed while the rows were written"):
        tcs.write_table(changing(source(spark), lake), lake.identifier("db.rows"), path="python", catalog_properties=lake.properties)

    assert table.refresh().current_snapshot() is None
    assert not list(lake.warehouse.rglob("*.parquet"))


def test_a_commit_beside_the_job_keeps_its_rows(spark: SparkSession, lake: Lake, table: Table) -> None:
    row = pa.table({"id": [-1], "note": [CANARY]}, schema=SCHEMA.as_arrow())
    with at_commits(before=once(lambda: lake.catalog.load_table("db.rows").append(row))):
        tcs.write_table(source(spark), lake.identifier("db.rows"), path="python", catalog_properties=lake.properties | INTERRUPTED)

    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == list(range(-1, 100_000))


def test_tasks_that_were_swapped_are_refused_by_the_executor(spark: SparkSession, lake: Lake, table: Table) -> None:
    tcs.write_table(source(spark), lake.identifier("db.rows"), path="python", catalog_properties=lake.properties)
    schema = tcs.read_table(spark, lake.identifier("db.rows"), path="python", catalog_properties=lake.properties).schema
    job = ReadJob.of(spark, PlannedRead.of(lake.identifier("db.rows"), None, None, None, lake.properties, None))
    first, second, *others = job.tasks
    rows = python_rows(spark, replace(job, tasks=[second, first, *others]), schema)

    assert python_rows(spark, job, schema).count() == 100_000

    with pytest.raises(Exception, match=f"{AuthenticationError.__name__}.*the TASK message of task"):
        rows.collect()


def test_a_file_that_was_tampered_with_yields_no_rows(spark: SparkSession, lake: Lake, table: Table) -> None:
    tcs.write_table(source(spark), lake.identifier("db.rows"), path="python", catalog_properties=lake.properties)
    victim = sorted(lake.warehouse.rglob("*.parquet"))[0]
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)

    with pytest.raises(Exception, match=rf"TamperedFileError.*{victim.name}"):
        tcs.read_table(spark, lake.identifier("db.rows"), path="python", catalog_properties=lake.properties).collect()


@pytest.mark.parametrize("operation", ["write", "read"])
def test_executors_without_rights_to_the_master_key_are_told_so_and_leave_nothing(
    spark: SparkSession, lake: Lake, table: Table, operation: str
) -> None:
    table.append(pa.table({"id": [1], "note": [CANARY]}, schema=SCHEMA.as_arrow()))
    before = sorted(lake.warehouse.rglob("*.*"))
    properties = for_this_process(lake.properties)

    with pytest.raises(Exception, match=r"KmsAccessDeniedError.*this process may not decrypt with alias/orders"):
        if operation == "write":
            tcs.write_table(source(spark), lake.identifier("db.rows"), path="python", catalog_properties=properties)
        else:
            tcs.read_table(spark, lake.identifier("db.rows"), path="python", catalog_properties=properties).collect()

    assert sorted(lake.warehouse.rglob("*.*")) == before
    assert len(table.refresh().snapshots()) == 1
