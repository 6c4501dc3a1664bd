"""Rows by partition: each row is in one partition and none is lost, whatever its partition value is."""

from __future__ import annotations

import datetime as dt
import math
import struct
import uuid
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimeType,
    UnknownType,
    UUIDType,
)

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.sql.metadata_tables import metadata_table
from tablecrypt.table.partitions import rows_by_partition
from tablecrypt.table.table import EncryptedTable
from tests.support.plaintext import CANARY
from tests.support.tables import ENCRYPTED, ids, team_table

DAY_NS = 86_400_000_000_000
YEAR_10000, YEAR_0 = 253_402_300_800_000_000, -62_135_596_800_000_001
NANOSECONDS = [1, -1, -1000, 10**18 + 7, None, DAY_NS, -DAY_NS]


def partitioned(
    source_type: IcebergType, transform: Transform[Any, Any], values: pa.Array | pa.ChunkedArray
) -> list[tuple[Record, list[int]]]:
    """Return each partition with the positions of its rows."""
    schema = Schema(NestedField(1, "value", source_type), NestedField(2, "row", LongType()))
    spec = PartitionSpec(PartitionField(1, 1000, transform, "part"))
    rows = pa.table({"value": values, "row": pa.array(range(len(values)), pa.int64())})
    return [(key.partition, part.column("row").to_pylist()) for key, part in rows_by_partition(spec, schema, rows)]


def groups(source_type: IcebergType, transform: Transform[Any, Any], values: pa.Array | pa.ChunkedArray) -> dict[Any, list[int]]:
    return {partition[0]: rows for partition, rows in partitioned(source_type, transform, values)}


@given(st.lists(st.none() | st.floats(width=64) | st.sampled_from([0.0, -0.0, math.nan, -math.nan])))
def test_each_float_is_in_one_partition_whose_value_has_its_bits(values: list[float | None]) -> None:
    found = partitioned(DoubleType(), IdentityTransform(), pa.array(values, pa.float64(), from_pandas=False))
    assert sorted(row for _, rows in found for row in rows) == list(range(len(values)))
    for partition, rows in found:
        assert {_bits(values[row]) for row in rows} == {_bits(partition[0])}


def _bits(value: float | None) -> bytes | None:
    return None if value is None else struct.pack("<d", value)


def test_floats_of_single_precision_keep_their_value() -> None:
    (partition, rows), *others = partitioned(FloatType(), IdentityTransform(), pa.array([1.5, math.nan, None], pa.float32()))
    assert (partition[0], rows) == (1.5, [0])
    assert [rows for _, rows in others] == [[1], [2]]


@pytest.mark.parametrize(("source_type", "zone"), [(TimestampNanoType(), None), (TimestamptzNanoType(), "UTC")])
def test_nanoseconds_are_told_apart(source_type: IcebergType, zone: str | None) -> None:
    values = pa.array([*NANOSECONDS, 1], pa.timestamp("ns", tz=zone))
    expected = {value: [row] for row, value in enumerate(NANOSECONDS)} | {1: [0, 7]}
    assert groups(source_type, IdentityTransform(), values) == expected
    assert groups(source_type, VoidTransform(), values) == {None: list(range(8))}


@pytest.mark.parametrize("transform", [YearTransform(), MonthTransform(), DayTransform(), HourTransform(), BucketTransform(7)])
@pytest.mark.parametrize(("source_type", "zone"), [(TimestampNanoType(), None), (TimestamptzNanoType(), "UTC")])
def test_transforms_of_nanoseconds_give_what_filters_look_for(
    transform: Transform[Any, Any], source_type: IcebergType, zone: str | None
) -> None:
    found = groups(source_type, transform, pa.array(NANOSECONDS, pa.timestamp("ns", tz=zone)))
    looked_for = transform.transform(source_type)
    assert {row: value for value, rows in found.items() for row in rows} == {
        row: looked_for(value) for row, value in enumerate(NANOSECONDS)
    }


