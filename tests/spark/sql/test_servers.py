"""Spark's own servers and shells with the jar: Connect, spark-sql and the Thrift server, each in a process of its own.

Adversary: a user of a shared Connect server, who may set what the session lets them and would like code of their own beside the driver.
"""

from __future__ import annotations

import re
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from tests.spark.conftest import Lake
from tests.support.aws import CREDENTIALS, REGION, AwsServer
from tests.support.hadoop_s3 import s3a_jars
from tests.support.rest_server import RestServer, new_namespace
from tests.support.server_process import ServerProcess, free_port, listens
from tests.support.spark_connect import ConnectServer, spark_environment
from tests.support.spark_jar import catalog_settings, options, spark_jar

pytestmark = [pytest.mark.java, pytest.mark.slow]
CLIENT = Path(__file__).parents[2] / "support" / "sql_connect_client.py"
TABLE = "TBLPROPERTIES ('encryption.key-id' = 'alias/orders')"


@pytest.fixture(scope="module")
def served(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A catalog that servers open by Spark's settings alone."""
    folder = tmp_path_factory.mktemp("served")
    properties = {
        "py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": (folder / "warehouse").as_uri(),
        **aws.kms_properties,
    }
    (folder / "warehouse").mkdir()
    catalog = load_catalog("prod", **properties)
    catalog.create_namespace("db")
    return Lake(catalog, properties, folder / "warehouse")


@pytest.fixture(scope="module")
def settings(served: Lake, rest_server: RestServer, aws: AwsServer) -> dict[str, str]:
    """Spark's settings for that catalog as `prod`, and for one that stores views as `seen`."""
    rest = {"py-catalog-impl": "tablecrypt_catalog.EncryptedRestCatalog", "uri": rest_server.uri, **aws.kms_properties}
    return catalog_settings("prod", served.properties) | catalog_settings("seen", rest)


@pytest.fixture
def seen(rest_server: RestServer) -> str:
    """An empty namespace for views."""
    return f"seen.{new_namespace(rest_server)}"


@pytest.fixture(scope="module")
def connect(settings: dict[str, str], java_runtime: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with ConnectServer(tmp_path_factory.mktemp("sql-connect"), settings, [spark_jar()]) as running:
        yield running


def results(server: ConnectServer, *sessions: dict[str, Any]) -> list[list[Any]]:
    found: list[list[Any]] = server.answers(CLIENT, {"sessions": list(sessions)})["results"]
    return found


def test_users_of_a_connect_server_share_the_catalog(connect: ConnectServer, served: Lake) -> None:
    first = {
        "statements": [
            f"CREATE TABLE prod.db.c (id BIGINT, note STRING) PARTITIONED BY (bucket(2, id)) {TABLE}",
            "INSERT INTO prod.db.c SELECT id, concat('n', id) FROM range(10)",
            "UPDATE prod.db.c SET note = 'changed' WHERE id = 3",
            "DELETE FROM prod.db.c WHERE id = 1",
            "SELECT table, dry_run FROM (SELECT 'x' AS table, false AS dry_run)",
            "CALL prod.system.rotate_kek('db.c')",
        ]
    }
    second = {"statements": ["SELECT count(*), sum(id) FROM prod.db.c WHERE id > 0", "SELECT note FROM prod.db.c WHERE id = 3"]}
    made, read = results(connect, first, second)
    assert not [each for each in made if isinstance(each, dict)], made
    assert made[-1][0][:2] == ["db.c", False]
    assert read == [[[8, 44]], [["changed"]]]
    assert served.catalog.load_table("db.c").scan().to_arrow().num_rows == 9


def test_users_of_a_connect_server_share_views(connect: ConnectServer, seen: str) -> None:
    maker = {
        "statements": [
            f"CREATE TABLE {seen}.orders (id BIGINT, region STRING) {TABLE}",
            f"INSERT INTO {seen}.orders VALUES (1, 'eu'), (2, 'us'), (3, 'eu')",
            f"USE {seen}",
            "CREATE VIEW eu (key COMMENT 'the order') COMMENT 'in Europe' AS SELECT id FROM orders WHERE region = 'eu'",
            "CREATE VIEW last AS SELECT max(key) AS key FROM eu",
        ]
    }
    reader = {
        "statements": [
            "CREATE TEMPORARY VIEW orders AS SELECT 100L AS id, 'eu' AS region",
            "CREATE TEMPORARY VIEW eu AS SELECT 200L AS key",
            f"SELECT key FROM {seen}.eu ORDER BY key",
            f"SELECT l.key, e.key FROM {seen}.last l, eu e",
            f"SHOW VIEWS IN {seen}",
            f"DESCRIBE {seen}.eu",
            f"CREATE VIEW {seen}.mine AS SELECT * FROM eu",
            f"CREATE VIEW {seen}.files AS SELECT * FROM text.`/etc/hostname`",
            f"CREATE OR REPLACE VIEW {seen}.eu AS SELECT id AS key FROM {seen}.orders WHERE id > 2",
            f"SELECT key FROM {seen}.eu",
            f"ALTER VIEW {seen}.last RENAME TO newest",
            f"DROP VIEW {seen}.eu",
            f"SELECT * FROM {seen}.newest",
            f"SHOW TABLES IN {seen}",
        ]
    }
    made, read = results(connect, maker, reader)
    namespace = seen.partition(".")[2]
    assert not [each for each in made if isinstance(each, dict)], made
    assert read[2:6] == [
        [[1], [3]],
        [[3, 200]],
        [[namespace, "eu", False], [namespace, "last", False]],
        [["key", "bigint", "the order"]],
    ]
    assert "temporary view eu, which other sessions do not have" in read[6]["error"]
    assert "reads the file /etc/hostname" in read[7]["error"]
    assert read[9] == [[3]]
    assert "TABLE_OR_VIEW_NOT_FOUND" in read[12]["error"]
    assert read[13] == [[namespace, "orders", False]]


def test_a_server_evaluates_no_condition_on_masks(connect: ConnectServer, served: Lake, aws: AwsServer) -> None:
    declared = f"TBLPROPERTIES ('encryption.key-id' = 'alias/orders', 'encryption.column-keys' = '{aws.new_key()}: ssn')"
    [made] = results(connect, {"statements": [f"CREATE TABLE prod.db.people (id BIGINT, ssn STRING) {declared}"]})
    assert made == [[]]
    served.catalog.load_table("db.people").append(pa.table({"id": [1, 2], "ssn": ["SSN-1", "SSN-2"]}))
    asked = {
        "statements": [
            "SELECT count(*) FROM prod.db.people a JOIN prod.db.people b ON concat(a.ssn, '') = concat(b.ssn, '')",
            "SELECT ssn, id FROM prod.db.people ORDER BY id",
        ]
    }
    analyst = asked | {"settings": {"spark.sql.catalog.prod.encryption.allowed-key-ids": "alias/orders"}}
    values, [refused, masks] = results(connect, asked, analyst)
    assert values == [[[2]], [["SSN-1", 1], ["SSN-2", 2]]]
    assert masks == [[None, 1], [None, 2]]
    assert "does not let you use" in refused["error"]


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        ({"python": "/bin/false"}, "is taken from the configuration that the application was started with"),
        ({"py-catalog-impl": "os.path.join"}, "names code to import beside the driver"),
        ({"uri": "sqlite:///x.db", "encryption.kms-impl": "subprocess.Popen"}, "names code to import beside the driver"),
        ({"type": "rest", "uri": "http://127.0.0.1:1", "credential": "id:secret"}, "PYICEBERG_CATALOG__MINE__CREDENTIAL"),
    ],
)
def test_a_session_brings_no_code_and_no_secret(connect: ConnectServer, chosen: dict[str, str], reason: str) -> None:
    mine = {"spark.sql.catalog.mine": "tablecrypt.jvm.SqlCatalog"}
    mine |= {f"spark.sql.catalog.mine.{name}": value for name, value in chosen.items()}
    [[refused, works]] = results(connect, {"settings": mine, "statements": ["SHOW NAMESPACES IN mine", "SHOW NAMESPACES IN prod"]})
    assert reason in refused["error"] and "id:secret" not in refused["error"]
    assert ["db"] in works


