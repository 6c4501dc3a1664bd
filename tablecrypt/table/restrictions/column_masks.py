"""Masks of columns: an Arrow array and an action in, the masked array of the same type out.

    mask-alphanum         digits are n, the characters ( ) , . - @ stay, all others are x              string
    show-first-4          the first four code points stay, the rest as mask-alphanum                   string
    show-last-4           the last four stay                                                           string
    mask-to-fixed-value   the fixed value of the type, of null too                                     all but geometry, geography, unknown
    replace-with-null     null                                                                         all types, optional columns
    truncate-to-year      1 January, midnight UTC                                                      date, timestamps
    truncate-to-month     the first of the month, midnight UTC                                         date, timestamps
    sha-256-global        SHA-256: text in lower-case hex, binary as it is, of int and long its first bytes, little-endian
    sha-256-query-local   the same over a random salt of the query and the value                       string, int, long, binary

Null stays null, but for mask-to-fixed-value.

Iceberg REST catalog specification, `ReadRestrictions`, `Action`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tablecrypt._arrow_types import checked_utf8, null_values
from tablecrypt.errors import ReadRestrictionError

LEAST_SALT: Final = 16
"""Bytes that a query's salt has at least."""

_KEPT: Final = 4
_FIXED_TEXT: Final = "XXXXXXXX"


class MaskAction(Enum):
    """What is done to a column; the values are those of the specification."""

    MASK_ALPHANUM = "mask-alphanum"
    SHOW_FIRST_4 = "show-first-4"
    SHOW_LAST_4 = "show-last-4"
    MASK_TO_FIXED_VALUE = "mask-to-fixed-value"
    REPLACE_WITH_NULL = "replace-with-null"
    TRUNCATE_TO_YEAR = "truncate-to-year"
    TRUNCATE_TO_MONTH = "truncate-to-month"
    SHA_256_GLOBAL = "sha-256-global"
    SHA_256_QUERY_LOCAL = "sha-256-query-local"


_TEXT: Final = (StringType,)
_TEMPORAL: Final = (DateType, TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)
_HASHED: Final = (StringType, IntegerType, LongType, BinaryType)
_WITH_FIXED_VALUE: Final = (
    *(BooleanType, IntegerType, LongType, FloatType, DoubleType, DecimalType, StringType, TimeType),
    *(UUIDType, FixedType, BinaryType, ListType, MapType, *_TEMPORAL),
)
_TYPES: Final[dict[MaskAction, tuple[type[IcebergType], ...]]] = {
    MaskAction.MASK_ALPHANUM: _TEXT,
    MaskAction.SHOW_FIRST_4: _TEXT,
    MaskAction.SHOW_LAST_4: _TEXT,
    MaskAction.TRUNCATE_TO_YEAR: _TEMPORAL,
    MaskAction.TRUNCATE_TO_MONTH: _TEMPORAL,
    MaskAction.SHA_256_GLOBAL: _HASHED,
    MaskAction.SHA_256_QUERY_LOCAL: _HASHED,
}


def takes(action: MaskAction, kind: IcebergType, required: bool) -> bool:
    """Whether an action may be applied to a column of a type.

    Args:
        required: whether the column is never null.
    """
    if action == MaskAction.REPLACE_WITH_NULL:
        return not required
    if action == MaskAction.MASK_TO_FIXED_VALUE:
        return _has_fixed_value(kind)
    return isinstance(kind, _TYPES[action])


def mask_column(column: pa.Array, action: MaskAction, salt: bytes) -> pa.Array:
    """Return a column masked: as long as it was, and of the same type.

    Args:
        column: of a type that the action takes (see `takes`).
        salt: the query's, for sha-256-query-local; at least 16 random bytes.

    Raises:
        ReadRestrictionError: a value or the salt cannot be used.
        FormatError: text that is not UTF-8, which cannot be masked character by character.
    """
    if action == MaskAction.REPLACE_WITH_NULL:
        return null_values(column.type, len(column))
    if action == MaskAction.MASK_TO_FIXED_VALUE:
        return _repeated(_fixed_value(column.type), len(column))
    if action in (MaskAction.TRUNCATE_TO_YEAR, MaskAction.TRUNCATE_TO_MONTH):
        return _truncated(column, "year" if action == MaskAction.TRUNCATE_TO_YEAR else "month")
    if action == MaskAction.SHA_256_GLOBAL:
        return _hashed(column, b"")
    if action == MaskAction.SHA_256_QUERY_LOCAL:
        # Without a secret salt this would be sha-256-global: equal in every query, and open to anyone who guesses values.
        if len(salt) < LEAST_SALT:
            raise ReadRestrictionError(f"{action.value} needs a salt of {LEAST_SALT} bytes at least, and has {len(salt)}")
        return _hashed(column, salt)

    return _masked_text(column, action)


