"""Bringing the Java classes to a running Spark application, once per JVM, and asking its Hadoop about a file.

    the jar (jar.py) ──▶ the driver's class loader: all its threads and sessions
                    └──▶ SparkContext.addJar: executors, before their next task

An application that was started with the jar (`tablecrypt spark-jar`) has the classes already. Else they come from a copy of it in a folder
of this process, which goes when the process ends: executors fetch it for as long as the application runs.

Raises ConfigurationError where the sources do not compile (a Spark whose internals differ from those that they are written for), or where
the application was started with a jar of other sources.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from tablecrypt.errors import ConfigurationError
from tablecrypt.files.locations import with_scheme
from tablecrypt.spark.shared.jar import jar_of
from tablecrypt.spark.shared.sources import DIGEST_CLASS, PACKAGE, JavaSources, spark_digest, spark_sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_lock = Lock()
logger = logging.getLogger(__name__)


def jar_for(spark: SparkSession, sources: JavaSources) -> Path:
    """Return a copy of the jar of these sources that lasts as long as this process, in a folder that is this user's alone.

    Raises:
        ConfigurationError: TABLECRYPT_CACHE names no folder.
        Py4JError: the sources do not compile.
    """
    content = jar_of(sources, spark.version, lambda: contextlib.nullcontext(spark.sparkContext._gateway))
    # mkdtemp makes a folder that only this user may write: another could put classes into the driver's JVM.
    folder = Path(tempfile.mkdtemp(prefix="tablecrypt-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / f"{sources.name}-{sources.digest()[:16]}.jar"
    path.write_bytes(content)
    return path


@dataclass(frozen=True)
class JvmSide:
    """What runs in the driver's JVM: the endpoint (a Py4J object), its name among Spark's RPC endpoints, and its public key in DER."""

    endpoint: Any
    name: str
    public_key: bytes


_sides: dict[str, JvmSide] = {}
_jars: list[Path] = []
"""The jar of this process's JVM. It outlives its SparkContexts, and each of these gives the jar to its executors."""


def jvm_side(spark: SparkSession) -> JvmSide:
    """Return the JVM side of the session's SparkContext, installed on first use.

    Raises:
        ConfigurationError: this Spark cannot compile or take its classes.
    """
    application = spark.sparkContext.applicationId
    with _lock:
        if application not in _sides:
            _sides[application] = _installed(spark)
        return _sides[application]


def _installed(spark: SparkSession) -> JvmSide:
    from py4j.protocol import Py4JError

    try:
        loader = _extensible_loader(spark)
        if _digest_in(loader) is None:
            _install(spark, loader)
        # Classes and Python agree on messages with keys in them: those of another version may check less.
        elif _digest_in(loader) != spark_digest(spark_sources().texts):
            raise ConfigurationError(
                "this Spark application has tablecrypt's Java classes of another version: start it with the jar that this version's "
                "`tablecrypt spark-jar` writes, or without one"
            )

        for jar in _jars:
            spark.sparkContext._jsc.addJar(str(jar))
        endpoint = loader.loadClass(f"{PACKAGE}.DriverEndpoint").getMethod("current", None).invoke(None, None)

        return JvmSide(endpoint, str(endpoint.name()), bytes(endpoint.publicKey()))
    except Py4JError as error:
        raise ConfigurationError(f"the JVM path does not run on Spark {spark.version}: {error}") from error


def _install(spark: SparkSession, loader: Any) -> None:
    gateway: Any = spark.sparkContext._gateway
    jar = jar_for(spark, spark_sources())
    loader.addURL(gateway.jvm.java.io.File(str(jar)).toURI().toURL())
    _jars.append(jar)


def _digest_in(loader: Any) -> str | None:
    """Return the digest of the sources whose classes a loader finds; None where it finds none."""
    from py4j.protocol import Py4JJavaError

    try:
        return str(loader.loadClass(f"{PACKAGE}.{DIGEST_CLASS}").getField("VALUE").get(None))
    except Py4JJavaError:
        return None


def _extensible_loader(spark: SparkSession) -> Any:
    """Return the class loader of all threads and sessions of the driver, to which Spark itself adds the jars of `spark.jars`."""
    jvm: Any = spark.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    kind = jvm.java.lang.Class.forName("org.apache.spark.util.MutableURLClassLoader")
    while loader is not None and not kind.isInstance(loader):
        loader = loader.getParent()
    if loader is None:
        raise ConfigurationError(
            "this Spark application takes no classes while it runs: start it with spark.jars=FILE, made by `tablecrypt spark-jar -o FILE`"
        )

    return loader


def length_in_hadoop(spark: SparkSession, side: JvmSide, location: str) -> int | None:
    """Return the length in bytes of the file that Hadoop has at a location; None where it finds none."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    context: Any = spark.sparkContext

    try:
        return int(side.endpoint.length(with_scheme(location), context._jsc.hadoopConfiguration()))
    except (Py4JError, PySparkException) as error:
        logger.debug("Hadoop does not find %s: %s", location, error)
        return None
