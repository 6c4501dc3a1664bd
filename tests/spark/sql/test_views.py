"""Views in a REST catalog: what statements do to them, and that a view of a hostile catalog reads tables and nothing else.

The adversary can write to the catalog, and so chooses the SQL and the properties of a view that somebody else reads. The careless user
makes views of what others do not have, and takes a view for something that keeps rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyiceberg.view.metadata import SQLViewRepresentation, ViewRepresentation, ViewVersion

from tablecrypt import spark as tcs
from tablecrypt_catalog import EncryptedRestCatalog
from tests.spark.conftest import Lake
from tests.support.aws import AwsServer
from tests.support.rest_server import RestServer, encrypted_rest_catalog, new_namespace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
NAME: Final = "seen"
ID_COLUMN: Final = Schema(NestedField(1, "id", LongType()))


@dataclass(frozen=True)
class Views:
    """A catalog whose namespace has the table `orders` with ids 1 to 4, of which 1 and 3 are in the region eu."""

    spark: SparkSession
    catalog: EncryptedRestCatalog
    namespace: str
    properties: dict[str, str]

    @property
    def prefix(self) -> str:
        return f"{NAME}.{self.namespace}"

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement in which `here` stands for the catalog and namespace."""
        return [tuple(row) for row in self.spark.sql(statement.replace("here.", f"{self.prefix}.")).collect()]

    def make(self, name: str, sql: str, properties: dict[str, str] | None = None, dialect: str = "spark") -> str:
        """Put a view with a column `id` into the catalog, as anybody can who may write to it; return its name."""
        representation = ViewRepresentation(
            root=SQLViewRepresentation(type="sql", sql=sql.replace("here.", f"{self.prefix}."), dialect=dialect)
        )
        version = ViewVersion(schema_id=0, representations=[representation], default_namespace=(self.namespace,))
        self.catalog.create_view((self.namespace, name), ID_COLUMN, version, properties=properties or {})
        return f"{self.prefix}.{name}"


@pytest.fixture(scope="module")
def views(spark: SparkSession, aws: AwsServer, rest_server: RestServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Views]:
    pins = tmp_path_factory.mktemp("views") / "pins.json"
    catalog = encrypted_rest_catalog(rest_server.uri, aws)
    namespace = new_namespace(rest_server)
    properties = {
        "py-catalog-impl": "tablecrypt_catalog.EncryptedRestCatalog",
        "uri": rest_server.uri,
        "encryption.pins": str(pins),
        **aws.kms_properties,
    }
    tcs.catalog(spark, NAME, properties)
    made = Views(spark, catalog, namespace, properties)
    made.sql("CREATE TABLE here.orders (id BIGINT, region STRING) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')")
    made.sql("INSERT INTO here.orders VALUES (1, 'eu'), (2, 'us'), (3, 'eu'), (4, NULL)")
    yield made
    made.sql(f"DROP NAMESPACE {made.prefix} CASCADE")
    assert not catalog.namespace_exists(namespace)


def test_a_view_is_what_the_statement_says_and_shows_the_rows_of_now(views: Views) -> None:
    views.sql(
        "CREATE VIEW here.eu (key COMMENT 'the order\\'s', `my region`) COMMENT 'in Europe' TBLPROPERTIES ('team' = 'a') "
        "AS SELECT id, region FROM here.orders WHERE region = 'eu'"
    )
    view = views.catalog.load_view((views.namespace, "eu"))
    assert (view.properties["comment"], view.properties["team"], view.schema().find_field("key").doc) == ("in Europe", "a", "the order's")
    assert view.current_version().default_namespace == ("default",) and view.current_version().default_catalog == "spark_catalog"

    views.sql("INSERT INTO here.orders VALUES (5, 'eu')")
    assert sorted(views.sql("SELECT key FROM here.eu WHERE `my region` = 'eu'")) == [(1,), (3,), (5,)]
    assert views.sql("SELECT o.id FROM here.orders o JOIN here.eu v ON o.id = v.key ORDER BY o.id DESC LIMIT 1") == [(5,)]
    views.sql("DELETE FROM here.orders WHERE id = 5")
    views.sql("ALTER TABLE here.orders ADD COLUMN later INT")
    assert views.spark.table(f"{views.prefix}.eu").columns == ["key", "my region"]

    described = {row[0]: row[1] for row in views.sql("DESCRIBE EXTENDED here.eu")}
    assert (described["key"], described["my region"], described["Comment"]) == ("bigint", "string", "in Europe")
    [[statement]] = views.sql("SHOW CREATE TABLE here.eu")
    views.sql("DROP VIEW here.eu")
    views.sql(str(statement))
    assert sorted(views.sql("SELECT key FROM here.eu")) == [(1,), (3,)]
    assert views.sql("SHOW CREATE TABLE here.eu") == [(statement,)]


