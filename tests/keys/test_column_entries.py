"""Copies of column entries in a table's properties, and marks of those that were removed on purpose: which entries count."""

from __future__ import annotations

from typing import Any

import pytest

from tablecrypt.keys.key_ring import (
    COLUMN_KEK,
    COLUMN_KEY,
    EncryptedKey,
    copy_of,
    entries_with_copies,
    is_copy,
    is_gone,
    is_kept_by_commits,
    mark,
    mark_of,
    stored_entries,
)


def entry(key_id: str, by: str, wrapped: str = "AAAA", **properties: str) -> EncryptedKey:
    return EncryptedKey(key_id=key_id, encrypted_key_metadata=wrapped, encrypted_by_id=by, properties=properties or None)


KEK = entry("kek", "pii", **{COLUMN_KEK: "1", "KEY_TIMESTAMP": "5"})
KEY = entry("key", "kek", **{COLUMN_KEY: "2"})
OTHER = entry("other", "kek", **{COLUMN_KEY: "3"})
OF_TABLE = entry("list", "table-kek")
TABLE_KEK = entry("table-kek", "orders", KEY_TIMESTAMP="5")
COPIES = dict(map(copy_of, (KEK, KEY, OTHER)))


def ids(entries: list[EncryptedKey]) -> list[str]:
    return [each.key_id for each in entries]


def test_copies_and_marks_are_as_their_layout_says() -> None:
    name, value = copy_of(KEY)
    assert name == "encryption.column-entry.key"
    assert value == '{"encrypted-key-metadata":"AAAA","encrypted-by-id":"kek","properties":{"tablecrypt.column-key":"2"}}'
    # The first 32 digits of SHA-256 of the key-id.
    assert mark_of(KEY) == ("encryption.column-gone.2c70e12b7a0646f92279f427c7b38e73", "2")
    assert mark_of(KEK) == (mark("kek", 0))
    assert mark("key", 7) == (mark_of(KEY)[0], "7")


@pytest.mark.parametrize(("name", "copy", "kept"), [(copy_of(KEY)[0], True, True), (mark_of(KEY)[0], False, True), ("owner", False, False)])
def test_a_propertys_name_says_whether_commits_write_it(name: str, copy: bool, kept: bool) -> None:
    assert (is_copy(name), is_kept_by_commits(name)) == (copy, kept)


@pytest.mark.parametrize(
    ("of", "marked", "gone"),
    [(KEY, KEY, True), (KEK, KEK, True), (KEY, OTHER, False), (OF_TABLE, OF_TABLE, False)],
    ids=["marked", "a KEK", "another is marked", "the table's own"],
)
def test_an_entry_of_a_column_is_gone_if_its_own_mark_is_there(of: EncryptedKey, marked: EncryptedKey, gone: bool) -> None:
    assert is_gone(of, dict([mark(marked.key_id, 0)])) is gone
    assert not is_gone(of, {"owner": "a"})


@pytest.mark.parametrize(
    ("stored", "properties", "counting"),
    [
        ([OF_TABLE, KEK, KEY], {}, ["list", "kek", "key"]),
        ([OF_TABLE], COPIES, ["list", "kek", "key", "other"]),
        ([OF_TABLE, KEK], COPIES, ["list", "kek", "key", "other"]),
        ([OF_TABLE, KEY], COPIES, ["list", "key", "kek", "other"]),
        ([OF_TABLE, KEK, KEY, OTHER], dict([mark_of(KEY)]), ["list", "kek", "other"]),
        ([OF_TABLE], COPIES | dict([mark_of(KEY)]), ["list", "kek", "other"]),
        ([OF_TABLE], COPIES | dict([mark_of(KEK)]), ["list"]),
        ([OF_TABLE], dict([copy_of(KEK)]), ["list"]),
        ([OF_TABLE], dict([copy_of(KEY)]), ["list"]),
        ([OF_TABLE], {"encryption.column-entry.key": "not JSON", **dict([copy_of(KEK), copy_of(OTHER)])}, ["list", "kek", "other"]),
        ([TABLE_KEK], dict([copy_of(OF_TABLE), copy_of(KEK)]), ["table-kek"]),
        ([], {"encryption.column-entry.x": "null"}, []),
    ],
    ids=[
        *("entries", "copies alone", "the KEK is there", "a key without its KEK", "a mark beats an entry", "a mark beats a copy"),
        *(
            "a marked KEK",
            "a KEK that nothing needs",
            "a key whose KEK is nowhere",
            "a broken copy",
            "a copy of a table's key",
            "no object",
        ),
    ],
)
def test_what_counts_of_entries_copies_and_marks(stored: list[EncryptedKey], properties: dict[str, Any], counting: list[str]) -> None:
    assert ids(entries_with_copies(stored, properties)) == counting


def test_an_entry_counts_where_its_copy_says_otherwise() -> None:
    edited = KEY.model_copy(update={"encrypted_key_metadata": "BBBB"})
    found = entries_with_copies([KEK, KEY], dict([copy_of(edited)]))
    assert [each.encrypted_key_metadata for each in found] == ["AAAA", "AAAA"]


def test_all_that_is_stored_is_listed_whether_it_counts_or_not() -> None:
    properties = {**COPIES, **dict([mark_of(KEY)]), "encryption.column-entry.bad": "[]", "owner": "a"}
    assert ids(stored_entries([OF_TABLE, KEY], properties)) == ["list", "key", "kek", "key", "other"]
