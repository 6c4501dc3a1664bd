"""A jar that lets Apache Hive write encrypted ORC, compiled from orc/java against the version of Hive that will use it.

    python -m tablecrypt.orc.hive_jar tablecrypt-hive.jar "$HIVE_HOME/lib/*:$(hadoop classpath)"

    class in tablecrypt.orc       is
    EncryptedOrcSerde             a table's SERDE
    EncryptedOrcInputFormat       its INPUTFORMAT
    EncryptedOrcOutputFormat      its OUTPUTFORMAT
    CheckedKeys, its factory      orc.key.provider "tablecrypt" and "tablecrypt-masks": a failing KMS is an error, not masks

docs/orc-spark.md says how to use them. Raises ConfigurationError.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Final

from tablecrypt.errors import ConfigurationError

_CLASSES: Final = ("CheckedKeys", "CheckedKeysFactory", "EncryptedOrcSerde", "EncryptedOrcInputFormat", "EncryptedOrcOutputFormat")
_SERVICE: Final = "META-INF/services/org.apache.orc.impl.KeyProvider$Factory"
_FACTORY: Final = "tablecrypt.orc.CheckedKeysFactory\n"


def write_hive_jar(target: Path, class_path: str, javac: str = "javac") -> None:
    """Compile the classes and write the jar.

    Args:
        target: the jar.
        class_path: the jars of Hive and Hadoop, as javac takes them.
        javac: the compiler of the Java version that Hive runs with, or of an older one.

    Raises:
        ConfigurationError: the compiler does not exist, or cannot compile the sources with these jars.
    """
    with tempfile.TemporaryDirectory() as scratch:
        sources, classes = Path(scratch) / "sources", Path(scratch) / "classes"
        sources.mkdir()
        classes.mkdir()
        for name in _CLASSES:
            # The package may be inside a zip file, where javac cannot read.
            text = (resources.files("tablecrypt.orc") / "java" / f"{name}.java").read_text(encoding="utf-8")
            (sources / f"{name}.java").write_text(text, encoding="utf-8")

        _compile([javac, "-encoding", "UTF-8", "-nowarn", "-d", str(classes), "-cp", class_path, *map(str, sources.iterdir())])
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as jar:
            for path in sorted(classes.rglob("*.class")):
                jar.write(path, path.relative_to(classes).as_posix())
            jar.writestr(_SERVICE, _FACTORY)


def _compile(command: list[str]) -> None:
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigurationError(f"{command[0]} cannot be run: {error}. A JDK includes it, a JRE does not") from error
    if run.returncode:
        said = (run.stdout + run.stderr).strip()[:2000]
        raise ConfigurationError(f"the classes for Hive do not compile with these jars of Hive and Hadoop: {said}")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line of this module."""
    parser = argparse.ArgumentParser(
        prog="python -m tablecrypt.orc.hive_jar", description="Write the jar with which Hive writes encrypted ORC."
    )
    parser.add_argument("jar", type=Path)
    parser.add_argument("class_path", help='the jars of Hive and Hadoop: "$HIVE_HOME/lib/*:$(hadoop classpath)"')
    parser.add_argument("--javac", default="javac", help="the compiler, of the Java that Hive runs with")
    given = parser.parse_args(arguments)
    write_hive_jar(given.jar, given.class_path, given.javac)


if __name__ == "__main__":
    main()
