"""SELECT on encrypted tables: the rows that PyIceberg reads, by Spark's own reader."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType, TimestampType

import tablecrypt.spark as tcs
from tablecrypt.manifests import EncryptedDataFile
from tests.spark.conftest import Lake
from tests.spark.test_jvm_path import KEY, VALUES, plan_of, values
from tests.support.compare import assert_same_rows
from tests.support.held_reads import held_reads
from tests.support.plaintext import CANARY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.java

CONDITIONS: Final = [
    "id >= 50 AND id < 70",
    "60 > id",
    "id = 10000000000",
    f"note = '{CANARY} 4' OR id = 3",
    "note LIKE 'c4nary%'",
    f"NOT (note LIKE '{CANARY} 4%')",
    "note <=> NULL",
    "NOT (number <=> 3)",
    "price = 2.50",
    "price > 1.25",
    "ratio > 0",
    "ratio <= 0",
    "ratio = 0",
    "ratio <> 0.1",
    "NOT (ratio > 0)",
    "isnan(ratio)",
    "ratio = double('nan')",
    "ratio IN (0.1, double('infinity'))",
    "NOT (ratio IN (0.1))",
    "small >= float(0.1)",
    "NOT (small < 0)",
    "day < date'0800-01-01'",
    "local >= timestamp_ntz'1970-01-05T00:00:00'",
    "instant < timestamp'1969-12-01T00:00:00+00:00'",
    "number IN (1, 2)",
    "number NOT IN (1, 2)",
    "number NOT IN (1, NULL)",
    "NOT (number IN (1, 2) OR price < 1)",
    "number IS NULL AND id > 3",
    "inner.x > 30",
    "inner IS NULL",
    "size(tags) > 1 AND id > 100",
]


@pytest.fixture(scope="module")
def valued(prod: Lake) -> str:
    """A table with two files, the second with a deletion vector."""
    table = prod.catalog.create_table("db.valued", VALUES, properties=KEY)
    table.append(values(0, 60))
    table.append(values(60, 60))
    table.delete("id in (61, 62, 119)")
    return "db.valued"


@pytest.fixture(params=["true", "false"], ids=["vectorized", "row by row"])
def reader(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """Both of Spark's Parquet readers."""
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", request.param)
    yield request.param
    spark.conf.unset("spark.sql.parquet.enableVectorizedReader")


def rows_of(lake: Lake, name: str, **options: Any) -> pa.Table:
    """The rows that PyIceberg reads."""
    return lake.catalog.load_table(name).scan(**options).to_arrow()


def tasks_of(rows: DataFrame) -> int:
    """How many tasks the query reads with."""
    return int(rows.rdd.getNumPartitions())


@pytest.mark.usefixtures("reader")
def test_all_rows_and_types_are_those_of_the_table(spark: SparkSession, prod: Lake, valued: str) -> None:
    everything = rows_of(prod, valued)

    assert_same_rows(spark.sql(f"SELECT * FROM prod.{valued}").toArrow(), everything)
    assert_same_rows(spark.sql(f"SELECT tags, id FROM prod.{valued}").toArrow(), everything.select(["tags", "id"]))
    assert spark.sql(f"SELECT count(*) AS n FROM prod.{valued}").collect()[0]["n"] == 117
    assert spark.table(f"prod.{valued}").select("inner.`y.z`").distinct().count() == 2


def test_every_condition_keeps_the_rows_that_spark_would_keep(spark: SparkSession, prod: Lake, valued: str) -> None:
    plain = spark.createDataFrame(rows_of(prod, valued), spark.table(f"prod.{valued}").schema).cache()

    for condition in CONDITIONS:
        found = spark.sql(f"SELECT * FROM prod.{valued} WHERE {condition}")
        assert_same_rows(found.toArrow(), plain.where(condition).toArrow())
    plain.unpersist()


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("condition", ["= {}", ">= {}", "IN ({}, '1582-10-30')", "<=> {}", "<= {}"])
def test_days_that_the_older_calendar_lacks_are_found(spark: SparkSession, prod: Lake, new_name: str, condition: str) -> None:
    schema = Schema(NestedField(1, "day", "date"), NestedField(2, "instant", "timestamptz"))
    table = prod.catalog.create_table(new_name, schema, properties=KEY)
    noon = dt.datetime(1582, 10, 10, 12, tzinfo=dt.UTC)
    table.append(pa.Table.from_pylist([{"day": noon.date(), "instant": noon}], schema=schema.as_arrow()))

    day, instant = (condition.format(value) for value in ("date'1582-10-10'", "timestamp'1582-10-10 12:00:00+00:00'"))
    assert spark.sql(f"SELECT * FROM prod.{new_name} WHERE day {day}").count() == 1
    assert spark.sql(f"SELECT * FROM prod.{new_name} WHERE instant {instant}").count() == 1


