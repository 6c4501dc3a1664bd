"""What a process keeps of the keys that it made and cannot open again, and what it takes for a wrapped key."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

import pytest

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ColumnKeyDeniedError, KmsError
from tablecrypt.keys.column_key_ring import ColumnKeyMaker
from tablecrypt.keys.column_keys import ColumnPolicy, ProtectedColumn
from tablecrypt.keys.column_lookup import KeyedColumn
from tablecrypt.keys.key_ring import COLUMN_KEY, WRITE_ONLY, EncryptedKey, KeyRing
from tablecrypt.keys.table_column_keys import TableColumnKeys
from tablecrypt.keys.write_only_keys import KEPT_KEYS, OwnKeys
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.kms.resilient import wrap_unopened
from tests.support.bound_schemas import OF_TEXT
from tests.support.write_only_kms import REFUSED, WriteOnlyKeyManagementClient


class AnsweringClient(MemoryKeyManagementClient):
    """A key service that wraps as it is told."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        super().__init__({"kms.memory.name": "write only"}, {"pii": bytes(32)})
        self._answer = answer

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        return self._answer(key)


def entry(key_id: str, blob: str = "AAAA", **properties: str) -> EncryptedKey:
    return EncryptedKey(key_id=key_id, encrypted_key_metadata=blob, encrypted_by_id="kek", properties={COLUMN_KEY: "2", **properties})


def test_a_key_is_found_by_the_very_entry_that_holds_it_and_by_no_other() -> None:
    own, secret = OwnKeys(), Secret(bytes(16))
    made = entry("a", **{WRITE_ONLY: "1"})
    own.keep(made, secret)
    assert own.key(made) is secret
    found = own.among([entry("b", **{WRITE_ONLY: "1"}), made])
    assert found is not None
    assert found[0] is made
    assert found[1] is secret
    for other in (entry("a"), entry("a", "BBBB", **{WRITE_ONLY: "1"}), entry("b", **{WRITE_ONLY: "1"})):
        assert own.key(other) is None


def test_a_process_keeps_no_more_keys_than_it_says_and_drops_those_that_it_used_longest_ago() -> None:
    own = OwnKeys()
    made = [entry(str(number), **{WRITE_ONLY: "1"}) for number in range(KEPT_KEYS + 1)]
    for each in made[:KEPT_KEYS]:
        own.keep(each, Secret(bytes(16)))
    own.key(made[0])
    own.keep(made[KEPT_KEYS], Secret(bytes(16)))
    assert len(own) == KEPT_KEYS
    assert own.key(made[0]) is not None
    assert own.key(made[1]) is None


@pytest.mark.parametrize("wrap", [lambda key: key, lambda key: b"", lambda key: b"header" + key + b"tag", lambda key: bytes(8)])
def test_an_answer_that_is_no_wrapped_key_is_refused(wrap: Callable[[bytes], bytes]) -> None:
    client = MemoryKeyManagementClient({"kms.memory.name": "write only"}, {"pii": bytes(32)})
    key = Secret(secrets.token_bytes(16))
    assert len(wrap_unopened(client, key, "pii")) > 16
    with pytest.raises(KmsError, match="in the clear, or too short") as refused:
        wrap_unopened(AnsweringClient(wrap), key, "pii")
    assert key.reveal().hex() not in str(refused.value)


COLUMNS: Final = [ProtectedColumn(2, "pii"), ProtectedColumn(3, "pii")]
POLICY: Final = ColumnPolicy.of(COLUMNS)


def maker(kms: KeyManagementClient) -> ColumnKeyMaker:
    return ColumnKeyMaker(kms, "orders", 16, 1000, lambda: 0, secrets.token_bytes)


def test_who_may_wrap_alone_brings_keys_of_his_own_and_writes_under_them() -> None:
    name = {"kms.memory.name": "write-only keys"}
    reader = maker(MemoryKeyManagementClient(name, {"orders": b"o" * 32, "pii": b"p" * 32, "fin": b"f" * 32}))
    writer, another = (maker(WriteOnlyKeyManagementClient({**name, REFUSED: "pii"})) for _ in range(2))
    TableColumnKeys(reader, POLICY, KeyRing()).generate([2, 3], b"before")
    ring = KeyRing().with_others(reader.pending.new_entries(KeyRing(), [b"before"]))

    with pytest.raises(ColumnKeyDeniedError):
        writer.entries_for(ring, COLUMNS)
    brought = writer.entries_for(ring, COLUMNS, write_only=True)
    keys = {each.field_id: each for each in brought if each.is_column_key}
    assert keys.keys() == {2, 3}
    assert all((each.properties or {}).get(WRITE_ONLY) == "1" for each in keys.values())

    after = ring.with_others(brought)
    for field_id in (2, 3):
        own = writer.own_key(KeyedColumn(after, field_id, "pii"))
        assert own is not None
        assert own[0] == keys[field_id].key_id
        assert reader.open(after, keys[field_id]) == own[1]
    assert (
        writer.own_key(KeyedColumn(after, 4, "pii"))
        is writer.own_key(KeyedColumn(after, 2, "fin"))
        is another.own_key(KeyedColumn(after, 2, "pii"))
        is None
    )

    written = TableColumnKeys(writer, POLICY, after).generate([2, 3], b"after")
    for field_id, column in written.items():
        assert column.column_key_id == keys[field_id].key_id
        opened = TableColumnKeys(reader, POLICY, after).unwrap(field_id, column.key_metadata(OF_TEXT), b"after", OF_TEXT, 1)
        assert opened == column.secret


def test_one_kek_of_the_writers_own_serves_his_columns_and_nobody_elses_keys_go_under_it() -> None:
    name = {"kms.memory.name": "write-only KEK"}
    reader = maker(MemoryKeyManagementClient(name, {"orders": b"o" * 32, "pii": b"p" * 32}))
    writer = maker(WriteOnlyKeyManagementClient({**name, REFUSED: "pii"}))

    ring = KeyRing(writer.entries_for(KeyRing(), COLUMNS, write_only=True))
    [kek] = ring.column_keks

    assert {each.encrypted_by_id for each in ring.column_keys} == {kek.key_id}
    assert (kek.properties or {})[WRITE_ONLY] == "1"
    assert {len(reader.open_kek(ring, kek, 2)), *(len(reader.open(ring, each)) for each in ring.column_keys)} == {16}
    TableColumnKeys(reader, POLICY, ring).generate([2], b"file")
    assert kek.key_id not in {each.encrypted_by_id for each in reader.pending.new_entries(ring, [b"file"])}


def test_a_file_under_a_key_that_its_writer_may_not_open_gets_one_of_the_writers_own() -> None:
    name = {"kms.memory.name": "write-only files"}
    reader = maker(MemoryKeyManagementClient(name, {"orders": b"o" * 32, "pii": b"p" * 32}))
    writer = maker(WriteOnlyKeyManagementClient({**name, REFUSED: "pii"}))

    written = TableColumnKeys(writer, POLICY, KeyRing()).generate([2, 3], b"file")
    ring = KeyRing().with_others(writer.pending.new_entries(KeyRing(), [b"file"]))

    assert {each.key_id: each.field_id for each in ring.column_keys} == {column.column_key_id: each for each, column in written.items()}
    for field_id, column in written.items():
        opened = TableColumnKeys(reader, POLICY, ring).unwrap(field_id, column.key_metadata(OF_TEXT), b"file", OF_TEXT, 1)
        assert opened == column.secret
