"""Masks: what they show, what they keep, and that they match those of ORC's Java writer."""

from __future__ import annotations

import datetime
import decimal
import hashlib
import hmac
import math
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt import orc
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError
from tablecrypt.orc.column_plan import MaskTree, mask_of, mask_table_column
from tablecrypt.orc.masks import from_civil, to_civil
from tests.support.orc_files import EVERY_COLUMN, sample_rows, vector_rows


def applied(mask: Any, values: list[Any], kind: pa.DataType) -> list[Any]:
    masked = mask_of(mask).apply(pa.array(values, kind))
    assert masked.type == kind
    result: list[Any] = masked.to_pylist()
    return result


def masked_column(name: str, mask: Any, rows: pa.Table) -> pa.ChunkedArray:
    return mask_table_column(rows[name], MaskTree(mask_of(mask)), name)


def test_sha256_is_upper_case_hexadecimal_of_the_utf8() -> None:
    assert applied("sha256", ["ä", None, ""], pa.string()) == [
        hashlib.sha256("ä".encode()).hexdigest().upper(),
        None,
        hashlib.sha256(b"").hexdigest().upper(),
    ]
    assert applied("sha256", [b"x", None], pa.binary()) == [hashlib.sha256(b"x").digest(), None]


def test_sha256_is_what_java_wrote() -> None:
    rows = vector_rows("flat_zlib")["email"].to_pylist()
    assert applied("sha256", rows, pa.string()) == vector_rows("flat_zlib", "masked")["email"].to_pylist()


def test_a_keyed_hash_is_hmac_sha256_and_needs_its_key() -> None:
    key = b"0123456789abcdef"
    for given_key in (key, Secret(key)):
        assert applied(orc.KeyedHash(given_key), ["u1@example.org", None], pa.string()) == [
            hmac.digest(key, b"u1@example.org", "sha256").hex().upper(),
            None,
        ]
    assert applied(orc.KeyedHash(b"1" * 16), ["a"], pa.string()) != applied(orc.KeyedHash(b"2" * 16), ["a"], pa.string())
    with pytest.raises(ConfigurationError, match="16 bytes or more"):
        orc.KeyedHash(b"short")


