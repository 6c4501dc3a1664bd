"""The property encryption.pins: what a client refuses of catalogs that keep no pins of their own."""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from sqlalchemy import text

from tablecrypt.errors import DeletionRefusedError, FormatError, KeyIdChangedError, MetadataRollbackError, TamperedFileError
from tablecrypt.maintenance import remove_orphan_files
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedInMemoryCatalog, EncryptedSqlCatalog, encrypted
from tablecrypt_catalog.encrypting_catalog import EncryptionMixin
from tablecrypt_catalog.pins.client import ClientPins
from tablecrypt_catalog.pins.record import table_version
from tests.support.aws import AwsServer
from tests.support.edited_metadata import edit_json
from tests.support.tables import ROWS, encrypted_sql_catalog, metadata_path, new_table, path_of, unpinned_catalog

LATER = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)

NewCatalog = Callable[..., SqlCatalog]


@pytest.fixture
def pin_file(tmp_path: Path) -> Path:
    return tmp_path / "pins.json"


@pytest.fixture(params=["any metastore", "sql"])
def new_catalog(request: pytest.FixtureRequest, unwatched_warehouse: Path, aws: AwsServer, pin_file: Path) -> NewCatalog:
    """A client with a pin file: of a catalog class that was made to encrypt, and of one with pins of its own."""

    def new(**properties: str) -> SqlCatalog:
        if request.param == "sql":
            return encrypted_sql_catalog(unwatched_warehouse, aws, {"encryption.pins": str(pin_file), **properties})
        catalog = encrypted(SqlCatalog)(
            "prod",
            **{
                "uri": f"sqlite:///{unwatched_warehouse}/catalog.db",
                "warehouse": f"file://{unwatched_warehouse}/warehouse",
                "encryption.pins": str(pin_file),
                **aws.kms_properties,
                **properties,
            },
        )
        assert isinstance(catalog, SqlCatalog)
        catalog.create_namespace_if_not_exists("db")
        return catalog

    return new


@pytest.fixture
def catalog(new_catalog: NewCatalog) -> SqlCatalog:
    return new_catalog()


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    return new_table(catalog, appends=[ROWS, ROWS])


def point_to(catalog: SqlCatalog, location: str) -> None:
    """Do what someone with access to the whole database can do: also the pins in it go."""
    with catalog.engine.begin() as connection:
        connection.execute(text("UPDATE iceberg_tables SET metadata_location = :location"), {"location": location})
        if isinstance(catalog, EncryptedSqlCatalog):
            connection.execute(text("DELETE FROM tablecrypt_pins"))


def forget_database_pins(catalog: SqlCatalog) -> None:
    if isinstance(catalog, EncryptedSqlCatalog):
        with catalog.engine.begin() as connection:
            connection.execute(text("DELETE FROM tablecrypt_pins"))


def pinned(pin_file: Path) -> dict[str, dict[str, object]]:
    return {".".join(entry["identifier"]): entry for entry in json.loads(pin_file.read_text())["pins"]}


def test_a_table_that_nothing_pins_is_logged_once(tmp_path: Path, aws: AwsServer, caplog: pytest.LogCaptureFixture) -> None:
    for properties, said in ({}, 1), ({"encryption.pins": str(tmp_path / "pins.json")}, 0):
        catalog, name = unpinned_catalog(tmp_path, aws, **properties), f"db.said_{said}"
        new_table(catalog, name, appends=[ROWS])
        catalog.load_table(name)
        assert caplog.text.count(f"{name} is not pinned") == said


def test_creation_and_commits_move_the_pin(table: Table, pin_file: Path) -> None:
    assert pinned(pin_file)["db.t"]["metadata-location"] == table.metadata_location
    assert pinned(pin_file)["db.t"]["last-sequence-number"] == 2


def test_a_load_pins_a_table_on_first_use(catalog: SqlCatalog, table: Table, pin_file: Path) -> None:
    pin_file.unlink()
    catalog.load_table("db.t")
    assert pinned(pin_file)["db.t"]["metadata-location"] == table.metadata_location


def test_the_hash_of_a_commit_is_that_of_its_file(catalog: SqlCatalog, table: Table, pin_file: Path) -> None:
    committed = pinned(pin_file)["db.t"]["metadata-hash"]
    pin_file.unlink()
    catalog.load_table("db.t")
    assert pinned(pin_file)["db.t"]["metadata-hash"] == committed is not None


