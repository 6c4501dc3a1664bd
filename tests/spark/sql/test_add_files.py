"""CALL prod.system.add_files: rows of plaintext files arrive encrypted, in one commit, or not at all."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from pyiceberg.types import StringType

from tablecrypt import maintenance
from tests.spark.conftest import Lake
from tests.support.orc_files import encrypted, plain
from tests.support.plaintext import CANARY
from tests.support.tables import folder_of, path_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
UNCHECKED: Final = ", check_duplicate_files => false"
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
    assert len(list(path_of(source[9:-1]).rglob("*.parquet"))) == 2

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
    spark.range(1).selectExpr("'x' AS note").createOrReplaceTempView("no_id")
    spark.range(1).selectExpr("'x' AS id").createOrReplaceTempView("other_type")
    spark.range(1).createOrReplaceTempView("of_the_program")

    assert "no column id, which must not be null" in refused(spark, new_name, "no_id")
    assert "CANNOT_SAFELY_CAST" in refused(spark, new_name, "other_type", UNCHECKED)
    assert "is partitioned by region" in refused(spark, new_name, source, ", partition_filter => map('id', '1')")
    assert "is partitioned by nothing" in refused(spark, new_name, "of_the_program", ", partition_filter => map('id', '1')")
    assert "parallelism is '0'" in refused(spark, new_name, source, ", parallelism => 0")
    assert "no files" in refused(spark, new_name, "of_the_program")
    assert "TABLE_OR_VIEW_NOT_FOUND" in refused(spark, new_name, "default.nothing")
    assert "PARSE" in refused(spark, new_name, "no_id WHERE true")

    assert table.refresh().metadata.snapshots == []
    data = folder_of(table) / "data"
    assert [path for path in data.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_values_of_partition_directories_are_read_as_the_tables_types(
    spark: SparkSession, prod: Lake, new_name: str, tmp_path: Path, file_format: str
) -> None:
    """Spark guesses the type of a column from the names of all its directories; what a table's column holds is not to follow from that."""
    names = ["01", "1e3", "a%2Fb", "2024-01-02", "__HIVE_DEFAULT_PARTITION__"]
    for number, name in enumerate(names):
        for dated in ("2024-02-03", "__HIVE_DEFAULT_PARTITION__"):
            folder = tmp_path / f"dept={name}" / f"day={dated}" / "amount=007" / "moment=2024-03-04 05%3A06%3A07" / "price=1.50"
            spark.range(number, number + 1).coalesce(1).write.format(file_format).save(str(folder))
    partitions = "dept string, day date, amount string, moment timestamp_ntz, price decimal(9, 3)"
    spark.sql(f"CREATE TABLE prod.{new_name} (id bigint, {partitions}) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')")

    assert added(spark, new_name, f"{file_format}.`{tmp_path.as_uri()}`") == (10, 1)

    rows = prod.catalog.load_table(new_name).scan().to_arrow().to_pylist()
    expected = dict(enumerate(["01", "1e3", "a/b", "2024-01-02", None]))
    assert {(row["id"], row["dept"]) for row in rows} == set(expected.items())
    assert {row["day"] for row in rows} == {dt.date(2024, 2, 3), None}
    assert {(row["amount"], row["moment"], row["price"]) for row in rows} == {("007", dt.datetime(2024, 3, 4, 5, 6, 7), Decimal("1.500"))}

    twice = f"partition_filter => map('dept', '01', 'day', '2024-02-03'){UNCHECKED}"
    assert added(spark, new_name, f"{file_format}.`{tmp_path.as_uri()}`", f", {twice}") == (1, 1)


def test_partitions_of_sparks_own_tables_have_the_types_that_these_say(
    spark: SparkSession, prod: Lake, new_name: str, tmp_path: Path
) -> None:
    plain = new_name.replace("db.", "plain_")
    spark.sql(f"CREATE TABLE spark_catalog.default.{plain} (id bigint, dept string) USING parquet PARTITIONED BY (dept)")
    spark.sql(f"INSERT INTO spark_catalog.default.{plain} VALUES (1, '01'), (2, '1e3'), (3, NULL)")
    spark.sql(
        f"CREATE TABLE prod.{new_name} (id bigint, dept string) PARTITIONED BY (dept) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')"
    )

    assert added(spark, new_name, f"spark_catalog.default.{plain}", ", partition_filter => map('dept', '01')") == (1, 1)
    assert "1 of the source's files" in refused(spark, new_name, f"spark_catalog.default.{plain}")
    assert added(spark, new_name, f"spark_catalog.default.{plain}", ", partition_filter => map('dept', '1e3')") == (1, 1)

    rows = prod.catalog.load_table(new_name).scan().to_arrow().sort_by("id").to_pylist()
    assert [row["dept"] for row in rows] == ["01", "1e3"]


