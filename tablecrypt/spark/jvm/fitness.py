"""Whether Spark's own Parquet reader can serve a read with exactly the rows of the portable path.

It cannot where

- the session has no JVM at hand (Spark Connect), or Hadoop does not find the files: one of each bucket is looked for;
- a data file is not Parquet, or its location would be read as another path by Hadoop;
- deletes are by equality, or a file with deletes has 2^31 rows or more;
- a column is of a type that Python translates (uuid, fixed, …), or asked for by a reserved name (_row_id);
- a file may lack a column that then has a value all the same: a default, or that of its partition;
- names of columns differ in case alone, or the table has a name mapping for files without field ids;
- the filter has a predicate that Spark would answer differently;
- the catalog's server restricts which rows and values may be read.

Each of these is said as one sentence, for the error of path="jvm" and the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import extract_field_ids
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform

from tablecrypt.spark.jvm.row_filter import asks_for_stored_columns
from tablecrypt.spark.jvm.schema import unread_type
from tablecrypt.spark.planned_read import PlannedRead
from tablecrypt.table.lineage import LINEAGE_FIELD_IDS
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.read_restrictions import restrictions_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_ROWS: Final = 2**31 - 1


def reason_against_session(spark: SparkSession) -> str | None:
    """Return why this session cannot be served; None if it can."""
    context = getattr(spark, "sparkContext", None)
    if context is None or getattr(context, "_jvm", None) is None or not hasattr(spark, "_jsparkSession"):
        return "the session is one of Spark Connect, which has no JVM at hand"
    return None


def reason_against_restrictions(read: PlannedRead) -> str | None:
    """Return that the table's reader is restricted: Spark's own reader would apply nothing; None where all may be read."""
    if restrictions_of(read.located.table.io) is None:
        return None
    return "the catalog's server restricts which rows and values may be read, which Python applies"


def reason_against_location(location: str) -> str | None:
    """Return why Hadoop would not find or put a file where PyIceberg does; None if it would."""
    parts = urlsplit(location)
    if not parts.scheme or "//" in parts.path or any(part in (".", "..") for part in parts.path.split("/")):
        return "Hadoop would read its location as another path"
    return None


def reason_against_files(read: PlannedRead, length_in_hadoop: Callable[[str], int | None]) -> str | None:
    """Return why the read's files cannot be served; None if they can.

    Args:
        read: what is to be read.
        length_in_hadoop: the length of the file that Hadoop has at a location; None where it finds none.
    """
    for task in read.tasks:
        if reason := _reason_against_task(task):
            return f"{task.file.file_path}: {reason}"
    for task in {urlsplit(task.file.file_path)[:2]: task for task in read.tasks}.values():
        if length_in_hadoop(task.file.file_path) != task.file.file_size_in_bytes:
            return f"{task.file.file_path}: Hadoop, with its own configuration and credentials, does not find it"
    return None


def reason_against_columns(read: PlannedRead, wanted: Schema, bound: BooleanExpression) -> str | None:
    """Return why the columns cannot be served; None if they can.

    Args:
        read: what is to be read.
        wanted: the read's columns and those of its filter.
        bound: the filter, bound to the table's schema.
    """
    metadata = read.located.table.metadata
    if metadata.name_mapping() is not None:
        return "the table has a name mapping, for files without field ids"
    if not wanted.fields:
        return "no column is read"
    for field in wanted.fields:
        if field.field_id in LINEAGE_FIELD_IDS:
            return f"{field.name} is a column of row lineage"
        if unread := unread_type(field):
            return f"{unread} is translated by Python"
    names = [name.lower() for name in _names(wanted)]
    if len(set(names)) != len(names):
        return "names of columns differ in case alone"
    return _reason_against_absent_columns(read, metadata, wanted, bound)


def _reason_against_task(task: EncryptedFileScanTask) -> str | None:
    if task.file.file_format != FileFormat.PARQUET:
        return f"it is of format {task.file.file_format.value}"
    if reason := reason_against_location(task.file.file_path):
        return reason
    if any(file.content == DataFileContent.EQUALITY_DELETES for file in task.delete_files):
        return "rows of it are deleted by equality"
    if task.delete_files and task.file.record_count > _MOST_ROWS:
        return f"it has deletes and {task.file.record_count} rows"
    return None


def _reason_against_absent_columns(read: PlannedRead, metadata: TableMetadata, wanted: Schema, bound: BooleanExpression) -> str | None:
    defaults = {field_id for field_id in wanted.field_ids if wanted.find_field(field_id).initial_default is not None}
    negated = extract_field_ids(bound) if asks_for_stored_columns(bound) else set()
    identity = {
        spec_id: {field.source_id for field in spec.fields if isinstance(field.transform, IdentityTransform)}
        for spec_id, spec in metadata.specs().items()
    }
    for task in read.tasks:
        with_value = (defaults | negated | identity.get(task.file.spec_id, set())) & wanted.field_ids
        for field_id in sorted(with_value - _stored_ids(task.file)):
            return f"{task.file.file_path}: it may lack the column {wanted.find_column_name(field_id)}, which is not null then"
    return None


def _stored_ids(file: DataFile) -> set[int]:
    """Return the ids of columns that the file's statistics show to be in it. There may be others."""
    return {*(file.value_counts or {}), *(file.null_value_counts or {}), *(file.column_sizes or {})}


def _names(schema: Schema) -> Iterator[str]:
    for field_id in schema.field_ids:
        yield str(schema.find_column_name(field_id))
