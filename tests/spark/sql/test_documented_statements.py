"""Every statement of Iceberg's own Spark pages runs, or is refused for the reason that docs/spark-sql.md gives."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

import tablecrypt.spark as tcs
from tests.support.aws import AwsServer
from tests.support.iceberg_sql.page import PART, SECTIONS, as_table
from tests.support.iceberg_sql.statements import Section, Statement
from tests.support.rest_server import RestServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "pages"
NAMESPACES: Final = ("db", "my_app")
INTERNAL: Final = ("NullPointerException", "ClassCastException", "NoSuchMethodError", "INTERNAL_ERROR", "KeyError", "AttributeError")


@dataclass(frozen=True)
class Pages:
    """A catalog whose tables get a default master key, in SQL and in Python, and one for plain tables where a section needs some."""

    spark: SparkSession
    catalog: Catalog
    warehouse: Path
    plain: Catalog | None = None

    def take_back_settings(self) -> None:
        """Unset what statements set: the session is that of other tests too."""
        for setting in ("spark.wap.branch", "spark.wap.id", "spark.sql.sources.partitionOverwriteMode"):
            self.spark.conf.unset(setting)

    def clear(self) -> None:
        """Drop every table and view."""
        self.spark.sql("DROP TABLE IF EXISTS spark_catalog.default.plain")
        self.spark.sql("DROP VIEW IF EXISTS files_view")
        for namespace in NAMESPACES:
            for view in self.spark.sql(f"SHOW VIEWS IN {self.catalog.name}.{namespace}").collect():
                self.catalog.drop_view((namespace, view["viewName"]))
            for table in self.catalog.list_tables(namespace):
                self.catalog.drop_table(table)

    def run(self, sql: str, table: str) -> str:
        """Run a statement, or one of the preparations that are none; return the columns of what it gives."""
        if sql == "$wait":
            time.sleep(2.1)
        elif sql == "$plain":
            assert self.plain is not None
            rows = pa.table({"id": [1]})
            for name in ("db.plain", "db.plain2"):
                self.plain.create_table(name, rows.schema).append(rows)
            self.spark.sql("CREATE TABLE spark_catalog.default.plain USING parquet AS SELECT 1 AS id")
        else:
            frame = self.spark.sql(self.filled(sql, table))
            frame.collect()
            return frame.schema.simpleString()
        return ""

    def filled(self, sql: str, table: str) -> str:
        """The statement for this catalog, with what stands for snapshots, moments and locations."""
        here = sql.replace("prod.", f"{self.catalog.name}.")
        if "$" not in sql:
            return here
        names = {"warehouse": self.warehouse.as_uri(), "plain": f"{self.spark.conf.get('spark.sql.warehouse.dir')}/plain"}
        identifier = table.removeprefix("prod.")
        if self.catalog.table_exists(identifier):
            metadata = self.catalog.load_table(identifier)
            names |= {"metadata": metadata.metadata_location, "table": metadata.metadata.location}
            snapshots = sorted(metadata.metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms)
            names |= _moments(
                [(each.snapshot_id, each.timestamp_ms) for each in snapshots], str(self.spark.conf.get("spark.sql.session.timeZone"))
            )
        return Template(here).substitute(names)


def _moments(snapshots: list[tuple[int, int]], zone: str) -> dict[str, str]:
    """What statements say of a table's snapshots (id, milliseconds)."""
    if not snapshots:
        return {}
    seconds = snapshots[0][1] // 1000 + 1
    return {
        "first": str(snapshots[0][0]),
        "last": str(snapshots[-1][0]),
        "seconds": str(seconds),
        "milliseconds": str(snapshots[-1][1] + 1000),
        "then": f"'{dt.datetime.fromtimestamp(seconds, ZoneInfo(zone)):%Y-%m-%d %H:%M:%S}'",
    }


@pytest.fixture(scope="module")
def pages(spark: SparkSession, aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Pages:
    folder = tmp_path_factory.mktemp("pages")
    warehouse = folder / "warehouse"
    warehouse.mkdir()
    store = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": warehouse.as_uri()}
    encrypted = {"py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog", "encryption.default-key-id": "alias/orders"}
    properties = {**encrypted, **store, **aws.kms_properties}
    catalog = load_catalog(NAME, **properties)
    for namespace in NAMESPACES:
        catalog.create_namespace(namespace)
    tcs.catalog(spark, NAME, properties)
    return Pages(spark, catalog, warehouse, load_catalog(NAME, **{**store, "type": "sql"}))


@pytest.fixture(scope="module")
def pages_with_views(
    spark: SparkSession, aws: AwsServer, rest_server: RestServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pages]:
    """A catalog of the kind that keeps views."""
    warehouse = tmp_path_factory.mktemp("views")
    encrypted = {"py-catalog-impl": "tablecrypt_catalog.EncryptedRestCatalog", "encryption.default-key-id": "alias/orders"}
    properties = {**encrypted, "uri": rest_server.uri, **aws.kms_properties}
    catalog = load_catalog(f"{NAME}_with_views", **properties)
    for namespace in NAMESPACES:
        catalog.create_namespace(namespace)
    tcs.catalog(spark, catalog.name, properties)
    pages = Pages(spark, catalog, warehouse)
    yield pages
    pages.clear()
    for namespace in NAMESPACES:
        catalog.drop_namespace(namespace)


@pytest.mark.first
@pytest.mark.slow
@pytest.mark.java
@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: re.sub(r"\W+", "-", section.title).lower())
def test_each_statement_does_what_the_table_says(request: pytest.FixtureRequest, section: Section) -> None:
    pages: Pages = request.getfixturevalue("pages_with_views" if section.title == "Views" else "pages")
    pages.clear()
    for sql in section.setup:
        pages.run(sql, section.statements[0].table)

    try:
        wrong = [f"{statement.sql}\n    {problem}" for statement in section.statements if (problem := _problem(pages, statement))]
    finally:
        pages.take_back_settings()

    assert not wrong, "\n".join(wrong)


def _problem(pages: Pages, statement: Statement) -> str | None:
    """What the statement did that the table does not say."""
    try:
        for sql in statement.before:
            pages.run(sql, statement.table)
        given = pages.run(statement.sql, statement.table)
    except Exception as error:  # noqa: BLE001  every refusal is looked at
        return _unexpected(statement, f"{type(error).__name__}: {error}")
    if statement.refused is not None:
        return f"works, and should be refused: {statement.refused}"
    if statement.columns is not None:
        found = given if statement.sql.startswith("SELECT") else pages.spark.table(pages.filled(statement.table, "")).schema.simpleString()
        if found != statement.columns:
            return f"columns are {found}"
    if statement.check is not None and not pages.spark.sql(pages.filled(statement.check, statement.table)).collect()[0][0]:
        return f"is not true: {statement.check}"
    return None


def _unexpected(statement: Statement, said: str) -> str | None:
    if statement.refused is None:
        return said[:600]
    return f"refused by accident: {said[:600]}" if any(name in said for name in INTERNAL) else None


def test_the_page_shows_the_statements_that_are_run() -> None:
    assert PART.read() == as_table(), "run: python -m tests.support.iceberg_sql.page"
