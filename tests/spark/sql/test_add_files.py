"""CALL prod.system.add_files: rows of plaintext files arrive encrypted, in one commit, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from pyiceberg.table import Table
from pyiceberg.types import StringType

from tablecrypt import maintenance
from tests.spark.conftest import Lake
from tests.support.plaintext import CANARY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
COLUMNS: Final = "id bigint NOT NULL, region string, note string, added int"


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> str:
    """Plaintext files in two partitions, whose columns are in another order and in capitals."""
    folder = tmp_path / "plain.files"
    rows = spark.range(6).selectExpr(f"'{CANARY}' AS NOTE", "id AS ID", "if(id < 2, 'it\\'s', 'us') AS region")
    rows.repartition(1).write.partitionBy("region").parquet(folder.as_uri())
    return f"parquet.`{folder.as_uri()}`"


def create(spark: SparkSession, prod: Lake, name: str) -> Table:
    spark.sql(f"CREATE TABLE prod.{name} ({COLUMNS}) PARTITIONED BY (region) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')")
    return prod.catalog.load_table(name)


def added(spark: SparkSession, name: str, source: str, further: str = "") -> tuple[int, int]:
    literal = source.replace("'", "\\'")
    [row] = spark.sql(f"CALL prod.system.add_files(table => '{name}', source_table => '{literal}'{further})").collect()
    assert row.asDict().keys() == {"added_files_count", "changed_partition_count"}
    return tuple(row)


def refused(spark: SparkSession, name: str, source: str, further: str = "") -> str:
    with pytest.raises(Exception) as raised:  # noqa: PT011  Spark's own error has the cause
        added(spark, name, source, further)
    return str(raised.value)


def test_rows_of_plaintext_files_are_written_encrypted_in_one_commit(spark: SparkSession, prod: Lake, new_name: str, source: str) -> None:
    table = create(spark, prod, new_name)
    with table.update_schema() as update:
        update.add_column("origin", StringType(), default_value="it's \\ old")
    assert added(spark, new_name, source) == (2, 2)

    table = prod.catalog.load_table(new_name)
    assert len(table.metadata.snapshots) == 1
    rows = table.scan().to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["region"]) for row in rows] == [(0, "it's"), (1, "it's"), *((number, "us") for number in range(2, 6))]
    assert {(row["note"], row["origin"], row["added"]) for row in rows} == {(CANARY, "it's \\ old", None)}
    assert maintenance.verify(table).is_good
    assert spark.sql(f"SELECT * FROM {source}").count() == 6


def test_a_partition_filter_takes_what_it_says(spark: SparkSession, prod: Lake, new_name: str, source: str) -> None:
    create(spark, prod, new_name)
    assert added(spark, new_name, source, ", partition_filter => map('REGION', 'it\\'s')") == (1, 1)
    assert added(spark, new_name, source, ", partition_filter => map('region', 'nowhere')") == (0, 0)
    rows = prod.catalog.load_table(new_name).scan().to_arrow().to_pylist()
    assert sorted(row["id"] for row in rows) == [0, 1]
    assert {row["added"] for row in rows} == {None}


def test_what_does_not_fit_is_refused_and_nothing_is_written(spark: SparkSession, prod: Lake, new_name: str, source: str) -> None:
    table = create(spark, prod, new_name)
    spark.range(1).selectExpr("id", "id AS stranger").createOrReplaceTempView("more_columns")
    spark.range(1).selectExpr("'x' AS note").createOrReplaceTempView("no_id")
    spark.range(1).selectExpr("'x' AS id").createOrReplaceTempView("other_type")

    assert "has no column stranger" in refused(spark, new_name, "more_columns")
    assert "no column id, which must not be null" in refused(spark, new_name, "no_id")
    assert "CANNOT_SAFELY_CAST" in refused(spark, new_name, "other_type")
    assert "partition_filter names day" in refused(spark, new_name, source, ", partition_filter => map('day', '1')")
    assert "without a record of their files" in refused(spark, new_name, source, ", check_duplicate_files => true")
    assert "TABLE_OR_VIEW_NOT_FOUND" in refused(spark, new_name, "default.nothing")
    assert "PARSE" in refused(spark, new_name, "more_columns WHERE true")

    assert table.refresh().metadata.snapshots == []
    data = Path(table.location().removeprefix("file://")) / "data"
    assert [path for path in data.rglob("*") if path.is_file()] == []
