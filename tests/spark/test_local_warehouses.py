"""Warehouses without a scheme: the start page as it stands, relative locations of earlier tables, and names that Hadoop might escape."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

import tablecrypt.spark as tcs
from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import migrate
from tablecrypt.spark.tables import LocatedTable
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import load_catalog
from tests.spark.conftest import ROOT
from tests.support.aws import AwsServer
from tests.support.pages import DOCS, blocks, run_page
from tests.support.plaintext import CANARY
from tests.support.tables import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
PATHS: Final[tuple[Literal["jvm", "python"], ...]] = ("jvm", "python")
PLAIN: Final = {"encryption.required": "false"}


def _program(folder: Path, text: str) -> str:
    """Run a program as a user does, and return what it prints."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "catalog")]), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PYSPARK_PYTHON"] = sys.executable
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False, timeout=580
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_pages_with_spark_sql_run_as_they_stand_with_the_catalog_of_the_first_page(warehouse: Path) -> None:
    first = (DOCS / "start/sql-catalog.md").read_text(encoding="utf-8")
    run_page(first, warehouse, {})
    page = blocks((DOCS / "start/spark.md").read_text(encoding="utf-8"))
    shown = page[[language for language, _ in page].index("python") + 2][1]
    [of_index] = [text for _, text in blocks((DOCS / "index.md").read_text(encoding="utf-8")) if "tcs.catalog(spark" in text]
    programs = [text for language, text in page if language == "python"]

    printed = _program(warehouse, "\n".join([*programs, "spark.sql('DROP TABLE prod.db.visits PURGE')", of_index]))

    assert printed.startswith(shown)
    assert "|  2|search|" in printed.removeprefix(shown)
    assert len(list((warehouse / "warehouse/db/visits/data").glob("*.parquet"))) == 2
    catalog = load_catalog("prod", **_configured(warehouse))
    assert catalog.load_table("db.visits").location() == f"file://{warehouse}/warehouse/db/visits"


def _ids(catalog: Catalog, name: str) -> list[int]:
    return sorted(catalog.load_table(name).scan().to_arrow()["id"].to_pylist())


RELATIVE: Final = textwrap.dedent("""
    from pyspark.sql import SparkSession
    import tablecrypt.spark as tcs
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1")
    builder = builder.config("spark.python.daemon.module", "tests.support.preloaded_daemon")
    spark = builder.config("spark.hadoop.fs.defaultFS", "hdfs://nowhere.invalid:8020").getOrCreate()
    tcs.catalog(spark, "prod")
    tcs.register(spark)
    rows = spark.range(10, 20).selectExpr("id", "'{canary}' AS note")
    spark.sql("INSERT INTO prod.db.older SELECT id, note FROM prod.db.older WHERE id < 2")
    spark.sql("UPDATE prod.db.older SET note = 'changed' WHERE id = 3")
    spark.sql("DELETE FROM prod.db.older WHERE id = 2")
    for path in ("jvm", "python"):
        tcs.write_table(rows, "prod.db.older", path=path)
        print(tcs.read_table(spark, "prod.db.older", path=path).where("id >= 10").count())
    rows.write.format("tablecrypt").mode("append").save("prod.db.older")
    print(spark.read.format("tablecrypt").load("prod.db.older").where("id >= 10").count())
    [file] = [row[0] for row in spark.sql("SELECT DISTINCT _file FROM prod.db.older WHERE id = 4").collect()]
    print(file.startswith("warehouse/db/older/data/"), spark.sql(f"SELECT id FROM prod.db.older WHERE _file = '{{file}}'").count() > 0)
    """)


