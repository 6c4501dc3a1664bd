"""The pins of a SQL catalog, on SQLite and PostgreSQL: what is theirs alone. What all pins refuse is in test_pins_of_tables.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table
from sqlalchemy import event, inspect
from sqlalchemy.exc import OperationalError

from tablecrypt.errors import ConfigurationError, KeyIdChangedError, MetadataRollbackError, TamperedFileError
from tablecrypt.maintenance import shred
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.edited_metadata import edit_json
from tests.support.full_disk import no_file_beyond
from tests.support.kill_points import MORTAL, Place, calling_at
from tests.support.noting_io import NOTING_IO, opened_files
from tests.support.pin_places import IN_ROWS, PinPlace
from tests.support.tables import ENCRYPTED, MASTER_KEY, ROWS, metadata_path, new_table


@pytest.fixture(params=IN_ROWS)
def place(request: pytest.FixtureRequest) -> PinPlace:
    return PinPlace(request.param, request)


@pytest.fixture
def catalog(place: PinPlace) -> EncryptedSqlCatalog:
    return place.new_catalog()


@pytest.fixture
def table(catalog: EncryptedSqlCatalog) -> Table:
    return new_table(catalog, appends=[ROWS, ROWS])


@pytest.mark.parametrize("act", [lambda before: before.refresh(), lambda before: before.append(ROWS)], ids=["refresh", "append"])
def test_what_others_shred_while_a_table_is_loaded_is_no_tampering(place: PinPlace, table: Table, act: Callable[[Table], object]) -> None:
    before = place.new_catalog(**MORTAL).load_table(table.name())
    rows = before.scan().count()
    with calling_at(Place("open", 1), lambda: shred(place.new_catalog().load_table(table.name()), all_but_heads=True)) as life:
        act(before)

    assert life.came
    assert len(table.refresh().metadata.snapshots) <= 2
    assert table.scan().count() == before.scan().count() >= rows


def test_every_commit_moves_the_pin_together_with_the_row(place: PinPlace, table: Table) -> None:
    pin = place.pins()["db.t"]
    (row,) = place.execute("SELECT metadata_location FROM iceberg_tables")
    assert pin["metadata_location"] == row["metadata_location"] == table.metadata_location
    assert pin["key_id"] == MASTER_KEY
    assert pin["data_key_length"] == 16
    assert pin["last_sequence_number"] == 2
    assert pin["table_uuid"] == str(table.metadata.table_uuid)


def test_metadata_stripped_of_every_trace_of_encryption_is_refused(catalog: EncryptedSqlCatalog, table: Table) -> None:
    def strip(metadata: dict[str, Any]) -> None:
        metadata["properties"].pop("encryption.key-id")
        metadata["snapshots"], metadata["refs"], metadata["snapshot-log"], metadata["current-snapshot-id"] = [], {}, [], None
        metadata.pop("encryption-keys")

    edit_json(metadata_path(table), strip)
    for use in (lambda: catalog.load_table("db.t"), lambda: table.append(ROWS)):
        with pytest.raises(KeyIdChangedError, match="forget_pin"):
            use()


def test_a_table_of_a_catalog_without_pins_is_adopted_on_first_use(place: PinPlace, table: Table) -> None:
    place.execute("DROP TABLE tablecrypt_pins")
    adopting = place.new_catalog()
    assert place.pins() == {}
    adopting.load_table("db.t")
    assert place.pins()["db.t"]["metadata_location"] == table.metadata_location


def test_a_commit_pins_a_table_that_had_no_pin(place: PinPlace, table: Table) -> None:
    place.execute("DELETE FROM tablecrypt_pins")
    table.append(ROWS)
    assert place.pins()["db.t"]["metadata_location"] == table.metadata_location


def test_a_client_that_may_only_read_loads_a_table_without_pinning_it(table: Table, place: PinPlace) -> None:
    reader = place.new_catalog()
    place.execute("DELETE FROM tablecrypt_pins")

    def refuse_writes(_connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        if not statement.lstrip().upper().startswith("SELECT"):
            raise OperationalError(statement, {}, Exception("attempt to write a readonly database"))

    event.listen(reader.engine, "before_cursor_execute", refuse_writes)
    assert reader.load_table("db.t").scan().count() == 2 * ROWS.num_rows


def test_a_catalog_that_may_not_create_tables_names_the_statement_to_run(catalog: EncryptedSqlCatalog, place: PinPlace) -> None:
    place.execute("DROP TABLE tablecrypt_pins")
    with pytest.raises(ConfigurationError, match=r"CREATE TABLE tablecrypt_pins") as refused:
        place.new_catalog(init_catalog_tables="false")
    place.execute(str(refused.value).partition("Create it with: ")[2])
    new_table(place.new_catalog(init_catalog_tables="false"), appends=[ROWS])


def test_a_database_of_before_gets_the_columns_that_it_lacks(place: PinPlace, table: Table) -> None:
    for column in ("heads", "retired_keks", "folders", "protected_columns"):
        place.execute(f"ALTER TABLE tablecrypt_pins DROP COLUMN {column}")
    with pytest.raises(ConfigurationError, match=r"ALTER TABLE tablecrypt_pins ADD COLUMN heads TEXT; ALTER TABLE"):
        place.new_catalog(init_catalog_tables="false")
    adopting = place.new_catalog()
    assert place.pins()["db.t"]["heads"] is None
    adopting.load_table("db.t")
    assert json.loads(place.pins()["db.t"]["heads"]) == {"main": [table.metadata.current_snapshot_id, 2]}
    assert json.loads(place.pins()["db.t"]["folders"]) == [table.location()]


def test_the_catalogs_tables_are_created_and_destroyed_with_the_pins(catalog: EncryptedSqlCatalog) -> None:
    catalog.destroy_tables()
    assert inspect(catalog.engine).get_table_names() == []
    catalog.create_tables()
    assert "tablecrypt_pins" in inspect(catalog.engine).get_table_names()


def test_a_table_that_is_renamed_to_its_own_name_keeps_its_pin(place: PinPlace, catalog: EncryptedSqlCatalog, table: Table) -> None:
    older = table.metadata.metadata_log[-1].metadata_file
    catalog.rename_table("db.t", "db.t")
    assert list(place.pins()) == ["db.t"]
    place.point_to(older)

    with pytest.raises(MetadataRollbackError):
        catalog.rename_table("db.t", "db.t")
    with pytest.raises(MetadataRollbackError):
        catalog.load_table("db.t")


@pytest.mark.parametrize("name", ["db.", "db. ", "db..t", ("db", ""), ("db", " ")])
def test_a_table_gets_no_blank_name(catalog: EncryptedSqlCatalog, table: Table, name: str | tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError, match="has an empty part"):
        catalog.rename_table("db.t", name)
    with pytest.raises(ConfigurationError, match="has an empty part"):
        catalog.register_table(name, table.metadata_location)
    assert catalog.list_tables("db") == [("db", "t")]


def test_names_that_are_missing_or_taken_are_refused_as_pyiceberg_refuses_them(
    place: PinPlace, catalog: EncryptedSqlCatalog, table: Table
) -> None:
    catalog.create_table("db.taken", ROWS.schema, properties=ENCRYPTED)
    for new, error in (("db.taken", TableAlreadyExistsError), ("nowhere.t", NoSuchNamespaceError)):
        with pytest.raises(error):
            catalog.rename_table("db.t", new)
        with pytest.raises(error):
            catalog.register_table(new, table.metadata_location)
        with pytest.raises(error):
            catalog.create_table(new, ROWS.schema, properties=ENCRYPTED)
    for use in (
        lambda: catalog.drop_table("db.none"),
        lambda: catalog.rename_table("db.none", "db.x"),
        lambda: catalog.load_table("db.none"),
    ):
        with pytest.raises(NoSuchTableError):
            use()
    assert sorted(place.pins()) == ["db.t", "db.taken"]


def test_a_registered_table_is_pinned(place: PinPlace, catalog: EncryptedSqlCatalog, table: Table) -> None:
    registered = catalog.register_table("db.copy", table.metadata_location)
    assert isinstance(registered, EncryptedTable)
    assert place.pins()["db.copy"]["metadata_hash"] == place.pins()["db.t"]["metadata_hash"]
    registered.append(ROWS)
    assert registered.scan().count() == 3 * ROWS.num_rows


def test_a_table_that_others_created_anew_is_a_new_one(place: PinPlace, catalog: EncryptedSqlCatalog, table: Table) -> None:
    catalog.create_namespace("other")
    anew = place.new_catalog().create_table("other.t", ROWS.schema, properties=ENCRYPTED)
    catalog.drop_table("other.t")
    place.plain_client().drop_table("db.t")
    place.plain_client().register_table("db.t", anew.metadata_location)
    assert catalog.load_table("db.t").metadata.table_uuid == anew.metadata.table_uuid
    assert place.pins()["db.t"]["table_uuid"] == str(anew.metadata.table_uuid)


def test_a_catalog_that_answers_with_another_tables_metadata_is_refused(
    place: PinPlace, catalog: EncryptedSqlCatalog, table: Table
) -> None:
    other = catalog.create_table("db.other", ROWS.schema, properties=ENCRYPTED)
    place.execute("UPDATE iceberg_tables SET metadata_location = :location WHERE table_name = 't'", location=other.metadata_location)
    for use in (lambda: catalog.load_table("db.t"), lambda: table.append(ROWS)):
        with pytest.raises(TamperedFileError, match=r"for db\.t, but it is the metadata of db\.other"):
            use()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_pinned_metadata_file_that_was_written_over_with_an_unknown_tables_is_refused(
    catalog: EncryptedSqlCatalog, place: PinPlace, table: Table, tmp_path: Path, elsewhere: bool
) -> None:
    """Under the same master key: of another catalog, or one that this catalog has dropped."""
    other_catalog = place.new_catalog(uri=f"sqlite:///{tmp_path}/other.db") if elsewhere else catalog
    other_catalog.create_namespace_if_not_exists("db")
    other = new_table(other_catalog, "db.other", appends=[ROWS])
    other_catalog.drop_table("db.other")

    metadata_path(table).write_bytes(metadata_path(other).read_bytes())

    for use in (lambda: place.new_catalog().load_table("db.t"), lambda: table.append(ROWS)):
        with pytest.raises(TamperedFileError, match=r"db\.t: the table metadata was edited since"):
            use()


def test_metadata_that_a_full_disk_takes_in_half_is_not_left(catalog: EncryptedSqlCatalog, table: Table) -> None:
    before, location = set(metadata_path(table).parent.iterdir()), table.metadata_location
    with no_file_beyond(1000), pytest.raises(OSError, match=r"metadata\.json.*File too large|File too large.*metadata\.json"):
        table.transaction().set_properties({"owner": "us"}).commit_transaction()

    assert set(metadata_path(table).parent.iterdir()) == before
    assert catalog.load_table("db.t").metadata_location == location


def commit_between(catalog: EncryptedSqlCatalog, other: Callable[[], None]) -> None:
    """Let another client commit once, after this one has written its metadata and before it changes the row."""

    commits = [other]

    def before_swap(_connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        if statement.startswith("UPDATE iceberg_tables") and commits:
            commits.pop()()

    event.listen(catalog.engine, "before_cursor_execute", before_swap)


def test_a_lost_race_changes_neither_row_nor_pin(place: PinPlace, catalog: EncryptedSqlCatalog, table: Table) -> None:
    winner = place.new_catalog().load_table("db.t")
    commit_between(catalog, lambda: winner.append(ROWS))
    with pytest.raises(CommitFailedException, match="another process"):
        table.transaction().set_properties(owner="late").commit_transaction()
    assert catalog.load_table("db.t").metadata_location == winner.metadata_location
    assert place.pins()["db.t"]["metadata_location"] == winner.metadata_location
    assert "owner" not in catalog.load_table("db.t").properties


def test_an_append_that_loses_a_race_is_tried_again(place: PinPlace, catalog: EncryptedSqlCatalog, table: Table) -> None:
    winner = place.new_catalog().load_table("db.t")
    commit_between(catalog, lambda: winner.append(ROWS))
    table.append(ROWS)
    assert catalog.load_table("db.t").scan().to_arrow().num_rows == 4 * ROWS.num_rows
    assert place.pins()["db.t"]["metadata_location"] == table.metadata_location


def test_an_unconfirmed_commit_is_reported_as_unknown_and_its_files_stay(catalog: EncryptedSqlCatalog, table: Table) -> None:
    def lose_the_answer(connection: Any) -> None:
        connection.connection.commit()
        raise OperationalError("COMMIT", {}, Exception("server closed the connection unexpectedly"))

    event.listen(catalog.engine, "commit", lose_the_answer)
    with pytest.raises(CommitStateUnknownException, match="did not confirm"):
        table.append(ROWS)
    event.remove(catalog.engine, "commit", lose_the_answer)
    assert catalog.load_table("db.t").scan().to_arrow().num_rows == 3 * ROWS.num_rows


def test_namespaces_of_several_levels_hold_encrypted_tables(place: PinPlace, catalog: EncryptedSqlCatalog) -> None:
    catalog.create_namespace("db.inner")
    new_table(catalog, "db.inner.t", appends=[ROWS])
    with catalog.create_table_transaction(("db", "inner", "u"), ROWS.schema, properties=ENCRYPTED) as transaction:
        transaction.append(ROWS)
    assert sorted(place.pins()) == ["db.inner.t", "db.inner.u"]
    assert catalog.load_table("db.inner.u").scan().to_arrow().num_rows == ROWS.num_rows


def test_a_load_reads_metadata_once(catalog: EncryptedSqlCatalog, table: Table) -> None:
    noting = EncryptedSqlCatalog(catalog.name, **{**catalog.properties, "py-io-impl": NOTING_IO})
    with opened_files() as opened:
        noting.load_table("db.t")
    assert opened == [table.metadata_location]


def test_a_database_that_does_not_count_changed_rows_swaps_renames_and_drops_alike(
    place: PinPlace, catalog: EncryptedSqlCatalog, table: Table
) -> None:
    catalog.engine.dialect.supports_sane_rowcount = False
    table.append(ROWS)
    assert catalog.load_table("db.t").scan().to_arrow().num_rows == 3 * ROWS.num_rows
    assert place.pins()["db.t"]["metadata_location"] == table.metadata_location

    renamed = catalog.rename_table("db.t", "db.renamed")
    assert renamed.metadata_location == table.metadata_location
    with pytest.raises(NoSuchTableError):
        catalog.rename_table("db.t", "db.again")
    catalog.drop_table("db.renamed")
    with pytest.raises(NoSuchTableError):
        catalog.drop_table("db.renamed")
