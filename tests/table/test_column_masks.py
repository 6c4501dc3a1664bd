"""Masks of columns: the values that the specification gives, every type, null, and what cannot be masked."""

from __future__ import annotations

import datetime as dt
import hashlib
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StringType, StructType

from tablecrypt.errors import FormatError, ReadRestrictionError
from tablecrypt.table.restrictions.column_masks import MaskAction, mask_column, takes

TEXT = {MaskAction.MASK_ALPHANUM, MaskAction.SHOW_FIRST_4, MaskAction.SHOW_LAST_4}
HASHES = {MaskAction.SHA_256_GLOBAL, MaskAction.SHA_256_QUERY_LOCAL}
TRUNCATIONS = {MaskAction.TRUNCATE_TO_YEAR, MaskAction.TRUNCATE_TO_MONTH}
ALWAYS = {MaskAction.MASK_TO_FIXED_VALUE, MaskAction.REPLACE_WITH_NULL}
SALT = bytes(range(16))


def masked(values: list[Any], kind: pa.DataType, action: MaskAction, salt: bytes = b"") -> list[Any]:
    column = mask_column(pa.array(values, kind), action, salt)
    column.validate(full=True)
    assert column.type == kind
    found: list[Any] = column.to_pylist()
    return found


@pytest.mark.parametrize(
    ("action", "given", "expected"),
    [
        (MaskAction.MASK_ALPHANUM, "prashant010696@gmail.com", "xxxxxxxxnnnnnn@xxxxx.xxx"),
        (MaskAction.MASK_ALPHANUM, "(555) 123-4567", "(nnn)xnnn-nnnn"),
        (MaskAction.MASK_ALPHANUM, "a.b,c\n\t٣ é😀_", "x.x,xxxxxxxx"),
        (MaskAction.MASK_ALPHANUM, "", ""),
        (MaskAction.SHOW_FIRST_4, "prashant010696@gmail.com", "prasxxxxnnnnnn@xxxxx.xxx"),
        (MaskAction.SHOW_FIRST_4, "aé😀b5", "aé😀bn"),
        (MaskAction.SHOW_FIRST_4, "ab12", "ab12"),
        (MaskAction.SHOW_FIRST_4, "", ""),
        (MaskAction.SHOW_LAST_4, "4111-1111-1111-4444", "nnnn-nnnn-nnnn-4444"),
        (MaskAction.SHOW_LAST_4, "5aé😀b", "naé😀b"),
        (MaskAction.SHOW_LAST_4, "a1", "a1"),
    ],
)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_text_is_masked_by_code_points_as_the_specification_says(action: MaskAction, given: str, expected: str, kind: pa.DataType) -> None:
    assert masked([given, None], kind, action) == [expected, None]


def _alphanum(text: str) -> str:
    return "".join("n" if each in "0123456789" else each if each in "(),.-@" else "x" for each in text)


@given(st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=12), max_size=8))
def test_any_text_is_masked_character_by_character(values: list[str | None]) -> None:
    assert masked(values, pa.string(), MaskAction.MASK_ALPHANUM) == [None if each is None else _alphanum(each) for each in values]
    assert masked(values, pa.string(), MaskAction.SHOW_FIRST_4) == [
        None if each is None else each[:4] + _alphanum(each[4:]) for each in values
    ]
    assert masked(values, pa.string(), MaskAction.SHOW_LAST_4) == [
        None if each is None else _alphanum(each[:-4]) + each[-4:] for each in values
    ]


@pytest.mark.parametrize("action", sorted(TEXT | HASHES, key=str))
def test_text_that_is_not_utf_8_is_refused_and_not_shown(action: MaskAction) -> None:
    column = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\6\0\0\0"), pa.py_buffer(b"ab\xff\xfecd")])

    with pytest.raises(FormatError, match="not UTF-8"):
        mask_column(column, action, salt=bytes(16))


