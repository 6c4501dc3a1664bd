"""The names of protected columns: nobody has a right-holder write protected values under the table's key by moving names about.

The adversary is an analyst, who may commit and has the table's key alone, or whoever edits metadata. Each schema is tried through the API,
which refuses the commit, and as metadata that another engine has committed or somebody has edited, on which right-holders do not write, and
read other columns alone. The careless user moves names himself.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE, DataScan
from pyiceberg.table.update import AddSchemaUpdate, RemovePropertiesUpdate, SetCurrentSchemaUpdate, TableUpdate, update_table_metadata
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from tablecrypt import maintenance as m
from tablecrypt.errors import ConfigurationError, KeyIdChangedError, TamperedFileError
from tablecrypt.maintenance import FindingKind
from tablecrypt.table.protection.policy import folded, names_of_protected
from tablecrypt.table.snapshots import CommitOptions
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.updates import RemoveEncryptionKeyUpdate
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.edited_metadata import put_as_next_version
from tests.support.moved_names import EXCHANGED, MOVES, RENAMED_AND_ADDED, TEXT, Step, added, renamed, take
from tests.support.protected_tables import (
    COLUMN_KEY,
    EMAIL,
    OTHER_COLUMN_KEY,
    SSN,
    Clients,
    declare,
    loaded,
    opened_by_table_key,
    protected_table,
    table_of_people,
)
from tests.support.tables import metadata_of

ROWS = pa.table({"id": [1, 2], "ssn": ["SSN-0001", "SSN-0002"], "note": ["a", "b"]})
TAKEN = "takes the name of the protected column"


@pytest.fixture
def people(both: Clients) -> EncryptedTable:
    return protected_table(both.payroll, appends=[ROWS])


def forge(both: Clients, folder: Path, steps: Sequence[Step], *, forgotten: bool = False) -> None:
    """Have the catalog name metadata that follows the newest in all but the schema, as after a commit of another engine.

    Args:
        both: the clients.
        folder: with the catalog's database.
        steps: what changes of the schema.
        forgotten: whether the earlier schemas are taken out.
    """
    transaction = loaded(both.analyst).transaction()
    take(transaction, steps)
    metadata = json.loads(transaction.table_metadata.model_dump_json())
    if forgotten:
        metadata["schemas"] = [each for each in metadata["schemas"] if each["schema-id"] == metadata["current-schema-id"]]
    put(both, folder, metadata)


def put(both: Clients, folder: Path, metadata: dict[str, Any]) -> None:
    """Have the catalog name this metadata, past every client."""
    forged = put_as_next_version(loaded(both.analyst), metadata)
    # PyIceberg counts on from names of this form alone.
    location = forged.rename(forged.with_name(forged.name.replace("forged", str(uuid.UUID(int=7))))).as_uri()
    with sqlite3.connect(folder / "catalog.db") as database:
        database.execute("UPDATE iceberg_tables SET metadata_location = ?", (location,))
        database.execute("DELETE FROM tablecrypt_pins")


@pytest.mark.parametrize("move", sorted(MOVES))
def test_nobody_commits_a_schema_in_which_another_column_has_the_name(both: Clients, people: EncryptedTable, move: str) -> None:
    with pytest.raises(ConfigurationError, match=TAKEN), loaded(both.analyst).transaction() as transaction:
        take(transaction, MOVES[move])
    assert people.refresh().schema().find_field("ssn").field_id == SSN


@pytest.mark.parametrize("move", sorted(MOVES))
def test_commits_one_after_the_other_come_to_the_same(both: Clients, people: EncryptedTable, move: str) -> None:
    *first, last = MOVES[move] if move != "exchanged" else MOVES[move][:2]
    for step in first:
        with loaded(both.analyst).update_schema() as change:
            step(change)
    with pytest.raises(ConfigurationError, match=TAKEN), loaded(both.analyst).update_schema() as change:
        last(change)
    people.refresh().transaction().set_properties({"owner": "payroll"}).commit_transaction()


@pytest.mark.parametrize("move", sorted(MOVES))
def test_right_holders_do_not_write_and_read_other_columns_alone_where_somebody_gave_the_name_away(
    both: Clients, people: EncryptedTable, tmp_path: Path, move: str
) -> None:
    forge(both, tmp_path, MOVES[move])
    victim = loaded(both.payroll)
    with pytest.raises(ConfigurationError, match=TAKEN) as raised:
        victim.append(pa.table({"id": [3]}))
    assert "\n" not in str(raised.value)
    assert "encryption.column-keys" in str(raised.value)
    with pytest.raises(ConfigurationError, match=TAKEN):
        victim.scan().to_arrow()
    assert victim.scan(selected_fields=("id", "salary")).to_arrow() == people.scan(selected_fields=("id", "salary")).to_arrow()
    assert victim.scan("id > 1", selected_fields=("id",)).to_arrow()["id"].to_pylist() == [2]
    assert victim.scan().count() == 2
    with pytest.raises(ConfigurationError, match=TAKEN):
        m.verify(victim)
    assert loaded(both.payroll).current_snapshot() == people.current_snapshot()
    assert not any(b"SSN-0001" in found for found in opened_by_table_key(people))
    assert FindingKind.COLUMN_POLICY_CHANGED in {finding.kind for finding in m.audit(victim).findings}


TOUCHING: Sequence[tuple[tuple[str, ...], str]] = (
    (("ssn",), ""),
    (("ssn_old",), ""),
    (("id", "note", "SSN"), ""),
    (("*",), ""),
    (("id",), "ssn = 'x'"),
    (("id",), "ssn_old is null"),
    (("id",), "id = 1 or ssn != 'x'"),
)
READS: Sequence[Callable[[DataScan], object]] = (
    lambda scan: scan.to_arrow(),
    lambda scan: scan.to_duckdb("t").execute("SELECT * FROM t").fetchall(),
    lambda scan: scan.count() if scan.row_filter != AlwaysTrue() else scan.to_arrow(),
)


def test_whatever_looks_at_one_of_two_columns_with_one_name_is_refused(both: Clients, people: EncryptedTable, tmp_path: Path) -> None:
    forge(both, tmp_path, RENAMED_AND_ADDED)
    for catalog in (both.payroll, both.analyst):
        table = loaded(catalog)
        for (columns, condition), read in product(TOUCHING, READS):
            scan = table.scan(condition or ALWAYS_TRUE, selected_fields=columns, case_sensitive=False)
            # DuckDB puts the error of a stream into one of its own, and may refuse the analyst before.
            with pytest.raises(Exception, match=TAKEN if catalog is both.payroll else f"{TAKEN}|does not let you use"):
                read(scan)


def test_other_columns_are_deleted_and_changed_only_once_the_name_is_given_back(
    both: Clients, people: EncryptedTable, tmp_path: Path
) -> None:
    forge(both, tmp_path, RENAMED_AND_ADDED)
    before = loaded(both.payroll).metadata_location
    for change in (
        lambda table: table.delete("id = 1"),
        lambda table: table.overwrite(pa.table({"id": [1]}), "id = 1"),
        lambda table: table.transaction().set_properties({"owner": "x"}).commit_transaction(),
        lambda table: m.compact(table, rewrite_all=True),
        m.reencrypt,
    ):
        with pytest.raises(ConfigurationError, match=TAKEN):
            change(loaded(both.payroll))
    assert loaded(both.payroll).metadata_location == before


def test_a_name_that_was_given_away_is_taken_back_by_a_rename(both: Clients, people: EncryptedTable, tmp_path: Path) -> None:
    forge(both, tmp_path, RENAMED_AND_ADDED)
    with loaded(both.payroll).transaction() as transaction:
        take(transaction, (renamed("ssn", "other"), renamed("ssn_old", "ssn")))
    loaded(both.payroll).append(ROWS)
    assert sorted(loaded(both.payroll).scan().to_arrow()["ssn"].to_pylist()) == sorted(2 * ROWS["ssn"].to_pylist())
    assert people.refresh().schema().find_field("ssn").field_id == SSN


def test_a_protected_column_is_renamed_and_renamed_back(both: Clients, people: EncryptedTable) -> None:
    for before, after in (("ssn", "ssn_old"), ("ssn_old", "ssn"), ("person", "human"), ("human", "person")):
        with loaded(both.analyst).update_schema() as change:
            change.rename_column(before, after.rpartition(".")[2])
    loaded(both.payroll).append(ROWS)
    assert names_of_protected(people.refresh().metadata) == {
        SSN: {"ssn", "ssn_old"},
        EMAIL: {"person.email", "human.email"},
    }


def test_two_columns_under_one_key_exchange_their_names_and_under_two_keys_they_do_not(both: Clients, people: EncryptedTable) -> None:
    declare(people, "pii: ssn, note; fin: salary")
    with people.transaction() as transaction:
        take(transaction, EXCHANGED)
    people.append(ROWS)
    assert people.scan().to_arrow()["ssn"].to_pylist()[:2] == ["SSN-0001", "SSN-0002"]
    # Whoever may use the key of salaries would read the numbers.
    with pytest.raises(ConfigurationError, match=TAKEN), people.transaction() as transaction:
        take(transaction, (renamed("ssn", "third"), renamed("salary", "ssn"), renamed("third", "salary")))
    assert both.payroll.load_table("db.people").schema() == people.schema()


def test_columns_under_one_key_exchange_no_names_where_others_would_see_more_by_the_mask(both: Clients, people: EncryptedTable) -> None:
    """The analyst renames, which takes no key. Who wrote by the names put the values behind the mask that shows them."""
    declare(people, "pii: ssn, note", note="truncate(64)")
    shown = rf"{TAKEN}.*shown to others by the mask truncate\(64\)"
    with pytest.raises(ConfigurationError, match=shown), loaded(both.analyst).transaction() as transaction:
        take(transaction, EXCHANGED)
    declare(loaded(both.payroll), ssn="truncate(64)")
    with loaded(both.analyst).transaction() as transaction:
        take(transaction, EXCHANGED)


@pytest.mark.parametrize("forgotten", [False, True], ids=["named in schemas", "named in declarations"])
def test_a_column_is_shared_and_shredded_by_no_name_that_another_protected_one_had(both: Clients, tmp_path: Path, forgotten: bool) -> None:
    """The analyst exchanges the names of two columns under one key before the owner gives one away, or ends it."""
    table = protected_table(both.payroll, appends=[ROWS], **{"encryption.column-keys": f"{COLUMN_KEY}: ssn, note"})
    note = table.schema().find_field("note").field_id
    with loaded(both.analyst).transaction() as transaction:
        take(transaction, EXCHANGED)
    if forgotten:
        forge(both, tmp_path, [], forgotten=True)

    place, had = f"file://{tmp_path}/share", r"'note' is the column with field id 2, and column 'ssn'.* had that name"
    with pytest.raises(ConfigurationError, match=had):
        m.share(loaded(both.payroll), OTHER_COLUMN_KEY, place, columns={"note": COLUMN_KEY})
    with pytest.raises(ConfigurationError, match=had):
        m.shred_column(loaded(both.payroll), "note")

    with loaded(both.payroll).transaction() as transaction:
        take(transaction, [renamed("ssn", "remark")])
    assert m.share(loaded(both.payroll), OTHER_COLUMN_KEY, place, columns={"remark": COLUMN_KEY}).withheld == ("note",)
    assert m.shred_column(loaded(both.payroll), "remark", break_shares=True).field_id == note


def test_no_rows_are_erased_or_shared_by_a_name_that_another_protected_column_had(both: Clients, tmp_path: Path) -> None:
    """The analyst exchanges the names of two columns under one key before the owner erases a person. Another one would go."""
    rows = [{"id": 1, "ssn": "7", "note": "8"}, {"id": 2, "ssn": "8", "note": "7"}, {"id": 3, "ssn": "9", "note": "9"}]
    protected_table(both.payroll, appends=[table_of_people(rows)], **{"encryption.column-keys": f"{COLUMN_KEY}: ssn, note"})
    with loaded(both.analyst).transaction() as transaction:
        take(transaction, EXCHANGED)

    before, place = loaded(both.payroll).metadata_location, f"file://{tmp_path}/share"
    for condition in ("ssn = '7'", "not (id = 3 or ssn != '7')"):
        with pytest.raises(ConfigurationError, match=r"'ssn' is the column with field id \d+, and column 'note'.* had that name"):
            m.erase(loaded(both.payroll), condition, dry_run=condition.startswith("not"))
        with pytest.raises(ConfigurationError, match=r"'ssn' is the column with field id \d+, and column 'note'.* had that name"):
            m.share(loaded(both.payroll), OTHER_COLUMN_KEY, place, condition, rewrite=True)
    assert loaded(both.payroll).metadata_location == before

    with loaded(both.payroll).transaction() as transaction:
        take(transaction, [renamed("note", "number")])
    shared = m.share(loaded(both.payroll), OTHER_COLUMN_KEY, place, "number = '7'", rewrite=True)
    assert (shared.rows, shared.withheld) == (1, ("number", "ssn"))
    assert m.erase(loaded(both.payroll), "number = '7'", break_shares=True).is_complete
    assert loaded(both.payroll).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist() == [2, 3]


def test_a_column_takes_a_name_in_the_transaction_that_declares_it(people: EncryptedTable) -> None:
    with people.transaction() as transaction:
        take(transaction, RENAMED_AND_ADDED)
        transaction.set_properties({"encryption.column-keys": "pii: ssn, ssn_old, person.email"})
    people.append(ROWS)
    assert not any(b"SSN-0001" in found for found in opened_by_table_key(people))


@pytest.mark.parametrize(("one", "other"), [("SSN", "ssn"), ("\u0130d", "id"), ("\u0131d", "ID"), ("\u017fsn", "ssn"), ("\u212aey", "key")])
def test_names_that_spark_takes_for_the_same_are_the_same(one: str, other: str) -> None:
    assert folded(one) == folded(other)


def test_names_are_those_of_all_schemas_and_of_lists_and_maps_without_their_elements(both: Clients) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "tags", MapType(3, StringType(), 4, ListType(5, StructType(NestedField(6, "Name", StringType()))))),
    )
    declared = {"encryption.key-id": "orders", "encryption.column-keys": "pii: tags"}
    table = both.payroll.create_table("db.nested", schema, properties=declared)
    assert names_of_protected(table.metadata) == {2: {"tags"}}


def test_a_client_with_pins_knows_names_that_the_metadata_has_no_more(both: Clients, people: EncryptedTable, tmp_path: Path) -> None:
    pinned = EncryptedSqlCatalog("prod", **{**both.payroll.properties, "encryption.pins": str(tmp_path / "pins.json")})
    loaded(pinned)
    with loaded(both.analyst).update_schema() as change:
        change.rename_column("ssn", "ssn_old")
    # It has not seen this one yet, so it has to remember both names from here on.
    loaded(pinned)
    forge(both, tmp_path, [added("SSN", TEXT)], forgotten=True)
    with pytest.raises(KeyIdChangedError, match=r"column with field id 2 .*'ssn'.*'SSN'.*accept_rollback"):
        loaded(pinned)


def test_a_client_with_pins_refuses_a_former_key_that_somebody_else_brought(both: Clients, people: EncryptedTable, tmp_path: Path) -> None:
    pinned = EncryptedSqlCatalog("prod", **{**both.payroll.properties, "encryption.pins": str(tmp_path / "pins.json")})
    loaded(pinned)
    for keys in ("fin: ssn; pii: person.email", "pii: ssn, person.email"):
        declare(loaded(both.payroll), keys)
    assert loaded(both.payroll).properties[f"encryption.column.{SSN}.former-key-id"] == "fin"
    with pytest.raises(KeyIdChangedError, match=r"column with field id 2 .*may be under 'fin' in older files now.*accept_rollback"):
        loaded(pinned)


@pytest.mark.usefixtures("people")
def test_a_column_takes_no_name_by_the_field_id_of_another_one(both: Clients, tmp_path: Path) -> None:
    """Right-holders wrote values into it, since names and keys are looked up by field id, where the other column was found."""
    schema = metadata_of(loaded(both.analyst)).schema()
    phone = schema.find_field("phones.element").field_id
    fields = [each.model_copy(update={"field_id": phone}) if each.name == "ssn" else each for each in schema.fields]
    named = Schema(*fields, schema_id=7)
    updates = cast("tuple[TableUpdate, ...]", (AddSchemaUpdate(schema_=named), SetCurrentSchemaUpdate(schema_id=7)))

    with pytest.raises(ConfigurationError, match=f"two columns of the schema have the field id {phone}"):
        both.analyst.commit_table(loaded(both.analyst), (), updates)
    put(both, tmp_path, json.loads(update_table_metadata(loaded(both.analyst).metadata, updates).model_dump_json()))
    with pytest.raises(TamperedFileError, match=f"two columns of schema 7 have the id {phone}"):
        loaded(both.payroll)


@pytest.mark.parametrize("key", ["PARQUET:field_id", "iceberg.id"])
@pytest.mark.parametrize("name", ["ssn", "SSN", "social"])
def test_rows_give_a_name_to_no_other_column_by_their_field_ids(both: Clients, people: EncryptedTable, name: str, key: str) -> None:
    """Rows of a file of another table have that one's ids. PyIceberg goes by them, and the values were in the clear in another column."""
    with people.update_schema() as change:
        change.rename_column("ssn", "social")
    note = people.refresh().schema().find_field("note").field_id
    rows = pa.table([["SSN-0003"]], schema=pa.schema([pa.field(name, pa.string(), metadata={key: str(note)})]))

    for given in (rows, rows.to_reader()):
        with pytest.raises(ConfigurationError, match=rf"column '{name}' of the rows has a field id"):
            loaded(both.payroll).append(given)
    assert not any(b"SSN-0003" in found for found in opened_by_table_key(loaded(both.payroll)))

    loaded(both.payroll).append(pa.Table.from_pylist([{"social": "SSN-0003", "note": "a note"}], schema=people.schema().as_arrow()))
    assert loaded(both.payroll).scan("social = 'SSN-0003'").to_arrow()["note"].to_pylist() == ["a note"]


