"""Columns of nanoseconds are filtered to the nanosecond, however they are partitioned and whichever way the filter is used."""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo, GreaterThan, GreaterThanOrEqual, In, IsNull, LessThan, LessThanOrEqual, NotEqualTo, Or
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform, IdentityTransform, MonthTransform, Transform, YearTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestampNanoType, TimestamptzNanoType

from tests.support.plaintext import CANARY
from tests.support.protected_tables import COLUMN_KEY, TABLE_KEY, Clients
from tests.support.tables import new_table

TIMES = [1, -1, None, 10**18 + 7, 1_600_000_000_123_456_789, -(10**17), 0]
COMPARED: dict[str, int] = {"1970-01-01T00:00:00.000000001": 1, "1970-01-01T00:00:00": 0, "2020-09-13T12:26:40.123456789": TIMES[4] or 0}
COMPARISONS: list[tuple[Any, Callable[[int, int], bool]]] = [
    (EqualTo, operator.eq),
    (NotEqualTo, operator.ne),
    (LessThan, operator.lt),
    (LessThanOrEqual, operator.le),
    (GreaterThan, operator.gt),
    (GreaterThanOrEqual, operator.ge),
]
TRANSFORMS: list[Transform[Any, Any]] = [
    IdentityTransform(),
    BucketTransform(4),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
]


def table_in(catalog: Catalog, transform: Transform[Any, Any] | None, zone: str | None) -> Table:
    at = TimestamptzNanoType() if zone else TimestampNanoType()
    schema = Schema(NestedField(1, "At", at), NestedField(2, "id", LongType()), NestedField(3, "text", StringType()))
    spec = PartitionSpec(PartitionField(1, 1000, transform, "part")) if transform else PartitionSpec()
    return new_table(catalog, schema=schema, appends=[rows(zone)], partitioned_by=spec)


def rows(zone: str | None) -> pa.Table:
    return pa.table({"At": pa.array(TIMES, pa.timestamp("ns", tz=zone)), "id": range(len(TIMES)), "text": [CANARY] * len(TIMES)})


def ids(table: Table, row_filter: Any) -> list[int]:
    return sorted(table.scan(row_filter=row_filter, case_sensitive=False).to_arrow().column("id").to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize("transform", [None, *TRANSFORMS])
@pytest.mark.parametrize(("zone", "suffix"), [(None, ""), ("UTC", "+00:00")])
def test_every_comparison_is_to_the_nanosecond(
    catalog: Catalog, transform: Transform[Any, Any] | None, zone: str | None, suffix: str
) -> None:
    table = table_in(catalog, transform, zone)
    for text, nanoseconds in COMPARED.items():
        for predicate, holds in COMPARISONS:
            expected = [row for row, time in enumerate(TIMES) if time is not None and holds(time, nanoseconds)]
            assert ids(table, predicate("at", text + suffix)) == expected
            assert ids(table, predicate("at", nanoseconds)) == expected
        assert ids(table, Or(In(term="at", literals=[text + suffix, 5]), IsNull(term="at"))) == sorted([2, TIMES.index(nanoseconds)])
    table.delete(f"At >= '1970-01-01T00:00:00.000000001{suffix}'")
    assert ids(table, "true") == [1, 2, 5, 6]
    table.overwrite(rows(zone).slice(0, 1), f"At = '1970-01-01T00:00:00{suffix}'")
    assert ids(table, "true") == [0, 1, 2, 5]


def test_a_scan_that_is_made_of_another_compares_fitted_too(catalog: Catalog) -> None:
    table = table_in(catalog, None, None)
    scan = table.scan("at >= '1970-01-01T00:00:00.000000001'").with_case_sensitive(False)
    later = scan.filter("AT < 1").select("id")

    assert sorted(scan.to_arrow().column("id").to_pylist()) == ids(table, "At >= 1")
    assert later.to_arrow().num_rows == 0


@pytest.mark.parametrize(
    ("compared", "said"),
    [
        ("2500-01-01T00:00:00", "64 bits"),
        ("yesterday", "Invalid timestamp"),
        ("2020-01-01T00:00:00+00:00", "Zone offset"),
        (dt.datetime(2020, 1, 1), "as text or as whole nanoseconds"),
        (2**63, "64 bits"),
    ],
)
def test_what_is_no_time_of_the_column_is_refused(catalog: Catalog, compared: object, said: str) -> None:
    table = table_in(catalog, None, None)
    with pytest.raises((TypeError, ValueError), match=said):
        table.scan(row_filter=EqualTo(term="At", value=compared)).to_arrow()
    with pytest.raises((TypeError, ValueError), match=said):
        table.delete(EqualTo(term="At", value=compared))


def test_a_table_with_protected_columns_has_nanoseconds_too(both: Clients) -> None:
    given = pa.table({"at": pa.array([TIMES[0], None], pa.timestamp("ns")), "name": [CANARY, None]})
    declared = {"encryption.key-id": TABLE_KEY, "encryption.column-keys": f"{COLUMN_KEY}: at"}

    table = both.payroll.create_table("db.times", given.schema, properties=declared)
    table.append(given)

    assert table.metadata.format_version == 3
    assert isinstance(table.schema().find_type("at"), TimestampNanoType)
    assert both.payroll.load_table("db.times").scan().to_arrow().column("at").to_pylist() == given.column("at").to_pylist()
