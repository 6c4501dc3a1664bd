"""Encrypted tables as Spark DataFrames, through PySpark 4 and mapInArrow.

    read_table    driver plans ──encrypted tasks──▶ executors decrypt, filter and project ──Arrow──▶ DataFrame
    write_table   DataFrame ──Arrow──▶ executors encrypt under DEKs of their own ──encrypted file entries──▶ driver commits once

`tablecrypt.spark.catalog(spark, "prod")` makes the tables of a catalog known to Spark SQL: see sql/.

The executors of the two functions need this package, access to the table's storage, and the right to decrypt with the table's master key
in the KMS. No DEK is in a closure, a plan, a shuffle or an event log: see job_keys.py.

Where Spark's own Parquet reader gives the same rows, and Spark's messages stay private, read_table uses it: see jvm/.

SparkRunner runs the functions of tablecrypt.maintenance on executors: `maintenance.compact(table, runner=SparkRunner(spark))`.

write_orc and read_orc are for ORC files without a table: Spark's own writer and reader, with encrypted columns: see orc/.

Raises MissingExtraError on import where PySpark is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tablecrypt.errors import MissingExtraError

try:
    import pyspark as _pyspark
except ImportError as error:
    raise MissingExtraError.named("tablecrypt.spark needs PySpark", "spark") from error

from tablecrypt.spark.delete import delete_where
from tablecrypt.spark.orc import check_orc_session, check_orc_table, orc_options, read_orc, write_orc
from tablecrypt.spark.read import read_table
from tablecrypt.spark.session import check_java
from tablecrypt.spark.source.data_source import register
from tablecrypt.spark.sql.session import catalog
from tablecrypt.spark.stream import stream_writer
from tablecrypt.spark.write import write_table

if TYPE_CHECKING:
    from tablecrypt.spark.runner import SparkRunner, compact

del _pyspark

__all__ = [
    "SparkRunner",
    "catalog",
    "check_java",
    "check_orc_session",
    "check_orc_table",
    "compact",
    "delete_where",
    "orc_options",
    "read_orc",
    "read_table",
    "register",
    "stream_writer",
    "write_orc",
    "write_table",
]


def __getattr__(name: str) -> Any:
    """Import what needs `tablecrypt.maintenance` at its first use: Python workers that read and write go without."""
    if name in ("SparkRunner", "compact"):
        from tablecrypt.spark import runner

        return getattr(runner, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
