"""Who edits a metadata file before a client sees it first has no file deleted that is not the table's, after that client's commits neither.

The attacker writes the storage: db.t is to lie in the data folder of db.other, or to write its data there. The victim registers the
file, or loads it, appends, and removes orphans. Each commit writes its metadata file to where the edited one says, and confirms nothing.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from hive_metastore.ttypes import EnvironmentContext
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from sqlalchemy import text

from tablecrypt.errors import ConfigurationError, DeletionRefusedError, FormatError
from tablecrypt.maintenance import remove_orphan_files
from tablecrypt_catalog import EncryptedSqlCatalog
from tablecrypt_catalog.pins.hive import FOLDERS
from tests.support.aws import AwsServer
from tests.support.memory_metastore import MemoryHiveCatalog
from tests.support.tables import ROWS, data_paths, encrypted_sql_catalog, encrypted_table, metadata_path, new_table

LATER = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
EDITS: Final[dict[str, Callable[[dict[str, Any], str], object]]] = {
    "location": lambda metadata, folder: metadata.update(location=folder),
    "write path": lambda metadata, folder: metadata["properties"].update({"write.data.path": folder}),
}


@pytest.fixture(params=["SQL", "Hive"])
def catalog(request: pytest.FixtureRequest, unwatched_warehouse: Path, aws: AwsServer) -> Catalog:
    return encrypted_sql_catalog(unwatched_warehouse, aws) if request.param == "SQL" else hive_catalog(unwatched_warehouse, aws)


def hive_catalog(folder: Path, aws: AwsServer) -> MemoryHiveCatalog:
    made = MemoryHiveCatalog("hive", **{"warehouse": f"file://{folder}/warehouse", **aws.kms_properties})
    made.create_namespace("db")
    return made


@pytest.fixture
def other(catalog: Catalog) -> Table:
    return new_table(catalog, "db.other", ROWS.schema, appends=[ROWS])


def edited(catalog: Catalog, other: Table, edit: str, folder: Path) -> str:
    """Where the attacker has put metadata of a table that is gone from the catalog; in `folder`, where nothing confirms its location."""
    metadata = json.loads(metadata_path(new_table(catalog, "db.t", ROWS.schema, appends=[ROWS])).read_text(encoding="utf-8"))
    EDITS[edit](metadata, f"{other.location()}/data")
    stored = folder / "00000-0c9f3a52-9a4f-4a86-8f61-0d2c7f4be8a1.metadata.json"
    stored.write_text(json.dumps(metadata), encoding="utf-8")
    if isinstance(catalog, EncryptedSqlCatalog):
        catalog.drop_table("db.t")
    return stored.as_uri()


def assert_deletes_nothing_of(other: Table, table: Table) -> None:
    with pytest.raises(DeletionRefusedError):
        encrypted_table(table).io.delete(data_paths(other)[0].as_uri())
    with suppress(ConfigurationError):
        remove_orphan_files(table, LATER, dry_run=False)
    assert len(other.refresh().scan().to_arrow()) == len(ROWS)


@pytest.mark.parametrize("edit", EDITS)
def test_a_registered_table_has_no_folder_that_only_its_metadata_names(catalog: Catalog, other: Table, edit: str, tmp_path: Path) -> None:
    table = catalog.register_table("db.registered", edited(catalog, other, edit, tmp_path))
    assert_deletes_nothing_of(other, table)

    for _ in range(2):
        table.append(ROWS)
        assert_deletes_nothing_of(other, catalog.load_table("db.registered"))


@pytest.mark.parametrize("pins", ["the catalog's", "a client's file"])
def test_a_table_that_was_edited_before_first_sight_has_none_after_a_commit_of_this_client(
    unwatched_warehouse: Path, aws: AwsServer, tmp_path: Path, pins: str
) -> None:
    catalog = encrypted_sql_catalog(unwatched_warehouse, aws)
    other, table = (new_table(catalog, name, ROWS.schema, appends=[ROWS]) for name in ("db.other", "db.t"))
    metadata = json.loads(metadata_path(table).read_text(encoding="utf-8"))
    metadata_path(table).write_text(json.dumps({**metadata, "location": f"{other.location()}/data"}), encoding="utf-8")
    with catalog.engine.begin() as connection:
        connection.execute(text("DELETE FROM tablecrypt_pins"))

    victim = encrypted_sql_catalog(unwatched_warehouse, aws, {"encryption.pins": str(tmp_path / "pins")} if "file" in pins else {})
    victim.load_table("db.t").append(ROWS)

    assert_deletes_nothing_of(other, victim.load_table("db.t"))
    # What the error names is the way of who knows better.
    victim.accept_rollback("db.t")
    assert encrypted_table(victim.load_table("db.t")).io.deletable.contains(f"{other.location()}/data")


def test_an_entry_in_a_metastore_says_which_folders_this_client_has_set(unwatched_warehouse: Path, aws: AwsServer) -> None:
    catalog = hive_catalog(unwatched_warehouse, aws)
    table = new_table(catalog, properties={"write.data.path": "file:///lake/data"})
    table.transaction().set_properties({"write.object-storage.path": "file:///lake/objects"}).commit_transaction()
    assert json.loads(catalog.parameters_of("db", "t")[FOLDERS]) == [table.location(), "file:///lake/data", "file:///lake/objects"]

    table.transaction().remove_properties("write.data.path").commit_transaction()
    assert encrypted_table(catalog.load_table("db.t")).io.deletable.folders == (table.location(), "file:///lake/objects")

    def say(folders: str | None) -> None:
        metastore = MemoryHiveCatalog.metastores[catalog.properties["warehouse"]]
        entry = metastore.get_table("db", "t")
        entry.parameters.pop(FOLDERS, None)
        entry.parameters.update({} if folders is None else {FOLDERS: folders})
        metastore.alter_table_with_environment_context("db", "t", entry, EnvironmentContext())

    # Entries of earlier releases and of Iceberg Java have a hash alone.
    say(None)
    assert encrypted_table(catalog.load_table("db.t")).io.deletable.folders == (table.location(), "file:///lake/objects")
    say("[1]")
    with pytest.raises(FormatError, match="cannot be read"):
        catalog.load_table("db.t")
