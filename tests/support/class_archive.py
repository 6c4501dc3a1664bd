"""Options of short-lived JVMs with Spark, and an archive of Spark's classes that they share.

A JVM that maps the archive reads, checks and links no class that is in it: to the first SQL statement it takes 4 seconds of processor time
in place of 12. The archive is 170 MB in build/, made once for a Java and a PySpark; the JVM itself leaves it aside where these are others.
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout

from tests.support.java_version import java_executable
from tests.support.maven_jars import pyspark_jars

SHORT_LIFE: Final = "-XX:+UseSerialGC -XX:NewRatio=1 -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
"""The first JIT tier alone and the serial collector start faster and hold less memory. With that tier Java keeps 48 MB of compiled code by
default: a session that holds more throws code away and compiles it again, which with a small young generation takes a tenth of its time."""
_QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"
_FOLDER: Final = Path(__file__).parents[2] / "build" / "java-classes"


@functools.cache
def short_life_options() -> str:
    """Return Java's options for a driver whose class path is Spark's own. While another process makes the archive, it is left out."""
    archive = _FOLDER / f"{_key()}.jsa"
    if not archive.exists():
        _FOLDER.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(_FOLDER / "lock", blocking=False):
                _make(archive)
        except Timeout:
            return SHORT_LIFE
    return f"{SHORT_LIFE} {_QUIET} -XX:SharedArchiveFile={archive}"


def _key() -> str:
    jars = pyspark_jars()
    parts = [str(Path(java_executable() or "java").resolve()), *sorted(f"{jar} {jar.stat().st_mtime_ns}" for jar in jars.iterdir())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _make(archive: Path) -> None:
    """Let a JVM that has run some statements write the archive when it ends. Older ones go."""
    if archive.exists():
        return
    with tempfile.TemporaryDirectory(dir=_FOLDER) as scratch:
        made = Path(scratch) / archive.name
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        own = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(Path(__file__).parents[2]), "SPARK_LOCAL_IP": "127.0.0.1"}
        command = [sys.executable, "-m", "tests.support.class_archive", str(made)]
        run = subprocess.run(command, cwd=scratch, env=kept | own, capture_output=True, text=True, check=False, timeout=600)
        if run.returncode or not made.exists():
            raise RuntimeError(f"the archive of Spark's classes was not made:\n{run.stderr[-4000:]}")
        for old in _FOLDER.glob("*.jsa"):
            old.unlink()
        made.replace(archive)


def _use_classes(target: Path) -> None:
    """Run what most tests run, in a JVM that writes the classes that this took to `target`."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1")
    spark: Any = builder.config("spark.driver.extraJavaOptions", f"{SHORT_LIFE} {_QUIET} -XX:ArchiveClassesAtExit={target}").getOrCreate()
    rows = spark.sql("SELECT id, concat('r', id % 3) AS region, CAST(id AS decimal(9, 2)) AS price FROM range(100)")
    rows.write.partitionBy("region").parquet(str(target.with_name("rows")))
    read = spark.read.parquet(str(target.with_name("rows")))
    read.createOrReplaceTempView("rows")
    spark.sql("SELECT a.region, count(*), sum(a.price) FROM rows a JOIN rows b ON a.id = b.id GROUP BY a.region ORDER BY 1").collect()
    read.mapInArrow(lambda batches: batches, read.schema).collect()
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    _use_classes(Path(sys.argv[1]))
