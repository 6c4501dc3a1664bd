"""count, min and max of a whole table or of whole partitions, from what its manifests say of the files: no data file is opened.

    aggregate ─▶ {values: [value]} as partition_values.py draws them, or {} where the manifests do not say

They do not say where rows of a file are deleted, where the catalog's server restricts what may be read, and where a file has no statistics
of the column. Bounds of text and binaries are cut: these have to be read. So do floating-point numbers where a file may have a NaN, which
bounds leave out, and where the result is a zero, whose sign they do not tell; columns whose type changed; and columns with a default, which
older files lack. Nor do manifests say which rows changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypedDict

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    TimestampType,
    TimestamptzType,
)

from tablecrypt.engines.protected_columns import protected_among
from tablecrypt.spark.sql.messages import OptionsRequest, Response, operation
from tablecrypt.spark.sql.planner import LoadedTable, Planner
from tablecrypt.spark.sql.scans.filters import FilterRequest, Predicate, UntranslatedError, field_at, looked_at, pruning_filter
from tablecrypt.spark.sql.scans.partition_values import json_value
from tablecrypt.spark.sql.scans.plan import is_filtered, planned_tasks
from tablecrypt.spark.sql.scans.read_settings import ReadSettings
from tablecrypt.spark.sql.scans.whole_partitions import of_whole_partitions
from tablecrypt.table.protection.policy import check_names

_EXACT_BOUNDS: Final = (BooleanType, IntegerType, LongType, DateType, TimestampType, TimestamptzType, DecimalType)
_FLOATING: Final = (FloatType, DoubleType)
_EXTREMES: Final[Mapping[str, tuple[str, Callable[[Iterable[Any]], Any]]]] = {"min": ("lower_bounds", min), "max": ("upper_bounds", max)}


class _UnknownError(Exception):
    """The manifests do not say."""


class Function(TypedDict):
    """count, min or max, and the path of names to its column; count without one counts rows."""

    function: str
    column: list[str] | None


class Aggregate(OptionsRequest, FilterRequest):
    """Functions of the rows that match all of some predicates, each of which partitions answer (whole_partitions.py)."""

    functions: list[Function]


@operation
def aggregate(planner: Planner, request: Aggregate) -> Response:
    """Return the values of aggregate functions over the rows of a table that match, if its manifests have them."""
    loaded = planner.tables[request.table]
    if not ReadSettings.of(request, loaded.located.table.metadata.properties).asks_manifests:
        return Response({})

    try:
        files = _whole_files(loaded, request.filter)
        values = [_value(each, files, loaded) for each in request.functions]
    except _UnknownError:
        return Response({})

    return Response({"values": values})


def _whole_files(loaded: LoadedTable, predicates: Sequence[Predicate]) -> list[DataFile]:
    if loaded.changes is not None or is_filtered(loaded):
        raise _UnknownError

    metadata = loaded.located.table.metadata
    # The name of a protected column may lead to another column now: refused here, as for reads.
    check_names(metadata, looked_at(predicates, loaded.schema))
    row_filter = pruning_filter(predicates, loaded.schema, metadata.schema())
    tasks = of_whole_partitions(planned_tasks(loaded, row_filter, predicates), predicates, loaded)
    # A manifest counts rows of the file and not those of them that deletes leave.
    if any(task.delete_files for task in tasks):
        raise _UnknownError

    return [task.file for task in tasks]


def _value(asked: Function, files: Sequence[DataFile], loaded: LoadedTable) -> Any:
    path = asked["column"]
    if asked["function"] == "count" and path is None:
        return sum(file.record_count for file in files)
    field = _field(loaded.schema, path, loaded.located.table.metadata)
    if asked["function"] == "count":
        return sum(file.record_count - _nulls(file, field) for file in files)
    return _extreme(asked["function"], files, field)


def _field(schema: Schema, path: Any, metadata: TableMetadata) -> NestedField:
    """Return a column of which all files have the same, and everybody may know the values."""
    try:
        fields = [field_at(schema, path[:depth]) for depth in range(1, len(path or ()) + 1)]
    except UntranslatedError as unknown:
        raise _UnknownError from unknown

    # Rows of older files have the default, of which those files' statistics say nothing.
    if not fields or not isinstance(fields[-1].field_type, PrimitiveType) or any(each.initial_default is not None for each in fields):
        raise _UnknownError

    field = fields[-1]
    if any(known.find_type(field.field_id) != field.field_type for known in metadata.schemas if field.field_id in known.field_ids):
        raise _UnknownError
    # Manifests know the placeholder column of a protected one, so they count masks and have no bounds of the values.
    if protected_among(metadata, Schema(fields[0])) is not None:
        raise _UnknownError

    check_names(metadata, {field.field_id})

    return field


def _nulls(file: DataFile, field: NestedField) -> int:
    nulls = (file.null_value_counts or {}).get(field.field_id)
    values = (file.value_counts or {}).get(field.field_id)
    # A field in a list or map has another number of values than the file has rows, and its nulls are no rows.
    if nulls is None or values != file.record_count:
        raise _UnknownError
    return nulls


def _extreme(function: str, files: Sequence[DataFile], field: NestedField) -> Any:
    is_floating = isinstance(field.field_type, _FLOATING)
    if not is_floating and not isinstance(field.field_type, _EXACT_BOUNDS):
        raise _UnknownError
    if is_floating and any((file.nan_value_counts or {}).get(field.field_id) != 0 for file in files):
        raise _UnknownError

    bounds, choose = _EXTREMES[function]
    found = [_bound(field, getattr(file, bounds)) for file in files if _nulls(file, field) < file.record_count]
    extreme = choose(found) if found else None
    if is_floating and extreme == 0:
        raise _UnknownError

    return json_value(extreme, field)


def _bound(field: NestedField, bounds: Mapping[int, bytes] | None) -> Any:
    bound = (bounds or {}).get(field.field_id)
    if bound is None or not isinstance(field.field_type, PrimitiveType):
        raise _UnknownError
    return from_bytes(field.field_type, bound)
