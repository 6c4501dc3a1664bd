"""Z-values: numbers by which rows lie near each other that are near in each of several columns.

A Z-value takes 64 bits of each column, most significant first, and interleaves them:

    integers, dates, times     the value, with its sign bit turned
    floats, decimals           IEEE 754 double, all bits of negative ones turned, else the sign bit
    booleans                   0 or 1, as the highest bit
    strings, binary            the first 8 bytes
    null                       0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tablecrypt.errors import ConfigurationError

_BITS: Final = 64
_SIGN: Final = 1 << 63
_PREFIX: Final = 8


def z_values(columns: Sequence[pa.ChunkedArray | pa.Array]) -> list[pa.ChunkedArray | pa.Array]:
    """Return Z-values as as many columns of int64 as are given, to be compared one after the other.

    Raises:
        ConfigurationError: a column is of a type without a Z-value, such as a struct.
    """
    words = [_ordered_bits(column) for column in columns]
    bits = [(word, bit) for bit in reversed(range(_BITS)) for word in words]
    return [_signed(_word(bits[at : at + _BITS])) for at in range(0, len(bits), _BITS)]


def _word(bits: Sequence[tuple[pa.Array, int]]) -> pa.Array:
    """Return the 64-bit number of some bits, each of one number and its position there."""
    result = None
    for position, (number, bit) in zip(reversed(range(_BITS)), bits, strict=True):
        one = pc.bit_wise_and(pc.shift_right(number, _uint64(bit)), _uint64(1))
        shifted = pc.shift_left(one, _uint64(position))
        result = shifted if result is None else pc.bit_wise_or(result, shifted)
    return result


def _ordered_bits(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return numbers of 64 bits without a sign that compare as the values do."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = values.type
    if pa.types.is_boolean(kind):
        bits = pc.shift_left(values.cast(pa.uint64()), _uint64(_BITS - 1))
    elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        number = values.cast(pa.float64())
        raw = number.view(pa.uint64())
        bits = pc.if_else(pc.less(number.view(pa.int64()), 0), pc.bit_wise_not(raw), pc.bit_wise_xor(raw, _uint64(_SIGN)))
    elif pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        # Arrow does not cast date32 to int64 in one step.
        number = values.cast(pa.int32()).cast(pa.int64()) if pa.types.is_date32(kind) else values.cast(pa.int64())
        bits = pc.bit_wise_xor(number.view(pa.uint64()), _uint64(_SIGN))
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        # Arrow cannot read the first bytes of a value as a number.
        prefixes = (None if value is None else _bytes(value)[:_PREFIX].ljust(_PREFIX, b"\0") for value in values.to_pylist())
        bits = pa.array([None if prefix is None else int.from_bytes(prefix) for prefix in prefixes], pa.uint64())
    else:
        raise ConfigurationError(f"a column of type {kind} cannot be part of a Z-order: sort by other columns")

    return pc.fill_null(bits, _uint64(0))


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _signed(word: pa.Array) -> pa.Array:
    return pc.bit_wise_xor(word, _uint64(_SIGN)).view(pa.int64())


def _uint64(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.uint64())
