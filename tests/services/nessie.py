"""Nessie, a catalog that runs in production and speaks Iceberg's REST protocol: its runner, one jar from Maven Central (245 MB)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from tests.services.programs import problem_without
from tests.services.versitygw import Versitygw
from tests.support.aws import REGION
from tests.support.java_version import java_home
from tests.support.kept_folders import kept_folder
from tests.support.rest_server import answers
from tests.support.server_process import RunningServer, ServerProcess, free_port

VERSION: Final = "0.99.0"
REQUIRED_JAVA: Final = 21
_ARTIFACT: Final = f"org.projectnessie.nessie:nessie-quarkus:{VERSION}:jar:runner"


def nessie_problem() -> str | None:
    """None where Nessie can run, else a sentence that says what is missing."""
    if java_home(REQUIRED_JAVA) is None:
        return f"Nessie needs Java {REQUIRED_JAVA} or newer: set JAVA_25_HOME."
    return problem_without("Nessie", "mvn")


class Nessie(RunningServer):
    """One running server, whose branches and tables are in memory and whose files are in a bucket.

    Attributes:
        address: what a client's `uri` begins with; Nessie itself calls it `address` and a slash.
        store: where its tables' files are.
    """

    def __init__(self, folder: Path, versitygw: Versitygw) -> None:
        port = free_port()
        self.store = versitygw.store("arrow")
        self.address = f"http://127.0.0.1:{port}/iceberg"
        access, secret = (self.store.properties[f"s3.{name}"] for name in ("access-key-id", "secret-access-key"))
        s3 = "nessie.catalog.service.s3.default-options"
        settings = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": str(port),
            "quarkus.management.port": str(free_port()),
            "nessie.version.store.type": "IN_MEMORY",
            "nessie.catalog.default-warehouse": "warehouse",
            "nessie.catalog.warehouses.warehouse.location": f"{self.store.address}/",
            f"{s3}.endpoint": self.store.properties["s3.endpoint"],
            f"{s3}.region": REGION,
            f"{s3}.path-style-access": "true",
            f"{s3}.access-key": "urn:nessie-secret:quarkus:tests.s3",
            "tests.s3.name": access,
            "tests.s3.secret": secret,
        }
        home = java_home(REQUIRED_JAVA)
        assert home is not None
        java = [str(home / "bin" / "java"), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx1g"]
        command = [*java, *(f"-D{name}={value}" for name, value in settings.items()), "-jar", str(_jar())]
        self._server = ServerProcess("Nessie", command, folder / "nessie.log", partial(answers, self.address))


def _jar() -> Path:
    def fetching(folder: Path) -> list[str]:
        copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
        return ["mvn", "--quiet", "--batch-mode", copy, f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={folder}"]

    return kept_folder(f"nessie-{VERSION}", fetching) / f"nessie-quarkus-{VERSION}-runner.jar"
