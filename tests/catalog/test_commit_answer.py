"""What a catalog server's answer to a commit must hold, rule by rule, on metadata alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import SetSnapshotRefUpdate
from pyiceberg.typedef import IcebergBaseModel

from tablecrypt.errors import FormatError, KeyIdChangedError, KeyNotFoundError, MetadataRollbackError, TablecryptError, TamperedFileError
from tablecrypt.keys.key_ring import EncryptedKey
from tablecrypt.table.metadata import EncryptedSnapshot
from tablecrypt.table.protection.writing import WrittenUnder
from tablecrypt.table.updates import AddEncryptedSnapshotUpdate, AddEncryptionKeyUpdate, RemoveEncryptionKeyUpdate
from tablecrypt_catalog.rest_answers import check_answer, check_same_table
from tests.support.bare_metadata import LOCATION, MASTER, TABLE_UUID, fields, kek, list_key, parsed, snapshot

FILE = f"{LOCATION}/metadata/00003-a.metadata.json"
KEYS = [kek("k1", 100, b"first"), kek("k2", 200, b"second"), list_key("l1", "k1", b"one"), list_key("l2", "k2", b"two")]
STAGED = fields([snapshot(1, "l1"), snapshot(2, "l2")], KEYS, **{"encryption.data-key-length": "24"})
OTHER_UUID = "00000000-7cb6-4bbc-ba31-b7ac2216d371"
SENT: list[IcebergBaseModel] = [
    AddEncryptionKeyUpdate(**{"encryption-key": EncryptedKey.model_validate(KEYS[1])}),
    AddEncryptionKeyUpdate(**{"encryption-key": EncryptedKey.model_validate(KEYS[3])}),
    AddEncryptedSnapshotUpdate(snapshot=EncryptedSnapshot.model_validate(snapshot(2, "l2"))),
    SetSnapshotRefUpdate(**{"ref-name": "main", "type": "branch", "snapshot-id": 12}),
]

Edit = Callable[[dict[str, Any]], object]


def entry(answer: dict[str, Any], key_id: str) -> dict[str, Any]:
    found: dict[str, Any] = next(key for key in answer["encryption-keys"] if key["key-id"] == key_id)
    return found


def lose(key_id: str) -> Edit:
    return lambda answer: answer["encryption-keys"].remove(entry(answer, key_id))


def change(key_id: str, to: dict[str, Any]) -> Edit:
    return lambda answer: entry(answer, key_id).update(to)


def go_back(answer: dict[str, Any]) -> None:
    answer["refs"]["main"]["snapshot-id"] = answer["current-snapshot-id"] = 11


def move_main(answer: dict[str, Any], number: int) -> None:
    """As another writer's commit does that came after this one."""
    answer["snapshots"].append(snapshot(3, "l2") | {"sequence-number": number})
    answer["refs"]["main"]["snapshot-id"] = answer["current-snapshot-id"] = 13
    answer["last-sequence-number"] = max(number, 2)


def lose_the_snapshot(answer: dict[str, Any]) -> None:
    go_back(answer)
    answer["snapshots"].pop()


def check(edit: Edit, sent: list[IcebergBaseModel] | None = None) -> None:
    answer = copy.deepcopy(STAGED)
    edit(answer)
    found = parsed(answer)
    assert check_answer(parsed(STAGED), iter(SENT if sent is None else sent), found, FILE) is found


FAITHFUL: dict[str, Edit] = {
    "the same": lambda answer: None,
    "keys in another order": lambda answer: answer["encryption-keys"].reverse(),
    "no properties as an empty object": change("l1", {"properties": {}}),
    "the location with a slash": lambda answer: answer.update(location=f"{LOCATION}/"),
    "a longer data key": lambda answer: answer["properties"].update({"encryption.data-key-length": "32"}),
    "a later commit of others": lambda answer: move_main(answer, 3),
    "a branch of others": lambda answer: answer["refs"].update(side={"snapshot-id": 11, "type": "branch"}),
    "a KEK rewrapped by others": change("k1", {"encrypted-key-metadata": "cmV3cmFwcGVk"}),
    "a key encrypted again by others": change("l1", {"encrypted-by-id": "k2", "encrypted-key-metadata": "cmV3cmFwcGVk"}),
    "snapshots expired by others": lambda answer: (answer["snapshots"].pop(0), lose("l1")(answer), lose("k1")(answer)),
}


@pytest.mark.parametrize("edit", FAITHFUL)
def test_what_others_may_have_done_meanwhile_is_accepted(edit: str) -> None:
    check(FAITHFUL[edit])


