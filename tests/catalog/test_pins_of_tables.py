"""What pins refuse of a table and how they go with it, wherever they lie: in rows of the database, or in a file of the clients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyiceberg.table import Table

from tablecrypt.errors import KeyIdChangedError, MetadataRollbackError, TamperedFileError
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.edited_metadata import edit_json
from tests.support.pin_places import IN_A_FILE, IN_ROWS, PinPlace
from tests.support.tables import ROWS, metadata_path, new_table


@pytest.fixture(params=[*IN_ROWS, *IN_A_FILE])
def place(request: pytest.FixtureRequest) -> PinPlace:
    return PinPlace(request.param, request)


@pytest.fixture
def catalog(place: PinPlace) -> EncryptedSqlCatalog:
    return place.new_catalog()


@pytest.fixture
def table(catalog: EncryptedSqlCatalog) -> Table:
    return new_table(catalog, appends=[ROWS, ROWS])


def test_creation_and_commits_move_the_pin(place: PinPlace, table: Table) -> None:
    pin = place.pins()["db.t"]
    assert (pin["metadata_location"], pin["last_sequence_number"]) == (table.metadata_location, 2)


def test_a_table_is_pinned_on_first_use_as_its_commit_would_pin_it(place: PinPlace, catalog: EncryptedSqlCatalog, table: Table) -> None:
    committed = place.pins()["db.t"]
    place.forget()
    catalog.load_table("db.t")
    assert place.pins()["db.t"] == committed
    assert committed["metadata_hash"] is not None


def test_plaintext_tables_are_not_pinned(place: PinPlace, catalog: EncryptedSqlCatalog) -> None:
    catalog.create_table("db.plain", ROWS.schema, properties={"format-version": "2"}).append(ROWS)
    assert type(catalog.load_table("db.plain")) is Table
    assert place.pins() == {}
    catalog.rename_table("db.plain", "db.simple")
    catalog.drop_table("db.simple")
    assert place.pins() == {}
    assert not place.pin_file.exists()


def test_older_metadata_is_a_rollback(place: PinPlace, catalog: EncryptedSqlCatalog, table: Table) -> None:
    newest = table.metadata_location
    for entry in table.metadata.metadata_log:
        place.point_to(entry.metadata_file)
        loads = (lambda: catalog.load_table("db.t"), lambda: place.new_catalog().load_table("db.t"))
        for use in (*loads, lambda: table.append(ROWS), table.refresh):
            with pytest.raises(MetadataRollbackError, match=r"db\.t"):
                use()
    place.point_to(newest)
    assert catalog.load_table("db.t").scan().count() == 2 * ROWS.num_rows


def test_metadata_edited_in_place_is_refused_before_any_row(place: PinPlace, catalog: EncryptedSqlCatalog, table: Table) -> None:
    edit_json(metadata_path(table), lambda metadata: metadata["properties"].update({"write.object-storage.enabled": "true"}))
    place.lose_rows()
    for use in (lambda: catalog.load_table("db.t"), lambda: table.append(ROWS), table.refresh):
        with pytest.raises(TamperedFileError, match=metadata_path(table).name):
            use()


def test_a_plaintext_table_in_place_of_an_encrypted_one_is_refused_until_its_pin_is_forgotten(
    place: PinPlace, catalog: EncryptedSqlCatalog, table: Table
) -> None:
    place.plain_client().drop_table("db.t")
    place.plain_client().create_table("db.t", ROWS.schema, location=f"{table.location()}-plain")
    place.lose_rows()
    for use in (catalog.load_table, catalog.table_exists):
        with pytest.raises(KeyIdChangedError, match="forget_pin"):
            use("db.t")
    catalog.forget_pin("db.t")
    assert type(catalog.load_table("db.t")) is Table


@pytest.mark.parametrize("key", ["none", "another"])
def test_no_table_is_made_where_one_under_a_key_is_pinned(
    place: PinPlace, catalog: EncryptedSqlCatalog, table: Table, aws: AwsServer, key: str
) -> None:
    properties = {"encryption.key-id": aws.new_key()} if key == "another" else {}

    def stage() -> None:
        staged = catalog.create_table_transaction("db.t", ROWS.schema, properties=properties)
        if not place.in_a_file:  # rows are looked at when they change
            staged.commit_transaction()

    place.plain_client().drop_table("db.t")
    place.lose_rows()
    for create in (lambda: catalog.create_table("db.t", ROWS.schema, properties=properties), stage):
        with pytest.raises(KeyIdChangedError, match="forget_pin"):
            create()
        assert not catalog.table_exists("db.t")
    assert catalog.list_tables("db") == []
    catalog.forget_pin("db.t")
    assert isinstance(catalog.create_table("db.t", ROWS.schema, properties=properties), EncryptedTable) == bool(properties)


def test_no_table_gets_a_name_whose_pin_speaks_against_it(
    place: PinPlace, catalog: EncryptedSqlCatalog, table: Table, aws: AwsServer
) -> None:
    plain = catalog.create_table("db.plain", ROWS.schema)
    catalog.create_table("db.other", ROWS.schema, properties={"encryption.key-id": aws.new_key()})
    place.plain_client().drop_table("db.t")
    pinned = place.pins().keys()
    place.lose_rows()
    for name in ("db.plain", "db.other"):
        with pytest.raises(KeyIdChangedError, match="forget_pin"):
            catalog.rename_table(name, "db.t")
    assert sorted(catalog.list_tables("db")) == [("db", "other"), ("db", "plain")]
    assert catalog.load_table("db.plain").metadata_location == plain.metadata_location
    assert place.pins().keys() == pinned == {"db.t", "db.other"}


def test_no_table_is_registered_where_the_pin_speaks_against_it(place: PinPlace, catalog: EncryptedSqlCatalog, table: Table) -> None:
    place.plain_client().drop_table("db.t")
    place.lose_rows()
    older = table.metadata.metadata_log[-1].metadata_file
    plain = place.plain_client().create_table("db.plain", ROWS.schema).metadata_location
    for location, refusal in ((plain, KeyIdChangedError), (older, MetadataRollbackError)):
        with pytest.raises(refusal):
            catalog.register_table("db.t", location)
        assert not catalog.table_exists("db.t")

    assert catalog.register_table("db.t", table.metadata_location).scan().count() == 2 * ROWS.num_rows


def test_a_pin_goes_with_a_renamed_table(place: PinPlace, catalog: EncryptedSqlCatalog, table: Table) -> None:
    older = table.metadata.metadata_log[-1].metadata_file
    renamed = catalog.rename_table("db.t", "db.u")
    assert isinstance(renamed, EncryptedTable)
    assert list(place.pins()) == ["db.u"]
    renamed.append(ROWS)
    assert place.pins()["db.u"]["metadata_location"] == renamed.metadata_location
    place.point_to(older)
    with pytest.raises(MetadataRollbackError):
        catalog.load_table("db.u")


REPLACED: dict[str, tuple[Callable[[EncryptedSqlCatalog, Table], object], list[str]]] = {
    "a plaintext table": (lambda catalog, table: catalog.create_table("db.t", ROWS.schema), []),
    "an older version": (lambda catalog, table: catalog.register_table("db.t", table.metadata.metadata_log[-1].metadata_file), ["db.t"]),
}


@pytest.mark.parametrize("by", REPLACED)
def test_a_pin_goes_with_a_dropped_table(place: PinPlace, catalog: EncryptedSqlCatalog, table: Table, by: str) -> None:
    catalog.drop_table("db.t")
    assert place.pins() == {}
    make, pinned = REPLACED[by]
    made = make(catalog, table)
    assert list(place.pins()) == pinned
    assert isinstance(made, EncryptedTable) == bool(pinned)