def test_columns_of_a_coarser_or_narrower_type_have_the_partitions_of_the_tables_type() -> None:
    assert groups(TimestampType(), IdentityTransform(), pa.array([-3, None, 1], pa.timestamp("ms"))) == {-3000: [0], None: [1], 1000: [2]}
    assert groups(TimestampType(), HourTransform(), pa.array([-3, 3600], pa.timestamp("s"))) == {-1: [0], 1: [1]}
    assert groups(TimestampType(), IdentityTransform(), pa.array([-1, 1], pa.timestamp("ns"))) == {-1: [0], 0: [1]}
    assert groups(LongType(), BucketTransform(9), pa.array([34], pa.int32())) == {BucketTransform(9).transform(LongType())(34): [0]}
    assert groups(StringType(), TruncateTransform(1), pa.array(["ab", "ac"]).dictionary_encode()) == {"a": [0, 1]}


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_bytes_are_cut_whatever_arrow_type_they_come_in(kind: pa.DataType) -> None:
    assert groups(BinaryType(), TruncateTransform(1), pa.array([b"ab", None, b"a", b""], kind)) == {b"a": [0, 2], None: [1], b"": [3]}


def test_values_are_those_of_a_manifest() -> None:
    assert groups(TimeType(), IdentityTransform(), pa.array([1_000_000], pa.time64("us"))) == {1_000_000: [0]}
    assert set(groups(TimeType(), BucketTransform(4), pa.array([1_000_000], pa.time64("us")))) <= {0, 1, 2, 3}
    assert groups(UUIDType(), IdentityTransform(), pa.array([b"u" * 16, None], pa.uuid())) == {b"u" * 16: [0], None: [1]}


def test_chunks_that_are_slices_are_cut_by_their_own_values() -> None:
    times = pa.array([1, 2, 3, 2], pa.timestamp("us"))
    values = pa.chunked_array([times.slice(1, 2), times.slice(3), times.slice(0, 0)])
    assert groups(TimestampType(), IdentityTransform(), values) == {2: [0, 2], 3: [1]}


SCHEMA = Schema(NestedField(1, "at", TimestampNanoType()), NestedField(2, "ratio", DoubleType()), NestedField(3, "text", StringType()))
SPEC = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "at"), PartitionField(2, 1001, IdentityTransform(), "ratio"))
ROWS = pa.table(
    {
        "at": pa.array([1, 1, -5, None], pa.timestamp("ns")),
        "ratio": [math.nan, -0.0, 0.0, math.nan],
        "text": [f"{CANARY} {number}" for number in range(4)],
    }
)


def table_in(catalog: Catalog, schema: Schema = SCHEMA, spec: PartitionSpec = SPEC, mode: str = "copy-on-write") -> Table:
    properties = {**ENCRYPTED, "write.delete.mode": mode}
    return catalog.create_table("db.t", schema, partition_spec=spec, properties=properties)


def texts(table: Table) -> list[str]:
    return sorted(text.removeprefix(CANARY).strip() for text in table.scan().to_arrow().column("text").to_pylist())


@pytest.mark.parametrize("streamed", [False, True])
def test_every_appended_row_is_in_the_table(catalog: Catalog, streamed: bool) -> None:
    table = table_in(catalog)
    table.append(ROWS.to_reader() if streamed else ROWS)
    assert table.scan().count() == 4
    assert sorted(map(str, table.scan().to_arrow().to_pylist())) == sorted(map(str, ROWS.to_pylist()))
    assert table.scan(row_filter="ratio is nan").to_arrow().num_rows == 2


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_rows_of_any_partition_are_deleted(catalog: Catalog, mode: str) -> None:
    table = table_in(catalog, mode=mode)
    table.append(ROWS)
    table.append(ROWS)
    table.delete(f"text = '{CANARY} 0'")
    table.delete("ratio is nan")
    assert texts(table) == ["1", "1", "2", "2"]
    table.delete("at is not null")
    assert texts(table) == []


@pytest.mark.parametrize(
    "row_filter", ["ratio != 1.0", "ratio not in (1.0, 2.0)", "not ratio = 0", "ratio is null", "ratio is nan", "true"]
)
def test_as_many_rows_are_counted_as_are_read(catalog: Catalog, row_filter: str) -> None:
    table = table_in(catalog)
    table.append(pa.concat_tables([ROWS, ROWS.slice(0, 1).set_column(1, "ratio", pa.nulls(1, pa.float64()))]))
    scan = table.scan(row_filter=row_filter)
    assert scan.count() == scan.to_arrow().num_rows


