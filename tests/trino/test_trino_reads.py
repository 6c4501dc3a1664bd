"""Trino reads what is written here as this side does: after every change, with keys of each length, in every type and partition."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, cast

import pyarrow as pa
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
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
    YearTransform,
)
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
)

from tablecrypt.maintenance import compact, prune_keys, reencrypt, rewrap, rotate_kek, share
from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.plaintext import CANARY
from tests.support.table_changes import CHANGES, Change, rows
from tests.support.tables import BY_TEAM, MASTER_KEY, TEAM_SCHEMA, data_files, keks, new_table
from tests.support.trino import BUCKET, Trino, TrinoError, new_name

pytestmark = pytest.mark.trino

LENGTHS: Final = ("16", "24", "32")
READ: Final = [each for each in CHANGES if "merge-on-read" not in each.name and "key length" not in each.name]

ALL_TYPES: Final = Schema(
    NestedField(1, "flag", "boolean"),
    NestedField(2, "small", "int"),
    NestedField(3, "big", "long"),
    NestedField(4, "ratio", "float"),
    NestedField(5, "exact", "double"),
    NestedField(6, "price", "decimal(9, 2)"),
    NestedField(7, "amount", "decimal(18, 4)"),
    NestedField(8, "large", "decimal(38, 10)"),
    NestedField(9, "day", "date"),
    NestedField(10, "time", "time"),
    NestedField(11, "local", "timestamp"),
    NestedField(12, "instant", "timestamptz"),
    NestedField(13, "text", "string"),
    NestedField(14, "id", "uuid"),
    NestedField(15, "bytes", "binary"),
    NestedField(17, "pair", StructType(NestedField(18, "left", "int"), NestedField(19, "right", "string"))),
    NestedField(20, "many", ListType(21, LongType(), element_required=False)),
    NestedField(22, "lookup", MapType(23, StringType(), 24, DecimalType(9, 2), value_required=False)),
    NestedField(25, "pairs", ListType(26, StructType(NestedField(27, "at", "timestamp")), element_required=False)),
)


def all_types() -> pa.Table:
    """A row of small values, one of large ones, and one of nulls."""
    early, late = dt.datetime(1582, 10, 15), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
    values: list[tuple[str, Any, Any]] = [
        ("flag", False, True),
        ("small", -(2**31), 2**31 - 1),
        ("big", -(2**63), 2**63 - 1),
        ("ratio", -1.5, 3.25),
        ("exact", 5e-324, 1.7e308),
        ("price", Decimal("-9999999.99"), Decimal("9999999.99")),
        ("amount", Decimal("-99999999999999.9999"), Decimal("0.0001")),
        ("large", Decimal(f"-{'9' * 28}.{'9' * 10}"), Decimal("1E-10")),
        ("day", early.date(), late.date()),
        ("time", dt.time(0), dt.time(23, 59, 59, 999999)),
        ("local", early, late),
        ("instant", dt.datetime(1970, 1, 1, tzinfo=dt.UTC), late.replace(tzinfo=dt.UTC)),
        ("text", CANARY, f"{CANARY} ü 漢字 🔑"),
        ("id", uuid.UUID(int=0).bytes, uuid.UUID(int=2**128 - 1).bytes),
        ("bytes", b"", bytes(range(256))),
        ("pair", {"left": 1, "right": CANARY}, {"left": None, "right": None}),
        ("many", [], [1, None, 2**63 - 1]),
        ("lookup", [], [(CANARY, Decimal("1.25")), ("none", None)]),
        ("pairs", [], [None, {"at": late}]),
    ]
    schema = schema_to_pyarrow(ALL_TYPES, include_field_ids=False)
    columns = [pa.array([low, high, None], field.type) for (_, low, high), field in zip(values, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def assert_reads(judge: Trino, table: Table) -> None:
    """Trino reads every snapshot, and the newest state with its files, as this side does."""
    name = ".".join(table.name())
    for snapshot in table.snapshots():
        ours = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        assert_same_rows(judge.rows(f"SELECT * FROM {name} FOR VERSION AS OF {snapshot.snapshot_id}", ours.schema), ours)
    ours = table.scan().to_arrow()
    assert_same_rows(judge.rows(f"SELECT * FROM {name}", ours.schema), ours)
    assert files_in_trino(judge, table) == files_here(table)


def files_here(table: Table) -> dict[str, Any]:
    """What this side says of each file of the newest state: rows, bytes, nulls and bounds."""
    fields, bounded = table.schema().fields, bounded_fields(table)

    def bounds(found: dict[int, bytes]) -> list[Any]:
        values = [(cast("PrimitiveType", field.field_type), found.get(field.field_id)) for field in bounded]
        return [None if value is None else from_bytes(kind, value) for kind, value in values]

    return {
        file.file_path: (
            file.record_count,
            file.file_size_in_bytes,
            [file.null_value_counts.get(field.field_id) for field in fields],
            bounds(file.lower_bounds),
            bounds(file.upper_bounds),
        )
        for file in data_files(table)
    }


def files_in_trino(judge: Trino, table: Table) -> dict[str, Any]:
    """What Trino says of them."""
    fields, bounded = table.schema().fields, bounded_fields(table)
    bounds = [f'{which}_bounds."{field.field_id}"' for which in ("lower", "upper") for field in bounded]
    namespace, name = table.name()
    query = f'SELECT file_path, record_count, file_size_in_bytes, null_value_counts, {", ".join(bounds)} FROM {namespace}."{name}$files"'
    return {
        path: (count, size, [nulls.get(field.field_id) for field in fields], found[: len(bounded)], found[len(bounded) :])
        for path, count, size, nulls, *found in judge.values(query)
    }


def bounded_fields(table: Table) -> list[NestedField]:
    """The columns whose bounds Trino's client and PyIceberg give as the same Python values."""
    kinds = (IntegerType, LongType, StringType, DecimalType, DoubleType, BooleanType)
    return [field for field in table.schema().fields if isinstance(field.field_type, kinds)]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("change", READ, ids=lambda change: change.name)
