"""The redact mask: characters by one of their category, digits by nines, dates by the first of January.

    text       "Ada-7 ß"  → "Xxx.9 x"     each character by the replacement of its Unicode category
    integers   1234       → 9999          as many digits; beyond the type's range it wraps around, as Java's does
    floats     123.4      → 999.999       9.99999 at the value's power of ten
    decimals   12.50      → 99.9          each digit, without trailing zeros
    booleans   true       → true          false where digits are replaced by 0
    dates      2020-05-17 → 2020-01-01    year kept; times likewise to midnight, without fraction
    bytes                 → null

Parameters, as in ORC:
    characters  up to ten replacements, in this order: upper-case letter X, lower-case letter x, digit 9, symbol $, punctuation .,
                separator _, other letter ª, mark ः, other number ², other ۝; "_" keeps the character
    time        up to six numbers or "_" (keep), separated by spaces: year _, month 1, day 1, hour 0, minute 0, second 0
    unmasked    ranges of positions that are kept in text and numbers, both ends included, from the end where negative: "0:2,-4:-1"

Positions count characters. Times with a zone are masked in UTC, and all dates are proleptic Gregorian.

Raises ConfigurationError for parameters that mean nothing. Specification: Apache ORC v1, "Data Masks"; ORC's Java RedactMaskFactory.
"""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.types as pt

from tablecrypt.errors import ConfigurationError
from tablecrypt.orc.civil_date import from_civil, to_civil
from tablecrypt.orc.masks import Mask, map_values

KEEP: Final = "_"
_DEFAULT_CHARACTERS: Final = "Xx9$._ªः²۝"
_CATEGORIES: Final = {
    "Lu": 0,
    "Ll": 1,
    "Nd": 2,
    "Lt": 6,
    "Lm": 6,
    "Lo": 6,
    "Nl": 8,
    "No": 8,
    **dict.fromkeys(("Sm", "Sc", "Sk", "So"), 3),
    **dict.fromkeys(("Pd", "Ps", "Pe", "Pc", "Po", "Pi", "Pf"), 4),
    **dict.fromkeys(("Zs", "Zl", "Zp"), 5),
    **dict.fromkeys(("Mn", "Me", "Mc"), 7),
}
_OTHER: Final = 9
_DIGIT: Final = 2

_TIME_FIELDS: Final = (("year", None, 4000), ("month", 1, 12), ("day", 1, 31), ("hour", 0, 23), ("minute", 0, 59), ("second", 0, 59))
_RANGE: Final = re.compile(r"\s*(-?\d{1,9})\s*:\s*(-?\d{1,9})\s*")

