"""Every type that PyIceberg writes in format version 3, primitive and nested, comes back as it went in; partitions and sort orders too."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
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
from pyiceberg.types import (
    BooleanType,
    DateType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    UUIDType,
)

from tablecrypt.errors import ConfigurationError
from tests.support.compare import assert_same_rows
from tests.support.plaintext import CANARY
from tests.support.tables import ENCRYPTED, memory_catalog, memory_kms, new_table

UTC = dt.UTC
NESTED_UUIDS = ListType(
    120, StructType(NestedField(121, "u", UUIDType()), NestedField(122, "m", MapType(123, StringType(), 124, UUIDType())))
)
STORED_UUIDS = pa.list_(pa.struct([("u", pa.binary(16)), ("m", pa.map_(pa.string(), pa.binary(16)))]))
VALUES: dict[str, tuple[IcebergType | str, list[object]]] = {
    "boolean": ("boolean", [True, False, None]),
    "int": ("int", [-(2**31), 2**31 - 1, None]),
    "long": ("long", [-(2**63), 2**63 - 1, None]),
    "float": ("float", [float("-inf"), 1.5, None]),
    "double": ("double", [float("nan"), -0.0, None]),
    "decimal9": ("decimal(9, 2)", [decimal.Decimal("-9999999.99"), decimal.Decimal("0.01"), None]),
    "decimal18": ("decimal(18, 6)", [decimal.Decimal("99999999999.999999"), decimal.Decimal("-0.000001"), None]),
    "decimal38": ("decimal(38, 0)", [decimal.Decimal(10**38 - 1), decimal.Decimal(-(10**38) + 1), None]),
    "date": ("date", [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "time": ("time", [dt.time(0), dt.time(23, 59, 59, 999999), None]),
    "timestamp": ("timestamp", [dt.datetime(1, 1, 1), dt.datetime(2026, 1, 1, 1, 1, 1, 1), None]),
    "timestamptz": ("timestamptz", [dt.datetime(1969, 12, 31, tzinfo=UTC), dt.datetime(2026, 1, 1, tzinfo=UTC), None]),
    "timestamp_ns": ("timestamp_ns", [dt.datetime(1970, 1, 1), dt.datetime(2026, 1, 1, 1, 1, 1, 1), None]),
    "timestamptz_ns": ("timestamptz_ns", [dt.datetime(1969, 12, 31, tzinfo=UTC), dt.datetime(2026, 1, 1, tzinfo=UTC), None]),
    "string": ("string", ["", f"\u0000 häß \U0001f512 {CANARY}", None]),
    "uuid": ("uuid", [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), None]),
    "fixed": ("fixed[3]", [b"\x00\x00\x00", b"\xff\xfe\xfd", None]),
    "binary": ("binary", [b"", bytes(range(256)), None]),
    "list": (ListType(100, StringType(), element_required=False), [[], [CANARY, None], None]),
    "map": (MapType(101, StringType(), 102, LongType(), value_required=False), [[], [("a", 1), ("b", None)], None]),
    "struct": (
        StructType(NestedField(103, "x", "long"), NestedField(104, "y", StructType(NestedField(105, "z", "string")))),
        [{"x": 1, "y": {"z": CANARY}}, {"x": None, "y": None}, None],
    ),
    "list_of_structs": (
        ListType(106, StructType(NestedField(107, "a", "long"), NestedField(108, "b", ListType(109, DateType())))),
        [[], [{"a": 1, "b": [dt.date(2026, 1, 1)]}, {"a": None, "b": None}], None],
    ),
    "map_of_structs": (
        MapType(110, IntegerType(), 111, StructType(NestedField(112, "t", "timestamptz"))),
        [[], [(1, {"t": dt.datetime(2026, 1, 1, tzinfo=UTC)})], None],
    ),
    "map_of_lists": (
        MapType(113, StringType(), 114, ListType(115, BooleanType(), element_required=False)),
        [[], [("k", [True, None])], None],
    ),
    "required_in_null": (
        StructType(NestedField(116, "s", StructType(NestedField(117, "m", MapType(118, LongType(), 119, BooleanType()))), required=True)),
        [{"s": {"m": [(1, True)]}}, {"s": {"m": None}}, None],
    ),
    "nested_uuids": (NESTED_UUIDS, [[], [{"u": bytes(16), "m": [("k", b"u" * 16)]}, {"u": None, "m": []}], None]),
}


def table_of(schema: Schema, columns: dict[str, list[object]]) -> pa.Table:
    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    values = {name: [v.bytes if isinstance(v, uuid.UUID) else v for v in each] for name, each in columns.items()}
    return pa.table({field.name: array_of(values[field.name], field.type) for field in arrow}, schema=arrow)


def array_of(values: list[object], kind: pa.DataType) -> pa.Array:
    """Arrow makes no nested column of uuids of Python's values."""
    return pa.array(values, STORED_UUIDS).cast(kind) if kind.equals(schema_to_pyarrow(NESTED_UUIDS)) else pa.array(values, kind)


