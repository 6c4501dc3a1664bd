"""prod.db.t.position_deletes: each row that a deletion vector hides, in the partition of its file."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import DateType, DecimalType, LongType, NestedField, StringType, TimestamptzType

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.sql.local_rows import local_rows
from tablecrypt.spark.sql.metadata_tables import metadata_table, position_deletes
from tablecrypt.table.table import EncryptedTable
from tests.support.aws import AwsServer
from tests.support.tables import MASTER_KEY, encrypted_sql_catalog

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "region", StringType()),
    NestedField(3, "day", DateType()),
    NestedField(4, "at", TimestamptzType()),
    NestedField(5, "price", DecimalType(9, 2)),
)
SPEC = PartitionSpec(
    PartitionField(2, 1000, IdentityTransform(), "region"),
    PartitionField(3, 1001, IdentityTransform(), "day"),
    PartitionField(4, 1002, DayTransform(), "at_day"),
    PartitionField(4, 1003, IdentityTransform(), "at"),
    PartitionField(5, 1004, IdentityTransform(), "price"),
    PartitionField(1, 1005, BucketTransform(1), "shard"),
)
ROW = {"region": "eu", "day": date(1969, 12, 31), "at": datetime(2026, 1, 2, 3, tzinfo=UTC), "price": Decimal("-1.50")}


def rows(*ids: int) -> pa.Table:
    types = [
        ("id", pa.int64()),
        ("region", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(9, 2)),
    ]
    return pa.Table.from_pylist([{**ROW, "id": each} for each in ids], pa.schema(types))


def create(aws: AwsServer, folder: Path, spec: PartitionSpec) -> EncryptedTable:
    properties = {"encryption.key-id": MASTER_KEY, "write.delete.mode": "merge-on-read"}
    return cast(
        "EncryptedTable", encrypted_sql_catalog(folder, aws).create_table("db.t", SCHEMA, partition_spec=spec, properties=properties)
    )


def test_deleted_rows_are_listed_with_their_files_and_partitions(aws: AwsServer, tmp_path: Path) -> None:
    table = create(aws, tmp_path, SPEC)
    table.append(rows(*range(10)))
    first = table.metadata.current_snapshot_id
    table.delete("id in (2, 7)")
    table.append(rows(20, 21))
    table.delete("id = 7 or id = 21")

    found = metadata_table(table, "position_deletes", None)

    files = {task.file.file_path: task for task in table.scan().plan_files()}
    by_file = {path: [row["pos"] for row in found.to_pylist() if row["file_path"] == path] for path in files}
    assert sorted(by_file.values()) == [[1], [2, 7]]
    partition = {"region": "eu", "day": date(1969, 12, 31), "at_day": date(2026, 1, 2), "at": ROW["at"], "price": ROW["price"], "shard": 0}
    for row in found.to_pylist():
        [vector] = files[row["file_path"]].delete_files
        assert row["partition"] == partition and row["row"] is None and row["spec_id"] == 0
        assert row["delete_file_path"] == vector.file_path and row["content_size_in_bytes"] > 0
    assert metadata_table(table, "position_deletes", first).num_rows == 0
    shown = local_rows("rows", found)
    assert pa.ipc.open_stream(shown.content).read_all().num_rows == 3


def test_a_table_without_partitions_or_snapshots_has_no_such_column_or_row(aws: AwsServer, tmp_path: Path) -> None:
    table = create(aws, tmp_path, PartitionSpec())
    assert metadata_table(table, "position_deletes", None).num_rows == 0
    table.append(rows(1, 2))
    table.delete("id = 2")
    assert "partition" not in metadata_table(table, "position_deletes", None).column_names


def test_more_rows_than_the_driver_should_hold_are_refused(aws: AwsServer, tmp_path: Path) -> None:
    table = create(aws, tmp_path, PartitionSpec())
    table.append(rows(1, 2, 3))
    table.delete("id >= 2")

    with pytest.raises(ConfigurationError, match="more than 1 deleted rows"):
        position_deletes(table, most_rows=1)
