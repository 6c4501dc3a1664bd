"""The layout of rows in the files of a write: which rows are in the same Spark task, and in which order they are written.

    distribute_by="partition"   rows of one table partition are in one task, so each partition gets few files instead of one per task
    sort_by=["a", "b"]          within a task rows are ordered, by table partition first where they are distributed by it

Partition values are Iceberg's own. Identity partitions are distributed by Spark on the column; for other transforms (bucket, day, …) a
pass through the executors' Python works the values out first, which costs one more exchange of rows with the JVM. How many tasks there
are is Spark's choice (spark.sql.shuffle.partitions, adaptive execution). One partition's rows are written by one task.

Raises ConfigurationError for a table without partitions, and for a column to sort by that the DataFrame does not have.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform

from tablecrypt.errors import ConfigurationError
from tablecrypt.keys.nested_columns import path_through_structs
from tablecrypt.spark.columns import batch_for_table, schema_for_table
from tablecrypt.spark.exchange import gathered, mapped_in_arrow
from tablecrypt.spark.shared.written_columns import quoted
from tablecrypt.table.partitions import transformed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Distribution = Literal["partition"]

_PARTITION: Final = "__tablecrypt_partition"
_NULL: Final = ""
_VALUE: Final = "="
_SEPARATOR: Final = "\x1f"
_ESCAPED: Final = {"%": "%25", _SEPARATOR: "%1f"}


def laid_out(
    df: DataFrame, schema: Schema, spec: PartitionSpec, distribute_by: Distribution | None, sort_by: Sequence[str] | None
) -> DataFrame:
    """Return the same rows, distributed and ordered.

    Args:
        df: rows whose columns fit the table.
        schema: the table's current schema.
        spec: its current partition spec.
        distribute_by: "partition", or None for the partitions that the DataFrame has.
        sort_by: columns to order each task's rows by, ascending, nulls first.
    """
    order = list(sort_by or ())
    check_sort_columns(order, df.columns)
    check_distribution(distribute_by, spec)
    if distribute_by is None:
        return df.sortWithinPartitions(*map(quoted, order)) if order else df

    # Spark hashes a column itself, which spares the rows a way through Python.
    columns = _identity_columns(df, schema, spec)
    if columns:
        return df.repartition(*map(quoted, columns)).sortWithinPartitions(*map(quoted, (*columns, *order)))

    keyed = _with_partition_values(df, schema, spec)

    return keyed.repartition(_PARTITION).sortWithinPartitions(_PARTITION, *map(quoted, order)).drop(_PARTITION)


def check_sort_columns(sort_by: Sequence[str], columns: Sequence[str]) -> None:
    """Raise ConfigurationError for a column to sort by that the DataFrame does not have."""
    unknown = [name for name in sort_by if name not in columns]
    if unknown:
        raise ConfigurationError(f"sort_by names {', '.join(unknown)}, which the DataFrame does not have")


def check_distribution(distribute_by: Distribution | None, spec: PartitionSpec) -> None:
    """Raise ConfigurationError for a distribution that is not known, or that a table without partitions cannot have."""
    if distribute_by not in (None, *get_args(Distribution)):
        raise ConfigurationError(f"distribute_by {distribute_by!r} is not known: use 'partition' or None")
    if distribute_by is not None and spec.is_unpartitioned():
        raise ConfigurationError("distribute_by='partition' needs a partitioned table, and this one has no partitions")


def _identity_columns(df: DataFrame, schema: Schema, spec: PartitionSpec) -> list[str]:
    """Return the columns whose values are the partition values; none if some values are computed, or nested in a struct."""
    if not all(isinstance(field.transform, IdentityTransform) for field in spec.fields):
        return []
    names = [schema.find_column_name(field.source_id) for field in spec.fields]
    known = [name for name in names if name is not None and name in df.columns]
    return known if len(known) == len(names) else []


def _with_partition_values(df: DataFrame, schema: Schema, spec: PartitionSpec) -> DataFrame:
    from pyspark.sql.types import StringType, StructType

    facts = pickle.dumps((schema, spec))

    def add_partition_values(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return partition_values(facts, batches)

    wider = StructType([*df.schema.fields]).add(_PARTITION, StringType())
    return mapped_in_arrow(df, add_partition_values, wider)


def partition_values(facts: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches with the text of their rows' partition values as one more column. Runs on an executor."""
    schema, spec = pickle.loads(facts)
    for batch in gathered(batches):
        rows = batch_for_table(batch, schema_for_table(batch.schema, schema), schema)
        yield batch.append_column(_PARTITION, partition_texts(rows, schema, spec))


def partition_texts(rows: pa.RecordBatch, schema: Schema, spec: PartitionSpec) -> pa.Array:
    """Return a text for each row: rows of the same partition, and only they, have the same text.

    Args:
        rows: in the table's own Arrow types.
        schema: the table's schema.
        spec: a partition spec with fields.
    """
    texts = []
    for field in spec.fields:
        values = transformed(_source(rows, schema, field), schema.find_type(field.source_id), field.transform)
        texts.append(_text(values))
    return pc.binary_join_element_wise(*texts, _SEPARATOR)


def _source(rows: pa.RecordBatch, schema: Schema, field: PartitionField) -> pa.Array:
    outer, *inner = (each.name for each in path_through_structs(schema, field.source_id) or ())
    return pc.struct_field(rows.column(outer), inner) if inner else rows.column(outer)


def _text(values: pa.Array) -> pa.Array:
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type) or pa.types.is_fixed_size_binary(values.type):
        # Binary need not be UTF-8, which a cast to text needs.
        values = pa.array([None if value is None else value.hex() for value in values.to_pylist()], pa.string())
    texts = values.cast(pa.string())
    # A value may hold any character: unescaped, two values could join to the text of two others.
    for character, escaped in _ESCAPED.items():
        texts = pc.replace_substring(texts, character, escaped)
    # Joining with a null gives null, and all such partitions would be one. No value is without the mark in front.
    return pc.binary_join_element_wise(_VALUE, texts, "").fill_null(_NULL)
