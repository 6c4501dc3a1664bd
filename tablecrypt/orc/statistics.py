"""Column statistics of the parts of a file, merged into those of the whole file.

    ColumnStatistics   1 values  2 integers  3 doubles  4 strings  5 buckets  6 decimals  7 dates  8 binary  9 timestamps  10 has null
                       11 bytes on disk  12 collections
    integers           1 min  2 max  3 sum           (zigzag)        doubles     1 min  2 max  3 sum  (8 bytes)
    strings            1 min  2 max  3 total length (zigzag)  4 lower bound  5 upper bound, where a value is too long to be stored
    buckets            1 counts                                      decimals    1 min  2 max  3 sum  (text)
    dates              1 min  2 max                  (zigzag)        binary      1 total length (zigzag)
    timestamps         1 min  2 max  3 min UTC  4 max UTC  (zigzag milliseconds)  5, 6 last six digits of min and max in nanoseconds, plus 1
    collections        1 fewest  2 most  3 all children

What one part leaves out (a sum that overflowed, bounds of NaN) the whole leaves out too, unless that part has no values. What is not known
here is left out: statistics may always say less.

Raises FormatError. Specification: Apache ORC v1, "Column Statistics".
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any, Final, Protocol, TypeVar

from tablecrypt.errors import FormatError
from tablecrypt.orc.protobuf import FIXED64, Field, Message, blob_field, encode, integer_field, packed_field

_WHAT: Final = "column statistics"
_VALUES: Final = 1
_HAS_NULL: Final = 10
_BYTES_ON_DISK: Final = 11
_LONG_LIMIT: Final = 2**63 - 1
_DECIMAL_DIGITS: Final = 200
_DOUBLE: Final = struct.Struct("<d")


class _Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


T = TypeVar("T", bound=_Ordered)


def merge_statistics(parts: Sequence[bytes]) -> bytes:
    """Return the ColumnStatistics of one column over all parts."""
    messages = [Message.parse(part, _WHAT) for part in parts]
    fields: list[Field] = [
        integer_field(_VALUES, sum(message.integer(_VALUES) for message in messages)),
        # A part that does not say counts as having nulls: a filter IS NULL must not skip it.
        integer_field(_HAS_NULL, max(message.integer(_HAS_NULL, 1) for message in messages)),
    ]
    sizes = [message.optional_integer(_BYTES_ON_DISK) for message in messages]
    if all(size is not None for size in sizes):
        fields.append(integer_field(_BYTES_ON_DISK, sum(size for size in sizes if size is not None)))
    with_values = [message for message in messages if message.integer(_VALUES)]

    for number, merge in _MERGES.items():
        typed = [message.optional_blob(number) for message in with_values or messages]
        if any(one is None for one in typed):
            continue
        merged = merge([Message.parse(one, _WHAT) for one in typed if one is not None])
        fields += [blob_field(number, encode(merged))] if merged else []

    return encode(fields)


def _merge_integers(parts: list[Message]) -> list[Field]:
    fields = _bounds(parts, _zigzag_of, _zigzag_field)
    return fields + _total(parts, 3, _zigzag_of, _zigzag_field, lambda total: -_LONG_LIMIT - 1 <= total <= _LONG_LIMIT)


def _merge_doubles(parts: list[Message]) -> list[Field]:
    fields = _bounds(parts, _double_of, _double_field)
    return fields + _total(parts, 3, _double_of, _double_field, math.isfinite)


def _merge_strings(parts: list[Message]) -> list[Field]:
    fields: list[Field] = []
    for exact, bound, choose in ((1, 4, min), (2, 5, max)):
        found = [(message.optional_blob(exact), message.optional_blob(bound)) for message in parts]
        values = [exactly if exactly is not None else nearly for exactly, nearly in found]
        if any(value is None for value in values):
            continue
        # One cut-off value makes the result a bound: as an exact minimum it would be returned for MIN().
        is_exact = all(exactly is not None for exactly, _ in found)
        fields.append(blob_field(exact if is_exact else bound, choose(value for value in values if value is not None)))

    return fields + _total(parts, 3, _zigzag_of, _zigzag_field)


def _merge_buckets(parts: list[Message]) -> list[Field]:
    counts = [message.integers(1) for message in parts]
    if len({len(count) for count in counts}) != 1:
        return []
    return [packed_field(1, [sum(column) for column in zip(*counts, strict=True)])]


def _merge_decimals(parts: list[Message]) -> list[Field]:
    with localcontext() as context:
        # Python's default of 28 digits would round the sum of 38-digit numbers.
        context.prec = _DECIMAL_DIGITS
        fields = _bounds(parts, _decimal_of, _decimal_field)
        return fields + _total(parts, 3, _decimal_of, _decimal_field)


def _merge_timestamps(parts: list[Message]) -> list[Field]:
    fields = _bounds(parts, _zigzag_of, _zigzag_field)
    for milliseconds, nanoseconds, choose, default in ((3, 5, min, 0), (4, 6, max, 999_999)):
        # Missing digits widen the range: 0 for the minimum, 999,999 for the maximum.
        moments = [
            (_zigzag_of(message, milliseconds), message.integer(nanoseconds, default + 1))
            for message in parts
            if message.optional_integer(milliseconds) is not None
        ]
        if len(moments) == len(parts):
            moment, digits = choose(moments, key=lambda one: (one[0] or 0, one[1]))
            fields += [_zigzag_field(milliseconds, moment or 0)]
            fields += [integer_field(nanoseconds, digits)] if digits != default + 1 else []

    return fields


def _merge_collections(parts: list[Message]) -> list[Field]:
    bounds = _bounds(parts, Message.optional_integer, integer_field)
    # pyarrow counts no children at all in parts of a few rows, and leaves the bounds out then.
    return bounds + _total(parts, 3, Message.optional_integer, integer_field) if len(bounds) == 2 else []


_MERGES: Final[dict[int, Callable[[list[Message]], list[Field]]]] = {
    2: _merge_integers,
    3: _merge_doubles,
    4: _merge_strings,
    5: _merge_buckets,
    6: _merge_decimals,
    7: lambda parts: _bounds(parts, _zigzag_of, _zigzag_field),
    8: lambda parts: _total(parts, 1, _zigzag_of, _zigzag_field),
    9: _merge_timestamps,
    12: _merge_collections,
}


def _bounds(parts: list[Message], read: Callable[[Message, int], T | None], write: Callable[[int, T], Field]) -> list[Field]:
    fields: list[Field] = []
    for number, choose in ((1, min), (2, max)):
        values = _all_there(read(message, number) for message in parts)
        if values is not None:
            fields.append(write(number, choose(values)))
    return fields


def _total(
    parts: list[Message],
    number: int,
    read: Callable[[Message, int], Any],
    write: Callable[[int, Any], Field],
    fits: Callable[[Any], bool] = lambda _: True,
) -> list[Field]:
    values = _all_there(read(message, number) for message in parts)
    if values is None or not fits(sum(values)):
        return []
    return [write(number, sum(values))]


def _all_there(values: Iterable[T | None]) -> list[T] | None:
    found = list(values)
    there = [value for value in found if value is not None]
    return there if len(there) == len(found) else None


def _zigzag_of(message: Message, number: int) -> int | None:
    value = message.optional_integer(number)
    return None if value is None else (value >> 1) ^ -(value & 1)


def _zigzag_field(number: int, value: int) -> Field:
    return integer_field(number, value << 1 if value >= 0 else (-value << 1) - 1)


def _double_of(message: Message, number: int) -> float | None:
    for field_number, wire, value in message.fields:
        if field_number == number and wire == FIXED64 and isinstance(value, bytes):
            (double,) = _DOUBLE.unpack(value)
            # NaN compares as false with everything: as a bound it would let filters skip rows.
            return None if math.isnan(double) else float(double)
    return None


def _double_field(number: int, value: float) -> Field:
    return (number, FIXED64, _DOUBLE.pack(value))


def _decimal_of(message: Message, number: int) -> Decimal | None:
    texts = message.texts(number)
    if not texts or not texts[-1]:
        return None
    try:
        return Decimal(texts[-1])
    except InvalidOperation as error:
        raise FormatError(f"{_WHAT}: {texts[-1]!r} is not a decimal number") from error


def _decimal_field(number: int, value: Decimal) -> Field:
    text = format(value, "f")
    return blob_field(number, (text.rstrip("0").rstrip(".") if "." in text else text).encode())