def of_s3(folder: Path, aws: AwsServer) -> dict[str, str]:
    """Settings for a catalog `lake` on S3 through Hadoop's S3A. Credentials of both clients are in the environment, and in no setting."""
    properties = {
        "py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog",
        "uri": f"sqlite:///{folder}/lake.db",
        "warehouse": f"s3a://{aws.bucket('sql-' + uuid.uuid4().hex[:8])}/lake",
        "s3.endpoint": aws.endpoint,
        "s3.region": REGION,
        **aws.kms_properties,
    }
    return {
        **catalog_settings("lake", properties),
        "spark.hadoop.fs.s3a.endpoint": aws.endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": REGION,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.aws.credentials.provider": "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
    }


@pytest.fixture(scope="module")
def shell(
    served: Lake, settings: dict[str, str], rest_server: RestServer, aws: AwsServer, tmp_path_factory: pytest.TempPathFactory
) -> subprocess.CompletedProcess[str]:
    """One run of spark-sql: a table on S3, then a table and a view as users of a shell make them, and a mistake at the end."""
    import pyspark

    folder, home = tmp_path_factory.mktemp("shell"), Path(pyspark.__file__).parent
    quiet = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.catalogImplementation": "in-memory",
    }
    seen = f"seen.{new_namespace(rest_server)}"
    sql = (
        f"CREATE NAMESPACE lake.db; CREATE TABLE lake.db.t (id BIGINT, region STRING) PARTITIONED BY (region) {TABLE}; "
        "INSERT INTO lake.db.t SELECT id, concat('r', id % 2) FROM range(20); UPDATE lake.db.t SET id = 100 WHERE id = 3; "
        "CALL lake.system.rewrite_data_files('db.t', options => map('rewrite-all', 'true')); "
        "SELECT 'sum', sum(id) FROM lake.db.t WHERE region = 'r1'; CALL lake.system.verify('db.t'); "
        f"CREATE TABLE prod.db.s (id BIGINT, note STRING) {TABLE}; ALTER TABLE prod.db.s ADD PARTITION FIELD note; "
        "INSERT INTO prod.db.s VALUES (1, 'a'), (2, 'b'); SELECT id, note FROM prod.db.s ORDER BY id; "
        f"CREATE VIEW {seen}.s AS SELECT concat('seen ', note) AS shown FROM prod.db.s; SELECT * FROM {seen}.s WHERE shown > 'seen a'; "
        f"SHOW VIEWS IN {seen}; CALL prod.system.verify('db.s'); CALL prod.system.rotate_keks('db.s')"
    )
    jars = ",".join(map(str, (spark_jar(), *s3a_jars())))
    given = options({**quiet, **settings, **of_s3(folder, aws)})
    return subprocess.run(
        [home / "bin" / "spark-sql", "--master", "local[2]", "--jars", jars, *given, "-e", sql],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=spark_environment() | {"SPARK_HOME": str(home), **CREDENTIALS},
        timeout=400,
    )


