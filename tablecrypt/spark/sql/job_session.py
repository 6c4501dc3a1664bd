"""A Spark session in a process beside the driver, for the jobs of one procedure.

    the driver's JVM    opens a Py4J server on the loopback address, with a fresh secret, for one call
    this process        gets port and secret through its pipe, and makes of them PySpark's session of the same application

PySpark lets a process have one such session, so the driver starts a process for each call that runs jobs, and the planner never has one:
it listens nowhere. The session is the application's: nothing here may stop it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypedDict

from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import Runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PORT: Final = "PYSPARK_GATEWAY_PORT"
_SECRET: Final = "PYSPARK_GATEWAY_SECRET"
_EXECUTORS_PYTHON: Final = "PYSPARK_PYTHON"


class Gateway(TypedDict):
    """Where the driver's Py4J server listens, and a tag by which the driver cancels the jobs when the procedure ends before they do."""

    port: int
    secret: str
    tag: str


@contextmanager
def runner_of(gateway: Gateway | None) -> Iterator[Runner | None]:
    """Give a runner on the executors of the application that a gateway leads to; None without a gateway.

    Raises:
        ConfigurationError: PySpark here is of another version than the application.
    """
    if gateway is None:
        yield None
        return

    connection = _connection(str(gateway["port"]), gateway["secret"])

    try:
        from tablecrypt.spark.runner import SparkRunner

        session = _session(connection)
        session.sparkContext.addJobTag(gateway["tag"])
        yield SparkRunner(session)
    finally:
        # Closes the connection alone: stopping the session would end the application.
        connection.shutdown()


def _connection(port: str, secret: str) -> Any:
    """Connect as PySpark does where the JVM was started first. It takes both from the environment, where they stay no longer than that."""
    from pyspark.java_gateway import launch_gateway

    os.environ[_PORT], os.environ[_SECRET] = port, secret
    try:
        connect: Callable[[], Any] = launch_gateway
        return connect()
    finally:
        del os.environ[_PORT], os.environ[_SECRET]


def _session(connection: Any) -> SparkSession:
    import pyspark
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    jvm = connection.jvm
    java_context = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(jvm.org.apache.spark.SparkContext.getOrCreate())
    if java_context.version() != pyspark.__version__:
        raise ConfigurationError(
            f"the planner's Python has PySpark {pyspark.__version__}, and the application runs Spark {java_context.version()}: install the "
            "same version there, or call the procedure with workers => 4, which needs no Spark jobs"
        )

    # PySpark would start `python3` on executors, which may be one without this package.
    os.environ.setdefault(_EXECUTORS_PYTHON, sys.executable)
    conf = SparkConf(_jvm=jvm, _jconf=java_context.getConf())
    context = SparkContext(gateway=connection, jsc=java_context, conf=conf)

    return SparkSession(context)
