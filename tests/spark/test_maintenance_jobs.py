"""Operations of tablecrypt.maintenance whose files are worked on by a cluster's executors: the same outcome as by threads here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from tablecrypt.maintenance import migrate, reencrypt, relocate, verify
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.spark import SparkRunner
from tablecrypt.table.table import EncryptedTable
from tests.spark.conftest import CATALOG, Lake
from tests.support.command import Command
from tests.support.plaintext import CANARY
from tests.support.tables import SCHEMA, data_files, flip, folder_of, maintained_table, state, table_with_history

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


def test_a_copy_made_by_executors_and_finished_here(spark: SparkSession, lake: Lake) -> None:
    table = table_with_history(lake.catalog, "db.rows")
    place = f"{lake.warehouse.as_uri()}/elsewhere"

    result = relocate(table, place, register_as="db.copy", runner=SparkRunner(spark))

    copy = lake.catalog.load_table("db.copy")
    assert state(copy) == state(table)
    assert copy.location() == place
    assert (result.files, result.found) == (4, 0)
    assert relocate(table, place).found == 4


def test_a_job_verifies_as_threads_here_do(spark: SparkSession, lake: Lake) -> None:
    table = maintained_table(lake.catalog, "db.verified")

    here, there = verify(table), verify(table, runner=SparkRunner(spark))

    assert there == here
    assert there.is_good
    # The session that is there already is the one that the command finds.
    done = Command(lake.properties, CATALOG).run("verify", "db.verified", "--spark", "--json")
    assert (done.code, json.loads(done.stdout)["files"]) == (0, here.files), done.stderr


def test_a_job_names_every_bad_file(spark: SparkSession, lake: Lake) -> None:
    table = maintained_table(lake.catalog, "db.damaged")
    damaged = [next(folder_of(table).rglob("*.parquet")), next(folder_of(table).rglob("*.puffin"))]
    for path in damaged:
        flip(path, 60)

    here, there = verify(table), verify(table, runner=SparkRunner(spark))

    assert {file.location for file in there.bad} == {f"file://{path}" for path in damaged}
    assert {file.location: file.problems for file in there.bad} == {file.location: file.problems for file in here.bad}
