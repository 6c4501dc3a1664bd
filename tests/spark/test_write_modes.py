"""Overwrites, merges and deletes through Spark: which rows remain, which files are written, and what is refused."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.exceptions import ValidationException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, TimestamptzType

import tablecrypt.spark as tcs
from tablecrypt.errors import ConfigurationError
from tests.spark.conftest import Lake
from tests.support.interrupted_catalog import INTERRUPTED, at_commits, once
from tests.support.plaintext import CANARY
from tests.support.tables import BY_REGION, REGION_SCHEMA, current_snapshot, data_files, summary_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
KEY = {"encryption.key-id": "alias/orders"}
MODES = ["copy-on-write", "merge-on-read"]


def properties(mode: str = "copy-on-write") -> dict[str, str]:
    return {**KEY, "write.delete.mode": mode, "write.merge.mode": mode}


def frame(spark: SparkSession, first: int, count: int, note: str = CANARY, partitions: int = 2) -> DataFrame:
    return spark.range(first, first + count, 1, partitions).selectExpr(
        "id", "concat('r', cast(id % 3 as string)) as region", f"'{note}' as note"
    )


@pytest.fixture
def name(lake: Lake) -> str:
    return lake.identifier("db.rows")


@pytest.fixture
def write(lake: Lake, name: str) -> Any:
    def write(df: DataFrame, mode: Any = "append", **arguments: Any) -> None:
        tcs.write_table(df, name, mode, path="python", catalog_properties=lake.properties, **arguments)

    return write


def rows_of(table: Table) -> dict[int, str]:
    rows = table.refresh().scan().to_arrow()
    assert len(set(rows["id"].to_pylist())) == rows.num_rows
    return dict(zip(rows["id"].to_pylist(), rows["note"].to_pylist(), strict=True))


def row_ids(table: Table) -> dict[int, int]:
    rows = table.refresh().scan(selected_fields=("id", "_row_id")).to_arrow()
    return dict(zip(rows["id"].to_pylist(), rows["_row_id"].to_pylist(), strict=True))


@pytest.mark.parametrize("mode", MODES)
def test_an_overwrite_by_filter_replaces_matching_rows_alone_in_one_snapshot(
    spark: SparkSession, lake: Lake, write: Any, mode: str
) -> None:
    table = lake.catalog.create_table("db.rows", REGION_SCHEMA, properties=properties(mode))
    write(frame(spark, 0, 100))
    before = row_ids(table)

    write(frame(spark, 200, 5, "new"), "overwrite", overwrite_filter="id >= 50 and region = 'r1'", snapshot_properties={"job": "fix"})

    kept = [each for each in range(100) if each < 50 or each % 3 != 1]
    assert rows_of(table) == dict.fromkeys(kept, CANARY) | dict.fromkeys(range(200, 205), "new")
    assert len(table.snapshots()) == 2
    assert summary_of(table)["job"] == "fix"
    after = row_ids(table)
    assert {each: after[each] for each in kept} == {each: before[each] for each in kept}
    assert bool(list(lake.warehouse.rglob("*.puffin"))) == (mode == "merge-on-read")


def test_a_dynamic_overwrite_replaces_the_partitions_that_occur(spark: SparkSession, lake: Lake, write: Any) -> None:
    table = lake.catalog.create_table("db.rows", REGION_SCHEMA, partition_spec=BY_REGION, properties=KEY)
    write(frame(spark, 0, 30))

    write(frame(spark, 100, 30, "new").where("region = 'r1'"), "overwrite_partitions")

    kept = [each for each in range(30) if each % 3 != 1]
    assert rows_of(table) == dict.fromkeys(kept, CANARY) | {each: "new" for each in range(100, 130) if each % 3 == 1}
    assert len(table.snapshots()) == 2


def test_a_dynamic_overwrite_goes_by_computed_partition_values_too(spark: SparkSession, lake: Lake, write: Any) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "bucket"))
    table = lake.catalog.create_table("db.rows", REGION_SCHEMA, partition_spec=spec, properties=KEY)
    write(frame(spark, 0, 40))
    gone = BucketTransform(4).transform(LongType())(100)

    write(frame(spark, 100, 1, "new"), "overwrite_partitions")

    bucket = BucketTransform(4).transform(LongType())
    assert rows_of(table) == {each: CANARY for each in range(40) if bucket(each) != gone} | {100: "new"}


def test_a_dynamic_overwrite_needs_partitions_and_no_older_ones(spark: SparkSession, lake: Lake, write: Any) -> None:
    table = lake.catalog.create_table("db.rows", REGION_SCHEMA, properties=KEY)
    with pytest.raises(ConfigurationError, match="has no partitions: use mode 'overwrite'"):
        write(frame(spark, 0, 1), "overwrite_partitions")
    write(frame(spark, 0, 3))
    table.refresh()
    with table.update_spec() as change:
        change.add_identity("region")

    with pytest.raises(ConfigurationError, match="files from before its partitioning was changed"):
        write(frame(spark, 0, 1), "overwrite_partitions")


def test_a_merge_into_an_empty_table_adds_all_rows(spark: SparkSession, lake: Lake, write: Any) -> None:
    schema = Schema(*REGION_SCHEMA.fields, identifier_field_ids=[1])
    table = lake.catalog.create_table("db.rows", schema, properties=KEY)

    write(frame(spark, 0, 10), "merge")

    assert rows_of(table) == dict.fromkeys(range(10), CANARY)


@pytest.mark.parametrize(
    ("query", "keys", "told"),
    [
        ("SELECT explode(array(1L, 2L, 1L)) AS id", ["id"], "do not name one row: some occur more than once"),
        ("SELECT explode(array(77L, 77L)) AS id", ["id"], "do not name one row: some occur more than once"),
        ("SELECT 77L AS id, 'r1' AS region", ["region"], "do not name one row: some occur more than once"),
        ("SELECT 1L AS id, cast(null as string) AS region", ["id", "region"], "merge key 'region' is null"),
    ],
)
def test_keys_that_do_not_name_one_row_fail_the_merge_and_leave_no_file(
    spark: SparkSession, lake: Lake, write: Any, query: str, keys: list[str], told: str
) -> None:
    table = lake.catalog.create_table("db.rows", REGION_SCHEMA, properties=KEY)
    write(frame(spark, 0, 10))
    files = sorted(lake.warehouse.rglob("*.parquet"))

    with pytest.raises(ConfigurationError, match=told):
        write(spark.sql(query), "merge", keys=keys)

    assert sorted(lake.warehouse.rglob("*.parquet")) == files
    assert len(table.refresh().snapshots()) == 1


@pytest.mark.parametrize("mode", ["append", "overwrite", "merge"])
def test_text_that_is_not_utf_8_is_refused_and_leaves_no_file(spark: SparkSession, lake: Lake, write: Any, mode: str) -> None:
    from pyspark.errors import PythonException

    table = lake.catalog.create_table("db.rows", REGION_SCHEMA, properties=KEY)
    write(frame(spark, 0, 10))
    files = sorted(lake.warehouse.rglob("*.parquet"))
    keys = {"keys": ["id"]} if mode == "merge" else {}

    with pytest.raises(PythonException, match="FormatError: column 'note': text of the rows is not UTF-8"):
        write(spark.sql("SELECT 3L AS id, 'r0' AS region, cast(X'FF' AS string) AS note"), mode, **keys)

    assert sorted(lake.warehouse.rglob("*.parquet")) == files
    assert rows_of(table) == dict.fromkeys(range(10), CANARY)


def test_merge_keys_that_cannot_be_compared_are_refused(spark: SparkSession, lake: Lake, write: Any) -> None:
    schema = Schema(*REGION_SCHEMA.fields, NestedField(4, "score", DoubleType()))
    lake.catalog.create_table("db.rows", schema, properties=KEY)

    for keys, told in (
        (None, "merge needs keys"),
        (["nowhere"], "merge key 'nowhere' is not a column of the table"),
        (["score"], "missing from the DataFrame"),
    ):
        with pytest.raises(ConfigurationError, match=told):
            write(frame(spark, 0, 1), "merge", keys=keys)
    with pytest.raises(ConfigurationError, match="whose values are not compared safely"):
        write(spark.sql("SELECT 1L AS id, 0.5D AS score"), "merge", keys=["score"])


def test_a_merge_beside_another_that_changed_its_rows_commits_nothing(spark: SparkSession, lake: Lake, write: Any, name: str) -> None:
    table = lake.catalog.create_table("db.rows", REGION_SCHEMA, properties=KEY)
    write(frame(spark, 0, 20))
    another = once(lambda: lake.catalog.load_table("db.rows").delete("id = 5"))
    with at_commits(before=another), pytest.raises(ValidationException):
        tcs.write_table(
            frame(spark, 5, 5, "new"), name, "merge", path="python", keys=["id"], catalog_properties=lake.properties | INTERRUPTED
        )

    assert rows_of(table) == {each: CANARY for each in range(20) if each != 5}
    named = {file.file_path.rpartition("/")[2] for snapshot in table.snapshots() for file in _files_at(table, snapshot.snapshot_id)}
    assert {path.name for path in lake.warehouse.rglob("*.parquet")} == named


def _files_at(table: Table, snapshot_id: int) -> list[Any]:
    return [task.file for task in table.scan(snapshot_id=snapshot_id).plan_files()]


def test_a_delete_of_no_row_makes_no_snapshot(spark: SparkSession, lake: Lake, write: Any, name: str) -> None:
    table = lake.catalog.create_table("db.rows", REGION_SCHEMA, properties=KEY)
    write(frame(spark, 0, 9))

    tcs.delete_where(spark, name, "id = 1000", catalog_properties=lake.properties)

    assert len(table.refresh().snapshots()) == 1


def test_a_branch_gets_its_rows_alone_and_must_exist(spark: SparkSession, lake: Lake, write: Any, name: str) -> None:
    table = lake.catalog.create_table("db.rows", REGION_SCHEMA, properties=KEY)
    write(frame(spark, 0, 10))
    with pytest.raises(ConfigurationError, match="has no branch 'audit'"):
        write(frame(spark, 10, 10), branch="audit")
    table.refresh()
    table.manage_snapshots().create_branch(current_snapshot(table).snapshot_id, "audit").commit()

    write(frame(spark, 10, 10), branch="audit")
    write(frame(spark, 0, 2, "new"), "merge", keys=["id"], branch="audit")
    tcs.delete_where(spark, name, "id = 15", branch="audit", catalog_properties=lake.properties)

    assert rows_of(table) == dict.fromkeys(range(10), CANARY)
    branch = table.scan().use_ref("audit").to_arrow()
    assert sorted(branch["id"].to_pylist()) == [each for each in range(20) if each != 15]
    assert branch["note"].to_pylist().count("new") == 2
    write(frame(spark, 50, 1), "overwrite", branch="audit")
    assert table.refresh().scan().use_ref("audit").to_arrow()["id"].to_pylist() == [50]
    assert len(rows_of(table)) == 10


def test_rows_distributed_by_partition_make_one_file_for_each(spark: SparkSession, lake: Lake, write: Any) -> None:
    table = lake.catalog.create_table("db.rows", REGION_SCHEMA, partition_spec=BY_REGION, properties=KEY)

    write(frame(spark, 0, 300, partitions=6), distribute_by="partition", sort_by=["id"])

    files = data_files(table.refresh())
    assert len(files) == 3
    for file in files:
        rows = table.scan(f"region = '{file.partition[0]}'").to_arrow()["id"].to_pylist()
        assert rows == sorted(rows)
    assert len(rows_of(table)) == 300


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        (PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "bucket"), PartitionField(4, 1001, DayTransform(), "day")), 5),
        (PartitionSpec(PartitionField(4, 1001, IdentityTransform(), "at.it")), 3),
    ],
    ids=["computed", "values"],
)
def test_rows_are_distributed_by_partition_values_whatever_their_columns_are_called(
    spark: SparkSession, lake: Lake, write: Any, spec: PartitionSpec, count: int
) -> None:
    schema = Schema(*REGION_SCHEMA.fields, NestedField(4, "at.it", TimestamptzType()))
    table = lake.catalog.create_table("db.rows", schema, partition_spec=spec, properties=KEY)
    rows = frame(spark, 0, 300, partitions=6).selectExpr("*", "if(id = 7, null, timestamp_seconds((id % 2) * 86400)) AS `at.it`")

    write(rows, distribute_by="partition", sort_by=["at.it", "id"])

    files = data_files(table.refresh())
    assert len(files) == count
    assert [row["id"] for row in table.scan().to_arrow().to_pylist() if row["at.it"] is None] == [7]
    assert set(table.scan().to_arrow()["at.it"].to_pylist()) == {
        None,
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
        dt.datetime(1970, 1, 2, tzinfo=dt.UTC),
    }


def test_files_end_at_the_target_size(spark: SparkSession, lake: Lake, write: Any) -> None:
    table = lake.catalog.create_table("db.rows", REGION_SCHEMA, properties=KEY | {"write.target-file-size-bytes": "50000"})

    write(frame(spark, 0, 100_000, partitions=1).selectExpr("xxhash64(id) AS id", "region", "note"))

    # A file ends with the row group that brings it to the size, which is reached by its stored bytes.
    lengths = sorted(file.file_size_in_bytes for file in data_files(table.refresh()))
    assert len(lengths) > 2
    assert all(length >= 50_000 for length in lengths[1:])
    assert len(rows_of(table)) == 100_000


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"mode": "append", "overwrite_filter": "id = 1"}, "overwrite_filter goes with mode 'overwrite'"),
        ({"mode": "overwrite", "keys": ["id"]}, "keys go with mode 'merge'"),
        ({"mode": "merge", "keys": ["id"], "sort_by": ["id"]}, "leave distribute_by and sort_by out"),
        ({"sort_by": ["other"]}, "sort_by names other"),
        ({"distribute_by": "range"}, "distribute_by 'range' is not known"),
        ({"distribute_by": "partition"}, "needs a partitioned table"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_written(
    spark: SparkSession, lake: Lake, write: Any, arguments: dict[str, Any], told: str
) -> None:
    lake.catalog.create_table("db.rows", REGION_SCHEMA, properties=KEY)

    with pytest.raises(ConfigurationError, match=told):
        write(frame(spark, 0, 1), **arguments)

    assert not list(lake.warehouse.rglob("*.parquet"))


def test_a_missing_partition_column_is_refused_before_anything_is_written(spark: SparkSession, lake: Lake, write: Any) -> None:
    lake.catalog.create_table("db.rows", REGION_SCHEMA, partition_spec=BY_REGION, properties=KEY)

    with pytest.raises(ConfigurationError, match="column 'region' is missing from the DataFrame, and the table is partitioned by it"):
        write(spark.sql("SELECT 1L AS id"))

    assert not list(lake.warehouse.rglob("*.parquet"))
