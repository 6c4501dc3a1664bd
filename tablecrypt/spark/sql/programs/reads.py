"""A planned read of a program as a relation of the connector.

    read_table plans ──▶ columns and files of one snapshot ──▶ DataFrame of the connector's table ──▶ filter ──▶ the columns asked for
    when it is used  ──▶ Spark's filters and columns choose among these files; keys and deletes go to the driver's JVM

The table is in no catalog, and the session's settings do not change. A filter is a condition of Spark's on the relation, whose columns are
those that were asked for and those that the filter needs besides.

Raises ConfigurationError where path="jvm" was asked for and does not support the read. On executors a file that was tampered with fails the
job with Spark's FAILED_READ_FILE, in one line (java/TaskErrors.java).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.schema import Schema
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.types import NestedField

from tablecrypt.errors import FormatError
from tablecrypt.keys.nested_columns import path_through_structs
from tablecrypt.spark.shared.install import JvmSide, jvm_side, length_in_hadoop
from tablecrypt.spark.shared.row_filter import UnsupportedFilterError, spark_condition
from tablecrypt.spark.shared.support import (
    UnsupportedError,
    check_messages,
    check_supported,
    if_supported,
    unsupported_columns,
    unsupported_files,
    unsupported_restrictions,
    unsupported_session,
)
from tablecrypt.spark.shared.written_columns import quoted
from tablecrypt.spark.sql.catalogs import bare_json, described
from tablecrypt.spark.sql.messages import OPERATIONS, Response, SentRequest
from tablecrypt.spark.sql.planner import LoadedTable, Planner, Selection
from tablecrypt.spark.sql.programs.responses import new_planner, this_python
from tablecrypt.spark.sql.scans.aggregates import aggregate
from tablecrypt.spark.sql.scans.plan import open_files, plan, prune
from tablecrypt.spark.sql.scans.whole_partitions import answered
from tablecrypt.spark.tables import PlannedRead
from tablecrypt.table.filters import pruned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_IN_THE_CLEAR: Final = "keys of data files travel to the executors in the clear: set spark.authenticate and spark.network.crypto.enabled"
_OPERATIONS: Final = (plan.name, prune.name, open_files.name, aggregate.name, answered.name)


def jvm_rows(spark: SparkSession, read: PlannedRead, *, forced: bool) -> DataFrame | None:
    """Return the rows of a read that has files; None if the Python path has to read them.

    Args:
        spark: the session.
        read: what to read.
        forced: raise instead of returning None, and go on, with a warning, where Spark's messages are not encrypted.

    Raises:
        ConfigurationError: `forced`, and the read is not supported, or keys would travel in the clear against
            tablecrypt.spark.require-encrypted-rpc.
    """
    return if_supported(lambda: _rows(spark, read, forced), read.located.name, "read", forced=forced)


def _rows(spark: SparkSession, read: PlannedRead, forced: bool) -> DataFrame:
    check_supported(unsupported_restrictions(read))
    check_supported(unsupported_session(spark))
    check_messages(spark, read.located, _IN_THE_CLEAR, forced=forced)
    table = read.located.table
    bound = bind(table.metadata.schema(), read.row_filter, case_sensitive=True)
    wanted = _with_filter_columns(read.projected, table.metadata.schema(), extract_field_ids(bound))
    check_supported(unsupported_columns(read, wanted, bound))
    side = jvm_side(spark)
    check_supported(unsupported_files(read, lambda location: length_in_hadoop(spark, side, location)))

    return _relation(spark, side, read, wanted, _condition(bound, wanted))


def _with_filter_columns(projected: Schema, table: Schema, filtered: set[int]) -> Schema:
    """Return the read's columns and those that its filter needs besides."""
    for field_id in filtered & projected.field_ids:
        # Spark would compare with the snapshot's type what was written as a literal of today's.
        if projected.find_type(field_id) != table.find_type(field_id):
            raise UnsupportedError(f"the filter's column {table.find_column_name(field_id)} had another type in that snapshot")

    known = {field.field_id for field in projected.fields}
    needed = pruned(table, filtered - projected.field_ids)
    # Two columns of one name and field id would be in the relation: a part of the struct twice.
    if any(field.field_id in known for field in needed.fields):
        raise UnsupportedError("the filter looks into a struct at a field that is not read")

    return Schema(*projected.fields, *needed.fields)


def _condition(bound: BooleanExpression, wanted: Schema) -> str | None:
    if isinstance(bound, AlwaysTrue):
        return None
    try:
        return spark_condition(bound, lambda field_id: _column(path_through_structs(wanted, field_id)))
    except UnsupportedFilterError as reason:
        raise UnsupportedError(f"the filter has {reason}") from reason


def _column(path: list[NestedField] | None) -> str:
    if path is None:
        raise UnsupportedFilterError("a field inside a list or map")
    return ".".join(quoted(field.name) for field in path)


def _relation(spark: SparkSession, side: JvmSide, read: PlannedRead, wanted: Schema, condition: str | None) -> DataFrame:
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    planner, name = Planner(), read.located.name
    loaded = LoadedTable(read.located, "", MAIN_BRANCH, None, is_writable=False, selection=Selection(wanted, read.tasks))
    told = described(planner, loaded) | this_python()
    # Its handle says which of a table's reads it is: others have other files, and rows of the one are not those of the other.
    told |= {"name": name, "schema": bare_json(wanted), "snapshot": told["table"]}

    def respond(sent: SentRequest) -> Response:
        if sent.operation not in _OPERATIONS:
            raise FormatError(f"a read of {name} asks for {sent.operation!r}")
        return OPERATIONS[sent.operation].respond(planner, sent)

    session: Any = spark._jsparkSession
    rows = new_planner(side, respond).read(session, json.dumps(told), condition, len(read.projected.fields))

    return ClassicDataFrame(rows, spark)
