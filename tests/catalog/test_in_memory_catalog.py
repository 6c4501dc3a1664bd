"""The catalog in memory, whose tables PyIceberg's own code expects to work as its InMemoryCatalog's do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from sqlalchemy.exc import IntegrityError

from tablecrypt import maintenance
from tablecrypt.errors import ConfigurationError, MetadataRollbackError, TamperedFileError
from tablecrypt_catalog import EncryptedInMemoryCatalog, EncryptedSqlCatalog
from tests.support.tables import ENCRYPTED, files_below, memory_catalog, memory_kms, metadata_path, new_table

KMS = memory_kms(__name__)
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def catalog(tmp_path: Path) -> EncryptedInMemoryCatalog:
    return memory_catalog(tmp_path)


def test_it_is_pyicebergs_catalog_and_pins_what_it_holds(catalog: EncryptedInMemoryCatalog) -> None:
    assert isinstance(catalog, InMemoryCatalog)
    assert catalog.pin_places
    table = new_table(catalog, appends=[ROWS])
    assert maintenance.audit(table).findings == ()


def test_a_purge_deletes_every_file(catalog: EncryptedInMemoryCatalog, tmp_path: Path) -> None:
    table = new_table(catalog, appends=[ROWS])
    table.delete("id = 1")

    catalog.purge_table("db.t")

    assert files_below(tmp_path) == set()
    with pytest.raises(NoSuchTableError):
        catalog.load_table("db.t")


def test_older_metadata_is_deleted_after_a_commit(catalog: EncryptedInMemoryCatalog, tmp_path: Path) -> None:
    kept = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "2"}
    new_table(catalog, appends=[ROWS] * 5, properties=kept)

    assert len(files_below(tmp_path, ".metadata.json")) == 3
    assert catalog.load_table("db.t").scan().count() == 15


def test_what_somebody_edits_or_puts_back_is_refused(catalog: EncryptedInMemoryCatalog) -> None:
    table = new_table(catalog, appends=[ROWS])
    path = metadata_path(table)
    before = path.read_text()
    path.write_text(json.dumps(json.loads(before) | {"last-updated-ms": 1}))
    with pytest.raises(TamperedFileError):
        catalog.load_table("db.t")

    path.write_text(before)
    older = table.metadata.metadata_log[-1].metadata_file
    table.append(ROWS)
    catalog.drop_table("db.t")
    catalog.register_table("db.t", table.metadata_location)
    with catalog.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE iceberg_tables SET metadata_location = ?", (older,))
    with pytest.raises(MetadataRollbackError):
        catalog.load_table("db.t")


@pytest.mark.parametrize("kind", [EncryptedInMemoryCatalog, EncryptedSqlCatalog])
def test_names_without_a_namespace_are_refused_as_pyiceberg_does(kind: type[EncryptedSqlCatalog], tmp_path: Path) -> None:
    catalog = kind("names", uri="sqlite:///:memory:", warehouse=f"file://{tmp_path}", **KMS)
    for properties in ({}, ENCRYPTED):
        with pytest.raises(NoSuchNamespaceError):
            catalog.create_table("t", ROWS.schema, properties=properties)
        with pytest.raises(NoSuchNamespaceError):
            catalog.create_table_transaction("t", ROWS.schema, properties=properties)
    with pytest.raises(ValueError, match=r"^Empty namespace identifier$"):
        catalog.load_table("t")


@pytest.mark.parametrize("properties", [{}, ENCRYPTED])
@pytest.mark.parametrize("name", ["nowhere.t", "db.nowhere.t"])
def test_no_transaction_creates_a_table_in_a_namespace_that_is_not_there(
    catalog: EncryptedInMemoryCatalog, tmp_path: Path, name: str, properties: dict[str, str]
) -> None:
    with pytest.raises(NoSuchNamespaceError, match=re.escape(name.removesuffix(".t"))):
        catalog.create_table_transaction(name, ROWS.schema, properties=properties)
    assert files_below(tmp_path) == set()


def test_a_table_that_exists_is_not_created_again(catalog: EncryptedInMemoryCatalog, tmp_path: Path) -> None:
    new_table(catalog, appends=[ROWS])
    before = files_below(tmp_path)

    for properties in ({}, ENCRYPTED):
        with pytest.raises(TableAlreadyExistsError, match=r"db\.t"):
            catalog.create_table("db.t", ROWS.schema, properties=properties)

    assert catalog.load_table("db.t").scan().count() == 3
    assert files_below(tmp_path) == before


def test_where_a_table_exists_nothing_is_said_about_the_one_that_was_asked_for(catalog: EncryptedInMemoryCatalog, tmp_path: Path) -> None:
    catalog.create_table("db.plain", ROWS.schema)
    catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    strict = EncryptedSqlCatalog("memory", **{**KMS, "uri": "sqlite:///:memory:", "encryption.required": "true"})
    strict.engine = catalog.engine

    for name in ("db.plain", "db.t"):
        with pytest.raises(TableAlreadyExistsError, match=name):
            strict.create_table(name, ROWS.schema)
        with pytest.raises(TableAlreadyExistsError, match=name):
            strict.create_table(name, ROWS.schema, properties={"encryption.key-id": "no-such-key"})
    with pytest.raises(ConfigurationError, match=r"encryption\.required"):
        strict.create_table("db.new", ROWS.schema)


def test_a_property_without_a_value_is_refused(catalog: EncryptedInMemoryCatalog) -> None:
    with pytest.raises(ConfigurationError, match="the property 'owner' is None: give it a value"):
        catalog.create_table("db.t", ROWS.schema, properties={**ENCRYPTED, "owner": None})
    table = catalog.create_table("db.t", ROWS.schema, properties={**ENCRYPTED, "write.object-storage.enabled": True})
    with (
        pytest.raises(ConfigurationError, match="the property 'owner' is None: give it a value"),
        table.transaction() as transaction,
    ):
        transaction.set_properties(owner=None)
    assert table.refresh().properties == {**ENCRYPTED, "write.object-storage.enabled": "true"}


@pytest.mark.parametrize("properties", [{None: "value"}, {"key": None}])
def test_a_namespace_whose_property_lacks_a_name_or_value_is_refused_as_pyiceberg_does(
    catalog: EncryptedInMemoryCatalog, properties: dict[Any, Any]
) -> None:
    with pytest.raises(IntegrityError):
        catalog.create_namespace("null", properties)
    assert not catalog.namespace_exists("null")


def test_a_table_that_is_not_there_is_named_as_pyiceberg_names_it(catalog: EncryptedInMemoryCatalog) -> None:
    with pytest.raises(NoSuchTableError, match=r"^Table does not exist: missing$"):
        catalog.rename_table("db.missing", "db.other")
