"""Listing a catalog and describing a table from Python."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import pytest
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyiceberg.view.metadata import SQLViewRepresentation, ViewRepresentation, ViewVersion

from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import describe, list_tables
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedInMemoryCatalog, EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.edited_metadata import edited, read_metadata
from tests.support.rest_server import RestServer, encrypted_rest_catalog, new_namespace
from tests.support.tables import MASTER_KEY, SCHEMA, encrypted_sql_catalog, rows, table_with_history, unpinned_catalog

ID = Schema(NestedField(1, "id", LongType()))


def test_a_table_describes_itself(catalog: EncryptedSqlCatalog) -> None:
    table = cast("EncryptedTable", table_with_history(catalog, "db.t"))

    assert table.maintenance.describe() == describe(table)
    assert describe(table, snapshots=0).snapshots == ()
    with pytest.raises(ConfigurationError, match="snapshots is -1"):
        describe(table, snapshots=-1)


def test_neither_a_listing_nor_a_description_asks_the_key_service_for_a_table_without_rows(tmp_path: Path, aws: AwsServer) -> None:
    catalog = encrypted_sql_catalog(tmp_path, aws)
    catalog.create_table("db.t", SCHEMA, properties={"encryption.key-id": MASTER_KEY})
    offline = encrypted_sql_catalog(tmp_path, aws, {"kms.endpoint": "http://127.0.0.1:9", "encryption.kms.retry-budget-ms": "0"})

    assert describe(offline.load_table("db.t")).unread == {}
    assert [each.encrypted for each in list_tables(offline).tables] == [True]


def test_a_service_that_is_down_leaves_all_but_the_size(tmp_path: Path, aws: AwsServer) -> None:
    table_with_history(encrypted_sql_catalog(tmp_path, aws), "db.t")
    offline = encrypted_sql_catalog(tmp_path, aws, {"kms.endpoint": "http://127.0.0.1:9", "encryption.kms.retry-budget-ms": "0"})
    found = describe(offline.load_table("db.t"))

    assert (found.size, len(found.unread), bool(found.columns)) == (None, 1, True)


def test_a_catalog_in_memory_is_listed_although_its_database_belongs_to_one_thread(tmp_path: Path) -> None:
    catalog = EncryptedInMemoryCatalog("here", **{"warehouse": f"file://{tmp_path}", "encryption.kms-type": "memory"})
    catalog.create_namespace("db")
    catalog.create_table("db.plain", ID)

    assert [(each.name, each.encrypted, each.problem) for each in list_tables(catalog).tables] == [("db.plain", False, None)]


def test_a_namespace_that_is_not_there_is_refused(tmp_path: Path, aws: AwsServer) -> None:
    with pytest.raises(NoSuchNamespaceError, match="there is no namespace nowhere in catalog prod"):
        list_tables(encrypted_sql_catalog(tmp_path, aws), "nowhere")


def test_moments_and_counts_that_somebody_made_up_end_no_description(unwatched_warehouse: Path, aws: AwsServer) -> None:
    """metadata.json is not authenticated: whoever writes to the store may put any number into it."""
    table = unpinned_catalog(unwatched_warehouse, aws).create_table("db.plain", SCHEMA)
    table.append(rows(0))

    def edit(metadata: dict[str, Any]) -> None:
        metadata["last-updated-ms"] = 2**62
        for snapshot in metadata["snapshots"]:
            snapshot["timestamp-ms"] = 2**62
            snapshot["summary"].update({"added-records": "9" * 5000, "total-records": "many"})

    found = describe(edited(table, edit))
    assert (found.updated, {each.made for each in found.snapshots}) == (None, {None})
    assert {(each.rows_added, each.rows) for each in found.snapshots} == {(None, None)}
    assert found.size is not None


def test_protection_that_somebody_removed_from_the_properties_is_reported(tmp_path: Path, aws: AwsServer) -> None:
    catalog = unpinned_catalog(tmp_path, aws)
    declared = {"encryption.key-id": MASTER_KEY, "encryption.column-keys": "alias/people: note"}
    table = catalog.create_table("db.t", SCHEMA, properties=declared)
    table.append(rows(0))
    protected = next(name for name in read_metadata(table)["properties"] if name.endswith(".key-id") and ".column." in name)
    found = describe(edited(table, lambda metadata: metadata["properties"].pop(protected)))

    assert "protected columns" in found.unread


@pytest.mark.slow
def test_a_thousand_tables_are_listed_in_seconds(unwatched_warehouse: Path, aws: AwsServer) -> None:
    """Copies of one table's metadata under a thousand names: making so many tables would take longer than to list them."""
    catalog = encrypted_sql_catalog(unwatched_warehouse, aws)
    location = catalog.create_table("db.plain", ID).metadata_location
    for at in range(999):
        catalog.register_table(f"db.t{at:03}", location)
    started = time.monotonic()
    found = list_tables(catalog)

    assert (len(found.tables), found.is_whole) == (1000, True)
    assert time.monotonic() - started < 30


@pytest.mark.java
def test_views_are_listed_as_such(rest_server: RestServer, aws: AwsServer) -> None:
    namespace = new_namespace(rest_server)
    catalog = encrypted_rest_catalog(rest_server.uri, aws)
    catalog.create_table(f"{namespace}.t", ID, properties={"encryption.key-id": MASTER_KEY})
    query = ViewRepresentation(root=SQLViewRepresentation(type="sql", sql="SELECT 1 AS id", dialect="spark"))
    version = ViewVersion(schema_id=0, representations=[query], default_namespace=(namespace,))
    catalog.create_view((namespace, "v"), ID, version)

    assert [(each.name, each.kind, each.encrypted) for each in list_tables(catalog, namespace).tables] == [
        (f"{namespace}.t", "table", True),
        (f"{namespace}.v", "view", None),
    ]
