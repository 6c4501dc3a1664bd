"""A real Hive metastore (2.3.10, from PySpark's own jars) on a free port, with its database in memory."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast

from hive_metastore.ThriftHiveMetastore import Client
from pyiceberg.catalog import load_catalog
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from tablecrypt_catalog.hive import EncryptedHiveCatalog
from tests.support.aws import AwsServer
from tests.support.java_version import java_executable
from tests.support.server_process import RunningServer, ServerProcess, free_port

_SERVER: Final = Path(__file__).with_name("java_src") / "HiveMetastoreServer.java"
_SETTINGS: Final[Mapping[str, str]] = {
    "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
    "datanucleus.schema.autoCreateAll": "true",
    "datanucleus.connectionPoolingType": "dbcp",
    "hive.metastore.schema.verification": "false",
    "hive.metastore.disallow.incompatible.col.type.changes": "false",
}


class HiveMetastore(RunningServer):
    """One running metastore, which begins empty. `folder` takes its log and the warehouse that Hive wants to have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._port = free_port()
        self.uri = f"thrift://127.0.0.1:{self._port}"
        settings = {**_SETTINGS, "hive.metastore.warehouse.dir": f"file://{folder}/hive-warehouse"}
        # Short life: the first JIT tier alone and the serial collector start faster and hold less memory.
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx1g", f"-Dderby.stream.error.file={folder}/derby.log"]
        arguments = [str(self._port), *(f"{name}={value}" for name, value in settings.items())]
        java = java_executable() or "java"
        command = [java, *options, "-cp", f"{_spark_jars()}/*", str(_SERVER), *arguments]
        self._server = ServerProcess("Hive metastore", command, folder / "metastore.log", self._answers)

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A plain Thrift connection: what the metastore itself says, past every catalog."""
        transport = TBufferedTransport(TSocket("127.0.0.1", self._port))
        transport.open()
        try:
            yield Client(TBinaryProtocol(transport))
        finally:
            transport.close()

    def parameters(self, identifier: str) -> dict[str, str]:
        """The parameters of the entry of "database.table"."""
        database, _, table = identifier.partition(".")
        with self.client() as client:
            return dict(client.get_table(database, table).parameters)

    def change_parameters(self, identifier: str, changes: Mapping[str, str | None]) -> None:
        """Set parameters of an entry, or remove those whose new value is None."""
        database, _, table = identifier.partition(".")
        with self.client() as client:
            entry = client.get_table(database, table)
            changed = {**entry.parameters, **changes}
            entry.parameters = {name: value for name, value in changed.items() if value is not None}
            client.alter_table(database, table, entry)

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return "default" in client.get_all_databases()
        except TTransportException:
            return False


def encrypted_hive_catalog(
    metastore: HiveMetastore, folder: Path, aws: AwsServer, properties: Mapping[str, str] | None = None
) -> EncryptedHiveCatalog:
    """A catalog on the metastore, for tables in `folder`."""
    catalog = load_catalog(
        "shared",
        **{
            "py-catalog-impl": "tablecrypt_catalog.EncryptedHiveCatalog",
            "uri": metastore.uri,
            "warehouse": f"file://{folder}",
            # This metastore knows no type of timestamps with a zone.
            "hive.hive2-compatible": "true",
            **aws.kms_properties,
            **(properties or {}),
        },
    )
    return cast("EncryptedHiveCatalog", catalog)


def _spark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "jars"
