"""Rows by partition: Arrow data in, one part for each partition of the spec out, every row in exactly one of them.

    source column ──transform──▶ partition value ──as a manifest holds it──▶ grouped by its bits ──▶ (partition key, its rows)

    date, time, timestamps   int: days, microseconds, nanoseconds since 1970 or midnight
    float, double            grouped as integers of the same bits, so that NaN is a partition and -0.0 another one than 0.0
    uuid                     16 bytes

Rows are compared by what is stored and never by Python values, which cannot hold every one of them: nanoseconds for one, and NaN equals
nothing, so such rows would match no partition and be lost.

Iceberg table spec, "Partition Transforms", "Partition Values".
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionFieldValue, PartitionKey, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, Transform, TruncateTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType, IcebergType, NestedField, TimestampType, UUIDType

from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.keys.nested_columns import path_through_structs
from tablecrypt.table.filters import is_nano

_BITS: Final = {pa.float32(): pa.int32(), pa.float64(): pa.int64(), pa.date32(): pa.int32()}
_TAKEN_BYTES: Final = 256 * 1024 * 1024
"""Arrow memory of the rows that are copied together, about; a partition that has more is copied alone."""
_Values: TypeAlias = pa.Array | pa.ChunkedArray
_SMALL: Final = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


@dataclass(frozen=True)
class StoredPartitionKey(PartitionKey):
    """A partition key whose field values are already what manifests hold; PyIceberg's own transforms them when it is asked."""

    @functools.cached_property
    def partition(self) -> Record:
        """The partition's values."""
        return Record(*(each.value for each in self.field_values))

    def to_path(self) -> str:
        """The partition's folder."""
        return partition_path(self.partition_spec, self.partition, self.schema)


def partition_path(spec: PartitionSpec, partition: Record, schema: Schema) -> str:
    """Return the folder of a partition, by which summaries name it too.

    PyIceberg shows dates and moments as Python's, of the years 1 to 9999. Others are shown as the numbers that manifests hold: the name of
    a folder means nothing.
    """
    try:
        return spec.partition_to_path(partition, schema)
    except OverflowError:
        return "/".join(f"{quote_plus(field.name)}={quote_plus(str(partition[at]))}" for at, field in enumerate(spec.fields))


def rows_by_partition(spec: PartitionSpec, schema: Schema, rows: pa.Table) -> Iterator[tuple[PartitionKey, pa.Table]]:
    """Yield each partition that occurs in the rows, with its rows in their order, in one chunk.

    Args:
        spec: a spec with at least one field.
        schema: the table's, for the types of the source columns.
        rows: with the source columns by name, or without them.

    Raises:
        FormatError: the schema lacks a source column.
    """
    values = [_partition_values(field, schema, rows) for field in spec.fields]
    bits = [_bits(column) for column in values]
    order, lengths = _grouped(bits)
    start = 0

    for length, taken in zip(lengths, _taken(rows, order, lengths), strict=True):
        first = order[start].as_py()
        start += length
        group = [column[first] for column in bits]
        stored = [
            PartitionFieldValue(field, _stored(value, column.type)) for field, value, column in zip(spec.fields, group, values, strict=True)
        ]
        yield StoredPartitionKey(stored, spec, schema), taken


def _taken(rows: pa.Table, order: pa.Array, lengths: list[int]) -> Iterator[pa.Table]:
    """Yield the rows of each group, in one chunk.

    Many groups are taken together: column by column, and not group by group, the processor finds in its cache what it has just read.
    """
    # Arrow takes rows of one chunk several times as fast as rows of many.
    rows = rows.combine_chunks()
    at_once = max(1, rows.num_rows * _TAKEN_BYTES // max(rows.nbytes, 1))
    starts = itertools.accumulate(lengths, initial=0)

    for _, run in itertools.groupby(zip(starts, lengths, strict=False), lambda group: group[0] // at_once):
        groups = list(run)
        first = groups[0][0]
        taken = rows.take(order.slice(first, sum(length for _, length in groups))).combine_chunks()
        for start, length in groups:
            yield taken.slice(start - first, length)


def _grouped(columns: list[pa.ChunkedArray]) -> tuple[pa.Array, list[int]]:
    """Return the positions of all rows, group by group and in each in their order, and how many each group has.

    Rows with the same values are a group, and null is a value. The groups come in the order of their first rows.
    """
    numbers = _numbered(columns[0])
    for column in columns[1:]:
        more = _numbered(column)
        width = pa.scalar((pc.max(more).as_py() or 0) + 1, pa.int64())
        numbers = _numbered(pa.chunked_array([pc.add(pc.multiply(numbers, width), more)]))
    return pc.sort_indices(numbers), pc.value_counts(numbers).field("counts").to_pylist()


def _numbered(values: pa.ChunkedArray) -> pa.Array:
    """The number of each value, in the order in which they occur first."""
    return values.combine_chunks().dictionary_encode(null_encoding="encode").indices.cast(pa.int64())


def _partition_values(field: PartitionField, schema: Schema, rows: pa.Table) -> pa.ChunkedArray:
    path = path_through_structs(schema, field.source_id)
    if path is None:
        raise FormatError(
            f"the partition field {field.name} is made of column {field.source_id}, which schema {schema.schema_id} does not have: no row "
            "can be written. Make current a schema that has the column, or a partition spec without the field"
        )

    source_type = schema.find_type(field.source_id)
    source = _as_typed(_source(rows, path), source_type)
    values = transformed(source, source_type, field.transform)
    # Scans look for a null where the value is one: the row would be lost to their filters.
    if values.null_count != source.null_count and not isinstance(field.transform, VoidTransform):
        name = schema.find_column_name(field.source_id)
        raise ConfigurationError(f"a value of {name} is of a year past 262142, which no partition {field.name} has: leave such rows out")

    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])


