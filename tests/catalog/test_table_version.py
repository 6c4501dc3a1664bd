"""What a pin keeps of one version of a table's metadata."""

from __future__ import annotations

import hashlib
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import RemovePropertiesUpdate, RemoveSnapshotRefUpdate, SetPropertiesUpdate, SetSnapshotRefUpdate

from tablecrypt.errors import FormatError, MetadataRollbackError
from tablecrypt.keys.column_keys import ColumnMask
from tablecrypt_catalog.pins.protected_columns import PinnedColumn
from tablecrypt_catalog.pins.record import Head, Moves, TableVersion, is_ahead, moved_refs, moves_of, refuse_overtaken, table_version
from tests.support.bare_metadata import LOCATION, MASTER, TABLE_UUID, fields, kek, list_key, parsed, snapshot

FILE = f"{LOCATION}/metadata/00002-a.metadata.json"
KEYS = [kek("k1", 100, b"first"), kek("k2", 200, b"second"), list_key("l1", "k1"), list_key("l2", "k2")]
SNAPSHOTS = [snapshot(1, "l1"), snapshot(2, "l2")]


def mark(wrapped: bytes) -> str:
    return hashlib.sha256(wrapped).hexdigest()[:32]


def seen(snapshots: list[dict[str, Any]] | None = None, keys: list[dict[str, Any]] | None = None, **properties: str) -> TableVersion:
    raw = fields(SNAPSHOTS if snapshots is None else snapshots, KEYS if keys is None else keys, **properties)
    return table_version(parsed(raw), FILE, "hash")


def plain(**properties: str) -> TableMetadata:
    table_uuid = UUID(TABLE_UUID)
    return new_table_metadata(Schema(), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, LOCATION, properties, table_uuid)


def test_every_field_of_a_version_is_that_of_the_metadata() -> None:
    protected = {"encryption.column.2.key-id": "alias/pii", "encryption.column.2.mask": "hash", "encryption.column.2.since": "1"}
    found = seen(None, None, **{"write.data.path": "s3://data/t", "encryption.data-key-length": "32"}, **protected)
    assert found == TableVersion(
        table_uuid=TABLE_UUID,
        table_key_id=MASTER,
        data_key_length=32,
        metadata_location=FILE,
        metadata_hash="hash",
        last_sequence_number=2,
        kek_hashes=frozenset({mark(b"first"), mark(b"second")}),
        heads={"main": Head(12, 2)},
        retired_keks=frozenset({mark(b"first"), "id:k1"}),
        folders=(LOCATION, "s3://data/t"),
        columns={2: PinnedColumn(2, "alias/pii", ColumnMask("hash"), 1, frozenset())},
    )
    assert found.wrapping_keks == {mark(b"second"), "id:k2"}
    assert found.uses == {mark(b"first"): ("k1", 1), mark(b"second"): ("k2", 2)}


def test_properties_of_columns_that_cannot_be_read_protect_none() -> None:
    assert seen(None, None, **{"encryption.column.2.mask": "hash"}).columns == {}


def test_a_kek_that_no_snapshot_needs_neither_wraps_nor_retires_another() -> None:
    """Whoever edits metadata.json can add an entry of any date."""
    found = seen(keys=[*KEYS, kek("k3", 900, b"third")])
    assert mark(b"third") in found.kek_hashes
    assert found.wrapping_keks == {mark(b"second"), "id:k2"}
    assert found.retired_keks == {mark(b"first"), "id:k1"}


def test_a_kek_under_another_master_key_neither_wraps_nor_retires_another() -> None:
    keys = [*KEYS, kek("k3", 900, b"third", by="alias/people"), list_key("l3", "k3")]
    found = seen([*SNAPSHOTS, snapshot(3, "l3")], keys)
    assert mark(b"third") in found.kek_hashes
    assert found.wrapping_keks == {mark(b"second"), "id:k2"}


def test_keks_of_one_age_wrap_both() -> None:
    found = seen(keys=[kek("k1", 200, b"first"), *KEYS[1:]])
    assert found.wrapping_keks == {mark(b"first"), "id:k1", mark(b"second"), "id:k2"}
    assert found.retired_keks == frozenset()


