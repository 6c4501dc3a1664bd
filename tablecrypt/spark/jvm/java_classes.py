"""Java sources made into a jar by Janino, the compiler that Spark carries.

The jar lies in a folder of its own, which goes when this process ends: executors fetch it for as long as the application runs.
"""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


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
