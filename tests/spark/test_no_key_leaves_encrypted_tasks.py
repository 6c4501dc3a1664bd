"""A whole job, searched for the keys that it used: plans, event log, closures, Spark's local files, shuffles and results."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

import tablecrypt.spark as tcs
from tablecrypt.engines.job_keys import JobTicket, Role
from tablecrypt.kms.factory import shared_kms
from tablecrypt.maintenance.runner import FileWork
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.spark.read import ReadJob, python_rows
from tablecrypt.spark.runner import SparkRunner
from tablecrypt.spark.tables import PlannedRead, job_columns
from tablecrypt.table.table import EncryptedTable
from tests.spark.conftest import Lake, SparkRun
from tests.support.aws import AwsServer
from tests.support.file_functions import Copying, copy_encrypted, count_rows
from tests.support.key_search import file_keys, found
from tests.support.observed_calls import observed
from tests.support.plaintext import CANARY
from tests.support.tables import data_files, metadata_of

pytestmark = [pytest.mark.java, pytest.mark.slow]
SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "note", StringType()))


@pytest.fixture
def closures() -> Iterator[list[tuple[bytes, JobTicket]]]:
    """What Spark pickles for the executors, and the ticket in it. The jobs run as they would anyway."""
    from pyspark import cloudpickle
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    recorded: list[tuple[bytes, JobTicket]] = []

    def record(names: Mapping[str, Any]) -> None:
        function = names["func"]
        ticket = next(cell.cell_contents for cell in function.__closure__ if isinstance(cell.cell_contents, JobTicket))
        recorded.append((cloudpickle.dumps(function), ticket))  # type: ignore[no-untyped-call]

    with observed(ClassicDataFrame.mapInArrow, record):
        yield recorded


def test_the_search_finds_a_key_in_every_form() -> None:
    key = bytes(range(7, 23))

    for content in (key, key.hex().encode(), *(base64.b64encode(bytes(shift) + key + bytes(shift)) for shift in range(5))):
        assert found([key], {"here": b"before" + content + b"after"}) == ["here"]
    assert not found([key], {"here": bytes(1000)})


def test_no_key_is_in_plan_event_log_closure_shuffle_or_result(
    spark_run: SparkRun, lake: Lake, closures: list[tuple[bytes, JobTicket]], capsys: pytest.CaptureFixture[str]
) -> None:
    spark = spark_run.session
    lake.catalog.create_table("db.secrets", SCHEMA, properties={"encryption.key-id": "alias/orders"})
    name = lake.identifier("db.secrets")

    source = spark.range(0, 2000, 1, 3).selectExpr("id", f"'{CANARY}' AS note")
    tcs.write_table(source.repartition(2), name, path="python", catalog_properties=lake.properties)
    table = lake.catalog.load_table("db.secrets")
    assert isinstance(table, EncryptedTable)
    table.delete("id = 5")
    rows = tcs.read_table(spark, name, row_filter="id < 1500", path="python", catalog_properties=lake.properties)
    assert rows.repartition(3, "id").groupBy("id").count().count() == 1499
    capsys.readouterr()
    for mode in ("extended", "formatted", "codegen", "cost"):
        rows.explain(mode=mode)

    keys = file_keys(lake.catalog.load_table("db.secrets"))  # type: ignore[arg-type]
    keys += [shared_kms(ticket.kms_properties).unwrap_key(ticket.wrapped_key, ticket.key_id) for _, ticket in closures]
    haystacks = {f"closure {number}": pickled for number, (pickled, _) in enumerate(closures)}
    haystacks["plan"] = capsys.readouterr().out.encode()
    haystacks |= spark_run.events()
    haystacks |= {str(path): path.read_bytes() for path in spark_run.local_files.rglob("*") if path.is_file()}

    assert len(keys) >= 6
    assert len(closures) == 2
    assert b"MapInArrow" in haystacks["plan"]
    assert any(b"SparkListenerJobEnd" in content for content in haystacks.values())
    assert any(path.endswith(".data") for path in haystacks), "no shuffle file was searched"
    assert found(keys, haystacks) == []


def test_the_search_would_see_a_task_that_is_not_encrypted(
    spark_run: SparkRun, lake: Lake, closures: list[tuple[bytes, JobTicket]]
) -> None:
    spark, name = spark_run.session, lake.identifier("db.open")
    lake.catalog.create_table("db.open", SCHEMA, properties={"encryption.key-id": "alias/orders"})
    tcs.write_table(spark.range(5).selectExpr("id"), name, path="python", catalog_properties=lake.properties)
    schema = tcs.read_table(spark, name, path="python", catalog_properties=lake.properties).schema
    job = ReadJob.of(spark, PlannedRead.of(name, None, None, None, lake.properties, None))
    key = job.ticket.redeem()

    python_rows(spark, replace(job, tasks=[key.decrypt(Role.TASK, number, task) for number, task in enumerate(job.tasks)]), schema)

    keys = file_keys(lake.catalog.load_table("db.open"))  # type: ignore[arg-type]
    assert found(keys, {"closure": closures[-1][0]}) == ["closure"]


def test_store_and_table_facts_travel_encrypted_too(spark_run: SparkRun, lake: Lake, closures: list[tuple[bytes, JobTicket]]) -> None:
    lake.catalog.create_table("db.facts", SCHEMA, properties={"encryption.key-id": "alias/orders"})
    properties = lake.properties | {"s3.secret-access-key": "a-store-credential"}

    tcs.write_table(spark_run.session.range(5).selectExpr("id"), lake.identifier("db.facts"), path="python", catalog_properties=properties)
    tcs.read_table(
        spark_run.session, lake.identifier("db.facts"), row_filter="id > 3", path="python", catalog_properties=properties
    ).collect()

    assert len(closures) == 2
    for pickled, _ in closures:
        assert b"a-store-credential" not in pickled
        assert b".parquet" not in pickled


def test_a_job_asks_the_kms_once_on_the_driver(spark_run: SparkRun, lake: Lake) -> None:
    lake.catalog.create_table("db.counted", SCHEMA, properties={"encryption.key-id": "alias/orders"})
    kms = shared_kms(lake.properties)
    rows = spark_run.session.range(0, 100, 1, 4).selectExpr("id")
    tcs.write_table(rows, lake.identifier("db.counted"), catalog_properties=lake.properties)
    before = kms.calls

    tcs.read_table(spark_run.session, lake.identifier("db.counted"), path="python", catalog_properties=lake.properties).collect()

    assert kms.calls - before == {"wrap_key": 1}


def test_no_key_of_work_on_files_leaves_its_encrypted_parts(
    spark_run: SparkRun, lake: Lake, closures: list[tuple[bytes, JobTicket]]
) -> None:
    table = lake.catalog.create_table("db.worked", SCHEMA, properties={"encryption.key-id": "alias/orders"})
    assert isinstance(table, EncryptedTable)
    for first in (0, 10):
        table.append(pa.table({"id": range(first, first + 10), "note": [CANARY] * 10}, schema=SCHEMA.as_arrow()))
    files = data_files(table)
    runner = SparkRunner(spark_run.session)

    read = list(runner.run(table, count_rows, [FileWork(file.file_path, (key_metadata_of(file),)) for file in files]))
    written = list(runner.run(table, copy_encrypted, [FileWork(Copying(file.file_path, f"{table.location()}/copies")) for file in files]))

    keys = file_keys(table) + [each.keys[0].encryption_key.reveal() for _, each in written]
    keys += [shared_kms(ticket.kms_properties).unwrap_key(ticket.wrapped_key, ticket.key_id) for _, ticket in closures]
    haystacks = {f"closure {number}": pickled for number, (pickled, _) in enumerate(closures)}
    haystacks |= spark_run.events()
    haystacks |= {str(path): path.read_bytes() for path in spark_run.local_files.rglob("*") if path.is_file()}

    assert [done.result for _, done in read] == [10, 10]
    assert any(name.startswith("closure") for name in haystacks)
    assert any(b"SparkListenerJobEnd" in content for content in haystacks.values())
    assert found(keys, haystacks) == []
    assert not any(b".parquet" in pickled for pickled, _ in closures)


def test_no_column_key_leaves_encrypted_tasks(
    spark_run: SparkRun, lake: Lake, aws: AwsServer, closures: list[tuple[bytes, JobTicket]], capsys: pytest.CaptureFixture[str]
) -> None:
    spark, name = spark_run.session, lake.identifier("db.columns")
    declared = {"encryption.key-id": "alias/orders", "encryption.column-keys": f"{aws.new_key()}: note"}
    lake.catalog.create_table("db.columns", SCHEMA, properties=declared)
    source = spark.range(0, 100, 1, 2).selectExpr("id", f"'{CANARY}' AS note")
    tcs.write_table(source, name, catalog_properties=lake.properties)
    rows = tcs.read_table(spark, name, row_filter=f"note = '{CANARY}'", catalog_properties=lake.properties)
    assert rows.count() == 100
    capsys.readouterr()
    rows.explain(mode="extended")

    table = cast("EncryptedTable", lake.catalog.load_table("db.columns"))
    ring, maker = metadata_of(table).key_ring, table.io.manager.columns
    keys = [maker.open(ring, entry).reveal() for entry in ring.column_keys]
    keys += [maker.open_kek(ring, kek, 2).reveal() for kek in ring.column_keks]
    haystacks = {f"closure {number}": pickled for number, (pickled, _) in enumerate(closures)}
    haystacks["plan"] = capsys.readouterr().out.encode()
    haystacks |= spark_run.events()

    assert len(keys) == len(closures) == 2
    assert found(keys, haystacks) == []
    # Nor is it in what a job's key decrypts: who may use the table's key does not get the column's with a closure.
    columns = job_columns(table)
    assert columns is not None
    assert found(keys, {"a message to executors": pickle.dumps(columns)}) == []
    assert found(keys, {"a message that brings keys": pickle.dumps(job_columns(table, brings_keys=True))}) == ["a message that brings keys"]
