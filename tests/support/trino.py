"""Trino, an engine of its own with its own reader of encrypted Parquet: what others see of the tables that are written here.

It needs Java 25 and Maven, which fetches its jars (0.5 GB) the first time; they stay in the user's cache folder. It shares a catalog with
this side through PostgreSQL: our SQL catalog's tables are those of Iceberg's JDBC catalog in its schema V0. Keys and files are in moto.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import trino
from sqlalchemy import make_url
from trino.dbapi import Connection

from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import CREDENTIALS, REGION, AwsServer
from tests.support.java_version import java_home
from tests.support.kept_folders import kept_folder
from tests.support.server_process import ServerProcess, free_port

VERSION: Final = "483"
REQUIRED_JAVA: Final = 25
BUCKET: Final = "trino"
_CATALOG: Final = "prod"
_POM: Final = Path(__file__).with_name("trino_pom.xml")
_SERVER: Final = Path(__file__).with_name("java_src") / "TrinoServer.java"


class TrinoError(Exception):
    """What Trino answered to a query that it cannot run."""


class Trino:
    """A running Trino, and the catalog that it shares with us: what is in the namespace `db` of `catalog` is in its schema `db`.

    Args:
        folder: for its log, and what it leaves behind.
        aws: holds keys and files.
        database: URI of an empty PostgreSQL database.
        more: properties of its catalog beside those that lead it to the database and to moto.
    """

    def __init__(self, folder: Path, aws: AwsServer, database: str, more: Mapping[str, str] | None = None) -> None:
        warehouse = f"s3://{aws.bucket(BUCKET)}/warehouse"
        self.catalog = EncryptedSqlCatalog(_CATALOG, uri=database, warehouse=warehouse, **aws.kms_properties, **aws.s3_properties)
        self.catalog.create_namespace("db")
        port = free_port()
        options = ["--add-modules=jdk.incubator.vector", "--enable-native-access=ALL-UNNAMED", "-XX:TieredStopAtLevel=1", "-Xmx2g"]
        # It leaves its own folders behind where Java has temporary files.
        options.append(f"-Djava.io.tmpdir={folder}")
        settings = [f"{name}={value}" for name, value in {**_settings(aws, database, warehouse), **(more or {})}.items()]
        command = [_java(), *options, "-cp", f"{_jars()}/*", str(_SERVER), str(port), *settings]
        # There is no property of the catalog for the address of the KMS.
        environment = os.environ | CREDENTIALS | {"AWS_REGION": REGION, "AWS_ENDPOINT_URL_KMS": aws.endpoint}
        self._server = ServerProcess("Trino server", command, folder / "trino.log", partial(_is_ready, folder / "trino.log"), environment)
        self._connection = Connection(host="127.0.0.1", port=port, user="judge", catalog="ice", schema="db", timezone="UTC")

    def rows(self, query: str, schema: pa.Schema) -> pa.Table:
        """The rows of a query as Arrow, in the types of a schema that has the query's columns in their order.

        Raises TrinoError if Trino cannot run it.
        """
        columns = list(zip(*self.values(query), strict=True)) or [()] * len(schema)
        arrays = [
            pa.array([_value(each, field.type) for each in column], field.type) for column, field in zip(columns, schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=schema)

    def values(self, query: str) -> list[list[Any]]:
        """The rows of a query in Python's types. Raises TrinoError if Trino cannot run it."""
        cursor = self._connection.cursor()
        try:
            cursor.execute(query)
            rows: list[list[Any]] = cursor.fetchall()
        except trino.exceptions.TrinoQueryError as error:
            raise TrinoError(" | ".join(_causes(error.failure_info))) from error
        return rows

    def stop(self) -> None:
        """End the process."""
        self._connection.close()  # type: ignore[no-untyped-call]
        self._server.stop()


def new_name() -> str:
    """A name for a table that no other test uses."""
    return f"db.t{secrets.token_hex(6)}"


def trino_problem() -> str | None:
    """None where Trino can run, else a sentence that says what is missing."""
    if shutil.which("mvn") is None:
        return "Trino needs Maven, which fetches its jars, and there is no mvn on the PATH."
    if java_home(REQUIRED_JAVA) is None:
        return f"Trino needs Java {REQUIRED_JAVA}: set JAVA_25_HOME."
    return None


def _settings(aws: AwsServer, database: str, warehouse: str) -> dict[str, str]:
    url = make_url(database)
    return {
        "iceberg.catalog.type": "jdbc",
        "iceberg.jdbc-catalog.driver-class": "org.postgresql.Driver",
        "iceberg.jdbc-catalog.connection-url": f"jdbc:postgresql://{url.host}:{url.port}/{url.database}",
        "iceberg.jdbc-catalog.connection-user": url.username or "",
        "iceberg.jdbc-catalog.connection-password": "trusted",
        "iceberg.jdbc-catalog.catalog-name": _CATALOG,
        "iceberg.jdbc-catalog.schema-version": "V0",
        "iceberg.jdbc-catalog.default-warehouse-dir": warehouse,
        "iceberg.encryption.kms-type": "AWS",
        # It knows files by their paths, and would not see what is changed in them.
        "iceberg.metadata-cache.enabled": "false",
        "fs.s3.enabled": "true",
        "s3.endpoint": aws.endpoint,
        "s3.region": REGION,
        "s3.path-style-access": "true",
        "s3.aws-access-key": CREDENTIALS["AWS_ACCESS_KEY_ID"],
        "s3.aws-secret-key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    }


def _is_ready(log: Path) -> bool:
    """Whether it has its catalog. It answers over HTTP before that."""
    return "The catalog ice is there" in log.read_text(errors="replace")


def _causes(failure: dict[str, Any] | None) -> Iterator[str]:
    """What the error says, and what each of its causes says: the last one is the useful one."""
    while failure:
        yield f"{failure['type'].rpartition('.')[2]}: {failure.get('message')}"
        failure = failure.get("cause")


def _value(value: Any, kind: pa.DataType) -> Any:
    """A value of Trino's client as Arrow takes it in: it has named tuples for structs, and dictionaries for maps."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _value(each, field.type) for field, each in zip(kind, value, strict=True)}
    if pa.types.is_map(kind):
        return [(_value(key, kind.key_type), _value(each, kind.item_type)) for key, each in value.items()]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_value(each, kind.value_type) for each in value]
    return value.bytes if isinstance(kind, pa.UuidType) else value


def _jars() -> Path:
    def fetching(jars: Path) -> list[str]:
        options = ["--quiet", "--batch-mode", "--file", str(_POM), f"-Dtrino.version={VERSION}", f"-DoutputDirectory={jars}"]
        return ["mvn", *options, "dependency:copy-dependencies"]

    return kept_folder(f"trino-{VERSION}", fetching)


def _java() -> str:
    home = java_home(REQUIRED_JAVA)
    assert home is not None
    return str(home / "bin" / "java")