def test_partitions_of_any_value_are_overwritten(catalog: Catalog) -> None:
    table = table_in(catalog)
    table.append(ROWS)
    table.dynamic_partition_overwrite(ROWS.slice(0, 1).set_column(2, "text", [[f"{CANARY} new"]]))
    assert texts(table) == ["1", "2", "3", "new"]
    table.dynamic_partition_overwrite(ROWS.slice(3).set_column(2, "text", [[f"{CANARY} newer"]]))
    assert texts(table) == ["1", "2", "new", "newer"]


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_partitions_of_a_field_in_a_struct_are_overwritten_and_no_rows_of_a_column_with_its_name(catalog: Catalog, mode: str) -> None:
    inner = StructType(NestedField(3, "id", LongType()))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "inner", inner))
    table = table_in(catalog, schema, PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "part")), mode=mode)
    rows = pa.table({"id": [1, 2, 3, 4], "inner": [{"id": 2}, {"id": 1}, None, {"id": None}]})
    table.append(rows)
    table.dynamic_partition_overwrite(pa.table({"id": [5], "inner": [{"id": 1}]}))
    assert ids(table) == [1, 3, 4, 5]
    table.dynamic_partition_overwrite(pa.table({"id": [6], "inner": pa.array([None], rows.schema.field("inner").type)}))
    assert ids(table) == [1, 5, 6]


@pytest.mark.parametrize("transform", [YearTransform(), MonthTransform(), DayTransform()])
def test_filters_at_the_first_and_last_day_keep_the_rows_they_ask_for(catalog: Catalog, transform: Transform[Any, Any]) -> None:
    fields = [NestedField(1, "id", LongType()), NestedField(2, "day", DateType())]
    table = table_in(catalog, Schema(*fields), PartitionSpec(PartitionField(2, 1000, transform, "part")))
    days = [dt.date.min, dt.date(2024, 2, 29), dt.date.max]
    table.append(pa.table({"id": [1, 2, 3], "day": days}))
    found = {
        f"day {sign} '{day}'": ids(table, row_filter=f"day {sign} '{day}'") for sign in ("<", "<=", ">", ">=") for day in (days[0], days[2])
    }
    assert list(found.values()) == [[], [1, 2], [1], [1, 2, 3], [2, 3], [], [1, 2, 3], [3]]
    for beyond in (f"day < '{dt.date.min}'", f"day > '{dt.date.max}'"):
        with pytest.warns(UserWarning, match="did not match any records"):
            table.delete(beyond)
    table.delete(f"day <= '{dt.date.max}'")
    assert not table.scan().count()


@pytest.mark.parametrize("kind", [IntegerType(), LongType()])
def test_the_smallest_whole_numbers_are_found_in_the_partition_that_is_nearly_the_greatest(catalog: Catalog, kind: IcebergType) -> None:
    schema = Schema(NestedField(1, "id", kind), NestedField(2, "text", StringType()))
    spec = PartitionSpec(PartitionField(1, 1000, TruncateTransform(10), "tens"))
    table = catalog.create_table("db.tens", schema, partition_spec=spec, properties=ENCRYPTED)
    least = -(2**31) if isinstance(kind, IntegerType) else -(2**63)
    table.append(pa.table({"id": [least, 5, 200], "text": [CANARY] * 3}, schema=schema.as_arrow()))

    for row_filter, found in ((f"id = {least}", [least]), ("id < 7", [least, 5]), ("id > 100", [200]), (f"id in (5, {least})", [least, 5])):
        assert ids(table, row_filter=row_filter) == found
        assert table.scan(row_filter).count() == len(found)

    table.delete("id < 7")

    assert ids(table) == [200]


@pytest.mark.parametrize("row_filter", ["id < -2147483640", "id = -2147483648"])
def test_files_that_a_filter_finds_alone_in_their_manifest_are_deleted(catalog: Catalog, row_filter: str) -> None:
    schema = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "text", StringType()))
    spec = PartitionSpec(PartitionField(1, 1000, TruncateTransform(10), "tens"))
    table = catalog.create_table("db.tens", schema, partition_spec=spec, properties=ENCRYPTED)
    for id_ in (-(2**31), 5):
        table.append(pa.table({"id": [id_], "text": [CANARY]}, schema=schema.as_arrow()))

    table.delete(row_filter)

    assert ids(table) == [5]


