"""What Spark needs from the machine and the session: Java 17 or newer, and PySpark 4.0 or newer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tablecrypt.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA: Final = 17
OLDEST_SPARK: Final = (4, 0)


def check_java() -> None:
    """Check, before a session is made, that Spark will find a Java that it can use, in JAVA_HOME or on the PATH.

    Raises:
        ConfigurationError: there is none, or it is older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if java is None:
        raise ConfigurationError(f"Spark needs Java {OLDEST_JAVA} or newer, and there is no java in JAVA_HOME or on the PATH")
    banner = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = java_major_version(banner)
    if version is None or version < OLDEST_JAVA:
        raise ConfigurationError(f"Spark needs Java {OLDEST_JAVA} or newer, and {java} is {version or 'of an unknown version'}")


def java_major_version(banner: str) -> int | None:
    """Return the major version in what `java -version` prints: 17 for "17.0.15", 8 for the old style "1.8.0_392"."""
    match = re.search(r'version "(?:1\.)?(\d+)', banner)
    return int(match.group(1)) if match else None


def check_session(spark: SparkSession) -> None:
    """Raise ConfigurationError unless the session is of Spark 4.0 or newer."""
    check_spark_version(spark.version)


def check_spark_version(version: str) -> None:
    """Raise ConfigurationError unless `version` is 4.0 or newer."""
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None or (int(match[1]), int(match[2])) < OLDEST_SPARK:
        raise ConfigurationError(f"tablecrypt.spark needs Spark 4.0 or newer, and this session runs {version}")