def test_trino_reads_rows_bounds_and_files_after_each_change(judge: Trino, change: Change, length: str) -> None:
    properties = {"encryption.key-id": MASTER_KEY, "encryption.data-key-length": length, **change.properties}
    table = judge.catalog.create_table(new_name(), TEAM_SCHEMA, partition_spec=change.partitions, properties=properties)
    table.append(rows(0, 12))

    change.here(table)

    assert_reads(judge, table)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "uncompressed"])
def test_trino_reads_every_type(judge: Trino, length: str, codec: str) -> None:
    properties = {"encryption.data-key-length": length, "write.parquet.compression-codec": codec}
    table = new_table(judge.catalog, new_name(), ALL_TYPES, appends=[all_types()], properties=properties)

    assert_reads(judge, table)


@pytest.mark.parametrize(
    ("column", "transform"),
    [
        ("big", IdentityTransform()),
        ("big", BucketTransform(4)),
        ("small", TruncateTransform(10)),
        ("text", TruncateTransform(2)),
        ("text", IdentityTransform()),
        ("id", BucketTransform(3)),
        ("price", IdentityTransform()),
        ("day", YearTransform()),
        ("day", MonthTransform()),
        ("local", DayTransform()),
        ("local", HourTransform()),
        ("instant", HourTransform()),
        ("time", IdentityTransform()),
    ],
    ids=str,
)
def test_trino_finds_the_rows_of_each_partition(judge: Trino, column: str, transform: Transform[Any, Any]) -> None:
    spec = PartitionSpec(PartitionField(ALL_TYPES.find_field(column).field_id, 1000, transform, "part"))
    table = new_table(judge.catalog, new_name(), ALL_TYPES, appends=[all_types()], partitioned_by=spec)
    name = ".".join(table.name())
    low, high = (f"(SELECT {which}({column}) FROM {name})" for which in ("min", "max"))

    assert_reads(judge, table)
    assert judge.values(f'SELECT count(*) FROM db."{table.name()[1]}$partitions"') == [[len(files_here(table))]]
    for condition in (f"= {low}", f"= {high}", "IS NULL"):
        assert judge.values(f"SELECT count(*) FROM {name} WHERE {column} {condition}") == [[1]], condition


@pytest.mark.parametrize("operation", [rotate_kek, rewrap, prune_keys, reencrypt, compact], ids=lambda operation: operation.__name__)
def test_trino_reads_tables_whose_keys_were_maintained(judge: Trino, operation: Callable[[Table], object]) -> None:
    table = new_table(judge.catalog, new_name(), TEAM_SCHEMA, appends=[rows(first, 5) for first in range(0, 30, 5)])

    operation(table)
    table.append(rows(100, 3))

    assert_reads(judge, table.refresh())


def test_trino_reads_nanoseconds(judge: Trino) -> None:
    schema = Schema(NestedField(1, "at", "timestamp_ns"))
    moments = pa.table({"at": pa.array([1_700_000_000_123_456_789], pa.timestamp("ns"))})
    table = new_table(judge.catalog, new_name(), schema, appends=[moments])

    assert judge.values(f"SELECT CAST(at AS varchar) FROM {'.'.join(table.name())}") == [["2023-11-14 22:13:20.123456789"]]


@pytest.mark.parametrize(("version", "count"), [("", 8), ("FOR VERSION AS OF 'first'", 5), ("FOR VERSION AS OF 'side'", 7)])
def test_trino_reads_branches_and_tags(judge: Trino, version: str, count: int) -> None:
    table = new_table(judge.catalog, new_name(), TEAM_SCHEMA, appends=[rows(0, 5)])
    (first,) = table.snapshots()
    table.manage_snapshots().create_tag(first.snapshot_id, "first").create_branch(first.snapshot_id, "side").commit()
    table.append(rows(10, 3))
    table.append(rows(20, 2), branch="side")

    assert judge.values(f"SELECT count(*) FROM {'.'.join(table.name())} {version}") == [[count]]


def test_trino_reads_a_share_whose_metadata_names_the_partners_key_alone(judge: Trino, aws: AwsServer) -> None:
    table = new_table(judge.catalog, new_name(), TEAM_SCHEMA, appends=[rows(0, 12), rows(20, 6)], partitioned_by=BY_TEAM)
    partner = aws.kms_key_id("alias/people")

    shared = share(table, partner, f"s3://{BUCKET}/shares/{table.name()[1]}", "team = 'b'")

    theirs = judge.catalog.register_table(new_name(), shared.metadata_location)
    assert {kek.encrypted_by_id for kek in keks(theirs)} == {partner}
    assert_reads(judge, theirs)
    assert judge.values(f"SELECT DISTINCT team FROM {'.'.join(theirs.name())}") == [["b"]]


@pytest.mark.parametrize("statement", ["INSERT INTO {} VALUES (1, 'a', 'b')", "DELETE FROM {} WHERE id = 1", "UPDATE {} SET note = 'x'"])
def test_trino_writes_nothing_into_an_encrypted_table(judge: Trino, statement: str) -> None:
    table = new_table(judge.catalog, new_name(), TEAM_SCHEMA, appends=[rows(0, 5)])
    before = table.metadata_location

    with pytest.raises(TrinoError, match="Writing to encrypted Iceberg tables is not supported"):
        judge.values(statement.format(".".join(table.name())))

    assert judge.catalog.load_table(table.name()).metadata_location == before
