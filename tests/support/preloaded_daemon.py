"""PySpark's daemon, which has imported what workers import before it forks them: each worker takes a second of processor time less.

Sessions of the tests name it in `spark.python.daemon.module`. Spark's own daemon imports none of this, so that every worker does.
"""

from typing import Any

import pandas  # noqa: F401
import pyspark.daemon
import pyspark.worker

import tablecrypt.spark.write  # noqa: F401
import tablecrypt_catalog  # noqa: F401

untyped: Any = pyspark.daemon

if __name__ == "__main__":
    untyped.manager()
