"""Appended DataFrames with other columns than their table's, where write.spark.accept-any-schema lets them have these.

The careless user appends columns under other names, in another order or of types that do not fit, and expects no row of it.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

from tablecrypt.maintenance import verify
from tablecrypt.table.table import EncryptedTable
from tests.spark.conftest import Lake
from tests.spark.sql.test_write import stored
from tests.support.plaintext import CANARY
from tests.support.spark_release import fills_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
COLUMNS: Final = "id BIGINT NOT NULL, note STRING DEFAULT 'none', price DECIMAL(9, 2), region STRING, part STRUCT<a: INT, b: STRING>"
MERGE: Final = {"mergeSchema": "true"}


class Appended:
    """A table that accepts any schema, partitioned by a transform and by a column that rows may lack."""

    def __init__(self, spark: SparkSession, lake: Lake, identifier: str) -> None:
        self.spark = spark
        self.name = f"prod.{identifier}"
        self._lake = lake
        self._identifier = identifier
        properties = "TBLPROPERTIES ('encryption.key-id' = 'alias/orders', 'write.spark.accept-any-schema' = 'true')"
        spark.sql(f"CREATE TABLE {self.name} ({COLUMNS}) PARTITIONED BY (bucket(2, id), region) {properties}")

    @property
    def table(self) -> EncryptedTable:
        """As the catalog has it now."""
        table = self._lake.catalog.load_table(self._identifier)
        assert isinstance(table, EncryptedTable)
        return table

    def append(self, query: str | DataFrame, **options: str) -> None:
        """Append the rows of a query by DataFrameWriterV2."""
        rows = self.spark.sql(query) if isinstance(query, str) else query
        rows.writeTo(self.name).options(**options).append()

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows, in the order of their ids, which Spark and Python read alike."""
        read = self.spark.table(self.name).orderBy("id").toArrow()
        assert read.to_pylist() == self.table.scan().to_arrow().sort_by("id").to_pylist()
        return [tuple(row.values()) for row in read.to_pylist()]

    def refused(self, query: str, reason: str, **options: str) -> None:
        """The append names the reason and leaves the table and its files as they are."""
        before, files = self.table.metadata_location, stored(self.table)
        with pytest.raises(Exception, match=reason):
            self.append(query, **options)
        assert self.table.metadata_location == before and stored(self.table) == files


@pytest.fixture
def appended(spark: SparkSession, prod: Lake, new_name: str) -> Iterator[Appended]:
    made = Appended(spark, prod, new_name)
    yield made
    assert verify(made.table).is_good


def test_new_columns_come_with_the_commit_of_their_rows(appended: Appended) -> None:
    appended.append(f"SELECT 1L AS id, '{CANARY}' AS note, CAST(1 AS DECIMAL(9, 2)) AS price, 'eu' AS region, NULL AS part")
    appended.append(
        "SELECT id, 'new' AS note, CAST('1234567890.25' AS DECIMAL(12, 2)) AS price, 'us' AS region, "
        "named_struct('a', 5L, 'b', 'b', 'c', 0.5D) AS part, array(named_struct('x', 1)) AS tags, CAST(id AS INT) AS number "
        "FROM range(2, 4)",
        **MERGE,
    )
    huge = decimal.Decimal("1234567890.25")
    assert appended.rows() == [
        (1, CANARY, decimal.Decimal("1.00"), "eu", None, None, None),
        (2, "new", huge, "us", {"a": 5, "b": "b", "c": 0.5}, [{"x": 1}], 2),
        (3, "new", huge, "us", {"a": 5, "b": "b", "c": 0.5}, [{"x": 1}], 3),
    ]
    table = appended.table
    types = [str(field.field_type) for field in table.schema().fields]
    assert types[:4] == ["long", "string", "decimal(12, 2)", "string"] and types[-1] == "int"
    assert table.schema().find_field("id").required
    first, second = table.metadata.snapshots
    assert second.schema_id == table.metadata.current_schema_id != first.schema_id
    assert second.summary is not None and second.summary["added-records"] == "2"
    appended.append("SELECT 9L AS id, true AS flag WHERE false", **MERGE)
    assert "flag" in appended.table.schema().column_names and len(appended.table.metadata.snapshots) == 2


