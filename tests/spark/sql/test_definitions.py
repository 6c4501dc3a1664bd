"""CREATE, ALTER, DROP and RENAME TABLE and namespaces in SQL: what PyIceberg finds afterwards, and what is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, LongType, MapType, NestedField, StringType, StructType

from tablecrypt import spark as tcs
from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.sql.partition_fields import SparkTransform, partition_spec
from tablecrypt.spark.sql.spark_types import iceberg_schema
from tablecrypt.table.table import EncryptedTable
from tests.spark.conftest import Lake
from tests.support.spark_release import fills_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = "TBLPROPERTIES ('encryption.key-id' = 'alias/orders')"


def refusal(spark: SparkSession, statement: str) -> tuple[str | None, str]:
    """Return the error class and the message with which Spark refuses a statement."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as refused:
        spark.sql(statement)
    return refused.value.getCondition(), str(refused.value)


@pytest.mark.java
class TestTables:
    def test_a_created_table_has_the_columns_partitions_and_properties_of_the_statement(
        self, spark: SparkSession, prod: Lake, new_name: str
    ) -> None:
        spark.sql(f"""
            CREATE TABLE prod.{new_name} (
                id BIGINT NOT NULL COMMENT 'the order', region STRING, price DECIMAL(9,2), at TIMESTAMP, day DATE, local TIMESTAMP_NTZ,
                address STRUCT<street: STRING, no: SMALLINT>, tags ARRAY<STRING>, prices MAP<STRING, DOUBLE>, code VARCHAR(3))
            USING iceberg PARTITIONED BY (region, bucket(16, ID), years(day), months(at), truncate(2, code), address.street)
            COMMENT 'all orders' TBLPROPERTIES ('encryption.key-id' = 'alias/orders', 'write.delete.mode' = 'merge-on-read')""")

        table = prod.catalog.load_table(new_name)

        assert isinstance(table, EncryptedTable)
        assert [f"{field.name} {field.field_type} {field.required}" for field in table.schema().fields] == [
            "id long True",
            "region string False",
            "price decimal(9, 2) False",
            "at timestamptz False",
            "day date False",
            "local timestamp False",
            "address struct<11: street: optional string, 12: no: optional int> False",
            "tags list<string> False",
            "prices map<string, double> False",
            "code string False",
        ]
        assert table.schema().find_field("id").doc == "the order"
        assert [f"{field.name} {field.transform}" for field in table.spec().fields] == [
            "region identity",
            "id_bucket bucket[16]",
            "day_year year",
            "at_month month",
            "code_trunc truncate[2]",
            "address.street identity",
        ]
        assert table.properties == {
            "encryption.key-id": "alias/orders",
            "write.delete.mode": "merge-on-read",
            "comment": "all orders",
            "owner": spark.sql("SELECT current_user()").collect()[0][0],
        }
        told = {row["col_name"]: row["data_type"] for row in spark.sql(f"DESCRIBE EXTENDED prod.{new_name}").collect()}
        assert told["Provider"] == "iceberg" and told["Location"] == table.location() and told["Comment"] == "all orders"

        shown = spark.sql(f"SHOW CREATE TABLE prod.{new_name}").collect()[0][0]
        spark.sql(shown.replace(new_name, "db.again").replace(table.location(), f"{table.location()}-again"))
        again = prod.catalog.load_table("db.again")
        assert again.schema() == table.schema() and again.properties == table.properties
        assert {field.name for field in again.spec().fields} == {field.name for field in table.spec().fields}

    def test_alter_changes_columns_and_properties(self, spark: SparkSession, prod: Lake, new_name: str) -> None:
        name = f"prod.{new_name}"
        spark.sql(f"CREATE TABLE {name} (id INT, note STRING, point STRUCT<x: FLOAT>, list ARRAY<STRUCT<a: INT>>) {KEY}")
        for change in (
            "ADD COLUMNS (first BIGINT COMMENT 'new' FIRST, behind DATE AFTER id)",
            "ADD COLUMN point.y DOUBLE",
            "ADD COLUMN list.element.b STRING",
            "ALTER COLUMN id TYPE BIGINT",
            "ALTER COLUMN point.x TYPE DOUBLE",
            "ALTER COLUMN NOTE COMMENT 'what was said'",
            "RENAME COLUMN note TO remark",
            "ALTER COLUMN remark FIRST",
            "DROP COLUMN behind",
            "SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read', 'old' = 'x', 'comment' = 'a table')",
            "UNSET TBLPROPERTIES ('old', 'absent')",
        ):
            spark.sql(f"ALTER TABLE {name} {change}")

        table = prod.catalog.load_table(new_name)

        assert [(field.name, str(field.field_type), field.doc) for field in table.schema().fields] == [
            ("remark", "string", "what was said"),
            ("first", "long", "new"),
            ("id", "long", None),
            ("point", "struct<5: x: optional double, 10: y: optional double>", None),
            ("list", "list<struct<7: a: optional int, 11: b: optional string>>", None),
        ]
        assert table.properties["write.delete.mode"] == "merge-on-read" and table.properties["comment"] == "a table"
        assert "old" not in table.properties

        spark.sql(f"ALTER TABLE {name} REPLACE COLUMNS (id BIGINT, other STRING)")
        assert [field.name for field in prod.catalog.load_table(new_name).schema().fields] == ["id", "other"]

    def test_a_dropped_table_is_gone_and_a_purged_ones_files_too(self, spark: SparkSession, prod: Lake, new_name: str) -> None:
        spark.sql(f"CREATE TABLE prod.{new_name} (id INT) {KEY}")
        spark.sql(f"ALTER TABLE prod.{new_name} RENAME TO prod.db.renamed")
        with pytest.raises(NoSuchTableError):
            prod.catalog.load_table(new_name)
        folder = prod.warehouse / "db" / new_name.partition(".")[2]
        metadata = list(folder.rglob("*.metadata.json"))
        assert metadata

        spark.sql("ALTER TABLE prod.db.renamed RENAME TO kept")
        spark.sql("DROP TABLE prod.db.kept")
        assert not prod.catalog.table_exists("db.kept") and all(path.exists() for path in metadata)

        spark.sql(f"CREATE TABLE prod.{new_name} (id INT) {KEY}")
        added = set(folder.rglob("*.metadata.json")) - set(metadata)
        spark.sql(f"DROP TABLE prod.{new_name} PURGE")
        assert added and not any(path.exists() for path in added)
        spark.sql(f"DROP TABLE IF EXISTS prod.{new_name}")

        spark.sql(f"CREATE TABLE prod.{new_name} (id INT) USING parquet {KEY}")
        assert prod.catalog.load_table(new_name).properties["write.format.default"] == "parquet"
        for path in folder.rglob("*.metadata.json"):
            path.unlink()
        spark.sql(f"DROP TABLE prod.{new_name}")
        assert not prod.catalog.table_exists(new_name)

    def test_what_cannot_be_is_refused_with_the_reason_and_changes_nothing(self, spark: SparkSession, prod: Lake, new_name: str) -> None:
        name = f"prod.{new_name}"
        assert "would not be encrypted" in refusal(spark, f"CREATE TABLE {name} (id INT)")[1]
        assert "Spark's type interval" in refusal(spark, f"CREATE TABLE {name} (i INTERVAL DAY TO SECOND) {KEY}")[1]
        assert "USING csv" in refusal(spark, f"CREATE TABLE {name} (id INT) USING csv {KEY}")[1]
        assert "has one column" in refusal(spark, f"CREATE TABLE {name} (a INT, b INT) CLUSTERED BY (a, b) INTO 4 BUCKETS {KEY}")[1]
        assert "has a dot in it" in refusal(spark, f"CREATE TABLE prod.db.`a.b` (id INT) {KEY}")[1]
        for statement in (
            f"CREATE TABLE prod.db.` ` (id INT) {KEY}",
            "CREATE NAMESPACE prod.``",
            "CREATE NAMESPACE IF NOT EXISTS prod.` `",
        ):
            assert "ConfigurationError" in (message := refusal(spark, statement)[1]) and "it is blank" in message
        assert refusal(spark, f"CREATE TABLE prod.nowhere.t (id INT) {KEY}")[0] == "SCHEMA_NOT_FOUND"
        assert refusal(spark, f"DROP TABLE {name}")[0] == "TABLE_OR_VIEW_NOT_FOUND"
        assert not prod.catalog.table_exists(new_name)

        spark.sql(f"CREATE TABLE {name} (id INT, region STRING, note STRING) PARTITIONED BY (region) {KEY}")
        before = prod.catalog.load_table(new_name).metadata_location
        assert refusal(spark, f"CREATE TABLE {name} (id INT) {KEY}")[0] == "TABLE_OR_VIEW_ALREADY_EXISTS"
        spark.sql(f"CREATE TABLE IF NOT EXISTS {name} (id INT) {KEY}")
        assert "source column for partition field" in refusal(spark, f"ALTER TABLE {name} DROP COLUMN region")[1]
        assert "KeyIdChangedError" in refusal(spark, f"ALTER TABLE {name} SET TBLPROPERTIES ('encryption.key-id' = 'other')")[1]
        assert "KeyIdChangedError" in refusal(spark, f"ALTER TABLE {name} UNSET TBLPROPERTIES ('encryption.key-id')")[1]
        assert "stays where it is" in refusal(spark, f"ALTER TABLE {name} SET LOCATION 'file:///elsewhere'")[1]
        assert "cannot become 2" in refusal(spark, f"ALTER TABLE {name} SET TBLPROPERTIES ('format-version' = '2')")[1]
        assert "ClusterBy" in refusal(spark, f"ALTER TABLE {name} CLUSTER BY (id)")[1]
        assert refusal(spark, f"ALTER TABLE {name} DROP COLUMN absent")[0] == "UNRESOLVED_COLUMN.WITH_SUGGESTION"
        assert "write a literal" in refusal(spark, f"ALTER TABLE {name} ADD COLUMN late INT DEFAULT year(current_date())")[1]
        assert "default" in refusal(spark, f"ALTER TABLE {name} ALTER COLUMN id SET DEFAULT year(current_date())")[1].lower()
        assert "write a literal" in refusal(spark, f"CREATE TABLE prod.db.defaulted (at DATE DEFAULT current_date()) {KEY}")[1]
        assert "cannot have the default" in refusal(spark, f"ALTER TABLE {name} ADD COLUMN late DOUBLE DEFAULT CAST('NaN' AS DOUBLE)")[1]
        assert not prod.catalog.table_exists("db.defaulted")
        assert "required column" in refusal(spark, f"ALTER TABLE {name} ADD COLUMN must INT NOT NULL")[1]
        assert prod.catalog.load_table(new_name).metadata_location == before

    @fills_columns
    def test_defaults_are_one_value_for_new_rows_and_for_rows_that_are_there(self, spark: SparkSession, prod: Lake, new_name: str) -> None:
        name = f"prod.{new_name}"
        defaults = {
            "n": ("INT", "-5", -5),
            "big": ("BIGINT", "CAST(5 AS BIGINT)", 5),
            "price": ("DECIMAL(9, 2)", "1.50", Decimal("1.50")),
            "ratio": ("DOUBLE", "0.25D", 0.25),
            "flag": ("BOOLEAN", "true", True),
            "day": ("DATE", "DATE '1582-10-04'", date(1582, 10, 4)),
            "local": ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ '2024-02-29 12:30:00.000001'", datetime(2024, 2, 29, 12, 30, 0, 1)),
            "instant": ("TIMESTAMP", "TIMESTAMP '2024-02-29 12:30:00 UTC'", datetime(2024, 2, 29, 12, 30, tzinfo=UTC)),
            "note": ("STRING", "'it\\'s \\\\ ünï'", "it's \\ ünï"),
            "raw": ("BINARY", "X'00ff'", b"\x00\xff"),
            "none": ("STRING", "NULL", None),
        }
        columns = ", ".join(f"{column} {kind} DEFAULT {sql}" for column, (kind, sql, _) in defaults.items())
        expected = {column: value for column, (_, _, value) in defaults.items()}

        spark.sql(f"CREATE TABLE {name} (id INT NOT NULL, {columns}) {KEY}")
        spark.sql(f"INSERT INTO {name} (id) VALUES (1)")
        added = ", ".join(f"later_{column} {kind} DEFAULT {sql}" for column, (kind, sql, _) in defaults.items())
        spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({added})")
        spark.sql(f"INSERT INTO {name} (id, n) VALUES (2, DEFAULT)")

        row = expected | {f"later_{column}": value for column, value in expected.items()}
        table = prod.catalog.load_table(new_name)
        assert table.scan().to_arrow().sort_by("id").to_pylist() == [{"id": 1} | row, {"id": 2} | row]
        assert spark.table(name).count() == spark.table(name).where("later_n = -5 AND later_none IS NULL AND price = 1.5").count() == 2

        for change in ("n SET DEFAULT 7", "big SET DEFAULT 8", "price SET DEFAULT CAST('0.99' AS DECIMAL(9, 2))", "note DROP DEFAULT"):
            spark.sql(f"ALTER TABLE {name} ALTER COLUMN {change}")
        spark.sql(f"ALTER TABLE {name} ALTER COLUMN later_n SET DEFAULT 9")
        spark.sql(f"INSERT INTO {name} (id) VALUES (3)")
        changed = row | {"n": 7, "big": 8, "price": Decimal("0.99"), "note": None, "later_n": 9}
        found = prod.catalog.load_table(new_name).scan().to_arrow().sort_by("id").to_pylist()
        assert found == [{"id": 1} | row, {"id": 2} | row, {"id": 3} | changed]

        spark.sql(f"CREATE OR REPLACE TABLE {name} (id INT, n INT DEFAULT 6)")
        spark.sql(f"INSERT INTO {name} (id) VALUES (3)")
        assert [tuple(each) for each in spark.table(name).collect()] == [(3, 6)]

    def test_a_plain_table_is_refused_and_stays(self, spark: SparkSession, prod: Lake, new_name: str) -> None:
        prod.catalog.create_table(new_name, Schema(NestedField(1, "id", LongType())))

        for statement in (f"DESCRIBE prod.{new_name}", f"DROP TABLE prod.{new_name}", f"ALTER TABLE prod.{new_name} ADD COLUMN a INT"):
            assert "is not an encrypted table" in refusal(spark, statement)[1]
        assert prod.catalog.table_exists(new_name)


