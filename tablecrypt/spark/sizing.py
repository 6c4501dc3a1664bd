"""How many Spark partitions a read or other work becomes: Spark's own settings, in a form that can be carried to where no session is.

spark.sql.files.maxPartitionBytes     the most bytes of a partition, 128 MiB if not set
spark.sql.files.openCostInBytes       what each file counts on top of its size, 4 MiB if not set
defaultParallelism                    the least number of partitions while there are files
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from tablecrypt.spark.balance import balanced, partition_count
from tablecrypt.table.planning import EncryptedFileScanTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAX_PARTITION_BYTES: Final = ("spark.sql.files.maxPartitionBytes", 128 * 1024 * 1024)
_OPEN_COST_IN_BYTES: Final = ("spark.sql.files.openCostInBytes", 4 * 1024 * 1024)
_MANY: Final = 100_000
_UNITS: Final = {"b": 1, "k": 2**10, "kb": 2**10, "m": 2**20, "mb": 2**20, "g": 2**30, "gb": 2**30, "t": 2**40, "tb": 2**40}

T = TypeVar("T")


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
        """Spread scan tasks likewise, with long files cut into parts first, as Spark cuts them for its own readers."""
        total = sum(task.size + self.open_cost for task in tasks)
        size = max(1, min(self.partition_bytes, max(self.open_cost, total // max(self.cores, 1))))
        return self.partitions([part for task in tasks for part in task.split(size)])

    def spread(self, works: Sequence[T], size: Callable[[T], int], least: int) -> list[list[T]]:
        """Spread works of any kind over lists of about the same number of bytes, at least `least` lists where there are works for them."""
        sizes = [size(work) for work in works]
        count = partition_count(sizes, cores=least, partition_bytes=self.partition_bytes, open_cost=self.open_cost)
        return balanced(works, lambda work: size(work) + self.open_cost, count)


def _cores(spark: SparkSession) -> int:
    context = getattr(spark, "sparkContext", None)
    return int(context.defaultParallelism) if context is not None else _cores_behind_connect(spark)


def _cores_behind_connect(spark: SparkSession) -> int:
    """A session of Spark Connect has no context to ask. A range has as many partitions as the cluster has cores by default."""
    from pyspark.sql import functions

    numbers = spark.range(_MANY).select(functions.spark_partition_id().alias("number"))
    [answer] = numbers.agg(functions.max("number").alias("last")).collect()
    return int(answer["last"]) + 1


def _size_setting(spark: SparkSession, name: str, default: int) -> int:
    """Return a size in bytes; Spark writes sizes as "134217728b" or "128m"."""
    text = str(spark.conf.get(name, str(default))).strip().lower()
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = _UNITS.get(text[len(digits) :] or "b")
    return int(digits) * unit if digits.isdigit() and unit is not None else default