@fills_columns
def test_columns_are_matched_by_name_and_missing_ones_get_their_default(appended: Appended) -> None:
    appended.append("SELECT CAST(7 AS INT) AS ID, 'de' AS Region")
    appended.append("SELECT 'x' AS note, CAST(8 AS SMALLINT) AS id", **{"check-ordering": "false", "distribution-mode": "range"})
    assert [row[:4] for row in appended.rows()] == [(7, "none", None, "de"), (8, "x", None, None)]

    # Statements go on as if the table accepted its own schema alone.
    name = appended.name
    appended.spark.sql(f"INSERT INTO {name} VALUES (1, 'v', 1, 'eu', NULL)")
    appended.spark.sql(f"WITH few AS (SELECT 2) INSERT INTO {name} (id) SELECT * FROM few")
    appended.spark.sql(
        f"MERGE INTO {name} t USING (SELECT 3L AS k) s ON t.id = s.k WHEN NOT MATCHED THEN INSERT (id, region) VALUES (s.k, 'm')"
    )
    appended.spark.sql(f"MERGE INTO {name} t USING (SELECT 3L AS k) s ON t.id = s.k WHEN MATCHED THEN UPDATE SET note = 'merged'")
    appended.spark.sql(f"UPDATE {name} SET region = 'u' WHERE id = 2")
    appended.spark.sql(f"DELETE FROM {name} WHERE id = 8")
    assert [row[:4] for row in appended.rows()] == [
        (1, "v", decimal.Decimal("1.00"), "eu"),
        (2, "none", None, "u"),
        (3, "merged", None, "m"),
        (7, "none", None, "de"),
    ]
    with pytest.raises(Exception, match=r"(?i)extra_columns|too many|too_many|mismatch"):
        appended.spark.sql(f"INSERT INTO {name} SELECT 1L, 'a', 1, 'eu', NULL, 'more'")


def test_rows_that_do_not_fit_are_refused_and_nothing_is_left(appended: Appended) -> None:
    appended.append("SELECT 1L AS id, 'kept' AS note")
    few = "SELECT id, 'x' AS note"
    for query, reason, options in (
        (f"{few}, 1 AS more FROM range(5)", "lacks the column more: the write option mergeSchema", {}),
        (f"{few}, 1 AS more FROM range(5)", "lacks the column more", {"mergeSchema": "false"}),
        ("SELECT 'x' AS note, id FROM range(5)", "check-ordering=false", MERGE),
        ("SELECT id, true AS note FROM range(5)", "note of db.* is string, and the rows have boolean.*cannot be promoted", MERGE),
        ("SELECT id, CAST(1 AS DECIMAL(9, 3)) AS price FROM range(5)", "cannot be promoted", MERGE),
        ("SELECT id, named_struct('a', 'text') AS part FROM range(5)", "part.a of db.* is int", MERGE),
        ("SELECT id, 1 AS new, 2 AS NEW FROM range(5)", "column new twice", MERGE),
        ("SELECT id, make_ym_interval(1, 2) AS gap FROM range(5)", "gap", MERGE),
        (f"SELECT if(id < 4, id, NULL) AS id, '{CANARY}' AS note, 1 AS more FROM range(5)", "(?i)null", MERGE),
        (f"SELECT id, '{CANARY}' AS note, if(id < 4, 1, raise_error('stop')) AS more FROM range(5)", "stop", MERGE),
        ("SELECT '4' AS note", "(?i)id", MERGE),
        ("SELECT CAST(1e30 AS DOUBLE) AS price, 1L AS id", "(?i)price", {"check-ordering": "false"}),
    ):
        appended.refused(query, reason, **options)
    assert [row[:2] for row in appended.rows()] == [(1, "kept")]


def test_audited_writes_add_no_columns(appended: Appended, spark: SparkSession) -> None:
    spark.sql(f"ALTER TABLE {appended.name} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    spark.conf.set("spark.wap.id", "load-1")
    try:
        appended.refused("SELECT 1L AS id, 1 AS more", "before the rows are published", **MERGE)
        appended.append("SELECT 1L AS id")
    finally:
        spark.conf.unset("spark.wap.id")
    assert appended.rows() == []
