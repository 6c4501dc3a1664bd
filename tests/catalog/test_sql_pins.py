"""The pins of a SQL catalog, on SQLite and PostgreSQL: what they refuse, and that they go with the tables whose pins they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table
from sqlalchemy import create_engine, event, inspect, text
from sqlalchemy.exc import OperationalError

from tablecrypt.errors import ConfigurationError, KeyIdChangedError, MetadataRollbackError, TamperedFileError
from tablecrypt.maintenance import shred
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.edited_metadata import edit_json
from tests.support.full_disk import no_file_beyond
from tests.support.kill_points import MORTAL, Place, calling_at
from tests.support.noting_io import NOTING_IO, opened_files
from tests.support.tables import ENCRYPTED, MASTER_KEY, ROWS, encrypted_sql_catalog, metadata_path, new_table

NewCatalog = Callable[..., EncryptedSqlCatalog]


@pytest.fixture
def warehouse(unwatched_warehouse: Path) -> Path:
    return unwatched_warehouse


@pytest.fixture
def new_catalog(uri: str, unwatched_warehouse: Path, aws: AwsServer) -> NewCatalog:
    """Another client of the same catalog."""
    return lambda **properties: encrypted_sql_catalog(unwatched_warehouse, aws, {"uri": uri, **properties})


@pytest.fixture
def catalog(new_catalog: NewCatalog) -> EncryptedSqlCatalog:
    return new_catalog()


@pytest.fixture
def plain_client(catalog: EncryptedSqlCatalog) -> SqlCatalog:
    """A client of the same database that knows neither encryption nor pins."""
    return SqlCatalog("prod", uri=catalog.properties["uri"], warehouse=catalog.properties["warehouse"])


@pytest.fixture
def table(catalog: EncryptedSqlCatalog) -> Table:
    return new_table(catalog, appends=[ROWS, ROWS])


@pytest.mark.parametrize("act", [lambda before: before.refresh(), lambda before: before.append(ROWS)], ids=["refresh", "append"])
def test_what_others_shred_while_a_table_is_loaded_is_no_tampering(
    new_catalog: NewCatalog, table: Table, act: Callable[[Table], object]
) -> None:
    before = new_catalog(**MORTAL).load_table(table.name())
    rows = before.scan().count()
    with calling_at(Place("open", 1), lambda: shred(new_catalog().load_table(table.name()), all_but_heads=True)) as life:
        act(before)

    assert life.came
    assert len(table.refresh().metadata.snapshots) <= 2
    assert table.scan().count() == before.scan().count() >= rows


def execute(catalog: SqlCatalog, statement: str, **values: Any) -> list[dict[str, Any]]:
    with catalog.engine.begin() as connection:
        result = connection.execute(text(statement), values)
        return [dict(row) for row in result.mappings()] if result.returns_rows else []


def pins(catalog: SqlCatalog) -> dict[str, dict[str, Any]]:
    return {f"{row['table_namespace']}.{row['table_name']}": row for row in execute(catalog, "SELECT * FROM tablecrypt_pins")}


def point_to(catalog: SqlCatalog, location: str) -> None:
    execute(catalog, "UPDATE iceberg_tables SET metadata_location = :location", location=location)


def edit(table: Table, change: Callable[[dict[str, Any]], None]) -> None:
    edit_json(metadata_path(table), change)


def test_every_commit_moves_the_pin_together_with_the_row(catalog: EncryptedSqlCatalog, table: Table) -> None:
    pin = pins(catalog)["db.t"]
    (row,) = execute(catalog, "SELECT metadata_location FROM iceberg_tables")
    assert pin["metadata_location"] == row["metadata_location"] == table.metadata_location
    assert pin["key_id"] == MASTER_KEY
    assert pin["data_key_length"] == 16
    assert pin["last_sequence_number"] == 2
    assert pin["table_uuid"] == str(table.metadata.table_uuid)


def test_plaintext_tables_are_not_pinned(catalog: EncryptedSqlCatalog) -> None:
    catalog.create_table("db.plain", ROWS.schema).append(ROWS)
    assert pins(catalog) == {}
    assert type(catalog.load_table("db.plain")) is Table


def test_an_older_metadata_file_in_the_catalogs_row_is_a_rollback(catalog: EncryptedSqlCatalog, table: Table) -> None:
    newest = table.metadata_location
    for entry in table.metadata.metadata_log:
        point_to(catalog, entry.metadata_file)
        with pytest.raises(MetadataRollbackError, match=r"db\.t"):
            catalog.load_table("db.t")
        with pytest.raises(MetadataRollbackError):
            table.append(ROWS)
    point_to(catalog, newest)
    assert catalog.load_table("db.t").scan().count() == 2 * ROWS.num_rows


def test_metadata_edited_in_place_is_refused_before_any_row(catalog: EncryptedSqlCatalog, table: Table) -> None:
    edit(table, lambda metadata: metadata["properties"].update({"write.object-storage.enabled": "true"}))
    for use in (lambda: catalog.load_table("db.t"), lambda: table.append(ROWS), table.refresh):
        with pytest.raises(TamperedFileError, match=metadata_path(table).name):
            use()


def test_metadata_stripped_of_every_trace_of_encryption_is_refused(catalog: EncryptedSqlCatalog, table: Table) -> None:
    def strip(metadata: dict[str, Any]) -> None:
        metadata["properties"].pop("encryption.key-id")
        metadata["snapshots"], metadata["refs"], metadata["snapshot-log"], metadata["current-snapshot-id"] = [], {}, [], None
        metadata.pop("encryption-keys")

    edit(table, strip)
    for use in (lambda: catalog.load_table("db.t"), lambda: table.append(ROWS)):
        with pytest.raises(KeyIdChangedError, match="forget_pin"):
            use()


def test_a_table_of_a_catalog_without_pins_is_adopted_on_first_use(
    catalog: EncryptedSqlCatalog, table: Table, new_catalog: NewCatalog
) -> None:
    execute(catalog, "DROP TABLE tablecrypt_pins")
    adopting = new_catalog()
    assert pins(adopting) == {}
    adopting.load_table("db.t")
    assert pins(adopting)["db.t"]["metadata_location"] == table.metadata_location


def test_a_commit_pins_a_table_that_had_no_pin(catalog: EncryptedSqlCatalog, table: Table) -> None:
    execute(catalog, "DELETE FROM tablecrypt_pins")
    table.append(ROWS)
    assert pins(catalog)["db.t"]["metadata_location"] == table.metadata_location


def test_a_client_that_may_only_read_loads_a_table_without_pinning_it(table: Table, new_catalog: NewCatalog) -> None:
    reader = new_catalog()
    execute(reader, "DELETE FROM tablecrypt_pins")

    def refuse_writes(_connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        if not statement.lstrip().upper().startswith("SELECT"):
            raise OperationalError(statement, {}, Exception("attempt to write a readonly database"))

    event.listen(reader.engine, "before_cursor_execute", refuse_writes)
    assert reader.load_table("db.t").scan().count() == 2 * ROWS.num_rows


def test_a_catalog_that_may_not_create_tables_names_the_statement_to_run(
    uri: str, catalog: EncryptedSqlCatalog, new_catalog: NewCatalog
) -> None:
    execute(catalog, "DROP TABLE tablecrypt_pins")
    with pytest.raises(ConfigurationError, match=r"CREATE TABLE tablecrypt_pins") as refused:
        new_catalog(init_catalog_tables="false")
    engine = create_engine(uri)
    with engine.begin() as connection:
        connection.execute(text(str(refused.value).partition("Create it with: ")[2]))
    engine.dispose()
    new_table(new_catalog(init_catalog_tables="false"), appends=[ROWS])


def test_a_database_of_before_gets_the_columns_that_it_lacks(catalog: EncryptedSqlCatalog, table: Table, new_catalog: NewCatalog) -> None:
    for column in ("heads", "retired_keks", "folders", "protected_columns"):
        execute(catalog, f"ALTER TABLE tablecrypt_pins DROP COLUMN {column}")
    with pytest.raises(ConfigurationError, match=r"ALTER TABLE tablecrypt_pins ADD COLUMN heads TEXT; ALTER TABLE"):
        new_catalog(init_catalog_tables="false")
    adopting = new_catalog()
    assert pins(adopting)["db.t"]["heads"] is None
    adopting.load_table("db.t")
    assert json.loads(pins(adopting)["db.t"]["heads"]) == {"main": [table.metadata.current_snapshot_id, 2]}
    assert json.loads(pins(adopting)["db.t"]["folders"]) == [table.location()]


def test_the_catalogs_tables_are_created_and_destroyed_with_the_pins(catalog: EncryptedSqlCatalog) -> None:
    catalog.destroy_tables()
    assert inspect(catalog.engine).get_table_names() == []
    catalog.create_tables()
    assert "tablecrypt_pins" in inspect(catalog.engine).get_table_names()


def test_a_pin_goes_with_a_renamed_table(catalog: EncryptedSqlCatalog, table: Table) -> None:
    older = table.metadata.metadata_log[-1].metadata_file
    renamed = catalog.rename_table("db.t", "db.u")
    assert isinstance(renamed, EncryptedTable)
    assert list(pins(catalog)) == ["db.u"]
    point_to(catalog, older)
    with pytest.raises(MetadataRollbackError):
        catalog.load_table("db.u")


def test_a_table_that_is_renamed_to_its_own_name_keeps_its_pin(catalog: EncryptedSqlCatalog, table: Table) -> None:
    older = table.metadata.metadata_log[-1].metadata_file
    catalog.rename_table("db.t", "db.t")
    assert list(pins(catalog)) == ["db.t"]
    point_to(catalog, older)

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


def test_names_that_are_missing_or_taken_are_refused_as_pyiceberg_refuses_them(catalog: EncryptedSqlCatalog, table: Table) -> None:
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
    assert sorted(pins(catalog)) == ["db.t", "db.taken"]


def test_a_pin_goes_with_a_dropped_table(catalog: EncryptedSqlCatalog, table: Table) -> None:
    catalog.drop_table("db.t")
    assert pins(catalog) == {}
    assert type(catalog.create_table("db.t", ROWS.schema)) is Table


def test_a_registered_table_is_pinned(catalog: EncryptedSqlCatalog, table: Table) -> None:
    registered = catalog.register_table("db.copy", table.metadata_location)
    assert isinstance(registered, EncryptedTable)
    assert pins(catalog)["db.copy"]["metadata_hash"] == pins(catalog)["db.t"]["metadata_hash"]
    registered.append(ROWS)
    assert registered.scan().count() == 3 * ROWS.num_rows


def test_a_table_that_others_created_anew_is_a_new_one(
    catalog: EncryptedSqlCatalog, table: Table, plain_client: SqlCatalog, new_catalog: NewCatalog
) -> None:
    catalog.create_namespace("other")
    anew = new_catalog().create_table("other.t", ROWS.schema, properties=ENCRYPTED)
    catalog.drop_table("other.t")
    plain_client.drop_table("db.t")
    plain_client.register_table("db.t", anew.metadata_location)
    assert catalog.load_table("db.t").metadata.table_uuid == anew.metadata.table_uuid
    assert pins(catalog)["db.t"]["table_uuid"] == str(anew.metadata.table_uuid)


def test_a_catalog_that_answers_with_another_tables_metadata_is_refused(catalog: EncryptedSqlCatalog, table: Table) -> None:
    other = catalog.create_table("db.other", ROWS.schema, properties=ENCRYPTED)
    execute(catalog, "UPDATE iceberg_tables SET metadata_location = :location WHERE table_name = 't'", location=other.metadata_location)
    for use in (lambda: catalog.load_table("db.t"), lambda: table.append(ROWS)):
        with pytest.raises(TamperedFileError, match=r"for db\.t, but it is the metadata of db\.other"):
            use()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_pinned_metadata_file_that_was_written_over_with_an_unknown_tables_is_refused(
    catalog: EncryptedSqlCatalog, new_catalog: NewCatalog, table: Table, tmp_path: Path, elsewhere: bool
) -> None:
    """Under the same master key: of another catalog, or one that this catalog has dropped."""
    other_catalog = new_catalog(uri=f"sqlite:///{tmp_path}/other.db") if elsewhere else catalog
    other_catalog.create_namespace_if_not_exists("db")
    other = new_table(other_catalog, "db.other", appends=[ROWS])
    other_catalog.drop_table("db.other")

    metadata_path(table).write_bytes(metadata_path(other).read_bytes())

    for use in (lambda: new_catalog().load_table("db.t"), lambda: table.append(ROWS)):
        with pytest.raises(TamperedFileError, match=r"db\.t: the table metadata was edited since"):
            use()


def test_metadata_that_a_full_disk_takes_in_half_is_not_left(catalog: EncryptedSqlCatalog, table: Table) -> None:
    before, location = set(metadata_path(table).parent.iterdir()), table.metadata_location
    with no_file_beyond(1000), pytest.raises(OSError, match=r"metadata\.json.*File too large|File too large.*metadata\.json"):
        table.transaction().set_properties({"owner": "us"}).commit_transaction()

    assert set(metadata_path(table).parent.iterdir()) == before
    assert catalog.load_table("db.t").metadata_location == location


def test_a_plaintext_table_in_place_of_an_encrypted_one_is_refused_until_its_pin_is_forgotten(
    catalog: EncryptedSqlCatalog, plain_client: SqlCatalog, table: Table
) -> None:
    plain_client.drop_table("db.t")
    plain_client.create_table("db.t", ROWS.schema, location=f"{table.location()}-plain")
    with pytest.raises(KeyIdChangedError, match="forget_pin"):
        catalog.load_table("db.t")
    with pytest.raises(KeyIdChangedError):
        catalog.table_exists("db.t")
    catalog.forget_pin("db.t")
    assert type(catalog.load_table("db.t")) is Table


def test_no_plaintext_table_is_created_where_an_encrypted_one_is_pinned(
    catalog: EncryptedSqlCatalog, plain_client: SqlCatalog, table: Table
) -> None:
    plain_client.drop_table("db.t")
    ways: tuple[Callable[[], object], ...] = (
        lambda: catalog.create_table("db.t", ROWS.schema),
        lambda: catalog.create_table_transaction("db.t", ROWS.schema).commit_transaction(),
    )
    for create in ways:
        with pytest.raises(KeyIdChangedError, match="forget_pin"):
            create()
    assert not catalog.table_exists("db.t")
    plain = catalog.create_table("db.plain", ROWS.schema)
    with pytest.raises(KeyIdChangedError):
        catalog.rename_table("db.plain", "db.t")
    assert catalog.load_table("db.plain").metadata_location == plain.metadata_location


def test_a_dropped_table_is_not_registered_at_an_older_version(
    catalog: EncryptedSqlCatalog, plain_client: SqlCatalog, table: Table
) -> None:
    plain_client.drop_table("db.t")
    with pytest.raises(MetadataRollbackError):
        catalog.register_table("db.t", table.metadata.metadata_log[-1].metadata_file)
    assert not catalog.table_exists("db.t")
    assert catalog.register_table("db.t", table.metadata_location).scan().count() == 2 * ROWS.num_rows


def commit_between(catalog: EncryptedSqlCatalog, other: Callable[[], None]) -> None:
    """Let another client commit once, after this one has written its metadata and before it changes the row."""

    commits = [other]

    def before_swap(_connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        if statement.startswith("UPDATE iceberg_tables") and commits:
            commits.pop()()

    event.listen(catalog.engine, "before_cursor_execute", before_swap)


def test_a_lost_race_changes_neither_row_nor_pin(catalog: EncryptedSqlCatalog, table: Table, new_catalog: NewCatalog) -> None:
    winner = new_catalog().load_table("db.t")
    commit_between(catalog, lambda: winner.append(ROWS))
    with pytest.raises(CommitFailedException, match="another process"):
        table.transaction().set_properties(owner="late").commit_transaction()
    assert catalog.load_table("db.t").metadata_location == winner.metadata_location
    assert pins(catalog)["db.t"]["metadata_location"] == winner.metadata_location
    assert "owner" not in catalog.load_table("db.t").properties


def test_an_append_that_loses_a_race_is_tried_again(catalog: EncryptedSqlCatalog, table: Table, new_catalog: NewCatalog) -> None:
    winner = new_catalog().load_table("db.t")
    commit_between(catalog, lambda: winner.append(ROWS))
    table.append(ROWS)
    assert catalog.load_table("db.t").scan().to_arrow().num_rows == 4 * ROWS.num_rows
    assert pins(catalog)["db.t"]["metadata_location"] == table.metadata_location


def test_an_unconfirmed_commit_is_reported_as_unknown_and_its_files_stay(catalog: EncryptedSqlCatalog, table: Table) -> None:
    def lose_the_answer(connection: Any) -> None:
        connection.connection.commit()
        raise OperationalError("COMMIT", {}, Exception("server closed the connection unexpectedly"))

    event.listen(catalog.engine, "commit", lose_the_answer)
    with pytest.raises(CommitStateUnknownException, match="did not confirm"):
        table.append(ROWS)
    event.remove(catalog.engine, "commit", lose_the_answer)
    assert catalog.load_table("db.t").scan().to_arrow().num_rows == 3 * ROWS.num_rows


def test_namespaces_of_several_levels_hold_encrypted_tables(catalog: EncryptedSqlCatalog) -> None:
    catalog.create_namespace("db.inner")
    new_table(catalog, "db.inner.t", appends=[ROWS])
    with catalog.create_table_transaction(("db", "inner", "u"), ROWS.schema, properties=ENCRYPTED) as transaction:
        transaction.append(ROWS)
    assert sorted(pins(catalog)) == ["db.inner.t", "db.inner.u"]
    assert catalog.load_table("db.inner.u").scan().to_arrow().num_rows == ROWS.num_rows


def test_a_load_reads_metadata_once(catalog: EncryptedSqlCatalog, table: Table) -> None:
    noting = EncryptedSqlCatalog(catalog.name, **{**catalog.properties, "py-io-impl": NOTING_IO})
    with opened_files() as opened:
        noting.load_table("db.t")
    assert opened == [table.metadata_location]


def test_a_database_that_does_not_count_changed_rows_swaps_renames_and_drops_alike(catalog: EncryptedSqlCatalog, table: Table) -> None:
    catalog.engine.dialect.supports_sane_rowcount = False
    table.append(ROWS)
    assert catalog.load_table("db.t").scan().to_arrow().num_rows == 3 * ROWS.num_rows
    assert pins(catalog)["db.t"]["metadata_location"] == table.metadata_location

    renamed = catalog.rename_table("db.t", "db.renamed")
    assert renamed.metadata_location == table.metadata_location
    with pytest.raises(NoSuchTableError):
        catalog.rename_table("db.t", "db.again")
    catalog.drop_table("db.renamed")
    with pytest.raises(NoSuchTableError):
        catalog.drop_table("db.renamed")
