"""How the table's Parquet files are written, and what their manifest entries say of them: options, dictionaries, statistics.

Options come from the table properties `write.parquet.*` and `write.format.default`. Compression codec and level, page size, page row limit,
dictionary size and row-group limit mean what they mean to PyIceberg, which also warns of the properties that it knows and does not
implement. Three are refused, each with its reason, because honouring them would put plaintext into the file or make a file that other
readers of the table cannot open.

Dictionaries: the first rows of a file tell which columns are worth one. A dictionary page holds each value once, and for every row the data
pages hold an index into it:

    dictionary   distinct values × length + rows × bits of an index / 8       worth it where this is less than
    plain        rows × length

Arrow tries a dictionary for every column until it has `write.parquet.dict-size-bytes`. For values that hardly ever repeat (ids, amounts,
free text) that takes longer than all the rest of writing, and makes the file longer, since the pages written until then stay as they are.
parquet-java asks the same question of the first page of a column chunk. Counting distinct values is a third of the work of writing a small
file, so a few values are picked first: where no two of those are equal, hardly any of the column's are, and where many are, many are.

Statistics come from the Parquet footer that was just written. They are PyIceberg's but for the bounds of dates, times and timestamps.
PyIceberg takes these through Python's datetime, which ends at year 9999 and at microseconds: a table of years beyond fails to be written,
and the upper bound of nanosecond timestamps comes out too low, so that a scan's filter would leave out files that hold matching rows. Here
they are taken as the integers that Parquet stores, which are the ones that Iceberg stores too.

    date                                        4 bytes LE, days since 1970-01-01
    time, timestamp(tz), timestamp(tz)_ns       8 bytes LE, microseconds (nanoseconds) since midnight or 1970-01-01

Iceberg table spec, "Manifests" (metrics) and appendix D "Binary single-value serialization".
"""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    match_metrics_mode,
    parquet_path_to_id_mapping,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadataCommonFields
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Properties, Record
from pyiceberg.types import (
    BinaryType,
    DateType,
    DoubleType,
    FloatType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from tablecrypt._arrow_types import offsets_of
from tablecrypt.errors import ConfigurationError
from tablecrypt.iceberg_properties import BLOOM_FILTERS, COMPRESSION, OF_FILES, TARGET_FILE_SIZE
from tablecrypt.setting_kinds import check_values, truth
from tablecrypt.table._pyiceberg.arrow import parquet_writer_kwargs
from tablecrypt.table.protection.policy import check_size, check_sizes, least_file_size
from tablecrypt.table.protection.write_barrier import is_barrier_format

M = TypeVar("M", bound=TableMetadataCommonFields)
PAGE_VERSION: Final = "write.parquet.page-version"
_PAGE_VERSION_1: Final = frozenset({"v1", "1", "1.0"})
SAMPLE_VALUES: Final = 65536
SAMPLE_BYTES: Final = 8 * 1024 * 1024
"""The first rows are as many as this, and about as many bytes of Arrow memory as this, at most."""
_LEAST_VALUES: Final = 1024
"""Of fewer values, all are looked at."""
_FEW_DIFFERENT: Final = 0.4
"""Of the picked values, at most, where a dictionary is worth it whatever the others are: 0.4 + 2 / _LEAST_BYTES < 1."""
_LENGTH_BYTES: Final = 4
_LEAST_BYTES: Final = 4
_INT32_DIGITS: Final = 9
_INT64_DIGITS: Final = 18
_TEMPORAL: Final = (DateType, TimeType, TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)
_WITHOUT_BOUNDS: Final = (MetricModeTypes.NONE, MetricModeTypes.COUNTS)


def parquet_writer_options(properties: Properties) -> dict[str, Any]:
    """Return the writer's options for a table.

    Raises:
        ConfigurationError: a property asks for another format than Parquet, for data page version 2, or for bloom filters; or for pages,
            row groups or files of few rows in a table with protected columns (protection/policy.py); or its value cannot be used.
    """
    check_values(properties, OF_FILES)
    check_sizes(properties)
    _check_format(properties)
    _check_page_version(properties)
    _check_bloom_filters(properties)
    options = parquet_writer_kwargs({**properties, COMPRESSION.name: COMPRESSION.chosen(properties)})
    _check_compression_level(options["compression"], options["compression_level"])
    return options


def target_file_size(properties: Properties) -> int:
    """Return `write.target-file-size-bytes`: of an Arrow table bytes in memory, as for PyIceberg; of a stream stored bytes, as for Java."""
    check_size(TARGET_FILE_SIZE.name, properties)
    return TARGET_FILE_SIZE.whole_number(properties)


def with_target_file_size(metadata: M, size: int) -> M:
    """Return table metadata whose data files end at `size` bytes. For writing files only, never to be committed."""
    size = least_file_size(metadata.properties, size)
    return metadata.model_copy(update={"properties": {**metadata.properties, TARGET_FILE_SIZE.name: str(size)}})


def _check_format(properties: Properties) -> None:
    name = properties.get(TableProperties.WRITE_FILE_FORMAT, TableProperties.WRITE_FILE_FORMAT_DEFAULT)
    if name.lower() != "parquet" and not is_barrier_format(properties):
        raise ConfigurationError(f"{TableProperties.WRITE_FILE_FORMAT} is {name!r}; encrypted data files are written as parquet only")


def _check_page_version(properties: Properties) -> None:
    version = properties.get(PAGE_VERSION, "v1")
    if version.lower() not in _PAGE_VERSION_1:
        raise ConfigurationError(
            f"{PAGE_VERSION} is {version!r}; encrypted files are written with data pages of version 1, because parquet-java "
            "cannot read Arrow's encrypted pages of version 2: set v1, or remove the property"
        )


def _check_compression_level(codec: str, level: int | None) -> None:
    if level is None:
        return
    try:
        pa.Codec(codec, compression_level=level).compress(b"x")
    except (OSError, ValueError) as error:
        name = TableProperties.PARQUET_COMPRESSION_LEVEL
        raise ConfigurationError(f"{name} is {level}, and {codec} has no such level ({error}): set another, or remove it") from None


def _check_bloom_filters(properties: Properties) -> None:
    for name, value in properties.items():
        if name.startswith(BLOOM_FILTERS.name) and truth(name, value):
            raise ConfigurationError(
                f"{name} is true, but bloom filters cannot be written into an encrypted file: Arrow has no encrypted ones, and a "
                "plaintext filter would tell which values a column holds"
            )


def dictionary_columns(rows: pa.Table, sample_bytes: int = SAMPLE_BYTES) -> list[str]:
    """Return the Parquet paths ("props.key_value.key") of the leaf columns that a dictionary makes shorter.

    Args:
        rows: the first rows of the file, in its own columns.
        sample_bytes: about how many bytes of Arrow memory of them are looked at.
    """
    within_bytes = rows.num_rows * sample_bytes // max(rows.nbytes, 1)
    sample = rows.slice(0, max(1, min(SAMPLE_VALUES, within_bytes))).combine_chunks()
    return [
        path
        for batch in sample.to_batches()
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        for path, values in _leaves(name, column)
        if _is_worth_it(values.slice(0, SAMPLE_VALUES))
    ]


def _leaves(path: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield the leaf columns of a column, under the names that they have in a Parquet file."""
    if isinstance(array, pa.StructArray):
        for field, child in zip(array.type, array.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", child)
    elif isinstance(array, pa.MapArray):
        yield from _leaves(f"{path}.key_value.key", _of_these_rows(array, array.keys))
        yield from _leaves(f"{path}.key_value.value", _of_these_rows(array, array.items))
    elif isinstance(array, (pa.ListArray, pa.LargeListArray)):
        yield from _leaves(f"{path}.list.element", _of_these_rows(array, array.values))
    else:
        yield path, array.storage if isinstance(array, pa.ExtensionArray) else array


def _of_these_rows(array: pa.MapArray | pa.ListArray | pa.LargeListArray, values: pa.Array) -> pa.Array:
    """Return what the rows of a slice hold, of the values that the whole array holds."""
    offsets = offsets_of(array)
    start, stop = offsets[0].as_py(), offsets[-1].as_py()
    return values.slice(start, stop - start)


def _is_worth_it(values: pa.Array) -> bool:
    count = _count(values)
    if count == 0 or isinstance(values, pa.DictionaryArray):
        return True

    present = values.drop_null() if values.null_count else values
    picked = _picked(present)
    if picked is not None:
        different = len(picked.unique())
        if different == len(picked):
            return False
        if different <= _FEW_DIFFERENT * len(picked):
            return True

    distinct = present.unique()
    index_bits = max(len(distinct) - 1, 1).bit_length()

    return _plain_bytes(distinct) + count * index_bits // 8 < _plain_bytes(values)


def _picked(values: pa.Array) -> pa.Array | None:
    """Return a few values, picked at random; None where there are not many more of them.

    Where no two of these are equal, most of all values occur once, and counting them all says no more: of a column that a dictionary makes
    a tenth shorter, several of the picked values are equal. Where many are equal, the share of all values that differ is no greater. Each
    that repeats another saves _LEAST_BYTES at least, and each value costs an index, of at most 2 bytes for SAMPLE_VALUES.
    """
    return values.take(_positions(len(values))) if len(values) >= _LEAST_VALUES else None


@functools.lru_cache(maxsize=64)
def _positions(count: int) -> pa.Array:
    # If each value occurs twice, some 32 pairs are expected among as many. Seeded: the same rows are always written in the same way.
    return pa.array(np.unique(np.random.default_rng(0).integers(0, count, 8 * math.isqrt(count))))


def _plain_bytes(values: pa.Array) -> int:
    """Return how many bytes the values take in pages without a dictionary, before compression."""
    count, arrow = _count(values), values.type
    if pa.types.is_string(arrow) or pa.types.is_large_string(arrow) or pa.types.is_binary(arrow) or pa.types.is_large_binary(arrow):
        return int(pc.sum(pc.binary_length(values), min_count=0).as_py()) + count * _LENGTH_BYTES
    if pa.types.is_decimal(arrow) and arrow.precision <= _INT64_DIGITS:
        return count * (4 if arrow.precision <= _INT32_DIGITS else 8)
    return count * max(int(arrow.bit_width) // 8, _LEAST_BYTES)


def _count(values: pa.Array) -> int:
    return len(values) - int(values.null_count)


@dataclass(frozen=True)
class FileStatistics:
    """What manifest entries say of data files whose columns are the same: which columns are told of, and how far, is worked out once.

    Attributes:
        plan: what is told of each column, by its field id.
        paths: field ids by the Parquet paths of the columns.
    """

    plan: dict[int, StatisticsCollector]
    paths: dict[str, int]

    @classmethod
    def of(cls, file_schema: Schema, properties: Properties) -> Self:
        """Return what is told of files with these columns; the table's properties give the metrics modes."""
        return cls(statistics_plan(file_schema, properties), parquet_path_to_id_mapping(file_schema))

    @classmethod
    def of_others(cls, stored: Schema, schema: Schema, properties: Properties) -> Self:
        """Return what is told of a file that another program wrote, whose columns may have other names than the table's, or be none of it.

        Args:
            stored: the columns of the file.
            schema, properties: the table's.
        """
        untold = statistics_plan(stored, {TableProperties.DEFAULT_WRITE_METRICS_MODE: MetricModeTypes.NONE.value})
        told = {field_id: column for field_id, column in statistics_plan(schema, properties).items() if field_id in untold}
        return cls({**untold, **told}, parquet_path_to_id_mapping(stored))

    def partition(self, footer: pq.FileMetaData, spec: PartitionSpec, schema: Schema, location: str) -> Record:
        """Return the partition that all rows of a file are in.

        Raises:
            ConfigurationError: the footer does not tell: a source column has nulls beside values, is of floats, which may be NaN, has no
                bounds in a row group, or is not stored and has a default.
            ValueError: rows are in several partitions, or the transform keeps no order.
        """
        sources = {each.source_id for each in spec.fields if not isinstance(each.transform, VoidTransform)}
        full = {each: dataclasses.replace(self.plan[each], mode=MetricsMode(MetricModeTypes.FULL)) for each in sources & self.plan.keys()}
        found = data_file_statistics_from_parquet_metadata(footer, {**self.plan, **full}, self.paths)
        partly_bounded = _partly_bounded(footer, full, self.paths)

        for source in sources:
            field, nulls = schema.find_field(source), found.null_value_counts.get(source)
            is_null = source in full and nulls == found.value_counts.get(source)
            is_told = nulls == 0 and source not in partly_bounded and not isinstance(field.field_type, (FloatType, DoubleType))
            if not (is_null or is_told or (source not in full and field.initial_default is None)):
                raise ConfigurationError(
                    f"{location}: its footer does not tell which partition its rows are in, by their column "
                    f"{schema.find_column_name(source)!r}: append the rows instead"
                )

        return found.partition(spec, schema)

    def read(self, footer: pq.FileMetaData) -> dict[str, Any]:
        """Return record_count, column_sizes, counts, bounds and split_offsets of a written file, as manifests store them."""
        plan = {**self.plan, **self._counted}
        try:
            statistics = data_file_statistics_from_parquet_metadata(footer, plan, self.paths).to_serialized_dict()
        except UnicodeError:
            # PyIceberg cuts an upper bound by counting its last character up, from U+D7FF to what is no character; and another engine may
            # have written text that is not UTF-8. Without bounds the file is always read; with an error one such value would keep every
            # other row of its file from being erased.
            statistics = data_file_statistics_from_parquet_metadata(footer, _without_text(plan), self.paths).to_serialized_dict()
        unknown = _partly_bounded(footer, self._bounded, self.paths)
        for field_id in unknown:
            statistics["lower_bounds"].pop(field_id, None)
            statistics["upper_bounds"].pop(field_id, None)

        known = {field_id: column for field_id, column in self._temporal.items() if field_id not in unknown}
        for field_id, (lower, upper) in _integer_bounds(footer, known, self.paths).items():
            layout = "<i" if isinstance(self.plan[field_id].iceberg_type, DateType) else "<q"
            statistics["lower_bounds"][field_id] = struct.pack(layout, lower)
            statistics["upper_bounds"][field_id] = struct.pack(layout, upper)

        return statistics

    @functools.cached_property
    def _bounded(self) -> dict[int, StatisticsCollector]:
        # A row group of NaN alone has no bounds, and those of the others say nothing of NaN.
        return {each: column for each, column in self.plan.items() if not isinstance(column.iceberg_type, (FloatType, DoubleType))}

    @functools.cached_property
    def _temporal(self) -> dict[int, StatisticsCollector]:
        return {field_id: column for field_id, column in self.plan.items() if _has_temporal_bounds(column)}

    @functools.cached_property
    def _counted(self) -> dict[int, StatisticsCollector]:
        return _counted_alone(self._temporal)


def _counted_alone(columns: dict[int, StatisticsCollector]) -> dict[int, StatisticsCollector]:
    counts = MetricsMode(MetricModeTypes.COUNTS)
    return {field_id: dataclasses.replace(column, mode=counts) for field_id, column in columns.items()}


def _without_text(plan: dict[int, StatisticsCollector]) -> dict[int, StatisticsCollector]:
    bounded = {each: column for each, column in plan.items() if column.mode.type in (MetricModeTypes.TRUNCATE, MetricModeTypes.FULL)}
    return {**plan, **_counted_alone({each: column for each, column in bounded.items() if isinstance(column.iceberg_type, StringType)})}


def statistics_plan(schema: Schema, properties: Properties) -> dict[int, StatisticsCollector]:
    """Return what manifests tell of each column, by its field id, as a table's metrics modes say.

    Fields of structs have bounds, as in Iceberg Java. PyIceberg counts them alone, as is right for what is in lists and maps.
    """
    plan = compute_statistics_plan(schema, properties)
    inside = [plan[field_id] for field_id in _in_structs(schema.as_struct()) if field_id in plan and "." in plan[field_id].column_name]
    return plan | {column.field_id: dataclasses.replace(column, mode=_asked_for(column, properties)) for column in inside}


def _in_structs(struct: StructType) -> Iterator[int]:
    for field in struct.fields:
        if isinstance(field.field_type, StructType):
            yield from _in_structs(field.field_type)
        else:
            yield field.field_id


def _asked_for(column: StatisticsCollector, properties: Properties) -> MetricsMode:
    default = properties.get(TableProperties.DEFAULT_WRITE_METRICS_MODE, TableProperties.DEFAULT_WRITE_METRICS_MODE_DEFAULT)
    mode = match_metrics_mode(str(properties.get(f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{column.column_name}", default)))
    is_cut = mode.type != MetricModeTypes.TRUNCATE or isinstance(column.iceberg_type, (StringType, BinaryType))
    return mode if is_cut else MetricsMode(MetricModeTypes.FULL)


def _has_temporal_bounds(column: StatisticsCollector) -> bool:
    return isinstance(column.iceberg_type, _TEMPORAL) and column.mode.type not in _WITHOUT_BOUNDS


def _integer_bounds(footer: pq.FileMetaData, columns: dict[int, StatisticsCollector], paths: dict[str, int]) -> dict[int, tuple[int, int]]:
    bounds: dict[int, tuple[int, int]] = {}
    for field_id, chunk in _chunks(footer, columns, paths):
        statistics = chunk.statistics
        if statistics.has_min_max:
            lower, upper = bounds.get(field_id, (statistics.min_raw, statistics.max_raw))
            bounds[field_id] = min(lower, statistics.min_raw), max(upper, statistics.max_raw)

    return bounds


def _partly_bounded(footer: pq.FileMetaData, columns: dict[int, StatisticsCollector], paths: dict[str, int]) -> set[int]:
    """Return those of some columns that have values in a row group without bounds: Arrow leaves out bounds of more than 4096 bytes.

    The bounds of the other row groups would rule the file out although the rows of this one may match.
    """
    return {
        field_id
        for field_id, chunk in _chunks(footer, columns, paths)
        if chunk.statistics is None or not (chunk.statistics.has_min_max or chunk.statistics.null_count == chunk.num_values)
    }


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