_POWERS_OF_TEN: Final = [float(f"1e{exponent}") for exponent in range(-308, 308)]
_LONG_LIMIT: Final = 2**63 - 1
_SECONDS_PER_DAY: Final = 24 * 60 * 60
_UNITS_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True)
class Redact(Mask):
    """Hides text and numbers but keeps their shape; the module's first lines explain the parameters."""

    characters: str = ""
    time: str = ""
    unmasked: str = ""
    name: ClassVar[str] = "redact"

    def __post_init__(self) -> None:
        if len(self.characters) > len(_DEFAULT_CHARACTERS):
            raise ConfigurationError(f"redact takes up to {len(_DEFAULT_CHARACTERS)} replacement characters, not {len(self.characters)}")
        _time_replacements(self.time)
        _ranges(self.unmasked)

    @property
    def parameters(self) -> tuple[str, ...]:
        given = [self.characters, self.time, self.unmasked]
        while given and not given[-1]:
            given.pop()
        return tuple(given)

    def apply(self, leaf: pa.Array) -> pa.Array:
        kind = leaf.type
        if pt.is_string(kind):
            return map_values(leaf, self.text)
        if pt.is_date(kind) or pt.is_timestamp(kind):
            return self._apply_to_times(leaf)
        rule = self._number_rule(kind)
        if rule is None:
            return pa.nulls(len(leaf), kind)
        return leaf if self._replacements[_DIGIT] == KEEP else map_values(leaf, rule)

    def text(self, value: str) -> str:
        """Redact one string."""
        return "".join(
            character if self._is_kept(index, len(value)) else self._replacement(character) for index, character in enumerate(value)
        )

    def integer(self, value: int) -> int:
        """Redact one integer, before it wraps around in its type."""
        if self._unmasked_ranges:
            masked = int(self._numeric_text(str(value)))
            return masked if -_LONG_LIMIT - 1 <= masked <= _LONG_LIMIT else int("1" * 18) * self._digit
        digits = len(str(min(abs(value), _LONG_LIMIT)))
        if self._digit == 9:
            digits = min(digits, 18)
        magnitude = int("1" * digits) * self._digit
        return magnitude if value >= 0 else -magnitude

    def double(self, value: float) -> float:
        """Redact one floating-point number. What is not a number counts as the largest negative one."""
        if self._unmasked_ranges:
            return self._double_with_kept_digits(value)
        if value == 0 or self._digit == 0:
            return self._digit * 1.11111
        base = 1.11111 if value > 0 else -1.11111
        index = len(_POWERS_OF_TEN) - 1 if math.isnan(value) else max(0, bisect_right(_POWERS_OF_TEN, abs(value)) - 1)
        return self._digit * base * _POWERS_OF_TEN[index]

    def decimal(self, value: Decimal) -> Decimal:
        """Redact one decimal number."""
        text = format(value, "f")
        if "." in text:
            text = text.rstrip("0").rstrip(".")
        return Decimal(self._numeric_text(text))

    def date(self, days: int) -> int:
        """Redact one date, in days since 1970-01-01."""
        year, month, day = to_civil(days)
        new_year, new_month, new_day = self._time_parts[:3]
        return from_civil(
            year if new_year is None else new_year, month if new_month is None else new_month, day if new_day is None else new_day
        )

    def seconds(self, value: int) -> int:
        """Redact one time, in seconds since 1970-01-01 00:00:00."""
        days, second_of_day = divmod(value, _SECONDS_PER_DAY)
        hour, minute, second = second_of_day // 3600, second_of_day // 60 % 60, second_of_day % 60
        new_hour, new_minute, new_second = self._time_parts[3:]
        hour = hour if new_hour is None else new_hour
        minute = minute if new_minute is None else new_minute
        second = second if new_second is None else new_second
        return self.date(days) * _SECONDS_PER_DAY + hour * 3600 + minute * 60 + second

    @cached_property
    def _replacements(self) -> str:
        return self.characters + _DEFAULT_CHARACTERS[len(self.characters) :]

    @cached_property
    def _time_parts(self) -> tuple[int | None, ...]:
        return _time_replacements(self.time)

    @cached_property
    def _unmasked_ranges(self) -> tuple[tuple[int, int], ...]:
        return _ranges(self.unmasked)

    @cached_property
    def _digit(self) -> int:
        """The number that stands for every digit: the value of the digit's replacement if it has one, else 9."""
        value = unicodedata.numeric(self._replacements[_DIGIT], -1)
        return int(value) if value in range(10) else 9

    def _replacement(self, character: str) -> str:
        replacement = self._replacements[_CATEGORIES.get(unicodedata.category(character), _OTHER)]
        return character if replacement == KEEP else replacement

    def _is_kept(self, index: int, length: int) -> bool:
        return any(_from_end(start, length) <= index <= _from_end(end, length) for start, end in self._unmasked_ranges)

    def _numeric_text(self, text: str) -> str:
        digit = str(self._digit)
        return "".join(
            digit if character.isdecimal() and not self._is_kept(index, len(text)) else character for index, character in enumerate(text)
        )

    def _double_with_kept_digits(self, value: float) -> float:
        return float(self._numeric_text(repr(value)))

    def _number_rule(self, kind: pa.DataType) -> Callable[[Any], Any] | None:
        if pt.is_boolean(kind):
            return lambda _: self._digit != 0
        if pt.is_signed_integer(kind):
            return lambda value: _wrap(self.integer(value), kind.bit_width)
        if pt.is_floating(kind):
            return self.double
        return self.decimal if pt.is_decimal(kind) else None

    def _apply_to_times(self, leaf: pa.Array) -> pa.Array:
        if pt.is_date32(leaf.type):
            return map_values(leaf.cast(pa.int32()), self.date).cast(leaf.type)
        units = 10**3 if pt.is_date64(leaf.type) else _UNITS_PER_SECOND[leaf.type.unit]
        if self._time_parts == (None,) * len(_TIME_FIELDS):
            return leaf
        return map_values(leaf.cast(pa.int64()), lambda value: self.seconds(value // units) * units).cast(leaf.type)


def _time_replacements(time: str) -> tuple[int | None, ...]:
    given = re.findall(r"\w+", time)
    if len(given) > len(_TIME_FIELDS):
        raise ConfigurationError(f"redact takes up to {len(_TIME_FIELDS)} time replacements, not {len(given)}")
    parts: list[int | None] = []
    for index, (name, default, highest) in enumerate(_TIME_FIELDS):
        if index >= len(given):
            parts.append(default)
        elif given[index] == KEEP:
            parts.append(None)
        elif given[index].isascii() and given[index].isdecimal() and len(given[index]) <= 4 and int(given[index]) <= highest:
            parts.append(int(given[index]))
        else:
            raise ConfigurationError(f"redact cannot replace the {name} by {given[index]!r}: give a number up to {highest}, or {KEEP!r}")
    if 0 in (parts[1], parts[2]):
        raise ConfigurationError("redact cannot replace a month or day by 0: they begin at 1")
    return tuple(parts)


def _ranges(unmasked: str) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for part in unmasked.split(",") if unmasked.strip() else []:
        matched = _RANGE.fullmatch(part)
        if matched is None:
            raise ConfigurationError(f"redact cannot keep the positions {part!r}: a range is start:end, for instance 0:2 or -4:-1")
        found.append((int(matched[1]), int(matched[2])))
    return tuple(found)


def _from_end(position: int, length: int) -> int:
    return position if position >= 0 else length + position


def _wrap(value: int, bits: int) -> int:
    """Cut an integer to a signed one of so many bits."""
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half
