"""Compiling the Java sources into a running Spark application, once per SparkContext.

    java/*.java ──Janino, in the driver──▶ classes ──jar──▶ SparkContext.addJar: executors load it before their next task
                                                └──────▶ a KeyBroker in the driver

Raises ConfigurationError where the sources do not compile: a Spark whose internals differ from those that they are written for.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.jvm.java_classes import compiled, write_jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE: Final = "tablecrypt.jvm"
# Each may use those before it.
CLASSES: Final = (
    "PlannedFiles",
    "BrokerAnswer",
    "BrokerClient",
    "CheckedStream",
    "CheckedFileSystem",
    "ReadKeys",
    "ReadByIds",
    "ReadFunction",
    "FieldIds",
    "ReadLoader",
    "ReadFormat",
    "LivingRows",
    "WriteJob",
    "RequiredValues",
    "NanCounts",
    "PartitionedRows",
    "SealedAnswer",
    "FileOutput",
    "RowSupport",
    "EncryptedFile",
    "WriteAttempt",
    "WriteTask",
    "TaskAnswers",
    "WriteRun",
    "WriteQuestion",
    "WriteDesk",
    "Bucket",
    "KeyBroker",
)


@dataclass(frozen=True)
class JvmSide:
    """What runs in the driver's JVM: the broker (a Py4J object), its name among Spark's RPC endpoints, and its RSA public key in DER."""

    broker: Any
    name: str
    public_key: bytes


_installed: dict[str, JvmSide] = {}
_lock = Lock()


def jvm_side(spark: SparkSession) -> JvmSide:
    """Return the JVM side of the session's SparkContext, compiled and installed on first use.

    Raises:
        ConfigurationError: this Spark cannot compile or take it.
    """
    context = spark.sparkContext
    with _lock:
        if context.applicationId not in _installed:
            _installed[context.applicationId] = _install(spark)
        return _installed[context.applicationId]


def _install(spark: SparkSession) -> JvmSide:
    from py4j.protocol import Py4JError

    try:
        jar = write_jar(compiled(spark.sparkContext._jvm, {name: source(name) for name in CLASSES}))
        spark.sparkContext._jsc.addJar(str(jar))
        loader = _loader(spark, jar)
        name = f"tablecrypt-{secrets.token_hex(8)}"
        broker = loader.loadClass(f"{PACKAGE}.KeyBroker").getConstructors()[0].newInstance(_objects(spark, name))
        return JvmSide(broker, name, bytes(broker.publicKey()))
    except Py4JError as error:
        raise ConfigurationError(f"the JVM path does not run on Spark {spark.version}: {error}") from error


def source(name: str) -> str:
    """Return the Java source of a class."""
    return (resources.files(__package__) / "java" / f"{name}.java").read_text(encoding="utf-8")


def _loader(spark: SparkSession, jar: Path) -> Any:
    """Return one class loader for all classes: those of a package see each other only there."""
    gateway: Any = spark.sparkContext._gateway
    urls = gateway.new_array(gateway.jvm.java.net.URL, 1)
    urls[0] = gateway.jvm.java.io.File(str(jar)).toURI().toURL()
    return gateway.jvm.java.net.URLClassLoader(urls, gateway.jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader())


def _objects(spark: SparkSession, *values: Any) -> Any:
    gateway: Any = spark.sparkContext._gateway
    array = gateway.new_array(gateway.jvm.java.lang.Object, len(values))
    for index, value in enumerate(values):
        array[index] = value
    return array