def test_columns_and_filters_reach_planning_and_parquet(spark: SparkSession, prod: Lake, valued: str) -> None:
    assert tasks_of(spark.sql(f"SELECT id FROM prod.{valued} WHERE id > 1000")) == 0
    plan = plan_of(spark.sql(f"SELECT note FROM prod.{valued} WHERE id > 100"))
    assert "id > 100" in plan
    assert "price" not in plan


def _partitioned(prod: Lake, name: str) -> Table:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "region", StringType()),
        NestedField(3, "at", TimestampType()),
    )
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "region"),
        PartitionField(1, 1001, BucketTransform(2), "id_bucket"),
        PartitionField(3, 1002, DayTransform(), "at_day"),
    )
    table = prod.catalog.create_table(name, schema, partition_spec=spec, properties=KEY)
    regions = ["a/b c=d", "ü%20+", "[x]*{y,z}?", "", None, "_hidden", ".dot", "a:b#c"]
    at = pa.array([None, 86_400_000_000, -1, 0] * 10, pa.timestamp("us"))
    table.append(pa.table({"id": pa.array(range(40), pa.int64()), "region": regions * 5, "at": at}))
    return table


@pytest.mark.usefixtures("reader")
def test_a_condition_of_which_parquet_knows_one_side_keeps_the_rows_of_the_other(spark: SparkSession, prod: Lake, new_name: str) -> None:
    """Spark's own translation for Parquet returns one side of an OR where it does not know the other."""
    rows = "(1, 'aa', true), (2, 'bbb', false), (3, NULL, true), (4, 'dddd', NULL)"
    spark.sql(f"CREATE TABLE prod.{new_name} (id INT, item STRING, flag BOOLEAN) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')")
    spark.sql(f"INSERT INTO prod.{new_name} VALUES {rows}")
    for condition in (
        "id = 7 OR flag >= true",
        "id = 7 OR flag IN (true, false)",
        "length(item) > 2 OR id > 9",
        "id < 0 OR (id < 9 AND upper(item) = 'AA') OR item = 'zz'",
        "NOT (id > 0 AND length(item) > 2)",
        "NOT (NOT (id = 7 OR id + 1 = 3))",
        "id IN (1, 2) AND (item = 'zz' OR flag < true)",
    ):
        found = spark.sql(f"SELECT id FROM prod.{new_name} WHERE {condition}").collect()
        expected = spark.sql(f"SELECT id FROM VALUES {rows} AS v(id, item, flag) WHERE {condition}").collect()
        assert sorted(found) == sorted(expected) and expected, condition
    spark.sql(f"DELETE FROM prod.{new_name} WHERE id = 7 OR length(item) = 3")
    assert [row[0] for row in spark.sql(f"SELECT id FROM prod.{new_name} ORDER BY id").collect()] == [1, 3, 4]


def test_metadata_columns_say_where_a_row_lies_and_what_it_inherits(spark: SparkSession, prod: Lake, new_name: str) -> None:
    table = _partitioned(prod, new_name)
    with table.update_spec() as update:
        update.remove_field("region")
        update.add_field("region", TruncateTransform(1), "region_start")
    table.append(pa.table({"id": pa.array([40, 41], pa.int64()), "region": ["xyz", None], "at": pa.array([None, 5], pa.timestamp("us"))}))
    table.delete("id in (3, 4)")

    found = spark.sql(
        f"SELECT id, _file, _pos, _spec_id, _partition, _row_id, _last_updated_sequence_number AS seq, region, at FROM prod.{new_name}"
    ).collect()

    lineage = rows_of(prod, new_name, selected_fields=("id", "_row_id", "_last_updated_sequence_number")).to_pylist()
    assert {row["id"]: (row["_row_id"], row["seq"]) for row in found} == {
        row["id"]: (row["_row_id"], row["_last_updated_sequence_number"]) for row in lineage
    }
    by_function = spark.sql(f"SELECT id, input_file_name() AS file FROM prod.{new_name}").collect()
    assert {row["id"]: row["file"] for row in by_function} == {row["id"]: row["_file"] for row in found}
    files = {task.file.file_path: EncryptedDataFile.of(task.file) for task in table.refresh().scan().plan_files()}
    for row in found:
        assert row["_spec_id"] == files[row["_file"]].spec_id
        assert row["_row_id"] == files[row["_file"]].first_row_id + row["_pos"]
        at_first_spec = row["id"] < 40
        assert row["_partition"]["region"] == (row["region"] if at_first_spec else None)
        assert row["_partition"]["region_start"] == (None if at_first_spec or row["region"] is None else row["region"][:1])
        assert row["_partition"]["at_day"] == (None if row["at"] is None else row["at"].date())
    marked = spark.sql(f"SELECT id, _deleted FROM prod.{new_name}").collect()
    assert {row["id"]: row["_deleted"] for row in marked} == {each: each in (3, 4) for each in range(42)}
    assert spark.sql(f"SELECT count(*) AS n FROM prod.{new_name} WHERE _pos = 0 AND _partition.id_bucket = 1").collect()[0]["n"] > 0


