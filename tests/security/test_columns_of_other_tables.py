"""A file of another table with its protected columns, brought into this table with the keys of these columns: its values stay there.

The analyst reads two tables but for one column, which both have under one master key. Of `db.hr` he sees nothing of it; `db.people` shows
its own by a mask. He commits a file of the first to the second, and the entries of encryption-keys that open it. Whoever holds all keys and
works on `db.people` must not write the values behind the mask of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pytest
from pyiceberg.table.update import TableUpdate

from tablecrypt import maintenance as m
from tablecrypt.errors import AuthenticationError, KeyIdChangedError, TamperedFileError
from tablecrypt.keys.key_ring import OF_TABLE, EncryptedKey
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.updates import AddEncryptionKeyUpdate, RemoveEncryptionKeyUpdate
from tests.support.handwritten_manifests import HandwrittenManifest, commit_by_hand, named_otherwise
from tests.support.protected_tables import SSN, Clients, declare, loaded, persons, protected_table
from tests.support.tables import data_files, metadata_of

SHOWN: Final = {"encryption.column-mask.ssn": "truncate(64)"}
SEEN: Final = ["SSN-0011", "SSN-0012"]
WRITES: Final[dict[str, Callable[[EncryptedTable], object]]] = {
    "compact": lambda table: m.compact(table, rewrite_all=True),
    "reencrypt": m.reencrypt,
    "reencrypt what is out of line": lambda table: m.reencrypt(table, out_of_line=True),
    "upsert": lambda table: table.upsert(persons(1, 2, 11), join_cols=["id"]),
    "read": lambda table: table.scan().to_arrow(),
}


def own_keys(table: EncryptedTable) -> list[EncryptedKey]:
    """What opens the protected columns of a table: it stands in metadata.json."""
    ring = metadata_of(table).key_ring
    return [*ring.column_keks, *ring.column_keys]


def bring(both: Clients, source: str, entries: Iterable[EncryptedKey]) -> None:
    """Commit, as the analyst, entries of encryption-keys and the files of another table to db.people."""
    target = loaded(both.analyst)
    transaction = target.transaction()
    transaction.apply(tuple(cast("TableUpdate", AddEncryptionKeyUpdate(key=entry)) for entry in entries))
    transaction.commit_transaction()
    files = [named_otherwise(file, first_row_id=None) for file in data_files(loaded(both.analyst, source))]
    commit_by_hand(target.refresh(), HandwrittenManifest(files))


def remove_own_keys(both: Clients) -> None:
    """Take away, as the analyst, all keys and declarations that the column has in db.people itself."""
    target = loaded(both.analyst)
    ring, own = metadata_of(target).key_ring, str(target.metadata.table_uuid)
    gone = [*ring.column_declarations, *(entry for entry in ring.column_keys if entry.made_for == own)]
    updates = (RemoveEncryptionKeyUpdate(key_id=each.key_id) for each in gone)
    both.analyst.commit_table(target, (), cast("tuple[TableUpdate, ...]", tuple(updates)))


def seen(both: Clients) -> set[Any]:
    """What the analyst finds in the column."""
    return set(loaded(both.analyst).scan(selected_fields=("ssn",)).to_arrow()["ssn"].to_pylist())


@pytest.fixture
def brought(both: Clients) -> EncryptedTable:
    """db.people as the holder of all keys finds it, with the file of db.hr."""
    secret = protected_table(both.payroll, "db.hr", appends=[persons(1, 2, 3)])
    protected_table(both.payroll, appends=[persons(11, 12)], **SHOWN)
    bring(both, "db.hr", own_keys(secret))
    return loaded(both.payroll)


@pytest.mark.parametrize("operation", WRITES)
def test_values_of_another_table_are_not_read_and_come_behind_no_mask_of_this_one(
    both: Clients, brought: EncryptedTable, operation: str
) -> None:
    with pytest.raises(TamperedFileError, match="was made for the table"):
        WRITES[operation](brought)

    assert seen(both) == {None, *SEEN}


def test_no_share_gives_the_values_of_another_table(both: Clients, brought: EncryptedTable, tmp_path: Path) -> None:
    with pytest.raises(TamperedFileError, match="was made for the table"):
        m.share(brought, "fin", f"file://{tmp_path}/share", columns={"ssn": "pii"})


def test_a_column_that_is_protected_no_more_shows_no_values_of_another_table(both: Clients, brought: EncryptedTable) -> None:
    declare(brought, "pii: person.email")

    with pytest.raises(TamperedFileError, match="was made for the table"):
        m.reencrypt(brought.refresh(), out_of_line=True)

    assert seen(both) <= {None, *SEEN}


def test_verify_names_the_file_and_audit_the_key(both: Clients, brought: EncryptedTable) -> None:
    found = {each.where for each in m.audit(loaded(both.analyst)).findings if each.kind == m.FindingKind.COLUMN_KEY_DIFFERS}
    assert found == {each.key_id for each in metadata_of(loaded(both.payroll, "db.hr")).key_ring.column_keys}

    [bad] = m.verify(brought).bad
    assert "/db/hr/" in bad.location
    assert "was made for the table" in bad.problems[0].message


def test_a_rotation_takes_the_brought_keys_out(both: Clients, brought: EncryptedTable) -> None:
    brought.delete("id < 10")
    m.rotate_column_keks(loaded(both.payroll))

    assert [each for each in m.audit(loaded(both.payroll)).findings if each.kind == m.FindingKind.COLUMN_KEY_DIFFERS] == []
    loaded(both.payroll).append(persons(13))
    assert ssn(loaded(both.payroll)) == [*SEEN, "SSN-0013"]
    assert {entry.made_for for entry in metadata_of(loaded(both.payroll)).key_ring.column_keys} == {str(brought.metadata.table_uuid)}


def test_rows_of_this_table_are_read_and_written_beside_it(both: Clients, brought: EncryptedTable) -> None:
    before = own_keys(brought)
    brought.append(persons(13))

    assert loaded(both.payroll).scan("id > 10").to_arrow()["ssn"].to_pylist() == ["SSN-0013", *SEEN]
    assert own_keys(loaded(both.payroll)) == before, "this table has keys for its columns"


@pytest.mark.parametrize("otherwise", ["another table", "none"])
def test_a_key_does_not_open_as_that_of_another_table(both: Clients, otherwise: str) -> None:
    secret = protected_table(both.payroll, "db.hr", appends=[persons(1, 2, 3)])
    people = protected_table(both.payroll, appends=[persons(11, 12)], **SHOWN)

    def edited(entry: EncryptedKey) -> EncryptedKey:
        kept = {name: value for name, value in (entry.properties or {}).items() if name != OF_TABLE}
        named = {OF_TABLE: str(people.metadata.table_uuid)} if otherwise == "another table" else {}
        return entry.model_copy(update={"properties": kept | named}) if entry.is_column_key else entry

    bring(both, "db.hr", map(edited, own_keys(secret)))

    with pytest.raises(AuthenticationError, match="does not open under column KEK"):
        m.compact(loaded(both.payroll), rewrite_all=True)


def test_nothing_is_written_behind_the_mask_where_the_keys_of_this_table_were_removed(both: Clients, brought: EncryptedTable) -> None:
    remove_own_keys(both)

    for write in ("compact", "reencrypt", "reencrypt what is out of line"):
        with pytest.raises(KeyIdChangedError, match="no declaration"):
            WRITES[write](loaded(both.payroll))

    assert seen(both) == {None, *SEEN}


def test_keys_of_two_other_tables_are_taken_over_by_no_declaration(both: Clients, brought: EncryptedTable) -> None:
    third = protected_table(both.payroll, "db.third", appends=[persons(21)])
    bring(both, "db.third", own_keys(third))
    remove_own_keys(both)

    with pytest.raises(KeyIdChangedError, match="made for the tables"):
        declare(loaded(both.payroll), ssn="truncate(64)")


def test_a_hash_is_not_made_with_the_mask_key_of_another_table(both: Clients) -> None:
    hashed = {"encryption.column-mask.ssn": "hash"}
    secret = protected_table(both.payroll, "db.hr", appends=[persons(1)], **hashed)
    protected_table(both.payroll, **hashed)
    bring(both, "db.hr", own_keys(secret))

    loaded(both.payroll).append(persons(1))

    [there] = loaded(both.analyst, "db.hr").scan().to_arrow()["ssn"].to_pylist()
    assert len(seen(both)) == 2
    assert there in seen(both)


def copied(both: Clients, table: EncryptedTable, tmp_path: Path, who: str) -> EncryptedTable:
    m.relocate(loaded(getattr(both, who), table.name()), f"file://{tmp_path}/copy", register_as="db.copy")
    return loaded(both.payroll, "db.copy")


def ssn(table: EncryptedTable) -> list[Any]:
    return sorted(cast("pa.Table", table.refresh().scan().to_arrow())["ssn"].to_pylist())


def test_a_copy_by_who_holds_the_keys_has_its_own(both: Clients, tmp_path: Path) -> None:
    copy = copied(both, protected_table(both.payroll, appends=[persons(11)], **SHOWN), tmp_path, "payroll")

    copy.append(persons(12))

    assert ssn(copy) == SEEN
    assert {entry.made_for for entry in metadata_of(copy).key_ring.column_keys} == {str(copy.metadata.table_uuid)}
    m.compact(copy.refresh(), rewrite_all=True)
    assert ssn(loaded(both.analyst, "db.copy")) == SEEN


def test_a_copy_does_not_make_keys_of_another_table_its_own(both: Clients, brought: EncryptedTable, tmp_path: Path) -> None:
    copied(both, brought, tmp_path, "payroll")

    for operation in WRITES:
        with pytest.raises(TamperedFileError, match="was made for the table"):
            WRITES[operation](loaded(both.payroll, "db.copy"))

    assert set(loaded(both.analyst, "db.copy").scan().to_arrow()["ssn"].to_pylist()) == {None, *SEEN}


def test_a_copy_by_somebody_else_keeps_the_keys_until_who_holds_them_declares_the_column(both: Clients, tmp_path: Path) -> None:
    source = protected_table(both.payroll, appends=[persons(11)])
    copy = copied(both, source, tmp_path, "analyst")
    copy.append(persons(12))
    assert ssn(copy) == SEEN
    kept = {entry.key_id: entry.made_for for entry in metadata_of(source).key_ring.column_keys}
    assert kept.items() <= {entry.key_id: entry.made_for for entry in metadata_of(copy).key_ring.column_keys}.items()

    declare(copy.refresh(), ssn="truncate(64)")

    assert ssn(copy) == SEEN
    of_column = [entry for entry in metadata_of(copy).key_ring.column_keys if entry.field_id == SSN]
    assert {entry.made_for for entry in of_column} == {str(copy.metadata.table_uuid)}
    assert kept.keys() & {entry.key_id for entry in of_column}