@pytest.mark.parametrize("name", VALUES)
def test_values_of_every_type_come_back(catalog: Catalog, name: str) -> None:
    kind, values = VALUES[name]
    schema = Schema(NestedField(1, "id", "long"), NestedField(2, "value", kind))
    rows = table_of(schema, {"id": [1, 2, 3], "value": values})
    table = new_table(catalog, schema=schema, appends=[rows, rows.slice(1, 2)])
    assert_same_rows(table.scan().to_arrow(), pa.concat_tables([rows, rows.slice(1, 2)]))
    assert_same_rows(table.scan("id > 3").to_arrow(), rows.slice(0, 0))
    assert_same_rows(table.scan("id < 2").to_arrow(), rows.slice(0, 1))

    table.delete("id = 2")
    assert_same_rows(table.scan().to_arrow(), pa.concat_tables([rows.slice(0, 1), rows.slice(2, 1), rows.slice(2, 1)]))
    table.overwrite(rows, "id > 0")
    changed = rows.slice(1, 2).set_column(1, rows.schema.field(1), rows["value"].slice(0, 2))
    table.upsert(changed, join_cols=["id"])
    assert_same_rows(table.scan().to_arrow(), pa.concat_tables([rows.slice(0, 1), changed]))


def test_a_moment_that_microseconds_cannot_hold_is_refused_by_its_column(tmp_path: Path) -> None:
    table = new_table(memory_catalog(tmp_path), "db.t", Schema(NestedField(1, "moment", TimestampType())))
    with pytest.raises(ConfigurationError, match=r"'moment' has timestamp\[s\] values that its type timestamp cannot hold"):
        table.append(pa.table({"moment": pa.array([2**62], pa.timestamp("s"))}))
    assert table.refresh().current_snapshot() is None


@pytest.mark.parametrize("protected", ["", "pii: number"], ids=["in the open", "protected"])
@pytest.mark.parametrize(
    ("kind", "given", "most"), [(LongType(), pa.uint64(), 2**63 - 1), (IntegerType(), pa.uint32(), 2**31 - 1)], ids=str
)
def test_unsigned_numbers_are_stored_as_signed_ones_and_refused_beyond(
    tmp_path: Path, kind: IcebergType, given: pa.DataType, most: int, protected: str
) -> None:
    """Iceberg Java reads no unsigned number, and a value beyond the column would keep the table from being read."""
    catalog = memory_catalog(tmp_path, memory_kms(tmp_path, "orders", "pii"))
    columns = {"encryption.column-keys": protected} if protected else {}
    table = new_table(
        catalog,
        "db.t",
        Schema(NestedField(1, "number", kind)),
        properties={"encryption.key-id": "orders", "write.metadata.metrics.default": "none", **columns},
    )
    with pytest.raises(ConfigurationError, match=f"'number' has {given} values that its type {kind} cannot hold"):
        table.append(pa.table({"number": pa.array([most + 1], given)}))

    table.append(pa.table({"number": pa.array([most, None], given)}))
    table.append(pa.table({"number": pa.array([-1], pa.int64() if kind == LongType() else pa.int32())}))
    read = table.scan().to_arrow()
    assert read.schema == schema_to_pyarrow(table.schema(), include_field_ids=False)
    assert sorted(read["number"].drop_null().to_pylist()) == [-1, most]


def test_uuids_in_lists_come_back(catalog: Catalog) -> None:
    refs = [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1)]
    schema = Schema(NestedField(1, "id", "long"), NestedField(2, "refs", ListType(3, UUIDType(), element_required=False)))
    # From their bytes: Arrow builds no list of an extension's values.
    elements = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([ref.bytes for ref in refs], pa.binary(16)))
    rows = pa.table({"id": [1, 2], "refs": pa.ListArray.from_arrays([0, 1, 2], elements)})

    table = new_table(catalog, schema=schema, appends=[rows])

    assert table.scan().to_arrow()["refs"].to_pylist() == [[refs[0]], [refs[1]]]


PARTITIONED: list[tuple[str, Transform]] = [  # type: ignore[type-arg]
    *((name, IdentityTransform()) for name in ("boolean", "int", "long", "decimal9", "decimal38", "date", "string", "timestamptz")),
    *((name, BucketTransform(3)) for name in ("int", "long", "decimal18", "date", "timestamp", "string", "uuid", "fixed", "binary")),
    *((name, TruncateTransform(2)) for name in ("int", "long", "decimal18", "string")),
    *((name, unit()) for name in ("date", "timestamp", "timestamptz") for unit in (YearTransform, MonthTransform, DayTransform)),
    ("timestamp", HourTransform()),
    ("string", VoidTransform()),
]


@pytest.mark.parametrize(("name", "transform"), PARTITIONED, ids=str)
def test_tables_partitioned_by_every_transform_and_type_read_back(catalog: Catalog, name: str, transform: Transform) -> None:  # type: ignore[type-arg]
    kind, values = VALUES[name]
    values = ["a", "b", None] if name == "string" else values
    schema = Schema(NestedField(1, "id", "long"), NestedField(2, "value", kind), NestedField(3, "text", "string"))
    rows = table_of(schema, {"id": [1, 2, 3], "value": values, "text": [CANARY] * 3})
    spec = PartitionSpec(PartitionField(2, 1000, transform, "part"))
    table = new_table(catalog, schema=schema, appends=[rows], partitioned_by=spec)
    assert_same_rows(table.scan().to_arrow(), rows)
    assert_same_rows(table.scan(row_filter="value is null").to_arrow(), rows.slice(2, 1))
    table.delete("id = 1")
    assert_same_rows(table.scan().to_arrow(), rows.slice(1))


def test_a_sort_order_is_kept_in_the_metadata(catalog: Catalog) -> None:
    schema = Schema(NestedField(1, "id", "long"))
    order = SortOrder(SortField(1, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST))
    table = catalog.create_table("db.t", schema, sort_order=order, properties=ENCRYPTED)
    table.append(pa.table({"id": pa.array([1, 3, 2], pa.int64())}))
    assert catalog.load_table("db.t").sort_order().fields == order.fields
