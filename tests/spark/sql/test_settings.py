"""In Spark SQL a switch, a choice or a name that is none is refused before anything is created or written; what is one counts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import tablecrypt.spark as tcs
from tablecrypt import __version__ as VERSION
from tablecrypt.spark.sql.added_catalog import CATALOG_CLASS
from tests.spark.conftest import Lake
from tests.support.tables import files_below

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.java

_numbers: Final = itertools.count()
ENCRYPTED: Final = "TBLPROPERTIES ('encryption.key-id' = 'alias/orders'{})"
WRONG: Final = [
    *(("encryption.required", word, "it must be true or false") for word in ("ture", "y", "t", "enabled", "")),
    ("tablecrypt.spark.executor-keys", "broker", "it must be kms or spark"),
    ("encryption.masked-reads", "masks", "it must be mask or error"),
    ("encryption.kms.cache-ttl-ms", "1h", "it must be a whole number"),
    ("kms.local.key-fiel", "x", "Did you mean kms.local.key-file"),
    ("kms.endpiont", "x", "Did you mean kms.endpoint"),
    ("encryption-required", "true", "write encryption.required"),
    ("encrytion.required", "true", "Did you mean encryption.required"),
]


@pytest.fixture(params=["program", "configuration"])
def catalog_with(request: pytest.FixtureRequest, spark: SparkSession, prod: Lake) -> tuple[SparkSession, str, Lake]:
    """A session, and the name that a catalog of it is to have."""
    return spark.newSession(), f"{request.param}{next(_numbers)}", prod


def configure(given: tuple[SparkSession, str, Lake], **properties: str) -> None:
    """Describe the catalog: in the program, or as spark.sql.catalog.NAME.* of the session."""
    session, name, lake = given
    everything = {**lake.properties, **properties}
    if name.startswith("program"):
        tcs.catalog(session, name, everything)
        return
    # A session may not name code, and `type: tablecrypt` takes the class from the uri.
    del everything["py-catalog-impl"]
    session.conf.set(f"spark.sql.catalog.{name}", CATALOG_CLASS)
    for each, value in {**everything, "type": "tablecrypt"}.items():
        session.conf.set(f"spark.sql.catalog.{name}.{each}", value)


@pytest.mark.parametrize("word", ["yes", "On", "1", "TRUE", "no", "OFF", "0", "False"])
def test_eight_words_open_a_catalog_which_makes_no_plain_table(
    catalog_with: tuple[SparkSession, str, Lake], new_name: str, word: str
) -> None:
    session, name, lake = catalog_with
    configure(catalog_with, **{"encryption.required": word})
    before = files_below(lake.warehouse)

    with pytest.raises(Exception, match=f"{new_name} would not be encrypted"):
        session.sql(f"CREATE TABLE {name}.{new_name} AS SELECT 1 AS id")

    assert session.sql(f"SHOW NAMESPACES IN {name}").collect() == []
    assert files_below(lake.warehouse) == before


@pytest.mark.parametrize(("setting", "value", "said"), WRONG, ids=lambda each: each or "nothing")
def test_a_setting_that_is_none_opens_no_catalog(
    catalog_with: tuple[SparkSession, str, Lake], new_name: str, setting: str, value: str, said: str
) -> None:
    session, name, lake = catalog_with
    before = files_below(lake.warehouse)

    with pytest.raises(Exception, match=said):
        configure(catalog_with, **{setting: value})
        session.sql(f"CREATE TABLE {name}.{new_name} AS SELECT 1 AS id")

    assert files_below(lake.warehouse) == before


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ("'encryption.column-guard' = 'flase'", r"encryption\.column-guard is 'flase'"),
        ("'gc.enabled' = 'flase'", r"gc\.enabled is 'flase'"),
        ("'write.wap.enabled' = 'y'", r"write\.wap\.enabled is 'y'"),
        ("'kms.local.key-file' = 'x'", r"kms\.local\.key-file is a property of a catalog"),
        ("'encryption-column-guard' = 'true'", r"write encryption\.column-guard"),
    ],
)
def test_a_property_that_is_none_makes_and_alters_no_table(
    spark: SparkSession, prod: Lake, new_name: str, properties: str, said: str
) -> None:
    with pytest.raises(Exception, match=said):
        spark.sql(f"CREATE TABLE prod.{new_name} (id INT) {ENCRYPTED.format(', ' + properties)}")
    assert not prod.catalog.table_exists(new_name)
    spark.sql(f"CREATE TABLE prod.{new_name} (id INT) {ENCRYPTED.format('')}")

    with pytest.raises(Exception, match=said):
        spark.sql(f"ALTER TABLE prod.{new_name} SET TBLPROPERTIES ({properties})")


def test_a_namespace_or_view_has_no_misspelt_property(spark: SparkSession, prod: Lake) -> None:
    for name in ("encryption.defualt-key-id", "encryption-default-key-id", "vault.token"):
        with pytest.raises(Exception, match="is not a property of a namespace"):
            spark.sql(f"CREATE NAMESPACE prod.slip WITH DBPROPERTIES ('{name}' = 'alias/orders')")
        with pytest.raises(Exception, match="is not a property of a namespace"):
            spark.sql(f"ALTER NAMESPACE prod.db SET PROPERTIES ('{name}' = 'alias/orders')")
    assert not prod.catalog.namespace_exists("slip")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"check-ordering": "flase"}, "check-ordering is 'flase'; it must be true or false"),
        ({"mergeSchema": "ture"}, "merge-schema is 'ture'; it must be true or false"),
        ({"use-table-distribution-and-ordering": "none"}, "use-table-distribution-and-ordering is 'none'; it must be true or false"),
        ({"distribution-mode": "hsah"}, "distribution-mode is 'hsah'; it must be none, hash or range"),
        ({"isolation-levle": "snapshot"}, "'isolation-levle' is not known. Did you mean isolation-level"),
    ],
)
def test_an_option_that_is_none_writes_nothing(spark: SparkSession, prod: Lake, new_name: str, options: dict[str, str], said: str) -> None:
    spark.sql(
        f"CREATE TABLE prod.{new_name} (id BIGINT) {ENCRYPTED.format(', ' + repr('write.spark.accept-any-schema') + ' = ' + repr('yes'))}"
    )
    before = files_below(prod.warehouse)

    with pytest.raises(Exception, match=said):
        spark.range(1).writeTo(f"prod.{new_name}").options(**options).append()

    assert files_below(prod.warehouse) == before
    spark.range(1).writeTo(f"prod.{new_name}").option("check-ordering", "no").option("compression", "zstd").append()


@pytest.fixture
def set_up(spark: SparkSession, prod: Lake) -> Callable[..., SparkSession]:
    """A session of its own, with settings."""

    def made(**settings: str) -> SparkSession:
        session = spark.newSession()
        tcs.catalog(session, "prod", prod.properties)
        for name, value in settings.items():
            session.conf.set(name, value)
        return session

    return made


def test_settings_of_the_session_say_how_rows_are_read_and_written(
    spark: SparkSession, set_up: Callable[..., SparkSession], prod: Lake, new_name: str
) -> None:
    table = f"prod.{new_name}"
    spark.sql(f"CREATE TABLE {table} (id BIGINT) {ENCRYPTED.format('')}")
    spark.range(4).writeTo(table).append()
    asked = {
        "vectorization.enabled": "false",
        "aggregate-push-down.enabled": "false",
        "snapshot-property.who": "me",
        "shredVariants": "true",
    }
    other = set_up(**{f"spark.sql.iceberg.{name}": value for name, value in asked.items()}, **{"spark.sql.adaptive.enabled": "false"})
    other.range(4, 5).writeTo(table).append()

    plans = [session.table(table)._jdf.queryExecution().executedPlan().toString() for session in (spark, other)]
    assert ["ColumnarToRow" in plan for plan in plans] == [True, False]
    assert other.table(table).agg({"id": "sum"}).collect()[0][0] == 10
    plans = [session.sql(f"SELECT count(*) FROM {table}")._jdf.queryExecution().optimizedPlan().toString() for session in (spark, other)]
    assert ["Aggregate" in plan for plan in plans] == [False, True]
    summary = prod.catalog.load_table(new_name).metadata.current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None and summary["who"] == "me"
    application = spark.sparkContext.applicationId
    names = ("engine-name", "engine-version", "app-id", "app-name", "spark.app.id", "iceberg-version")
    assert [summary[name] for name in names] == [
        "spark",
        spark.version,
        application,
        "tablecrypt-tests",
        application,
        f"tablecrypt {VERSION}",
    ]
    with pytest.raises(Exception, match=r"write\.parquet\.compression-codec is 'lost'"):
        set_up(**{"spark.sql.iceberg.compressionCodec": "lost"}).range(1).writeTo(table).append()
    refusing = set_up(**{"spark.sql.iceberg.locality.enabled": "true"})
    for statement in (f"SELECT * FROM {table}", f"DELETE FROM {table}"):
        with pytest.raises(Exception, match=r"spark\.sql\.iceberg\.locality\.enabled=true is not supported"):
            refusing.sql(statement)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_spark_splits_tasks_of_a_change_that_get_more_than_the_session_wants(
    spark: SparkSession, set_up: Callable[..., SparkSession], prod: Lake, new_name: str, mode: str
) -> None:
    """What Iceberg's own tests of skewed changes do: each file is read by a task, and two reducers would get the rows of four."""
    table, commands = f"prod.{new_name}", ("delete", "update")
    listed = "".join(f", 'write.{each}.mode' = '{mode}', 'write.{each}.distribution-mode' = 'hash'" for each in commands)
    properties = ENCRYPTED.format(f", 'read.split.open-file-cost' = '{2**31 - 1}'{listed}")
    spark.sql(f"CREATE TABLE {table} (id BIGINT, dep STRING) PARTITIONED BY (dep) {properties}")
    for _ in range(4):
        spark.sql(f"INSERT INTO {table} SELECT id, 'hr' FROM range(100)")
    session = set_up(**{"spark.sql.iceberg.advisory-partition-size": "100", "spark.sql.adaptive.advisoryPartitionSizeInBytes": "256MB"})
    added = "added-data-files" if mode == "copy-on-write" else "added-delete-files"

    for statement in (f"UPDATE {table} SET id = -1 WHERE id % 2 = 0", f"DELETE FROM {table} WHERE id % 4 = 1"):
        session.sql(statement)
        summary = prod.catalog.load_table(new_name).metadata.current_snapshot().summary  # type: ignore[union-attr]
        assert summary is not None and summary[added] == "4", statement
    assert session.table(table).count() == 300


