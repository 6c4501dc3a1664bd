"""PyIceberg's evaluators, which look at one file after the other, are the judges of which files a filter rules out."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import BooleanExpression, EqualTo, GreaterThan, In, NotNull
from pyiceberg.expressions.visitors import expression_evaluator, inclusive_projection
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform, VoidTransform, YearTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, FloatType, IntegerType, LongType, NestedField, PrimitiveType, StructType

from tablecrypt.errors import FormatError
from tablecrypt.table._pyiceberg.arrow import InclusiveMetricsEvaluator
from tablecrypt.table.planning.file_filter import FileFilter
from tablecrypt.testing.strategies import row_filters
from tests.support.manifest_bytes import entries_of, manifest_bytes, manifest_row
from tests.support.manifests import SNAPSHOT_ID, data_file

SCHEMA: Final = Schema(
    NestedField(1, "i", "int"),
    NestedField(2, "n", "long"),
    NestedField(3, "f", "float"),
    NestedField(4, "x", "double"),
    NestedField(5, "t", "string"),
    NestedField(6, "b", "binary"),
    NestedField(7, "d", "date"),
    NestedField(8, "at", "timestamp"),
    NestedField(9, "m", "decimal(9, 2)"),
    NestedField(10, "yes", "boolean"),
    NestedField(11, "fixed", "fixed[2]"),
    NestedField(12, "s", StructType(NestedField(13, "inner", "long"))),
)
_WHOLE: Final = st.integers(-4, 4)
_FLOATS: Final = st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 1.1, 2.0, math.inf])
_EPOCH: Final = dt.datetime(1970, 1, 1)
VALUES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "i": _WHOLE,
    "n": _WHOLE | st.sampled_from([-(2**63), 2**63 - 1]),
    "f": _FLOATS.map(lambda value: struct.unpack("<f", struct.pack("<f", value))[0]),
    "x": _FLOATS,
    "t": st.sampled_from(["", "a", "ab", "abc", "b", "é", "😀", "a\x00"]),
    "b": st.sampled_from([b"", b"a", b"a\x00", b"ab", b"\xff"]),
    "d": st.integers(-40, 40),
    "at": st.integers(-(10**12), 10**12),
    "m": st.integers(-500, 500).map(lambda value: Decimal(value).scaleb(-2)),
    "yes": st.booleans(),
    "fixed": st.sampled_from([b"aa", b"ab", b"\x00\x00"]),
    "s.inner": _WHOLE,
}
NAMES: Final = sorted(VALUES)
SPECS: Final = (
    PartitionSpec(spec_id=0),
    PartitionSpec(PartitionField(2, 1000, BucketTransform(4), "n_bucket"), spec_id=1),
    PartitionSpec(
        PartitionField(2, 1000, VoidTransform(), "n_bucket"),
        PartitionField(5, 1001, TruncateTransform(1), "t_trunc"),
        PartitionField(7, 1002, YearTransform(), "d_year"),
        spec_id=2,
    ),
    PartitionSpec(
        PartitionField(4, 1003, IdentityTransform(), "x"),
        PartitionField(8, 1004, DayTransform(), "at_day"),
        PartitionField(9, 1005, IdentityTransform(), "m"),
        spec_id=3,
    ),
)
BY_ID: Final = {spec.spec_id: spec for spec in SPECS}


def _literal(name: str, value: Any) -> Any:
    """A value of the table as a filter gives it."""
    if name == "d":
        return (_EPOCH + dt.timedelta(days=value)).date().isoformat()
    return (_EPOCH + dt.timedelta(microseconds=value)).isoformat() if name == "at" else value


def _literals(name: str) -> st.SearchStrategy[Any]:
    return VALUES[name].map(lambda value: _literal(name, value))


FILTERS: Final = row_filters(SCHEMA, {name: _literals(name) for name in NAMES})


@st.composite
def _files(draw: st.DrawFn, bounds_may_be_odd: bool = True) -> DataFile:
    """A file with statistics of what it holds, as far as its writer kept any, and some that no writer would keep."""
    held: dict[str, list[Any]] = {}
    statistics: dict[str, dict[int, Any]] = {
        name: {} for name in ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
    }
    rows = draw(st.sampled_from([-1, 0, 1, 1, 3, 3]))
    for name in NAMES:
        kind, field_id = cast("PrimitiveType", SCHEMA.find_type(name)), SCHEMA.find_field(name).field_id
        values = draw(st.lists(st.none() | VALUES[name], min_size=max(rows, 1), max_size=max(rows, 1)))
        if draw(st.integers(0, 9)) == 0:
            values = [math.nan if isinstance(kind, (FloatType, DoubleType)) else None] * len(values)
        held[name] = values
        present = [value for value in values if value is not None and not _is_nan(value)]
        found: dict[str, Any] = {
            "value_counts": len(values),
            "null_value_counts": values.count(None),
            "nan_value_counts": sum(map(_is_nan, values)),
        }
        if present:
            found |= {"lower_bounds": to_bytes(kind, min(present)), "upper_bounds": to_bytes(kind, max(present))}
        if bounds_may_be_odd and draw(st.integers(0, 19)) == 0:
            found["lower_bounds"] = draw(
                st.sampled_from([struct.pack("<d", math.nan), struct.pack("<f", math.nan), b"\xff", b"", bytes(3)])
            )
        if isinstance(kind, LongType) and present and max(map(abs, present)) < 9 and draw(st.booleans()):
            # Written before the column was promoted.
            found["lower_bounds"] = to_bytes(IntegerType(), min(present))
        for statistic, value in found.items():
            if draw(st.integers(0, 7)):
                statistics[statistic][field_id] = value
    spec = draw(st.sampled_from(SPECS))
    partition = Record(*(_partition_value(field, held) for field in spec.fields))
    file = data_file(
        partition=partition, record_count=rows, **{name: draw(st.sampled_from([each] * 9 + [None])) for name, each in statistics.items()}
    )
    file.spec_id = spec.spec_id
    return file


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _partition_value(field: PartitionField, held: dict[str, list[Any]]) -> Any:
    name = SCHEMA.find_column_name(field.source_id) or ""
    return field.transform.transform(SCHEMA.find_type(field.source_id))(held[name][0])


def _judged(row_filter: BooleanExpression, files: list[DataFile], include_empty: bool) -> Any:
    by_statistics = InclusiveMetricsEvaluator(SCHEMA, row_filter, True, include_empty).eval
    in_partition: dict[int, Callable[[Record], bool]] = {}
    for spec in SPECS:
        partition_schema = Schema(*spec.partition_type(SCHEMA).fields)
        in_partition[spec.spec_id] = expression_evaluator(partition_schema, inclusive_projection(SCHEMA, spec, True)(row_filter), True)
    try:
        return {file.file_path for file in files if in_partition[file.spec_id](file.partition) and by_statistics(file)}
    except (struct.error, UnicodeDecodeError):
        return FormatError
    except (ValueError, TypeError) as error:
        return type(error)


def _planned(row_filter: BooleanExpression, files: list[DataFile], include_empty: bool) -> Any:
    by_spec = {spec_id: [file for file in files if file.spec_id == spec_id] for spec_id in BY_ID}
    manifests = [
        (
            manifest_row(partition_spec_id=spec_id),
            manifest_bytes(
                [ManifestEntry(ManifestEntryStatus.ADDED, SNAPSHOT_ID, None, None, file) for file in mine], SCHEMA, BY_ID[spec_id]
            ),
        )
        for spec_id, mine in by_spec.items()
    ]
    entries = entries_of(*manifests)
    try:
        rows = FileFilter(SCHEMA, BY_ID, row_filter, case_sensitive=True, include_empty_files=include_empty).matching(entries)
    except (ValueError, TypeError, FormatError) as error:
        return type(error)
    return {entries.file(row).file_path for row in rows.tolist()}


def _check(row_filter: BooleanExpression, files: list[DataFile], include_empty: bool) -> None:
    for number, file in enumerate(files):
        file[1] = f"s3://b/{number}.parquet"
    assert _planned(row_filter, files, include_empty) == _judged(row_filter, files, include_empty)


@settings(deadline=None, max_examples=100)
@given(FILTERS, st.lists(_files(), min_size=1, max_size=8), st.booleans())
def test_files_that_may_match_are_those_that_pyiceberg_finds(
    row_filter: BooleanExpression, files: list[DataFile], include_empty: bool
) -> None:
    _check(row_filter, files, include_empty)


@pytest.mark.campaign
@settings(deadline=None, max_examples=10_000)
@given(FILTERS, st.lists(_files(), min_size=1, max_size=8), st.booleans())
def test_ten_thousand_filters_find_the_files_that_pyiceberg_finds(
    row_filter: BooleanExpression, files: list[DataFile], include_empty: bool
) -> None:
    _check(row_filter, files, include_empty)


def test_a_long_list_of_values_rules_out_files_of_nulls_alone() -> None:
    values = list(range(1000, 1300))
    nulls = data_file("s3://b/nulls", value_counts={2: 5}, null_value_counts={2: 5})
    other = data_file("s3://b/other", value_counts={2: 5}, null_value_counts={2: 0}, upper_bounds={2: struct.pack("<q", 0)})
    for file in (nulls, other):
        file.spec_id = 0
    row_filter = In(term="n", literals=values)
    assert _planned(row_filter, [nulls, other], False) == {"s3://b/other"} == _judged(row_filter, [nulls, other], False)


def test_a_file_that_counts_no_values_is_not_one_of_nulls_alone() -> None:
    file = data_file("s3://b/none", value_counts={2: 0}, null_value_counts={2: 0}, nan_value_counts={4: 0})
    file.spec_id = 0
    for row_filter in (NotNull(term="n"), GreaterThan(term="n", value=3)):
        assert _planned(row_filter, [file], False) == {"s3://b/none"} == _judged(row_filter, [file], False)


def test_a_bound_that_nobody_can_read_does_not_matter_where_the_number_of_rows_is_unknown() -> None:
    file = data_file("s3://b/unknown", record_count=-1, lower_bounds={10: b""})
    file.spec_id = 0
    row_filter = EqualTo(term="yes", value=False)
    assert _planned(row_filter, [file], False) == {"s3://b/unknown"} == _judged(row_filter, [file], False)