@pytest.mark.java
def test_namespaces_are_created_altered_and_dropped(spark: SparkSession, prod: Lake) -> None:
    spark.sql("CREATE NAMESPACE prod.shop COMMENT 'a shop' WITH PROPERTIES ('team' = 'one', 'old' = 'x')")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS prod.shop")
    assert refusal(spark, "CREATE NAMESPACE prod.shop")[0] == "SCHEMA_ALREADY_EXISTS"
    spark.sql("ALTER NAMESPACE prod.shop SET PROPERTIES ('team' = 'two')")
    spark.sql("ALTER NAMESPACE prod.shop UNSET PROPERTIES ('old')")
    properties = prod.catalog.load_namespace_properties("shop")
    assert (properties["comment"], properties["team"], "old" in properties) == ("a shop", "two", False)

    spark.sql("CREATE NAMESPACE prod.shop.inner")
    spark.sql(f"CREATE TABLE prod.shop.inner.t (id INT) {KEY}")
    assert [row[0] for row in spark.sql("SHOW NAMESPACES IN prod.shop").collect()] == ["shop.inner"]
    assert [row["tableName"] for row in spark.sql("SHOW TABLES IN prod.shop.inner").collect()] == ["t"]
    spark.sql("USE prod.shop.inner")
    assert spark.sql("DESCRIBE t").collect()[0]["col_name"] == "id"
    spark.sql("USE spark_catalog.default")

    assert refusal(spark, "DROP NAMESPACE prod.shop")[0] == "SCHEMA_NOT_EMPTY"
    assert refusal(spark, "DROP NAMESPACE prod.shop.inner")[0] == "SCHEMA_NOT_EMPTY"
    spark.sql("DROP NAMESPACE prod.shop CASCADE")
    assert not prod.catalog.namespace_exists("shop") and not prod.catalog.namespace_exists("shop.inner")
    assert refusal(spark, "DROP NAMESPACE prod.shop")[0] == "SCHEMA_NOT_FOUND"


