"""Views in a REST catalog: what statements do to them, and that a view of a hostile catalog reads tables and nothing else.

The adversary can write to the catalog, and so chooses the SQL and the properties of a view that somebody else reads. The careless user
makes views of what others do not have, and takes a view for something that keeps rows.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tablecrypt import spark as tcs
from tests.spark.conftest import Lake
from tests.spark.sql.rest_views import NAME, Views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]


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


VARIABLE: Final = r"\$\{.*(?:variable|environment)"
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
    "itself behind a WITH of its name in a subquery": (
        "SELECT id FROM hostile WHERE id NOT IN (WITH hostile AS (SELECT 1L AS id) SELECT id FROM hostile)",
        "reads itself",
    ),
    "itself in a WITH of its name": ("WITH hostile AS (SELECT id FROM hostile) SELECT id FROM hostile", "reads itself"),
    "the environment": ("SELECT id FROM here.`${env:PATH}`", VARIABLE),
    "the environment in a literal": ("SELECT length('${env:PATH}') AS id", VARIABLE),
    "the environment in a comment": ("SELECT 1L AS id -- ${env:PATH}", VARIABLE),
    "the environment as a namespace": ("SELECT id FROM seen.`a${env:PATH}`.t", VARIABLE),
    "the environment, where the name is not set": ("SELECT length('${env:TABLECRYPT_NOT_SET}') AS id", VARIABLE),
    "the environment by a name from a variable": ("SELECT length('${${env:PATH}}') AS id", VARIABLE),
    "a property of Java": ("SELECT id FROM here.`${system:user.home}`", VARIABLE),
    "a setting": ("SELECT id FROM here.`${spark.app.name}`", VARIABLE),
    "a variable that SET has made": ("SELECT id FROM here.`${tablecrypt.made}`", VARIABLE),
    "a setting that is not there": ("SELECT id FROM here.orders${nowhere}", VARIABLE),
    "a setting as spark": ("SELECT id FROM here.`${spark:spark.app.name}`", VARIABLE),
    "a setting as sparkconf": ("SELECT id FROM here.`${sparkconf:spark.app.name}`", VARIABLE),
    "a setting as hiveconf": ("SELECT id FROM here.`${hiveconf:spark.app.name}`", VARIABLE),
    "a setting as hivevar": ("SELECT id FROM here.`${hivevar:tablecrypt.made}`", VARIABLE),
    "a variable without a name": ("SELECT length('${env:}') AS id", VARIABLE),
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
    views.sql("SET tablecrypt.made = orders")
    views.spark.range(1).createOrReplaceTempView("secret")
    views.spark.range(1).createOrReplaceGlobalTempView("secret")
    views.spark.udf.register("secretly", lambda value: value, "bigint")
    name = views.make("hostile", sql.replace("$mark", str(mark)), LIES)
    try:
        with pytest.raises(Exception, match=named) as raised:
            views.spark.table(name).collect()
        assert os.environ["PATH"] not in str(raised.value)
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

    for refused, named in (("odd", "reads itself"), ("even", "reads itself"), ("twice30", "more than 1000 readings")):
        with pytest.raises(Exception, match=named):
            views.sql(f"SELECT * FROM here.{refused}")
    assert sorted(views.sql("SELECT * FROM here.twice3")) == [(1,), (2,), (3,), (4,)]


LEVELS: Final = 11
MULTIPLYING: Final = {
    "behind a WITH of the same name": (
        "SELECT a.id FROM {one} a JOIN {one} b ON a.id = b.id WHERE a.id NOT IN (WITH {one} AS (SELECT 0L AS id) SELECT id FROM {one})"
    ),
    "through a WITH": "WITH a AS (SELECT id FROM {one}) SELECT a.id FROM a JOIN a b ON a.id = b.id",
    "the deepest first": "SELECT a.id FROM {two} a JOIN {one} b ON a.id = b.id JOIN {one} c ON a.id = c.id",
}


@pytest.mark.parametrize("how", sorted(MULTIPLYING))
def test_views_that_multiply_are_refused_at_once_however_they_do_it(views: Views, how: str) -> None:
    name = f"m{sorted(MULTIPLYING).index(how)}x"
    views.make(f"{name}0", "SELECT id FROM here.orders")
    views.make(f"{name}1", "SELECT id FROM here.orders")
    for level in range(2, LEVELS + 2):
        views.make(f"{name}{level}", MULTIPLYING[how].format(one=f"{name}{level - 1}", two=f"{name}{level - 2}"))

    started = time.monotonic()
    with pytest.raises(Exception, match="more than 1000 readings"):
        views.sql(f"SELECT * FROM here.{name}{LEVELS + 1}")
    assert "more than 1000 readings" in str(views.sql(f"EXPLAIN SELECT * FROM here.{name}{LEVELS + 1}"))
    assert time.monotonic() - started < 60
    assert sorted(views.sql(f"SELECT * FROM here.{name}3")) == [(1,), (2,), (3,), (4,)]


def test_one_view_whose_own_names_multiply_is_refused_and_a_small_one_is_not(views: Views) -> None:
    def doubled(levels: int) -> str:
        steps = (f"a{level} AS (SELECT x.id FROM a{level - 1} x JOIN a{level - 1} y ON x.id = y.id)" for level in range(1, levels + 1))
        return f"WITH a0 AS (SELECT id FROM here.orders), {', '.join(steps)} SELECT id FROM a{levels}"

    views.make("doubled", doubled(LEVELS))
    views.make("halved", doubled(3))
    with pytest.raises(Exception, match="more than 1000 readings"):
        views.sql("SELECT * FROM here.doubled")
    assert sorted(views.sql("SELECT * FROM here.halved")) == [(1,), (2,), (3,), (4,)]


def test_views_that_read_themselves_end_in_that_error_under_any_name(views: Views) -> None:
    views.make("it-self", "SELECT id FROM `it-self`")
    views.make("around", "WITH a AS (SELECT id FROM here.about), b AS (SELECT id FROM a) SELECT id FROM b")
    views.make("about", "SELECT id FROM around WHERE EXISTS (WITH around AS (SELECT 1) SELECT * FROM around)")
    for name in ("`it-self`", "around", "about"):
        with pytest.raises(Exception, match="reads itself"):
            views.sql(f"SELECT * FROM here.{name}")

    # A WITH of the view's own name is not the view.
    views.make("own", "WITH own AS (SELECT id FROM here.orders) SELECT id FROM own WHERE id IN (SELECT min(id) FROM own)")
    assert views.sql("SELECT * FROM here.own") == [(1,)]
    if views.spark.version >= "4.1":
        views.make("counted", "WITH RECURSIVE n (id) AS (SELECT 1L UNION ALL SELECT id + 1 FROM n WHERE id < 3) SELECT id FROM n")
        assert sorted(views.sql("SELECT * FROM here.counted")) == [(1,), (2,), (3,)]


def test_a_long_chain_of_views_ends_in_an_error_that_says_so(views: Views) -> None:
    views.make("link1", "SELECT id FROM here.orders")
    for level in range(2, 121):
        views.make(f"link{level}", f"SELECT id FROM link{level - 1}")
    for refused in (33, 120):
        with pytest.raises(Exception, match="more than 32 deep"):
            views.sql(f"SELECT * FROM here.link{refused}")
    assert len(views.sql("SELECT * FROM here.link32")) == 4
    # Spark has loaded the lower half already when the upper one reads it.
    views.make("both", "SELECT a.id FROM here.link17 a JOIN here.link32 b ON a.id = b.id")
    with pytest.raises(Exception, match="more than 32 deep"):
        views.sql("SELECT * FROM here.both")


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
