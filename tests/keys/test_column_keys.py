"""What properties say of protected columns, and the key metadata of a column in a file."""

from __future__ import annotations

import pickle
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, DecimalType, ListType, LongType, MapType, NestedField, StringType, StructType

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, ColumnKeyDeniedError, ConfigurationError, FormatError, TamperedFileError
from tablecrypt.keys.column_keys import ColumnMask, ColumnPolicy, ProtectedColumn, constant_of, key_id_in, unwrap_dek, wrap_dek
from tablecrypt.keys.former_keys import FormerKey
from tablecrypt.keys.nested_columns import ancestors, covering
from tests.support.bound_schemas import OF_BYTES, OF_TEXT, unbound_key_metadata

KEY_ID = "c2VjcmV0LWlk"
PREFIX = b"p" * 16
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "ssn", StringType()),
    NestedField(3, "salary", DecimalType(9, 2)),
    NestedField(4, "person", StructType(NestedField(5, "email", StringType()), NestedField(6, "age", LongType()))),
    NestedField(7, "phones", ListType(8, StringType())),
    NestedField(9, "notes", MapType(10, StringType(), 11, StructType(NestedField(12, "text", StringType())))),
    NestedField(13, "photo", BinaryType()),
)


def wrapped(field_id: int = 2, prefix: bytes = PREFIX, key: Secret | None = None, length: int = 16) -> bytes:
    dek = Secret(secrets.token_bytes(length))
    return wrap_dek(KEY_ID, key or Secret(b"k" * 16), field_id, prefix, dek, secrets.token_bytes).key_metadata(OF_TEXT)


masks = st.one_of(
    st.sampled_from(["null", "error", "redact", "hash"]).map(ColumnMask),
    st.integers(1, 64).map(lambda length: ColumnMask("truncate", length)),
    st.text().map(lambda text: ColumnMask("constant", text)),
)
field_ids = st.integers(1, 2**31 - 1)
sequence_numbers = st.none() | st.integers(0, 10**18 - 1)
columns = st.builds(ProtectedColumn, field_ids, st.text(min_size=1), masks, sequence_numbers)
former_keys = st.dictionaries(field_ids, st.builds(FormerKey, st.text(min_size=1), sequence_numbers), max_size=3)


@given(st.lists(columns, unique_by=lambda column: column.field_id), former_keys)
def test_what_properties_say_is_what_was_written_into_them(protected: list[ProtectedColumn], former: dict[int, FormerKey]) -> None:
    policy = ColumnPolicy.of(protected, former)
    assert ColumnPolicy.from_properties({"owner": "a", **policy.to_properties()}) == policy
    assert bool(policy) is bool(protected)


@given(masks)
def test_a_mask_reads_as_it_is_written(mask: ColumnMask) -> None:
    assert ColumnMask.parse(str(mask)) == mask


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nullify",
        "null()",
        "redact(1)",
        "truncate",
        "truncate()",
        "truncate(0)",
        "truncate(65)",
        "truncate(-1)",
        "truncate(१)",
        "constant",
    ],
)
def test_what_is_no_mask_is_refused_with_a_list_of_those_that_are(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"truncate\(n\)"):
        ColumnMask.parse(text)


@pytest.mark.parametrize(
    ("mask", "field_id"),
    [
        ("redact", 3),
        ("redact", 4),
        ("truncate(3)", 1),
        ("truncate(3)", 13),
        ("hash", 3),
        ("hash", 7),
        ("constant(x)", 1),
        ("constant(x)", 4),
        ("constant(x)", 13),
    ],
)
def test_a_mask_that_a_type_cannot_have_is_refused(mask: str, field_id: int) -> None:
    policy = ColumnPolicy.of([ProtectedColumn(field_id, "pii", ColumnMask.parse(mask))])
    with pytest.raises(ConfigurationError, match=r"cannot be masked|no value of the type"):
        policy.check(SCHEMA, "orders")


@pytest.mark.parametrize(
    ("mask", "field_id"),
    [("redact", 2), ("hash", 13), ("truncate(3)", 5), ("null", 4), ("error", 9), ("constant(0.00)", 3), ("constant()", 2)],
)
def test_a_mask_that_a_type_can_have_is_taken(mask: str, field_id: int) -> None:
    ColumnPolicy.of([ProtectedColumn(field_id, "pii", ColumnMask.parse(mask))]).check(SCHEMA, "orders")