@pytest.mark.parametrize("declared", [True, False])
def test_the_name_of_a_dropped_column_does_not_go_with_its_properties(both: Clients, declared: bool) -> None:
    """The analyst drops it and removes its properties past this package, with the engine write barrier; then others wrote its values."""
    protected_table(both.payroll, appends=[ROWS], **{"encryption.column-keys": f"{COLUMN_KEY}: ssn"})
    with loaded(both.analyst).update_schema() as change:
        change.delete_column("ssn")
    metadata = metadata_of(loaded(both.analyst))
    names = [name for name in metadata.properties if name.startswith((f"encryption.column.{SSN}.", "write."))]
    keys = [] if declared else [RemoveEncryptionKeyUpdate(key_id=each.key_id) for each in metadata.key_ring.column_declarations]
    updates = cast("tuple[TableUpdate, ...]", (RemovePropertiesUpdate(removals=names), *keys))
    both.analyst.commit_table(loaded(both.analyst), (), updates)
    with loaded(both.analyst).update_schema() as change:
        change.add_column("SSN", TEXT)

    victim = loaded(both.payroll)
    with pytest.raises(KeyIdChangedError, match=rf"'SSN' {TAKEN} 'ssn' \(field id 2, which was dropped\)"):
        victim.append(ROWS.rename_columns(["id", "SSN", "note"]))
    assert not any(b"SSN-0001" in found for found in opened_by_table_key(loaded(both.payroll)))
    assert FindingKind.COLUMN_POLICY_CHANGED in {finding.kind for finding in m.audit(victim).findings}

    declare(victim, f"{COLUMN_KEY}: SSN")
    loaded(both.payroll).append(ROWS.rename_columns(["id", "SSN", "note"]))
    assert not any(b"SSN-0001" in found for found in opened_by_table_key(loaded(both.payroll)))


