"""Whether the JVM path supports a read or a write, with exactly the rows of the Python path; where not, the reason in one sentence.

The reason sends the work to the Python path, or becomes the error of path="jvm". A read is not supported where

- the client has no JVM (Spark Connect), or Hadoop does not find the files: one of each bucket is looked for;
- a data file is not Parquet, or its location would be read as another path by Hadoop;
- deletes are by equality, or a file with deletes has 2^31 rows or more;
- a column is of a type that Python translates (uuid, fixed, …), or asked for by a reserved name (_row_id);
- a file may lack a column that then has a value all the same: a default, or that of its partition;
- names of columns differ in case alone, or the table has a name mapping for files without field ids;
- the filter has a predicate that Spark would evaluate differently;
- the catalog's server restricts which rows and values may be read;
- a column, or a field in it, is protected.

A write is not supported where

- the client has no JVM (Spark Connect), or Hadoop does not find the table's files;
- a column is of a type that Python translates (uuid, fixed, …) or Spark does not have;
- a column that the DataFrame lacks, at any depth, has a write-default;
- names of columns differ in case alone;
- a partition value is worked out in a way that is not translated (columns.py);
- columns of the table are protected;
- the compression codec is one that Parquet's Java writer does not have (parquet_settings.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Set
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import extract_field_ids
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from tablecrypt.engines.protected_columns import protected_among
from tablecrypt.errors import ConfigurationError
from tablecrypt.files.encrypting_file_io import read_restrictions_of
from tablecrypt.files.locations import is_path
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.properties import SPARK_REQUIRE_ENCRYPTED_RPC
from tablecrypt.spark.network import keeps_messages_private
from tablecrypt.spark.shared.row_filter import asks_for_stored_columns
from tablecrypt.spark.shared.schema import names_that_spark_confuses, unread_type
from tablecrypt.spark.shared.written_columns import unsupported_partitioning
from tablecrypt.spark.tables import LocatedTable, PlannedRead
from tablecrypt.table.lineage import LINEAGE_FIELD_IDS
from tablecrypt.table.planning import EncryptedFileScanTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType
    from pyspark.sql.types import StructType as SparkStruct

logger = logging.getLogger(__name__)

T = TypeVar("T")
_MOST_ROWS: Final = 2**31 - 1


class UnsupportedError(Exception):
    """The reason why this path does not support a read or write."""


def check_supported(reason: str | None) -> None:
    """Raise UnsupportedError if there is a reason."""
    if reason is not None:
        raise UnsupportedError(reason)


def if_supported(work: Callable[[], T], name: str, done: str, *, forced: bool) -> T | None:
    """Return the result of the work; None if it is not supported and the Python path has to do it.

    Args:
        work: raises UnsupportedError, or ConfigurationError where this Spark does not take it, before anything was done.
        name: of the table.
        done: "read" or "written".
        forced: raise instead of returning None.

    Raises:
        ConfigurationError: `forced`, and it is not supported.
    """
    try:
        return work()
    except UnsupportedError as reason:
        if forced:
            raise ConfigurationError(f'{name} cannot be {done} with path="jvm": {reason}') from reason
        logger.debug("%s is %s on the Python path: %s", name, done, reason)
        return None
    except ConfigurationError as error:
        if forced:
            raise
        # A warning, since not the table but this Spark is the reason, which its operator can mend.
        logger.warning("%s is %s on the Python path: %s", name, done, error)
        return None


def check_messages(spark: SparkSession, located: LocatedTable, told: str, *, forced: bool) -> None:
    """Return if Spark's messages are private; or, with a warning, if `forced` and the catalog does not require that.

    Args:
        told: what is wrong otherwise, and what to do.
    """
    if keeps_messages_private(spark.conf.get):
        return
    # path="jvm" may accept the risk for this program; the catalog's property is for all of them.
    if not forced or SPARK_REQUIRE_ENCRYPTED_RPC.is_true(located.client_properties):
        raise UnsupportedError(told)
    logger.warning('%s is used with path="jvm": %s', located.name, told)


def unsupported_session(spark: SparkSession) -> str | None:
    """Return why this session is not supported; None if it is."""
    context = getattr(spark, "sparkContext", None)
    if context is None or getattr(context, "_jvm", None) is None or not hasattr(spark, "_jsparkSession"):
        return "the session is one of Spark Connect, whose client has no JVM"
    return None


def unsupported_restrictions(read: PlannedRead) -> str | None:
    """Return that the table has read restrictions, which Spark's own reader would not apply; None if it has none."""
    if read_restrictions_of(read.located.table.io) is None:
        return None
    return "the catalog's server restricts which rows and values may be read, which Python applies"


def unsupported_location(location: str) -> str | None:
    """Return why Hadoop would not find or put a file where PyIceberg does, by `with_scheme`; None if it would."""
    if is_path(location):
        return None
    parts = urlsplit(location)
    if parts.query or parts.fragment or "//" in parts.path or any(part in (".", "..") for part in parts.path.split("/")):
        return "Hadoop would read its location as another path"
    return None


def unsupported_files(read: PlannedRead, length_in_hadoop: Callable[[str], int | None]) -> str | None:
    """Return why the read's files are not supported; None if they are.

    Args:
        read: what is to be read.
        length_in_hadoop: the length of the file that Hadoop has at a location; None where it finds none.
    """
    for task in read.tasks:
        if reason := unsupported_task(task):
            return f"{task.file.file_path}: {reason}"
    # One file of each bucket: Hadoop has its own credentials and endpoint for each, and each question is a request.
    for task in {urlsplit(task.file.file_path)[:2]: task for task in read.tasks}.values():
        # The length too: another store may have a file of that name.
        if length_in_hadoop(task.file.file_path) != task.file.file_size_in_bytes:
            return f"{task.file.file_path}: Hadoop, with its own configuration and credentials, does not find it"

    return None


