"""The reads whose keys Spark's driver still holds, in its JVM."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any, Final

from tablecrypt.spark.shared.install import jvm_side

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_LOOKS: Final = 300


def held_reads(spark: SparkSession) -> frozenset[str]:
    """The names of the reads that the driver's JVM holds keys of, once what can be collected is gone in both processes."""
    looks: list[frozenset[str]] = []
    while len(looks) < 3 or len(set(looks[-3:])) > 1:
        looks.append(_held_after_collection(spark))
    return looks[-1]


def is_let_go(spark: SparkSession, read: str) -> bool:
    """Whether the driver's JVM lets go of a read within half a minute: Spark's listeners do so on threads of their own."""
    return any(read not in _held_after_collection(spark) for _ in range(_MOST_LOOKS))


def _held_after_collection(spark: SparkSession) -> frozenset[str]:
    jvm: Any = spark.sparkContext._jvm
    gc.collect()
    jvm.java.lang.System.gc()
    jvm.java.lang.Thread.sleep(100)
    return frozenset(jvm_side(spark).endpoint.heldReads())
