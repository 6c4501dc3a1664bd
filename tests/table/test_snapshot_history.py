"""Moving through a table's snapshots: time travel, rollback, references. The snapshots left behind stay readable until they expire."""

from __future__ import annotations

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tablecrypt.table.metadata import EncryptedTableMetadata
from tests.support.tables import ids, metadata_of, new_table, rows


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """A table of three snapshots, which hold the ids up to 1, 2 and 3."""
    return new_table(catalog, appends=[rows(number, 1) for number in (1, 2, 3)])


def snapshot_ids(table: Table) -> list[int]:
    return [snapshot.snapshot_id for snapshot in table.snapshots()]


def test_the_snapshot_of_a_moment_is_read(table: Table) -> None:
    for number, snapshot in enumerate(table.snapshots()[1:], start=2):
        then = table.snapshot_as_of_timestamp(snapshot.timestamp_ms)
        before = table.snapshot_as_of_timestamp(snapshot.timestamp_ms, inclusive=False)
        assert then is not None
        assert before is not None
        assert then.timestamp_ms == snapshot.timestamp_ms
        assert before.timestamp_ms < snapshot.timestamp_ms
        assert ids(table, snapshot_id=snapshot.snapshot_id) == list(range(1, number + 1))
    assert table.snapshot_as_of_timestamp(0) is None


def test_a_rollback_is_undone_by_naming_the_newer_snapshot(catalog: Catalog, table: Table) -> None:
    first, second, third = snapshot_ids(table)
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    assert ids(table) == [1]
    assert ids(catalog.load_table("db.t"), snapshot_id=third) == [1, 2, 3]
    table.manage_snapshots().set_current_snapshot(snapshot_id=second).commit()
    assert ids(table) == [1, 2]
    with pytest.raises(ValueError, match="not an ancestor"):
        table.manage_snapshots().rollback_to_snapshot(third).commit()
    table.manage_snapshots().create_tag(third, "newest").commit()
    table.manage_snapshots().set_current_snapshot(ref_name="newest").commit()
    assert ids(catalog.load_table("db.t")) == [1, 2, 3]


def test_a_rollback_to_a_moment_takes_the_snapshot_before_it(table: Table) -> None:
    third = table.snapshots()[2]
    table.manage_snapshots().rollback_to_timestamp(third.timestamp_ms).commit()
    assert ids(table) in ([1, 2], [1])
    with pytest.raises(ValueError, match="no valid snapshot older"):
        table.manage_snapshots().rollback_to_timestamp(0).commit()


def test_writing_after_a_rollback_reuses_no_row_id_and_no_sequence_number(catalog: Catalog, table: Table) -> None:
    first, *_ = snapshot_ids(table)
    given = metadata_of(table).next_row_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    table.append(rows(10, 1))
    table.delete("id = 1")
    loaded = catalog.load_table("db.t")
    assert ids(loaded) == [10]
    assert loaded.scan(selected_fields=("_row_id",)).to_arrow().column("_row_id").to_pylist() == [given]
    numbers = [snapshot.sequence_number for snapshot in loaded.snapshots()]
    assert numbers == sorted(set(numbers))  # type: ignore[type-var]
    assert [ids(loaded, snapshot_id=snapshot_id) for snapshot_id in snapshot_ids(loaded)] == [[1], [1, 2], [1, 2, 3], [1, 10], [10]]


def test_keys_of_snapshots_left_behind_stay_until_these_expire(catalog: Catalog, table: Table) -> None:
    first, second, third = snapshot_ids(table)
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    metadata = table.metadata
    assert isinstance(metadata, EncryptedTableMetadata)
    assert all(snapshot.key_id in metadata.key_ring for snapshot in metadata.snapshots)
    table.maintenance.expire_snapshots().by_ids([second, third]).commit()
    loaded = catalog.load_table("db.t")
    kept = loaded.metadata
    assert isinstance(kept, EncryptedTableMetadata)
    assert {key.key_id for key in kept.encryption_keys} == kept.key_ring.needed_by(str(each.key_id) for each in kept.snapshots)
    assert ids(loaded) == [1]


def test_a_branch_is_written_while_a_tag_stays(table: Table) -> None:
    first, *_ = snapshot_ids(table)
    table.manage_snapshots().create_branch(first, "audit").create_tag(first, "start").commit()
    table.append(rows(20, 1), branch="audit")
    table.delete("id = 1", branch="audit")
    assert ids(table) == [1, 2, 3]
    assert sorted(table.scan().use_ref("audit").to_arrow().column("id").to_pylist()) == [20]
    assert table.scan().use_ref("start").to_arrow().column("id").to_pylist() == [1]
    table.manage_snapshots().remove_branch("audit").remove_tag("start").commit()
    assert sorted(table.refs()) == ["main"]
