"""From Java sources to the bytes of a jar, by the compiler Janino that Spark contains: no JDK is needed.

Entries are in the order of their names, have no time and are not compressed, so that the same sources and the same compiler make the same
bytes, whichever zlib is there.
"""

from __future__ import annotations

import contextlib
import io
import logging
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tablecrypt.spark.shared.sources import JavaSources

_CLASS_FILES_OF_JAVA_8: Final = 8
"""The oldest in which Janino calls static methods of interfaces."""
_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)
_READABLE_FILE: Final = 0o644 << 16
logger = logging.getLogger(__name__)


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