def _masked_text(column: pa.Array, action: MaskAction) -> pa.Array:
    text = checked_utf8(column.cast(pa.large_string()))
    if action == MaskAction.SHOW_FIRST_4:
        masked = _joined(pc.utf8_slice_codeunits(text, 0, _KEPT), _without_characters(pc.utf8_slice_codeunits(text, _KEPT)))
    elif action == MaskAction.SHOW_LAST_4:
        masked = _joined(_without_characters(pc.utf8_slice_codeunits(text, 0, -_KEPT)), pc.utf8_slice_codeunits(text, -_KEPT))
    else:
        masked = _without_characters(text)

    return masked.cast(column.type)


def _without_characters(text: pa.Array) -> pa.Array:
    letters = pc.replace_substring_regex(text, r"[^0-9(),.\-@]", "x")
    return pc.replace_substring_regex(letters, "[0-9]", "n")


def _joined(first: pa.Array, second: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(first, second, pa.scalar("", pa.large_string()))


def _truncated(column: pa.Array, unit: str) -> pa.Array:
    kind = column.type
    # Without its time zone a timestamp is the UTC one, in which the specification truncates.
    values = column.view(pa.timestamp(kind.unit)) if pt.is_timestamp(kind) else column
    truncated = pc.floor_temporal(values, unit=unit)
    # Arrow wraps around below the first value of the type, and would show a time far in the future.
    if pc.any(pc.greater(truncated, values)).as_py():
        raise ReadRestrictionError(f"a value of the first {unit} that its type holds cannot be truncated to the beginning of that {unit}")
    return truncated.view(kind)


def _hashed(column: pa.Array, salt: bytes) -> pa.Array:
    kind = column.type
    encode, decode = _codec(kind)
    distinct = checked_utf8(column).dictionary_encode()
    digests = [decode(hashlib.sha256(salt + encode(value)).digest()) for value in distinct.dictionary.to_pylist()]
    return pa.array(digests, kind).take(distinct.indices)


def _codec(kind: pa.DataType) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    if pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind):
        return str.encode, bytes.hex

    if pt.is_integer(kind):
        width = kind.bit_width // 8
        return (
            lambda value: value.to_bytes(width, "little", signed=True),
            lambda digest: int.from_bytes(digest[:width], "little", signed=True),
        )

    return bytes, bytes


def _has_fixed_value(kind: IcebergType) -> bool:
    if isinstance(kind, StructType):
        return all(_has_fixed_value(field.field_type) for field in kind.fields)
    return isinstance(kind, _WITH_FIXED_VALUE)


def _repeated(one: pa.Array, length: int) -> pa.Array:
    return one.take(pa.repeat(pa.scalar(0, pa.int64()), length))


def _fixed_value(kind: pa.DataType) -> pa.Array:
    """Return an array of the one fixed value of a type."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _fixed_value(kind.storage_type))
    if pt.is_struct(kind):
        return pa.StructArray.from_arrays([_fixed_value(field.type) for field in kind], fields=list(kind))
    if pt.is_fixed_size_binary(kind):
        return pa.array([bytes(kind.byte_width)], kind)

    return pa.array([_plain_fixed_value(kind)], kind)


def _plain_fixed_value(kind: pa.DataType) -> object:
    if pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind):
        return _FIXED_TEXT
    if pt.is_nested(kind):
        return []
    if pt.is_boolean(kind):
        return False
    return b"" if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_binary_view(kind) else 0