def test_the_name_of_a_dropped_column_is_freed_by_who_has_its_key(both: Clients) -> None:
    protected_table(both.payroll, appends=[ROWS], **{"encryption.column-keys": f"{COLUMN_KEY}: ssn"})
    with loaded(both.payroll).update_schema() as change:
        change.delete_column("ssn")
    names = [f"encryption.column.{SSN}.{each}" for each in ("key-id", "mask")]
    loaded(both.payroll).transaction().remove_properties(*names, "write.format.default").commit_transaction()
    with loaded(both.payroll).update_schema() as change:
        change.add_column("ssn", TEXT)
    loaded(both.payroll).append(ROWS)
    assert FindingKind.COLUMN_POLICY_CHANGED not in {finding.kind for finding in m.audit(loaded(both.payroll)).findings}


def put_snapshot_of_other_names(both: Clients, folder: Path) -> int:
    """Have the catalog name metadata with a snapshot in whose schema, not the current one, `ssn` is the name of `note`; return its id."""
    table = loaded(both.analyst)
    now = metadata_of(table)
    others = [each for each in now.schema().fields if each.name != "ssn"]
    own = Schema(*(each.model_copy(update={"name": "ssn"}) if each.name == "note" else each for each in others), schema_id=7)
    # Made where no schema has the column by this name, since who commits need not do so with this package.
    table.metadata = now.model_copy(update={"schemas": [own], "current_schema_id": own.schema_id})
    transaction = table.transaction()
    transaction.append_producer(CommitOptions()).commit_files([])
    staged, real = (json.loads(each.model_dump_json()) for each in (transaction.table_metadata, now))
    put(both, folder, {**staged, "schemas": [*real["schemas"], *staged["schemas"]], "current-schema-id": real["current-schema-id"]})

    return int(staged["current-snapshot-id"])