@pytest.mark.java
def test_a_namespace_may_name_the_key_of_its_new_tables_and_takes_no_misspelt_one(spark: SparkSession, prod: Lake) -> None:
    misspelt = refusal(spark, "CREATE NAMESPACE prod.keyed WITH PROPERTIES ('encryption.key-id' = 'alias/orders')")[1]
    assert "encryption.default-key-id names the master key" in misspelt
    spark.sql("CREATE NAMESPACE prod.keyed WITH PROPERTIES ('encryption.default-key-id' = 'alias/orders')")
    assert "encryption.allowed-key-ids" in refusal(spark, "CREATE TABLE prod.keyed.t (id INT)")[1]

    allowing = {**prod.properties, "encryption.allowed-key-ids": "alias/orders"}
    tcs.catalog(spark, "allowing", allowing)
    spark.sql("CREATE NAMESPACE allowing.keyed WITH PROPERTIES ('encryption.default-key-id' = 'alias/orders')")
    spark.sql("CREATE TABLE allowing.keyed.t AS SELECT 1 AS id")
    assert load_catalog("allowing", **allowing).load_table("keyed.t").properties["encryption.key-id"] == "alias/orders"


def test_field_ids_are_given_level_by_level() -> None:
    inner = {"type": "struct", "fields": [{"name": "x", "type": "integer", "nullable": False}]}
    fields = [
        {"name": "points", "type": {"type": "array", "elementType": inner, "containsNull": True}, "nullable": True},
        {"name": "by", "type": {"type": "map", "keyType": "string", "valueType": "short", "valueContainsNull": False}, "nullable": True},
    ]

    assert iceberg_schema({"fields": fields}) == Schema(
        NestedField(1, "points", ListType(3, StructType(NestedField(4, "x", IntegerType(), required=True)), element_required=False)),
        NestedField(2, "by", MapType(5, StringType(), 6, IntegerType(), value_required=True)),
    )


