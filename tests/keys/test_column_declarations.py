"""What makes a protection weaker than its declaration says, and what a declaration opens for; tests/security attacks entries in tables."""

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, FormatError
from tablecrypt.keys.column_declarations import (
    FORMER,
    KEY,
    MASK,
    PROTECTION,
    SINCE,
    UNTIL,
    ColumnDeclaration,
    Declarations,
    opened,
    sealed,
    weakened,
)
from tablecrypt.keys.column_key_ring import ColumnKeyMaker
from tablecrypt.keys.column_keys import ColumnMask, ColumnPolicy, ProtectedColumn
from tablecrypt.keys.former_keys import FormerKey
from tablecrypt.keys.key_ring import COLUMN_DECLARATION, MASK_KEY, WRITE_ONLY, EncryptedKey, KeyRing
from tablecrypt.keys.table_column_keys import TableColumnKeys
from tests.keys.test_mask_keys import maker
from tests.support.write_only_kms import REFUSED, WriteOnlyKeyManagementClient

SSN, SALARY = 2, 3
TABLE = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
KEY_OF_SSN = Secret(b"k" * 16)


def declared(key_id: str | None = "pii", mask: str = "null", since: int | None = None, **former: int | None) -> ColumnDeclaration:
    column = None if key_id is None else ProtectedColumn(SSN, key_id, ColumnMask.parse(mask), since)
    return ColumnDeclaration(SSN, column, former, ("ssn",), 3)


@pytest.mark.parametrize(
    ("before", "now", "respects"),
    [
        (declared(), declared(), set()),
        (declared(), declared(None), {PROTECTION}),
        (declared(None), declared(None), set()),
        (declared(None), declared(), set()),
        (declared(), declared("fin"), {KEY}),
        (declared(), declared(mask="truncate(3)"), {MASK}),
        (declared(mask="truncate(3)"), declared(mask="redact"), {MASK}),
        (declared(mask="truncate(3)"), declared(mask="error"), set()),
        (declared(), declared(since=0), {SINCE}),
        (declared(since=4), declared(since=5), {SINCE}),
        (declared(since=5), declared(since=5), set()),
        (declared(since=5), declared(since=4), set()),
        (declared(since=5), declared(), set()),
        (declared(), declared(old=4), {FORMER}),
        (declared(old=4), declared(other=4), {FORMER}),
        (declared(old=4), declared(), set()),
        (declared(old=4), declared(old=5), {UNTIL}),
        (declared(old=4), declared(old=4), set()),
        (declared(old=4), declared(old=3), set()),
        (declared(old=4), declared(old=None), set()),
        (declared(old=None), declared(old=4), set()),
        (declared(None, old=4), declared(old=5), set()),
        # The master key that the column has anyway opens nothing more as a former one.
        (declared(), declared(pii=4), set()),
        (declared("fin", pii=4), declared(pii=5), {KEY}),
        (declared(), declared("fin", "truncate(3)", 7, other=9), {KEY, MASK, SINCE, FORMER}),
    ],
)
def test_a_protection_is_weaker_in_exactly_these_respects(before: ColumnDeclaration, now: ColumnDeclaration, respects: set[str]) -> None:
    assert weakened(before, now).keys() == respects


def test_each_respect_has_a_sentence_on_before_and_now() -> None:
    assert weakened(declared(), declared("fin", "truncate(3)", 7, other=9)) == {
        KEY: "was under master key 'pii', and the properties say 'fin' now",
        MASK: "was masked by null, and the properties say truncate(3) now",
        SINCE: "may be unprotected in files up to sequence number 7 now, which was not so before",
        FORMER: "may be under the former master key 'other' now, which was not so before",
    }
    assert weakened(declared(since=4, old=4), declared(since=7, old=5)) == {
        SINCE: "may be unprotected in files up to sequence number 7 now, which was 4 before",
        UNTIL: "may be under the former master key 'old' in files up to sequence number 5 now, which was 4 before",
    }
    assert weakened(declared(), declared(None)) == {
        PROTECTION: "was protected under master key 'pii', and the properties do not protect it now"
    }


def test_an_entry_is_as_its_layout_says() -> None:
    """What earlier releases have sealed stays readable: the key, the AAD and the canonical JSON are made here once more, step by step."""
    told = ColumnDeclaration(
        8, ProtectedColumn(8, "alias/pii", ColumnMask.parse("truncate(4)"), 12), {"alias/old": 41}, ("person.ssn", "é"), 3
    )
    entry = sealed(told, "key-1", KEY_OF_SSN, TABLE, lambda length: bytes(range(length)))

    key = HKDF(SHA256(), 16, salt=None, info=b"tablecrypt column declaration key").derive(b"k" * 16)
    aad = b"\0".join([b"tablecrypt column declaration", TABLE.encode(), b"8", b"key-1"])
    stored = base64.b64decode(entry.encrypted_key_metadata)
    assert stored[:12] == bytes(range(12))
    assert AESGCM(key).decrypt(stored[:12], stored[12:], aad).decode() == (
        '{"field-id":8,"former":[["alias/old",41]],"key-id":"alias/pii","mask":"truncate(4)","names":["person.ssn","é"],"revision":3,'
        '"since":12,"version":1}'
    )
    assert entry.encrypted_by_id == "key-1"
    assert entry.key_id == base64.b64encode(bytes(range(16))).decode()
    assert entry.properties == {"tablecrypt.column-declaration": "8"}


