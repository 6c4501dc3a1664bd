"""What each extra is for, tried once: `python features.py EXTRA PLACES` runs in an environment that has the extra, and prints the answer.

PLACES is JSON: the addresses of the services that the tests have started. Services that cannot be had are asked where nobody listens: the
answer is then the error of ours that says so.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

WITHOUT_EXTRA: Final = "tables"
"""What needs no extra."""
NOBODY: Final = "127.0.0.1:9"
ROWS: Final = [[2, "desk"], [3, "chair"]]


@dataclass(frozen=True)
class Feature:
    """What to run, given a folder and the places of services, and what it answers."""

    run: Callable[[Path, Mapping[str, Any]], Any]
    answer: Any


def a_table(folder: Path, **properties: str) -> Any:
    """An encrypted table of three rows, under a key file and in a SQLite catalog unless the properties say otherwise."""
    import pyarrow as pa

    from tablecrypt import load_catalog
    from tablecrypt.kms.local_file import create_key_file

    create_key_file(folder / "orders.keys", "orders", 32)
    catalog = load_catalog(
        "prod",
        **{
            "type": "tablecrypt",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"{folder}/warehouse",
            "encryption.kms-type": "local",
            "kms.local.key-file": f"{folder}/orders.keys",
            **properties,
        },
    )
    catalog.create_namespace("db")
    rows = pa.table({"id": [1, 2, 3], "item": ["lamp", "desk", "chair"]})
    table = catalog.create_table("db.orders", rows.schema, properties={"encryption.key-id": "orders"})
    table.append(rows)
    return table


def rows_of(table: Any) -> list[list[Any]]:
    return [list(row.values()) for row in table.scan("id > 1").to_arrow().sort_by("id").to_pylist()]


def unwraps_what_it_wraps(properties: Mapping[str, str], key_id: str) -> bool:
    from tablecrypt import load_kms

    kms, key = load_kms(properties), secrets.token_bytes(32)
    return kms.unwrap_key(kms.wrap_key(key, key_id), key_id) == key


def tables(folder: Path, places: Mapping[str, Any]) -> Any:
    return rows_of(a_table(folder))


def aws(folder: Path, places: Mapping[str, Any]) -> Any:
    kms = {"encryption.kms-type": "aws", "kms.endpoint": places["endpoint"], "client.region": places["region"]}
    return unwraps_what_it_wraps(kms, "alias/orders")


def gcp(folder: Path, places: Mapping[str, Any]) -> Any:
    kms = {"encryption.kms-type": "gcp", "gcp.kms.endpoint": f"http://{NOBODY}", "gcs.oauth2.token": "none"}
    return unanswered(kms, "projects/p/locations/eu/keyRings/r/cryptoKeys/k")


def azure(folder: Path, places: Mapping[str, Any]) -> Any:
    from azure.core.credentials import AccessToken

    from tablecrypt.errors import KmsError
    from tablecrypt.kms.azure import AzureKeyManagementClient

    class Credential:
        def get_token(self, *scopes: str, **options: Any) -> AccessToken:
            return AccessToken("none", 4_102_444_800)

    kms = AzureKeyManagementClient({"azure.keyvault.url": f"https://{NOBODY}"}, Credential())
    return refusal(kms, "orders", KmsError)


def vault(folder: Path, places: Mapping[str, Any]) -> Any:
    return unanswered({"encryption.kms-type": "vault", "vault.url": f"http://{NOBODY}", "vault.token": "none"}, "orders")


def unanswered(properties: Mapping[str, str], key_id: str) -> str:
    from tablecrypt import load_kms
    from tablecrypt.errors import KmsError

    return refusal(load_kms({**properties, "encryption.kms.retry-budget-ms": "0"}), key_id, KmsError)


def refusal(kms: Any, key_id: str, expected: type[Exception]) -> str:
    try:
        kms.wrap_key(secrets.token_bytes(32), key_id)
    except expected as error:
        return type(error).__name__
    return "no error"


def lzo(folder: Path, places: Mapping[str, Any]) -> Any:
    from tablecrypt import orc

    return orc.read_table(places["lzo"], columns=["id"]).num_rows > 0


def spark(folder: Path, places: Mapping[str, Any]) -> Any:
    from pyspark.sql import SparkSession

    import tablecrypt.spark as tcs

    table = a_table(folder)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    read = tcs.read_table(
        session, "prod.db.orders", row_filter="id > 1", catalog_properties={**table.catalog.properties, "type": "tablecrypt"}
    )
    rows = [list(row) for row in read.orderBy("id").collect()]
    session.stop()
    return rows


def report(folder: Path, places: Mapping[str, Any]) -> Any:
    from tablecrypt import maintenance
    from tablecrypt.maintenance.report import html_page

    return html_page(maintenance.audit(a_table(folder).catalog)).partition("\n")[0]


def cli(folder: Path, places: Mapping[str, Any]) -> Any:
    from tablecrypt.cli.main import run

    properties = {**a_table(folder).catalog.properties, "type": "tablecrypt"}
    given = [part for name, value in properties.items() for part in ("--property", f"{name}={value}")]
    try:
        run(["--quiet", "--catalog", "prod", *given, "audit", "db.orders", "--html", f"{folder}/audit.html"])
    except SystemExit as end:
        return [end.code, (folder / "audit.html").read_text(encoding="utf-8").partition("\n")[0]]


def adlfs(folder: Path, places: Mapping[str, Any]) -> Any:
    return file_system("abfss", {"adls.account-name": "orders", "adls.account-key": "bm9uZQ=="})


def gcsfs(folder: Path, places: Mapping[str, Any]) -> Any:
    return file_system("gs", {"gcs.oauth2.token": "anon", "gcs.project-id": "none"})


def file_system(scheme: str, properties: Mapping[str, str]) -> str:
    """The package of the file system that PyIceberg makes for a scheme: nothing is sent yet."""
    from pyiceberg.io.fsspec import FsspecFileIO

    return type(FsspecFileIO(dict(properties)).get_fs(scheme)).__module__.partition(".")[0]


def duckdb(folder: Path, places: Mapping[str, Any]) -> Any:
    connection = a_table(folder).scan("id > 1").to_duckdb("orders")
    return [list(row) for row in connection.execute("SELECT * FROM orders ORDER BY id").fetchall()]


def glue(folder: Path, places: Mapping[str, Any]) -> Any:
    catalog = {"type": "tablecrypt", "py-catalog-impl": "tablecrypt_catalog.EncryptedGlueCatalog", "glue.endpoint": places["endpoint"]}
    properties = {**catalog, "glue.region": places["region"], "warehouse": f"s3://{places['bucket']}/glue", **places["s3"]}
    return rows_of(a_table(folder, **properties))


def hive(folder: Path, places: Mapping[str, Any]) -> Any:
    from thrift.transport.TTransport import TTransportException

    try:
        a_table(folder, uri=f"thrift://{NOBODY}")
    except TTransportException as error:
        return type(error).__name__


def pandas(folder: Path, places: Mapping[str, Any]) -> Any:
    return a_table(folder).scan("id > 1").to_pandas().sort_values("id").to_numpy().tolist()


def polars(folder: Path, places: Mapping[str, Any]) -> Any:
    table = a_table(folder)
    assert table.to_polars().collect().shape == (3, 2)
    return [list(row) for row in table.scan("id > 1").to_polars().sort("id").rows()]


def ray(folder: Path, places: Mapping[str, Any]) -> Any:
    import ray as ray_itself

    import tablecrypt.ray as tcr

    ray_itself.init(num_cpus=1, include_dashboard=False)
    dataset = tcr.read_table(a_table(folder).scan("id > 1"))
    return [list(row.values()) for row in sorted(dataset.take_all(), key=lambda row: row["id"])]


def daft(folder: Path, places: Mapping[str, Any]) -> Any:
    import tablecrypt.daft as tcd

    read = tcd.read_table(a_table(folder).scan("id > 1")).to_pydict()
    return sorted([list(row) for row in zip(*read.values(), strict=True)])


def s3fs(folder: Path, places: Mapping[str, Any]) -> Any:
    stored = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO", "warehouse": f"s3://{places['bucket']}/s3fs"}
    return rows_of(a_table(folder, **stored, **places["s3"]))


def sql_postgres(folder: Path, places: Mapping[str, Any]) -> Any:
    return rows_of(a_table(folder, uri=places["postgres"]))


CONTRACT: Final = """
import pytest
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.testing import KeyManagementClientContract


