"""format("tablecrypt"): the same rows as read_table and write_table give, from every door that Spark has for a source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, DecimalType, DoubleType, LongType, NestedField, StringType, TimestamptzType

import tablecrypt.spark as tcs
from tests.spark.conftest import Lake, SparkRun
from tests.support.key_search import file_keys, found
from tests.support.plaintext import CANARY
from tests.support.tables import current_snapshot, summary_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType()),
    NestedField(3, "note", StringType()),
    NestedField(4, "score", DoubleType()),
    NestedField(5, "day", DateType()),
    NestedField(6, "at", TimestamptzType()),
    NestedField(7, "price", DecimalType(9, 2)),
)
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
COLUMNS = (
    "id",
    "if(id % 7 = 0, null, concat('r', cast(id % 3 as string))) AS region",
    f"'{CANARY}' AS note",
    "if(id % 5 = 0, cast('NaN' AS double), id / 2) AS score",
    "date_add(date'2024-01-01', cast(id AS int)) AS day",
    "timestamp_seconds(id * 3600) AS at",
    "cast(id / 4 AS decimal(9, 2)) AS price",
)


def rows(spark: SparkSession, first: int, count: int) -> DataFrame:
    return spark.range(first, first + count, 1, 2).selectExpr(*COLUMNS)


@pytest.fixture
def spark_with_source(spark: SparkSession, lake: Lake) -> Iterator[SparkSession]:
    tcs.register(spark, {"sparktest": lake.properties})
    yield spark
    spark.conf.set(PUSHDOWN, "false")


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.catalog.create_table("db.rows", SCHEMA, partition_spec=SPEC, properties={"encryption.key-id": "alias/orders"})


def reader(spark: SparkSession, **options: Any) -> DataFrame:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return spark.read.format("tablecrypt").options(table="sparktest.db.rows", **named).load()


def ids(df: DataFrame) -> list[int]:
    return sorted(row["id"] for row in df.select("id").collect())


def save(df: DataFrame, mode: str = "append", **options: Any) -> None:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    df.write.format("tablecrypt").options(**named).mode(mode).save("sparktest.db.rows")


def test_what_is_written_is_read_and_is_what_the_table_holds(spark_with_source: SparkSession, lake: Lake, table: Table) -> None:
    spark = spark_with_source
    save(rows(spark, 0, 100), **{"snapshot-property.job": "nightly"})

    assert summary_of(table.refresh())["job"] == "nightly"
    direct = tcs.read_table(spark, lake.identifier("db.rows"), path="python", catalog_properties=lake.properties)
    through = reader(spark)
    assert through.schema == direct.schema
    assert str(sorted(through.collect())) == str(sorted(direct.collect()))
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(100))


def test_an_overwrite_replaces_all_rows_or_the_partitions_that_occur(spark_with_source: SparkSession, table: Table) -> None:
    spark = spark_with_source
    save(rows(spark, 0, 60))

    save(rows(spark, 100, 60).where("region = 'r1'"), "overwrite", partition_overwrite_mode="dynamic")
    kept = [each for each in range(60) if each % 3 != 1 or each % 7 == 0]
    assert ids(reader(spark)) == kept + [each for each in range(100, 160) if each % 3 == 1 and each % 7]

    save(rows(spark, 500, 5), "overwrite")
    assert ids(reader(spark)) == list(range(500, 505))


def test_columns_filters_snapshots_tags_and_branches_are_options(spark_with_source: SparkSession, table: Table) -> None:
    spark = spark_with_source
    save(rows(spark, 0, 10))
    first = current_snapshot(table.refresh()).snapshot_id
    table.manage_snapshots().create_tag(first, "v1").create_branch(first, "audit").commit()
    save(rows(spark, 10, 10))
    save(rows(spark, 90, 1), branch="audit")

    assert reader(spark, columns="note, id").columns == ["note", "id"]
    assert ids(reader(spark, columns="id", filter="id >= 15")) == list(range(15, 20))
    assert ids(reader(spark, snapshot_id=str(first))) == list(range(10))
    assert ids(reader(spark, tag="v1")) == list(range(10))
    assert ids(reader(spark, branch="audit")) == [*range(10), 90]
    assert ids(reader(spark)) == list(range(20))


def test_a_view_in_sql_reads_the_snapshot_of_its_first_query(spark_with_source: SparkSession, table: Table) -> None:
    spark = spark_with_source
    save(rows(spark, 0, 10))
    view = "TEMPORARY VIEW orders_view USING tablecrypt OPTIONS (table 'sparktest.db.rows', columns 'id')"
    count = "SELECT count(*) FROM orders_view WHERE id > 4"
    spark.sql(f"CREATE {view}")
    try:
        assert spark.sql(count).collect()[0][0] == 5
        save(rows(spark, 10, 10))
        assert spark.sql(count).collect()[0][0] == 5
        spark.sql(f"CREATE OR REPLACE {view}")
        assert spark.sql(count).collect()[0][0] == 15
    finally:
        spark.catalog.dropTempView("orders_view")


def test_a_table_in_sparks_own_catalog_reads_what_its_options_name(spark_with_source: SparkSession, table: Table) -> None:
    save(rows(spark_with_source, 0, 10))
    spark_with_source.sql("CREATE TABLE orders_table USING tablecrypt OPTIONS (table 'sparktest.db.rows')")
    try:
        assert spark_with_source.sql("SELECT count(*) FROM orders_table WHERE id > 4").collect()[0][0] == 5
    finally:
        spark_with_source.sql("DROP TABLE orders_table")


def test_a_dataframe_that_is_filtered_in_several_ways_is_read_right(spark_with_source: SparkSession, table: Table) -> None:
    spark = spark_with_source
    save(rows(spark, 0, 12))
    spark.conf.set(PUSHDOWN, "true")
    df = reader(spark)

    joined = df.where("id < 10").alias("a").join(df.where("id > 5").alias("b"), "id")

    assert ids(df.where("id = 1").unionByName(df.where("id = 2"))) == [1, 2]
    assert ids(joined) == [6, 7, 8, 9]
    assert ids(df) == list(range(12))


def test_credentials_are_refused_as_options(spark_with_source: SparkSession, table: Table) -> None:
    for name, value in (
        ("catalog.s3.secret-access-key", "a-secret"),
        ("catalog.token", "a-secret"),
        ("catalog.uri", "postgresql://user:a-secret@host/db"),
    ):
        with pytest.raises(Exception, match="looks like a credential") as caught:
            spark_with_source.read.format("tablecrypt").option(name, value).load("sparktest.db.rows")
        assert "a-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tabel": "x"}, "option 'tabel' of format"),
        ({"tag": "a", "branch": "b"}, "the options tag and branch exclude each other"),
        ({"snapshot-id": "first"}, "option snapshot-id is 'first', which is not a number"),
        ({"tag": "never"}, "has no tag or branch 'never'"),
        ({"catalog.encryption.required": "ture"}, "encryption.required is 'ture'; it must be true or false"),
        ({"catalog.kms.local.key-fiel": "x"}, "Did you mean kms.local.key-file"),
        ({"skip-delete-snapshots": "ture"}, "option skip-delete-snapshots is 'ture'; it must be true or false"),
        ({"masked": "masks"}, "option masked is 'masks'; it must be mask or error"),
        ({"max-files-per-batch": "0"}, "must be a whole number of at least 1"),
    ],
)
def test_options_that_cannot_be_used_are_said(spark_with_source: SparkSession, table: Table, options: dict[str, str], told: str) -> None:
    with pytest.raises(Exception, match=told):
        spark_with_source.read.format("tablecrypt").options(**options).load("sparktest.db.rows").collect()


def test_rows_that_do_not_fit_leave_no_file(spark_with_source: SparkSession, lake: Lake, table: Table) -> None:
    with pytest.raises(Exception, match="id"):
        save(spark_with_source.sql("SELECT if(id = 5, null, id) AS id, 'r' AS region FROM range(0, 10, 1, 2)"))

    assert not list(lake.warehouse.rglob("*.parquet"))
    assert table.refresh().current_snapshot() is None


def test_neither_keys_nor_credentials_are_in_plans_and_events(
    spark_run: SparkRun, lake: Lake, table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    spark = spark_run.session
    tcs.register(spark, {"sparktest": lake.properties | {"s3.secret-access-key": "a-store-credential"}})
    save(rows(spark, 0, 10))
    df = reader(spark)
    assert df.repartition(2).count() == 10
    capsys.readouterr()
    for mode in ("extended", "formatted", "codegen", "cost"):
        df.explain(mode=mode)

    events, plans = spark_run.events(), capsys.readouterr().out.encode()
    files = {str(path): path.read_bytes() for path in spark_run.local_files.rglob("*") if path.is_file()}
    assert events and files and plans
    haystacks = {"plans": plans, **events, **files}
    keys = file_keys(lake.catalog.load_table("db.rows"))  # type: ignore[arg-type]
    assert len(keys) >= 4
    assert found([*keys, b"a-store-credential"], haystacks) == []


def test_each_session_of_a_program_gets_the_source(spark_with_source: SparkSession, table: Table, lake: Lake) -> None:
    save(rows(spark_with_source, 0, 3))
    spark_with_source.createDataFrame([(1,)], "id int").collect()

    other = spark_with_source.newSession()
    tcs.register(other, {"sparktest": lake.properties})
    assert ids(reader(other)) == [0, 1, 2]
