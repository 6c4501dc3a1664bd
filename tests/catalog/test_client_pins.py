"""The property encryption.pins: what is a pin file's alone. What all pins refuse is in test_pins_of_tables.py."""

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

from tablecrypt.errors import DeletionRefusedError, FormatError, MetadataRollbackError, TamperedFileError
from tablecrypt.maintenance import remove_orphan_files
from tablecrypt_catalog import EncryptedInMemoryCatalog, EncryptedSqlCatalog, encrypted
from tablecrypt_catalog.pins.client import ClientPins
from tablecrypt_catalog.pins.record import table_version
from tests.support.aws import AwsServer
from tests.support.pin_places import IN_A_FILE, PinPlace
from tests.support.tables import ROWS, new_table, path_of, unpinned_catalog

LATER = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)


@pytest.fixture(params=IN_A_FILE)
def place(request: pytest.FixtureRequest) -> PinPlace:
    return PinPlace(request.param, request)


@pytest.fixture
def catalog(place: PinPlace) -> EncryptedSqlCatalog:
    return place.new_catalog()


@pytest.fixture
def table(catalog: EncryptedSqlCatalog) -> Table:
    return new_table(catalog, appends=[ROWS, ROWS])


def test_a_table_that_nothing_pins_is_logged_once(tmp_path: Path, aws: AwsServer, caplog: pytest.LogCaptureFixture) -> None:
    for properties, said in ({}, 1), ({"encryption.pins": str(tmp_path / "pins.json")}, 0):
        catalog, name = unpinned_catalog(tmp_path, aws, **properties), f"db.said_{said}"
        new_table(catalog, name, appends=[ROWS])
        catalog.load_table(name)
        assert caplog.text.count(f"{name} is not pinned") == said


def test_a_corrupted_pin_file_stops_every_use_of_a_table(place: PinPlace, catalog: EncryptedSqlCatalog, table: Table) -> None:
    place.pin_file.write_text("{}")
    for use in (lambda: catalog.load_table("db.t"), lambda: table.append(ROWS), table.refresh):
        with pytest.raises(FormatError, match=r"pins\.json"):
            use()
    place.pin_file.unlink()
    assert catalog.load_table("db.t").scan().count() == 2 * ROWS.num_rows