def test_a_kek_of_the_year_1970_wraps() -> None:
    found = seen([snapshot(1, "l1")], [kek("k1", 0, b"first"), list_key("l1", "k1")])
    assert found.wrapping_keks == {mark(b"first"), "id:k1"}


def test_a_kek_is_used_up_to_its_newest_snapshot_whatever_their_order() -> None:
    keys = [kek("k1", 100, b"first"), *(list_key(f"l{number}", "k1") for number in (1, 2, 3))]
    found = seen([snapshot(3, "l3"), snapshot(1, "l1"), snapshot(2, "l2")], keys)
    assert found.uses == {mark(b"first"): ("k1", 3)}


def test_a_table_without_keys_and_snapshots_has_no_marks() -> None:
    found = seen([], [])
    assert (found.kek_hashes, found.retired_keks, found.wrapping_keks, found.heads) == (frozenset(), frozenset(), frozenset(), {})
    without = seen([snapshot(1, None), snapshot(2, "l2")])
    assert without.wrapping_keks == {mark(b"second"), "id:k2"}
    assert without.retired_keks == frozenset()


def test_the_heads_of_branches_and_tags_have_the_numbers_of_their_snapshots() -> None:
    raw = fields(SNAPSHOTS, KEYS)
    raw["refs"]["v1"] = {"snapshot-id": 11, "type": "tag"}
    del raw["snapshots"][0]["sequence-number"]
    assert table_version(parsed(raw), FILE, None).heads == {"main": Head(12, 2), "v1": Head(11, 0)}


def test_a_branch_that_points_to_no_snapshot_is_an_error_that_names_both() -> None:
    raw = fields(SNAPSHOTS, KEYS)
    raw["refs"]["side"] = {"snapshot-id": 99, "type": "branch"}
    with pytest.raises(FormatError) as refused:
        table_version(parsed(raw), FILE, None)
    assert str(refused.value) == f"{FILE}: side points to snapshot 99, which is not there"


def test_of_a_plaintext_table_only_its_names_are_kept() -> None:
    found = table_version(plain(), FILE, None)
    assert found == TableVersion(TABLE_UUID, None, 16, FILE, None, 0, folders=(LOCATION,))
    # Versions of before 3 hold no keys, but may claim a key-id; version 1 counts no commits.
    assert table_version(plain(**{"encryption.key-id": MASTER}), FILE, None).table_key_id == MASTER
    first = TableMetadataV1(
        location=LOCATION, last_column_id=0, schema=Schema(), partition_spec=[], **{"table-uuid": TABLE_UUID, "last-updated-ms": 0}
    )
    assert table_version(first, FILE, None).last_sequence_number == 0


@pytest.mark.parametrize(
    ("stated", "length"), [("16", 16), ("24", 24), ("999999999", 999999999), ("1234567890", 0), ("-1", 0), ("x", 0), ("", 0)]
)
def test_a_data_key_length_that_is_no_number_counts_as_none(stated: str, length: int) -> None:
    assert seen(None, None, **{"encryption.data-key-length": stated}).data_key_length == length


def test_the_branches_and_tags_that_a_commit_sets_and_removes_are_moved() -> None:
    updates = [
        SetSnapshotRefUpdate(**{"ref-name": "main", "type": "branch", "snapshot-id": 1}),
        RemoveSnapshotRefUpdate(**{"ref-name": "v1"}),
        SetPropertiesUpdate(updates={"owner": "me"}),
        RemovePropertiesUpdate(removals=["owner"]),
    ]
    assert moved_refs(updates) == {"main", "v1"}
    assert moves_of(iter(updates)) == Moves(frozenset({"main", "v1"}))


def test_a_table_that_another_name_knew_newer_is_refused_with_both_names() -> None:
    def at(number: int, table_uuid: str = "uuid-1") -> TableVersion:
        return TableVersion(table_uuid, MASTER, 16, FILE, None, number)

    assert is_ahead(at(6), at(5))
    assert not is_ahead(at(5), at(5))
    assert not is_ahead(at(6, "uuid-2"), at(5))
    refuse_overtaken("b.t", at(5), {"a.t": at(5), "a.u": at(9, "uuid-2")})
    with pytest.raises(MetadataRollbackError, match=r"^b\.t is at sequence number 5, but the same table was seen at 6 as a\.u: "):
        refuse_overtaken("b.t", at(5), {"a.t": at(5), "a.u": at(6)})
