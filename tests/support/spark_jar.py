"""The jar of Spark's servers and shells, written once for all tests, and the settings with which they open a catalog."""

from __future__ import annotations

import atexit
import functools
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.support.spark_connect import spark_environment

CATALOG_CLASS: Final = "tablecrypt.jvm.SqlCatalog"


@functools.cache
def spark_jar() -> Path:
    """Return the jar, as the command `tablecrypt spark-jar` writes it."""
    folder = tempfile.TemporaryDirectory(prefix="tablecrypt-spark-jar-")
    atexit.register(folder.cleanup)
    target = Path(folder.name) / "tablecrypt-spark.jar"
    command = [sys.executable, "-m", "tablecrypt.cli", "spark-jar", "-o", str(target)]
    subprocess.run(command, check=True, capture_output=True, env=spark_environment(), timeout=300)
    return target


def catalog_settings(name: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings for a catalog, as a server or a shell is started with them."""
    prefix = f"spark.sql.catalog.{name}"
    given = {f"{prefix}.{key}": value for key, value in properties.items()}
    return {prefix: CATALOG_CLASS, f"{prefix}.python": sys.executable, **given}


def options(settings: Mapping[str, str]) -> list[str]:
    """Return settings as options of spark-submit and spark-sql."""
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