def test_a_catalog_that_answers_with_older_metadata_is_refused(catalog: SqlCatalog, table: Table, new_catalog: NewCatalog) -> None:
    point_to(catalog, table.metadata.metadata_log[-1].metadata_file)
    for client in (catalog, new_catalog()):
        with pytest.raises(MetadataRollbackError):
            client.load_table("db.t")
    with pytest.raises((MetadataRollbackError, CommitFailedException)):
        table.append(ROWS)
    with pytest.raises(MetadataRollbackError):
        table.refresh()


def test_metadata_edited_in_place_is_refused(catalog: SqlCatalog, table: Table) -> None:
    edit_json(metadata_path(table), lambda metadata: metadata["properties"].update(owner="someone else"))
    forget_database_pins(catalog)
    with pytest.raises(TamperedFileError):
        catalog.load_table("db.t")


def test_a_plaintext_table_in_place_of_an_encrypted_one_is_refused_until_its_pin_is_forgotten(catalog: SqlCatalog, table: Table) -> None:
    plain_client = SqlCatalog("prod", uri=catalog.properties["uri"], warehouse=catalog.properties["warehouse"])
    plain_client.drop_table("db.t")
    plain_client.create_table("db.t", ROWS.schema, location=f"{table.location()}-plain")
    forget_database_pins(catalog)
    with pytest.raises(KeyIdChangedError, match="forget_pin"):
        catalog.load_table("db.t")
    plain_client.drop_table("db.t")
    for create in (lambda: catalog.create_table("db.t", ROWS.schema), lambda: catalog.create_table_transaction("db.t", ROWS.schema)):
        with pytest.raises(KeyIdChangedError, match="forget_pin"):
            create()
    assert ("db", "t") not in catalog.list_tables("db")
    assert isinstance(catalog, EncryptionMixin)
    catalog.forget_pin("db.t")
    assert type(catalog.create_table("db.t", ROWS.schema)) is Table


def test_no_table_is_made_where_one_under_another_key_is_pinned(catalog: SqlCatalog, table: Table, aws: AwsServer) -> None:
    SqlCatalog("prod", uri=catalog.properties["uri"], warehouse=catalog.properties["warehouse"]).drop_table("db.t")
    forget_database_pins(catalog)
    other = {"encryption.key-id": aws.new_key()}
    for create in catalog.create_table, catalog.create_table_transaction:
        with pytest.raises(KeyIdChangedError, match="forget_pin"):
            create("db.t", ROWS.schema, properties=other)
    assert ("db", "t") not in catalog.list_tables("db")


def test_no_table_is_registered_where_the_pin_speaks_against_it(catalog: SqlCatalog, table: Table) -> None:
    plain_client = SqlCatalog("prod", uri=catalog.properties["uri"], warehouse=catalog.properties["warehouse"])
    plain_client.drop_table("db.t")
    forget_database_pins(catalog)
    older = table.metadata.metadata_log[-1].metadata_file
    plain = plain_client.create_table("db.plain", ROWS.schema).metadata_location
    for location, refusal in (plain, KeyIdChangedError), (older, MetadataRollbackError):
        with pytest.raises(refusal):
            catalog.register_table("db.t", location)
        assert ("db", "t") not in catalog.list_tables("db")

    assert catalog.register_table("db.t", table.metadata_location).scan().count() == 2 * len(ROWS)


def test_no_table_gets_a_name_whose_pin_speaks_against_it(catalog: SqlCatalog, table: Table, aws: AwsServer, pin_file: Path) -> None:
    catalog.create_table("db.plain", ROWS.schema)
    catalog.create_table("db.other", ROWS.schema, properties={"encryption.key-id": aws.new_key()})
    SqlCatalog("prod", uri=catalog.properties["uri"], warehouse=catalog.properties["warehouse"]).drop_table("db.t")
    forget_database_pins(catalog)
    for name in "db.plain", "db.other":
        with pytest.raises(KeyIdChangedError, match="forget_pin"):
            catalog.rename_table(name, "db.t")
    assert sorted(catalog.list_tables("db")) == [("db", "other"), ("db", "plain")]
    assert pinned(pin_file).keys() == {"db.t", "db.other"}


