"""Protected columns in pins: who may edit a table's metadata and its catalog's entry makes no column less protected for clients with pins.

The adversary holds the storage and the catalog, and follows a commit whose manifest list does not say what is protected, such as one of
Iceberg Java. The careless user ends a protection himself, or works beside a colleague who changes the declaration.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.table.update import TableUpdate

from tablecrypt import maintenance as m
from tablecrypt.errors import ConfigurationError, KeyIdChangedError, MetadataRollbackError, TamperedFileError
from tablecrypt.keys.key_ring import WRITE_ONLY
from tablecrypt.table.updates import AddEncryptionKeyUpdate, RemoveEncryptionKeyUpdate
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.edited_metadata import put_as_next_version
from tests.support.protected_tables import (
    PEOPLE_SCHEMA,
    SALARY,
    SSN,
    TABLE_KEY,
    Clients,
    commit_column_keys,
    declare,
    loaded,
    protected_table,
    write_only,
)
from tests.support.tables import metadata_of

ROWS = pa.table({"id": [1, 2], "ssn": ["SSN-0001", "SSN-0002"]})
Properties = dict[str, str]


@pytest.fixture
def pinned(both: Clients, tmp_path: Path) -> EncryptedSqlCatalog:
    """A client with a pin file of its own, which has seen the table."""
    protected_table(both.payroll, appends=[ROWS], **{"encryption.column-keys": "pii: ssn", "encryption.column-mask.ssn": "hash"})
    made = EncryptedSqlCatalog("prod", **{**both.payroll.properties, "encryption.pins": str(tmp_path / "pins.json")})
    made.load_table("db.people")
    return made


def forge(both: Clients, folder: Path, **changes: Any) -> None:
    """Have the catalog answer with metadata that follows the newest in all but these fields, and forget what it had pinned itself."""
    table = loaded(both.payroll)
    location = put_as_next_version(table, json.loads(metadata_of(table).model_copy(update=changes).model_dump_json())).as_uri()
    with sqlite3.connect(folder / "catalog.db") as database:
        database.execute("UPDATE iceberg_tables SET metadata_location = ?", (location,))
        database.execute("DELETE FROM tablecrypt_pins")


def _nothing_left(properties: Properties) -> Properties:
    return {name: value for name, value in properties.items() if not name.startswith("encryption.column")}


def _ended(properties: Properties) -> Properties:
    return {**_nothing_left(properties), f"encryption.column.{SSN}.former-key-id": "pii"}


def _unreadable(properties: Properties) -> Properties:
    return {name: value for name, value in properties.items() if name != f"encryption.column.{SSN}.key-id"}


EDITS: dict[str, tuple[Callable[[Properties], Properties], str]] = {
    "properties removed": (_nothing_left, "is not protected now"),
    "protection ended": (_ended, "is not protected now"),
    "master key removed": (_unreadable, "is not protected now"),
    "another master key": (lambda properties: {**properties, f"encryption.column.{SSN}.key-id": "fin"}, "is under 'fin' now"),
    "a mask that shows values": (
        lambda properties: {**properties, f"encryption.column.{SSN}.mask": "truncate(64)"},
        r"is masked by truncate\(64\) now",
    ),
    "unprotected files allowed": (lambda properties: {**properties, f"encryption.column.{SSN}.since": "9"}, "up to sequence number 9"),
}


@pytest.mark.parametrize("edit", sorted(EDITS))
def test_metadata_that_protects_a_column_less_is_refused_before_anything_is_read(
    both: Clients, pinned: EncryptedSqlCatalog, tmp_path: Path, edit: str
) -> None:
    change, said = EDITS[edit]
    before = loaded(pinned)
    keys = [key for key in metadata_of(before).encryption_keys if not (key.is_column_key or key.is_column_kek)]
    entries = {"encryption_keys": keys} if edit == "properties removed" else {}
    forge(both, tmp_path, properties=change(dict(before.metadata.properties)), **entries)
    with pytest.raises(KeyIdChangedError, match=rf"column with field id {SSN} .*{said}.*accept_rollback"):
        pinned.load_table("db.people")
    with pytest.raises((KeyIdChangedError, ConfigurationError, TamperedFileError, MetadataRollbackError)):
        before.append(ROWS)


def test_a_change_that_somebody_trusts_is_accepted_on_purpose(both: Clients, pinned: EncryptedSqlCatalog) -> None:
    declare(loaded(both.payroll), "")
    with pytest.raises(KeyIdChangedError, match="accept_rollback"):
        pinned.load_table("db.people")
    pinned.accept_rollback("db.people")
    assert loaded(pinned).scan().to_arrow().num_rows == 2


def test_what_this_client_changes_itself_moves_its_pins(pinned: EncryptedSqlCatalog, tmp_path: Path) -> None:
    for changed in (
        {"encryption.column-mask.ssn": "truncate(2)"},
        {"encryption.column-keys": "pii: ssn, salary, note"},
        {"encryption.column-keys": "fin: ssn; pii: salary"},
    ):
        loaded(pinned).transaction().set_properties(changed).commit_transaction()
    loaded(pinned).append(ROWS)
    (pin,) = json.loads((tmp_path / "pins.json").read_text())["pins"]
    assert pin["protected-columns"] == [
        [SSN, "fin", "truncate(2)", None, ["ssn"], "pii", 1],
        [SALARY, "pii", "null", 1, ["salary"], None, None],
    ]


def test_a_former_master_key_is_not_made_to_count_longer_for_who_cannot_tell(both: Clients, tmp_path: Path) -> None:
    table = protected_table(both.payroll, appends=[ROWS], **{"encryption.column-keys": "fin: ssn"})
    declare(table, "pii: ssn")
    pins = {"encryption.pins": str(tmp_path / "pins.json")}
    analyst = EncryptedSqlCatalog("prod", **{**both.analyst.properties, **pins})
    honest = dict(loaded(analyst).metadata.properties)
    until = f"encryption.column.{SSN}.former-until"
    assert honest[until] == "1"
    # First it goes, which opens nothing, and then it comes back.
    forge(both, tmp_path, properties={name: value for name, value in honest.items() if name != until})
    loaded(analyst)
    forge(both, tmp_path, properties={**honest, until: "9"})
    with pytest.raises(KeyIdChangedError, match=r"'fin' in files up to sequence number 9 now, which was 1 before.*accept_rollback"):
        loaded(analyst)
    forge(both, tmp_path, properties=honest)
    assert loaded(analyst).scan(selected_fields=("ssn",)).to_arrow()["ssn"].to_pylist() == [None, None]


def test_a_colleague_may_protect_more_and_show_less(both: Clients, pinned: EncryptedSqlCatalog) -> None:
    declare(loaded(both.payroll), "pii: ssn, note", ssn="null")
    assert loaded(pinned).properties[f"encryption.column.{SSN}.mask"] == "null"
    m.reencrypt(loaded(both.payroll))
    m.shred(loaded(both.payroll), [loaded(both.payroll).snapshots()[0].snapshot_id])
    m.reencrypt(loaded(both.payroll))
    assert not [name for name in loaded(pinned).properties if name.endswith(".since")]
    declare(loaded(both.payroll), ssn="hash")
    with pytest.raises(KeyIdChangedError, match="masked by hash now"):
        pinned.load_table("db.people")


def _made_anew(analyst: EncryptedSqlCatalog) -> None:
    analyst.drop_table("db.people")
    analyst.create_table("db.people", PEOPLE_SCHEMA, properties={"encryption.key-id": TABLE_KEY})


def _renamed(analyst: EncryptedSqlCatalog) -> None:
    analyst.create_table("db.fake", PEOPLE_SCHEMA, properties={"encryption.key-id": TABLE_KEY})
    analyst.rename_table("db.people", "db.gone")
    analyst.rename_table("db.fake", "db.people")


@pytest.mark.parametrize("exchange", [_made_anew, _renamed])
def test_a_table_that_the_analyst_puts_in_the_place_of_one_with_protected_columns_gets_no_rows(
    both: Clients, pinned: EncryptedSqlCatalog, exchange: Callable[[EncryptedSqlCatalog], None]
) -> None:
    before = loaded(pinned)
    exchange(both.analyst)

    for _ in range(2):
        with pytest.raises(KeyIdChangedError, match=r"had protected columns.*forget_pin"):
            pinned.load_table("db.people")
    with pytest.raises((KeyIdChangedError, TamperedFileError)):
        before.append(ROWS)

    assert not both.analyst.load_table("db.people").scan().to_arrow().num_rows
    with pytest.raises(KeyIdChangedError, match="forget_pin"):
        pinned.accept_rollback("db.people")
    pinned.forget_pin("db.people")
    assert pinned.load_table("db.people").name() == ("db", "people")


def test_a_table_with_protected_columns_that_this_client_makes_anew_itself_is_its_own(both: Clients, pinned: EncryptedSqlCatalog) -> None:
    both.payroll.drop_table("db.people")
    protected_table(pinned, appends=[ROWS])

    assert loaded(pinned).scan().to_arrow()["ssn"].to_pylist() == ["SSN-0001", "SSN-0002"]
    both.payroll.drop_table("db.people")
    with pinned.create_table_transaction("db.people", PEOPLE_SCHEMA, properties={"encryption.key-id": TABLE_KEY}) as transaction:
        transaction.append(ROWS)
    assert len(loaded(pinned).scan().to_arrow()) == len(ROWS)


MADE_BY_THE_ANALYST = {
    "not protected": {},
    "under a key of the clerk's": {"encryption.column-keys": "fin: ssn"},
    "with a mask that shows values": {"encryption.column-keys": "pii: ssn", "encryption.column-mask.ssn": "truncate(64)"},
}


@pytest.mark.parametrize("made", MADE_BY_THE_ANALYST)
def test_a_table_that_is_there_already_is_not_returned_for_one_with_columns_protected_better(both: Clients, made: str) -> None:
    """Whoever may make tables made it first; who may wrap under a column's key need not be able to unwrap."""
    protected_table(both.payroll, **{"encryption.column-keys": "", **MADE_BY_THE_ANALYST[made]})
    asked = {"encryption.key-id": TABLE_KEY, "encryption.column-keys": "pii: ssn"}

    with pytest.raises(ConfigurationError, match=r"column 'ssn' .*not returned in place of"):
        both.payroll.create_table_if_not_exists("db.people", PEOPLE_SCHEMA, properties=asked)


