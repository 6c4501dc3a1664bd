"""The key of the `hash` mask of a column: one for the life of the column, whatever happens to the KEK above it and whoever writes first."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

import pytest
from pyiceberg.exceptions import CommitFailedException

from tablecrypt.crypto.aes_gcm import AesGcm
from tablecrypt.errors import AuthenticationError, ColumnKeyDeniedError
from tablecrypt.keys.column_key_ring import ColumnKeyMaker
from tablecrypt.keys.column_keys import ColumnMask, ColumnPolicy, ProtectedColumn
from tablecrypt.keys.column_lookup import KeyedColumn
from tablecrypt.keys.former_keys import FormerKey
from tablecrypt.keys.key_ring import MASK_KEY, EncryptedKey, KeyRing
from tablecrypt.keys.manager import DEFAULT_KEK_LIFESPAN_MS
from tablecrypt.keys.table_column_keys import TableColumnKeys
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.kms.resilient import ResilientKeyManagementClient

START_MS = 1_700_000_000_000
SSN, SALARY = 2, 3
POLICY = ColumnPolicy.of([ProtectedColumn(SSN, "pii", ColumnMask("hash")), ProtectedColumn(SALARY, "pii", ColumnMask("hash"))])
KEYS = {"orders": b"o" * 32, "pii": b"p" * 32, "fin": b"f" * 32}


def maker(now_ms: int = START_MS, keys: dict[str, bytes] | None = None) -> ColumnKeyMaker:
    name = "mask-keys" if keys is None else f"mask-keys {sorted(keys)}"
    kms = ResilientKeyManagementClient(MemoryKeyManagementClient({"kms.memory.name": name}, keys or KEYS))
    return ColumnKeyMaker(kms, "orders", 16, DEFAULT_KEK_LIFESPAN_MS, lambda: now_ms, secrets.token_bytes)


def written(made: ColumnKeyMaker, ring: KeyRing, prefix: bytes = b"file") -> KeyRing:
    """The ring after the commit of a file with values of both columns."""
    TableColumnKeys(made, POLICY, ring).generate([SSN, SALARY], prefix)
    return ring.with_others(made.pending.new_entries(ring, [prefix]))


def entries(ring: KeyRing) -> list[EncryptedKey]:
    return [*ring.column_keks, *ring.column_keys]


@pytest.fixture
def ring() -> KeyRing:
    return written(maker(), KeyRing())


def test_the_commit_of_the_first_file_brings_one_mask_key_for_each_column(ring: KeyRing) -> None:
    assert sorted(key.field_id for key in ring.column_keys if key.is_mask_key) == [SSN, SALARY]
    assert {key.kind for key in ring.column_keys} == {"column key", "mask key"}
    keys = TableColumnKeys(maker(), POLICY, ring)
    assert keys.mask_key(SSN) != keys.mask_key(SALARY)
    assert len(keys.mask_key(SSN)) == 32


def test_the_key_of_a_mask_is_derived_from_the_stored_one_by_a_fixed_text(ring: KeyRing) -> None:
    """What was hashed by an earlier release stays equal to what is hashed now."""
    _, stored = maker().mask_key(KeyedColumn(ring, SSN, "pii"))
    [entry] = [entry for entry in ring.column_keys if entry.is_mask_key and entry.field_id == SSN]

    derived = hmac.new(stored.reveal(), b"tablecrypt column mask 1", hashlib.sha256).digest()
    assert TableColumnKeys(maker(), POLICY, ring).mask_key(SSN).reveal() == derived
    assert (entry.properties or {})[MASK_KEY] == "1"


@pytest.mark.parametrize(("label", "is_mask_key"), [(b"tablecrypt column key", False), (b"tablecrypt mask key", True)])
def test_an_entry_is_as_its_layout_says(ring: KeyRing, label: bytes, is_mask_key: bool) -> None:
    """What earlier releases have wrapped stays readable: the AAD is made here once more."""
    [entry] = [each for each in ring.column_keys if each.field_id == SSN and each.is_mask_key is is_mask_key]
    kek = ring.entry(entry.encrypted_by_id or "")
    aad = b"\0".join([label + str(START_MS).encode(), str(SSN).encode(), entry.key_id.encode()])

    opened = AesGcm(maker().open_kek(ring, kek, SSN)).decrypt(entry.wrapped_bytes(), aad)

    assert opened == maker().open(ring, entry).reveal()
    assert len(base64.b64decode(entry.key_id)) == len(base64.b64decode(kek.key_id)) == 16
    assert len(opened) == 16


def test_a_column_without_a_hash_mask_gets_no_mask_key() -> None:
    made = maker()
    TableColumnKeys(made, ColumnPolicy.of([ProtectedColumn(SSN, "pii", ColumnMask("redact"))]), KeyRing()).generate([SSN], b"file")
    assert not any(entry.is_mask_key for entry in made.pending.new_entries(KeyRing(), [b"file"]))


def test_a_kek_that_passes_its_lifespan_changes_column_keys_and_no_hash(ring: KeyRing) -> None:
    before = TableColumnKeys(maker(), POLICY, ring).mask_key(SSN)
    later = maker(START_MS + DEFAULT_KEK_LIFESPAN_MS)
    after = written(later, ring, b"later")
    assert [len([key for key in each.column_keys if not key.is_mask_key]) for each in (ring, after)] == [2, 4]
    assert len([key for key in after.column_keys if key.is_mask_key]) == 2
    assert TableColumnKeys(later, POLICY, after).mask_key(SSN) == before


def test_a_rotation_changes_no_hash_whatever_order_it_leaves(ring: KeyRing) -> None:
    before = TableColumnKeys(maker(), POLICY, ring).mask_key(SSN)
    made = maker(START_MS + DEFAULT_KEK_LIFESPAN_MS)
    aged = written(made, ring, b"later")
    new_kek = made.new_kek("pii")
    rotated = KeyRing([new_kek, *(made.under(aged, entry, new_kek) for entry in reversed(aged.column_keys))])
    assert TableColumnKeys(maker(), POLICY, rotated).mask_key(SSN) == before


def test_of_two_writers_who_make_the_key_the_second_commits_nothing_and_then_uses_the_firsts() -> None:
    first, second = maker(), maker()
    TableColumnKeys(second, POLICY, KeyRing()).generate([SSN], b"second")
    ring = written(first, KeyRing())
    with pytest.raises(CommitFailedException, match="write the rows again"):
        second.pending.new_entries(ring, [b"second"])
    again = TableColumnKeys(second, POLICY, ring)
    again.generate([SSN], b"again")
    assert not any(entry.is_mask_key for entry in second.pending.new_entries(ring, [b"again"]))
    assert again.mask_key(SSN) == TableColumnKeys(first, POLICY, ring).mask_key(SSN)


def test_two_writes_of_one_client_that_begin_together_share_the_key() -> None:
    made = maker()
    one, other = TableColumnKeys(made, POLICY, KeyRing()), TableColumnKeys(made, POLICY, KeyRing())
    one.generate([SSN], b"one")
    other.generate([SSN], b"other")
    ring = KeyRing().with_others(made.pending.new_entries(KeyRing(), [b"one"]))
    other.generate([SSN], b"more")
    assert not any(entry.is_mask_key for entry in made.pending.new_entries(ring, [b"other", b"more"]))
    assert one.mask_key(SSN) == other.mask_key(SSN)


def test_keys_that_are_committed_before_workers_write_include_that_of_the_mask() -> None:
    made = maker()
    brought = made.entries_for(KeyRing(), POLICY.columns.values())
    assert sorted(entry.field_id for entry in brought if entry.is_mask_key) == [SSN, SALARY]


def test_a_mask_key_wraps_no_dek(ring: KeyRing) -> None:
    keys = TableColumnKeys(maker(), POLICY, ring)
    marked = {entry.key_id for entry in ring.column_keys if entry.is_mask_key}
    named = {keys.generate([SSN], bytes([number]))[SSN].column_key_id for number in range(1, 20)}
    assert marked.isdisjoint(named)


@pytest.mark.parametrize("to_mask_key", [True, False])
def test_an_entry_that_somebody_marks_as_the_other_kind_does_not_open(ring: KeyRing, to_mask_key: bool) -> None:
    (victim,) = [entry for entry in ring.column_keys if entry.field_id == SSN and entry.is_mask_key != to_mask_key]
    properties = {name: value for name, value in (victim.properties or {}).items() if name != MASK_KEY}
    forged = victim.model_copy(update={"properties": properties | ({MASK_KEY: "1"} if to_mask_key else {})})
    edited = KeyRing([*ring.column_keks, forged])
    keys = TableColumnKeys(maker(), POLICY, edited)
    with pytest.raises(AuthenticationError):
        keys.mask_key(SSN) if to_mask_key else keys.generate([SSN], b"more")


def test_without_the_right_to_the_column_nobody_has_its_mask_key(ring: KeyRing) -> None:
    with pytest.raises(ColumnKeyDeniedError):
        TableColumnKeys(maker(keys={"orders": KEYS["orders"]}), POLICY, ring).mask_key(SSN)


def test_another_master_key_has_a_mask_key_of_its_own_and_the_first_keeps_its_own(ring: KeyRing) -> None:
    made = maker()
    moved = ColumnPolicy.of([ProtectedColumn(SSN, "fin", ColumnMask("hash"))], {SSN: FormerKey("pii", 1)})
    TableColumnKeys(made, moved, ring).generate([SSN], b"moved")
    after = ring.with_others(made.pending.new_entries(ring, [b"moved"]))
    assert TableColumnKeys(made, moved, after).mask_key(SSN) != TableColumnKeys(made, POLICY, ring).mask_key(SSN)
    assert KeyedColumn(after, SSN, "pii").mask_key() == KeyedColumn(ring, SSN, "pii").mask_key()


def test_what_this_user_may_read_is_told_without_a_key_for_columns_that_have_one(ring: KeyRing) -> None:
    made = maker()
    TableColumnKeys(made, POLICY, ring).check_readable([SSN, SALARY])
    assert made.entries_for(ring, []) == ()
    moved = ColumnPolicy.of([ProtectedColumn(SSN, "nobody's")], {SSN: FormerKey("pii", 1)})
    # The keys that are there tell: none is made under the master key that the column has now.
    TableColumnKeys(maker(), moved, ring).check_readable([SSN])
