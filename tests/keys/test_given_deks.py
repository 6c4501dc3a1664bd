"""The DEKs of a column in some files: they open these and no other, in the place of a column key, and whoever edits them opens nothing."""

from __future__ import annotations

import pickle
import secrets
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import (
    AuthenticationError,
    ColumnKeyDeniedError,
    ConfigurationError,
    FormatError,
    KeyIdChangedError,
    TablecryptError,
    TamperedFileError,
)
from tablecrypt.keys.column_key_ring import ColumnKeyMaker
from tablecrypt.keys.column_keys import ColumnPolicy, ProtectedColumn, key_id_in, wrap_dek
from tablecrypt.keys.given_deks import FileColumn, GivenDeks
from tablecrypt.keys.key_ring import COLUMN_KEY, GIVEN_DEKS, WRITE_ONLY, EncryptedKey, KeyRing
from tablecrypt.keys.manager import DEFAULT_KEK_LIFESPAN_MS
from tablecrypt.keys.table_column_keys import TableColumnKeys
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.kms.resilient import ResilientKeyManagementClient
from tests.support.bound_schemas import OF_BYTES, OF_TEXT

SSN, SALARY = 2, 3
POLICY = ColumnPolicy.of([ProtectedColumn(SSN, "his-pii"), ProtectedColumn(SALARY, "his-fin")])
KEYS = {"his-orders": b"o" * 32, "his-pii": b"p" * 32, "his-fin": b"f" * 32}
KEY_ID = "c2VjcmV0LWlk"
TABLE = "0c9f3a52-9a4f-4a86-8f61-0d2c7f4be8a1"
DEKS = {name: Secret(name * 16) for name in (b"a", b"b")}


def maker(*without: str) -> ColumnKeyMaker:
    name = f"given-deks {sorted(without)}"
    keys = {key_id: key for key_id, key in KEYS.items() if key_id not in without}
    kms = ResilientKeyManagementClient(MemoryKeyManagementClient({"kms.memory.name": name}, keys))
    return ColumnKeyMaker(kms, "his-orders", 16, DEFAULT_KEK_LIFESPAN_MS, lambda: 1_700_000_000_000, secrets.token_bytes)


def hidden(name: bytes, field_id: int = SSN, key_id: str = KEY_ID) -> FileColumn:
    """The column in the file of that AAD prefix, under the source's column key."""
    made = wrap_dek(key_id, Secret(b"k" * 16), field_id, name, DEKS[name], secrets.token_bytes)
    return FileColumn(field_id, made.key_metadata(OF_TEXT), name, OF_TEXT)


A, B = hidden(b"a"), hidden(b"b")


def opened(ring: KeyRing, column: FileColumn, made: ColumnKeyMaker | None = None) -> bytes:
    keys = TableColumnKeys(made or maker(), POLICY, ring)
    return keys.unwrap(column.field_id, column.key_metadata, column.aad_prefix, column.schema, 1)


@pytest.fixture
def ring() -> KeyRing:
    return KeyRing(maker().given("his-pii", {(SSN, KEY_ID): GivenDeks.of([(A, DEKS[b"a"])])}, TABLE))


def test_the_dek_of_a_given_file_opens_and_that_of_another_does_not(ring: KeyRing) -> None:
    assert opened(ring, A) == DEKS[b"a"].reveal()
    keys = TableColumnKeys(maker(), POLICY, ring)
    for _ in range(2):
        assert keys.unwrap(SSN, A.key_metadata, A.aad_prefix, OF_TEXT, 1) == DEKS[b"a"].reveal()
        with pytest.raises(TamperedFileError, match="not among those that were given") as refused:
            keys.unwrap(SSN, B.key_metadata, B.aad_prefix, OF_TEXT, 1)
        assert refused.value.location == OF_TEXT.location


def test_each_column_has_a_list_of_its_own_and_a_kek_as_long_as_the_table_asks_for(ring: KeyRing) -> None:
    salary = hidden(b"b", SALARY, "c2FsYXJ5LWlk")
    both = ring.with_others(maker().given("his-fin", {(SALARY, "c2FsYXJ5LWlk"): GivenDeks.of([(salary, DEKS[b"b"])])}, TABLE))
    keys = TableColumnKeys(maker(), POLICY, both)

    for _ in range(2):
        assert keys.unwrap(SSN, A.key_metadata, A.aad_prefix, OF_TEXT, 1) == DEKS[b"a"].reveal()
        assert keys.unwrap(SALARY, salary.key_metadata, salary.aad_prefix, OF_TEXT, 1) == DEKS[b"b"].reveal()
    assert [len(maker().open_kek(both, kek, SSN)) for kek in both.column_keks] == [16, 16]
    assert {(each.properties or {})[GIVEN_DEKS] for each in both.column_keys} == {"1"}
    assert {(each.properties or {})[WRITE_ONLY] for each in both.column_keks} == {"1"}


