"""The rows of the table of pins: each is read back as it was written, found by its own name, swapped only for the one that was known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, event, inspect, text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import Session

from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.keys.column_keys import ColumnMask
from tablecrypt_catalog.pins.protected_columns import PinnedColumn
from tablecrypt_catalog.pins.record import Head, TableVersion
from tablecrypt_catalog.pins.sql import PINS, create_pins_table, delete_pin, drop_pins_table, find_name, find_pin, rename_pin, write_pin

T, U = ("db", "t"), ("db.nested", "u")
PIN = TableVersion(
    *("uuid-1", "alias/orders", 24, "s3://b/00001-a.metadata.json", "hash-1", 2**40),
    kek_hashes=frozenset({"kek-2", "kek-1"}),
    heads={"main": Head(2**62, 7), "größe": Head(11, 1)},
    retired_keks=frozenset({"kek-1", "id:1"}),
    folders=("s3://b/t", "s3://b/elsewhere"),
    columns={2: PinnedColumn(2, "alias/pii", ColumnMask("truncate", 3)), 11: PinnedColumn(11, "alias/größe", since=4)},
)
OTHER = replace(
    PIN, table_uuid="uuid-2", table_key_id="alias/people", metadata_hash=None, kek_hashes=frozenset(), heads={}, folders=(), columns={}
)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path}/catalog.db")
    yield engine
    engine.dispose()


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    create_pins_table(engine)
    with Session(engine) as session:
        yield session


def test_a_pin_is_read_back_as_it_was_written_under_its_own_name(session: Session) -> None:
    assert write_pin(session, "prod", T, None, PIN)
    assert write_pin(session, "prod", U, None, OTHER)
    assert write_pin(session, "staging", T, None, replace(OTHER, table_uuid="uuid-3"))
    assert find_pin(session, "prod", T) == PIN
    assert find_pin(session, "prod", U) == OTHER
    assert find_pin(session, "staging", T) == replace(OTHER, table_uuid="uuid-3")
    for catalog, names in (("prod", ("db", "u")), ("prod", ("db.nested", "t")), ("staging", U), ("test", T)):
        assert find_pin(session, catalog, names) is None


def test_the_stored_row_is_one_that_other_clients_read(session: Session) -> None:
    write_pin(session, "prod", U, None, PIN)
    assert dict(session.execute(text("SELECT * FROM tablecrypt_pins")).mappings().one()) == {
        "catalog_name": "prod",
        "table_namespace": "db.nested",
        "table_name": "u",
        "table_uuid": "uuid-1",
        "key_id": "alias/orders",
        "data_key_length": 24,
        "metadata_location": "s3://b/00001-a.metadata.json",
        "metadata_hash": "hash-1",
        "last_sequence_number": 2**40,
        "kek_hashes": "kek-1 kek-2",
        "heads": '{"main": [4611686018427387904, 7], "gr\\u00f6\\u00dfe": [11, 1]}',
        "retired_keks": '["id:1", "kek-1"]',
        "folders": '["s3://b/t", "s3://b/elsewhere"]',
        "protected_columns": '[[2, "alias/pii", "truncate(3)", null], [11, "alias/gr\\u00f6\\u00dfe", "null", 4]]',
    }


def test_a_pin_moves_only_from_the_version_that_was_known(session: Session) -> None:
    write_pin(session, "prod", T, None, PIN)
    write_pin(session, "prod", U, None, OTHER)
    newer, newest = (replace(PIN, metadata_location=f"s3://b/0000{number}-a.metadata.json", heads={}) for number in (2, 3))
    assert write_pin(session, "prod", T, PIN, newer) is True
    assert write_pin(session, "prod", T, PIN, newest) is False
    assert write_pin(session, "staging", T, newer, newest) is False
    assert find_pin(session, "prod", T) == newer
    assert find_pin(session, "prod", U) == OTHER
    assert find_pin(session, "staging", T) is None
    with pytest.raises(IntegrityError):
        write_pin(session, "prod", T, None, newest)


def test_a_table_is_found_under_another_name_of_the_same_catalog_alone(session: Session) -> None:
    write_pin(session, "prod", U, None, PIN)
    write_pin(session, "staging", T, None, OTHER)
    assert find_name(session, "prod", T, "uuid-1") == "db.nested.u"
    assert find_name(session, "prod", U, "uuid-1") is None
    assert find_name(session, "prod", ("db", "u"), "uuid-1") == "db.nested.u"
    assert find_name(session, "prod", T, "uuid-2") is None
    assert find_name(session, "staging", T, "uuid-1") is None


def test_deleting_and_renaming_touch_one_row(session: Session) -> None:
    write_pin(session, "prod", T, None, PIN)
    write_pin(session, "prod", U, None, OTHER)
    write_pin(session, "staging", T, None, OTHER)
    rename_pin(session, "prod", T, ("db2", "t2"))
    assert find_pin(session, "prod", T) is None
    assert find_pin(session, "prod", ("db2", "t2")) == PIN
    assert find_pin(session, "staging", T) == OTHER
    delete_pin(session, "prod", ("db2", "t2"))
    delete_pin(session, "prod", ("db", "gone"))
    assert find_pin(session, "prod", ("db2", "t2")) is None
    assert (find_pin(session, "prod", U), find_pin(session, "staging", T)) == (OTHER, OTHER)


def test_columns_that_are_null_are_not_known_yet(session: Session) -> None:
    write_pin(session, "prod", T, None, PIN)
    session.execute(text("UPDATE tablecrypt_pins SET heads = NULL, retired_keks = NULL, folders = NULL, protected_columns = NULL"))
    assert find_pin(session, "prod", T) == replace(PIN, heads={}, retired_keks=frozenset(), folders=(), columns={})


@pytest.mark.parametrize(
    ("column", "stored", "said"),
    [
        *[(column, "{", "Invalid JSON") for column in ("heads", "retired_keks", "folders", "protected_columns")],
        ("protected_columns", '[[2, "pii", "null"]]', "required"),
        ("heads", '{"main": [1]}', "main"),
        ("folders", "{}", "valid array"),
        ("data_key_length", "long", "'long' is not a whole number"),
        ("last_sequence_number", "x", "'x' is not a whole number"),
    ],
)
def test_a_row_that_cannot_be_read_is_an_error_that_names_the_table(session: Session, column: str, stored: str, said: str) -> None:
    write_pin(session, "prod", T, None, PIN)
    session.execute(text(f"UPDATE tablecrypt_pins SET {column} = :stored"), {"stored": stored})
    with pytest.raises(FormatError, match="a pin in the table tablecrypt_pins cannot be read: ") as refused:
        find_pin(session, "prod", T)
    assert said in str(refused.value)


def test_the_table_is_made_once_and_dropped_where_it_is(engine: Engine) -> None:
    drop_pins_table(engine)
    create_pins_table(engine)
    create_pins_table(engine, allowed=False)
    assert [column["name"] for column in inspect(engine).get_columns(PINS.name)] == [column.name for column in PINS.columns]
    drop_pins_table(engine)
    assert not inspect(engine).has_table(PINS.name)


def test_a_client_that_may_create_nothing_is_told_the_statements(engine: Engine) -> None:
    with pytest.raises(ConfigurationError, match=r"Create it with: CREATE TABLE tablecrypt_pins \( catalog_name VARCHAR\(255\)") as refused:
        create_pins_table(engine, allowed=False)
    assert refused.value.__cause__ is None
    create_pins_table(engine)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE tablecrypt_pins DROP COLUMN heads"))
        connection.execute(text("ALTER TABLE tablecrypt_pins DROP COLUMN folders"))
    with pytest.raises(ConfigurationError) as refused:
        create_pins_table(engine, allowed=False)
    added = "Create it with: ALTER TABLE tablecrypt_pins ADD COLUMN heads TEXT; ALTER TABLE tablecrypt_pins ADD COLUMN folders TEXT"
    assert str(refused.value).endswith(added)
    create_pins_table(engine)
    create_pins_table(engine, allowed=False)


def test_the_databases_own_refusal_is_the_cause(engine: Engine) -> None:
    def refuse(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        if statement.lstrip().startswith("CREATE"):
            raise OperationalError(statement, {}, Exception("attempt to write a readonly database"))

    event.listen(engine, "before_cursor_execute", refuse)
    with pytest.raises(ConfigurationError, match="lacks the table tablecrypt_pins") as refused:
        create_pins_table(engine)
    assert isinstance(refused.value.__cause__, OperationalError)
