"""The attack matrix through Spark: what executors read on the Python path, and Spark's own reader on the JVM path.

Who reads metadata.json, the manifest list and the manifests is the driver, with the code that every reader has. So files are attacked here,
each in every way, and of metadata.json what a first use admits. The same rules decide.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest
from pyiceberg.table import Table

import tablecrypt.spark as tcs
from tablecrypt.spark.read import Path
from tests.security.matrix.attacks import Attack, document_attacks, file_attacks
from tests.security.matrix.cells import Matrix, check
from tests.security.matrix.clients import BY_CATALOG, FIRST_USE, Clients
from tests.security.matrix.readers import Reader, ReportedError
from tests.security.matrix.scene import NAME, Rows, Scene, ordered
from tests.support.aws import AwsServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.campaign, pytest.mark.timeout(7200), pytest.mark.filterwarnings("ignore")]

NAMED: Final = ("TamperedFileError", "AuthenticationError", "FormatError", "PlaintextRefusedError", "FileNotFoundError", "KeyNotFoundError")
"""What an executor raised, in the text of Spark's error."""
OF_THE_JVM: Final = ("ParquetCryptoRuntimeException", "AEADBadTagException", "FileNotFoundException", "FAILED_READ_FILE")
"""What Spark's own reader raises; the last one names the file."""


@pytest.fixture(scope="module")
def matrix(spark: SparkSession, aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    scene = Scene.make(tmp_path_factory.mktemp("matrix"), aws, default=None)
    readers = [
        Reader("Spark, Python path", lambda _: _rows(spark, scene, "python"), _same),
        Reader("Spark, JVM path", lambda _: _rows(spark, scene, "jvm"), _same),
    ]
    logging.disable(logging.WARNING)
    matrix = Matrix(scene, SparkClients(scene), (FIRST_USE, BY_CATALOG), readers)
    matrix.learn()
    yield matrix
    logging.disable(logging.NOTSET)


class SparkClients(Clients):
    """Spark loads tables of the catalog in the database by its properties: for a first use the pins are gone before that."""

    def load(self, client: str) -> Table:
        """Load the table here, as Spark is going to do."""
        if client == FIRST_USE:
            self.scene.execute("DELETE FROM tablecrypt_pins")
        return super().load(BY_CATALOG)


def _same(rows: Rows) -> Rows:
    return rows


def _rows(spark: SparkSession, scene: Scene, path: Path) -> Rows:
    properties = {**scene.catalog.properties, "py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog"}
    found = tcs.read_table(spark, f"prod.{NAME}", path=path, catalog_properties=properties)
    try:
        return ordered(row.asDict() for row in found.collect())
    except Exception as error:
        if any(name in str(error) for name in (*NAMED, *OF_THE_JVM)):
            raise ReportedError(str(error)) from error
        raise


def test_no_attack_on_what_executors_read_is_accepted(matrix: Matrix) -> None:
    check(matrix.run(_attacks(matrix.scene)))


def _attacks(scene: Scene) -> list[Attack]:
    """Each way of attacking a file on one file of each kind, and all on the document."""
    ways = {(attack.target, attack.how): attack for attack in file_attacks(scene)}
    whole = [attack for attack in document_attacks(scene) if attack.how != "a byte changed"]
    return [*ways.values(), *whole]
