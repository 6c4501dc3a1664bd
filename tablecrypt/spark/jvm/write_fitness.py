"""Whether Spark's own Parquet writer can write a DataFrame's rows as the portable path would.

It cannot where

- the session has no JVM at hand (Spark Connect), or Hadoop does not find the table's files;
- a column is of a type that Python translates (uuid, fixed, …) or Spark does not have;
- a column that the DataFrame lacks, at any depth, has a write-default;
- names of columns differ in case alone;
- a partition value is worked out in a way that is not translated (partition_columns.py);
- the compression codec is one that Parquet's Java writer does not have.

Each of these is said as one sentence, for the error of path="jvm" and the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from tablecrypt.spark.jvm.fitness import reason_against_location
from tablecrypt.spark.jvm.partition_columns import unserved_partitioning
from tablecrypt.spark.jvm.schema import unread_type
from tablecrypt.spark.jvm.write_settings import unserved_codec
from tablecrypt.spark.tables import LocatedTable

if TYPE_CHECKING:
    from pyspark.sql.types import DataType
    from pyspark.sql.types import StructType as SparkStruct


def reason_against_rows(given: SparkStruct, located: LocatedTable) -> str | None:
    """Return why rows of this schema cannot be served; None if they can."""
    table = located.table
    schema = table.schema()
    for field in schema.fields:
        if unread := unread_type(field):
            return f"{unread} is translated by Python"
    names = [str(schema.find_column_name(field_id)).lower() for field_id in schema.field_ids]
    if len(set(names)) != len(names):
        return "names of columns differ in case alone"
    for path in _defaulted(given, schema):
        return f"the DataFrame lacks {path}, which has a write-default"
    if codec := unserved_codec(table.metadata.properties):
        return f"Parquet's Java writer does not have the codec {codec}"
    return unserved_partitioning(table.spec(), schema)


def reason_against_store(located: LocatedTable, length_in_hadoop: Callable[[str], int | None]) -> str | None:
    """Return why Hadoop cannot write where PyIceberg reads; None if it can, as far as is known before.

    Args:
        located: the table.
        length_in_hadoop: the length of the file that Hadoop has at a location; None where it finds none.
    """
    known = located.table.metadata_location
    if reason := reason_against_location(known):
        return f"{known}: {reason}"
    if length_in_hadoop(known) != len(located.table.io.new_input(known)):
        return f"{known}: Hadoop, with its own configuration and credentials, does not find it"
    return None


def _defaulted(given: SparkStruct, schema: Schema) -> Iterator[str]:
    return _defaulted_in(given, schema.as_struct(), "")


def _defaulted_in(given: DataType, iceberg: IcebergType, path: str) -> Iterator[str]:
    from pyspark.sql import types

    if isinstance(given, types.StructType) and isinstance(iceberg, StructType):
        known = {field.name: field.dataType for field in given}
        for field in iceberg.fields:
            if field.name in known:
                yield from _defaulted_in(known[field.name], field.field_type, f"{path}{field.name}.")
            elif field.write_default is not None:
                yield path + field.name
    elif isinstance(given, types.ArrayType) and isinstance(iceberg, ListType):
        yield from _defaulted_in(given.elementType, iceberg.element_type, f"{path}element.")
    elif isinstance(given, types.MapType) and isinstance(iceberg, MapType):
        yield from _defaulted_in(given.keyType, iceberg.key_type, f"{path}key.")
        yield from _defaulted_in(given.valueType, iceberg.value_type, f"{path}value.")
