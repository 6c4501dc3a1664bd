"""Column keys through everything that changes encryption-keys: kept where others go, rotated, wrapped again, destroyed for one column."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.update import TableUpdate

from tablecrypt import maintenance as m
from tablecrypt.errors import ColumnKeyDeniedError, ConfigurationError, KeyNotFoundError
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.updates import AddEncryptionKeyUpdate
from tests.support.interrupted_catalog import InterruptedCatalog, at_commits, once
from tests.support.protected_tables import (
    COLUMN_KEY,
    EMAIL,
    OTHER_COLUMN_KEY,
    PEOPLE_SCHEMA,
    SALARY,
    SSN,
    Clients,
    StoredKey,
    clients,
    commit_column_keys,
    declare,
    loaded,
    protected_table,
)
from tests.support.tables import metadata_of

DECLARED = f"{COLUMN_KEY}: ssn, person.email; {OTHER_COLUMN_KEY}: salary"


@pytest.fixture
def both(tmp_path: Path) -> Clients:
    return clients(tmp_path, catalog_class=InterruptedCatalog)


@pytest.fixture
def table(both: Clients) -> EncryptedTable:
    """One with a history from before its columns were protected."""
    made = both.payroll.create_table("db.people", PEOPLE_SCHEMA, properties={"encryption.key-id": "orders"})
    for number in range(3):
        made.append(pa.table({"id": [number], "ssn": [str(number)]}))
    declare(made, DECLARED)
    return cast("EncryptedTable", made)


@pytest.fixture
def stored(table: EncryptedTable) -> list[StoredKey]:
    """The keys of all three columns, in two files."""
    return [*commit_column_keys(table, SSN, EMAIL, SALARY), *commit_column_keys(table, SSN, EMAIL, SALARY)]


def refreshed(table: EncryptedTable) -> EncryptedTableMetadata:
    table.refresh()
    return metadata_of(table)


def column_entries(table: EncryptedTable) -> list[str]:
    ring = refreshed(table).key_ring
    return [entry.key_id for entry in (*ring.column_keks, *ring.column_keys)]


def expire(table: EncryptedTable) -> None:
    table.maintenance.expire_snapshots().older_than(dt.datetime(2100, 1, 1)).commit()


OPERATIONS: dict[str, Callable[[EncryptedTable], object]] = {
    "expire_snapshots": expire,
    "prune_keys": m.prune_keys,
    "rotate_kek": m.rotate_kek,
    "rewrap": m.rewrap,
    "rescue": m.rescue,
    "shred": lambda table: m.shred(table, [table.snapshots()[0].snapshot_id]),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("who", ["payroll", "analyst"])
def test_column_keys_survive_what_removes_other_keys_and_nobody_needs_the_right_to_them(
    both: Clients, table: EncryptedTable, stored: list[StoredKey], operation: str, who: str
) -> None:
    before = column_entries(table)
    keys = [each.opens(table) for each in stored]
    OPERATIONS[operation](loaded(getattr(both, who), table.name()))
    assert column_entries(table) == before
    assert [each.opens(table) for each in stored] == keys


def test_two_files_share_a_column_key_and_no_dek(table: EncryptedTable, stored: list[StoredKey]) -> None:
    ring = metadata_of(table).key_ring
    assert sorted(str(kek.encrypted_by_id) for kek in ring.column_keks) == [OTHER_COLUMN_KEY, COLUMN_KEY]
    assert sorted(key.field_id for key in ring.column_keys) == [SSN, SALARY, EMAIL]
    assert len({each.opens(table) for each in stored}) == len(stored)


def test_rotation_exchanges_the_keks_and_files_stay_as_they_are(both: Clients, table: EncryptedTable, stored: list[StoredKey]) -> None:
    keys, before = [each.opens(table) for each in stored], refreshed(table).key_ring
    foretold = m.rotate_column_keks(table, dry_run=True)
    done = m.rotate_column_keks(table)
    after = metadata_of(table).key_ring
    assert (set(done.old_keks), done.column_keys) == (set(foretold.old_keks), 3)
    assert set(done.old_keks) == {kek.key_id for kek in before.column_keks}
    assert done.new_keks == {str(kek.encrypted_by_id): kek.key_id for kek in after.column_keks}
    assert {key.key_id for key in after.column_keys} == {key.key_id for key in before.column_keys}
    assert [each.opens(table) for each in stored] == keys
    with pytest.raises(ColumnKeyDeniedError):
        m.rotate_column_keks(both.analyst.load_table(table.name()))


def test_a_writer_that_began_before_a_rotation_commits_under_the_new_kek(table: EncryptedTable, stored: list[StoredKey]) -> None:
    m.rotate_column_keks(table)
    later = commit_column_keys(table, SSN)
    assert later[0].opens(table)
    assert len(metadata_of(table).key_ring.column_keys) == 3


def test_rewrapping_keeps_keks_and_exchanges_their_blobs(table: EncryptedTable, stored: list[StoredKey]) -> None:
    keys, before = [each.opens(table) for each in stored], refreshed(table).key_ring.column_keks
    assert m.rewrap_column_keks(table, dry_run=True).keks == m.rewrap_column_keks(table).keks
    after = metadata_of(table).key_ring.column_keks
    assert {kek.key_id for kek in after} == {kek.key_id for kek in before}
    assert {kek.encrypted_key_metadata for kek in after}.isdisjoint(kek.encrypted_key_metadata for kek in before)
    assert [each.opens(table) for each in stored] == keys


def test_a_shredded_column_opens_nowhere_and_the_others_do(table: EncryptedTable, stored: list[StoredKey], tmp_path: Path) -> None:
    others = {each: each.opens(table) for each in stored if each.field_id != SSN}
    destroyed = {key.key_id for key in refreshed(table).key_ring.column_keys if key.field_id == SSN}
    foretold = m.shred_column(table, "ssn", dry_run=True)
    done = m.shred_column(table, "ssn")
    assert done.is_complete
    assert set(done.column_keys) == set(foretold.column_keys) == destroyed
    assert done.retired_keks == foretold.retired_keks
    for each in (each for each in stored if each.field_id == SSN):
        with pytest.raises(KeyNotFoundError, match="shredded"):
            each.opens(table)
    assert {each: each.opens(table) for each in others} == others
    names = (*destroyed, *done.retired_keks)
    for path in (tmp_path / "warehouse").rglob("*.metadata.json"):
        assert not [name for name in names if name in path.read_text()], path


def test_rows_that_are_written_after_a_shredding_have_a_new_column_key(table: EncryptedTable, stored: list[StoredKey]) -> None:
    writer = loaded(table.catalog, table.name())
    done = m.shred_column(table, "ssn")
    for each in (table, writer):
        (key,) = commit_column_keys(each, SSN)
        assert key.opens(table)
    assert not set(done.column_keys) & set(column_entries(table))


def test_the_only_column_of_a_master_key_is_shredded_without_asking_the_kms(
    both: Clients, table: EncryptedTable, stored: list[StoredKey]
) -> None:
    assert m.shred_column(both.analyst.load_table(table.name()), "salary").is_complete
    with pytest.raises(KeyNotFoundError):
        next(each for each in stored if each.field_id == SALARY).opens(table)
    with pytest.raises(ColumnKeyDeniedError):
        m.shred_column(both.analyst.load_table(table.name()), "ssn")


def test_a_shredding_that_was_killed_after_its_commit_is_finished_by_the_next(
    table: EncryptedTable, stored: list[StoredKey], tmp_path: Path
) -> None:
    with at_commits(after=_killed), pytest.raises(KeyboardInterrupt):
        m.shred_column(table, "ssn")
    done = m.shred_column(table, "ssn")
    assert done.is_complete
    assert done.rewritten
    texts = [path.read_text() for path in (tmp_path / "warehouse").rglob("*.metadata.json")]
    assert not [name for name in done.retired_keks for text in texts if name in text]


def _killed() -> None:
    raise KeyboardInterrupt


def test_a_column_beside_a_shredded_one_opens_although_its_new_kek_is_used_for_both_before_the_shredding_ends(
    both: Clients, table: EncryptedTable, stored: list[StoredKey]
) -> None:
    others = {each: each.opens(table) for each in stored if each.field_id != SSN}
    writer, later = loaded(both.payroll, table.name()), list[StoredKey]()
    with at_commits(after=once(lambda: later.extend(commit_column_keys(writer, SSN)))):
        done = m.shred_column(table, "ssn")

    refreshed(table)
    assert {each: each.opens(table) for each in others} == others
    assert (done.is_complete, len(done.retired_keks)) == (True, 2)
    assert not set(done.retired_keks) & set(column_entries(table))
    with pytest.raises(KeyNotFoundError, match="shredded"):
        later[0].opens(table)


def test_column_keys_open_after_a_rotation_that_landed_and_is_planned_again(table: EncryptedTable, stored: list[StoredKey]) -> None:
    keys = [each.opens(table) for each in stored]

    def unanswered() -> None:
        raise CommitFailedException("the catalog has committed, and its answer says otherwise")

    with at_commits(after=once(unanswered)):
        done = m.rotate_column_keks(table)

    refreshed(table)
    assert [each.opens(table) for each in stored] == keys
    assert done.new_keks == {str(kek.encrypted_by_id): kek.key_id for kek in metadata_of(table).key_ring.column_keks}


def test_a_dropped_column_can_still_be_shredded(table: EncryptedTable, stored: list[StoredKey]) -> None:
    with table.update_schema() as change:
        change.delete_column("ssn")
    assert m.shred_column(table, "ssn").field_id == SSN


@pytest.mark.parametrize("column", ["id", "nothing", "person.age"])
def test_what_was_never_protected_has_no_key_to_destroy(table: EncryptedTable, column: str) -> None:
    with pytest.raises(ConfigurationError, match="is or was protected"):
        m.shred_column(table, column)


def test_a_part_of_a_protected_column_is_shredded_with_the_whole(both: Clients) -> None:
    whole = protected_table(both.payroll, "db.whole", **{"encryption.column-keys": f"{COLUMN_KEY}: person"})
    with pytest.raises(ConfigurationError, match="protected with 'person'"):
        m.shred_column(whole, "person.email")


def test_keks_without_a_column_key_are_pruned(table: EncryptedTable, stored: list[StoredKey]) -> None:
    kek = table.io.manager.columns.new_kek(COLUMN_KEY)
    transaction = table.transaction()
    transaction.apply((cast("TableUpdate", AddEncryptionKeyUpdate(key=kek)),))
    transaction.commit_transaction()
    assert m.prune_keys(table).keks == (kek.key_id,)
    assert all(each.opens(table) for each in stored)


def test_a_copy_elsewhere_keeps_its_column_keys_and_no_column_comes_under_its_master_key(
    both: Clients, table: EncryptedTable, stored: list[StoredKey], tmp_path: Path
) -> None:
    analyst = both.analyst.load_table(table.name())
    m.relocate(analyst, f"file://{tmp_path}/copy", register_as="db.copy")
    copy = loaded(both.payroll, "db.copy")
    assert [each.opens(copy) for each in stored] == [each.opens(table) for each in stored]
    for column_key in (COLUMN_KEY, OTHER_COLUMN_KEY):
        with pytest.raises(ConfigurationError, match="own master key"):
            m.relocate(table, f"file://{tmp_path}/other", key_id=column_key)


def test_a_migration_does_not_declare_columns(both: Clients, tmp_path: Path) -> None:
    plain = both.payroll.create_table("db.plain", PEOPLE_SCHEMA)
    for properties in ({"encryption.column-keys": DECLARED}, {"encryption.column.2.key-id": COLUMN_KEY}):
        with pytest.raises(ConfigurationError, match="columns are protected once a table is encrypted"):
            both.payroll.as_encrypted(plain, {"encryption.key-id": "orders", **properties})
