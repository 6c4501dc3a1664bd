"""Iceberg Java reads every table written here, appends to it, and this side reads that back: rows and row ids equal on both sides."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyiceberg.exceptions import ValidationException
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.compare import assert_same_rows
from tests.support.java import LINEAGE_COLUMNS, JavaOracle
from tests.support.plaintext import CANARY
from tests.support.tables import MASTER_KEY

pytestmark = pytest.mark.java

ORDERS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("customer", pa.string()),
        pa.field("amount", pa.decimal128(10, 2)),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
    ]
)


TABLE_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "customer", StringType()),
    NestedField(3, "amount", DecimalType(10, 2)),
    NestedField(4, "ts", TimestamptzType()),
)


def orders(first: int, count: int) -> pa.Table:
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    return pa.table(
        {
            "id": pa.array(range(first, first + count), pa.int64()),
            "customer": [f"customer {i % 7} {CANARY}" for i in range(first, first + count)],
            "amount": pa.array([decimal.Decimal(i) / 100 for i in range(first, first + count)], pa.decimal128(10, 2)),
            "ts": pa.array([start + dt.timedelta(hours=i) for i in range(first, first + count)], pa.timestamp("us", tz="UTC")),
        },
        schema=ORDERS,
    )


class Sides:
    """One table, seen from both sides: after each change on one side the other takes it over by its newest metadata file."""

    def __init__(self, java: JavaOracle, catalog: EncryptedSqlCatalog, name: str) -> None:
        self._java = java
        self._catalog = catalog
        self._name = f"db.{name}"
        self._taken_over = 0

    def assert_equal(self, table: Table) -> None:
        """Every snapshot reads equal on both sides, the newest one with its row lineage."""
        self._java.register(self._name, table.metadata_location)
        try:
            for snapshot in table.snapshots():
                ours = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
                assert_same_rows(self._java.rows(self._name, snapshot.snapshot_id), ours)
            names = tuple(field.name for field in table.schema().fields)
            ours = table.scan(selected_fields=(*names, *LINEAGE_COLUMNS)).to_arrow()
            assert_same_rows(self._java.rows(self._name, lineage=True), ours)
        finally:
            self._java.unregister(self._name)

    def append_in_java(self, table: Table, rows: pa.Table) -> Table:
        """Let Java append rows; return the table as this side sees it then."""
        self._java.register(self._name, table.metadata_location)
        self._java.append(self._name, rows)
        location = self._java.metadata_location(self._name)
        self._java.unregister(self._name)
        self._taken_over += 1
        return self._catalog.register_table(f"{self._name}_{self._taken_over}", location)


def appended(table: Table) -> None:
    table.append(orders(0, 100))
    table.append(orders(100, 50))


def deleted(table: Table) -> None:
    appended(table)
    table.delete("id >= 10 and id < 20")
    table.delete("id >= 100")


def overwritten(table: Table) -> None:
    appended(table)
    table.overwrite(orders(500, 10), overwrite_filter="id < 50")
    table.overwrite(orders(600, 5))


def upserted(table: Table) -> None:
    appended(table)
    changed = orders(90, 20).set_column(1, "customer", pa.array([f"changed {CANARY}"] * 20))
    result = table.upsert(pa.concat_tables([changed, orders(1000, 3)]), join_cols=["id"])
    assert (result.rows_updated, result.rows_inserted) == (20, 3)


def in_one_transaction(table: Table) -> None:
    table.append(orders(0, 30))
    with table.transaction() as transaction:
        transaction.append(orders(30, 10))
        transaction.delete("id < 5")
        transaction.append(orders(40, 10))


def marked_twice(table: Table) -> None:
    appended(table)
    table.delete("id in (3, 4, 5, 120)")
    table.delete("id in (4, 5, 6, 121) or id >= 148")
    table.delete("id < 100 and id >= 7")


def marked_in_one_transaction_and_by_a_late_writer(table: Table) -> None:
    """Java refuses a data file with two deletion vectors."""
    appended(table)
    late = table.catalog.load_table(table.name())
    with table.transaction() as transaction:
        transaction.delete("id in (3, 103)")
        transaction.delete("id in (4, 104)")
    with pytest.raises(ValidationException):
        late.delete("id = 5")
    late.refresh().delete("id in (5, 105)")
    table.refresh()


MODES: dict[str, dict[str, str]] = {"copy": {}, "merge": {"write.delete.mode": "merge-on-read", "write.merge.mode": "merge-on-read"}}
CHANGES: list[Callable[[Table], None]] = [appended, deleted, overwritten, upserted, in_one_transaction]


@pytest.mark.parametrize(
    ("change", "mode"),
    [
        *((change, "copy") for change in CHANGES),
        *((change, "merge") for change in (deleted, upserted, in_one_transaction, marked_twice)),
        (marked_in_one_transaction_and_by_a_late_writer, "merge"),
    ],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_java_reads_what_each_verb_left_and_appends_to_it(
    java: JavaOracle, catalog: EncryptedSqlCatalog, change: Callable[[Table], None], mode: str
) -> None:
    table = catalog.create_table("db.orders", TABLE_SCHEMA, properties={"encryption.key-id": MASTER_KEY, **MODES[mode]})
    change(table)
    sides = Sides(java, catalog, f"{mode}_{change.__name__}")
    sides.assert_equal(table)
    table = sides.append_in_java(table, orders(5000, 25))
    table.append(orders(6000, 5))
    sides.assert_equal(table)
    table.delete("id = 5003")
    sides.assert_equal(table)


@pytest.mark.parametrize("length", ["16", "24", "32"])
def test_java_reads_and_appends_under_every_key_length(java: JavaOracle, catalog: EncryptedSqlCatalog, length: str) -> None:
    properties = {"encryption.key-id": MASTER_KEY, "encryption.data-key-length": length}
    table = catalog.create_table("db.orders", TABLE_SCHEMA, properties=properties)
    table.append(orders(0, 20))
    sides = Sides(java, catalog, f"length_{length}")
    sides.assert_equal(table)
    table = sides.append_in_java(table, orders(20, 5))
    sides.assert_equal(table)


PARTITIONS: dict[str, tuple[int, Transform]] = {  # type: ignore[type-arg]
    "identity": (2, IdentityTransform()),
    "bucket": (1, BucketTransform(4)),
    "truncate": (2, TruncateTransform(10)),
    "year": (4, YearTransform()),
    "month": (4, MonthTransform()),
    "day": (4, DayTransform()),
    "hour": (4, HourTransform()),
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_java_reads_every_partition_transform(java: JavaOracle, catalog: EncryptedSqlCatalog, name: str) -> None:
    source_id, transform = PARTITIONS[name]
    spec = PartitionSpec(PartitionField(source_id, 1000, transform, "part"))
    table = catalog.create_table("db.orders", TABLE_SCHEMA, partition_spec=spec, properties={"encryption.key-id": MASTER_KEY})
    table.append(orders(0, 30))
    table.delete("id = 7")
    sides = Sides(java, catalog, f"partition_{name}")
    sides.assert_equal(table)
    table = sides.append_in_java(table, orders(30, 10))
    sides.assert_equal(table)


def test_java_reads_dynamic_partition_overwrites_and_sort_orders(java: JavaOracle, catalog: EncryptedSqlCatalog) -> None:
    table = catalog.create_table(
        "db.orders",
        TABLE_SCHEMA,
        partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "customer")),
        sort_order=SortOrder(SortField(1, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST)),
        properties={"encryption.key-id": MASTER_KEY},
    )
    table.append(orders(0, 30))
    table.dynamic_partition_overwrite(orders(100, 3))
    sides = Sides(java, catalog, "dynamic")
    sides.assert_equal(table)
    sides.assert_equal(sides.append_in_java(table, orders(200, 9)))


ALL_TYPES = Schema(
    NestedField(1, "bool", BooleanType()),
    NestedField(2, "int", IntegerType()),
    NestedField(3, "long", LongType()),
    NestedField(4, "float", FloatType()),
    NestedField(5, "double", DoubleType()),
    NestedField(6, "small_decimal", DecimalType(9, 2)),
    NestedField(7, "decimal", DecimalType(18, 4)),
    NestedField(8, "big_decimal", DecimalType(38, 10)),
    NestedField(9, "date", DateType()),
    NestedField(10, "timestamp", TimestampType()),
    NestedField(11, "timestamptz", TimestamptzType()),
    NestedField(12, "string", StringType()),
    NestedField(13, "binary", BinaryType()),
    NestedField(14, "fixed", FixedType(4)),
    NestedField(15, "list", ListType(16, LongType(), element_required=False)),
    NestedField(17, "map", MapType(18, StringType(), 19, DecimalType(9, 2), value_required=False)),
    NestedField(
        20,
        "struct",
        StructType(
            NestedField(21, "name", StringType()),
            NestedField(22, "points", ListType(23, StructType(NestedField(24, "x", DoubleType()), NestedField(25, "y", DoubleType())))),
        ),
    ),
)


def all_types() -> pa.Table:
    full = {
        "bool": True,
        "int": -(2**31),
        "long": 2**63 - 1,
        "float": 1.5,
        "double": float("nan"),
        "small_decimal": decimal.Decimal("-1234567.89"),
        "decimal": decimal.Decimal("99999999999999.9999"),
        "big_decimal": decimal.Decimal("1234567890123456789012345678.0123456789"),
        "date": dt.date(1, 1, 1),
        "timestamp": dt.datetime(2026, 2, 3, 4, 5, 6, 789012),
        "timestamptz": dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
        "string": f"häß \U0001f512 {CANARY}",
        "binary": b"\x00\xff",
        "fixed": b"\x01\x02\x03\x04",
        "list": [1, None, -3],
        "map": [("a", decimal.Decimal("1.00")), ("b", None)],
        "struct": {"name": CANARY, "points": [{"x": 0.0, "y": -0.0}, {"x": float("inf"), "y": 1e-300}]},
    }
    empty: dict[str, object] = {**dict.fromkeys(full), "string": "", "list": [], "map": [], "struct": {"name": None, "points": []}}
    return pa.Table.from_pylist([full, empty, dict.fromkeys(full)], schema=schema_to_pyarrow(ALL_TYPES, include_field_ids=False))


def test_java_reads_every_type_that_spark_has(java: JavaOracle, catalog: EncryptedSqlCatalog) -> None:
    table = catalog.create_table("db.types", ALL_TYPES, properties={"encryption.key-id": MASTER_KEY})
    table.append(all_types())
    sides = Sides(java, catalog, "types")
    sides.assert_equal(table)
    sides.assert_equal(sides.append_in_java(table, all_types()))


def test_java_reads_an_empty_table_and_an_empty_append(java: JavaOracle, catalog: EncryptedSqlCatalog) -> None:
    table = catalog.create_table("db.orders", TABLE_SCHEMA, properties={"encryption.key-id": MASTER_KEY})
    sides = Sides(java, catalog, "empty")
    sides.assert_equal(table)
    table.append(orders(0, 0))
    sides.assert_equal(sides.append_in_java(table, orders(0, 4)))


def test_java_reads_merged_manifests(java: JavaOracle, catalog: EncryptedSqlCatalog) -> None:
    properties = {"encryption.key-id": MASTER_KEY, "commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "3"}
    table = catalog.create_table("db.orders", TABLE_SCHEMA, properties=properties)
    for first in range(0, 50, 10):
        table.append(orders(first, 10))
    assert len(table.current_snapshot().manifests(table.io)) < 5  # type: ignore[union-attr]
    sides = Sides(java, catalog, "merged")
    sides.assert_equal(table)
    sides.assert_equal(sides.append_in_java(table, orders(100, 10)))


def test_java_reads_an_evolved_table(java: JavaOracle, catalog: EncryptedSqlCatalog) -> None:
    table = catalog.create_table("db.orders", TABLE_SCHEMA, properties={"encryption.key-id": MASTER_KEY})
    table.append(orders(0, 10))
    with table.update_schema() as update:
        update.add_column("note", StringType())
        update.rename_column("customer", "client")
        update.move_first("amount")
    with table.update_spec() as spec:
        spec.add_field("id", BucketTransform(2), "id_bucket")
    newer = orders(10, 10).rename_columns(["id", "client", "amount", "ts"]).append_column("note", pa.array([CANARY] * 10))
    table.append(newer)
    sides = Sides(java, catalog, "evolved")
    sides.assert_equal(table)
    sides.assert_equal(sides.append_in_java(table, newer))