def test_a_constant_is_a_value_of_the_column() -> None:
    assert constant_of(ColumnMask("constant", "-7"), "id", LongType()) == -7
    for each in (BinaryType(), SCHEMA.find_type(4)):
        with pytest.raises(ConfigurationError, match="cannot be masked by a constant"):
            constant_of(ColumnMask("constant", "x"), "photo", each)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"encryption.column.2.mask": "null"}, "without a key"),
        ({"encryption.column.2.key-id": ""}, "no master key"),
        ({"encryption.column.0.key-id": "pii"}, "not the id of a column"),
        ({"encryption.column.02.key-id": "pii"}, "not a property of a column"),
        ({"encryption.column.2147483648.key-id": "pii"}, "not the id of a column"),
        ({"encryption.column.ssn.key-id": "pii"}, "not a property of a column"),
        ({"encryption.column-keys": "pii: ssn"}, "another engine has set"),
        ({"encryption.column-mask.ssn": "hash"}, "another engine has set"),
    ],
)
def test_properties_that_protect_nothing_are_refused_and_not_passed_over(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ColumnPolicy.from_properties(properties, SCHEMA)


def test_the_tables_own_master_key_protects_no_column_from_its_readers() -> None:
    with pytest.raises(ConfigurationError, match="table's own master key"):
        ColumnPolicy.of([ProtectedColumn(2, "orders")]).check(SCHEMA, "orders")


def test_a_column_behind_one_that_the_schema_lacks_is_checked_too() -> None:
    policy = ColumnPolicy({99: ProtectedColumn(99, "pii"), 2: ProtectedColumn(2, "orders")})
    with pytest.raises(ConfigurationError, match="column 'ssn' is to be under 'orders'"):
        policy.check(SCHEMA, "orders")


@pytest.mark.parametrize("field_id", [8, 10, 11, 12])
def test_a_part_of_a_list_or_map_is_protected_with_the_whole_alone(field_id: int) -> None:
    with pytest.raises(ConfigurationError, match="as a whole"):
        ColumnPolicy.of([ProtectedColumn(field_id, "pii")]).check(SCHEMA, "orders")


def test_a_column_and_its_part_are_not_both_protected() -> None:
    with pytest.raises(ConfigurationError, match="leave one of the two out"):
        ColumnPolicy.of([ProtectedColumn(4, "pii"), ProtectedColumn(5, "pii")]).check(SCHEMA, "orders")


def test_a_schema_leaves_out_columns_that_it_does_not_have() -> None:
    policy = ColumnPolicy.of([ProtectedColumn(2, "pii"), ProtectedColumn(99, "pii")])
    assert list(ColumnPolicy.from_properties(policy.to_properties(), SCHEMA).columns) == [2]
    policy.check(SCHEMA, "orders")


def test_ancestors_are_the_structs_lists_and_maps_around_a_column() -> None:
    assert [ancestors(SCHEMA, field_id) for field_id in (2, 5, 8, 12)] == [(), (4,), (7,), (11, 9)]


def test_what_lies_in_a_column_is_covered_by_it_and_the_innermost_counts() -> None:
    assert covering({5: "email", 7: "phones", 9: "notes", 11: "values", 99: "dropped"}, SCHEMA) == {
        5: "email",
        **dict.fromkeys((7, 8), "phones"),
        **dict.fromkeys((9, 10), "notes"),
        **dict.fromkeys((11, 12), "values"),
    }
    assert covering({}, SCHEMA) == {}


@given(field_id=st.integers(1, 2**31 - 1), prefix=st.binary(min_size=1, max_size=40), length=st.sampled_from([16, 24, 32]))
def test_the_key_that_is_wrapped_for_a_file_is_the_one_that_opens(field_id: int, prefix: bytes, length: int) -> None:
    key = Secret(b"k" * 32)
    made = wrap_dek(KEY_ID, key, field_id, prefix, Secret(secrets.token_bytes(length)), secrets.token_bytes)
    stored = made.key_metadata(OF_TEXT)
    assert made.column_key_id == key_id_in(stored) == KEY_ID
    assert unwrap_dek(key, field_id, stored, prefix, OF_TEXT) == made.secret
    assert made.secret not in stored
    assert made.key_metadata(OF_TEXT) != stored, "each has a nonce of its own"


@pytest.mark.parametrize(
    ("key", "field_id", "prefix"),
    [(b"j" * 16, 2, PREFIX), (b"k" * 16, 3, PREFIX), (b"k" * 16, 2, b"q" * 16), (b"k" * 16, 2, PREFIX + b"p")],
)
def test_a_key_of_another_column_file_or_table_does_not_open(key: bytes, field_id: int, prefix: bytes) -> None:
    with pytest.raises(AuthenticationError, match="another file or column"):
        unwrap_dek(Secret(key), field_id, wrapped(), prefix, OF_TEXT)


@given(at=st.integers(0, 200), flip=st.integers(1, 255))
def test_a_changed_byte_anywhere_is_noticed(at: int, flip: int) -> None:
    stored = bytearray(wrapped())
    stored[at % len(stored)] ^= flip
    with pytest.raises((AuthenticationError, FormatError)):
        unwrap_dek(Secret(b"k" * 16), 2, bytes(stored), PREFIX, OF_TEXT)


@given(st.binary(max_size=80))
def test_bytes_that_are_no_key_metadata_are_refused(data: bytes) -> None:
    with pytest.raises((AuthenticationError, FormatError)):
        unwrap_dek(Secret(b"k" * 16), 2, data, PREFIX, OF_TEXT)


@pytest.mark.parametrize(("key_id", "length"), [("", 44), (KEY_ID, 43), (KEY_ID, 0)], ids=["no key id", "a byte less", "no DEK"])
def test_key_metadata_without_a_key_id_or_a_whole_dek_is_refused(key_id: str, length: int) -> None:
    stored = bytes([2, len(key_id)]) + key_id.encode() + bytes(length)
    with pytest.raises(FormatError, match=f"ends with {length} bytes"):
        unwrap_dek(Secret(b"k" * 16), 2, stored, PREFIX, OF_TEXT)


def test_beside_another_schema_of_the_column_it_does_not_open() -> None:
    with pytest.raises(TamperedFileError, match=r"s3://lake/file\.parquet.*type of the column"):
        unwrap_dek(Secret(b"k" * 16), 2, wrapped(), PREFIX, OF_BYTES)


def unbound() -> bytes:
    return unbound_key_metadata(KEY_ID, Secret(b"k" * 16), 2, PREFIX, b"d" * 16)


def test_version_1_opens_beside_what_the_table_says_of_the_column_alone() -> None:
    column = NestedField(2, "ssn", StringType())
    opened = unwrap_dek(Secret(b"k" * 16), 2, unbound(), PREFIX, OF_TEXT, lambda field_id: [column])
    assert opened == b"d" * 16
    with pytest.raises(TamperedFileError, match="another type"):
        unwrap_dek(Secret(b"k" * 16), 2, unbound(), PREFIX, OF_BYTES, lambda field_id: [column])
    with pytest.raises(TamperedFileError, match="another type"):
        unwrap_dek(Secret(b"k" * 16), 2, unbound(), PREFIX, OF_TEXT)


@pytest.mark.parametrize(("stored", "version"), [(wrapped(), 1), (unbound(), 2)], ids=["2 as 1", "1 as 2"])
def test_one_version_is_not_made_of_the_other(stored: bytes, version: int) -> None:
    column = NestedField(2, "ssn", StringType())
    with pytest.raises(TamperedFileError, match="was changed"):
        unwrap_dek(Secret(b"k" * 16), 2, bytes([version]) + stored[1:], PREFIX, OF_TEXT, lambda field_id: [column])


def test_another_layout_version_is_named() -> None:
    with pytest.raises(FormatError, match="layout version 3"):
        key_id_in(b"\x03" + wrapped()[1:])


def test_a_file_without_an_aad_prefix_gets_no_column_key() -> None:
    with pytest.raises(ConfigurationError, match="AAD prefix"):
        wrapped(prefix=b"")


def test_a_column_key_shows_no_key_byte_and_is_not_pickled() -> None:
    made = wrap_dek(KEY_ID, Secret(b"k" * 16), 2, PREFIX, Secret(b"\xabSECRET-SECRET-X"), secrets.token_bytes)
    assert "SECRET" not in repr(made)
    with pytest.raises(TypeError, match="never pickled"):
        pickle.dumps(made)


def test_the_refusal_of_a_column_key_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(ColumnKeyDeniedError(8, "pii", "no permission")))
    assert (error.field_id, error.column_key_id, error.retryable) == (8, "pii", False)
    assert "column with field id 8" in str(error)
    assert "'pii'" in str(error)
    assert "no permission" in str(error)


@pytest.mark.parametrize("text", ["blank", "redacted", "truncate(0)", "null(1)"])
def test_an_unknown_mask_is_said_as_it_was_written(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        ColumnMask.parse(text)
    assert str(refused.value).startswith(f"unknown mask '{text}'; use null, error, redact, hash, truncate(n) with n from 1 to ")