@pytest.mark.parametrize(
    ("kind", "value", "fixed"),
    [
        (pa.bool_(), True, False),
        (pa.int32(), 7, 0),
        (pa.int64(), 7, 0),
        (pa.float32(), 1.5, 0.0),
        (pa.float64(), 1.5, 0.0),
        (pa.decimal128(9, 2), Decimal("12.34"), Decimal("0.00")),
        (pa.string(), "secret", "XXXXXXXX"),
        (pa.large_string(), "secret", "XXXXXXXX"),
        (pa.date32(), dt.date(2024, 7, 15), dt.date(1970, 1, 1)),
        (pa.time64("us"), dt.time(1, 2, 3), dt.time(0)),
        (pa.timestamp("us"), dt.datetime(2024, 7, 15, 3), dt.datetime(1970, 1, 1)),
        (pa.timestamp("us", "UTC"), dt.datetime(2024, 7, 15, tzinfo=dt.UTC), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
        (pa.binary(3), b"abc", b"\0\0\0"),
        (pa.binary(), b"abc", b""),
        (pa.large_binary(), b"abc", b""),
        (pa.list_(pa.int64()), [1, 2], []),
        (pa.large_list(pa.string()), ["a"], []),
        (pa.map_(pa.string(), pa.int32()), [("a", 1)], []),
        (
            pa.struct([("text", pa.string()), ("pair", pa.struct([("number", pa.int32()), ("many", pa.list_(pa.int32()))]))]),
            {"text": "a", "pair": {"number": 4, "many": [1]}},
            {"text": "XXXXXXXX", "pair": {"number": 0, "many": []}},
        ),
    ],
    ids=str,
)
def test_a_fixed_value_takes_the_place_of_every_value_and_of_null(kind: pa.DataType, value: Any, fixed: Any) -> None:
    assert masked([value, None], kind, MaskAction.MASK_TO_FIXED_VALUE) == [fixed, fixed]
    assert masked([], kind, MaskAction.MASK_TO_FIXED_VALUE) == []


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.timestamp("ns", "UTC")], ids=str)
def test_the_fixed_value_of_nanoseconds_is_1970(kind: pa.DataType) -> None:
    column = mask_column(pa.array([5, None], kind), MaskAction.MASK_TO_FIXED_VALUE, b"")

    assert column.view(pa.int64()).to_pylist() == [0, 0]


def test_the_fixed_value_of_a_uuid_is_all_zero() -> None:
    column = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([uuid.uuid4().bytes, None], pa.binary(16)))

    assert mask_column(column, MaskAction.MASK_TO_FIXED_VALUE, b"").to_pylist() == [uuid.UUID(int=0)] * 2


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.struct([("a", pa.int32())]), pa.list_(pa.string())], ids=str)
def test_null_takes_the_place_of_everything(kind: pa.DataType) -> None:
    column = mask_column(pa.nulls(3, kind), MaskAction.REPLACE_WITH_NULL, b"")

    assert (column.type, column.to_pylist()) == (kind, [None] * 3)


@pytest.mark.parametrize(
    ("kind", "value", "year", "month"),
    [
        (pa.date32(), dt.date(2024, 7, 15), dt.date(2024, 1, 1), dt.date(2024, 7, 1)),
        (pa.date32(), dt.date(1969, 12, 31), dt.date(1969, 1, 1), dt.date(1969, 12, 1)),
        (pa.date32(), dt.date(1, 2, 3), dt.date(1, 1, 1), dt.date(1, 2, 1)),
        (pa.timestamp("us"), dt.datetime(2024, 7, 15, 13, 45, 30, 1), dt.datetime(2024, 1, 1), dt.datetime(2024, 7, 1)),
        (pa.timestamp("us"), dt.datetime(1969, 7, 15, 23), dt.datetime(1969, 1, 1), dt.datetime(1969, 7, 1)),
    ],
    ids=str,
)
def test_dates_are_truncated_to_the_year_and_to_the_month(kind: pa.DataType, value: Any, year: Any, month: Any) -> None:
    assert masked([value, None], kind, MaskAction.TRUNCATE_TO_YEAR) == [year, None]
    assert masked([value, None], kind, MaskAction.TRUNCATE_TO_MONTH) == [month, None]


@pytest.mark.parametrize(("unit", "second"), [("us", 10**6), ("ns", 10**9)])
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_timestamps_with_a_time_zone_are_truncated_in_utc(unit: str, second: int, zone: str | None) -> None:
    early = int(dt.datetime(2024, 1, 1, 0, 30, tzinfo=dt.UTC).timestamp()) * second + 1
    start = int(dt.datetime(2024, 1, 1, tzinfo=dt.UTC).timestamp()) * second
    column = pa.array([early, None], pa.timestamp(unit, zone))

    for action in TRUNCATIONS:
        assert mask_column(column, action, b"").view(pa.int64()).to_pylist() == [start, None]


