"""Fixtures that the whole suite shares: catalogs, an AWS that runs in this process, and an environment without real credentials."""

from __future__ import annotations

import gc
import os
import sqlite3
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine, event

from tests.support.aws import CREDENTIALS, REGION, AwsServer
from tests.support.browser import browser_problem
from tests.support.class_archive import short_life_options
from tests.support.example_counts import register_profiles
from tests.support.java_version import java_problem
from tests.support.selection import need

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.table import Table

    from tablecrypt_catalog import EncryptedSqlCatalog
    from tests.support.browser import Browser
    from tests.support.hive import HiveMetastore
    from tests.support.java import JavaOracle
    from tests.support.plaintext_scan import Registry
    from tests.support.postgres import PostgresServer
    from tests.support.protected_tables import Clients
    from tests.support.rest_server import RestServer
    from tests.support.shares import Partner

pytest_plugins = [
    "tests.support.durations",
    "tests.support.failing_examples",
    "tests.support.plaintext_scan",
    "tests.support.shards",
    "tests.support.tiers",
    "tests.support.selection",
]

register_profiles()

# Set before any SDK reads them: no test may find a developer's real profile, instance role or endpoint, but for those of tests/live.
if not any(name.startswith("TABLECRYPT_LIVE_") for name in os.environ):
    os.environ.update(CREDENTIALS)
    os.environ.update(AWS_REGION=REGION, AWS_DEFAULT_REGION=REGION, AWS_EC2_METADATA_DISABLED="true")
    os.environ.update(AWS_CONFIG_FILE=os.devnull, AWS_SHARED_CREDENTIALS_FILE=os.devnull)
    for _name in [name for name in os.environ if name == "AWS_PROFILE" or name.startswith("AWS_ENDPOINT_URL")]:
        del os.environ[_name]


@event.listens_for(Engine, "connect")
def _without_fsync(connection: Any, _: object) -> None:
    """The data of a test needs to survive a killed process, and no power failure."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None]:
    """Nothing that is collected becomes garbage, and looking through it again and again takes half of the time that collecting takes."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # modules that count their objects when the interpreter ends would complain


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Drivers that programs of tests start with Java, as users write them, take the options of short lives from the environment."""
    if "SPARK_SUBMIT_OPTS" not in os.environ and item.get_closest_marker("java") and java_problem() is None:
        os.environ["SPARK_SUBMIT_OPTS"] = short_life_options()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Bytes are numbered, not shown: what was compressed or encrypted differs between the processes that collect the same tests."""
    return "bytes" if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def aws(plaintext_registry: Registry) -> Iterator[AwsServer]:
    """S3, KMS and STS on a free port of this process, with the golden KMS keys."""
    server = AwsServer()
    plaintext_registry.search_tables_in(server.s3)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def java_runtime() -> None:
    """A fit Java. Without one the tests that need it are skipped, on a build machine they fail."""
    need(java_problem())


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium for the tests of one module, which its event loop must not outlive. Without it they are skipped, in CI they fail."""
    from tests.support.browser import started_browser

    need(browser_problem())
    with started_browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def java(java_runtime: None, aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaOracle]:
    """Iceberg Java, started once per session: modules register tables in a namespace of their own. Without a fit Java the test is skipped,
    except in CI: there it fails."""
    from tests.support.java import JavaOracle

    with JavaOracle(tmp_path_factory.mktemp("java-oracle"), aws.endpoint) as oracle:
        yield oracle


@pytest.fixture(scope="session")
def rest_server(java_runtime: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    """Iceberg's reference REST catalog server, started once per session. Without a fit Java its tests are skipped, in CI they fail."""
    from tests.support.rest_server import RestServer

    server = RestServer(tmp_path_factory.mktemp("rest-server"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def hive_metastore(java_runtime: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveMetastore]:
    """A Hive metastore, started once per session. Without a fit Java its tests are skipped, in CI they fail."""
    from tests.support.hive import HiveMetastore

    with HiveMetastore(tmp_path_factory.mktemp("hive-metastore")) as metastore:
        yield metastore


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server; `new_database()` gives each test one of its own."""
    from tests.support.postgres import PostgresServer

    server = PostgresServer()
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgres"])
def uri(request: pytest.FixtureRequest, warehouse: Path) -> str:
    """Where the database of a catalog is: each test with it runs on SQLite and on PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{warehouse}/catalog.db"
    uri: str = request.getfixturevalue("postgres").new_database()
    return uri


@pytest.fixture
def catalog(warehouse: Path, aws: AwsServer) -> EncryptedSqlCatalog:
    """A catalog on SQLite in `warehouse`, with keys in moto's KMS and the namespace `db`."""
    from tests.support.tables import encrypted_sql_catalog

    return encrypted_sql_catalog(warehouse, aws)


@pytest.fixture
def partner(tmp_path: Path, aws: AwsServer) -> Partner:
    """Another organisation, with whom rows are shared."""
    from tests.support.shares import Partner

    return Partner.of(tmp_path, aws)


@pytest.fixture
def both(tmp_path: Path) -> Clients:
    """Two clients of one catalog, of which one may not use the master keys of columns."""
    from tests.support.protected_tables import clients

    return clients(tmp_path)


@pytest.fixture(scope="module")
def module_table(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A table with every kind of file for the tests of one module, which may damage it below `put_back`, and must not commit to it."""
    from tests.support.plaintext_scan import unwatch
    from tests.support.tables import encrypted_sql_catalog, maintained_table

    folder = tmp_path_factory.mktemp("module-table")
    unwatch(folder)
    return maintained_table(encrypted_sql_catalog(folder, aws))


@pytest.fixture(scope="module")
def java_storage(aws: AwsServer) -> AwsServer:
    """A store with the tables that Iceberg Java wrote (tests/vectors/golden and tests/vectors/java)."""
    from tests.support.vectors import GOLDEN, JAVA

    for folder in (GOLDEN, JAVA):
        aws.load_bucket(folder / "s3")
    return aws
