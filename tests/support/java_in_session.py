"""Iceberg Java in the tests' own Spark session, beside the catalogs of tablecrypt: asked as the one in a process of its own is.

The session must have been started with `jar_settings()`. Iceberg's catalog `h` lives in a second session of the same application, with
times of its own in UTC, so that no setting of a test reaches it. Its AWS environment is that of the test process.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.aws import REGION
from tests.support.java import BUCKETS, JavaError, JavaOracle, skip_without_its_spark
from tests.support.java_oracle import ICEBERG_VERSION, Oracle, catalog_settings, metastore_settings, without_stack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class JavaInSession(JavaOracle):
    """Iceberg Java with an empty catalog in the application of `spark`. Its failures are JavaErrors; it ends with the application."""

    def __init__(self, spark: SparkSession, folder: Path, endpoint: str) -> None:
        skip_without_its_spark()
        self._use_folder(folder)
        session = spark.newSession()
        session.conf.set("spark.sql.session.timeZone", "UTC")
        for name, value in metastore_settings(folder, list(BUCKETS)).items():
            session.conf.set(name.replace("spark.hadoop.", "spark.sql.catalog.h.hadoop."), value)
        for name, value in catalog_settings(folder, endpoint, REGION).items():
            session.conf.set(name, value)
        self.versions = {"iceberg": ICEBERG_VERSION, "spark": session.version}
        self._operations = Oracle(session)

    def stop(self) -> None:
        """Leave the application to its owner."""

    def _ask(self, operation: str, **arguments: Any) -> Any:
        try:
            return getattr(self._operations, operation)(**arguments)
        except Exception as error:
            raise JavaError(without_stack(f"{type(error).__name__}: {error}")) from error