FAITHLESS: dict[str, tuple[Edit, type[TablecryptError], str]] = {
    "another table": (
        lambda answer: answer.update({"table-uuid": OTHER_UUID}),
        *(TamperedFileError, f"the catalog answered for table {TABLE_UUID} with table {OTHER_UUID}"),
    ),
    "another place": (
        lambda answer: answer.update(location="s3://bucket/db/u"),
        *(TamperedFileError, f"the catalog answered that the table at {LOCATION} is at s3://bucket/db/u"),
    ),
    "another master key": (
        lambda answer: answer["properties"].update({"encryption.key-id": "alias/people"}),
        *(KeyIdChangedError, f"{FILE}: the catalog answered with encryption.key-id alias/people, but the table has {MASTER}"),
    ),
    "no master key": (
        lambda answer: answer["properties"].pop("encryption.key-id"),
        *(KeyIdChangedError, "answered with encryption.key-id None"),
    ),
    "a shorter data key": (
        lambda answer: answer["properties"].update({"encryption.data-key-length": "16"}),
        *(KeyIdChangedError, f"{FILE}: the catalog answered with encryption.data-key-length 16, but the table has 24"),
    ),
    "an older version": (
        lambda answer: answer.update({"last-sequence-number": 1}),
        *(
            MetadataRollbackError,
            f"{FILE}: the catalog answered a commit with older metadata: its last sequence number is 1, and was to be 2",
        ),
    ),
    "no snapshot of the commit": (
        lose_the_snapshot,
        *(MetadataRollbackError, f"{FILE}: the catalog answered the commit of snapshot 12 with metadata that lacks it"),
    ),
    "main where it was": (
        go_back,
        *(MetadataRollbackError, f"{FILE}: the commit set main to snapshot 12, but in the catalog's answer it points to snapshot 11"),
    ),
    "main at another snapshot of the same number": (lambda answer: move_main(answer, 2), MetadataRollbackError, "points to snapshot 13"),
    "no main": (
        lambda answer: answer.update({"refs": {}, "current-snapshot-id": None}),
        *(MetadataRollbackError, "in the catalog's answer it is gone"),
    ),
    "a branch that points nowhere": (
        lambda answer: answer["refs"].update(side={"snapshot-id": 99, "type": "branch"}),
        *(FormatError, f"{FILE}: side points to snapshot 99, which is not there"),
    ),
    "a snapshot under another key": (
        lambda answer: answer["snapshots"][0].update({"key-id": "l2"}),
        *(TamperedFileError, "the catalog answered with key-id l2 for snapshot 11, which has l1"),
    ),
    "a snapshot without key": (
        lambda answer: answer["snapshots"][0].pop("key-id"),
        *(TamperedFileError, "the catalog answered with key-id None for snapshot 11, which has l1"),
    ),
    "a snapshot of others without key": (
        lambda answer: answer["snapshots"].append(snapshot(3, None) | {"sequence-number": 2}),
        *(TamperedFileError, "the catalog answered with key-id None for snapshot 13, which has None"),
    ),
    "a new key that is lost": (
        lose("l2"),
        *(KeyNotFoundError, f"{FILE}: the catalog answered without encryption key l2, which this commit added"),
    ),
    "an old key that is lost": (lose("l1"), KeyNotFoundError, f"{FILE}: the catalog answered with snapshot 11, but: encryption key l1"),
    "an old KEK that is lost": (lose("k1"), KeyNotFoundError, f"{FILE}: the catalog answered with snapshot 11, but: encryption key k1"),
    "a new KEK under other bytes": (
        change("k2", {"encrypted-key-metadata": "b3RoZXI="}),
        *(TamperedFileError, "the catalog answered with another value of encryption key k2"),
    ),
    "a new key under another KEK": (change("l2", {"encrypted-by-id": "k1"}), TamperedFileError, "another value of encryption key l2"),
    "an old key of other bytes": (change("l1", {"encrypted-key-metadata": "b3RoZXI="}), TamperedFileError, "encryption key l1"),
    "an old key that is a KEK now": (
        change("l1", {"properties": {"KEY_TIMESTAMP": "1"}, "encrypted-by-id": MASTER}),
        *(TamperedFileError, "encryption key l1"),
    ),
    "an old KEK of another age": (change("k1", {"properties": {"KEY_TIMESTAMP": "101"}}), TamperedFileError, "encryption key k1"),
    "an old KEK of another master key": (change("k1", {"encrypted-by-id": "alias/people"}), TamperedFileError, "encryption key k1"),
}


@pytest.mark.parametrize("edit", FAITHLESS)
def test_an_answer_that_loses_or_changes_something_is_refused(edit: str) -> None:
    change_it, error, said = FAITHLESS[edit]
    with pytest.raises(error) as refused:
        check(change_it)
    assert said in str(refused.value)
    assert FILE in str(refused.value)