@pytest.mark.parametrize("transform", [YearTransform(), MonthTransform(), DayTransform(), HourTransform(), IdentityTransform()])
@pytest.mark.parametrize(("moment", "row_filter"), [(YEAR_10000, "at > '9999-12-31T23:59:59'"), (YEAR_0, "at < '0001-01-01T00:00:00'")])
def test_moments_of_years_that_python_has_not_have_partitions(
    catalog: Catalog, transform: Transform[Any, Any], moment: int, row_filter: str
) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "at", TimestampType()))
    table = table_in(catalog, schema, PartitionSpec(PartitionField(2, 1000, transform, "part of")))
    table.append(pa.table({"id": [1, 2, 3], "at": pa.array([moment, 0, None], pa.timestamp("us"))}))

    assert ids(table, row_filter=row_filter) == [1]
    # One row for each partition, of values that Python has not.
    assert metadata_table(cast(EncryptedTable, table), "partitions", None).num_rows == 3
    table.delete(row_filter)
    assert ids(table) == [2, 3]


@pytest.mark.parametrize("transform", [YearTransform(), MonthTransform()])
def test_a_year_that_arrow_cannot_count_is_not_written_as_null(transform: Transform[Any, Any]) -> None:
    with pytest.raises(ConfigurationError, match="a value of value is of a year past 262142"):
        groups(TimestampType(), transform, pa.array([2**63 - 1], pa.timestamp("us")))


def test_rows_without_a_partition_column_are_in_the_partition_of_its_default(catalog: Catalog) -> None:
    schema = Schema(NestedField(1, "text", StringType()), NestedField(2, "pair", StructType(NestedField(3, "left", LongType()))))
    table = table_in(catalog, schema, PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "left")))
    with table.update_schema() as update:
        update.add_column("region", StringType(), default_value="north")
    with table.update_spec() as update_spec:
        update_spec.add_identity("region")
    table.append(pa.table({"text": [CANARY]}))
    (task,) = table.scan(row_filter="region = 'north' and pair.left is null").plan_files()
    assert task.file.partition == Record(None, "north")
    assert table.scan().to_arrow().to_pylist() == [{"text": CANARY, "pair": None, "region": "north"}]


def test_fields_of_structs_partition_rows_whatever_their_names_are_and_whether_the_rows_have_them(catalog: Catalog) -> None:
    pair = StructType(NestedField(3, "a.b", StringType()), NestedField(4, "left", LongType()))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "pair", pair))
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "dotted"))
    table = table_in(catalog, schema, spec)
    table.append(pa.table({"id": [1], "pair": [{"a.b": CANARY, "left": 1}]}))
    with table.update_schema() as update:
        update.add_column(("pair", "later"), LongType(), default_value=7)
    with table.update_spec() as update_spec:
        update_spec.add_identity("pair.later")
    table.append(pa.table({"id": [2, 3], "pair": pa.array([{"left": 2}, None], pa.struct([("left", pa.int64())]))}))
    table.append(pa.table({"id": [4]}))

    tasks = [task for row in range(1, 5) for task in table.scan(row_filter=f"id = {row}").plan_files()]
    partitions = [tuple(task.file.partition[at] for at in range(len(task.file.partition))) for task in tasks]
    assert partitions == [(CANARY,), (None, 7), (None, None), (None, None)]
    assert ids(table, row_filter="pair.later = 7") == [1, 2]


def test_rows_of_no_size_are_written(catalog: Catalog) -> None:
    table = table_in(catalog, Schema(NestedField(1, "nothing", UnknownType())), PartitionSpec())
    table.append(pa.table({"nothing": pa.nulls(2)}))
    assert table.scan().count() == table.scan().to_arrow().num_rows == 2


def test_rows_of_a_uuids_partition_are_found_by_the_uuid(catalog: Catalog) -> None:
    refs = [uuid.UUID(int=number << 64) for number in range(4)]
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "ref"))
    table = catalog.create_table("db.refs", Schema(NestedField(1, "ref", UUIDType())), partition_spec=spec, properties=ENCRYPTED)
    table.append(pa.table({"ref": pa.array([each.bytes for each in refs], pa.uuid())}))
    for row_filter, files in ((f"ref = '{refs[1]}'", 1), (f"ref in ('{refs[1]}', '{refs[3]}')", 2), (f"ref != '{refs[1]}'", 3)):
        assert len(list(table.scan(row_filter).plan_files())) == files, row_filter


@pytest.mark.parametrize("streamed", [False, True])
def test_a_partition_value_may_be_longer_than_the_name_of_a_folder(catalog: Catalog, streamed: bool) -> None:
    table = team_table(catalog)
    long = pa.table({"id": pa.array([1], pa.int64()), "team": ["x" * 300], "note": [CANARY]})
    table.append(long.to_reader() if streamed else long)
    assert ids(table, row_filter=EqualTo(term="team", value="x" * 300)) == [1]
