"""How many reads Spark's driver still holds the keys of, in its JVM."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any, Final

from tablecrypt.spark.shared.install import jvm_side

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_LOOKS: Final = 300


def held_reads(spark: SparkSession, expected: int | None = None) -> int:
    """How many reads the driver's JVM still holds keys of, once what can be collected is gone in both processes.

    Spark's listeners let go of a query on threads of their own: so many are waited for, half a minute at the most.
    """
    jvm: Any = spark.sparkContext._jvm
    counts: list[int] = []
    while len(counts) < 3 or len(set(counts[-3:])) > 1 or (expected not in (None, counts[-1]) and len(counts) < _MOST_LOOKS):
        gc.collect()
        jvm.java.lang.System.gc()
        jvm.java.lang.Thread.sleep(100)
        counts.append(jvm_side(spark).endpoint.heldReads())
    return counts[-1]
