"""Iceberg Java reads every table written here, appends to it, and this side reads that back: rows and row ids equal on both sides."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.exceptions import ValidationException
from pyiceberg.expressions import In, IsNull
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
from pyiceberg.types import DecimalType, FixedType, LongType, NestedField, StringType, TimestamptzType

from tablecrypt.maintenance import relocate, rotate_kek, verify
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.compare import assert_same_rows
from tests.support.java import JavaOracle
from tests.support.java_sides import Sides
from tests.support.plaintext import CANARY
from tests.support.sample_rows import extreme_rows
from tests.support.tables import MASTER_KEY, new_table

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


def append_in_java(sides: Sides, rows: pa.Table) -> None:
    sides.change_in_java(lambda java, name, _: java.append(name, rows))


def appended(table: Table) -> None:
    table.append(orders(0, 100))
    table.append(orders(100, 50))


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


COPY: dict[str, str] = {}
MERGE = {"write.delete.mode": "merge-on-read", "write.merge.mode": "merge-on-read"}


@pytest.mark.parametrize(
    ("change", "mode"),
    [
        (in_one_transaction, COPY),
        (in_one_transaction, MERGE),
        (marked_twice, MERGE),
        (marked_in_one_transaction_and_by_a_late_writer, MERGE),
    ],
    ids=lambda each: ("merge" if each else "copy") if isinstance(each, dict) else each.__name__,
)
def test_java_reads_what_several_changes_left_and_appends_to_it(
    java: JavaOracle, catalog: EncryptedSqlCatalog, change: Callable[[Table], None], mode: dict[str, str]
) -> None:
    table = catalog.create_table("db.orders", TABLE_SCHEMA, properties={"encryption.key-id": MASTER_KEY, **mode})
    change(table)
    sides = Sides(java, table, f"db.{'merge' if mode else 'copy'}_{change.__name__}")
    sides.assert_equal()
    append_in_java(sides, orders(5000, 25))
    sides.table.append(orders(6000, 5))
    sides.table.delete("id = 5003")
    sides.assert_equal(every_snapshot=True)


PARTITIONS: dict[str, tuple[tuple[int, Transform], ...]] = {  # type: ignore[type-arg]
    "identity and year": ((2, IdentityTransform()), (4, YearTransform())),
    "bucket and month": ((1, BucketTransform(4)), (4, MonthTransform())),
    "truncate and day": ((2, TruncateTransform(10)), (4, DayTransform())),
    "hour": ((4, HourTransform()),),
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_java_reads_every_partition_transform(java: JavaOracle, catalog: EncryptedSqlCatalog, name: str) -> None:
    """And a sort order."""
    fields = [
        PartitionField(source_id, 1000 + number, transform, f"part_{number}")
        for number, (source_id, transform) in enumerate(PARTITIONS[name])
    ]
    table = catalog.create_table(
        "db.orders",
        TABLE_SCHEMA,
        partition_spec=PartitionSpec(*fields),
        sort_order=SortOrder(SortField(1, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST)),
        properties={"encryption.key-id": MASTER_KEY},
    )
    table.append(orders(18, 12))
    table.delete("id = 20")
    sides = Sides(java, table, f"db.partition_{name.replace(' ', '_')}")
    append_in_java(sides, orders(30, 10))
    sides.assert_equal(every_snapshot=True)


def test_partitions_of_fixed_bytes_that_java_wrote_are_read(java: JavaOracle, catalog: EncryptedSqlCatalog) -> None:
    """Java reads none that are written as the specification says."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "code", FixedType(3)), NestedField(3, "note", StringType()))
    codes = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "code"))
    table = catalog.create_table("db.codes", schema, partition_spec=codes, properties={"encryption.key-id": MASTER_KEY})
    written = [b"\xff\x00\x80", b"\x06\x00\x01", None]
    rows = pa.table({"id": [1, 2, 3], "code": pa.array(written, pa.binary(3)), "note": [CANARY] * 3})
    sides = Sides(java, table, "db.codes")
    append_in_java(sides, rows)
    sides.assert_equal()

    assert sides.table.scan().count() == 3
    for row in rows.to_pylist():
        condition = IsNull(term="code") if row["code"] is None else In(term="code", literals=[row["code"]])
        assert sides.table.scan(condition).to_arrow().to_pylist() == [row]