def test_views_are_listed_replaced_altered_renamed_and_dropped(views: Views) -> None:
    views.sql("CREATE VIEW here.one TBLPROPERTIES ('a' = '1', 'b' = '2') AS SELECT 1 AS x")
    views.sql("CREATE VIEW IF NOT EXISTS here.one AS SELECT 2 AS x")
    assert views.sql("SELECT * FROM here.one") == [(1,)]
    for taken in (
        "CREATE VIEW here.one AS SELECT 2 AS x",
        "CREATE VIEW here.orders AS SELECT 2 AS x",
        "CREATE TABLE here.one (id INT) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')",
    ):
        with pytest.raises(Exception, match="ALREADY_EXISTS"):
            views.sql(taken)
    views.sql("CREATE OR REPLACE VIEW here.one (y COMMENT 'new') TBLPROPERTIES ('b' = '3') AS SELECT 'z'")
    assert views.sql("SELECT y FROM here.one") == [("z",)]
    views.sql("ALTER VIEW here.one SET TBLPROPERTIES ('c' = '4')")
    views.sql("ALTER VIEW here.one UNSET TBLPROPERTIES ('a')")
    shown = {str(name): value for name, value in views.sql("SHOW TBLPROPERTIES here.one")}
    assert {name: shown.get(name) for name in "abc"} == {"a": None, "b": "3", "c": "4"}
    assert not any(name.startswith("view.") for name in shown)

    views.sql("ALTER VIEW here.one RENAME TO here.two")
    assert (views.namespace, "two", False) in views.sql(f"SHOW VIEWS IN {views.prefix} LIKE 'T*|none'")
    assert "two" not in {row[1] for row in views.sql(f"SHOW TABLES IN {views.prefix}")}
    for refused, named in (
        ("ALTER VIEW here.two UNSET TBLPROPERTIES ('gone')", "has no property gone"),
        ("ALTER VIEW here.two AS SELECT 1", "CREATE OR REPLACE VIEW"),
        ("DROP TABLE here.two", "DROP VIEW"),
        ("INSERT INTO here.two VALUES ('w')", "holds no rows"),
        ("DELETE FROM here.two", "holds no rows"),
        ("SELECT * FROM here.two VERSION AS OF 1", "(?i)view|time travel"),
        ("SELECT * FROM here.one", "TABLE_OR_VIEW_NOT_FOUND"),
        ("DROP VIEW here.one", "VIEW_NOT_FOUND"),
        ("ALTER VIEW here.one SET TBLPROPERTIES ('c' = '4')", "VIEW_NOT_FOUND"),
        ("CREATE VIEW seen.nowhere.v AS SELECT 1 AS x", "SCHEMA_NOT_FOUND"),
    ):
        with pytest.raises(Exception, match=named):
            views.sql(refused)
    views.sql("DROP VIEW IF EXISTS here.one")
    views.sql("DROP VIEW here.two")
    assert not views.catalog.view_exists((views.namespace, "two"))


def test_a_view_means_the_same_wherever_it_is_read(views: Views) -> None:
    session = views.spark.newSession()
    tcs.catalog(session, NAME, views.properties)
    maker, reader = Views(session, views.catalog, views.namespace, views.properties), views
    session.sql(f"USE {views.prefix}")
    session.sql("CREATE VIEW short AS WITH some AS (SELECT * FROM orders) SELECT id FROM some WHERE id IN (SELECT min(id) FROM orders)")
    session.sql("CREATE VIEW nested AS SELECT id + 1 AS next FROM short")
    version = views.catalog.load_view((views.namespace, "nested")).current_version()
    assert (version.default_catalog, version.default_namespace) == (None, (views.namespace,))

    reader.spark.range(100, 101).createOrReplaceTempView("orders")
    reader.spark.range(200, 201).createOrReplaceTempView("short")
    try:
        assert reader.sql("SELECT * FROM here.nested") == [(2,)]
        assert reader.sql("SELECT s.id, o.id FROM here.short s, orders o") == [(1, 100)]
    finally:
        reader.spark.catalog.dropTempView("orders")
        reader.spark.catalog.dropTempView("short")
    assert maker.sql("SELECT next FROM nested") == [(2,)]
    # A temporary view of the same name comes first, as everywhere in Spark.
    session.range(300, 301).createOrReplaceTempView("short")
    session.sql("DROP VIEW short")
    assert session.sql("SELECT * FROM short").collect()[0][0] == 1


