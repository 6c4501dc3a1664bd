"""Iceberg Java reads what SQL wrote and changes it; SQL reads that, changes it again, and Java reads it once more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

from tests.spark.conftest import Lake
from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.java import LINEAGE_COLUMNS, JavaOracle
from tests.support.plaintext import CANARY

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
COLUMNS: Final = (
    "id bigint NOT NULL, region string, price decimal(9, 2), local timestamp_ntz, instant timestamp, day date, tags array<string>, "
    "prices map<string, int>, part struct<a: double, b: binary>, ratio float, note string"
)
ROWS: Final = (
    "SELECT id, concat('r', id % 3), CAST(id / 4 AS decimal(9, 2)), timestamp_ntz'2024-03-31 02:30:00', timestamp_seconds(id * 40000), "
    "date_from_unix_date(CAST(id - 20 AS int)), array('a', NULL), map('k', CAST(id AS int)), "
    f"named_struct('a', if(id = 7, double('NaN'), id / 3D), 'b', x'00ff'), CAST(id AS float), '{CANARY}' FROM range(60)"
)


@pytest.fixture(scope="module")
def oracle(java_runtime: None, aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaOracle]:
    with JavaOracle(tmp_path_factory.mktemp("sql-java"), aws.endpoint) as running:
        yield running


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_java_and_sql_read_and_change_what_the_other_wrote(
    spark: SparkSession, prod: Lake, oracle: JavaOracle, new_name: str, mode: str
) -> None:
    modes = ", ".join(f"'write.{operation}.mode' = '{mode}'" for operation in ("delete", "update", "merge"))
    spark.sql(
        f"CREATE TABLE prod.{new_name} ({COLUMNS}) PARTITIONED BY (region, bucket(2, id), days(instant), truncate(3, id)) "
        f"TBLPROPERTIES ('encryption.key-id' = 'alias/orders', {modes})"
    )
    spark.sql(f"INSERT INTO prod.{new_name} {ROWS}")
    spark.sql(f"DELETE FROM prod.{new_name} WHERE id % 10 = 9")
    spark.sql(f"UPDATE prod.{new_name} SET price = price + 1, region = 'moved' WHERE id % 7 = 0")
    spark.sql(
        f"MERGE INTO prod.{new_name} t USING (SELECT id + 50 AS id FROM range(20)) s ON t.id = s.id WHEN MATCHED AND s.id < 53 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET ratio = -1 "
        "WHEN NOT MATCHED THEN INSERT (id, region, instant) VALUES (s.id, 'new', timestamp'2026-01-01 00:00:00')"
    )

    java_name = f"with_sql.{mode.replace('-', '_')}"
    oracle.register(java_name, prod.catalog.load_table(new_name).metadata_location)
    rows = oracle.rows(java_name, lineage=True)
    assert_same_rows(rows, _rows(spark, new_name))
    assert_same_rows(rows.drop_columns(list(LINEAGE_COLUMNS)), prod.catalog.load_table(new_name).scan().to_arrow())
    assert len(set(rows["_row_id"].to_pylist())) == rows.num_rows == 62

    oracle.sql(f"DELETE FROM h.{java_name} WHERE id % 10 = 1")
    oracle.sql(f"UPDATE h.{java_name} SET ratio = 77 WHERE id = 20")
    oracle.sql(f"MERGE INTO h.{java_name} t USING (SELECT 30L AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET price = 9.99")
    prod.catalog.register_table(f"{new_name}_back", oracle.metadata_location(java_name))
    changed = oracle.rows(java_name, lineage=True)
    assert_same_rows(_rows(spark, f"{new_name}_back"), changed)

    spark.sql(f"UPDATE prod.{new_name}_back SET ratio = ratio + 1 WHERE id > 20")
    spark.sql(f"DELETE FROM prod.{new_name}_back WHERE id = 40")
    spark.sql(f"ALTER TABLE prod.{new_name}_back RENAME COLUMN note TO remark")
    spark.sql(f"INSERT INTO prod.{new_name}_back (id, remark) VALUES (100, '{CANARY}')")
    oracle.register(f"{java_name}_again", prod.catalog.load_table(f"{new_name}_back").metadata_location)
    again = oracle.rows(f"{java_name}_again", lineage=True)
    assert_same_rows(_rows(spark, f"{new_name}_back"), again)
    assert again.num_rows == changed.num_rows
    assert dict(zip(again["id"].to_pylist(), again["_row_id"].to_pylist(), strict=True)).items() >= {
        (row["id"], row["_row_id"]) for row in changed.to_pylist() if row["id"] != 40
    }


def _rows(spark: SparkSession, name: str) -> pa.Table:
    return spark.sql(f"SELECT *, {', '.join(LINEAGE_COLUMNS)} FROM prod.{name}").toArrow()
