"""Statements about what is not there, under keys that do not open, with types that do not fit: the cause is named and nothing has changed.

Adversary: whoever exchanges the key behind a table, or takes it away. Careless user: names and types that are wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, TimeType

from tablecrypt import spark as tcs
from tablecrypt.errors import ConfigurationError
from tests.spark.conftest import Lake
from tests.spark.sql.test_write import stored
from tests.support.aws import AwsServer
from tests.support.switched_kms import STATES, switched
from tests.support.tables import ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
KEY: Final = "TBLPROPERTIES ('encryption.key-id' = 'alias/orders')"
NAME: Final = "switched"
CAUSES: Final = {
    "denied": "KmsAccessDeniedError: this user may not decrypt with alias/orders",
    "gone": "KeyNotFoundError: there is no key alias/orders",
    "wrong": "(?i)authentic|KeyMismatchError",
}


@pytest.fixture(scope="module")
def switch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("switch") / "state"


@pytest.fixture(scope="module")
def lake(spark: SparkSession, aws: AwsServer, switch: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A catalog that Python reads with the true KMS, and Spark with the switched one; its table `db.t` has the ids 0 to 9."""
    folder = tmp_path_factory.mktemp("switched")
    (folder / "warehouse").mkdir()
    properties = {
        "py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": (folder / "warehouse").as_uri(),
        **aws.kms_properties,
    }
    catalog = load_catalog(NAME, **properties)
    catalog.create_namespace("db")
    tcs.catalog(spark, NAME, switched(properties, switch))
    spark.sql(f"CREATE TABLE {NAME}.db.t (id BIGINT, note STRING) {KEY}")
    spark.sql(f"INSERT INTO {NAME}.db.t SELECT id, 'x' FROM range(10)")
    yield Lake(catalog, properties, folder / "warehouse")
    switch.unlink(missing_ok=True)


def refusal(spark: SparkSession, statement: str) -> tuple[str | None, str]:
    """Return the error class and the message with which Spark refuses a statement, at the latest when its rows are asked for."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as refused:
        spark.sql(statement).collect()
    return refused.value.getCondition(), str(refused.value)


@pytest.mark.parametrize("state", [pytest.param(state, marks=[] if state == "denied" else pytest.mark.campaign) for state in STATES])
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM switched.db.t",
        "INSERT INTO switched.db.t VALUES (99, 'y')",
        "UPDATE switched.db.t SET note = 'y' WHERE id = 3",
        "MERGE INTO switched.db.t t USING (SELECT 3L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        "CREATE OR REPLACE TABLE switched.db.t AS SELECT id FROM switched.db.t WHERE id < 5",
        "CALL switched.system.rewrite_data_files('db.t', options => map('rewrite-all', 'true'))",
    ],
    ids=lambda statement: statement.split()[0],
)
def test_a_table_whose_key_does_not_open_stays_as_it_is(spark: SparkSession, lake: Lake, switch: Path, state: str, statement: str) -> None:
    table = lake.catalog.load_table("db.t")
    before, files = table.metadata_location, stored(table)

    switch.write_text(state)
    try:
        error = refusal(spark, statement)[1]
    finally:
        switch.unlink()

    assert re.search(CAUSES[state], error), error
    assert table.refresh().metadata_location == before and stored(table) == files
    assert ids(table.refresh()) == list(range(10))
    assert spark.sql(f"SELECT sum(id) FROM {NAME}.db.t").collect() == [(45,)]


def test_what_is_not_there_has_sparks_own_errors(spark: SparkSession, lake: Lake) -> None:
    for statement, condition in (
        ("SELECT * FROM switched.db.absent", "TABLE_OR_VIEW_NOT_FOUND"),
        ("INSERT INTO switched.absent.t VALUES (1)", "TABLE_OR_VIEW_NOT_FOUND"),
        ("MERGE INTO switched.db.absent t USING switched.db.t s ON t.id = s.id WHEN MATCHED THEN DELETE", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELECT absent FROM switched.db.t", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ("UPDATE switched.db.t SET absent = 1", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ("INSERT INTO switched.db.t (id, absent) VALUES (1, 2)", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ("INSERT INTO switched.db.t VALUES (1, 'y', 2)", "INSERT_COLUMN_ARITY_MISMATCH.TOO_MANY_DATA_COLUMNS"),
        ("INSERT INTO switched.db.t VALUES (true, 'y')", "INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_SAFELY_CAST"),
    ):
        assert refusal(spark, statement)[0] == condition, statement
    assert ids(lake.catalog.load_table("db.t")) == list(range(10))


def test_types_that_one_of_both_lacks_are_named_with_their_column(spark: SparkSession, lake: Lake) -> None:
    error = refusal(spark, f"CREATE TABLE {NAME}.db.typed (id INT, part STRUCT<lasts: INTERVAL DAY TO SECOND>) {KEY}")[1]
    assert "column part.lasts" in error and not lake.catalog.table_exists("db.typed")

    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "hour", TimeType()))
    lake.catalog.create_table("db.timed", schema, properties={"encryption.key-id": "alias/orders"})
    assert "hour" in refusal(spark, f"SELECT * FROM {NAME}.db.timed")[1]
    assert "hour" in refusal(spark, f"INSERT INTO {NAME}.db.timed (id) VALUES (1)")[1]
    assert lake.catalog.load_table("db.timed").current_snapshot() is None


def test_a_catalog_does_not_take_the_name_of_another(spark: SparkSession, lake: Lake) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.taken", "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog")
    with pytest.raises(ConfigurationError, match="the session has another catalog taken"):
        tcs.catalog(session, "taken", lake.properties)
