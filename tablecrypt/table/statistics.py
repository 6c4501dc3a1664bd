"""A data file's statistics for its manifest entry, from the Parquet footer that was just written.

They are PyIceberg's but for the bounds of dates, times and timestamps. PyIceberg takes these through Python's datetime, which ends at year
9999 and at microseconds: a table of years beyond fails to be written, and the upper bound of nanosecond timestamps comes out too low, so
that a scan's filter would leave out files that hold matching rows. Here they are taken as the integers that Parquet stores, which are the
ones that Iceberg stores too.

    date                                        4 bytes LE, days since 1970-01-01
    time, timestamp(tz), timestamp(tz)_ns       8 bytes LE, microseconds (nanoseconds) since midnight or 1970-01-01

Iceberg table spec, "Manifests" (metrics) and appendix D "Binary single-value serialization".
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from typing import Any, Final

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema
from pyiceberg.typedef import Properties
from pyiceberg.types import (
    DateType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

_TEMPORAL: Final = (DateType, TimeType, TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)
_WITHOUT_BOUNDS: Final = (MetricModeTypes.NONE, MetricModeTypes.COUNTS)


def data_file_statistics(footer: pq.FileMetaData, file_schema: Schema, properties: Properties) -> dict[str, Any]:
    """Return record_count, column_sizes, counts, lower and upper bounds and split_offsets, as the manifest stores them.

    Args:
        footer: of the written file.
        file_schema: the columns as they are in the file.
        properties: the table's; its metrics modes are honoured.
    """
    plan = compute_statistics_plan(file_schema, properties)
    paths = parquet_path_to_id_mapping(file_schema)
    temporal = {field_id: column for field_id, column in plan.items() if _has_temporal_bounds(column)}
    counted = {field_id: dataclasses.replace(column, mode=MetricsMode(MetricModeTypes.COUNTS)) for field_id, column in temporal.items()}
    statistics = data_file_statistics_from_parquet_metadata(footer, {**plan, **counted}, paths).to_serialized_dict()
    for field_id, (lower, upper) in _integer_bounds(footer, temporal, paths).items():
        layout = "<i" if isinstance(plan[field_id].iceberg_type, DateType) else "<q"
        statistics["lower_bounds"][field_id] = struct.pack(layout, lower)
        statistics["upper_bounds"][field_id] = struct.pack(layout, upper)
    return statistics


def _has_temporal_bounds(column: StatisticsCollector) -> bool:
    return isinstance(column.iceberg_type, _TEMPORAL) and column.mode.type not in _WITHOUT_BOUNDS


def _integer_bounds(footer: pq.FileMetaData, columns: dict[int, StatisticsCollector], paths: dict[str, int]) -> dict[int, tuple[int, int]]:
    bounds: dict[int, tuple[int, int]] = {}
    unknown: set[int] = set()
    for field_id, chunk in _chunks(footer, columns, paths):
        statistics = chunk.statistics
        if statistics is None or not (statistics.has_min_max or statistics.null_count == chunk.num_values):
            unknown.add(field_id)
        elif statistics.has_min_max:
            lower, upper = bounds.get(field_id, (statistics.min_raw, statistics.max_raw))
            bounds[field_id] = min(lower, statistics.min_raw), max(upper, statistics.max_raw)
    return {field_id: each for field_id, each in bounds.items() if field_id not in unknown}


def _chunks(
    footer: pq.FileMetaData, columns: dict[int, StatisticsCollector], paths: dict[str, int]
) -> Iterator[tuple[int, pq.ColumnChunkMetaData]]:
    for group in range(footer.num_row_groups):
        row_group = footer.row_group(group)
        for at in range(footer.num_columns):
            chunk = row_group.column(at)
            field_id = paths[chunk.path_in_schema]
            if field_id in columns:
                yield field_id, chunk