def test_every_entry_is_compared_not_only_those_before_one_that_did_not_change() -> None:
    def edit(answer: dict[str, Any]) -> None:
        lose_first(answer)
        entry(answer, "l2")["encrypted-key-metadata"] = "b3RoZXI="

    def lose_first(answer: dict[str, Any]) -> None:
        answer["snapshots"].pop(0)
        lose("k1")(answer)
        lose("l1")(answer)

    with pytest.raises(TamperedFileError, match="encryption key l2"):
        check(edit)


def test_a_key_that_the_commit_takes_out_again_need_not_be_there() -> None:
    def spare(answer: dict[str, Any]) -> None:
        """Nothing of the answer: it never had the key."""

    more = [
        AddEncryptionKeyUpdate(**{"encryption-key": EncryptedKey.model_validate(list_key("l9", "k2"))}),
        RemoveEncryptionKeyUpdate(**{"key-id": "l9"}),
    ]
    check(spare, [*SENT, *more])
    check(spare, [RemoveEncryptionKeyUpdate(**{"key-id": "l8"}), *SENT])
    with pytest.raises(KeyNotFoundError, match="l9, which this commit added"):
        check(spare, [*SENT, more[1], more[0]])


def test_a_branch_that_the_commit_did_not_set_may_be_anywhere() -> None:
    check(go_back, SENT[:3])
    side = SetSnapshotRefUpdate(**{"ref-name": "side", "type": "branch", "snapshot-id": 11})
    check(go_back, [*SENT[:3], side])


def test_a_plaintext_table_that_claims_the_key_is_refused() -> None:
    properties = {"encryption.key-id": MASTER, "encryption.data-key-length": "24"}
    plain = new_table_metadata(Schema(), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, LOCATION, properties, parsed(STAGED).table_uuid)
    check_same_table(parsed(STAGED), plain, FILE)
    with pytest.raises(KeyIdChangedError) as refused:
        check_answer(parsed(STAGED), SENT, plain, FILE)
    assert str(refused.value) == f"{FILE}: the catalog answered with format version 2, which holds no keys"


def test_a_slash_after_the_location_makes_no_other_place() -> None:
    with_slash, without = parsed(STAGED | {"location": f"{LOCATION}/"}), parsed(STAGED)
    check_same_table(with_slash, without, FILE)
    check_same_table(without, with_slash, FILE)
    for other in (f"{LOCATION}X", f"/{LOCATION}"):
        for known, answer in ((other, LOCATION), (LOCATION, other)):
            with pytest.raises(TamperedFileError):
                check_same_table(parsed(STAGED | {"location": known}), parsed(STAGED | {"location": answer}), FILE)


SSN = {"id": 1, "name": "ssn", "type": "string", "required": False}


def with_a_column(**properties: str) -> dict[str, Any]:
    """The staged metadata with a column in its schema."""
    made = copy.deepcopy(STAGED)
    made["schemas"][0]["fields"], made["last-column-id"] = [SSN], 1
    made["snapshots"][1]["parent-snapshot-id"] = 11
    made["properties"].update(properties)
    return made


def check_files_of_the_commit(answer: dict[str, Any], *, with_files: bool = True) -> None:
    staged = parsed(with_a_column())
    under = WrittenUnder.of(staged) if with_files else None
    without_files = AddEncryptedSnapshotUpdate(snapshot=staged.snapshots[0])
    check_answer(
        staged,
        [*SENT[:2], without_files, AddEncryptedSnapshotUpdate(snapshot=staged.snapshots[1], written_under=under)],
        parsed(answer),
        FILE,
    )


def test_a_protection_that_changed_during_the_commit_is_told_with_the_snapshot_to_take_back() -> None:
    """A server applies commits by itself, and a change of properties breaks none."""
    with pytest.raises(KeyIdChangedError) as told:
        check_files_of_the_commit(with_a_column(**{"encryption.column.1.key-id": "pii"}))

    assert str(told.value) == (
        f"{FILE}: column 'ssn' was declared protected while snapshot 12 was committed, and its files do not fit that. The commit stands: "
        "go back to snapshot 11, shred snapshot 12, and write the rows again"
    )


@pytest.mark.parametrize(("since", "fits"), [("1", False), ("2", True)])
def test_files_fit_a_protection_that_begins_behind_their_snapshot(since: str, fits: bool) -> None:
    answer = with_a_column(**{"encryption.column.1.key-id": "pii", "encryption.column.1.since": since})
    with nullcontext() if fits else pytest.raises(KeyIdChangedError, match="was declared protected"):
        check_files_of_the_commit(answer)


def test_a_commit_without_files_fits_any_protection() -> None:
    check_files_of_the_commit(with_a_column(**{"encryption.column.1.key-id": "pii"}), with_files=False)