def test_partitions_of_any_name_are_pruned_and_read(spark: SparkSession, prod: Lake, new_name: str) -> None:
    _partitioned(prod, new_name)
    for condition, count in (("region = '[x]*{y,z}?'", 5), ("region = '_hidden' OR region IS NULL", 10), ("NOT (region = '')", 30)):
        assert spark.sql(f"SELECT id FROM prod.{new_name} WHERE {condition}").count() == count
    assert tasks_of(spark.sql(f"SELECT id FROM prod.{new_name} WHERE region = 'none'")) == 0


def _rename(table: Table, *names: tuple[str, str]) -> None:
    for old, new in names:
        with table.update_schema() as change:
            change.rename_column(old, new)


def test_columns_that_were_added_renamed_swapped_and_widened_are_read_right(spark: SparkSession, prod: Lake, new_name: str) -> None:
    # Of two types, as Spark knows a field of a file by its name before it looks at the id.
    inner = StructType(NestedField(5, "x", IntegerType()), NestedField(6, "y", LongType()))
    fields = [NestedField(1, "number", IntegerType()), NestedField(2, "b", LongType()), NestedField(3, "c", LongType())]
    table = prod.catalog.create_table(new_name, Schema(*fields, NestedField(4, "s", inner)), properties=KEY)
    old = [{"number": 1, "b": 10, "c": 1000, "s": {"x": 1, "y": 100}}, {"number": 2, "b": 11, "c": 1001, "s": None}]
    table.append(pa.Table.from_pylist(old, schema=table.schema().as_arrow()))
    _rename(table, ("b", "swap"), ("c", "b"), ("swap", "c"), ("s.x", "swap"), ("s.y", "x"), ("s.swap", "y"))
    with table.update_schema() as change:
        change.update_column("number", LongType())
        change.add_column("added", StringType())
        change.move_first("added")
    new = [{"added": CANARY, "number": 2**40, "b": 1002, "c": 12, "s": {"y": 2, "x": 101}}]
    table.append(pa.Table.from_pylist(new, schema=table.schema().as_arrow()))
    rows = spark.table(f"prod.{new_name}")

    assert_same_rows(rows.toArrow(), rows_of(prod, new_name))
    assert sorted(row["x"] for row in rows.where("s IS NOT NULL").select("s.x").collect()) == [100, 101]
    # Pushed down by name, each of these would skip the first file: its statistics are those of the other column.
    swapped = (("b >= 1000", 3), ("c < 20", 3), ("s.x >= 100", 2))
    # Cut to the 32 bits that the first file has, the last two would be other numbers.
    widened = (("number = 1", 1), ("number > 3", 1), ("number < 4294967297", 2), ("number > 4294967299", 1))
    for condition, count in swapped + widened:
        assert rows.where(condition).count() == count, condition


def test_deleted_rows_stay_deleted_in_large_files_of_many_row_groups(spark: SparkSession, prod: Lake, new_name: str) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "note", StringType()))
    table = prod.catalog.create_table(new_name, schema, properties={**KEY, "write.parquet.row-group-limit": "1000"})
    table.append(pa.table({"id": pa.array(range(10_000), pa.int64()), "note": [CANARY] * 10_000}))
    table.delete("id >= 2500 and id < 7500")
    table.append(pa.table({"id": pa.array(range(10_000, 10_010), pa.int64()), "note": [CANARY] * 10}))
    table.delete("id in (0, 9999, 10009)")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "20000")
    spark.conf.set("spark.sql.files.openCostInBytes", "0")
    rows = spark.table(f"prod.{new_name}")

    live = [*range(1, 2500), *range(7500, 9999), *range(10_000, 10_009)]
    assert tasks_of(rows) == 3
    assert sorted(row["id"] for row in rows.select("id").collect()) == live
    assert (rows.where("id = 7500").count(), rows.where("id = 7499").count(), rows.count()) == (1, 0, len(live))
    spark.conf.unset("spark.sql.files.maxPartitionBytes")
    spark.conf.unset("spark.sql.files.openCostInBytes")


