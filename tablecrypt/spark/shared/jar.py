"""The jar of Java sources: shipped, kept from before, or compiled now.

    shipped     jars/ of this package, put there when the wheel was built where Java was (hatch_build.py); for Spark 4.0 to 4.3
    kept        the cache folder of this user (jar_cache.py), by sources and Spark's version
    compiled    by the Janino of Spark, and then kept

    tablecrypt spark-jar -o tablecrypt-spark.jar     writes it for Connect servers, spark-sql, spark-shell, the Thrift server and clusters
    spark-submit --jars tablecrypt-spark.jar …       on Spark 4.0 to 4.3, whichever of them compiled it
    python -m tablecrypt.spark.shared.jar FOLDER        compiles what the wheel ships; status 3 where there is no fit Java

A jar counts only for the sources that are installed: where these were changed, they are compiled.

The compiler is Janino, which Spark contains: no JDK is needed. Entries of a jar are in the order of their names, have no time and are not
compressed, so that the same sources and the same compiler make the same bytes, whichever zlib is there.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from importlib import resources
from pathlib import Path
from typing import Any, Final

from tablecrypt._atomic_file import named_file
from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.session import check_java, check_spark_version
from tablecrypt.spark.shared.jar_cache import JarCache, cache_folder, is_intact, jar_key, jar_name
from tablecrypt.spark.shared.sources import JavaSources, all_sources, spark_sources

_SHIPPED_FOR: Final = ((4, 0), (4, 3))
"""The oldest and the newest release of Spark for which a shipped jar counts."""
_FORMAT: Final = "1"
"""Of jars: another one if a new version compiles the same sources to something else."""
_NO_JAVA: Final = 3
_CLASS_FILES_OF_JAVA_8: Final = 8
"""The oldest in which Janino calls static methods of interfaces."""
_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)
_READABLE_FILE: Final = 0o644 << 16

Compiling = Callable[[], AbstractContextManager[Any]]
logger = logging.getLogger(__name__)


def jar_of(sources: JavaSources, spark_version: str, compiling: Compiling) -> bytes:
    """Return the jar of these sources for a release of Spark.

    Args:
        sources: what it is compiled from.
        spark_version: as Spark says it.
        compiling: gives Py4J's gateway to a JVM of that Spark. It is called only if something has to be compiled.

    Raises:
        ConfigurationError: TABLECRYPT_CACHE names no folder.
        Py4JError: the sources do not compile.
    """
    shipped = _shipped(sources, spark_version)
    if shipped is not None:
        return shipped

    cache, key = JarCache(cache_folder()), jar_key(_FORMAT, sources.digest(), spark_version)
    kept = cache.find(key)
    if kept is not None:
        return kept

    with compiling() as gateway:
        content = compiled_jar(gateway, sources)
    cache.keep(key, content)

    return content


def write_spark_jar(target: Path) -> None:
    """Write the jar of Spark's servers and shells. A file that was there is replaced once the jar is whole.

    Raises:
        ConfigurationError: there is no Java 17 or newer, PySpark is too old, the sources do not compile with it, or the file cannot be
            written.
    """
    import pyspark
    from py4j.protocol import Py4JError

    check_spark_version(pyspark.__version__)
    check_java()
    try:
        content = jar_of(spark_sources(), pyspark.__version__, compiling_jvm)
    except Py4JError as error:
        raise ConfigurationError(f"the Java classes do not compile with PySpark {pyspark.__version__}: {error}") from error

    try:
        with named_file(target, private=False) as file:
            file.write(content)
    except OSError as error:
        raise ConfigurationError(f"the jar {target} cannot be written ({error.strerror})") from error


def write_shipped_jars(folder: Path) -> None:
    """Compile each jar that a wheel ships, whatever is shipped or kept already, and write it under the name by which it is found."""
    with compiling_jvm() as gateway:
        for sources in all_sources():
            content = compiled_jar(gateway, sources)
            (folder / jar_name(_shipped_key(sources), content)).write_bytes(content)


def _shipped(sources: JavaSources, spark_version: str) -> bytes | None:
    """Return the jar that the installed package has of these sources; None where it has none for them or for this Spark."""
    release = re.match(r"(\d+)\.(\d+)", spark_version)
    # A newer Spark may have other internals: its own compiler then says so, where a shipped class would fail in a query.
    if release is None or not _SHIPPED_FOR[0] <= (int(release[1]), int(release[2])) <= _SHIPPED_FOR[1]:
        return None

    folder, key = resources.files("tablecrypt.spark.shared") / "jars", _shipped_key(sources)
    if not folder.is_dir():
        return None

    # By the digest of the sources in the key: a jar of edited or other sources does not count.
    jars = ((path.name, path.read_bytes()) for path in folder.iterdir() if path.name.startswith(f"{key}-"))

    return next((content for name, content in jars if is_intact(name, content)), None)


def _shipped_key(sources: JavaSources) -> str:
    return jar_key(_FORMAT, sources.digest(), "shipped")


def main(arguments: list[str]) -> int:
    """Compile what a wheel ships into a folder; return the status."""
    try:
        check_java()
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        return _NO_JAVA

    write_shipped_jars(Path(arguments[0]))
    return 0


def compiled_jar(gateway: Any, sources: JavaSources) -> bytes:
    """Compile sources and return their jar.

    Args:
        gateway: Py4J's, to a JVM with Spark's jars.
        sources: what to compile.
    """
    started = time.monotonic()
    classes = _compiled(gateway, sources.texts)
    logger.info("compiled %s: %d Java classes in %.1f s", sources.name, len(classes), time.monotonic() - started)
    entries = {name.replace(".", "/") + ".class": content for name, content in classes.items()}
    entries |= {f"META-INF/services/{interface}": name.encode() for interface, name in sources.services.items()}
    return _jar_of_entries(entries)


@contextlib.contextmanager
def compiling_jvm() -> Iterator[Any]:
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


def _compiled(gateway: Any, texts: Mapping[str, str]) -> dict[str, bytes]:
    """Return the bytecode of all classes by name."""
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


def _jar_of_entries(entries: Mapping[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as jar:
        for name in sorted(entries):
            entry = zipfile.ZipInfo(name, _NO_TIME)
            entry.external_attr = _READABLE_FILE
            jar.writestr(entry, entries[name])
    return content.getvalue()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