def test_a_table_with_a_relative_location_is_read_and_written_where_python_has_it(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hadoop's own default file system is another one, so that a path without a scheme would lead nowhere."""
    monkeypatch.chdir(warehouse)
    first = (DOCS / "start/sql-catalog.md").read_text(encoding="utf-8")
    run_page(first, warehouse, {})
    catalog = load_catalog("prod", **_configured(warehouse))
    migrate(catalog.create_table("db.older", SCHEMA), "orders")
    catalog.load_table("db.older").append(pa.table({"id": range(5), "note": [CANARY] * 5}))
    assert catalog.load_table("db.older").location() == "warehouse/db/older"

    printed = _program(warehouse, RELATIVE.format(canary=CANARY))

    assert printed.split() == ["10", "20", "30", "True", "True"]
    assert _ids(catalog, "db.older") == sorted([0, 0, 1, 1, 3, 4, *list(range(10, 20)) * 3])
    table = catalog.load_table("db.older")
    assert all(task.file.file_path.startswith("warehouse/db/older/data/") for task in table.scan().plan_files())
    with pytest.raises(ConfigurationError, match="warehouse/db/older is relative to the current folder"):
        settings: Any = SimpleNamespace(get=lambda name, default: "spark://host:7077" if name == "spark.master" else default)
        LocatedTable.of_table(cast(EncryptedTable, table)).issue_job(cast("Any", SimpleNamespace(conf=settings)))


def _configured(folder: Path) -> dict[str, str]:
    return {
        "type": "tablecrypt",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": "warehouse",
        "encryption.kms-type": "local",
        "kms.local.key-file": f"{folder}/orders.keys",
        **PLAIN,
    }


@pytest.mark.parametrize("name", ["a b München", "100%25 x+y&z='1'", "a#b?c a:b"])
def test_a_path_is_the_same_for_spark_and_python(spark: SparkSession, aws: AwsServer, warehouse: Path, name: str) -> None:
    catalog_name = f"local_{abs(hash(name))}"
    properties = {
        "type": "tablecrypt",
        "uri": f"sqlite:///{warehouse}/catalog.db",
        "warehouse": f"{warehouse}/{name}/wh",
        **aws.kms_properties,
    }
    catalog = load_catalog(catalog_name, **properties)
    catalog.create_namespace("db")
    tcs.catalog(spark, catalog_name, properties)
    table = f"{catalog_name}.db.rows"

    spark.sql(f"CREATE TABLE {table} (id BIGINT, note STRING) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')")
    spark.sql(f"INSERT INTO {table} SELECT id, '{CANARY}' FROM range(4)")
    catalog.load_table("db.rows").append(pa.table({"id": [7], "note": [CANARY]}))
    for path in PATHS:
        tcs.write_table(spark.range(10, 12).selectExpr("id", f"'{CANARY}' AS note"), table, path=path, catalog_properties=properties)
    spark.sql(f"DELETE FROM {table} WHERE id = 2")

    expected = [0, 1, 3, 7, 10, 10, 11, 11]
    assert sorted(row["id"] for row in spark.table(table).collect()) == expected == _ids(catalog, "db.rows")
    for path in PATHS:
        assert sorted(row["id"] for row in tcs.read_table(spark, table, path=path, catalog_properties=properties).collect()) == expected
    assert {each.name for each in warehouse.iterdir()} == {"catalog.db", name}
    protected = f"{catalog_name}.db.people"
    spark.sql(
        f"CREATE TABLE {protected} (id BIGINT, ssn STRING) TBLPROPERTIES "
        "('encryption.key-id' = 'alias/orders', 'encryption.column-keys' = 'alias/people: ssn')"
    )
    spark.sql(f"INSERT INTO {protected} SELECT id, '{CANARY}' FROM range(4)")
    assert spark.table(protected).where(f"ssn = '{CANARY}'").count() == 4
    assert _ids(catalog, "db.people") == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("warehouse_uri", "told"),
    [
        ("s3://lake//a", "Hadoop would read its location as another path"),
        ("file://{folder}/a#b", "Hadoop would read its location as another path"),
        ("file://relative/wh", "'relative' would be a host"),
    ],
)
def test_a_location_that_cannot_work_is_refused_before_there_is_a_table(
    spark: SparkSession, aws: AwsServer, warehouse: Path, warehouse_uri: str, told: str
) -> None:
    name = f"refused_{abs(hash(warehouse_uri))}"
    location = warehouse_uri.format(folder=warehouse)
    properties = {"type": "tablecrypt", "uri": f"sqlite:///{warehouse}/catalog.db", "warehouse": location, **aws.kms_properties}
    catalog = load_catalog(name, **properties)
    catalog.create_namespace("db")
    tcs.catalog(spark, name, properties)

    for rest in ("", " AS SELECT 1 AS id"):
        columns = "" if rest else "(id BIGINT)"
        with pytest.raises(Exception, match=told) as raised:
            spark.sql(f"CREATE TABLE {name}.db.rows {columns} TBLPROPERTIES ('encryption.key-id' = 'alias/orders'){rest}")
        assert len(str(raised.value).splitlines()) == 1

    assert catalog.list_tables("db") == []
    assert {each.name for each in warehouse.iterdir()} == {"catalog.db"}