def unsupported_columns(read: PlannedRead, wanted: Schema, bound: BooleanExpression) -> str | None:
    """Return why the columns are not supported; None if they are.

    Args:
        read: what is to be read.
        wanted: the read's columns and those of its filter.
        bound: the filter, bound to the table's schema.
    """
    metadata = read.located.table.metadata
    if not wanted.fields:
        return "no column is read"

    for field in wanted.fields:
        if field.field_id in LINEAGE_FIELD_IDS:
            return f"{field.name} is a column of row lineage"
    reason = protected_among(metadata, wanted) or unsupported_projection(metadata, wanted)

    return reason or _unsupported_absent_columns(read, metadata, wanted, bound)


def unsupported_projection(metadata: TableMetadata, wanted: Schema) -> str | None:
    """Return why these columns of the table are not supported, whatever file they are read from; None if they are."""
    if metadata.name_mapping() is not None:
        return "the table has a name mapping, for files without field ids"
    for field in wanted.fields:
        if unread := unread_type(field):
            return f"{unread} is translated by Python"
    return names_that_spark_confuses(wanted)


def unsupported_task(task: EncryptedFileScanTask) -> str | None:
    """Return why a task's file is not supported; None if it is."""
    if task.file.file_format != FileFormat.PARQUET:
        return f"it is of format {task.file.file_format.value}"
    if reason := unsupported_location(task.file.file_path):
        return reason
    if any(file.content == DataFileContent.EQUALITY_DELETES for file in task.delete_files):
        return "rows of it are deleted by equality"
    # Spark's reader gets deleted positions as 32-bit numbers.
    if task.delete_files and task.file.record_count > _MOST_ROWS:
        return f"it has deletes and {task.file.record_count} rows"

    return None


def _unsupported_absent_columns(read: PlannedRead, metadata: TableMetadata, wanted: Schema, bound: BooleanExpression) -> str | None:
    negated = extract_field_ids(bound) if asks_for_stored_columns(bound) else set()
    for task in read.tasks:
        if lacking := value_it_may_lack(task.file, wanted, metadata, negated):
            return f"{task.file.file_path}: it may lack the column {lacking}, which is not null then"
    return None


def value_it_may_lack(file: DataFile, wanted: Schema, metadata: TableMetadata, others: Set[int] = frozenset()) -> str | None:
    """Return the name of a column that the file may lack and that has a value all the same: a default, or that of its partition.

    Args:
        file: a data file.
        wanted: the columns that are read.
        metadata: the table's, for its partition specs.
        others: field ids of more columns that the file has to have.
    """
    defaults = {field_id for field_id in wanted.field_ids if wanted.find_field(field_id).initial_default is not None}
    spec = metadata.specs()[file.spec_id]
    identity = {field.source_id for field in spec.fields if isinstance(field.transform, IdentityTransform)}
    # Spark's reader would make the column null. Statistics may leave out columns that are there; those go to Python in vain.
    missing = ((defaults | others | identity) & wanted.field_ids) - _stored_ids(file)
    return wanted.find_column_name(min(missing)) if missing else None


def _stored_ids(file: DataFile) -> set[int]:
    """Return the ids of columns that the file's statistics show to be in it. There may be others."""
    return {*(file.value_counts or {}), *(file.null_value_counts or {}), *(file.column_sizes or {})}


def unsupported_rows(given: SparkStruct, located: LocatedTable) -> str | None:
    """Return why rows of this schema are not supported; None if they are."""
    table = located.table
    schema = table.schema()
    # Parquet's Java writer would put their values under the table's key.
    if ColumnPolicy.from_properties(table.metadata.properties, schema):
        return "columns of it are protected by keys of their own, which Python uses"

    for field in schema.fields:
        if unread := unread_type(field):
            return f"{unread} is translated by Python"
    if confused := names_that_spark_confuses(schema):
        return confused

    for path in _defaulted(given, schema.as_struct(), ""):
        return f"the DataFrame lacks {path}, which has a write-default"
    return unsupported_partitioning(table.spec(), schema)


def unsupported_store(located: LocatedTable, length_in_hadoop: Callable[[str], int | None]) -> str | None:
    """Return why Hadoop cannot write where PyIceberg reads; None if nothing is known against it.

    Args:
        located: the table.
        length_in_hadoop: the length of the file that Hadoop has at a location; None where it finds none.
    """
    known = located.table.metadata_location
    if reason := unsupported_location(known):
        return f"{known}: {reason}"
    # The metadata file, which is there before any data file is: its length shows that both mean the same store.
    if length_in_hadoop(known) != len(located.table.io.new_input(known)):
        return f"{known}: Hadoop, with its own configuration and credentials, does not find it"
    return None


def _defaulted(given: DataType, iceberg: IcebergType, path: str) -> Iterator[str]:
    from pyspark.sql import types

    if isinstance(given, types.StructType) and isinstance(iceberg, StructType):
        known = {field.name: field.dataType for field in given}
        for field in iceberg.fields:
            if field.name in known:
                yield from _defaulted(known[field.name], field.field_type, f"{path}{field.name}.")
            elif field.write_default is not None:
                yield path + field.name
    elif isinstance(given, types.ArrayType) and isinstance(iceberg, ListType):
        yield from _defaulted(given.elementType, iceberg.element_type, f"{path}element.")
    elif isinstance(given, types.MapType) and isinstance(iceberg, MapType):
        yield from _defaulted(given.keyType, iceberg.key_type, f"{path}key.")
        yield from _defaulted(given.valueType, iceberg.value_type, f"{path}value.")
