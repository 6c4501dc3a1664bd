"""A planned read as a DataFrame of Spark's own Parquet reader.

    files without deletes  ──┐
                             ├─ union ─▶ filter ─▶ the columns under their names
    files with deletes ──────┘
      └ for (number of the file, position in it) a bit of the file's deleted positions says whether the row is gone

What Spark reads is given to it file by file, by the plan; it lists nothing. Columns are found by field id at every level, whatever the
session says; corrupt and missing files are errors, whatever the session says. The session's settings do not change: everything is in
the options of this one relation, and none of it is secret. Filters and projections that are put on the DataFrame are pushed down as for
any Parquet file.

The end of each file, where plaintext says by which algorithm it is encrypted, is fetched once when the file is opened, checked, and given
to Spark's reader from memory (java/CheckedStream.java).

Files are read through Hadoop's file systems, with Hadoop's configuration and credentials (fs.s3a.…), not with PyIceberg's.

Raises ConfigurationError where path="jvm" was asked for and does not support the read. On executors a file that was tampered with fails the
job with Spark's FAILED_READ_FILE, in one line (java/TaskErrors.java).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.types import NestedField
from pyiceberg.utils.concurrent import ExecutorFactory

from tablecrypt.errors import ConfigurationError
from tablecrypt.files.encrypting_file_io import encrypting_io
from tablecrypt.files.locations import with_scheme
from tablecrypt.spark.jvm.columns import quoted
from tablecrypt.spark.jvm.install import JvmSide, jvm_side, length_in_hadoop
from tablecrypt.spark.jvm.keys import PlannedFile, encode_planned_files, encrypt_for_driver
from tablecrypt.spark.jvm.row_filter import UnsupportedFilterError, spark_condition
from tablecrypt.spark.jvm.schema import path_of, schema_json, stored_names
from tablecrypt.spark.jvm.sources import PACKAGE
from tablecrypt.spark.jvm.support import (
    UnsupportedError,
    check_messages,
    check_supported,
    if_supported,
    unsupported_columns,
    unsupported_files,
    unsupported_restrictions,
    unsupported_session,
)
from tablecrypt.spark.tables import PlannedRead
from tablecrypt.table.deletes import DeleteReader
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.table_files import key_metadata_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

READ_OPTIONS: Final = {
    "parquet.crypto.factory.class": f"{PACKAGE}.ReadKeys",
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.fieldId.read.ignoreMissing": "false",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    # Iceberg's dates and times are of the proleptic Gregorian calendar.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
"""What Spark's Parquet reader is told for every read."""
_IN_THE_CLEAR: Final = "keys of data files travel to the executors in the clear: set spark.authenticate and spark.network.crypto.enabled"


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
    check_supported(unsupported_files(read, lambda location: length_in_hadoop(spark, location)))

    token = f"tc{secrets.token_hex(6)}"
    stored = stored_names(wanted.fields, table.metadata.schemas, token)
    condition = _condition(bound, wanted, stored)
    side = jvm_side(spark)
    rows = _relations(spark, side, read, schema_json(wanted.fields, stored), token)
    if condition is not None:
        rows = rows.where(condition)
    return _named(spark, side, rows, [(stored[field.field_id], field.name) for field in read.projected.fields])


def _with_filter_columns(projected: Schema, table: Schema, filtered: set[int]) -> Schema:
    """Return the read's columns and those that its filter needs besides."""
    for field_id in filtered & projected.field_ids:
        if projected.find_type(field_id) != table.find_type(field_id):
            raise UnsupportedError(f"the filter's column {table.find_column_name(field_id)} had another type in that snapshot")
    known = {field.field_id for field in projected.fields}
    needed = prune_columns(table, filtered - projected.field_ids, select_full_types=False)
    if any(field.field_id in known for field in needed.fields):
        raise UnsupportedError("the filter looks into a struct at a field that is not read")
    return Schema(*projected.fields, *needed.fields)


def _condition(bound: BooleanExpression, wanted: Schema, stored: dict[int, str]) -> Column | None:
    if isinstance(bound, AlwaysTrue):
        return None
    try:
        return spark_condition(bound, lambda field_id: _column(path_of(wanted, field_id), stored))
    except UnsupportedFilterError as reason:
        raise UnsupportedError(f"the filter has {reason}") from reason


def _column(path: list[NestedField] | None, stored: dict[int, str]) -> Column:
    from pyspark.sql import functions

    if path is None:
        raise UnsupportedFilterError("a field inside a list or map")
    return functions.col(".".join(quoted(name) for name in (stored[path[0].field_id], *(field.name for field in path[1:]))))


def _relations(spark: SparkSession, side: JvmSide, read: PlannedRead, schema: str, token: str) -> DataFrame:
    table = read.located.table
    deletes = DeleteReader(encrypting_io(table.io), table.metadata)
    files = list(ExecutorFactory.get_or_create().map(lambda task: _planned(task, deletes), read.tasks))
    parts = [[file for file in files if file.deletes is None], [file for file in files if file.deletes is not None]]
    relations = [_relation(spark, side, part, schema, f"{token}_file") for part in parts if part]
    return reduce(lambda one, other: one.unionAll(other), relations)


def _planned(task: EncryptedFileScanTask, deletes: DeleteReader) -> PlannedFile:
    positions = deletes.deletes_of(task).positions
    live = None if positions is None or not len(positions) else positions
    return PlannedFile(with_scheme(task.file.file_path), task.file.file_size_in_bytes, key_metadata_of(task.file), live)


def _relation(spark: SparkSession, side: JvmSide, files: Sequence[PlannedFile], schema: str, number_column: str) -> DataFrame:
    from py4j.protocol import Py4JError
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    session: Any = spark._jsparkSession
    read = secrets.token_hex(16)
    encrypted_files = encrypt_for_driver(encode_planned_files(files), read, side.public_key)
    options = READ_OPTIONS | {"tablecrypt.endpoint": side.name, "tablecrypt.read": read}
    has_deletes = files[0].deletes is not None
    try:
        parsed = session.parseDataType(schema)
        rows = side.endpoint.dataset(session, read, number_column, encrypted_files, parsed, options, has_deletes)
    except Py4JError as error:
        raise ConfigurationError(f"Spark {spark.version} does not take a plan of encrypted files: {error}") from error
    return ClassicDataFrame(rows, spark)


def _named(spark: SparkSession, side: JvmSide, rows: DataFrame, names: Sequence[tuple[str, str]]) -> DataFrame:
    """Return columns under other names, without metadata. In one call: PySpark makes some 27 for each column."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    pairs = json.dumps([(quoted(stored), name) for stored, name in names])
    return ClassicDataFrame(side.endpoint.named(rows._jdf, pairs), spark)
