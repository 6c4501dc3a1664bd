"""The jar of Java sources: shipped, kept from before, or compiled now.

    shipped     jars/ of this package, put there when the wheel was built where Java was (hatch_build.py); for Spark 4.0 to 4.3
    kept        the cache folder of this user (jar_cache.py), by sources and Spark's version
    compiled    by the Janino of Spark, and then kept

    tablecrypt spark-jar -o tablecrypt-spark.jar     writes it for Connect servers, spark-sql, spark-shell, the Thrift server and clusters
    spark-submit --jars tablecrypt-spark.jar …       on Spark 4.0 to 4.3, whichever of them compiled it
    python -m tablecrypt.spark.shared.jar FOLDER        compiles what the wheel ships; status 3 where there is no fit Java

A jar counts only for the sources that are installed: where these were changed, they are compiled.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import resources
from pathlib import Path
from typing import Any, Final

from tablecrypt._atomic_file import atomic_file
from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.session import check_java, check_spark_version
from tablecrypt.spark.shared.compiler import compiled_jar, compiling_jvm
from tablecrypt.spark.shared.jar_cache import JarCache, cache_folder, is_intact, jar_key, jar_name
from tablecrypt.spark.shared.sources import JavaSources, all_sources, spark_sources

_SHIPPED_FOR: Final = ((4, 0), (4, 3))
"""The oldest and the newest release of Spark for which a shipped jar counts."""
_FORMAT: Final = "1"
"""Of jars: another one if a new version compiles the same sources to something else."""
_NO_JAVA: Final = 3

Compiling = Callable[[], AbstractContextManager[Any]]


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
        with atomic_file(target, private=False) as file:
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
