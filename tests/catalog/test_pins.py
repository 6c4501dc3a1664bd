"""The rules of the pins: what may follow what was seen of a table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.update import RemovePropertiesUpdate, SetLocationUpdate, SetPropertiesUpdate

from tablecrypt.errors import KeyIdChangedError, MetadataRollbackError, TablecryptError, TamperedFileError
from tablecrypt.files.deletion import DeletionScope
from tablecrypt_catalog.pins.record import MOST_VANISHED_REFS, Head, Moves, TableVersion, TrustedTable, creation, moves_of


def location(version: int, attempt: str = "a") -> str:
    return f"s3://bucket/db/t/metadata/{version:05d}-{attempt}.metadata.json"


PIN = TableVersion("uuid-1", "alias/orders", 24, location(7), "hash-7", 5, frozenset({"kek-1"}))
NEXT = replace(PIN, metadata_location=location(8), metadata_hash="hash-8", last_sequence_number=6)


def verified(pin: TableVersion | None, seen: TableVersion) -> TableVersion | None:
    return TrustedTable("db.t", pin).verify_update(seen)


def test_an_unknown_encrypted_table_is_trusted_on_first_use() -> None:
    assert verified(None, PIN) == PIN


def test_an_unknown_plaintext_table_is_not_pinned() -> None:
    assert verified(None, replace(PIN, table_key_id=None)) is None


def test_a_later_version_becomes_the_pin() -> None:
    assert verified(PIN, NEXT) == NEXT


def test_the_same_version_seen_again_leaves_the_pin_as_it_is() -> None:
    assert verified(PIN, PIN) == PIN
    assert verified(PIN, replace(PIN, metadata_hash=None)) == PIN


def test_a_hash_that_was_not_known_is_added() -> None:
    assert verified(replace(PIN, metadata_hash=None), PIN) == PIN


def test_another_key_id_is_refused_whatever_else_is_new() -> None:
    for seen in (PIN, NEXT, replace(NEXT, table_uuid="uuid-2", kek_hashes=frozenset())):
        with pytest.raises(KeyIdChangedError, match="alias/other"):
            verified(PIN, replace(seen, table_key_id="alias/other"))


def test_a_plaintext_table_in_place_of_an_encrypted_one_is_refused() -> None:
    for seen in (NEXT, replace(NEXT, table_uuid="uuid-2")):
        with pytest.raises(KeyIdChangedError, match="forget_pin"):
            verified(PIN, replace(seen, table_key_id=None))


def test_a_kek_that_a_rotation_took_out_wraps_nothing_again() -> None:
    """No version that was seen held both KEKs, so that none says which one was replaced."""
    rotated = replace(NEXT, kek_hashes=frozenset({"kek-2"}), wrapping_keks=frozenset({"kek-2"}))
    pin = verified(PIN, rotated)
    back = replace(NEXT, metadata_location=location(9), kek_hashes=PIN.kek_hashes, wrapping_keks=frozenset({"kek-1"}))
    with pytest.raises(TamperedFileError, match="had replaced") as refused:
        verified(pin, back)
    assert refused.value.location == back.metadata_location


def _rotated_and_back(newest_under_it: int) -> tuple[TableVersion | None, TableVersion]:
    """A pin that has seen a rotation, and a later version in which the KEK that it took out has snapshots again."""
    rotated = replace(NEXT, kek_hashes=frozenset({"kek-2"}), wrapping_keks=frozenset({"kek-2"}), uses={"kek-2": ("2", 6)})
    back = replace(rotated, metadata_location=location(9), kek_hashes=frozenset({"kek-1", "kek-2"}), last_sequence_number=7)
    return verified(PIN, rotated), replace(back, uses={"kek-2": ("2", 6), "kek-1": ("1", newest_under_it)})


def test_no_new_snapshot_is_under_a_kek_that_a_rotation_took_out() -> None:
    pin, back = _rotated_and_back(7)
    with pytest.raises(TamperedFileError, match=r"sequence number 7 is under KEK 1, which a rotation took out.*accept_rollback"):
        verified(pin, back)


def test_older_snapshots_under_a_kek_that_a_rotation_took_out_may_be_rescued() -> None:
    pin, back = _rotated_and_back(6)
    assert verified(pin, back) is not None


def test_a_kek_that_was_beside_a_newer_one_may_wrap_what_follows_its_own_snapshots() -> None:
    """The first commit of another branch makes a KEK of its own."""
    both = replace(NEXT, kek_hashes=frozenset({"kek-1", "kek-2"}), wrapping_keks=frozenset({"kek-2", "id:2"}))
    pin = verified(PIN, replace(both, retired_keks=frozenset({"kek-1", "id:1"}), uses={"kek-1": ("1", 5), "kek-2": ("2", 6)}))
    later = replace(both, metadata_location=location(9), last_sequence_number=7, uses={"kek-1": ("1", 7), "kek-2": ("2", 6)})
    assert verified(pin, later) is not None


def test_a_kek_that_was_lost_may_come_back() -> None:
    pin = verified(PIN, replace(NEXT, kek_hashes=frozenset()))
    rescued = replace(NEXT, metadata_location=location(9), kek_hashes=PIN.kek_hashes, wrapping_keks=frozenset({"kek-1"}))
    assert verified(pin, rescued) == rescued


def test_a_table_created_anew_starts_with_a_new_pin() -> None:
    anew = TableVersion("uuid-2", "alias/orders", 16, location(0, "b"), "hash", 0)
    assert verified(PIN, anew) == anew


def test_another_table_that_is_known_by_its_own_name_is_refused() -> None:
    with pytest.raises(TamperedFileError, match=r"for db\.t, but it is the metadata of db\.other"):
        TrustedTable("db.t", PIN).verify_update(replace(PIN, table_uuid="uuid-2", kek_hashes=frozenset()), pinned_as="db.other")
    assert TrustedTable("db.t", None).verify_update(PIN, pinned_as="db.other") == PIN


def test_a_pinned_table_under_another_uuid_is_refused() -> None:
    with pytest.raises(TamperedFileError, match="uuid-2"):
        verified(PIN, replace(PIN, table_uuid="uuid-2", metadata_location=location(1, "b"), last_sequence_number=1))


def test_keks_of_former_versions_still_show_the_pinned_table() -> None:
    rotated = verified(PIN, replace(NEXT, kek_hashes=frozenset({"kek-2"})))
    assert rotated is not None
    assert rotated.kek_hashes == {"kek-1", "kek-2"}
    with pytest.raises(TamperedFileError):
        verified(rotated, replace(PIN, table_uuid="uuid-2"))


def test_a_shorter_data_key_is_refused_and_a_longer_one_is_not() -> None:
    with pytest.raises(KeyIdChangedError, match="data-key-length"):
        verified(PIN, replace(NEXT, data_key_length=16))
    assert verified(PIN, replace(NEXT, data_key_length=32)) == replace(NEXT, data_key_length=32)


def test_an_edit_in_place_is_refused() -> None:
    with pytest.raises(TamperedFileError, match="edited") as refused:
        verified(PIN, replace(PIN, metadata_hash="another"))
    assert refused.value.location == PIN.metadata_location


def test_a_smaller_sequence_number_is_a_rollback() -> None:
    for version in (6, 8):
        with pytest.raises(MetadataRollbackError, match="last-sequence-number"):
            verified(PIN, replace(PIN, metadata_location=location(version), last_sequence_number=4))


def test_an_older_version_is_a_rollback_also_with_the_same_sequence_number() -> None:
    for older in (location(6), location(7, "abandoned attempt"), location(0)):
        with pytest.raises(MetadataRollbackError, match="does not follow"):
            verified(PIN, replace(PIN, metadata_location=older))


LYING = replace(PIN, folders=("s3://bucket/db/t", "s3://bucket/data"))
SET = Moves(write_paths=frozenset({"s3://another-bucket"}))


def test_a_table_that_lies_elsewhere_is_refused_until_it_is_accepted() -> None:
    elsewhere = replace(NEXT, folders=("s3://bucket/db/other",))
    with pytest.raises(TamperedFileError, match="is at s3://bucket/db/other now, but was at s3://bucket/db/t when") as refused:
        verified(LYING, elsewhere)
    assert refused.value.location == elsewhere.metadata_location
    with pytest.raises(TamperedFileError, match="is at"):
        TrustedTable("db.t", LYING).verify_update(elsewhere, moved=Moves(frozenset({"main"})))
    assert TrustedTable("db.t", LYING).accept_rollback(elsewhere) == elsewhere
    assert TrustedTable("db.t", LYING).verify_update(elsewhere, moved=Moves(location=True, write_paths=frozenset())) == elsewhere


def test_folders_that_others_add_are_not_the_tables_until_they_are_accepted() -> None:
    added = replace(NEXT, folders=("s3://bucket/db/t/", "s3://another-bucket"))
    assert verified(LYING, added) == replace(added, folders=LYING.folders)
    assert TrustedTable("db.t", LYING).accept_rollback(added) == added
    assert TrustedTable("db.t", LYING).verify_update(added, moved=replace(SET, location=True)) == added
    assert folders_after(added, SET) == ("s3://bucket/db/t", "s3://another-bucket")


def test_a_folder_that_this_client_sets_brings_none_of_those_that_others_added() -> None:
    added = replace(NEXT, folders=("s3://bucket/db/t", "s3://payroll", "s3://bucket/data", "s3://another-bucket"))
    assert folders_after(added, SET) == ("s3://bucket/db/t", "s3://bucket/data", "s3://another-bucket")
    assert folders_after(added, Moves(write_paths=frozenset())) == ("s3://bucket/db/t", "s3://bucket/data")
    made = TrustedTable("db.t", None).verify_update(added, moved=creation({"write.data.path": "s3://another-bucket"}))
    assert made is not None
    assert made.folders == ("s3://bucket/db/t", "s3://another-bucket"), "a server may add a property to a table that it makes"


def folders_after(seen: TableVersion, moved: Moves) -> tuple[str, ...]:
    after = TrustedTable("db.t", LYING).verify_update(seen, moved=moved)
    assert after is not None
    return after.folders


NOWHERE = replace(PIN, metadata_location="")
"""A pin of before, which knows no folders."""


@pytest.mark.parametrize("pin", [None, NOWHERE], ids=["no pin", "a pin of before"])
def test_of_the_folders_that_are_seen_first_only_a_location_that_the_catalog_confirms_counts(pin: TableVersion | None) -> None:
    found = verified(pin, LYING)
    assert found is not None
    assert found.folders == ("s3://bucket/db/t",)
    unconfirmed = verified(pin, replace(LYING, metadata_location="s3://bucket/db/u/metadata/00007-x.metadata.json"))
    assert unconfirmed is not None
    assert unconfirmed.folders == ("s3://bucket/db/t?",)
    assert unconfirmed.location == "s3://bucket/db/t"
    assert DeletionScope(unconfirmed.folders).reason_against("s3://bucket/db/t/data/x.parquet") is not None


def test_an_unconfirmed_location_is_held_and_no_later_version_confirms_it() -> None:
    pin, elsewhere = replace(NOWHERE, folders=("s3://bucket/db/t?",)), replace(NEXT, metadata_location="s3://m/00009-x.metadata.json")
    with pytest.raises(TamperedFileError, match="is at"):
        verified(pin, replace(NEXT, folders=("s3://bucket/db/u",)))
    still = verified(pin, replace(elsewhere, folders=("s3://bucket/db/t",)))
    assert still is not None
    assert still.folders == pin.folders
    # Commits write to where the metadata before them said, which somebody may have edited.
    committed = verified(pin, replace(NEXT, folders=("s3://bucket/db/t",)))
    assert committed is not None
    assert committed.folders == pin.folders
    setting = Moves(write_paths=frozenset({"s3://w"}))
    own = TrustedTable("db.t", pin).verify_update(replace(elsewhere, folders=("s3://bucket/db/t", "s3://w")), moved=setting)
    assert own is not None
    assert own.folders == ("s3://bucket/db/t?", "s3://w"), "this client has set the path, and not the location"


def test_what_this_client_makes_lies_where_it_asked_for() -> None:
    assert TrustedTable("db.t", None).verify_update(LYING, moved=creation({"write.data.path": "s3://bucket/data"})) == LYING
    assert verified(LYING, replace(PIN, folders=())) == LYING


UPDATES = {
    "location": (SetLocationUpdate(location="s3://b/t"), Moves(location=True)),
    "data path set": (SetPropertiesUpdate(updates={"write.data.path": "s3://b/t"}), Moves(write_paths=frozenset({"s3://b/t"}))),
    "data path removed": (RemovePropertiesUpdate(removals=["write.data.path"]), Moves(write_paths=frozenset())),
}


@pytest.mark.parametrize("update", UPDATES)
def test_a_commit_that_names_folders_moves_them(update: str) -> None:
    moving, moved = UPDATES[update]
    assert moves_of([moving]) == moved
    harmless = [SetPropertiesUpdate(updates={"owner": "me"}), RemovePropertiesUpdate(removals=["owner"])]
    assert not moves_of(harmless)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("s3://b/m/00012-6c97e413.metadata.json", 12),
        ("00003-6c97e413.gz.metadata.json", 3),
        ("/x/00003-6c97e413.metadata.json.gz", 3),
        ("s3://b/m/v12.metadata.json", None),
        ("s3://b/00012-x/metadata.json", None),
        ("", None),
    ],
)
def test_the_version_is_the_number_that_a_metadata_file_begins_with(name: str, version: int | None) -> None:
    assert replace(PIN, metadata_location=name).version == version


versions = st.builds(
    TableVersion,
    table_uuid=st.sampled_from(["uuid-1", "uuid-2"]),
    table_key_id=st.sampled_from(["alias/orders", "alias/other", None]),
    data_key_length=st.sampled_from([16, 24, 32]),
    metadata_location=st.builds(location, st.integers(0, 9), st.sampled_from("ab")),
    metadata_hash=st.sampled_from(["x", "y", None]),
    last_sequence_number=st.integers(0, 9),
    kek_hashes=st.frozensets(st.sampled_from(["kek-1", "kek-2"])),
    folders=st.sampled_from([(), ("s3://b/t",), ("s3://b/u",)]),
)


@given(st.lists(versions, max_size=12))
def test_whatever_is_answered_an_accepted_table_never_goes_back(answers: list[TableVersion]) -> None:
    pin: TableVersion | None = None
    for seen in answers:
        before = pin
        try:
            pin = verified(before, seen)
        except TablecryptError:
            continue
        if before is None:
            continue
        assert pin is not None
        assert pin.table_key_id == before.table_key_id
        if pin.table_uuid == before.table_uuid:
            assert pin.last_sequence_number >= before.last_sequence_number
            assert pin.data_key_length >= before.data_key_length
            assert pin.kek_hashes >= before.kek_hashes
        else:
            assert not pin.kek_hashes & before.kek_hashes


def test_accepting_a_rollback_moves_the_pin_back_and_forgets_no_kek() -> None:
    pin = replace(NEXT, kek_hashes=frozenset({"kek-1", "kek-2"}), retired_keks=frozenset({"kek-1", "kek-0"}))
    older = replace(PIN, wrapping_keks=frozenset({"kek-1"}), retired_keks=frozenset({"kek-9"}))
    accepted = TrustedTable("db.t", pin).accept_rollback(older)
    assert accepted == replace(older, kek_hashes=pin.kek_hashes, retired_keks=frozenset({"kek-0", "kek-9"}))


def test_accepting_a_rollback_accepts_neither_another_key_nor_another_table_nor_an_edit() -> None:
    trusted = TrustedTable("db.t", PIN)
    for seen, error, pinned_as in (
        (replace(PIN, table_key_id="alias/other"), KeyIdChangedError, None),
        (replace(PIN, table_key_id=None), KeyIdChangedError, None),
        (replace(PIN, data_key_length=16), KeyIdChangedError, None),
        (replace(PIN, metadata_hash="edited"), TamperedFileError, None),
        (replace(PIN, table_uuid="uuid-2", kek_hashes=frozenset()), TamperedFileError, "db.other"),
        (replace(PIN, table_uuid="uuid-2"), TamperedFileError, None),
    ):
        with pytest.raises(error):
            trusted.accept_rollback(seen, pinned_as)


def test_accepting_a_rollback_without_a_pin_trusts_encrypted_tables_alone() -> None:
    assert TrustedTable("db.t", None).accept_rollback(PIN) == PIN
    assert TrustedTable("db.t", None).accept_rollback(replace(PIN, table_key_id=None)) is None
    anew = TableVersion("uuid-2", "alias/orders", 16, location(0, "b"), "hash", 0)
    assert TrustedTable("db.t", PIN).accept_rollback(anew) == anew


def test_a_name_with_a_pin_is_refused_a_plaintext_table_and_one_without_is_not() -> None:
    TrustedTable("db.t", None).refuse_plaintext()
    with pytest.raises(KeyIdChangedError, match=r"db\.t was encrypted with encryption\.key-id alias/orders"):
        TrustedTable("db.t", PIN).refuse_plaintext()


@pytest.mark.parametrize(("pinned_as", "said"), [("db.other", "the metadata of db.other"), (None, "holds the keys of table uuid-1")])
def test_metadata_of_another_table_is_named_by_its_location(pinned_as: str | None, said: str) -> None:
    with pytest.raises(TamperedFileError, match=said) as refused:
        TrustedTable("db.t", PIN).verify_update(replace(NEXT, table_uuid="uuid-2"), pinned_as)
    assert refused.value.location == NEXT.metadata_location


def test_a_head_that_fell_is_named_with_where_it_was_and_is() -> None:
    pin = replace(PIN, heads={"main": Head(11, 5)})
    with pytest.raises(MetadataRollbackError, match=r"snapshot 10 \(sequence number 4\)") as refused:
        verified(pin, replace(NEXT, heads={"main": Head(10, 4)}))
    assert "snapshot 11 (sequence number 5)" in str(refused.value)
    with pytest.raises(MetadataRollbackError, match="nothing"):
        verified(pin, replace(NEXT, heads={}))


def test_a_commit_moves_something_where_it_moves_a_branch_or_a_folder() -> None:
    assert not Moves()
    assert Moves(frozenset({"main"}))
    assert Moves(location=True)
    assert Moves(write_paths=frozenset())


HEADS = {"main": Head(11, 5), "side": Head(9, 3)}


@pytest.mark.parametrize(
    ("heads", "refused"),
    [
        ({"main": Head(12, 6), "side": Head(9, 3)}, None),
        ({"main": Head(11, 5), "side": Head(13, 4)}, None),
        ({"main": Head(11, 5)}, None),
        ({"main": Head(10, 5), "side": Head(9, 3)}, "main"),
        ({"main": Head(10, 4), "side": Head(9, 3)}, "main"),
        ({"side": Head(9, 3)}, "main"),
        ({"main": Head(12, 6), "side": Head(8, 2)}, "side"),
        ({"main": Head(12, 6), "side": Head(8, 3)}, "side"),
    ],
)
def test_no_head_falls_and_main_never_vanishes(heads: dict[str, Head], refused: str | None) -> None:
    pin, seen = replace(PIN, heads=HEADS), replace(NEXT, heads=heads)
    if refused is None:
        assert verified(pin, seen) == replace(seen, heads={**HEADS, **heads})
        return
    with pytest.raises(MetadataRollbackError, match=refused):
        verified(pin, seen)
    moved = TrustedTable("db.t", pin).verify_update(seen, moved=Moves(frozenset({refused})))
    assert moved is not None
    assert moved.heads == {name: head for name, head in {**HEADS, **heads}.items() if name in heads or name != refused}
    for other in {"main", "side", "tag"} - {refused}:
        with pytest.raises(MetadataRollbackError, match=refused):
            TrustedTable("db.t", pin).verify_update(seen, moved=Moves(frozenset({other})))


def test_a_branch_that_vanished_comes_back_no_lower() -> None:
    without = verified(replace(PIN, heads=HEADS), replace(NEXT, heads={"main": Head(12, 6)}))
    again = replace(NEXT, metadata_location=location(9), last_sequence_number=7)
    with pytest.raises(MetadataRollbackError, match="side"):
        verified(without, replace(again, heads={"main": Head(12, 6), "side": Head(8, 2)}))
    assert verified(without, replace(again, heads={"main": Head(12, 6), "side": Head(9, 3)})) is not None


@pytest.mark.parametrize("beyond", [0, 3])
def test_of_vanished_branches_those_with_the_newest_heads_are_kept(beyond: int) -> None:
    count = MOST_VANISHED_REFS + beyond
    old = {f"b{number * 7919 % count:05d}": Head(number, number) for number in range(count)}
    pin = verified(replace(PIN, heads={"main": Head(11, 5), **old}), replace(NEXT, heads={"main": Head(11, 5)}))
    assert pin is not None
    assert sorted(head.sequence_number for name, head in pin.heads.items() if name != "main") == list(range(beyond, count))


def test_keks_that_were_retired_stay_so_and_a_pin_that_says_all_stays_itself() -> None:
    pin = replace(PIN, retired_keks=frozenset({"a"}), heads=HEADS)
    seen = replace(NEXT, retired_keks=frozenset({"b"}), heads=HEADS)
    later = verified(pin, seen)
    assert later is not None
    assert {"a", "b"} <= later.retired_keks
    assert verified(pin, replace(pin)) is pin