def test_a_limit_reads_no_more_files_than_it_needs(spark: SparkSession, prod: Lake, new_name: str) -> None:
    table = prod.catalog.create_table(new_name, Schema(NestedField(1, "id", LongType())), properties=KEY)
    for first in range(0, 50, 10):
        table.append(pa.table({"id": pa.array(range(first, first + 10), pa.int64())}))
    table.delete("id < 15 and id != 12")
    spark.conf.set("spark.sql.files.openCostInBytes", str(2**40))

    for wanted, tasks in ((1, 1), (10, 1), (11, 2), (30, 3), (31, 4), (1000, 4)):
        rows = spark.sql(f"SELECT id FROM prod.{new_name} LIMIT {wanted}")
        assert len(rows.collect()) == min(wanted, 36)
        assert f"numPartitions={tasks}" in plan_of(rows) or tasks_of(spark.table(f"prod.{new_name}").limit(wanted)) <= tasks
    assert spark.sql(f"SELECT id FROM prod.{new_name} WHERE id >= 45 LIMIT 3").count() == 3
    spark.conf.unset("spark.sql.files.openCostInBytes")


def test_a_join_reads_the_partitions_of_the_rows_that_it_meets(spark: SparkSession, prod: Lake, new_name: str) -> None:
    _partitioned(prod, new_name)
    spark.createDataFrame([("_hidden", 1), ("a:b#c", 2)], "r string, n int").createOrReplaceTempView("met")
    joined = spark.sql(f"SELECT /*+ BROADCAST(met) */ id FROM prod.{new_name} JOIN met ON region = r WHERE n = 1")

    assert "dynamicpruning" in plan_of(joined)
    assert sorted(row["id"] for row in joined.collect()) == [5, 13, 21, 29, 37]
    read = joined._jdf.queryExecution().executedPlan().toString()
    assert "RuntimeFilters: [dynamicpruning" in str(read)


def test_the_size_of_a_scan_is_what_its_rows_take_up_in_memory(spark: SparkSession, prod: Lake, valued: str) -> None:
    def estimate(query: str) -> int:
        return int(spark.sql(query)._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())

    assert estimate(f"SELECT id FROM prod.{valued}") == 120 * 8
    assert estimate(f"SELECT id FROM prod.{valued} WHERE id < 60") == 60 * 8
    assert estimate(f"SELECT id, note, _pos FROM prod.{valued}") == 120 * (8 + 20 + 8)
    assert estimate(f"SELECT * FROM prod.{valued}") > estimate(f"SELECT id, note FROM prod.{valued}")


@pytest.mark.parametrize("table", ["small in its files", "large in its files"])
def test_a_join_sends_a_table_to_all_executors_only_if_its_rows_are_small(
    spark: SparkSession, prod: Lake, new_name: str, table: str
) -> None:
    if table == "small in its files":
        stored = pa.table({"id": pa.array([7] * 200_000, pa.int64()), "text": ["same"] * 200_000})
        size = 200_000 * (8 + 20)
    else:
        stored = pa.table({"id": pa.array(range(1_000), pa.int64()), "text": [os.urandom(1_000).hex() for _ in range(1_000)]})
        size = 1_000 * (8 + 1_000)
    prod.catalog.create_table(new_name, stored.schema, properties=KEY).append(stored)

    def join_at(threshold: int) -> str:
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", str(threshold))
        plan = plan_of(spark.sql(f"SELECT * FROM prod.{new_name} JOIN prod.{new_name} AS other USING (id)"))
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
        return plan

    assert "BroadcastHashJoin" not in join_at(size - 1)
    assert "BroadcastHashJoin" in join_at(3 * size)


def test_each_form_of_a_plan_gets_the_same_reader(spark: SparkSession, prod: Lake, valued: str) -> None:
    """Each new one broadcasts Hadoop's configuration, a tenth of the time of a small query."""
    query = spark.table(f"prod.{valued}").where("id > 3")._jdf.queryExecution()

    first, second = (plan.collectLeaves().apply(0).readerFactory() for plan in (query.sparkPlan(), query.executedPlan()))

    assert first.equals(second)