HOSTILE: Final = {
    "a command": ("DROP TABLE here.orders", "cannot parse as a query"),
    "an insert": ("INSERT INTO here.orders VALUES (9, 'x')", "cannot parse as a query"),
    "two statements": ("SELECT 1L AS id; DROP TABLE here.orders", "cannot parse as a query"),
    "a script": ("SELECT TRANSFORM (id) USING 'touch $mark; cat' AS (id BIGINT) FROM here.orders", "runs a script"),
    "a script within": (
        "WITH a AS (SELECT TRANSFORM (id) USING 'touch $mark; cat' AS (id BIGINT) FROM here.orders) SELECT id FROM a",
        "script",
    ),
    "a script in a subquery": (
        "SELECT id FROM here.orders WHERE id IN (SELECT TRANSFORM (id) USING 'touch $mark' AS (i BIGINT) FROM here.orders)",
        "script",
    ),
    "a method": ("SELECT length(reflect('java.lang.System', 'setProperty', 'tablecrypt.mark', 'x')) AS id", "calls Java"),
    "a qualified method": (
        "SELECT length(system.builtin.java_method('java.lang.System', 'setProperty', 'tablecrypt.mark', 'x')) AS id",
        "calls Java",
    ),
    "a method in an aggregate": (
        "SELECT count(*) AS id FROM here.orders HAVING max(try_reflect('java.lang.System', 'gc')) IS NULL",
        "calls Java",
    ),
    "a computed name": (
        "SELECT length(IDENTIFIER('ref' || 'lect')('java.lang.System', 'setProperty', 'tablecrypt.mark', 'x')) AS id",
        "computes a name",
    ),
    "a computed table": ("SELECT id FROM IDENTIFIER('here.' || 'orders')", "computes a name"),
    "a file": ("SELECT count(*) AS id FROM text.`Makefile`", "reads the file Makefile"),
    "a data source": (
        "SELECT count(*) AS id FROM `org.apache.spark.sql.execution.datasources.text.TextFileFormat`.`Makefile`",
        "reads the file Makefile",
    ),
    "a temporary view": ("SELECT id FROM secret", "TABLE_OR_VIEW_NOT_FOUND"),
    "a global temporary view": ("SELECT id FROM global_temp.secret", "TABLE_OR_VIEW_NOT_FOUND"),
    "a temporary function": ("SELECT secretly(1L) AS id", "UNRESOLVED_ROUTINE"),
    "itself": ("SELECT id FROM here.hostile", "reads itself"),
    "no column of that name": ("SELECT 1L AS other", "(?i)INCOMPATIBLE_VIEW_SCHEMA_CHANGE|UNRESOLVED"),
}
LIES: Final = {
    "view.referredTempViewNames": json.dumps([["secret"], ["global_temp", "secret"]]),
    "view.referredTempFunctionsNames": json.dumps(["secretly"]),
    "view.catalogAndNamespace.numParts": "2",
}


@pytest.mark.parametrize("hostile", sorted(HOSTILE))
def test_a_view_of_a_hostile_catalog_reads_tables_and_does_nothing_else(views: Views, hostile: str, tmp_path: Path) -> None:
    sql, named = HOSTILE[hostile]
    mark = tmp_path / "mark"
    views.spark.range(1).createOrReplaceTempView("secret")
    views.spark.range(1).createOrReplaceGlobalTempView("secret")
    views.spark.udf.register("secretly", lambda value: value, "bigint")
    name = views.make("hostile", sql.replace("$mark", str(mark)), LIES)
    try:
        with pytest.raises(Exception, match=named):
            views.spark.table(name).collect()
        assert views.sql(f"SHOW VIEWS IN {views.prefix} LIKE 'hostile'") == [(views.namespace, "hostile", False)]
        assert views.sql(f"DESCRIBE {name}") == [("id", "bigint", None)]
    finally:
        views.catalog.drop_view((views.namespace, "hostile"))
        views.spark.catalog.dropTempView("secret")
        views.spark.catalog.dropGlobalTempView("secret")
        views.sql("DROP TEMPORARY FUNCTION secretly")
    assert not mark.exists()
    assert views.spark._jvm is not None
    assert views.spark._jvm.java.lang.System.getProperty("tablecrypt.mark") is None
    assert sorted(views.sql("SELECT id FROM here.orders")) == [(1,), (2,), (3,), (4,)]