def test_a_stream_is_not_read_with_a_word_that_is_none(spark: SparkSession, prod: Lake, new_name: str, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE prod.{new_name} (id BIGINT) {ENCRYPTED.format('')}")
    for option, value, said in (
        ("streaming-skip-delete-snapshots", "ture", "it must be true or false"),
        ("streaming-skip-delete-snapshot", "true", "Did you mean streaming-skip-delete-snapshots"),
    ):
        stream = spark.readStream.option(option, value).table(f"prod.{new_name}")
        writer = stream.writeStream.option("checkpointLocation", str(tmp_path / value)).trigger(availableNow=True)
        with pytest.raises(Exception, match=said):
            writer.format("noop").start().awaitTermination()


def test_a_procedure_takes_the_words_of_a_switch(spark: SparkSession, prod: Lake, new_name: str) -> None:
    spark.sql(f"CREATE TABLE prod.{new_name} (id BIGINT) {ENCRYPTED.format('')}")
    call = "CALL prod.system.rewrite_data_files(table => '{}', options => map('rewrite-all', '{}'))"
    with pytest.raises(Exception, match="rewrite-all is 'maybe'; it must be true or false"):
        spark.sql(call.format(new_name, "maybe")).collect()
    spark.sql(call.format(new_name, "Yes")).collect()


def test_what_a_session_holds_back_is_not_published(spark: SparkSession, prod: Lake, new_name: str) -> None:
    spark.sql(f"CREATE TABLE prod.{new_name} (id BIGINT) {ENCRYPTED.format(', ' + repr('write.wap.enabled') + ' = ' + repr('yes'))}")
    spark.sql(f"INSERT INTO prod.{new_name} VALUES (1)")
    session = spark.newSession()
    tcs.catalog(session, "prod", prod.properties)
    session.conf.set("spark.wap.branch", "audit")

    session.sql(f"INSERT INTO prod.{new_name} VALUES (2)")

    assert [row["id"] for row in spark.table(f"prod.{new_name}").collect()] == [1]
    assert sorted(row["id"] for row in session.table(f"prod.{new_name}").collect()) == [1, 2]
