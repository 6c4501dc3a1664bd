"""Encrypted tables as Spark DataFrames, through PySpark 4 and mapInArrow.

    read_table    driver plans ──encrypted tasks──▶ executors decrypt, filter and project ──Arrow──▶ DataFrame
    write_table   DataFrame ──Arrow──▶ executors encrypt under fresh DEKs ──encrypted file entries──▶ driver commits once

`tablecrypt.spark.catalog(spark, "prod")` makes the tables of a catalog known to Spark SQL: see sql/.

The executors of the two functions need this package, access to the table's storage, and the right to decrypt with the table's master key
in the KMS. No DEK is in a closure, a plan, a shuffle or an event log: see job_keys.py.

Where Spark's own Parquet reader gives the same rows, and Spark's messages stay private, read_table uses it: see jvm/.

SparkRunner runs the functions of tablecrypt.maintenance on executors: `maintenance.compact(table, runner=SparkRunner(spark))`.

write_orc and read_orc are for ORC files without a table: Spark's own writer and reader, with encrypted columns: see orc/.

Raises MissingExtraError on import where PySpark is not installed.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from tablecrypt.errors import MissingExtraError

if find_spec("pyspark") is None:
    raise MissingExtraError.named("tablecrypt.spark needs PySpark", "spark")

if TYPE_CHECKING:
    from tablecrypt.spark.orc import check_orc_session, check_orc_table, orc_options, read_orc, write_orc
    from tablecrypt.spark.read import read_table
    from tablecrypt.spark.runner import SparkRunner, compact
    from tablecrypt.spark.session import check_java
    from tablecrypt.spark.source.registration import register
    from tablecrypt.spark.sql.added_catalog import catalog
    from tablecrypt.spark.stream import stream_writer
    from tablecrypt.spark.write import delete_where, write_table

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


# A program imports what it uses, when it first does: of SQL alone that is little, and Python workers go without maintenance.
_ON_DEMAND: Final = {
    "SparkRunner": "runner",
    "catalog": "sql.added_catalog",
    "check_java": "session",
    "check_orc_session": "orc",
    "check_orc_table": "orc",
    "compact": "runner",
    "delete_where": "write",
    "orc_options": "orc",
    "read_orc": "orc",
    "read_table": "read",
    "register": "source.registration",
    "stream_writer": "stream",
    "write_orc": "orc",
    "write_table": "write",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ON_DEMAND[name]}"), name)