def test_views_in_a_circle_and_views_that_multiply_are_refused(views: Views) -> None:
    views.make("odd", "SELECT id FROM here.even")
    views.make("even", "SELECT a.id FROM here.odd a JOIN here.odd b ON a.id = b.id")
    views.make("twice0", "SELECT id FROM here.orders")
    for level in range(30):
        views.make(f"twice{level + 1}", f"SELECT a.id FROM twice{level} a JOIN twice{level} b ON a.id = b.id")

    for refused, named in (("odd", "reads itself"), ("even", "reads itself"), ("twice30", "more than 1000 times")):
        with pytest.raises(Exception, match=named):
            views.sql(f"SELECT * FROM here.{refused}")
    assert sorted(views.sql("SELECT * FROM here.twice3")) == [(1,), (2,), (3,), (4,)]


def test_no_view_takes_the_name_of_a_table_that_is_pinned(views: Views) -> None:
    views.sql("CREATE TABLE here.ledger (id BIGINT) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')")
    views.sql("INSERT INTO here.ledger VALUES (1)")
    views.catalog.drop_table((views.namespace, "ledger"))
    name = views.make("ledger", "SELECT 1000000L AS id")

    with pytest.raises(Exception, match="is a view now"):
        views.sql(f"SELECT * FROM {name}")
    views.catalog.drop_view((views.namespace, "ledger"))


def test_a_view_that_others_could_not_read_is_not_created(views: Views) -> None:
    views.spark.range(1).createOrReplaceTempView("mine")
    views.spark.udf.register("ours", lambda value: value, "bigint")
    views.sql("DECLARE VARIABLE ours INT DEFAULT 1")
    views.sql("CREATE OR REPLACE VIEW here.first AS SELECT id FROM here.orders")
    views.sql("CREATE OR REPLACE VIEW here.second AS SELECT id FROM here.first")
    for statement, named in (
        ("SELECT * FROM mine", "temporary view mine"),
        ("WITH a AS (SELECT * FROM mine) SELECT * FROM a", "temporary view mine"),
        ("SELECT ours(id) AS x FROM here.orders", "temporary function ours"),
        ("SELECT ours AS x", "variable of the session"),
        ("SELECT * FROM parquet.`/nowhere`", "reads the file"),
        ("SELECT * FROM here.gone", "NOT_FOUND"),
        ("SELECT NULL AS x", "void"),
        ("SELECT 1 AS x, 2 AS x", "(?i)x"),
        ("SELECT id AS `a,b` FROM here.orders", "comma"),
        ("SELECT reflect('java.lang.System', 'gc') AS x", "calls Java"),
    ):
        with pytest.raises(Exception, match=named):
            views.sql(f"CREATE VIEW here.never AS {statement}")
    for statement, named in (
        ("CREATE VIEW here.never (a, b) AS SELECT 1 AS x", "names for 2 columns, and its query has 1"),
        ("CREATE VIEW here.never TBLPROPERTIES ('encryption.key-id' = 'alias/orders') AS SELECT 1 AS x", "is not a property of a view"),
        ("CREATE OR REPLACE VIEW here.first AS SELECT * FROM here.second", "would read the view itself"),
        ("CREATE OR REPLACE VIEW here.first AS SELECT id FROM here.orders WHERE id IN (SELECT id FROM here.first)", "read the view itself"),
    ):
        with pytest.raises(Exception, match=named):
            views.sql(statement)
    views.spark.catalog.dropTempView("mine")
    views.sql("DROP TEMPORARY FUNCTION ours")
    views.sql("DROP TEMPORARY VARIABLE ours")
    assert not views.catalog.view_exists((views.namespace, "never"))
    assert sorted(views.sql("SELECT * FROM here.second")) == [(1,), (2,), (3,), (4,)]
    views.make("presto", "SELECT id FROM here.orders", dialect="trino")
    with pytest.raises(Exception, match="no SQL for Spark, only for trino"):
        views.sql("SELECT * FROM here.presto")


def test_a_catalog_without_views_says_so(spark: SparkSession, prod: Lake) -> None:
    for statement in (
        "CREATE VIEW prod.db.v AS SELECT 1 AS x",
        "DROP VIEW IF EXISTS prod.db.v",
        "ALTER VIEW prod.db.v SET TBLPROPERTIES ('a' = 'b')",
    ):
        with pytest.raises(Exception, match="keeps no views: CREATE TEMPORARY VIEW"):
            spark.sql(statement)
    assert spark.sql("SHOW VIEWS IN prod.db").collect() == []