@pytest.mark.usefixtures("people")
def test_a_snapshot_s_own_schema_gives_the_name_to_no_other_column(both: Clients, tmp_path: Path) -> None:
    """Whoever read the snapshot, by its id or a tag, took values of the analyst for those of the column."""
    forged = put_snapshot_of_other_names(both, tmp_path)
    table = loaded(both.payroll)
    first = table.metadata.snapshots[0].snapshot_id

    for columns in (("*",), ("ssn",)):
        with pytest.raises(ConfigurationError, match=r"the name 'ssn' belongs to the protected column with field id 2"):
            table.scan(snapshot_id=forged, selected_fields=columns).to_arrow()
    assert table.scan(snapshot_id=forged, selected_fields=("id",)).to_arrow().num_rows == 2
    assert (
        table.scan().to_arrow()["ssn"].to_pylist()
        == table.scan(snapshot_id=first).to_arrow()["ssn"].to_pylist()
        == ["SSN-0001", "SSN-0002"]
    )


def test_a_name_from_before_the_protection_is_that_of_the_column_which_had_it(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[ROWS], **{"encryption.column-keys": ""})
    with table.update_schema() as update:
        update.rename_column("note", "remark").rename_column("ssn", "note")
    declare(table.refresh(), f"{COLUMN_KEY}: note")

    first = loaded(both.payroll).metadata.snapshots[0].snapshot_id
    assert loaded(both.payroll).scan(snapshot_id=first).to_arrow()["note"].to_pylist() == ["a", "b"]