def test_a_value_whose_year_begins_before_its_type_does_is_refused() -> None:
    with pytest.raises(ReadRestrictionError, match="cannot be truncated"):
        mask_column(pa.array([-(2**63) + 1], pa.timestamp("ns")), MaskAction.TRUNCATE_TO_YEAR, b"")


@pytest.mark.parametrize("salt", [b"", SALT], ids=["global", "local"])
@pytest.mark.parametrize(
    ("kind", "value", "encoded"),
    [
        (pa.string(), "hello é", "hello é".encode()),
        (pa.large_string(), "", b""),
        (pa.int32(), -2, b"\xfe\xff\xff\xff"),
        (pa.int64(), 258, b"\2\1\0\0\0\0\0\0"),
        (pa.binary(), b"\0\1", b"\0\1"),
    ],
    ids=str,
)
def test_hashes_are_of_the_encoding_that_the_specification_names(kind: pa.DataType, value: Any, encoded: bytes, salt: bytes) -> None:
    action = MaskAction.SHA_256_QUERY_LOCAL if salt else MaskAction.SHA_256_GLOBAL
    digest = hashlib.sha256(salt + encoded).digest()
    expected: Any = digest.hex() if isinstance(value, str) else digest
    if isinstance(value, int):
        expected = int.from_bytes(digest[: kind.bit_width // 8], "little", signed=True)

    assert masked([value, None, value], kind, action, salt) == [expected, None, expected]


def test_the_global_hash_of_hello_is_known() -> None:
    digest = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"

    assert masked(["hello"], pa.string(), MaskAction.SHA_256_GLOBAL) == [digest]


def test_a_local_hash_without_16_bytes_of_salt_is_refused() -> None:
    with pytest.raises(ReadRestrictionError, match="16 bytes"):
        mask_column(pa.array(["a"]), MaskAction.SHA_256_QUERY_LOCAL, bytes(15))


@pytest.mark.parametrize("action", list(MaskAction), ids=str)
def test_a_slice_is_masked_as_the_values_that_it_shows(action: MaskAction) -> None:
    kind = pa.date32() if action in TRUNCATIONS else pa.string()
    values: list[Any] = [dt.date(2020, 5, day) for day in range(1, 9)] if action in TRUNCATIONS else [f"abcdef{each}" for each in range(8)]
    column = pa.array(values, kind)

    assert mask_column(column.slice(3, 4), action, SALT).to_pylist() == mask_column(column, action, SALT).to_pylist()[3:7]


@pytest.mark.parametrize(
    ("kind", "actions"),
    [
        ("boolean", ALWAYS),
        ("int", ALWAYS | HASHES),
        ("long", ALWAYS | HASHES),
        ("float", ALWAYS),
        ("double", ALWAYS),
        ("decimal(9, 2)", ALWAYS),
        ("string", ALWAYS | HASHES | TEXT),
        ("date", ALWAYS | TRUNCATIONS),
        ("time", ALWAYS),
        ("timestamp", ALWAYS | TRUNCATIONS),
        ("timestamptz", ALWAYS | TRUNCATIONS),
        ("timestamp_ns", ALWAYS | TRUNCATIONS),
        ("timestamptz_ns", ALWAYS | TRUNCATIONS),
        ("uuid", ALWAYS),
        ("fixed[3]", ALWAYS),
        ("binary", ALWAYS | HASHES),
        (ListType(2, StringType()), ALWAYS),
        (MapType(2, StringType(), 3, StringType()), ALWAYS),
        (StructType(NestedField(2, "a", "int")), ALWAYS),
        (StructType(NestedField(2, "a", "unknown")), {MaskAction.REPLACE_WITH_NULL}),
        ("unknown", {MaskAction.REPLACE_WITH_NULL}),
    ],
    # The order of a set differs between the processes of one run, and they must agree on every name.
    ids=lambda each: "" if isinstance(each, set) else str(each),
)
def test_an_action_takes_the_types_that_the_specification_lists_and_no_other(kind: IcebergType | str, actions: set[MaskAction]) -> None:
    of_column = NestedField(1, "value", kind).field_type
    assert {action for action in MaskAction if takes(action, of_column, required=False)} == actions
    assert {action for action in MaskAction if takes(action, of_column, required=True)} == actions - {MaskAction.REPLACE_WITH_NULL}