def test_keys_are_forgotten_with_the_last_plan(spark: SparkSession, prod: Lake, valued: str) -> None:
    before = held_reads(spark)
    rows = spark.table(f"prod.{valued}")
    assert rows.count() == 117
    del rows
    assert len(held_reads(spark) - before) <= 1


@pytest.mark.parametrize("damage", ["a bit", "the end", "the file", "plaintext"])
def test_a_damaged_missing_or_plaintext_file_fails_the_query_even_where_the_session_ignores_such(
    spark: SparkSession, prod: Lake, unwatched_warehouse: Path, new_name: str, damage: str
) -> None:
    import pyarrow.parquet as pq

    location = (unwatched_warehouse / new_name).as_uri()
    table = prod.catalog.create_table(new_name, VALUES, location=location, properties=KEY)
    table.append(values(0, 30))
    table.append(values(30, 30))
    [path, *_] = sorted(unwatched_warehouse.rglob("*.parquet"))
    content = bytearray(path.read_bytes())
    if damage == "the file":
        path.unlink()
    elif damage == "plaintext":
        pq.write_table(values(0, 30), path)
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content if damage == "a bit" else content[:-100])
    session = spark.newSession()
    tcs.catalog(session, "prod", prod.properties)
    for kind in ("CorruptFiles", "MissingFiles"):
        session.conf.set(f"spark.sql.files.ignore{kind}", "true")

    with pytest.raises(Exception, match=rf"(?s)FAILED_READ_FILE.*{path.name}"):
        session.table(f"prod.{new_name}").collect()


def test_counts_and_extremes_come_from_manifests_where_these_say_them(spark: SparkSession, prod: Lake, new_name: str) -> None:
    table = prod.catalog.create_table(new_name, VALUES, properties=KEY)
    query = (
        f"SELECT count(*), count(number), min(id), max(id), min(price), max(day), min(local), max(instant), count(1), "
        f"min(inner.x), count(inner.x) FROM prod.{new_name}"
    )
    assert spark.sql(query).collect()[0][:4] == (0, 0, None, None)
    table.append(values(0, 60))
    table.append(values(60, 61))
    plain = spark.createDataFrame(rows_of(prod, new_name), spark.table(f"prod.{new_name}").schema)
    plain.createOrReplaceTempView("plain")
    reads = [
        "min(ratio), max(ratio)",
        "max(note)",
        "count(DISTINCT number)",
        "count(tags)",
        "avg(number)",
        "count(*) FILTER (WHERE id > 3)",
    ]

    assert "BatchScan" not in plan_of(spark.sql(query))
    assert spark.sql(query).collect() == spark.sql(query.replace(f"prod.{new_name}", "plain")).collect()
    for each in reads:
        found, wanted = (spark.sql(f"SELECT {each} FROM {name}") for name in (f"prod.{new_name}", "plain"))
        assert "BatchScan" in plan_of(found), each
        assert str(found.collect()) == str(wanted.collect()), each
    finite, zeros, unordered = "(1.5D, -2D), (2.5D, double('Infinity'))", "(0D, 0D)", "(double('NaN'), 1D)"
    for ratios in (finite, zeros, unordered):
        key = "TBLPROPERTIES ('encryption.key-id' = 'alias/orders')"
        spark.sql(f"CREATE OR REPLACE TABLE prod.{new_name}_ratios {key} AS SELECT * FROM VALUES {ratios} AS t(a, b)")
        found = spark.sql(f"SELECT min(a), max(a), min(b), max(b) FROM prod.{new_name}_ratios")
        assert ("BatchScan" in plan_of(found)) == (ratios != finite)
        assert str(found.collect()) == str(spark.sql(f"SELECT min(a), max(a), min(b), max(b) FROM VALUES {ratios} AS t(a, b)").collect())
    grouped = spark.sql(f"SELECT number, count(*) AS n FROM prod.{new_name} GROUP BY number")
    assert {tuple(row) for row in grouped.collect()} == {tuple(row) for row in plain.groupBy("number").count().collect()}
    table.refresh().delete("id in (0, 120)")
    assert spark.sql(query).collect()[0][:4] == (119, 80, 1, 119)