def test_a_table_that_is_there_already_and_protects_what_is_asked_for_is_returned(both: Clients) -> None:
    asked = {"encryption.key-id": TABLE_KEY, "encryption.column-keys": "pii: ssn", "encryption.column-mask.ssn": "hash"}
    for _ in range(2):
        both.payroll.create_table_if_not_exists("db.people", PEOPLE_SCHEMA, properties=asked).append(ROWS)
    # What shows less than is asked for, and protects more, is as good.
    declare(loaded(both.payroll), "pii: ssn; fin: salary")
    loaded(both.payroll).transaction().set_properties({"encryption.column-mask.ssn": "null"}).commit_transaction()
    for properties in (asked, {"encryption.key-id": TABLE_KEY}, {}):
        assert both.payroll.create_table_if_not_exists("db.people", PEOPLE_SCHEMA, properties=properties).name() == ("db", "people")


def test_a_commit_of_a_writer_who_may_only_wrap_brings_keys_that_others_write_under_whatever_they_have_pinned(
    both: Clients, tmp_path: Path
) -> None:
    """As column-keys.md says: a pin refuses edits, and a commit that adds keys is none."""
    protected_table(both.payroll, appends=[ROWS], **{"encryption.column-keys": "pii: ssn"})
    pinned = EncryptedSqlCatalog("prod", **{**both.payroll.properties, "encryption.pins": str(tmp_path / "pins.json")})
    loaded(pinned)
    writer = write_only(both)
    loaded(writer).append(ROWS)

    table = loaded(writer)
    ring = metadata_of(table).key_ring
    entries = sorted([*ring.column_keks, *ring.column_keys], key=lambda entry: not entry.is_write_only)
    unmarked = [
        entry.model_copy(update={"properties": {name: value for name, value in (entry.properties or {}).items() if name != WRITE_ONLY}})
        for entry in entries
    ]
    transaction = table.transaction()
    transaction.apply(tuple(cast("TableUpdate", RemoveEncryptionKeyUpdate(key_id=entry.key_id)) for entry in entries))
    transaction.apply(tuple(cast("TableUpdate", AddEncryptionKeyUpdate(key=entry)) for entry in unmarked))
    transaction.commit_transaction()

    [stored] = commit_column_keys(loaded(pinned), SSN)
    [known] = [entry.key_id for entry in ring.column_keys if entry.is_write_only]
    assert known.encode() in stored.key_metadata
