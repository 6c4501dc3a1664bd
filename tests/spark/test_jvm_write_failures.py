"""Writes on the JVM path that go wrong, or run beside others: exact rows, or an unchanged table and an empty folder."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.locations import SimpleLocationProvider
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, StringType

import tablecrypt.spark as tcs
from tablecrypt.errors import AuthenticationError, ConfigurationError
from tablecrypt.spark.shared.written_files import split_results
from tablecrypt.spark.sql.messages import Response, SentRequest
from tablecrypt.spark.sql.writes.programs import PlannedWrite, Statement, planned_write, written_by
from tablecrypt.spark.tables import LocatedTable
from tests.spark.conftest import Lake
from tests.spark.test_failing_tasks import changing, failing
from tests.spark.test_jvm_path import lake_in
from tests.spark.test_jvm_written_files import sized
from tests.support.aws import AwsServer
from tests.support.plaintext import CANARY
from tests.support.tables import data_files, path_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
SCHEMA: Final = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "note", StringType()))
# Small enough for several files per task, so that a task fails with files written and one open.
PROPERTIES: Final = {"encryption.key-id": "alias/orders", "write.target-file-size-bytes": "20000"}
ROWS: Final = 20_000


def source(spark: SparkSession, fails: str = "false", rows: int = ROWS) -> DataFrame:
    """Rows of two tasks; where the SQL condition `fails` holds, a task fails late among its rows."""
    failing = f"if({fails} and id % {rows // 2} = {rows // 2 - 1}, raise_error('this task fails on purpose'), '{CANARY}')"
    return spark.range(0, rows, 1, 2).selectExpr("id", f"concat({failing}, cast(rand(1) as string)) as note")


def stored(lake: Lake) -> list[Path]:
    return sorted(path for path in lake.warehouse.rglob("data/**/*") if path.is_file())


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.catalog.create_table("db.rows", SCHEMA, properties=PROPERTIES)


@pytest.fixture
def write(lake: Lake) -> Callable[..., None]:
    def write(df: DataFrame, mode: Any = "append", **arguments: Any) -> None:
        tcs.write_table(df, lake.identifier("db.rows"), mode, path="jvm", catalog_properties=lake.properties, **arguments)

    return write


def test_a_task_that_fails_once_leaves_exact_rows_and_its_files_go(
    spark: SparkSession, lake: Lake, table: Table, write: Callable[..., None]
) -> None:
    write(failing(source(spark, rows=100_000), lambda context: context.attemptNumber() == 0))

    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == list(range(100_000))
    assert len(data_files(table.refresh())) > 2
    assert stored(lake) == sorted(path_of(file.file_path) for file in data_files(table.refresh()))


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_job_that_fails_leaves_the_table_and_the_folder_as_they_were(spark: SparkSession, lake: Lake, partitioned: bool) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(3), "bucket")) if partitioned else PartitionSpec()
    table = lake.catalog.create_table("db.parts", SCHEMA, partition_spec=spec, properties=PROPERTIES)
    table.append(pa.table({"id": [-1], "note": [CANARY]}, schema=SCHEMA.as_arrow()))
    before = table.refresh().metadata_location, stored(lake)

    with pytest.raises(Exception, match="this task fails on purpose"):
        tcs.write_table(source(spark, "id > 15000"), lake.identifier("db.parts"), path="jvm", catalog_properties=lake.properties)

    assert (table.refresh().metadata_location, stored(lake)) == before


def test_a_job_that_is_cancelled_leaves_nothing(spark: SparkSession, lake: Lake, table: Table, write: Callable[..., None]) -> None:
    endless = spark.range(0, 2**40, 1, 2).selectExpr("id", f"concat('{CANARY}', cast(rand(1) as string)) as note")
    raised: list[BaseException] = []

    def run() -> None:
        spark.sparkContext.setJobGroup("to be cancelled", "an endless write", interruptOnCancel=False)
        try:
            write(endless)
        except Exception as error:  # noqa: BLE001  looked at below
            raised.append(error)

    from pyspark import InheritableThread

    thread = InheritableThread(target=run)
    thread.start()
    _wait(lambda: len(stored(lake)) > 2)
    spark.sparkContext.cancelJobGroup("to be cancelled")
    thread.join(300)

    assert not thread.is_alive()
    assert "cancelled" in str(raised[0])
    assert table.refresh().current_snapshot() is None
    _wait(lambda: not stored(lake))


@pytest.mark.parametrize("options", [{}, {"mode": "overwrite", "overwrite_filter": "id < 5"}])
def test_a_table_whose_schema_changes_under_the_job_is_left_as_it_is(
    spark: SparkSession, lake: Lake, table: Table, write: Callable[..., None], options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationError, match="its schema was changed while the rows were written"):
        write(changing(source(spark), lake), **options)

    assert table.refresh().current_snapshot() is None
    assert not stored(lake)


def attacked(planned: PlannedWrite, attack: Callable[[list[bytes]], list[bytes]]) -> Statement:
    """What responds to a write, but for the results of tasks, which are changed on their way."""

    class Attacked(Statement):
        def respond(self, sent: SentRequest) -> Response:
            content = b"".join(map(sized, attack(split_results(sent.content)))) if sent.content else b""
            return super().respond(replace(sent, content=content))

    return Attacked(planned)


ATTACKS: Final[dict[str, Callable[[list[bytes], list[bytes]], list[bytes]]]] = {
    "swapped": lambda results, earlier: results[::-1],
    "changed": lambda results, earlier: [results[0], results[1][:-1] + bytes([results[1][-1] ^ 1])],
    "cut": lambda results, earlier: [results[0], results[1][:40]],
    "of another write": lambda results, earlier: earlier,
    "missing": lambda results, earlier: results[1:],
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_results_that_are_not_of_this_write_and_task_are_refused(spark: SparkSession, lake: Lake, table: Table, attack: str) -> None:
    planned = planned_write(source(spark, rows=10), LocatedTable.of(lake.identifier("db.rows"), lake.properties), None, None, forced=True)
    assert planned is not None
    earlier: list[bytes] = []

    def kept(results: list[bytes]) -> list[bytes]:
        earlier.extend(results)
        return results

    written_by(attacked(planned, kept))
    assert len(earlier) == 2
    before = table.refresh().metadata_location, stored(lake)

    with pytest.raises(AuthenticationError, match=r"the result of writing task \d does not authenticate"):
        written_by(attacked(planned, lambda results: ATTACKS[attack](results, earlier)))

    assert (table.refresh().metadata_location, stored(lake)) == before


def test_a_location_provider_that_the_catalog_names_says_where_files_go(spark: SparkSession, aws: AwsServer, warehouse: Path) -> None:
    provider = {"write.py-location-provider.impl": f"{__name__}.Sideways"}
    lake = lake_in(warehouse, aws, **provider)
    properties = PROPERTIES | provider | {"write.target-file-size-bytes": "10000000"}
    table = lake.catalog.create_table("db.sideways", SCHEMA, properties=properties)
    name = lake.identifier("db.sideways")

    tcs.write_table(source(spark), name, path="jvm", catalog_properties=lake.properties)
    assert {Path(file.file_path).parent.name for file in data_files(table.refresh())} == {"sideways"}

    with table.transaction() as transaction:
        transaction.set_properties({"tests.sideways": "broken"})
    with pytest.raises(Exception, match="no place for 0000"):
        tcs.write_table(source(spark), name, path="jvm", catalog_properties=lake.properties)
    with table.transaction() as transaction:
        transaction.set_properties({"tests.sideways": "//"})
    with pytest.raises(Exception, match="Hadoop would read its location as another path"):
        tcs.write_table(source(spark), name, path="jvm", catalog_properties=lake.properties)
    with table.transaction() as transaction:
        transaction.set_properties({"tests.sideways": "/same/"})
    with pytest.raises(Exception, match="it has to end with that name"):
        tcs.write_table(source(spark), name, path="jvm", catalog_properties=lake.properties)
    assert len(stored(lake)) == len(data_files(table.refresh())) == 2


class Sideways(SimpleLocationProvider):
    """Puts files into a folder of its own, or fails."""

    def new_data_location(self, data_file_name: str, partition_key: Any = None) -> str:
        how = self.table_properties.get("tests.sideways", "")
        if how == "broken":
            raise RuntimeError(f"no place for {data_file_name}")
        if how == "/same/":
            return f"{self.data_path}/same.parquet"
        return f"{self.data_path}{how}/sideways/{data_file_name}"


def test_other_writes_of_the_session_go_their_own_way_meanwhile(spark: SparkSession, lake: Lake, table: Table, tmp_path: Path) -> None:
    from pyspark import InheritableThread

    before = {row["key"]: row["value"] for row in spark.sql("SET").collect()}
    hadoop = _hadoop_settings(spark)
    tables = [table, lake.catalog.create_table("db.other", SCHEMA, properties=PROPERTIES)]
    failures: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  looked at below
            failures.append(error)

    def ours(name: str) -> None:
        tcs.write_table(source(spark), lake.identifier(name), path="jvm", catalog_properties=lake.properties)

    works: list[Callable[[], None]] = [
        lambda: ours("db.rows"),
        lambda: source(spark).write.parquet(f"{tmp_path}/plain"),
        lambda: ours("db.other"),
        lambda: source(spark).write.csv(f"{tmp_path}/csv"),
    ]
    threads = [InheritableThread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    for each in tables:
        assert sorted(each.refresh().scan().to_arrow()["id"].to_pylist()) == list(range(ROWS))
    plain = sorted((tmp_path / "plain").glob("part-*.parquet"))
    assert plain
    assert {path.read_bytes()[:4] for path in plain} == {b"PAR1"}
    assert (tmp_path / "plain" / "_SUCCESS").exists()
    assert (tmp_path / "csv" / "_SUCCESS").exists()
    assert spark.read.parquet(f"{tmp_path}/plain").count() == ROWS
    assert {row["key"]: row["value"] for row in spark.sql("SET").collect()} == before
    assert _hadoop_settings(spark) == hadoop


def _wait(condition: Callable[[], bool]) -> None:
    reached = threading.Event()
    for _ in range(3000):
        if condition():
            return
        reached.wait(0.1)
    raise AssertionError("it did not come to that within five minutes")


def _hadoop_settings(spark: SparkSession) -> dict[str, str]:
    context: Any = spark.sparkContext
    entries = context._jsc.hadoopConfiguration().iterator()
    settings = {}
    while entries.hasNext():
        entry = entries.next()
        settings[entry.getKey()] = entry.getValue()
    return settings