@pytest.mark.parametrize("key", [bytes(32), bytearray(16), Secret(bytes(16))])
def test_no_value_is_hashed_under_zeros(key: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^the key of a keyed hash is all zeros, which everybody can guess: make one with"):
        orc.KeyedHash(key)


def test_hashes_leave_no_number_beside_text() -> None:
    rows = pa.table({"home": [{"zip": "1", "lat": 2.5}]})
    masked = masked_column("home", "sha256", rows).to_pylist()
    assert masked == [{"zip": hashlib.sha256(b"1").hexdigest().upper(), "lat": None}]


@pytest.mark.parametrize(
    ("mask", "text", "wanted"),
    [
        ("redact", "Ada-7 ß", "Xxx.9 x"),
        ("redact", "Ünï 中 ١ ½ € ́ \t", "Xxx ª 9 ² $ ः ۝"),
        ("redact,Yy1", "Ab 12.", "Yy 11."),
        ("redact,__0", "Ab 12", "Ab 00"),
        (orc.Redact(unmasked="0:2"), "123-45-6789", "123.99.9999"),
        (orc.Redact(unmasked="-4:-1"), "123-45-6789", "999.99.6789"),
        (orc.Redact(unmasked="0:0,-1:-1"), "secret", "sxxxxt"),
        ("redact,Xx9,,0:0", "secret", "sxxxxx"),
    ],
)
def test_redact_replaces_characters_by_their_category(mask: Any, text: str, wanted: str) -> None:
    assert applied(mask, [text, None], pa.string()) == [wanted, None]


@pytest.mark.parametrize(
    ("mask", "number", "wanted"),
    [
        ("redact", 0, 9),
        ("redact", 1234, 9999),
        ("redact", -12, -99),
        ("redact", 2**63 - 1, 999_999_999_999_999_999),
        ("redact", -(2**63), -999_999_999_999_999_999),
        ("redact,Xx3", 2**63 - 1, 3_333_333_333_333_333_333),
        ("redact,Xx0", -77, 0),
        ("redact,Xx_", -77, -77),
        ("redact,Xxx", 77, 99),
        ("redact,Xx७", 77, 77),
        (orc.Redact(unmasked="0:1"), 12345, 12999),
        (orc.Redact(unmasked="-1:-1"), 12345, 99995),
    ],
)
def test_redact_replaces_digits_of_integers(mask: Any, number: int, wanted: int) -> None:
    assert applied(mask, [number, None], pa.int64()) == [wanted, None]


def test_redacted_integers_wrap_around_as_in_java() -> None:
    assert applied("redact", [5, 55, 127], pa.int8()) == [9, 99, -25]
    assert applied("redact", [12345], pa.int16()) == [-31073]
    assert applied("redact", [2**31 - 1], pa.int32()) == [1410065407]


@pytest.mark.parametrize(
    ("number", "wanted"),
    [(0.0, 9.99999), (1.0, 9.99999), (123.4, 999.999), (-0.05, -0.0999999), (1e308, 9.99999e307), (5e-324, 9.99999e-308)],
)
def test_redact_keeps_the_power_of_ten_of_floats(number: float, wanted: float) -> None:
    assert applied("redact", [number, None], pa.float64()) == [pytest.approx(wanted, rel=1e-12), None]


def test_redact_has_an_answer_for_every_float() -> None:
    for number in (math.nan, math.inf, -math.inf):
        assert math.isfinite(applied("redact", [number], pa.float64())[0])
    assert applied("redact,Xx0", [math.nan, 5.0], pa.float64()) == [0.0, 0.0]
    assert applied(orc.Redact(unmasked="0:0"), [12.5], pa.float64()) == [19.9]


def test_redact_replaces_digits_of_decimals_without_trailing_zeros() -> None:
    values = [decimal.Decimal(text) for text in ("0.00", "12.50", "-123.45", "100.00")]
    wanted = [decimal.Decimal(text) for text in ("9.00", "99.90", "-999.99", "999.00")]
    assert applied("redact", values, pa.decimal128(12, 2)) == wanted
    long = decimal.Decimal("1" * 30 + "." + "1" * 8)
    assert applied("redact", [long], pa.decimal128(38, 8)) == [decimal.Decimal("9" * 30 + "." + "9" * 8)]


@given(st.integers(1, 38).flatmap(lambda digits: st.tuples(st.just(digits), st.integers(0, digits))), st.data())
def test_redact_has_an_answer_for_every_decimal_and_null_where_its_type_has_no_room(type_of: tuple[int, int], data: st.DataObject) -> None:
    precision, scale = type_of
    unscaled = data.draw(st.lists(st.integers(-(10**precision) + 1, 10**precision - 1), min_size=1, max_size=5))
    values = [decimal.Decimal(f"{number}e-{scale}") for number in unscaled]
    kind = pa.decimal128(precision, scale)
    # Before the point there is a nine at least, and a type of fractions alone has no digit there.
    assert [value is None for value in applied("redact", values, kind)] == [precision == scale] * len(values)
    assert applied("redact,Xx0", values, kind) == [decimal.Decimal(0)] * len(values)


def test_redact_of_moments_whose_year_begins_before_those_of_their_type_is_null() -> None:
    first, last = (pa.scalar(number, pa.int64()).cast(pa.timestamp("ns")) for number in (-(2**63) + 1, 2**63 - 1))
    masked = mask_of("redact").apply(pa.array([first, last]))
    assert masked.equals(pa.array([None, datetime.datetime(2262, 1, 1)], pa.timestamp("ns")))


def test_redact_of_booleans_says_nothing() -> None:
    assert applied("redact", [True, False, None], pa.bool_()) == [True, True, None]
    assert applied("redact,Xx0", [True, False, None], pa.bool_()) == [False, False, None]
    assert applied("redact", [b"x", None], pa.binary()) == [None, None]


def test_redact_moves_dates_to_the_first_of_january() -> None:
    day = datetime.date(2020, 5, 17)
    assert applied("redact", [day, None], pa.date32()) == [datetime.date(2020, 1, 1), None]
    assert applied(orc.Redact(time="2000 _ _"), [day], pa.date32()) == [datetime.date(2000, 5, 17)]
    assert applied(orc.Redact(time="_ 2 _"), [datetime.date(2021, 3, 31)], pa.date32()) == [datetime.date(2021, 3, 3)]
    assert applied("redact", [day], pa.date64()) == [datetime.date(2020, 1, 1)]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_redact_moves_times_to_midnight_without_fraction(unit: str) -> None:
    kind = pa.timestamp(unit)
    moment = datetime.datetime(1969, 5, 17, 13, 14, 15)
    masked = mask_of("redact").apply(pa.array([moment], kind))
    assert masked.equals(pa.array([datetime.datetime(1969, 1, 1)], kind))
    kept = mask_of(orc.Redact(time="_ _ _ _ _ 0")).apply(pa.array([moment], kind))
    assert kept.equals(pa.array([moment.replace(second=0)], kind))


def test_redact_can_keep_everything() -> None:
    moments = pa.array([datetime.datetime(2020, 5, 17, 1, 2, 3, 4)], pa.timestamp("us"))
    assert mask_of(orc.Redact(time="_ _ _ _ _ _")).apply(moments).equals(moments)


@given(st.integers(-(10**7), 10**7))
def test_civil_dates_are_those_of_the_calendar(days: int) -> None:
    year, month, day = to_civil(days)
    assert from_civil(year, month, day) == days
    if 1 <= year <= 9999:
        assert datetime.date(1970, 1, 1).toordinal() + days == datetime.date(year, month, day).toordinal()


@pytest.mark.parametrize(
    "mask",
    [
        lambda: orc.Redact("12345678901"),
        lambda: orc.Redact(time="_ 13"),
        lambda: orc.Redact(time="_ 0"),
        lambda: orc.Redact(time="x"),
        lambda: orc.Redact(time="1 1 1 1 1 1 1"),
        lambda: orc.Redact(time="٣"),
        lambda: orc.Redact(unmasked="1"),
        lambda: orc.Redact(unmasked="1:2,"),
        lambda: mask_of("nullify,x"),
        lambda: mask_of(""),
    ],
)
def test_parameters_that_mean_nothing_are_refused(mask: Any) -> None:
    with pytest.raises(ConfigurationError):
        mask()


HASHES: Final = ("sha256", orc.KeyedHash(b"k" * 16))
WITH_TEXT: Final = ("text", "raw", "home", "tags", "attrs")


@pytest.mark.parametrize(
    ("mask", "column"),
    [
        *((mask, column) for mask in ("nullify", "redact") for column in EVERY_COLUMN),
        *((mask, column) for mask in HASHES for column in WITH_TEXT),
    ],
    ids=str,
)
def test_masks_keep_type_length_and_nulls(mask: Any, column: str) -> None:
    rows = sample_rows(60).slice(5, 40)
    masked = masked_column(column, mask, rows)
    masked.validate(full=True)
    assert masked.type == rows[column].type
    assert len(masked) == 40
    for before, after in zip(rows[column].to_pylist(), masked.to_pylist(), strict=True):
        assert before is not None or after is None


@pytest.mark.parametrize("mask", HASHES, ids=str)
def test_a_hash_of_what_has_no_text_is_refused(mask: Any) -> None:
    for column in set(EVERY_COLUMN) - set(WITH_TEXT):
        with pytest.raises(ConfigurationError, match=column):
            masked_column(column, mask, sample_rows(3))


def test_masks_below_a_column_override_its_own_unless_it_is_nullified() -> None:
    rows = pa.table({"home": [{"zip": "A1", "city": "Bern"}, None]})
    tree = MaskTree(mask_of("redact"))
    tree.add(["zip"], mask_of("nullify"))
    assert mask_table_column(rows["home"], tree, "home").to_pylist() == [{"zip": None, "city": "Xxxx"}, None]
    tree.mask = mask_of("nullify")
    tree.add(["zip"], mask_of("redact"))
    assert mask_table_column(rows["home"], tree, "home").to_pylist() == [None, None]