def test_a_dropped_table_is_forgotten_and_a_renamed_one_is_not(catalog: SqlCatalog, table: Table, pin_file: Path) -> None:
    renamed = catalog.rename_table("db.t", "db.u")
    assert isinstance(renamed, EncryptedTable)
    assert list(pinned(pin_file)) == ["db.u"]
    renamed.append(ROWS)
    assert pinned(pin_file)["db.u"]["metadata-location"] == renamed.metadata_location
    catalog.drop_table("db.u")
    assert pinned(pin_file) == {}
    catalog.register_table("db.t", renamed.metadata.metadata_log[-1].metadata_file)
    assert list(pinned(pin_file)) == ["db.t"]


def test_plaintext_tables_are_not_pinned(catalog: SqlCatalog, pin_file: Path) -> None:
    table = catalog.create_table("db.plain", ROWS.schema, properties={"format-version": "2"})
    table.append(ROWS)
    catalog.load_table("db.plain")
    catalog.rename_table("db.plain", "db.simple")
    catalog.drop_table("db.simple")
    assert not pin_file.exists()


def test_a_corrupted_pin_file_stops_every_use_of_a_table(catalog: SqlCatalog, table: Table, pin_file: Path) -> None:
    pin_file.write_text("{}")
    for use in (lambda: catalog.load_table("db.t"), lambda: table.append(ROWS), table.refresh):
        with pytest.raises(FormatError, match=r"pins\.json"):
            use()
    pin_file.unlink()
    assert catalog.load_table("db.t").scan().count() == 2 * ROWS.num_rows