def transformed(source: _Values, kind: IcebergType, transform: Transform[Any, Any]) -> _Values:
    """Return what a transform makes of the values of a column, in Arrow's types for that.

    PyIceberg's own has no hours of nanoseconds, hashes those before 1970 otherwise than Iceberg does, and cuts no large_binary.
    """
    if isinstance(transform, TruncateTransform) and isinstance(kind, BinaryType):
        return pc.binary_slice(source, 0, transform.width)
    if is_nano(kind) and not isinstance(transform, (IdentityTransform, VoidTransform)):
        source, kind = _microseconds(source), TimestampType()

    return transform.pyarrow_transform(kind)(source)


def _source(rows: pa.Table, path: list[NestedField]) -> pa.ChunkedArray:
    """Return a source column; where the rows come without it, what is stored for them: its write-default, or null."""
    column, *inner = path
    has_column = column.name in rows.column_names
    source = rows.column(column.name) if has_column else _stored_for(column, pa.chunked_array([pa.repeat(True, rows.num_rows)]))

    # Each name is a step of its own: PyIceberg's text of a path would be cut at dots that are in names.
    for field in inner:
        has_field = source.type.get_field_index(field.name) >= 0
        source = pc.struct_field(source, [field.name]) if has_field else _stored_for(field, source.is_valid())
    return source


def _stored_for(field: NestedField, there: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return what is stored for a field that the rows come without: in rows in which its struct is there, its write-default."""
    kind = schema_to_pyarrow(field.field_type)
    # The file stores the write-default for these rows, so the partition has to be that of the default too.
    if field.write_default is None:
        return pa.chunked_array([pa.nulls(len(there), kind)])
    return pc.if_else(there, pa.scalar(field.write_default, kind), pa.scalar(None, kind))


def _as_typed(source: pa.ChunkedArray, source_type: IcebergType) -> pa.ChunkedArray:
    """Return a column that may be narrower, coarser or encoded otherwise than the table's in the type of the table."""
    if pa.types.is_timestamp(source.type) and source.type.unit == "ns" and not is_nano(source_type):
        return _microseconds(source)
    typed = schema_to_pyarrow(source_type)
    same = source.type in (typed, _SMALL.get(typed)) or isinstance(source_type, UUIDType)
    return source if same else source.cast(typed)


def _microseconds(nanoseconds: _Values) -> _Values:
    """Return the microsecond that each nanosecond lies in, of which every transform but identity takes nothing more."""
    return pc.floor_temporal(nanoseconds.cast(pa.timestamp("ns")), unit="microsecond").cast(pa.timestamp("us"))


def _bits(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if isinstance(values.type, pa.BaseExtensionType):
        storage = [chunk.storage for chunk in values.chunks]
        return pa.chunked_array(storage, values.type.storage_type)
    if pa.types.is_timestamp(values.type) or pa.types.is_time64(values.type):
        return _viewed(values, pa.int64())
    return _viewed(values, _BITS[values.type]) if values.type in _BITS else values


def _viewed(values: pa.ChunkedArray, as_type: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([chunk.view(as_type) for chunk in values.chunks], as_type)


def _stored(bits: pa.Scalar, value_type: pa.DataType) -> Any:
    if pa.types.is_floating(value_type):
        return pa.array([bits.as_py()], bits.type).view(value_type)[0].as_py()
    return bits.as_py()
