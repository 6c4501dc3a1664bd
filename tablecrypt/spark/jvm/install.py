"""Compiling the Java sources into a running Spark application, once per JVM, and asking its Hadoop about a file.

    jvm/java/*.java, sql/java/*.java ──Janino, in the driver──▶ classes ──jar──▶ the driver's class loader: all its threads and sessions
                                                                         └────▶ SparkContext.addJar: executors, before their next task

An application that was started with the jar (`tablecrypt spark-jar`) has the classes already, and nothing is compiled. The jar that is
compiled here lies in a folder of its own, which goes when this process ends: executors fetch it for as long as the application runs.

Raises ConfigurationError where the sources do not compile (a Spark whose internals differ from those that they are written for), or where
the application was started with a jar of other sources.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import logging
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from tablecrypt.errors import ConfigurationError
from tablecrypt.files.locations import with_scheme

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE: Final = "tablecrypt.jvm"
FOLDERS: Final = ("tablecrypt.spark.jvm", "tablecrypt.spark.sql")
"""Python packages with a folder `java`."""
DIGEST_CLASS: Final = "SourcesDigest"
"""Says which sources a jar was compiled from."""

_CLASS_FILES_OF_JAVA_8: Final = 8
"""The oldest in which Janino calls static methods of interfaces."""
_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)
_READABLE_FILE: Final = 0o644 << 16
_lock = Lock()
logger = logging.getLogger(__name__)


def sources() -> dict[str, str]:
    """Return the text of all Java sources by class name, with a class that holds the digest of the others."""
    texts = {}
    for package in FOLDERS:
        for path in (resources.files(package) / "java").iterdir():
            if path.name.endswith(".java"):
                texts[path.name.removesuffix(".java")] = path.read_text(encoding="utf-8")
    digest = sources_digest(texts)
    own = f'package {PACKAGE};\n\npublic class {DIGEST_CLASS} {{\n  public static final String VALUE = "{digest}";\n}}\n'
    return dict(sorted(texts.items())) | {DIGEST_CLASS: own}


def sources_digest(texts: Mapping[str, str]) -> str:
    """Return the SHA-256 of sources by name, in hexadecimal."""
    digest = hashlib.sha256()
    for name in sorted(texts):
        content = texts[name].encode()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def compiled(gateway: Any, texts: Mapping[str, str]) -> dict[str, bytes]:
    """Return the bytecode of all classes by name.

    Args:
        gateway: Py4J's, to a JVM with Spark's jars.
        texts: what the files are called, without .java, and their text, in any order.
    """
    jvm = gateway.jvm
    codehaus = jvm.org.codehaus
    compiler = codehaus.janino.Compiler()
    compiler.setIClassLoader(codehaus.janino.ClassLoaderIClassLoader(jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()))
    compiler.setTargetVersion(_CLASS_FILES_OF_JAVA_8)
    created = codehaus.commons.compiler.util.resource.MapResourceCreator()
    compiler.setClassFileCreator(created)
    files = gateway.new_array(codehaus.commons.compiler.util.resource.Resource, len(texts))
    for index, (name, text) in enumerate(texts.items()):
        files[index] = codehaus.commons.compiler.util.resource.StringResource(f"{name}.java", text)
    compiler.compile(files)
    classes = created.getMap()
    return {name.removesuffix(".class").replace("/", "."): bytes(classes.get(name)) for name in list(classes.keySet())}


def write_jar(classes: Mapping[str, bytes], services: Mapping[str, str] | None = None) -> Path:
    """Write a jar. Its name says what is in it.

    Args:
        classes: bytecode by class name.
        services: for each interface that java.util.ServiceLoader looks for, the class that implements it.
    """
    content = io.BytesIO()
    write_entries(content, classes, services)
    folder = Path(tempfile.mkdtemp(prefix="tablecrypt-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / f"tablecrypt-{hashlib.sha256(content.getvalue()).hexdigest()[:16]}.jar"
    path.write_bytes(content.getvalue())
    return path


def write_entries(file: BinaryIO, classes: Mapping[str, bytes], services: Mapping[str, str] | None = None) -> None:
    """Write the content of a jar, the same bytes for the same classes: entries in the order of their names, without a time of their own."""
    entries = {name.replace(".", "/") + ".class": content for name, content in classes.items()}
    entries |= {f"META-INF/services/{interface}": name.encode() for interface, name in (services or {}).items()}
    with zipfile.ZipFile(file, "w") as jar:
        for name in sorted(entries):
            entry = zipfile.ZipInfo(name, _NO_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = _READABLE_FILE
            jar.writestr(entry, entries[name])


@dataclass(frozen=True)
class JvmSide:
    """What runs in the driver's JVM: the endpoint (a Py4J object), its name among Spark's RPC endpoints, and its RSA public key in DER."""

    endpoint: Any
    name: str
    public_key: bytes


_sides: dict[str, JvmSide] = {}


def jvm_side(spark: SparkSession) -> JvmSide:
    """Return the JVM side of the session's SparkContext, compiled and installed on first use.

    Raises:
        ConfigurationError: this Spark cannot compile or take it.
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
        elif _digest_in(loader) != _own_digest():
            raise ConfigurationError(
                "this Spark application has tablecrypt's Java classes of another version: start it with the jar that this version's "
                "`tablecrypt spark-jar` writes, or without one"
            )
        for jar in _compiled_jars:
            spark.sparkContext._jsc.addJar(str(jar))
        endpoint = loader.loadClass(f"{PACKAGE}.DriverEndpoint").getMethod("current", None).invoke(None, None)
        return JvmSide(endpoint, str(endpoint.name()), bytes(endpoint.publicKey()))
    except Py4JError as error:
        raise ConfigurationError(f"the JVM path does not run on Spark {spark.version}: {error}") from error


_compiled_jars: list[Path] = []
"""The jar of this process's JVM. It outlives its SparkContexts, and each of these gives the jar to executors of its own."""


def _install(spark: SparkSession, loader: Any) -> None:
    gateway: Any = spark.sparkContext._gateway
    jar = write_jar(compiled(gateway, sources()))
    loader.addURL(gateway.jvm.java.io.File(str(jar)).toURI().toURL())
    _compiled_jars.append(jar)


def _own_digest() -> str:
    texts = sources()
    del texts[DIGEST_CLASS]
    return sources_digest(texts)


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


def length_in_hadoop(spark: SparkSession, location: str) -> int | None:
    """Return the length in bytes of the file that Hadoop has at a location; None where it finds none."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    context: Any = spark.sparkContext
    try:
        path = context._jvm.org.apache.hadoop.fs.Path(with_scheme(location))
        return int(path.getFileSystem(context._jsc.hadoopConfiguration()).getFileStatus(path).getLen())
    except (Py4JError, PySparkException) as error:
        logger.debug("Hadoop does not find %s: %s", location, error)
        return None
