"""Stored masks: what a file's covers hold of protected columns, made of the values when they are written.

    redact          small letters become x, capital ones X, digits 9; other characters stay
    hash            HMAC-SHA-256 of the UTF-8 text in 64 hexadecimal digits, or of the bytes in 32 bytes
    truncate(n)     the first n characters
    constant(c)     c, in the place of nulls too

Null stays null but for `constant`: whoever must not know which values are null takes that, `null` or `error`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from tablecrypt.crypto.secret import Secret
from tablecrypt.keys.column_keys import ProtectedColumn, constant_of
from tablecrypt.parquet.twin_columns import Replacement


def cover_of(column: ProtectedColumn, schema: Schema, hash_key: Callable[[int], Secret]) -> Replacement | None:
    """Return what makes the masked values of a column; None where the cover is an error cover.

    Args:
        column: its policy.
        schema: of the table, for its name and type.
        hash_key: the key of the column's `hash` mask, by field id.

    Raises:
        ColumnKeyDeniedError, KmsError: the key of the hash cannot be had.
    """
    mask = column.mask
    if not mask.is_stored:
        return None
    if mask.kind == "redact":
        return lambda field, values: _redacted(values).cast(field.type)
    if mask.kind == "truncate":
        return lambda field, values: pc.utf8_slice_codeunits(values, 0, int(mask.argument or 0)).cast(field.type)
    if mask.kind == "hash":
        return partial(_hashed, hash_key(column.field_id))
    name = schema.find_column_name(column.field_id) or str(column.field_id)
    return partial(_constant, constant_of(mask, name, schema.find_type(column.field_id)))


def _redacted(values: pa.Array) -> pa.Array:
    # Of the letters that are left, X is the only capital one: what was one, or was an X before.
    capitals = pc.replace_substring_regex(values, r"\p{Lu}", "X")
    letters = pc.replace_substring_regex(capitals, r"[^\P{L}X]", "x")
    return pc.replace_substring_regex(letters, r"\p{N}", "9")


def _hashed(key: Secret, field: pa.Field, values: pa.Array) -> pa.Array:
    is_text = pa.types.is_string(field.type) or pa.types.is_large_string(field.type) or pa.types.is_string_view(field.type)
    distinct = values.dictionary_encode()
    digests = [_digest(key, each, is_text) for each in distinct.dictionary.to_pylist()]
    return pa.array(digests, field.type).take(distinct.indices)


def _digest(key: Secret, value: Any, is_text: bool) -> str | bytes:
    made = hmac.new(key.reveal(), value.encode() if is_text else value, hashlib.sha256)
    return made.hexdigest() if is_text else made.digest()


def _constant(value: Any, field: pa.Field, values: pa.Array) -> pa.Array:
    return pa.array([value], _storage(field.type)).take(pa.repeat(pa.scalar(0, pa.int64()), len(values))).cast(field.type)


def _storage(kind: pa.DataType) -> pa.DataType:
    """The type that takes a literal of Iceberg's: dates, times and timestamps are whole numbers there."""
    if pa.types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return kind
