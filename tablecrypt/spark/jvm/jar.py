"""The jar of all Java classes: for Connect servers, spark-sql, spark-shell, the Thrift server and clusters that start with it.

    tablecrypt spark-jar -o tablecrypt-spark.jar     compiled by the Janino of the PySpark that is installed; no JDK is needed
    spark-submit --jars tablecrypt-spark.jar …       on Spark 4.0 to 4.3, whichever of them compiled it

Entries are in the order of their names and have no time, so that the same sources and the same compiler make the same bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tablecrypt._atomic_file import atomic_file
from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.jvm.install import PACKAGE, compiled, sources, write_entries
from tablecrypt.spark.session import check_java, check_spark_version

_SERVICES: Final = {"org.apache.spark.sql.SparkSessionExtensionsProvider": f"{PACKAGE}.SqlExtensions"}
"""What Spark finds by itself in a jar on its class path."""


def write_spark_jar(target: Path) -> None:
    """Compile the classes and write the jar. A file that was there is replaced once the jar is whole.

    Raises:
        ConfigurationError: there is no Java 17 or newer, PySpark is too old, the sources do not compile with it, or the file cannot be
            written.
    """
    import pyspark
    from py4j.protocol import Py4JError

    check_spark_version(pyspark.__version__)
    check_java()
    try:
        with _compiling_jvm() as gateway:
            classes = compiled(gateway, sources())
    except Py4JError as error:
        raise ConfigurationError(f"the Java classes do not compile with PySpark {pyspark.__version__}: {error}") from error
    try:
        with atomic_file(target, private=False) as file:
            write_entries(file, classes, _SERVICES)
    except OSError as error:
        raise ConfigurationError(f"the jar {target} cannot be written ({error.strerror})") from error


@contextlib.contextmanager
def _compiling_jvm() -> Iterator[Any]:
    """Give Py4J's gateway to a JVM with Spark's jars, in which no Spark application runs. It ends with the block."""
    from pyspark.java_gateway import launch_gateway

    launch: Callable[[], Any] = launch_gateway
    gateway = launch()
    try:
        yield gateway
    finally:
        gateway.shutdown()
        # The JVM ends when its standard input does.
        gateway.proc.stdin.close()
        gateway.proc.wait()
