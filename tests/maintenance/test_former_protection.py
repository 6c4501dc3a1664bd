"""What a table remembers of protection that was ended or moved to another master key: as long as a file needs it, and no longer.

The careless user ends a protection and wants no trace of it; a colleague writes meanwhile, or keeps an old snapshot by a tag.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.exceptions import ValidationException

from tablecrypt import maintenance as m
from tablecrypt.errors import ConfigurationError
from tablecrypt.table.metadata import has_column_keys
from tablecrypt.table.table import EncryptedTable
from tests.support.protected_tables import COLUMN_KEY, OTHER_COLUMN_KEY, SSN, Clients, declare, loaded, protected_table
from tests.support.tables import metadata_of

FORMER = f"encryption.column.{SSN}.former-key-id"


@pytest.fixture
def people(both: Clients) -> EncryptedTable:
    table = protected_table(both.payroll, **{"encryption.column-keys": "pii: ssn, note", "encryption.column-mask.ssn": "hash"})
    table.append(rows(1, 2))
    return table


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": list(numbers), "ssn": [f"SSN-{each}" for each in numbers], "note": [f"note {each}" for each in numbers]})


def ssn(table: EncryptedTable) -> list[str]:
    return sorted(table.refresh().scan(selected_fields=("ssn",)).to_arrow()["ssn"].to_pylist())


def shred_older(table: EncryptedTable) -> None:
    table.refresh()
    m.shred(table, [each.snapshot_id for each in table.snapshots() if each.snapshot_id != table.metadata.current_snapshot_id])


def test_an_ended_protection_is_forgotten_with_its_keys_once_no_snapshot_needs_it(both: Clients, people: EncryptedTable) -> None:
    declare(people, "")
    m.reencrypt(people)
    m.reencrypt(people)
    assert people.refresh().properties[FORMER] == COLUMN_KEY, "time travel still leads to the hidden column"
    shred_older(people)
    m.reencrypt(loaded(both.analyst))
    assert not [name for name in people.refresh().properties if name.startswith("encryption.column.")]
    assert not has_column_keys(people.metadata)
    people.append(rows(3))
    assert ssn(loaded(both.analyst)) == ["SSN-1", "SSN-2", "SSN-3"]


def test_the_keys_of_columns_that_are_still_protected_stay(both: Clients, people: EncryptedTable) -> None:
    declare(people, "pii: note")
    m.reencrypt(people)
    shred_older(people)
    m.reencrypt(people)
    ring = metadata_of(people.refresh()).key_ring
    assert FORMER not in people.properties
    assert {entry.field_id for entry in ring.column_keys} == {people.schema().find_field("note").field_id}
    assert len(ring.column_keks) == 1
    assert people.scan().to_arrow().sort_by("id").select(["ssn", "note"]).to_pylist() == rows(1, 2).select(["ssn", "note"]).to_pylist()


def test_another_master_key_takes_the_place_of_the_former_and_a_third_may_follow(both: Clients, people: EncryptedTable) -> None:
    declare(people, "fin: ssn")
    with pytest.raises(ConfigurationError, match="a third is one too many"):
        declare(people, "third: ssn")
    m.reencrypt(people)
    shred_older(people)
    m.reencrypt(people)
    ring = metadata_of(people.refresh()).key_ring
    assert {kek.encrypted_by_id for kek in ring.column_keks} == {OTHER_COLUMN_KEY}
    assert ssn(people) == ["SSN-1", "SSN-2"]
    declare(people, f"{COLUMN_KEY}: ssn")
    assert people.refresh().properties[FORMER] == OTHER_COLUMN_KEY


def test_declarations_under_column_keys_that_are_gone_are_pruned_and_reported(people: EncryptedTable) -> None:
    declare(people, "fin: ssn")
    m.reencrypt(people)
    shred_older(people)
    m.reencrypt(people)
    ring = metadata_of(people.refresh()).key_ring
    there = {key.key_id for key in ring.column_keys}
    orphans = {each.key_id for each in ring.column_declarations if each.encrypted_by_id not in there}

    for dry_run in (True, False):
        pruned = m.prune_keys(people, dry_run=dry_run)
        assert (pruned.keks, pruned.manifest_list_keys, set(pruned.declarations)) == ((), (), orphans)
        assert pruned.removed == len(orphans) == 2
        assert pruned.summary().startswith(f"{'Would remove' if dry_run else 'Removed'} 2 keys of db.people")
    assert m.prune_keys(people).removed == 0
    assert ssn(people) == ["SSN-1", "SSN-2"]


def test_a_tag_on_an_old_snapshot_keeps_the_keys_of_its_files(people: EncryptedTable) -> None:
    people.manage_snapshots().create_tag(people.metadata.current_snapshot_id or 0, "audit").commit()
    declare(people, "")
    m.reencrypt(people)
    people.refresh().maintenance.expire_snapshots().by_ids([]).commit()
    m.reencrypt(people)
    assert people.refresh().properties[FORMER] == COLUMN_KEY
    tagged = people.scan(snapshot_id=people.snapshots()[0].snapshot_id, selected_fields=("ssn",)).to_arrow()
    assert sorted(tagged["ssn"].to_pylist()) == ["SSN-1", "SSN-2"]


def test_nobody_removes_it_by_hand(people: EncryptedTable) -> None:
    declare(people, "")
    with pytest.raises(ConfigurationError, match="reencrypt removes it once no snapshot has such a file"):
        people.transaction().remove_properties(FORMER)


def test_a_colleague_who_began_to_write_before_it_was_forgotten_writes_again(both: Clients, people: EncryptedTable) -> None:
    slow = loaded(both.payroll).transaction()
    slow.append(rows(9))
    declare(people, "")
    m.reencrypt(people)
    shred_older(people)
    m.reencrypt(people)
    with pytest.raises(ValidationException, match="Cannot find starting snapshot"):
        slow.commit_transaction()
    assert ssn(people) == ["SSN-1", "SSN-2"]