@pytest.mark.parametrize("told", [declared(), declared("fin", "truncate(3)", 7, old=9), declared(None, old=None)])
def test_a_declaration_is_read_as_it_was_sealed(told: ColumnDeclaration) -> None:
    entry = sealed(told, "key-1", KEY_OF_SSN, TABLE, bytes)
    assert opened(entry, SSN, KEY_OF_SSN, TABLE) == told


@pytest.mark.parametrize(
    ("field_id", "key", "table_uuid", "under"),
    [
        (3, KEY_OF_SSN, TABLE, "key-1"),
        (SSN, Secret(b"l" * 16), TABLE, "key-1"),
        (SSN, KEY_OF_SSN, "00000000-0000-4000-8000-000000000000", "key-1"),
        (SSN, KEY_OF_SSN, TABLE, "key-2"),
        (SSN, KEY_OF_SSN, TABLE, None),
    ],
    ids=["column", "key", "table", "key-id", "no key-id"],
)
def test_a_declaration_opens_for_its_column_key_and_table_alone(field_id: int, key: Secret, table_uuid: str, under: str | None) -> None:
    entry = sealed(declared(), "key-1", KEY_OF_SSN, TABLE, bytes).model_copy(update={"encrypted_by_id": under})
    with pytest.raises(AuthenticationError):
        opened(entry, field_id, key, table_uuid)


@pytest.mark.parametrize(
    "change",
    [{"version": 2}, {"version": None}, {"mask": "rot13"}, {"former": 4}, {"names": None}, {"key-id": None, "former": None}],
    ids=str,
)
def test_a_payload_of_a_newer_release_is_refused(change: dict[str, Any]) -> None:
    payload = json.loads(declared().payload()) | change
    with pytest.raises(FormatError, match=r"version|a newer release has written it"):
        ColumnDeclaration.from_payload(json.dumps(payload).encode())


def test_the_refusal_names_the_version_or_the_mistake() -> None:
    newer, broken = json.loads(declared().payload()) | {"version": 2}, json.loads(declared().payload()) | {"names": None}
    with pytest.raises(FormatError, match="has version 2; this release reads version 1"):
        ColumnDeclaration.from_payload(json.dumps(newer).encode())
    with pytest.raises(FormatError, match=r"cannot be read \(TypeError\)"):
        ColumnDeclaration.from_payload(json.dumps(broken).encode())


@pytest.mark.parametrize("missing", ["version", "field-id", "names", "revision", "key-id", "mask", "since", "former"])
def test_a_payload_without_a_part_is_refused(missing: str) -> None:
    payload = {name: value for name, value in json.loads(declared().payload()).items() if name != missing}
    with pytest.raises(FormatError, match="a newer release has written it"):
        ColumnDeclaration.from_payload(json.dumps(payload).encode())


@pytest.fixture(scope="module")
def rings() -> tuple[ColumnKeyMaker, KeyRing]:
    """Keys of the column under two master keys, as after a change of its master key, and of another column under the second."""
    made = maker()
    before = TableColumnKeys(made, ColumnPolicy.of([ProtectedColumn(SSN, "pii")]), KeyRing())
    before.generate([SSN], b"before")
    ring = KeyRing().with_others(made.pending.new_entries(KeyRing(), [b"before"]))
    after = TableColumnKeys(made, ColumnPolicy.of([ProtectedColumn(SSN, "fin"), ProtectedColumn(SALARY, "fin")]), ring)
    after.generate([SSN, SALARY], b"after")
    return made, ring.with_others(made.pending.new_entries(ring, [b"after"]))


def key_under(ring: KeyRing, master_key_id: str) -> EncryptedKey:
    of_column = [each for each in ring.column_keys if each.field_id == SSN]
    [found] = [each for each in of_column if ring.entry(each.encrypted_by_id or "").encrypted_by_id == master_key_id]
    return found


def sealed_under(made: ColumnKeyMaker, ring: KeyRing, master_key_id: str, told: ColumnDeclaration, table_uuid: str = TABLE) -> EncryptedKey:
    under = key_under(ring, master_key_id)
    return sealed(told, under.key_id, made.open(ring, under), table_uuid, secrets.token_bytes)


def of_revision(revision: int, key_id: str = "pii", since: int | None = None) -> ColumnDeclaration:
    return replace(declared(key_id, since=since), revision=revision)


