"""prune_keys: what no snapshot needs goes, what one needs or is about to need stays."""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.update import RemoveSnapshotsUpdate

from tablecrypt.maintenance import prune_keys, rotate_kek
from tablecrypt.table.updates import added_keys
from tests.support.tables import keks, manifest_list_keys, metadata_of, state


def expire_as_java(table: Table, count: int) -> list[str]:
    """Remove the oldest snapshots and leave their keys, as Iceberg Java does; return the ids of those keys."""
    gone = metadata_of(table).snapshots[:count]
    transaction = table.transaction()
    transaction.apply((RemoveSnapshotsUpdate(snapshot_ids=[each.snapshot_id for each in gone]),))  # type: ignore[attr-defined]
    transaction.commit_transaction()
    return [str(each.key_id) for each in gone]


def test_keys_of_expired_snapshots_go_and_the_others_stay(table: Table) -> None:
    before = state(table)
    gone = expire_as_java(table, 2)
    kept = {snapshot_id: found for snapshot_id, found in before.items() if table.snapshot_by_id(snapshot_id)}
    assert set(gone) <= manifest_list_keys(table).keys()

    result = prune_keys(table)

    assert result.manifest_list_keys == tuple(gone)
    assert (result.keks, result.kept) == ((), 3)
    assert not set(gone) & manifest_list_keys(table).keys()
    assert state(table) == kept


def test_a_kek_goes_with_the_last_key_that_it_wraps_and_not_before(table: Table) -> None:
    (old,) = keks(table)
    old_keys = list(manifest_list_keys(table).values())
    rotate_kek(table)
    transaction = table.transaction()
    orphan = old_keys[0].model_copy(update={"key_id": "b3JwaGFuZWQga2V5IGlkIQ=="})
    transaction.apply(added_keys([old, orphan]))  # type: ignore[attr-defined]
    transaction.commit_transaction()
    assert len(keks(table)) == 2

    result = prune_keys(table)

    assert (result.keks, result.manifest_list_keys) == ((old.key_id,), (orphan.key_id,))
    assert old not in keks(table)
    assert len(state(table)) == 4


def test_a_second_run_finds_nothing_and_commits_nothing(table: Table) -> None:
    expire_as_java(table, 1)
    prune_keys(table)
    location = table.metadata_location

    again = prune_keys(table)

    assert (again.keks, again.manifest_list_keys) == ((), ())
    assert table.refresh().metadata_location == location


def test_a_dry_run_changes_nothing(table: Table) -> None:
    gone = expire_as_java(table, 2)
    location = table.metadata_location

    result = prune_keys(table, dry_run=True)

    assert (result.dry_run, result.manifest_list_keys) == (True, tuple(gone))
    assert table.refresh().metadata_location == location


def test_the_kms_is_not_asked(table: Table) -> None:
    expire_as_java(table, 2)
    kms = table.io.manager.kms  # type: ignore[attr-defined]
    before = kms.calls

    prune_keys(table)

    assert kms.calls == before