@pytest.mark.parametrize(
    "other",
    [replace(A, aad_prefix=b"b"), replace(A, schema=OF_BYTES), replace(A, key_metadata=A.key_metadata[:-1] + b"\0")],
    ids=["file", "type", "key metadata"],
)
def test_what_the_key_metadata_is_bound_to_is_held(ring: KeyRing, other: FileColumn) -> None:
    with pytest.raises(TamperedFileError):
        opened(ring, other)


def relabelled(entry: EncryptedKey, **marks: str | None) -> EncryptedKey:
    named = {COLUMN_KEY: marks.get("column"), GIVEN_DEKS: marks.get("given")}
    kept = {name: value for name, value in (entry.properties or {}).items() if name not in named}
    return entry.model_copy(update={"properties": {**kept, **{name: value for name, value in named.items() if value is not None}}})


def test_a_list_that_is_said_to_be_another_columns_or_a_column_key_opens_nothing(ring: KeyRing) -> None:
    [kek], [entry] = ring.column_keks, ring.column_keys
    with pytest.raises(KeyIdChangedError):
        opened(KeyRing([kek, relabelled(entry, column=str(SALARY), given="1")]), hidden(b"a", SALARY))
    moved = kek.model_copy(update={"encrypted_by_id": "his-fin"})
    with pytest.raises(TablecryptError):
        opened(KeyRing([moved, relabelled(entry, column=str(SALARY), given="1")]), hidden(b"a", SALARY))
    with pytest.raises(AuthenticationError):
        opened(KeyRing([kek, relabelled(entry, column=str(SSN))]), A)


def test_a_column_key_that_is_said_to_be_a_list_opens_nothing() -> None:
    made = maker()
    own = TableColumnKeys(made, POLICY, KeyRing()).generate([SSN], b"a")[SSN]
    kek, entry = made.pending.new_entries(KeyRing(), [b"a"])
    column = FileColumn(SSN, own.key_metadata(OF_TEXT), b"a", OF_TEXT)
    assert opened(KeyRing([kek, entry]), column) == own.secret

    with pytest.raises(AuthenticationError):
        opened(KeyRing([kek, relabelled(entry, column=str(SSN), given="1")]), column)


def test_who_may_not_use_the_master_key_opens_none(ring: KeyRing) -> None:
    with pytest.raises(ColumnKeyDeniedError):
        opened(ring, A, maker("his-pii"))
    with pytest.raises(ColumnKeyDeniedError):
        TableColumnKeys(maker("his-pii"), POLICY, ring).check_readable([SSN])
    TableColumnKeys(maker(), POLICY, ring).check_readable([SSN])


def test_the_tables_own_master_key_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="own master key"):
        maker().given("his-orders", {}, TABLE)


def test_new_values_go_under_a_key_and_a_kek_that_whoever_gave_the_deks_has_not_seen(ring: KeyRing) -> None:
    made = maker()
    own = TableColumnKeys(made, POLICY, ring).generate([SSN], b"new")[SSN]

    kek, entry = made.pending.new_entries(ring, [b"new"])
    assert key_id_in(own.key_metadata(OF_TEXT)) == entry.key_id != KEY_ID
    assert entry.encrypted_by_id == kek.key_id not in ring


def test_deks_that_were_given_for_another_table_open_nothing_beside_keys_of_this_one(ring: KeyRing) -> None:
    made, here = maker(), "the partner's own table"
    TableColumnKeys(made, POLICY, KeyRing(table_uuid=here)).generate([SSN], b"own")
    brought = KeyRing([*ring.column_keks, *ring.column_keys], table_uuid=here)

    with pytest.raises(TamperedFileError, match=f"made for the table {TABLE}"):
        opened(brought.with_others(made.pending.new_entries(KeyRing(), [b"own"])), A)


def test_a_rotation_puts_the_list_under_a_new_kek(ring: KeyRing) -> None:
    made = maker()
    [entry], new_kek = ring.column_keys, made.new_kek("his-pii")
    rotated = KeyRing([new_kek, made.under(ring, entry, new_kek)])

    assert opened(rotated, A) == DEKS[b"a"].reveal()
    assert rotated.column_keys[0].kind == "list of column DEKs"


def test_no_repr_and_no_pickle_has_a_key() -> None:
    deks = GivenDeks.of([(A, DEKS[b"a"])])
    assert "aaaa" not in repr(deks)
    with pytest.raises(TypeError, match="never pickled"):
        pickle.dumps(deks)


@given(st.dictionaries(st.binary(min_size=16, max_size=16), st.sampled_from([16, 24, 32]).map(secrets.token_bytes), max_size=5))
def test_records_read_as_they_are_written(deks: dict[bytes, bytes]) -> None:
    written = GivenDeks({digest: Secret(dek) for digest, dek in deks.items()})
    assert {digest: dek.reveal() for digest, dek in GivenDeks.decode(written.encode()).deks.items()} == deks


@given(st.binary(max_size=100))
def test_bytes_that_are_no_records_are_refused(content: bytes) -> None:
    try:
        decoded = GivenDeks.decode(Secret(content))
    except FormatError:
        return
    assert len(decoded.encode()) <= len(content)