def test_a_table_that_java_replaced_with_other_types_is_read_and_kept_in_every_snapshot(
    java: JavaOracle, catalog: EncryptedSqlCatalog, tmp_path: Path
) -> None:
    """Java's replacement gives a column the field id that one of its name had, whatever its type."""
    table = new_table(catalog, "db.replaced", appends=[orders(0, 20), orders(20, 20)])
    table.manage_snapshots().create_branch(snapshot_id=table.metadata.snapshots[0].snapshot_id, branch_name="audit").commit()
    sides = Sides(java, table, "db.replaced")
    replacing = "CREATE OR REPLACE TABLE h.{} USING iceberg AS SELECT CAST(id AS STRING) AS id, customer, amount FROM h.{}"
    sides.change_in_java(lambda java, name, _: java.sql(replacing.format(name, name)))
    sides.assert_equal(every_snapshot=True)
    append_in_java(sides, pa.table({"id": ["x"], "customer": [CANARY], "amount": [None]}, schema=sides.table.schema().as_arrow()))
    sides.assert_equal(every_snapshot=True)

    replaced = sides.table
    assert verify(replaced).is_good
    rotate_kek(replaced)
    relocate(replaced, f"file://{tmp_path}/copy", register_as="db.copy")
    oldest = replaced.metadata.snapshots[0].snapshot_id
    assert catalog.load_table("db.copy").scan(snapshot_id=oldest).count() == 20
    replaced.refresh().maintenance.expire_snapshots().older_than(dt.datetime.now(dt.UTC)).commit()
    assert replaced.refresh().scan().count() == 41


def test_java_reads_every_type_that_spark_has(java: JavaOracle, catalog: EncryptedSqlCatalog) -> None:
    rows = extreme_rows()
    rows = rows.append_column("fixed", pa.array([b"\x01\x02\x03\x04", b"\xff" * 4, b"\x00" * 4, b"PAR1", None], pa.binary(4)))
    sides = Sides(java, new_table(catalog, "db.types", appends=[rows]), "db.types")
    sides.assert_equal()
    append_in_java(sides, rows)
    sides.assert_equal()


def test_java_reads_an_empty_table_and_an_empty_append(java: JavaOracle, catalog: EncryptedSqlCatalog) -> None:
    table = catalog.create_table("db.orders", TABLE_SCHEMA, properties={"encryption.key-id": MASTER_KEY})
    sides = Sides(java, table, "db.empty")
    sides.assert_equal()
    table.append(orders(0, 0))
    append_in_java(sides, orders(0, 4))
    sides.assert_equal(every_snapshot=True)


def test_java_reads_merged_manifests(java: JavaOracle, catalog: EncryptedSqlCatalog) -> None:
    properties = {"encryption.key-id": MASTER_KEY, "commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "3"}
    table = catalog.create_table("db.orders", TABLE_SCHEMA, properties=properties)
    for first in range(0, 50, 10):
        table.append(orders(first, 10))
    assert len(table.current_snapshot().manifests(table.io)) < 5  # type: ignore[union-attr]
    sides = Sides(java, table, "db.merged")
    append_in_java(sides, orders(100, 10))
    sides.assert_equal(every_snapshot=True)


def test_files_and_entries_are_shown_as_java_shows_them(java: JavaOracle, catalog: EncryptedSqlCatalog) -> None:
    table = new_table(catalog, "db.listed", TABLE_SCHEMA, properties={"write.delete.mode": "merge-on-read"})
    marked_twice(table)
    sides = Sides(java, table, "db.listed")
    append_in_java(sides, orders(5000, 25))
    sides.change_in_java(lambda of, name, _: of.sql(f"DELETE FROM h.{name} WHERE id IN (1, 5001)"))
    sides.change_in_java(lambda of, name, _: assert_listed_alike(of, name, sides.table))


def assert_listed_alike(java: JavaOracle, name: str, table: Table) -> None:
    shown = ["content", "file_path", "record_count", "first_row_id", "referenced_data_file", "content_offset", "content_size_in_bytes"]
    assert_same_rows(java.sql(f"SELECT {', '.join(shown)} FROM h.{name}.files"), table.inspect.files().select(shown))

    for every in ("entries", "all_entries"):
        entries = getattr(table.inspect, every)()
        ours = pa.table({"status": entries["status"], **{each: pc.struct_field(entries["data_file"], each) for each in shown}})
        assert_same_rows(java.sql(f"SELECT status, {', '.join(f'data_file.{each}' for each in shown)} FROM h.{name}.{every}"), ours)
