"""snapshot and migrate of tables that Spark's session catalog keeps: their rows in a new encrypted table."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tablecrypt import maintenance
from tests.spark.conftest import Lake
from tests.support.plaintext import CANARY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
KEY = "properties => map('encryption.key-id', 'alias/orders', 'snapshot', 'false', 'migrated', 'false')"


@pytest.fixture
def plain(spark: SparkSession, new_name: str, tmp_path: Path) -> str:
    """A table of Parquet files in two partitions, without its catalog's name."""
    name = new_name.replace("db.", "default.own_")
    spark.sql(
        f"CREATE TABLE spark_catalog.{name} (id bigint, note string, code char(3)) USING parquet PARTITIONED BY (id) "
        f"LOCATION '{tmp_path / 'plain'}'"
    )
    spark.sql(f"INSERT INTO spark_catalog.{name} (id, note, code) VALUES (1, '{CANARY}', 'a'), (2, '{CANARY}', 'b')")
    return name


def called(spark: SparkSession, arguments: str) -> list[tuple[int, ...]]:
    return [tuple(row) for row in spark.sql(f"CALL prod.system.{arguments}").collect()]


def tables(spark: SparkSession, name: str) -> set[str]:
    named = name.removeprefix("default.")
    return {row[1] for row in spark.sql(f"SHOW TABLES IN spark_catalog.default LIKE '{named}*'").collect()}


def test_a_snapshot_is_a_new_table_of_its_own(spark: SparkSession, prod: Lake, new_name: str, plain: str) -> None:
    source = f"spark_catalog.{plain}"
    location = (prod.warehouse / "elsewhere" / new_name).as_uri()
    arguments = f"source_table => '{source}', table => '{new_name}', location => '{location}', parallelism => 2, {KEY}"
    assert called(spark, f"snapshot({arguments})") == [(2,)]

    table = prod.catalog.load_table(new_name)
    assert table.location() == location
    assert [field.name for field in table.spec().fields] == ["id"]
    assert table.properties["snapshot"] == "true"
    assert maintenance.verify(table).is_good
    expected = [(CANARY, "a  ", 1), (CANARY, "b  ", 2)]
    assert [tuple(row) for row in spark.sql(f"SELECT * FROM prod.{new_name} ORDER BY id").collect()] == expected
    assert spark.table(source).count() == 2
    with pytest.raises(Exception, match="2 of the source's files"):
        called(spark, f"add_files('{new_name}', '{source}')")
    with pytest.raises(Exception, match="already exists"):
        called(spark, f"snapshot({arguments})")


@pytest.mark.parametrize(
    ("further", "kept"), [("", "_BACKUP_"), (", backup_table_name => '{}_old'", "_old"), (", drop_backup => true", None)]
)
def test_a_table_that_is_migrated_gets_another_name_or_goes(
    spark: SparkSession, prod: Lake, new_name: str, plain: str, further: str, kept: str | None
) -> None:
    name = plain.removeprefix("default.")
    assert called(spark, f"migrate('spark_catalog.{plain}', into => '{new_name}', {KEY}{further.format(name)})") == [(2,)]
    assert prod.catalog.load_table(new_name).properties["migrated"] == "true"
    assert spark.table(f"prod.{new_name}").count() == 2
    assert {each.lower() for each in tables(spark, plain)} == ({f"{name}{kept}".lower()} if kept else set())


@pytest.mark.parametrize(
    ("further", "reason"),
    [
        (", parallelism => 0", "parallelism is '0'"),
        (", workers => 2", "workers: these are for Iceberg tables"),
        ("", "directories that its catalog lists do not exist"),
        (", ignore_missing_files => true, location => 'file:///tmp/a?b'", "name a location without them"),
    ],
)
def test_a_table_that_is_not_migrated_keeps_its_name(
    spark: SparkSession, prod: Lake, new_name: str, plain: str, tmp_path: Path, further: str, reason: str
) -> None:
    shutil.rmtree(tmp_path / "plain" / "id=1")
    with pytest.raises(Exception, match=reason):
        called(spark, f"migrate('spark_catalog.{plain}', into => '{new_name}', {KEY}{further})")
    assert tables(spark, plain) == {plain.removeprefix("default.")}
    assert not prod.catalog.table_exists(new_name)
    assert called(spark, f"snapshot('spark_catalog.{plain}', '{new_name}', ignore_missing_files => true, {KEY})") == [(1,)]
    assert spark.table(f"prod.{new_name}").count() == 1


def test_only_tables_of_files_without_buckets_are_copied(spark: SparkSession, new_name: str) -> None:
    name = new_name.replace("db.", "own_")
    spark.sql(f"CREATE TABLE spark_catalog.default.{name} (id bigint) USING parquet CLUSTERED BY (id) INTO 2 BUCKETS")
    spark.sql(f"CREATE TABLE spark_catalog.default.{name}_csv (id bigint) USING csv")
    spark.sql(f"CREATE VIEW spark_catalog.default.{name}_view AS SELECT 1 AS id")
    for source, reason in ((name, "is bucketed"), (f"{name}_csv", "but of csv"), (f"{name}_view", "is not a table of parquet")):
        with pytest.raises(Exception, match=reason):
            called(spark, f"snapshot('spark_catalog.default.{source}', '{new_name}', {KEY})")
    with pytest.raises(Exception, match="drop_backup: these are for tables of Spark's"):
        called(spark, f"migrate(table => '{new_name}', drop_backup => true)")