def test_a_commit_that_landed_is_no_failure_because_the_pin_could_not_be_moved(
    catalog: SqlCatalog, table: Table, pin_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pin_check = catalog.client_pins.begin_check("db.t")  # type: ignore[attr-defined]
    pin_file.write_text("{}")
    with caplog.at_level(logging.WARNING):
        pin_check.record_commit(table.metadata, f"{table.location()}/metadata/00009-x.metadata.json")
    assert "is committed, but its pin could not be moved" in caplog.text


def forge(catalog: SqlCatalog, change: Callable[[dict[str, Any]], None]) -> str:
    """Publish an edited copy of the newest metadata as the version after it, as who writes both the storage and the catalog can."""
    with catalog.engine.begin() as connection:
        location = connection.execute(text("SELECT metadata_location FROM iceberg_tables")).scalar_one()
    metadata = json.loads(path_of(location).read_text())
    change(metadata)
    folder, _, name = location.rpartition("/")
    forged = f"{folder}/{int(name[:5]) + 1:05d}-forged.metadata.json"
    path_of(forged).write_text(json.dumps(metadata))
    point_to(catalog, forged)
    return forged


@pytest.fixture
def elsewhere(unwatched_warehouse: Path) -> str:
    """Another table's folder, with a file in it."""
    folder = unwatched_warehouse / "warehouse" / "db" / "another" / "data"
    folder.mkdir(parents=True)
    (folder / "victim.parquet").write_bytes(b"PAR1")
    return f"file://{folder.parent}"


def test_a_table_that_a_catalog_moved_is_refused_until_it_is_accepted(
    catalog: SqlCatalog, table: Table, new_catalog: NewCatalog, pin_file: Path, elsewhere: str
) -> None:
    newest = table.metadata_location
    forge(catalog, lambda metadata: metadata.update(location=elsewhere))
    for client in (catalog, new_catalog()):
        with pytest.raises(TamperedFileError, match=r"is at .*another now, but was at .*/t when .*accept_rollback"):
            client.load_table("db.t")
        with pytest.raises(TamperedFileError, match="is at"):
            client.purge_table("db.t")
    assert pinned(pin_file)["db.t"]["folders"] == [table.location()]
    assert catalog.accept_rollback("db.t").location() == elsewhere  # type: ignore[attr-defined]
    assert pinned(pin_file)["db.t"]["folders"] == [elsewhere]
    assert newest != catalog.load_table("db.t").metadata_location


def test_a_folder_that_a_catalog_adds_to_a_table_is_read_and_not_swept(
    catalog: SqlCatalog, table: Table, pin_file: Path, elsewhere: str
) -> None:
    victim = path_of(elsewhere) / "data" / "victim.parquet"
    forge(catalog, lambda metadata: metadata["properties"].update({"write.data.path": elsewhere}))
    loaded = catalog.load_table("db.t")
    assert loaded.scan().count() == 2 * ROWS.num_rows
    with pytest.raises(DeletionRefusedError, match="lies outside the table's folders"):
        loaded.io.delete(f"file://{victim}")
    remove_orphan_files(loaded, LATER, dry_run=False)
    assert victim.exists()
    assert pinned(pin_file)["db.t"]["folders"] == [table.location()]

    accepted = catalog.accept_rollback("db.t")  # type: ignore[attr-defined]
    assert pinned(pin_file)["db.t"]["folders"] == [table.location(), elsewhere]
    accepted.io.delete(f"file://{victim}")
    assert not victim.exists()


def test_a_folder_that_this_client_gives_a_table_is_the_tables(
    catalog: SqlCatalog, table: Table, new_catalog: NewCatalog, pin_file: Path, elsewhere: str
) -> None:
    table.transaction().set_properties({"write.data.path": elsewhere}).commit_transaction()
    assert pinned(pin_file)["db.t"]["folders"] == [table.location(), elsewhere]
    new_catalog().load_table("db.t").append(ROWS)
    victim = path_of(elsewhere) / "data" / "victim.parquet"
    catalog.load_table("db.t").io.delete(f"file://{victim}")
    assert not victim.exists()
    table.refresh().transaction().remove_properties("write.data.path").commit_transaction()
    assert pinned(pin_file)["db.t"]["folders"] == [table.location()]


def with_head(name: str, snapshot_id: int | None) -> Callable[[dict[str, Any]], None]:
    """Number the metadata far ahead of all others, and let a branch or tag of it point elsewhere."""

    def change(metadata: dict[str, Any]) -> None:
        metadata["last-sequence-number"] += 1000
        metadata["refs"].pop(name)
        if snapshot_id is not None:
            metadata["refs"][name] = {"snapshot-id": snapshot_id, "type": "branch"}
        if name == "main":
            metadata["current-snapshot-id"] = snapshot_id
            metadata["snapshot-log"] = [entry for entry in metadata["snapshot-log"] if entry["snapshot-id"] == snapshot_id]

    return change


def test_an_old_head_under_the_newest_numbers_is_a_rollback(catalog: SqlCatalog, table: Table, new_catalog: NewCatalog) -> None:
    older, _ = (snapshot.snapshot_id for snapshot in table.metadata.snapshots)
    for head in (older, None):
        newest = table.metadata_location
        forge(catalog, with_head("main", head))
        for client in (catalog, new_catalog()):
            with pytest.raises(MetadataRollbackError, match=r"main points to .*accept_rollback"):
                client.load_table("db.t")
        with pytest.raises((MetadataRollbackError, CommitFailedException)):
            table.append(ROWS)
        point_to(catalog, newest)
    assert catalog.load_table("db.t").scan().count() == 2 * ROWS.num_rows


def test_an_old_snapshot_under_the_newest_sequence_number_does_not_open(catalog: SqlCatalog, table: Table) -> None:
    def change(metadata: dict[str, Any]) -> None:
        metadata["last-sequence-number"] = 1000
        old, _ = metadata["snapshots"]
        old["sequence-number"] = 1000
        metadata["snapshots"], metadata["snapshot-log"] = [old], []
        metadata["refs"]["main"]["snapshot-id"] = metadata["current-snapshot-id"] = old["snapshot-id"]

    forge(catalog, change)
    with pytest.raises(TamperedFileError, match="sequence-number is 1 in the authenticated manifest list"):
        catalog.load_table("db.t").scan().to_arrow()


def test_a_client_may_move_branches_as_it_likes(catalog: SqlCatalog, table: Table, new_catalog: NewCatalog) -> None:
    older, newer = (snapshot.snapshot_id for snapshot in table.metadata.snapshots)
    table.manage_snapshots().create_branch(newer, "audit").create_tag(newer, "v1").commit()
    table.manage_snapshots().set_current_snapshot(snapshot_id=older).commit()
    for client in (catalog, new_catalog()):
        assert client.load_table("db.t").scan().count() == ROWS.num_rows
    table.manage_snapshots().set_current_snapshot(ref_name="audit").commit()
    table.manage_snapshots().rollback_to_snapshot(older).commit()
    table.manage_snapshots().remove_branch("audit").remove_tag("v1").commit()
    table.manage_snapshots().create_branch(older, "audit").create_tag(older, "v1").commit()
    table.append(ROWS)
    table.append(ROWS, branch="audit")
    table.manage_snapshots().remove_branch("audit").commit()
    table.maintenance.expire_snapshots().by_id(newer).commit()
    for client in (catalog, new_catalog()):
        assert client.load_table("db.t").scan().count() == 2 * ROWS.num_rows


def test_a_rollback_by_somebody_else_is_accepted_on_purpose_only(
    catalog: SqlCatalog, table: Table, new_catalog: NewCatalog, tmp_path: Path
) -> None:
    older = table.metadata.snapshots[0].snapshot_id
    another = new_catalog(**{"encryption.pins": str(tmp_path / "another.json")})
    another.load_table("db.t").manage_snapshots().set_current_snapshot(snapshot_id=older).commit()
    with pytest.raises(MetadataRollbackError, match=r"catalog\.accept_rollback"):
        catalog.load_table("db.t")
    assert isinstance(catalog, EncryptionMixin)
    assert catalog.accept_rollback("db.t").scan().count() == ROWS.num_rows
    catalog.load_table("db.t").append(ROWS)
    assert catalog.load_table("db.t").scan().count() == 2 * ROWS.num_rows


def test_the_other_name_of_a_catalog_follows_a_rollback_of_this_client(catalog: SqlCatalog, table: Table, aws: AwsServer) -> None:
    other = encrypted(SqlCatalog)("prod", **catalog.properties)
    assert isinstance(other, SqlCatalog)
    # The same database and rows by another name, as two entries of a configuration file may give it.
    other.load_table("db.t")
    ClientPins("second", catalog.properties).begin_check("db.t").verify(table_version(table.metadata, table.metadata_location, None))
    table.manage_snapshots().set_current_snapshot(snapshot_id=table.metadata.snapshots[0].snapshot_id).commit()
    pin_check = ClientPins("second", catalog.properties).begin_check("db.t")
    pin_check.verify(table_version(table.metadata, table.metadata_location, None))


def test_clients_that_commit_in_turn_never_see_a_rollback(table: Table, new_catalog: NewCatalog) -> None:
    clients = [new_catalog().load_table("db.t") for _ in range(2)]
    for _ in range(3):
        for client in clients:
            client.append(ROWS)
    assert new_catalog().load_table("db.t").scan().to_arrow().num_rows == 8 * ROWS.num_rows


def test_a_table_in_two_catalogs_is_refused_where_it_fell_behind(
    catalog: SqlCatalog, table: Table, unwatched_warehouse: Path, aws: AwsServer, pin_file: Path
) -> None:
    second = EncryptedInMemoryCatalog(
        "second", warehouse=f"file://{unwatched_warehouse}", **aws.kms_properties, **{"encryption.pins": str(pin_file)}
    )
    second.create_namespace("db")
    copy = second.register_table("db.copy", table.metadata_location)
    before = copy.scan().to_arrow()
    table.append(before)
    with pytest.raises(MetadataRollbackError, match=r"two catalogs"):
        second.load_table("db.copy")
    with pytest.raises((MetadataRollbackError, CommitFailedException), match=r"two catalogs"):
        copy.append(before)
    assert catalog.load_table(table.name()).scan().count() == 2 * before.num_rows


def test_a_second_catalog_that_goes_ahead_locks_the_first_one_out_of_nothing(
    catalog: SqlCatalog, table: Table, unwatched_warehouse: Path, aws: AwsServer, pin_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    second = EncryptedInMemoryCatalog(
        "second", warehouse=f"file://{unwatched_warehouse}", **aws.kms_properties, **{"encryption.pins": str(pin_file)}
    )
    second.create_namespace("db")
    copy = second.register_table("db.copy", table.metadata_location)
    copy.append(copy.scan().to_arrow())
    with caplog.at_level(logging.WARNING):
        again = catalog.load_table("db.t")
    assert "second.db.copy, where the same table was first seen later" in caplog.text
    again.append(ROWS)
    again.append(ROWS)
    assert catalog.load_table("db.t").scan().count() == 4 * ROWS.num_rows
    with pytest.raises(MetadataRollbackError, match="two catalogs"):
        second.load_table("db.copy")
    assert second.accept_rollback("db.copy").scan().count() == 4 * ROWS.num_rows
    assert second.load_table("db.copy").metadata_location == copy.metadata_location
