"""What this package needs of a Spark session: its version, sizes of partitions, and numbered tasks.

Java is 17 or newer and PySpark 4.0 or newer. Work is split into as many partitions as Spark itself would make for files of that size: at
least one per core if there are enough tasks, and none larger than a partition may be, unless a single file is. `Sizing` holds
Spark's own settings in a form that works where no session is:

spark.sql.files.maxPartitionBytes     the most bytes of a partition, 128 MiB if not set
spark.sql.files.openCostInBytes       what each file counts on top of its size, 4 MiB if not set
defaultParallelism                    the least number of partitions while there are files
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from tablecrypt.engines.spreading import balanced
from tablecrypt.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from tablecrypt.table.planning import EncryptedFileScanTask

OLDEST_JAVA: Final = 17
OLDEST_SPARK: Final = (4, 0)
T = TypeVar("T")
ArrowFunction: TypeAlias = "Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]"
_MAX_PARTITION_BYTES: Final = ("spark.sql.files.maxPartitionBytes", 128 * 1024 * 1024)
_OPEN_COST_IN_BYTES: Final = ("spark.sql.files.openCostInBytes", 4 * 1024 * 1024)
_MANY: Final = 100_000
_UNITS: Final = {"b": 1, "k": 2**10, "kb": 2**10, "m": 2**20, "mb": 2**20, "g": 2**30, "gb": 2**30, "t": 2**40, "tb": 2**40}


def check_java() -> None:
    """Check, before a session is made, that Spark will find a Java that it can use, in JAVA_HOME or on the PATH.

    Raises:
        ConfigurationError: there is no Java, or it is older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    # JAVA_HOME first, as Spark's own scripts do.
    java = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if java is None:
        raise ConfigurationError(f"Spark needs Java {OLDEST_JAVA} or newer, and there is no java in JAVA_HOME or on the PATH")

    # Java prints its version to stderr.
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


def partition_count(sizes: Sequence[int], *, cores: int, partition_bytes: int, open_cost: int) -> int:
    """Return how many partitions to make of tasks with these sizes in bytes."""
    total = sum(size + open_cost for size in sizes)
    wanted = max(-(-total // max(partition_bytes, 1)), cores)
    return min(wanted, len(sizes))


@dataclass(frozen=True)
class Sizing:
    """Sizes in bytes, and the number of cores."""

    cores: int
    partition_bytes: int
    open_cost: int

    @classmethod
    def of(cls, spark: SparkSession) -> Sizing:
        """Take the settings of a session."""
        return cls(_cores(spark), _size_setting(spark, *_MAX_PARTITION_BYTES), _size_setting(spark, *_OPEN_COST_IN_BYTES))

    def partitions(self, tasks: Sequence[EncryptedFileScanTask]) -> list[list[EncryptedFileScanTask]]:
        """Spread scan tasks over lists of about the same number of bytes; each file stays whole."""
        return self.spread(tasks, lambda task: task.size, self.cores)

    def split_partitions(self, tasks: Sequence[EncryptedFileScanTask]) -> list[list[EncryptedFileScanTask]]:
        """Do the same after cutting long files into parts, as Spark does for its own readers."""
        total = sum(task.size + self.open_cost for task in tasks)
        # The formula of Spark's own file sources (FilePartition.maxSplitBytes).
        size = max(1, min(self.partition_bytes, max(self.open_cost, total // max(self.cores, 1))))
        return self.partitions([part for task in tasks for part in task.split(size)])

    def spread(self, works: Sequence[T], size: Callable[[T], int], least: int) -> list[list[T]]:
        """Spread works of any kind over lists of about the same number of bytes, at least `least` lists where there are works for them."""
        sizes = [size(work) for work in works]
        count = partition_count(sizes, cores=least, partition_bytes=self.partition_bytes, open_cost=self.open_cost)
        return balanced(works, lambda work: size(work) + self.open_cost, count)


def in_tasks(spark: SparkSession, count: int, function: ArrowFunction, schema: Any) -> DataFrame:
    """Call a function of Arrow batches in `count` Spark tasks, each with its number from 0, and return what it yields.

    Args:
        spark: classic or Connect.
        count: how many tasks.
        function: runs on executors, and gets the number as the only column of a batch.
        schema: what it yields, as Spark takes schemas.
    """
    return spark.range(0, count, 1, count).mapInArrow(function, schema)


def _cores(spark: SparkSession) -> int:
    context = getattr(spark, "sparkContext", None)
    return int(context.defaultParallelism) if context is not None else _cores_behind_connect(spark)


def _cores_behind_connect(spark: SparkSession) -> int:
    """A session of Spark Connect has no context to ask. A range has as many partitions as the cluster has cores by default."""
    from pyspark.sql import functions

    numbers = spark.range(_MANY).select(functions.spark_partition_id().alias("number"))
    [row] = numbers.agg(functions.max("number").alias("last")).collect()
    return int(row["last"]) + 1


def _size_setting(spark: SparkSession, name: str, default: int) -> int:
    """Return a size in bytes; Spark writes sizes as "134217728b" or "128m"."""
    text = str(spark.conf.get(name, str(default))).strip().lower()
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = _UNITS.get(text[len(digits) :] or "b")
    return int(digits) * unit if digits.isdigit() and unit is not None else default