def test_conditions_that_partitions_answer_are_not_evaluated_on_rows(spark: SparkSession, prod: Lake, new_name: str) -> None:
    table, plain = f"prod.{new_name}", f"plain_{new_name.removeprefix('db.')}"
    rows = "(1, 'd1', timestamp '2021-06-30T01:00:00Z'), (2, 'd1', timestamp '2021-06-30T02:00:00Z'), (3, 'd2', NULL), (4, NULL, NULL)"
    spark.sql(
        f"CREATE TABLE {table} (id INT, dep STRING, t TIMESTAMP) PARTITIONED BY (dep, hours(t)) "
        "TBLPROPERTIES ('encryption.key-id'='alias/orders')"
    )
    spark.sql(f"INSERT INTO {table} VALUES {rows}")
    spark.sql(f"SELECT * FROM VALUES {rows} AS given(id, dep, t)").createOrReplaceTempView(plain)
    whole = [
        "dep IS NULL",
        "dep = 'd1'",
        "dep <> 'd2'",
        "dep NOT IN ('d2', NULL)",
        "dep IN (NULL, 'd1')",
        "dep <=> 'd1'",
        "NOT dep <=> 'd1'",
        "dep LIKE 'd%' AND t IS NULL",
        "dep = 'd2' OR t < timestamp '2021-06-30T02:00:00Z'",
    ]
    parts = ["t < timestamp '2021-06-30T01:00:00.001Z'", "dep = 'd1' AND id = 1", "dep = 'd2' OR id = 1", "upper(dep) = 'D1'"]

    for condition in (*whole, *parts):
        found, counted = (spark.sql(f"SELECT {each} FROM {table} WHERE {condition}") for each in ("*", "count(*)"))
        assert ("Filter" in plan_of(found)) == (condition in parts), plan_of(found)
        assert ("BatchScan" in plan_of(counted)) == (condition in parts), condition
        expected = spark.sql(f"SELECT * FROM {plain} WHERE {condition} ORDER BY id").collect()
        assert found.orderBy("id").collect() == expected, condition
        assert counted.collect()[0][0] == len(expected), condition
    assert spark.sql(f"SELECT id FROM {table} WHERE dep = 'd1' LIMIT 1").count() == 1
    spark.sql(f"DELETE FROM {table} WHERE id = 1")
    assert [tuple(row) for row in spark.sql(f"SELECT count(*) FROM {table} WHERE dep = 'd1'").collect()] == [(1,)]
    prod.catalog.load_table(new_name).update_spec().remove_field("dep").commit()
    found = spark.sql(f"SELECT id FROM {table} WHERE dep = 'd1'")
    assert ("Filter" in plan_of(found), [row.id for row in found.collect()]) == (True, [2])


def test_a_join_on_partitions_needs_no_shuffle(spark: SparkSession, prod: Lake, new_name: str) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "region", StringType()))
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket"), PartitionField(2, 1001, IdentityTransform(), "region"))
    for side, count in (("l", 40), ("r", 30)):
        table = prod.catalog.create_table(f"{new_name}{side}", schema, partition_spec=spec, properties=KEY)
        for first in (0, 5):
            ids = pa.array(range(first, count), pa.int64())
            table.append(pa.table({"id": ids, "region": [["eu", "us", None][each % 3] for each in range(first, count)]}))
    query = f"SELECT l.id FROM prod.{new_name}l l JOIN prod.{new_name}r r ON l.id = r.id AND l.region = r.region"
    settings = {
        "spark.sql.iceberg.planning.preserve-data-grouping": "true",
        "spark.sql.sources.v2.bucketing.enabled": "true",
        "spark.sql.sources.v2.bucketing.pushPartValues.enabled": "true",
        "spark.sql.requireAllClusterKeysForCoPartition": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.adaptive.enabled": "false",
    }
    wanted = sorted(row["id"] for row in spark.sql(query).collect())
    session = spark.newSession()
    tcs.catalog(session, "prod", prod.properties)
    for name, value in settings.items():
        session.conf.set(name, value)

    joined = session.sql(query)
    assert "SortMergeJoin" in plan_of(joined)
    assert "Exchange" not in plan_of(joined)
    assert sorted(row["id"] for row in joined.collect()) == wanted
    assert len(wanted) == sum(1 if each < 5 else 4 for each in range(30) if each % 3 != 2)
    assert session.sql(f"SELECT * FROM prod.{new_name}l").count() == 75
    with table.update_spec() as update:
        update.remove_field("region")
    table.append(pa.table({"id": pa.array([100, 101], pa.int64()), "region": ["eu", "us"]}))
    assert session.sql(f"SELECT sum(id) AS s FROM prod.{new_name}r GROUP BY id").count() == 32