def test_a_commit_that_landed_is_no_failure_because_the_pin_could_not_be_moved(
    place: PinPlace, catalog: EncryptedSqlCatalog, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    pin_check = catalog.client_pins.begin_check("db.t")
    place.pin_file.write_text("{}")
    with caplog.at_level(logging.WARNING):
        pin_check.record_commit(table.metadata, f"{table.location()}/metadata/00009-x.metadata.json")
    assert "is committed, but its pin could not be moved" in caplog.text


def forge(place: PinPlace, change: Callable[[dict[str, Any]], None]) -> str:
    """Publish an edited copy of the newest metadata as the version after it, as who writes both the storage and the catalog can."""
    [location] = place.execute("SELECT metadata_location FROM iceberg_tables")[0].values()
    metadata = json.loads(path_of(location).read_text())
    change(metadata)
    folder, _, name = location.rpartition("/")
    forged = f"{folder}/{int(name[:5]) + 1:05d}-forged.metadata.json"
    path_of(forged).write_text(json.dumps(metadata))
    place.point_to(forged)
    return forged


@pytest.fixture
def elsewhere(unwatched_warehouse: Path) -> str:
    """Another table's folder, with a file in it."""
    folder = unwatched_warehouse / "warehouse" / "db" / "another" / "data"
    folder.mkdir(parents=True)
    (folder / "victim.parquet").write_bytes(b"PAR1")
    return f"file://{folder.parent}"


def test_a_table_that_a_catalog_moved_is_refused_until_it_is_accepted(
    place: PinPlace, catalog: EncryptedSqlCatalog, table: Table, elsewhere: str
) -> None:
    newest = table.metadata_location
    forge(place, lambda metadata: metadata.update(location=elsewhere))
    for client in (catalog, place.new_catalog()):
        with pytest.raises(TamperedFileError, match=r"is at .*another now, but was at .*/t when .*accept_rollback"):
            client.load_table("db.t")
        with pytest.raises(TamperedFileError, match="is at"):
            client.purge_table("db.t")
    assert place.pins()["db.t"]["folders"] == [table.location()]
    assert catalog.accept_rollback("db.t").location() == elsewhere
    assert place.pins()["db.t"]["folders"] == [elsewhere]
    assert newest != catalog.load_table("db.t").metadata_location


def test_a_folder_that_a_catalog_adds_to_a_table_is_read_and_not_swept(
    place: PinPlace, catalog: EncryptedSqlCatalog, table: Table, elsewhere: str
) -> None:
    victim = path_of(elsewhere) / "data" / "victim.parquet"
    forge(place, lambda metadata: metadata["properties"].update({"write.data.path": elsewhere}))
    loaded = catalog.load_table("db.t")
    assert loaded.scan().count() == 2 * ROWS.num_rows
    with pytest.raises(DeletionRefusedError, match="lies outside the table's folders"):
        loaded.io.delete(f"file://{victim}")
    remove_orphan_files(loaded, LATER, dry_run=False)
    assert victim.exists()
    assert place.pins()["db.t"]["folders"] == [table.location()]

    accepted = catalog.accept_rollback("db.t")
    assert place.pins()["db.t"]["folders"] == [table.location(), elsewhere]
    accepted.io.delete(f"file://{victim}")
    assert not victim.exists()


def test_a_folder_that_this_client_gives_a_table_is_the_tables(
    place: PinPlace, catalog: EncryptedSqlCatalog, table: Table, elsewhere: str
) -> None:
    table.transaction().set_properties({"write.data.path": elsewhere}).commit_transaction()
    assert place.pins()["db.t"]["folders"] == [table.location(), elsewhere]
    place.new_catalog().load_table("db.t").append(ROWS)
    victim = path_of(elsewhere) / "data" / "victim.parquet"
    catalog.load_table("db.t").io.delete(f"file://{victim}")
    assert not victim.exists()
    table.refresh().transaction().remove_properties("write.data.path").commit_transaction()
    assert place.pins()["db.t"]["folders"] == [table.location()]


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


def test_an_old_head_under_the_newest_numbers_is_a_rollback(place: PinPlace, catalog: EncryptedSqlCatalog, table: Table) -> None:
    older, _ = (snapshot.snapshot_id for snapshot in table.metadata.snapshots)
    for head in (older, None):
        newest = table.metadata_location
        forge(place, with_head("main", head))
        for client in (catalog, place.new_catalog()):
            with pytest.raises(MetadataRollbackError, match=r"main points to .*accept_rollback"):
                client.load_table("db.t")
        with pytest.raises((MetadataRollbackError, CommitFailedException)):
            table.append(ROWS)
        place.point_to(newest)
    assert catalog.load_table("db.t").scan().count() == 2 * ROWS.num_rows


def test_an_old_snapshot_under_the_newest_sequence_number_does_not_open(
    place: PinPlace, catalog: EncryptedSqlCatalog, table: Table
) -> None:
    def change(metadata: dict[str, Any]) -> None:
        metadata["last-sequence-number"] = 1000
        old, _ = metadata["snapshots"]
        old["sequence-number"] = 1000
        metadata["snapshots"], metadata["snapshot-log"] = [old], []
        metadata["refs"]["main"]["snapshot-id"] = metadata["current-snapshot-id"] = old["snapshot-id"]

    forge(place, change)
    with pytest.raises(TamperedFileError, match="sequence-number is 1 in the authenticated manifest list"):
        catalog.load_table("db.t").scan().to_arrow()


def test_a_client_may_move_branches_as_it_likes(place: PinPlace, catalog: EncryptedSqlCatalog, table: Table) -> None:
    older, newer = (snapshot.snapshot_id for snapshot in table.metadata.snapshots)
    table.manage_snapshots().create_branch(newer, "audit").create_tag(newer, "v1").commit()
    table.manage_snapshots().set_current_snapshot(snapshot_id=older).commit()
    for client in (catalog, place.new_catalog()):
        assert client.load_table("db.t").scan().count() == ROWS.num_rows
    table.manage_snapshots().set_current_snapshot(ref_name="audit").commit()
    table.manage_snapshots().rollback_to_snapshot(older).commit()
    table.manage_snapshots().remove_branch("audit").remove_tag("v1").commit()
    table.manage_snapshots().create_branch(older, "audit").create_tag(older, "v1").commit()
    table.append(ROWS)
    table.append(ROWS, branch="audit")
    table.manage_snapshots().remove_branch("audit").commit()
    table.maintenance.expire_snapshots().by_id(newer).commit()
    for client in (catalog, place.new_catalog()):
        assert client.load_table("db.t").scan().count() == 2 * ROWS.num_rows


def test_a_rollback_by_somebody_else_is_accepted_on_purpose_only(
    place: PinPlace, catalog: EncryptedSqlCatalog, table: Table, tmp_path: Path
) -> None:
    older = table.metadata.snapshots[0].snapshot_id
    another = place.new_catalog(**{"encryption.pins": str(tmp_path / "another.json")})
    another.load_table("db.t").manage_snapshots().set_current_snapshot(snapshot_id=older).commit()
    with pytest.raises(MetadataRollbackError, match=r"catalog\.accept_rollback"):
        catalog.load_table("db.t")
    assert catalog.accept_rollback("db.t").scan().count() == ROWS.num_rows
    catalog.load_table("db.t").append(ROWS)
    assert catalog.load_table("db.t").scan().count() == 2 * ROWS.num_rows


def test_the_other_name_of_a_catalog_follows_a_rollback_of_this_client(catalog: EncryptedSqlCatalog, table: Table) -> None:
    other = encrypted(SqlCatalog)("prod", **catalog.properties)
    # The same database and rows by another name, as two entries of a configuration file may give it.
    other.load_table("db.t")
    ClientPins("second", catalog.properties).begin_check("db.t").verify(table_version(table.metadata, table.metadata_location, None))
    table.manage_snapshots().set_current_snapshot(snapshot_id=table.metadata.snapshots[0].snapshot_id).commit()
    pin_check = ClientPins("second", catalog.properties).begin_check("db.t")
    pin_check.verify(table_version(table.metadata, table.metadata_location, None))


def test_clients_that_commit_in_turn_never_see_a_rollback(table: Table, place: PinPlace) -> None:
    clients = [place.new_catalog().load_table("db.t") for _ in range(2)]
    for _ in range(3):
        for client in clients:
            client.append(ROWS)
    assert place.new_catalog().load_table("db.t").scan().to_arrow().num_rows == 8 * ROWS.num_rows


def test_a_table_in_two_catalogs_is_refused_where_it_fell_behind(
    place: PinPlace, catalog: EncryptedSqlCatalog, table: Table, unwatched_warehouse: Path, aws: AwsServer
) -> None:
    second = EncryptedInMemoryCatalog(
        "second", warehouse=f"file://{unwatched_warehouse}", **aws.kms_properties, **{"encryption.pins": str(place.pin_file)}
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
    place: PinPlace, catalog: EncryptedSqlCatalog, table: Table, unwatched_warehouse: Path, aws: AwsServer, caplog: pytest.LogCaptureFixture
) -> None:
    second = EncryptedInMemoryCatalog(
        "second", warehouse=f"file://{unwatched_warehouse}", **aws.kms_properties, **{"encryption.pins": str(place.pin_file)}
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