def test_text_has_the_collation_of_bytes_or_no_type() -> None:
    def field(collation: str) -> dict[str, object]:
        return {"name": "note", "type": f"string collate {collation}", "nullable": True}

    assert iceberg_schema({"fields": [field("UTF8_BINARY")]}) == Schema(NestedField(1, "note", StringType()))
    with pytest.raises(ConfigurationError, match="type string collate UTF8_LCASE has no type of Iceberg tables"):
        iceberg_schema({"fields": [field("UTF8_LCASE")]})


@pytest.mark.parametrize(
    ("transform", "reason"),
    [
        (SparkTransform("bucket", (0,), (("id",),)), "the parameter must be"),
        (SparkTransform("bucket", (), (("id",),)), "not a transform"),
        (SparkTransform("days", (), (("id",),)), "does not take"),
        (SparkTransform("zorder", (), (("id",),)), "not a transform"),
        (SparkTransform("identity", (), (("absent",),)), "no column absent"),
        (SparkTransform("identity", (), (("place",),)), "does not take"),
        (SparkTransform("identity", (1,), (("id",),)), "not a transform"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_transforms_that_iceberg_has_not_are_refused(transform: SparkTransform, reason: str) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "place", StructType(NestedField(3, "x", LongType()))))

    with pytest.raises(ConfigurationError, match=reason):
        partition_spec(schema, [transform])


def test_two_partition_fields_of_one_name_are_refused() -> None:
    schema = Schema(NestedField(1, "id", LongType()))

    with pytest.raises(ConfigurationError, match="id_bucket already"):
        partition_spec(schema, [SparkTransform("bucket", (4,), (("id",),)), SparkTransform("bucket", (8,), (("ID",),))])