def test_the_shell_runs_statements_without_a_python_program(shell: subprocess.CompletedProcess[str], served: Lake) -> None:
    assert "1\ta\n2\tb\n" in shell.stdout, shell.stderr[-3000:]
    assert re.search(r"^seen b\n\w+\ts\tfalse\n", shell.stdout, re.MULTILINE)
    assert "db.s\ttrue\ttrue\tfalse\tevery file is intact\ttrue\t" in shell.stdout
    assert shell.returncode != 0 and "Did you mean rotate_kek?" in shell.stderr
    assert sorted(served.catalog.load_table("db.s").scan().to_arrow()["id"].to_pylist()) == [1, 2]
    assert [field.name for field in served.catalog.load_table("db.s").spec().fields] == ["note"]


def test_tables_on_s3_go_through_hadoops_s3a(shell: subprocess.CompletedProcess[str]) -> None:
    assert "sum\t197\n" in shell.stdout and "db.t\ttrue\ttrue\tfalse\tevery file is intact\ttrue\t" in shell.stdout, shell.stderr[-4000:]


def test_a_thrift_client_reads_and_writes(served: Lake, settings: dict[str, str], seen: str, java_runtime: None, tmp_path: Path) -> None:
    import pyspark

    home, port = Path(pyspark.__file__).parent, free_port()
    of_server = {
        **settings,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.hadoop.hive.server2.thrift.bind.host": "127.0.0.1",
        "spark.hadoop.hive.server2.thrift.port": str(port),
    }
    command: list[str | Path] = [
        home / "bin" / "spark-submit",
        "--master",
        "local[2]",
        "--class",
        "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2",
    ]
    environment = spark_environment() | {"SPARK_HOME": str(home)}
    full: list[str | Path] = [*command, "--jars", spark_jar(), *options(of_server), "spark-internal"]
    beeline: list[str | Path] = [home / "bin" / "beeline", "-u", f"jdbc:hive2://127.0.0.1:{port}/", "--outputformat=tsv2", "--silent=true"]

    server = ServerProcess("Thrift server", full, tmp_path / "thrift.log", lambda: listens(port), environment)
    sql = (
        f"CREATE TABLE prod.db.h (id BIGINT, note STRING) {TABLE}; INSERT INTO prod.db.h VALUES (1, 'a'), (2, 'b'); "
        "DELETE FROM prod.db.h WHERE id = 1; SELECT id, note FROM prod.db.h; "
        f"CREATE VIEW {seen}.h AS SELECT concat('seen ', note) AS shown FROM prod.db.h; SELECT * FROM {seen}.h; "
        "CALL prod.system.rollback_to_snapshot('db.h', 7);"
    )
    try:
        run = subprocess.run([*beeline, "-e", sql], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment, timeout=300)
    finally:
        server.stop()
    assert "2\tb" in run.stdout and "seen b" in run.stdout, run.stderr[-3000:]
    assert "has no snapshot 7" in run.stderr
    assert served.catalog.load_table("db.h").scan().to_arrow()["id"].to_pylist() == [2]
