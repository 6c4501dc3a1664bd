"""A Spark session of the tests' own, and encrypted tables whose keys executors get from the same KMS."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from pyiceberg.catalog import Catalog, load_catalog

from tests.support.aws import AwsServer
from tests.support.class_archive import short_life_options
from tests.support.java import RUNS_HERE, JavaOracle
from tests.support.java_in_session import JavaInSession
from tests.support.java_oracle import jar_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG: Final = "sparktest"
TIME_ZONE: Final = "Asia/Kolkata"
"""In which sessions count days and show instants. Partitions count days in UTC, so that another zone must not matter."""
ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True)
class SparkRun:
    """A session, the folder of its event log (uncompressed) and the one of its local files (shuffles, broadcasts)."""

    session: SparkSession
    event_log: Path
    local_files: Path

    def events(self) -> dict[str, bytes]:
        """The event log's files, with all that has happened so far: Spark writes it in a thread of its own."""
        self.session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(300_000)
        return {str(path): path.read_bytes() for path in self.event_log.rglob("*") if path.is_file()}


@dataclass(frozen=True)
class Lake:
    """A catalog of encrypted tables, and the properties with which Spark loads the same one."""

    catalog: Catalog
    properties: dict[str, str]
    warehouse: Path

    def identifier(self, name: str) -> str:
        """The table's name as tablecrypt.spark takes it."""
        return f"{CATALOG}.{name}"


@pytest.fixture(scope="session", params=[1, pytest.param(3, marks=pytest.mark.campaign)], ids=["once", "thrice"])
def often(request: pytest.FixtureRequest) -> int:
    """How often each fault strikes each job: once by default, and thrice in the campaign."""
    return int(request.param)


@pytest.fixture(scope="session")
def spark_run(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkRun]:
    """A session with two cores that tries each task twice."""
    from pyspark.sql import SparkSession

    from tablecrypt.spark import check_java

    check_java()

    folder = tmp_path_factory.mktemp("spark")
    event_log = folder / "events"
    event_log.mkdir()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.driver.memory": "1500m",
        "spark.driver.extraJavaOptions": short_life_options(),
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": TIME_ZONE,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.shuffle.compress": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": event_log.as_uri(),
        "spark.python.daemon.module": "tests.support.preloaded_daemon",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "catalog")]),
    }
    builder = SparkSession.builder.master("local[2,2]").appName("tablecrypt-tests")
    for name, value in (settings | (jar_settings() if RUNS_HERE else {})).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield SparkRun(session, event_log, folder / "local")
    session.stop()


@pytest.fixture(scope="session")
def spark(spark_run: SparkRun) -> SparkSession:
    """The session."""
    return spark_run.session


@pytest.fixture(scope="session")
def java(spark: SparkSession, aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> JavaOracle:
    """Iceberg Java in the same application."""
    return JavaInSession(spark, tmp_path_factory.mktemp("java"), aws.endpoint)


@pytest.fixture
def open_spark(spark: SparkSession) -> SparkSession:
    """A session that says that it is on a cluster of a name of its own, without spark.authenticate."""
    session = spark.newSession()
    session.conf.set("spark.sql.legacy.setCommandRejectsSparkCoreConfs", "false")
    session.conf.set("spark.master", f"spark://open-{next(_numbers)}:7077")
    return session


_numbers = itertools.count()


@pytest.fixture
def lake(aws: AwsServer, warehouse: Path) -> Lake:
    """An empty catalog on SQLite with the namespace `db`, keys from moto, data under a folder that must hold ciphertext alone."""
    properties = {
        "py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog",
        "uri": f"sqlite:///{warehouse.parent}/{warehouse.name}-{next(_numbers)}.db",
        "warehouse": str(warehouse),
        **aws.kms_properties,
    }
    catalog = load_catalog(CATALOG, **properties)
    catalog.create_namespace("db")
    return Lake(catalog, properties, warehouse)
