"""What stored masks are made of values: the same of each value, whatever stands beside it, and of a slice as of the whole.

The adversary reads the masks. A character that a quicker way leaves as it is would show them a part of a value.
"""

from __future__ import annotations

import hashlib
import hmac
import unicodedata

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, NestedField, StringType

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import FormatError
from tablecrypt.keys.column_keys import ColumnMask, ProtectedColumn
from tablecrypt.table.protection.stored_masks import replacement_of

SCHEMA = Schema(NestedField(1, "text", StringType()), NestedField(2, "bytes", BinaryType()))
KEY = b"k" * 32
TEXTS = st.lists(st.none() | st.text(st.sampled_from("az AZ09-@éÉßǅ日٣Ⅷ½𝐀𝟗\x00–€ा\u0301\u0e31\u200d\ue000\u2028"), max_size=6), max_size=8)
KINDS = st.sampled_from([pa.string(), pa.large_string()])


def masked(values: pa.Array, mask: str, field_id: int = 1) -> pa.Array:
    make = replacement_of(ProtectedColumn(field_id, "pii", ColumnMask.parse(mask)), SCHEMA, lambda _: Secret(KEY))
    assert make is not None
    made = make(pa.field("column", values.type), values)
    made.validate(full=True)
    return made


def redacted(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Lu":
        return "X"
    if category[0] == "N":
        return "9"
    return character if category[0] in "PSZ" or (category == "Cc" and character.isascii()) else "x"


@given(TEXTS, KINDS, st.integers(0, 8))
def test_each_character_is_redacted_by_what_it_is(values: list[str | None], kind: pa.DataType, start: int) -> None:
    expected = [None if value is None else "".join(map(redacted, value)) for value in values]
    assert masked(pa.array(values, kind).slice(start), "redact").to_pylist() == expected[start:]


@pytest.mark.parametrize("letter", ["\U00010d50", "\U000105c0"], ids=["Garay", "Todhri"])
def test_a_letter_that_is_newer_than_arrow_does_not_stay(letter: str) -> None:
    assert masked(pa.array([f"{letter}-1"]), "redact").to_pylist() == ["x-9"]


@pytest.mark.parametrize("mask", ["redact", "truncate(3)", "hash"])
def test_text_that_is_not_utf_8_is_refused_and_not_stored(mask: str) -> None:
    name = "Иванов Иван".encode("cp1251")
    column = pa.array([name], pa.binary()).buffers()

    with pytest.raises(FormatError, match="not UTF-8"):
        masked(pa.Array.from_buffers(pa.string(), 1, [None, *column[1:]]), mask)


@given(TEXTS, KINDS, st.integers(0, 8))
def test_a_hash_is_the_hmac_of_the_text(values: list[str | None], kind: pa.DataType, start: int) -> None:
    expected = [None if value is None else hmac.new(KEY, value.encode(), hashlib.sha256).hexdigest() for value in values]
    assert masked(pa.array(values, kind).slice(start), "hash").to_pylist() == expected[start:]


@pytest.mark.parametrize("values", [[], [None], [b"", b"\xff", None, b"\xff"]])
def test_a_hash_of_bytes_is_the_hmac_of_them(values: list[bytes | None]) -> None:
    expected = [None if value is None else hmac.new(KEY, value, hashlib.sha256).digest() for value in values]
    assert masked(pa.array(values, pa.binary()), "hash", 2).to_pylist() == expected
