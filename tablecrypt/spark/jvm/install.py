"""Compiling the Java sources into a running Spark application, once per SparkContext, and asking its Hadoop about a file.

    java/*.java ──Janino, in the driver──▶ classes ──jar──▶ SparkContext.addJar: executors load it before their next task
                                                └──────▶ a DriverEndpoint in the driver

The jar lies in a folder of its own, which goes when this process ends: executors fetch it for as long as the application runs.

Raises ConfigurationError where the sources do not compile: a Spark whose internals differ from those that they are written for.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import secrets
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
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
    "Requests",
    "SparkProcess",
    "PlannedFiles",
    "ReadResponse",
    "DriverClient",
    "CheckedStream",
    "CheckedFileSystem",
    "ReadKeys",
    "ReadByIds",
    "ReadFunction",
    "FieldIds",
    "ReadLoader",
    "ReadFormat",
    "LiveRows",
    "WriteJob",
    "RequiredValues",
    "NanCounts",
    "PartitionedRows",
    "EncryptedResult",
    "FileOutput",
    "RowSupport",
    "EncryptedFile",
    "WriteAttempt",
    "WriteTask",
    "TaskResults",
    "WriteRun",
    "PendingRequest",
    "WriteCoordinator",
    "Bucket",
    "DriverEndpoint",
)
_lock = Lock()
logger = logging.getLogger(__name__)


def compiled(jvm: Any, sources: Mapping[str, str]) -> dict[str, bytes]:
    """Return the bytecode of all classes by name.

    Args:
        jvm: the gateway to the driver's JVM.
        sources: what the files are called, without .java, and their text. Each may use the classes of those before it.
    """
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    bytecode: dict[str, bytes] = {}
    for name, text in sources.items():
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(f"{name}.java", text)
        classes = compiler.getBytecodes()
        bytecode |= {class_name: bytes(classes.get(class_name)) for class_name in list(classes.keySet())}
        loader = compiler.getClassLoader()
    return bytecode


def write_jar(classes: Mapping[str, bytes], services: Mapping[str, str] | None = None) -> Path:
    """Write a jar. Its name says what is in it.

    Args:
        classes: bytecode by class name.
        services: for each interface that java.util.ServiceLoader looks for, the class that implements it.
    """
    entries = {name.replace(".", "/") + ".class": content for name, content in classes.items()}
    entries |= {f"META-INF/services/{interface}": name.encode() for interface, name in (services or {}).items()}
    digest = hashlib.sha256()
    for name in sorted(entries):
        digest.update(name.encode() + entries[name])
    folder = Path(tempfile.mkdtemp(prefix="tablecrypt-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / f"tablecrypt-{digest.hexdigest()[:16]}.jar"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as jar:
        for name, content in entries.items():
            jar.writestr(name, content)
    return path


@dataclass(frozen=True)
class JvmSide:
    """What runs in the driver's JVM: the endpoint (a Py4J object), its name among Spark's RPC endpoints, and its RSA public key in DER."""

    endpoint: Any
    name: str
    public_key: bytes


_installed: dict[str, JvmSide] = {}


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
        endpoint = loader.loadClass(f"{PACKAGE}.DriverEndpoint").getConstructors()[0].newInstance(_objects(spark, name))
        return JvmSide(endpoint, name, bytes(endpoint.publicKey()))
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


def length_in_hadoop(spark: SparkSession, location: str) -> int | None:
    """Return the length in bytes of the file that Hadoop has at a location; None where it finds none."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    context: Any = spark.sparkContext
    try:
        path = context._jvm.org.apache.hadoop.fs.Path(location)
        return int(path.getFileSystem(context._jsc.hadoopConfiguration()).getFileStatus(path).getLen())
    except (Py4JError, PySparkException) as error:
        logger.debug("Hadoop does not find %s: %s", location, error)
        return None
