"""Compiling the Java sources into a running Spark application, once per SparkContext.

    java/*.java ──Janino, in the driver──▶ classes ──jar──▶ SparkContext.addJar: executors load it before their next task
                                                └──────▶ a KeyBroker in the driver

Raises ConfigurationError where the sources do not compile: a Spark whose internals differ from those that they are written for.
"""

from __future__ import annotations

import atexit
import hashlib
import secrets
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from tablecrypt.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE: Final = "tablecrypt.jvm"
# Each may use those before it.
CLASSES: Final = (
    "PlannedFiles",
    "BrokerAnswer",
    "BrokerClient",
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
    "RowSupports",
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
        jar = _jar(_compiled(spark.sparkContext._jvm))
        spark.sparkContext._jsc.addJar(str(jar))
        loader = _loader(spark, jar)
        name = f"tablecrypt-{secrets.token_hex(8)}"
        broker = loader.loadClass(f"{PACKAGE}.KeyBroker").getConstructors()[0].newInstance(_objects(spark, name))
        return JvmSide(broker, name, bytes(broker.publicKey()))
    except Py4JError as error:
        raise ConfigurationError(f"the JVM path does not run on Spark {spark.version}: {error}") from error


def _compiled(jvm: Any) -> dict[str, bytes]:
    """Return the bytecode of all classes by name."""
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    bytecode: dict[str, bytes] = {}
    for name in CLASSES:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(f"{name}.java", source(name))
        compiled = compiler.getBytecodes()
        bytecode |= {class_name: bytes(compiled.get(class_name)) for class_name in list(compiled.keySet())}
        loader = compiler.getClassLoader()
    return bytecode


def source(name: str) -> str:
    """Return the Java source of a class."""
    return (resources.files(__package__) / "java" / f"{name}.java").read_text(encoding="utf-8")


def _jar(classes: dict[str, bytes]) -> Path:
    """Write a jar, which executors fetch for as long as the application runs. Its name says what is in it."""
    digest = hashlib.sha256()
    for name in sorted(classes):
        digest.update(name.encode() + classes[name])
    folder = Path(tempfile.mkdtemp(prefix="tablecrypt-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / f"tablecrypt-{digest.hexdigest()[:16]}.jar"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as jar:
        for name, content in classes.items():
            jar.writestr(name.replace(".", "/") + ".class", content)
    return path


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