class TestMemory(KeyManagementClientContract):
    @pytest.fixture
    def client(self):
        return MemoryKeyManagementClient({"kms.memory.name": "packages"}, {"one": bytes(range(16)), "other": bytes(range(1, 17))})

    @pytest.fixture
    def wrapping_key_id(self):
        return "one"

    @pytest.fixture
    def other_wrapping_key_id(self):
        return "other"

    @pytest.fixture
    def missing_key_id(self):
        return "none"
"""


def testing(folder: Path, places: Mapping[str, Any]) -> Any:
    import pytest

    module = folder / "test_memory.py"
    module.write_text(CONTRACT)
    return int(pytest.main(["--quiet", "-p", "no:cacheprovider", f"--rootdir={folder}", str(module)]))


FEATURES: Final[Mapping[str, Feature]] = {
    WITHOUT_EXTRA: Feature(tables, ROWS),
    "aws": Feature(aws, True),
    "gcp": Feature(gcp, "KmsUnavailableError"),
    "azure": Feature(azure, "KmsUnavailableError"),
    "vault": Feature(vault, "KmsUnavailableError"),
    "lzo": Feature(lzo, True),
    "spark": Feature(spark, ROWS),
    "ray": Feature(ray, ROWS),
    "daft": Feature(daft, ROWS),
    "report": Feature(report, "<!doctype html>"),
    "cli": Feature(cli, [0, "<!doctype html>"]),
    "adlfs": Feature(adlfs, "adlfs"),
    "gcsfs": Feature(gcsfs, "gcsfs"),
    "duckdb": Feature(duckdb, ROWS),
    "glue": Feature(glue, ROWS),
    "hive": Feature(hive, "TTransportException"),
    "pandas": Feature(pandas, ROWS),
    "polars": Feature(polars, ROWS),
    "s3fs": Feature(s3fs, ROWS),
    "sql-postgres": Feature(sql_postgres, ROWS),
    "testing": Feature(testing, 0),
}


def main(extra: str, places: Mapping[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        answer = FEATURES[extra].run(Path(folder), places)
    sys.stdout.write(f"\n{json.dumps(answer)}\n")


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
