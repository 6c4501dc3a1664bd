"""Spark's variables (`${env:HOME}`) in text that is not the user's own statement: nothing replaces them.

The adversaries write the catalog, and so the text of a view; or the table's metadata, as an analyst may, and so names and defaults of
columns, of which procedures make SQL. They would read the environment of the driver of somebody else, where credentials are. The careless
user writes a variable into a view, or turns the replacing off.
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from pyiceberg.types import StringType

from tablecrypt.spark.sql.statements.variables import find_variable
from tests.spark.conftest import Lake
from tests.spark.sql.rest_views import Views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
SUBSTITUTE: Final = "spark.sql.variable.substitute"
TOLD: Final = "${env:PATH}"
PARTS: Final = (
    *("${", "$", "{", "}", "}", ":", " ", "\n", "\u00a0", "é", "x", "PATH", "user.home", "spark.app.name"),
    *("${env:", "${system:", "env:", "spark:", "sparkconf:", "hiveconf:", "hivevar:", "other:", "ENV:"),
)
HARMLESS: Final = ("$x", "$", "{x}", "${a b}", "${", "${}", "${other:x}", "$ {env:PATH}", "${ENV:PATH}")


def test_every_text_that_spark_would_change_is_found(spark: SparkSession) -> None:
    assert spark._jvm is not None
    substitution = spark._jvm.org.apache.spark.sql.internal.VariableSubstitution()
    chosen = random.Random(24)
    texts = {"".join(chosen.choices(PARTS, k=chosen.randint(2, 8))) for _ in range(3000)}
    changed = {text for text in texts if substitution.substitute(text) != text}
    found = {text for text in texts if find_variable(text) is not None}
    assert len(changed) > 100
    assert changed <= found
    # What is found beside these is not set here, and may be elsewhere.
    assert all(re.search(r"\$\{(env|system):", text) for text in found - changed)


@pytest.mark.parametrize("substitutes", ["true", "false"])
def test_a_text_that_only_resembles_a_variable_is_read_as_it_is(views: Views, substitutes: str) -> None:
    literals = ", ".join(f"'{text}'" for text in HARMLESS)
    name = f"harmless_{substitutes}"
    views.make(name, f"SELECT CAST(size(array({literals})) AS BIGINT) AS id")
    views.spark.conf.set(SUBSTITUTE, substitutes)
    try:
        assert views.sql(f"SELECT * FROM here.{name}") == [(len(HARMLESS),)]
        views.sql(f"CREATE VIEW here.made_{name} AS SELECT explode(array({literals})) AS text")
        assert [row[0] for row in views.sql(f"SELECT text FROM here.made_{name}")] == list(HARMLESS)
    finally:
        views.spark.conf.unset(SUBSTITUTE)


def test_a_view_is_not_read_with_variables_whatever_the_session_says(views: Views) -> None:
    name = views.make("secretive", f"SELECT length('{TOLD}') AS id")
    for setting in (SUBSTITUTE, "spark.sql.legacy.useCurrentConfigsForView"):
        for value in ("true", "false"):
            views.spark.conf.set(setting, value)
            try:
                for query in (f"SELECT * FROM {name}", f"SELECT 1 FROM here.orders o JOIN {name} v"):
                    with pytest.raises(Exception, match="environment") as raised:
                        views.sql(query)
                    assert os.environ["PATH"] not in str(raised.value)
                explained = str(views.sql(f"EXPLAIN SELECT * FROM {name}"))
                assert "environment" in explained
                assert os.environ["PATH"] not in explained
            finally:
                views.spark.conf.unset(setting)
    views.make("over", "SELECT id FROM here.secretive")
    with pytest.raises(Exception, match="environment"):
        views.spark.table(f"{views.prefix}.over")


def test_spark_parses_the_text_of_a_view_with_the_replacing_off(views: Views) -> None:
    views.make("described", "SELECT id FROM here.orders")
    plan = views.spark.table(f"{views.prefix}.described")._jdf.queryExecution().analyzed()
    description = plan.child().desc()
    assert description.viewSQLConfigs().apply(SUBSTITUTE) == "false"


def test_what_a_statement_says_is_stored_as_spark_has_read_it(views: Views) -> None:
    views.sql("SET tablecrypt.region = eu")
    views.sql("CREATE VIEW here.regional AS SELECT id FROM here.orders WHERE region = '${tablecrypt.region}'")
    stored = views.catalog.load_view((views.namespace, "regional")).sql_for("spark")
    assert stored is not None and stored.sql.endswith("WHERE region = 'eu'")
    views.sql("SET tablecrypt.region = us")
    assert sorted(views.sql("SELECT * FROM here.regional")) == [(1,), (3,)]

    views.spark.conf.set(SUBSTITUTE, "false")
    try:
        for text in ("${tablecrypt.region}", TOLD, "${system:user.home}"):
            with pytest.raises(Exception, match="environment"):
                views.sql(f"CREATE VIEW here.never AS SELECT id FROM here.orders WHERE region = '{text}'")
    finally:
        views.spark.conf.unset(SUBSTITUTE)
        views.spark.conf.unset("tablecrypt.region")
    assert not views.catalog.view_exists((views.namespace, "never"))


def test_a_statement_that_is_shown_says_the_same_when_it_is_run(views: Views) -> None:
    views.make("shown", "SELECT id FROM here.orders", {"comment": f"{TOLD}'\\", "note ${x}": TOLD})
    [[statement]] = views.sql("SHOW CREATE TABLE here.shown")
    views.sql("DROP VIEW here.shown")
    views.sql(str(statement))
    properties = views.catalog.load_view((views.namespace, "shown")).properties
    assert (properties["comment"], properties["note ${x}"]) == (f"{TOLD}'\\", TOLD)

    views.make("unshown", f"SELECT id FROM here.`{TOLD}`")
    with pytest.raises(Exception, match="environment"):
        views.sql("SHOW CREATE TABLE here.unshown")
    described = {row[0]: row[1] for row in views.sql("DESCRIBE EXTENDED here.unshown")}
    assert TOLD in str(described["View Text"])


def test_a_default_in_metadata_is_the_text_that_it_is(spark: SparkSession, prod: Lake, new_name: str, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE prod.{new_name} (id BIGINT) PARTITIONED BY (id) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')")
    table = prod.catalog.load_table(new_name)
    with table.update_schema() as update:
        update.add_column("note", StringType(), default_value=TOLD)
    folder = (tmp_path / "plain").as_uri()
    spark.range(1).write.parquet(folder)

    spark.sql(f"INSERT INTO prod.{new_name} (id) VALUES (7)")
    spark.sql(f"CALL prod.system.add_files(table => '{new_name}', source_table => 'parquet.`{folder}`')")
    rows = prod.catalog.load_table(new_name).scan().to_arrow().sort_by("id").to_pylist()
    assert rows == [{"id": 0, "note": TOLD}, {"id": 7, "note": TOLD}]


def test_a_column_whose_name_is_a_variable_is_refused_where_sql_would_be_made_of_it(
    spark: SparkSession, prod: Lake, new_name: str, tmp_path: Path
) -> None:
    spark.sql(f"CREATE TABLE prod.{new_name} (id BIGINT) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')")
    spark.sql(f"INSERT INTO prod.{new_name} VALUES (1)")
    with prod.catalog.load_table(new_name).update_schema() as update:
        update.add_column(TOLD, StringType())
    folder = (tmp_path / "plain").as_uri()
    spark.range(1).write.parquet(folder)

    for call in (f"create_changelog_view(table => '{new_name}')", f"add_files('{new_name}', 'parquet.`{folder}`')"):
        with pytest.raises(Exception, match="environment") as raised:
            spark.sql(f"CALL prod.system.{call}")
        assert os.environ["PATH"] not in str(raised.value)
    assert spark.table(f"prod.{new_name}").columns == ["id", TOLD]
