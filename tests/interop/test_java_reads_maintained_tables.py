"""Iceberg Java reads and writes tables whose keys were rotated, rewrapped, pruned and shredded here, and their copies elsewhere."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyiceberg.table import Table

from tablecrypt.maintenance import prune_keys, relocate, rescue, rewrap, rotate_kek, shred
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.hive import HiveMetastore, encrypted_hive_catalog
from tests.support.java import JavaError, JavaOracle
from tests.support.tables import SCHEMA, encrypted_sql_catalog, keks, manifest_list_keys, metadata_of, new_table, rows, table_with_history

pytestmark = pytest.mark.java

NAMES = (f"kept.t{number}" for number in itertools.count())


@pytest.fixture
def table(warehouse: Path, aws: AwsServer) -> Table:
    return table_with_history(encrypted_sql_catalog(warehouse, aws), "db.t")


def assert_java_reads(java: JavaOracle, table: Table) -> str:
    """Java reads every snapshot as this side does; return the name under which it knows the table."""
    name = next(NAMES)
    java.register(name, table.metadata_location)
    for snapshot in table.snapshots():
        assert_same_rows(java.rows(name, snapshot.snapshot_id), table.scan(snapshot_id=snapshot.snapshot_id).to_arrow())
    return name


@pytest.mark.parametrize("operation", [rotate_kek, rewrap, prune_keys, rescue], ids=lambda operation: operation.__name__)
def test_java_reads_before_and_after_and_appends(table: Table, java: JavaOracle, operation: Callable[[Table], object]) -> None:
    assert_java_reads(java, table)

    operation(table)

    name = assert_java_reads(java, table)
    java.append(name, rows(700))
    table.catalog.drop_table("db.t")
    back = table.catalog.register_table("db.t", java.metadata_location(name))
    assert back.scan("id >= 700").count() == 20
    assert {kek.key_id for kek in keks(back)} == {kek.key_id for kek in keks(table)}


@pytest.mark.parametrize("other_key", [False, True])
def test_java_reads_a_copy_at_its_new_place_and_appends_to_it(table: Table, java: JavaOracle, aws: AwsServer, other_key: bool) -> None:
    place = f"{table.location().rpartition('/')[0]}/copy"
    assert_java_reads(java, table)

    relocate(table, place, key_id=aws.kms_key_id("alias/people") if other_key else None, register_as="db.copy")

    copy = table.catalog.load_table("db.copy")
    name = assert_java_reads(java, copy)
    java.sql(f"DELETE FROM h.{name} WHERE id = 105")
    java.append(name, rows(700))
    table.catalog.drop_table("db.copy")
    back = table.catalog.register_table("db.copy", java.metadata_location(name))
    assert back.scan("id = 105").count() == 0
    assert back.scan("id >= 700").count() == 20
    assert_java_reads(java, table)


def test_java_reads_what_is_live_after_a_shred_and_nothing_else(table: Table, java: JavaOracle) -> None:
    yesterday = table.metadata_location
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    selected = [each.snapshot_id for each in table.snapshots() if each.snapshot_id not in heads]
    assert_java_reads(java, table)

    shred(table, selected)

    assert_java_reads(java, table)
    old = next(NAMES)
    java.register(old, yesterday)
    assert_same_rows(java.rows(old), table.scan().to_arrow())
    for snapshot_id in selected:
        with pytest.raises(JavaError):
            java.rows(old, snapshot_id)


def test_java_reads_and_deletes_on_after_a_head_was_replaced(catalog: EncryptedSqlCatalog, java: JavaOracle) -> None:
    table = catalog.create_table("db.t", SCHEMA, properties={"encryption.key-id": "alias/orders"})
    for first in (0, 100):
        table.append(rows(first))
    name = assert_java_reads(java, table)
    java.sql(f"DELETE FROM h.{name} WHERE id >= 100")
    table.catalog.drop_table("db.t")
    table = table.catalog.register_table("db.t", java.metadata_location(name))

    result = shred(table, [each.snapshot_id for each in table.snapshots()][:-1], replace_heads=True)

    assert result.is_complete
    assert len(result.shredded_files) == 1
    name = assert_java_reads(java, table)
    java.append(name, rows(700))
    java.sql(f"DELETE FROM h.{name} WHERE id = 5")
    assert java.rows(name).num_rows == 39


def test_java_and_this_side_share_a_metastore_while_keys_change(
    hive_metastore: HiveMetastore, java_on_hive: JavaOracle, warehouse: Path, aws: AwsServer
) -> None:
    catalog = encrypted_hive_catalog(hive_metastore, warehouse, aws)
    catalog.create_namespace("rotating", {"location": f"file://{warehouse}/rotating"})
    table = new_table(catalog, "rotating.t", SCHEMA, appends=[rows(0)])
    java_on_hive.append("rotating.t", rows(100))
    old = keks(table.refresh())

    rotate_kek(table)
    java_on_hive.append("rotating.t", rows(200))
    rewrap(table)
    java_on_hive.append("rotating.t", rows(300))
    result = shred(table, [each.snapshot_id for each in table.refresh().snapshots()][:-1])

    assert not (result.left or result.refused or result.still_opened)
    assert_same_rows(java_on_hive.rows("rotating.t"), catalog.load_table("rotating.t").scan().to_arrow())
    java_on_hive.append("rotating.t", rows(400))
    final = catalog.load_table("rotating.t")
    assert sorted(final.scan().to_arrow()["id"].to_pylist()) == sorted(
        each for first in range(0, 500, 100) for each in range(first, first + 20)
    )
    assert not {kek.key_id for kek in keks(final)} & {kek.key_id for kek in old}
    assert len(metadata_of(final).snapshots) == 2


def test_rotations_beside_javas_appends_lose_no_row_and_no_key(
    hive_metastore: HiveMetastore, java_on_hive: JavaOracle, warehouse: Path, aws: AwsServer
) -> None:
    catalog = encrypted_hive_catalog(hive_metastore, warehouse, aws)
    catalog.create_namespace("beside", {"location": f"file://{warehouse}/beside"})
    patient = {"commit.retry.num-retries": "100", "commit.retry.min-wait-ms": "10", "commit.retry.max-wait-ms": "300"}
    table = new_table(catalog, "beside.t", SCHEMA, appends=[rows(0)], properties=patient)

    def append() -> None:
        for first in range(100, 700, 100):
            java_on_hive.append("beside.t", rows(first))

    with ThreadPoolExecutor(1) as threads:
        appending = threads.submit(append)
        for _ in range(6):
            rotate_kek(table)
        appending.result()

    rotate_kek(table)
    (kek,) = keks(table)
    assert {key.encrypted_by_id for key in manifest_list_keys(table).values()} == {kek.key_id}
    assert len(table.snapshots()) == 7
    assert_same_rows(java_on_hive.rows("beside.t"), table.scan().to_arrow())
    assert table.scan().count() == 140
