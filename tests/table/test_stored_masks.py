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
from tablecrypt.keys.column_keys import ColumnMask, ProtectedColumn
from tablecrypt.table.protection.stored_masks import replacement_of

SCHEMA = Schema(NestedField(1, "text", StringType()), NestedField(2, "bytes", BinaryType()))
KEY = b"k" * 32
TEXTS = st.lists(st.none() | st.text(st.sampled_from("az AZ09-@éÉßǅ日٣Ⅷ½𝐀𝟗\x00"), max_size=6), max_size=8)
KINDS = st.sampled_from([pa.string(), pa.large_string()])


def masked(values: pa.Array, mask: str, field_id: int = 1) -> pa.Array:
    make = replacement_of(ProtectedColumn(field_id, "pii", ColumnMask(mask)), SCHEMA, lambda _: Secret(KEY))
    assert make is not None
    made = make(pa.field("column", values.type), values)
    made.validate(full=True)
    return made


def redacted(character: str) -> str:
    category = unicodedata.category(character)
    return "X" if category == "Lu" else "x" if category[0] == "L" else "9" if category[0] == "N" else character


@given(TEXTS, KINDS, st.integers(0, 8))
def test_each_character_is_redacted_by_what_it_is(values: list[str | None], kind: pa.DataType, start: int) -> None:
    expected = [None if value is None else "".join(map(redacted, value)) for value in values]
    assert masked(pa.array(values, kind).slice(start), "redact").to_pylist() == expected[start:]


@given(TEXTS, KINDS, st.integers(0, 8))
def test_a_hash_is_the_hmac_of_the_text(values: list[str | None], kind: pa.DataType, start: int) -> None:
    expected = [None if value is None else hmac.new(KEY, value.encode(), hashlib.sha256).hexdigest() for value in values]
    assert masked(pa.array(values, kind).slice(start), "hash").to_pylist() == expected[start:]


@pytest.mark.parametrize("values", [[], [None], [b"", b"\xff", None, b"\xff"]])
def test_a_hash_of_bytes_is_the_hmac_of_them(values: list[bytes | None]) -> None:
    expected = [None if value is None else hmac.new(KEY, value, hashlib.sha256).digest() for value in values]
    assert masked(pa.array(values, pa.binary()), "hash", 2).to_pylist() == expected
