"""Stored masks: what a file's placeholders hold of protected columns, made of the values when they are written.

    redact          capital letters become X, digits 9; punctuation, symbols and spaces stay; all other characters become x
    hash            HMAC-SHA-256 of the UTF-8 text in 64 hexadecimal digits, or of the bytes in 32 bytes
    truncate(n)     the first n characters
    constant(c)     c, in the place of nulls too

Null stays null but for `constant`: whoever must not know which values are null takes that, `null` or `error`.

The other way round, `are_masks` says whether values that somebody stored under the table's key look like masks. It can be wrong: a column
may have values like that. What masking would not have changed is no mask.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import partial
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from tablecrypt._arrow_types import checked_utf8
from tablecrypt.crypto.secret import Secret
from tablecrypt.keys.column_keys import ProtectedColumn, constant_of
from tablecrypt.keys.nested_columns import name_or_id
from tablecrypt.parquet.protected.hidden_arrays import Replacement
from tablecrypt.table._pyiceberg.arrow import stored_as

_REDACTED: Final = bytes.maketrans(
    (ascii_lowercase + ascii_uppercase + digits).encode(), b"x" * len(ascii_lowercase) + b"X" * len(ascii_uppercase) + b"9" * len(digits)
)
"""Bytes of ASCII, and what stands for each: the same bytes in other characters of UTF-8 are none of these."""


def replacement_of(column: ProtectedColumn, schema: Schema, hash_key: Callable[[int], Secret]) -> Replacement | None:
    """Return what makes the masked values of a column; None where the placeholder is an error placeholder.

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
        return lambda field, values: _redacted(checked_utf8(values)).cast(field.type)
    if mask.kind == "truncate":
        # Characters, despite the name: none is cut in two.
        return lambda field, values: pc.utf8_slice_codeunits(checked_utf8(values), 0, int(mask.argument or 0)).cast(field.type)
    if mask.kind == "hash":
        return partial(_hashed, hash_key(column.field_id))

    return partial(_constant, *_constant_in(column, schema))


def are_masks(column: ProtectedColumn, schema: Schema, values: Iterable[pa.ChunkedArray]) -> bool:
    """Whether a column's values are all what its mask shows in place of values.

    Args:
        column: its policy.
        schema: of the table, for its name and type.
        values: all of them, in parts. Reading ends with the first part that has others.

    Raises: what the reading of values raises.
    """
    tells = False
    for part in values:
        fits, part_tells = _compared(column, schema, part)
        if not fits:
            return False
        tells = tells or part_tells

    # Values that fit and would be the same without masking, such as short texts, prove nothing.
    return tells


def _compared(column: ProtectedColumn, schema: Schema, values: pa.ChunkedArray) -> tuple[bool, bool]:
    """Whether the mask could have made these values, and whether one of them need not be what it was."""
    mask, known = column.mask, values.drop_null()
    if not mask.is_stored:
        return not len(known), bool(len(values))
    if mask.kind == "constant":
        constant = _constant(*_constant_in(column, schema), pa.field("", values.type), values)
        return _all(pc.equal(values, constant)), bool(len(values))
    if mask.kind == "redact":
        redacted = pa.chunked_array([_redacted(chunk) for chunk in known.chunks], known.type)
        return _all(pc.equal(known, redacted)), _any(pc.match_substring_regex(known, "[xX9]"))
    if mask.kind == "truncate":
        longest = pc.max(pc.utf8_length(known)).as_py() or 0
        return longest <= int(mask.argument or 0), longest == mask.argument
    if pa.types.is_binary(known.type) or pa.types.is_large_binary(known.type):
        return _all(pc.equal(pc.binary_length(known), hashlib.sha256().digest_size)), bool(len(known))

    return _all(pc.match_substring_regex(known, "^[0-9a-f]{64}$")), bool(len(known))


def _all(conditions: pa.ChunkedArray) -> bool:
    """Whether every condition is true. Null counts as false; an empty array is true."""
    return pc.all(pc.fill_null(conditions, False)).as_py() is not False


def _any(conditions: pa.ChunkedArray) -> bool:
    return bool(pc.any(conditions).as_py())


def _redacted(values: pa.Array) -> pa.Array:
    redacted = _redacted_bytes(values)
    others = pc.fill_null(pc.invert(pc.string_is_ascii(values)), False)
    # Arrow replaces character by character, which takes some hundred times as long.
    return redacted if not others.true_count else pc.replace_with_mask(redacted, others, _redacted_characters(values.filter(others)))


def _redacted_bytes(values: pa.Array) -> pa.Array:
    # A copy, so that of a slice nothing else is looked at.
    copied = pa.concat_arrays([values])
    validity, ends, text = copied.buffers()
    return pa.Array.from_buffers(copied.type, len(copied), [validity, ends, pa.py_buffer(text.to_pybytes().translate(_REDACTED))])


def _redacted_characters(values: pa.Array) -> pa.Array:
    capitals = pc.replace_substring_regex(values, r"\p{Lu}", "X")
    digits_too = pc.replace_substring_regex(capitals, r"\p{N}", "9")
    # By what stays: marks are vowels in many scripts, and the letters of newer ones are unknown to Arrow.
    return pc.replace_substring_regex(digits_too, r"[a-z]|[^\x00-\x7F\p{P}\p{S}\p{Z}]", "x")


def _hashed(key: Secret, field: pa.Field, values: pa.Array) -> pa.Array:
    is_text = pa.types.is_string(field.type) or pa.types.is_large_string(field.type) or pa.types.is_string_view(field.type)
    # Python computes the HMACs, so each distinct value is hashed once, and the key for all of them.
    distinct, keyed = checked_utf8(values).dictionary_encode(), HMAC(key.reveal(), SHA256())
    digests = [_digest(keyed, each, is_text) for each in distinct.dictionary.to_pylist()]
    return pa.array(digests, field.type).take(distinct.indices)


def _digest(keyed: HMAC, value: Any, is_text: bool) -> str | bytes:
    made = keyed.copy()
    made.update(value.encode() if is_text else value)
    return made.finalize().hex() if is_text else made.finalize()


def _constant_in(column: ProtectedColumn, schema: Schema) -> tuple[Any, pa.DataType]:
    """Return the constant of a column's mask as PyIceberg holds it, and the Arrow type of the table's column."""
    name, kind = name_or_id(schema, column.field_id), schema.find_type(column.field_id)
    return constant_of(column.mask, name, kind), schema_to_pyarrow(kind, include_field_ids=False)


def _constant(value: Any, kind: pa.DataType, field: pa.Field, values: pa.Array) -> pa.Array:
    # Iceberg's literals are whole numbers where they are dates and times. A file may have the table's column in a shorter type, or in
    # other units of time.
    one = pa.array([value], stored_as(kind)).cast(kind).cast(field.type)
    return one.take(pa.repeat(pa.scalar(0, pa.int64()), len(values)))