def test_a_source_is_added_once_unless_the_call_says_otherwise(spark: SparkSession, prod: Lake, new_name: str, tmp_path: Path) -> None:
    for number in range(5):
        pq.write_table(pa.table({"id": [number], "note": [CANARY]}), tmp_path / f"part-{number}.parquet")
    spark.sql(f"CREATE TABLE prod.{new_name} (id bigint, note string) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')")
    source = f"parquet.`{tmp_path.as_uri()}`"

    assert added(spark, new_name, source) == (5, 1)
    table = prod.catalog.load_table(new_name)
    assert table.current_snapshot().summary["changed-partition-count"] == "1"  # type: ignore[union-attr,index]
    pq.write_table(pa.table({"id": [5], "note": [CANARY]}), tmp_path / "part-5.parquet")
    message = refused(spark, new_name, source)
    assert "part-0.parquet" in message
    assert "check_duplicate_files => false" in message
    assert table.refresh().scan().count() == 5
    assert len(table.metadata.snapshots) == 1

    assert added(spark, new_name, f"parquet.`{tmp_path.as_uri()}/part-5.parquet`") == (1, 1)
    spark.sql(f"UPDATE prod.{new_name} SET note = '{CANARY} 2' WHERE id = 5")
    spark.sql(f"CALL prod.system.rewrite_data_files('{new_name}', options => map('rewrite-all', 'true'))").collect()
    assert "already" in refused(spark, new_name, f"parquet.`{tmp_path.as_uri()}/part-5.parquet`")
    assert added(spark, new_name, source, UNCHECKED) == (6, 1)
    assert table.refresh().scan().count() == 12

    spark.sql(f"TRUNCATE TABLE prod.{new_name}")
    assert added(spark, new_name, source) == (6, 1)


def test_a_source_without_files_cannot_be_known_again(spark: SparkSession, prod: Lake, new_name: str) -> None:
    spark.sql(f"CREATE TABLE prod.{new_name} (id bigint) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')")
    spark.range(4).createOrReplaceTempView("without_files")
    assert "check_duplicate_files => false" in refused(spark, new_name, "without_files")
    files, partitions = added(spark, new_name, "without_files", UNCHECKED)
    assert files > 0
    assert partitions == 1
    assert prod.catalog.load_table(new_name).scan().count() == 4


def test_partitions_are_counted_as_iceberg_counts_them(spark: SparkSession, prod: Lake, new_name: str) -> None:
    spark.sql(f"CREATE TABLE prod.{new_name} (id bigint, region string) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')")
    spark.sql(f"INSERT INTO prod.{new_name} VALUES (1, 'eu')")
    spark.sql(f"ALTER TABLE prod.{new_name} ADD PARTITION FIELD region")
    spark.sql(f"INSERT INTO prod.{new_name} VALUES (2, 'eu'), (3, 'us')")
    spark.sql(f"DELETE FROM prod.{new_name} WHERE id > 0")
    counted = spark.sql(f"SELECT summary['changed-partition-count'] FROM prod.{new_name}.snapshots ORDER BY committed_at").collect()
    assert [row[0] for row in counted] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [("int", "1e3"), ("int", "99999999999"), ("decimal(4, 1)", "1.55"), ("date", "2024-01-02 03%3A04%3A05"), ("boolean", "maybe")],
)
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_no_value_is_made_of_a_directory_that_does_not_say_it(
    spark: SparkSession, prod: Lake, new_name: str, tmp_path: Path, kind: str, name: str, ansi: str
) -> None:
    spark.range(1).write.parquet(str(tmp_path / f"it={name}"))
    spark.sql(f"CREATE TABLE prod.{new_name} (id bigint, it {kind}) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        assert "a directory of the source says it=" in refused(spark, new_name, f"parquet.`{tmp_path.as_uri()}`")
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert prod.catalog.load_table(new_name).metadata.snapshots == []


def test_directories_are_no_structs(spark: SparkSession, prod: Lake, new_name: str, tmp_path: Path) -> None:
    spark.range(1).write.parquet(str(tmp_path / "it=1"))
    spark.sql(f"CREATE TABLE prod.{new_name} (id bigint, it array<int>) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')")
    assert "column it is a struct, list or map" in refused(spark, new_name, f"parquet.`{tmp_path.as_uri()}`")


def test_columns_that_the_table_lacks_are_left_out_and_an_empty_path_adds_nothing(
    spark: SparkSession, prod: Lake, new_name: str, source: str, tmp_path: Path
) -> None:
    spark.sql(f"CREATE TABLE prod.{new_name} (id bigint NOT NULL, region string) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')")
    (tmp_path / "empty").mkdir()
    assert added(spark, new_name, f"parquet.`{(tmp_path / 'empty').as_uri()}`") == (0, 0)
    assert prod.catalog.load_table(new_name).metadata.snapshots == []
    assert added(spark, new_name, source) == (2, 1)
    assert spark.table(f"prod.{new_name}").columns == ["id", "region"]
    assert spark.table(f"prod.{new_name}").count() == 6


def test_masks_of_encrypted_orc_columns_are_not_copied_as_their_values(
    spark: SparkSession, prod: Lake, new_name: str, tmp_path: Path
) -> None:
    """Spark reads them without an error where it gets no key."""
    create(spark, prod, new_name)
    for name, encrypt in (("open", {}), ("masked", {"pii": ["note"]})):
        (tmp_path / name).mkdir()
        rows = pa.table({"id": pa.array([1], pa.int64()), "region": ["eu"], "note": [CANARY]})
        (tmp_path / name / "rows.orc").write_bytes(encrypted(rows, encrypt, mask={"note": "redact"}) if encrypt else plain(rows))

    assert "would copy its mask" in refused(spark, new_name, f"orc.`{tmp_path / 'masked'}`")
    assert added(spark, new_name, f"orc.`{tmp_path / 'open'}`") == (1, 1)
    assert [row.note for row in spark.table(f"prod.{new_name}").collect()] == [CANARY]
