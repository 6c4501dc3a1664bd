"""Arrow data in PyIceberg's terms: schema evolution, defaults, partitions and filters as PyIceberg reads and writes them.

ArrowScan: _downcast_ns_timestamp_to_us              a plain table's ORC, when it is migrated
ArrowProjectionVisitor: _cast_if_needed, _construct_field
_check_pyarrow_schema_compatible                     what PyIceberg accepts as a DataFrame, we accept
_get_column_projection_values                        identity-partition columns
_get_parquet_writer_kwargs                           the same write.parquet.* options as PyIceberg's writer
_InclusiveMetricsEvaluator                           which data files a filter's statistics rule out
_read_deletes                                        what a plain table's position deletes say, when it is migrated
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import ResolveError
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator as InclusiveMetricsEvaluator
from pyiceberg.io import FileIO
from pyiceberg.io.fileformat import FileFormatModel
from pyiceberg.io.pyarrow import ArrowAccessor, ArrowProjectionVisitor, ArrowScan, pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.io.pyarrow import _check_pyarrow_schema_compatible as check_pyarrow_schema_compatible
from pyiceberg.io.pyarrow import _get_column_projection_values as column_projection_values
from pyiceberg.io.pyarrow import _get_parquet_writer_kwargs as parquet_writer_kwargs
from pyiceberg.io.pyarrow import _read_deletes as read_plain_deletes
from pyiceberg.schema import Schema, visit_with_partner
from pyiceberg.table import ALWAYS_TRUE, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import parse_mapping_from_json
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.types import ListType, MapType, NestedField, TimestampNanoType, TimestamptzNanoType

from tablecrypt._arrow_types import offsets_from_zero
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.manifests.records import FORMAT_VERSION

__all__ = [
    "InclusiveMetricsEvaluator",
    "PlainScan",
    "check_pyarrow_schema_compatible",
    "check_types",
    "column_projection_values",
    "has_nanosecond_columns",
    "parquet_writer_kwargs",
    "read_plain_deletes",
    "stored_as",
    "stored_schema",
    "to_requested_schema",
]


@lru_cache(maxsize=64)
def _converted(serialized: bytes, name_mapping: str | None) -> Schema:
    mapping = parse_mapping_from_json(name_mapping) if name_mapping else None
    arrow_schema = pa.ipc.read_schema(pa.py_buffer(serialized))
    return pyarrow_to_schema(arrow_schema, mapping, downcast_ns_timestamp_to_us=False, format_version=FORMAT_VERSION)


def stored_schema(serialized: bytes, name_mapping: str | None, location: str) -> Schema:
    """Return the Arrow schema of a file, as it is serialized, as Iceberg's. Kept from one scan to the next: files have the same columns.

    Args:
        serialized: the schema.
        name_mapping: the table's, by which columns are found where one has no field id; None: a file without them is an error.
        location: names the file in errors.

    Raises:
        FormatError: the mapping has no field id for a column.
    """
    try:
        return _converted(serialized, name_mapping)
    except ValueError as error:
        raise FormatError(
            f"{location}: has columns without field ids, for which the table's property {TableProperties.DEFAULT_NAME_MAPPING} has none "
            f"either: add them there ({error})"
        ) from error


def check_types(requested: Schema, stored: Schema, location: str) -> None:
    """Check that the columns of a file can be read as those of a table with the same field ids.

    Raises:
        FormatError: the type of one can not. The message names the file and the column.
    """
    visitor = NullKeepingProjection(stored, downcast_ns_timestamp_to_us=True, allow_timestamp_tz_mismatch=True)
    for field_id in sorted(requested.field_ids & stored.field_ids):
        wanted, found = requested.find_field(field_id), stored.find_field(field_id)
        if wanted.field_type == found.field_type or not (wanted.field_type.is_primitive and found.field_type.is_primitive):
            continue
        try:
            visitor.check(wanted, pa.array([], schema_to_pyarrow(found.field_type)))
        # The last is PyIceberg's for a date in a column of timestamps.
        except (ResolveError, ValueError, TypeError, NotImplementedError, AttributeError) as error:
            raise FormatError(
                f"{location}: column {requested.find_column_name(field_id)!r} is {found.field_type} there, and {wanted.field_type} in the "
                "table, as which it is not read: write its rows again in the table's types, by the engine that wrote it"
            ) from error


def has_nanosecond_columns(schema: Schema) -> bool:
    """Whether a table has timestamps in nanoseconds, at any level. Without any, those of a file are read in microseconds."""
    return any(isinstance(schema.find_type(each), (TimestampNanoType, TimestamptzNanoType)) for each in schema.field_ids)


def stored_as(kind: pa.DataType) -> pa.DataType:
    """Return the type of the whole numbers that dates and times are in literals, of which Python does not have all; another type itself."""
    if not pa.types.is_temporal(kind):
        return kind
    return pa.int32() if kind.bit_width == pa.int32().bit_width else pa.int64()


class PlainScan(ArrowScan):
    """A scan of a plain table, in the columns of its current schema.

    Args:
        metadata: the table's.
        io: the plain FileIO.
    """

    def __init__(self, metadata: TableMetadata, io: FileIO) -> None:
        super().__init__(metadata, io, metadata.schema(), ALWAYS_TRUE)
        # Arrow reads ORC in nanoseconds whatever was written.
        self._downcast_ns_timestamp_to_us = not has_nanosecond_columns(metadata.schema())


class NullKeepingProjection(ArrowProjectionVisitor):
    """PyIceberg's projection of Arrow data onto a schema, but for two things.

    Null lists and maps of structs stay null (theirs become empty), and unsigned numbers are written as signed ones, the only ones that
    Iceberg has: Iceberg Java refuses a file with others, and PyIceberg writes values beyond the column's type.
    """

    def check(self, field: NestedField, values: pa.Array) -> None:
        """Raise what reading such values of a column would. Its own errors, which are of many kinds."""
        self._cast_if_needed(field, values)

    def _cast_if_needed(self, field: NestedField, values: pa.Array) -> pa.Array:
        if not self._include_field_ids:
            return super()._cast_if_needed(field, values)

        is_unsigned = pa.types.is_unsigned_integer(values.type)
        try:
            return values.cast(schema_to_pyarrow(field.field_type)) if is_unsigned else super()._cast_if_needed(field, values)
        except pa.ArrowInvalid as error:
            what = f"column {field.name!r} has {values.type} values that its type {field.field_type} cannot hold"
            raise ConfigurationError(f"{what}: leave those rows out, or change them") from error

    def list(self, list_type: ListType, list_array: pa.Array | None, value_array: pa.Array | None) -> pa.Array | None:
        """Return the list array with its elements projected."""
        if value_array is None or not isinstance(list_array, (pa.ListArray, pa.LargeListArray)):
            return super().list(list_type, list_array, value_array)

        values = self._cast_if_needed(list_type.element_field, value_array)
        element = self._construct_field(list_type.element_field, values.type)
        is_large = isinstance(list_array, pa.LargeListArray)

        return (pa.LargeListArray if is_large else pa.ListArray).from_arrays(
            offsets_from_zero(list_array),
            values,
            type=pa.large_list(element) if is_large else pa.list_(element),
            mask=list_array.is_null(),
        )

    def map(
        self, map_type: MapType, map_array: pa.Array | None, key_result: pa.Array | None, value_result: pa.Array | None
    ) -> pa.Array | None:
        """Return the map array with its keys and values projected."""
        if not isinstance(map_array, pa.MapArray) or key_result is None or value_result is None:
            return None
        keys = self._cast_if_needed(map_type.key_field, key_result)
        values = self._cast_if_needed(map_type.value_field, value_result)
        key, value = self._construct_field(map_type.key_field, keys.type), self._construct_field(map_type.value_field, values.type)
        return pa.MapArray.from_arrays(offsets_from_zero(map_array), keys, values, type=pa.map_(key, value), mask=map_array.is_null())


def to_requested_schema(
    requested_schema: Schema,
    file_schema: Schema,
    batch: pa.RecordBatch,
    downcast_ns_timestamp_to_us: bool = False,
    include_field_ids: bool = False,
    projected_missing_fields: dict[int, Any] = EMPTY_DICT,
    allow_timestamp_tz_mismatch: bool = False,
    format_model: FileFormatModel | None = None,
) -> pa.RecordBatch:
    """Return a batch read from a file, or given to be written, in the columns and types of another schema, matched by field id.

    Args:
        requested_schema: what comes out: columns missing in the batch become their default or null.
        file_schema: the batch's own columns with their field ids.
        downcast_ns_timestamp_to_us: whether nanoseconds may be cut to microseconds.
        include_field_ids: whether the Arrow fields carry their ids, as a file writer needs them; then with `format_model`.
        projected_missing_fields: values of columns that only the file's partition gives.
        allow_timestamp_tz_mismatch: whether UTC timestamps may be read as timestamps without zone.
    """
    visitor = NullKeepingProjection(
        file_schema,
        downcast_ns_timestamp_to_us,
        include_field_ids,
        projected_missing_fields=projected_missing_fields,
        allow_timestamp_tz_mismatch=allow_timestamp_tz_mismatch,
        format_model=format_model,
    )
    return pa.RecordBatch.from_struct_array(visit_with_partner(requested_schema, batch, visitor, ArrowAccessor(file_schema)))
