"""Migration where the table's metadata is somebody else's: on Iceberg's REST server and in a Hive metastore."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from tablecrypt.maintenance import migrate, reencrypt
from tablecrypt.table.table import EncryptedTable
from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.hive import HiveMetastore, encrypted_hive_catalog
from tests.support.rest_server import RestServer, encrypted_rest_catalog, new_namespace
from tests.support.tables import MASTER_KEY, ROWS

pytestmark = pytest.mark.java


def assert_becomes_encrypted(catalog: Catalog, name: str) -> None:
    plain = catalog.create_table(name, ROWS.schema, properties={"owner": "us"})
    plain.append(ROWS)
    plain.append(ROWS)
    plain.delete("id = 3")
    before = plain.scan().to_arrow()
    result = migrate(plain, MASTER_KEY, delete_below=[plain.location()])
    table = catalog.load_table(name)
    assert isinstance(table, EncryptedTable)
    assert_same_rows(table.scan().to_arrow(), before)
    assert (table.metadata.table_uuid, table.properties["owner"]) == (plain.metadata.table_uuid, "us")
    assert [snapshot.snapshot_id for snapshot in table.snapshots()] == [result.snapshot_id]
    unnamed = [each.location for each in result.left if each.what != "metadata from before it was encrypted"]
    assert all(location.endswith(".crc") for location in unnamed), unnamed  # checksums that Java's file system keeps of metadata files
    table.append(ROWS)
    reencrypt(table)
    assert catalog.load_table(name).scan().count() == 7


def test_on_a_rest_server(rest_server: RestServer, aws: AwsServer) -> None:
    assert_becomes_encrypted(encrypted_rest_catalog(rest_server.uri, aws), f"{new_namespace(rest_server)}.t")


def test_in_a_hive_metastore(hive_metastore: HiveMetastore, warehouse: Path, aws: AwsServer) -> None:
    catalog = encrypted_hive_catalog(hive_metastore, warehouse, aws)
    database = f"db_{uuid.uuid4().hex[:8]}"
    catalog.create_namespace(database, {"location": f"file://{warehouse}/{database}"})
    assert_becomes_encrypted(catalog, f"{database}.t")