def test_under_each_master_key_the_highest_revision_counts(rings: tuple[ColumnKeyMaker, KeyRing]) -> None:
    made, ring = rings
    newer, older, twin, other = of_revision(2, since=4), of_revision(1), of_revision(2, since=5), of_revision(1, "fin")
    entries = [sealed_under(made, ring, "pii", each) for each in (newer, older, twin)]
    with_them = ring.with_others([*entries, sealed_under(made, ring, "fin", other)])

    found = Declarations(made, with_them, TABLE).newest(SSN)

    assert found.keys() == {"pii", "fin"}
    assert {each.payload() for each in found["pii"]} == {newer.payload(), twin.payload()}
    assert found["fin"] == (other,)


def test_a_declaration_counts_whichever_of_the_columns_keys_it_is_under(rings: tuple[ColumnKeyMaker, KeyRing]) -> None:
    made, ring = rings
    another, policy = maker(), ColumnPolicy.of([ProtectedColumn(SSN, "pii")])
    TableColumnKeys(another, policy, KeyRing()).generate([SSN], b"at once")
    second = another.pending.new_entries(KeyRing(), [b"at once"])
    entry = sealed_under(another, KeyRing(second), "pii", of_revision(1))

    for entries in ([*ring.entries, *second, entry], [*second, *ring.entries, entry]):
        assert Declarations(made, KeyRing(entries), TABLE).newest(SSN) == {"pii": (of_revision(1),), "fin": ()}


def test_an_entry_that_does_not_open_is_no_declaration(rings: tuple[ColumnKeyMaker, KeyRing]) -> None:
    made, ring = rings
    right = sealed_under(made, ring, "pii", of_revision(1))
    of_another_table = sealed_under(made, ring, "pii", of_revision(9), "another")
    moved = sealed_under(made, ring, "fin", of_revision(9)).model_copy(update={"encrypted_by_id": key_under(ring, "pii").key_id})
    of_salary = sealed_under(made, ring, "pii", of_revision(9)).model_copy(update={"properties": {COLUMN_DECLARATION: str(SALARY)}})
    no_base64 = right.model_copy(update={"key_id": "no base64", "encrypted_key_metadata": "!!"})
    found = Declarations(made, ring.with_others([of_another_table, right, moved, of_salary, no_base64]), TABLE)

    assert found.newest(SSN) == {"pii": (of_revision(1),), "fin": ()}
    assert found.newest(SALARY) == {"fin": ()}
    assert found.newest(99) == {}
    assert found.entries(SALARY, [key_under(ring, "pii")]) == [of_salary]


def test_a_master_key_that_this_user_may_not_use_is_left_out(rings: tuple[ColumnKeyMaker, KeyRing]) -> None:
    made, ring = rings
    with_them = ring.with_others([sealed_under(made, ring, each, of_revision(1)) for each in ("pii", "fin")])
    kms = WriteOnlyKeyManagementClient({"kms.memory.name": "mask-keys", REFUSED: "fin"})
    limited = ColumnKeyMaker(kms, "orders", 16, 1000, lambda: 0, secrets.token_bytes)

    assert Declarations(limited, with_them, TABLE).newest(SSN) == {"pii": (of_revision(1),)}
    assert Declarations(limited, ring, TABLE).newest(SSN) == {"pii": ()}


def test_column_keys_are_those_of_the_column_and_those_that_readers_made_come_first(rings: tuple[ColumnKeyMaker, KeyRing]) -> None:
    made, ring = rings
    pii, fin = key_under(ring, "pii"), key_under(ring, "fin")
    marked = [
        pii.model_copy(update={"key_id": mark, "properties": {**(pii.properties or {}), mark: "1"}}) for mark in (WRITE_ONLY, MASK_KEY)
    ]

    found = Declarations(made, KeyRing([*ring.column_keks, *marked, *ring.column_keys]), TABLE).column_keys(SSN)

    assert {master: [each.key_id for each in keys] for master, keys in found.items()} == {
        "pii": [pii.key_id, WRITE_ONLY],
        "fin": [fin.key_id],
    }


def test_what_properties_state_has_the_protection_and_the_former_key() -> None:
    column = ProtectedColumn(SSN, "fin", ColumnMask("hash"), 3)
    policy = ColumnPolicy.of([column], {SSN: FormerKey("pii", 41)})

    assert ColumnDeclaration.stated(policy, SSN) == ColumnDeclaration(SSN, column, {"pii": 41})
    assert ColumnDeclaration.stated(policy, SALARY) == ColumnDeclaration(SALARY, None, {})
    assert ColumnDeclaration.stated(policy, SSN).shows_stored_mask
    assert not ColumnDeclaration.stated(policy, SALARY).shows_stored_mask


def test_a_table_needs_the_declarations_under_its_column_keys_and_no_others(rings: tuple[ColumnKeyMaker, KeyRing]) -> None:
    made, ring = rings
    under = sealed_under(made, ring, "pii", of_revision(1))
    stray = under.model_copy(update={"key_id": "stray", "encrypted_by_id": "a key that is gone"})
    entries = {each.key_id for each in (*ring.column_keks, *ring.column_keys)}

    assert ring.with_others([under, stray]).needed_by([]) == {*entries, under.key_id}
