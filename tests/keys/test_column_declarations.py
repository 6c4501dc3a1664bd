"""What makes a protection weaker than its declaration says, and what a declaration opens for; tests/security attacks entries in tables."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, FormatError
from tablecrypt.keys.column_declarations import FORMER, KEY, MASK, PROTECTION, SINCE, UNTIL, ColumnDeclaration, opened, sealed, weakened
from tablecrypt.keys.column_keys import Mask, ProtectedColumn

SSN = 2
TABLE = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
KEY_OF_SSN = Secret(b"k" * 16)


def declared(key_id: str | None = "pii", mask: str = "null", since: int | None = None, **former: int | None) -> ColumnDeclaration:
    column = None if key_id is None else ProtectedColumn(SSN, key_id, Mask.parse(mask), since)
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
        (declared(), declared("fin", "truncate(3)", 7, other=9), {KEY, MASK, SINCE, FORMER}),
    ],
)
def test_a_protection_is_weaker_in_exactly_these_respects(before: ColumnDeclaration, now: ColumnDeclaration, respects: set[str]) -> None:
    assert weakened(before, now).keys() == respects


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


@pytest.mark.parametrize("missing", ["version", "field-id", "names", "revision", "key-id", "mask", "since", "former"])
def test_a_payload_without_a_part_is_refused(missing: str) -> None:
    payload = {name: value for name, value in json.loads(declared().payload()).items() if name != missing}
    with pytest.raises(FormatError, match="a newer release has written it"):
        ColumnDeclaration.from_payload(json.dumps(payload).encode())
