"""Iceberg's reference REST catalog server, in a process of its own: the server that the project ships for its clients' tests.

Its jars come from Maven Central the first time, fetched by the Ivy that pyspark carries, and stay in the user's cache folder. It keeps its
catalog in SQLite and its tables under file://, and answers on a free port of this machine without authentication. It has the endpoint for
scan planning on the server, which encrypted tables must never use.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import requests
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog

from tablecrypt_catalog import EncryptedRestCatalog
from tests.support.aws import AwsServer
from tests.support.java_version import java_executable
from tests.support.maven_jars import fetched_jars, pyspark_jars
from tests.support.server_process import RunningServer, ServerProcess, free_port

ICEBERG_VERSION: Final = "1.11.0"
MAIN_CLASS: Final = "org.apache.iceberg.rest.RESTCatalogServer"
_IVY_FILE: Final = Path(__file__).with_name("rest_server_ivy.xml")
_JARS: Final = f"iceberg-rest-server-{ICEBERG_VERSION}"


class RestServer(RunningServer):
    """One running server with a catalog of its own, which begins empty. `folder` takes its database, log and default warehouse."""

    def __init__(self, folder: Path) -> None:
        java = java_executable()
        assert java is not None
        port = free_port()
        self.uri = f"http://127.0.0.1:{port}"
        settings = {
            "CATALOG_REST_PORT": str(port),
            "CATALOG_WAREHOUSE": f"file://{folder}/warehouse",
            "CATALOG_URI": f"jdbc:sqlite:file:{folder}/catalog.db",
            # SQLite takes one writer at a time, and its driver fails where it would have to wait.
            "CATALOG_CLIENTS": "1",
        }
        command = [java, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-cp", _class_path(), MAIN_CLASS]
        self._server = ServerProcess(
            "REST catalog server", command, folder / "server.log", partial(answers, self.uri), os.environ | settings
        )


def new_namespace(server: RestServer) -> str:
    """A namespace that no other test uses."""
    namespace = f"db{secrets.token_hex(4)}"
    RestCatalog("maker", uri=server.uri).create_namespace(namespace)
    return namespace


def encrypted_rest_catalog(uri: str, aws: AwsServer, properties: Mapping[str, str] | None = None) -> EncryptedRestCatalog:
    """A client of the server at `uri`, with its keys in moto's KMS."""
    catalog = load_catalog(
        "prod", **{"py-catalog-impl": "tablecrypt_catalog.EncryptedRestCatalog", "uri": uri, **aws.kms_properties, **(properties or {})}
    )
    assert isinstance(catalog, EncryptedRestCatalog)
    return catalog


def _class_path() -> str:
    hadoop = [next(pyspark_jars().glob(f"{name}-[0-9]*.jar")) for name in ("hadoop-client-api", "hadoop-client-runtime")]
    return os.pathsep.join([f"{fetched_jars(_IVY_FILE, _JARS)}/*", *map(str, hadoop)])


def answers(uri: str) -> bool:
    """Whether a REST catalog's server answers at an address."""
    try:
        return requests.get(f"{uri}/v1/config", timeout=5).ok
    except requests.RequestException:
        return False
