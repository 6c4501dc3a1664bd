"""Verbs of tablecrypt.maintenance whose files are worked on by a cluster's executors: the same outcome as here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from tablecrypt.maintenance import migrate, reencrypt
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.spark import SparkRunner
from tablecrypt.table.table import EncryptedTable
from tests.spark.conftest import Lake
from tests.support.plaintext import CANARY
from tests.support.tables import SCHEMA, data_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]


def filled(table: Table) -> Table:
    for first in (0, 10, 20):
        table.append(pa.table({"id": range(first, first + 10), "note": [CANARY] * 10}, schema=SCHEMA.as_arrow()))
    table.delete("id in (3, 14)")
    return table


def contents(table: Table, *more: str) -> list[dict[str, Any]]:
    return sorted(table.scan(selected_fields=("*", *more)).to_arrow().to_pylist(), key=lambda row: int(row["id"]))


def test_reencryption_by_executors(spark: SparkSession, lake: Lake) -> None:
    properties = {"encryption.key-id": "alias/orders", "write.delete.mode": "merge-on-read"}
    table = filled(lake.catalog.create_table("db.rows", SCHEMA, properties=properties))
    before = contents(table, "_row_id", "_last_updated_sequence_number")
    old = {bytes(task.file.key_metadata or b"") for task in table.scan().plan_files()}
    result = reencrypt(table, runner=SparkRunner(spark))
    files = data_files(table)
    assert result.data_files == len(files) == 3
    assert old.isdisjoint(bytes(file.key_metadata or b"") for file in files)
    assert contents(table, "_row_id", "_last_updated_sequence_number") == before


def test_migration_by_executors(spark: SparkSession, lake: Lake) -> None:
    plain = filled(lake.catalog.create_table("db.rows", SCHEMA))
    before = contents(plain)
    migrate(plain, "alias/orders", properties={"encryption.data-key-length": "32"}, runner=SparkRunner(spark))
    table = lake.catalog.load_table("db.rows")
    assert isinstance(table, EncryptedTable)
    assert contents(table) == before
    assert {len(key_metadata_of(task.file).encryption_key) for task in table.scan().plan_files()} == {32}
