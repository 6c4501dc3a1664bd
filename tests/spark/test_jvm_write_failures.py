"""Writes on the JVM path that go wrong, or run beside others: exact rows, or an unchanged table and an empty folder."""

from __future__ import annotations

from collections.abc import Callable
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
from tests.spark.conftest import Lake
from tests.spark.test_jvm_path import lake_in
from tests.support.aws import AwsServer
from tests.support.plaintext import CANARY
from tests.support.tables import data_files

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


def test_a_job_that_fails_leaves_the_table_and_the_folder_as_they_were(spark: SparkSession, lake: Lake) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(3), "bucket"))
    table = lake.catalog.create_table("db.parts", SCHEMA, partition_spec=spec, properties=PROPERTIES)
    table.append(pa.table({"id": [-1], "note": [CANARY]}, schema=SCHEMA.as_arrow()))
    before = table.refresh().metadata_location, stored(lake)

    with pytest.raises(Exception, match="this task fails on purpose"):
        tcs.write_table(source(spark, "id > 15000"), lake.identifier("db.parts"), path="jvm", catalog_properties=lake.properties)

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


def _hadoop_settings(spark: SparkSession) -> dict[str, str]:
    context: Any = spark.sparkContext
    entries = context._jsc.hadoopConfiguration().iterator()
    settings = {}
    while entries.hasNext():
        entry = entries.next()
        settings[entry.getKey()] = entry.getValue()
    return settings
