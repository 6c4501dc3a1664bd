"""Masks: what readers without the key of an encrypted column see in its place.

    nullify      every value is null
    redact       letters, digits and dates replaced by fixed ones; the class Redact lists its rules
    sha256       text as the SHA-256 of its UTF-8, in upper-case hexadecimal; bytes as the 32 bytes of their hash
    keyed hash   the same with HMAC-SHA256 under a secret key, without which guesses cannot be checked

A mask keeps the type and the nulls. Below structs, lists and maps it works on each leaf, so the lengths of lists and maps stay visible;
nullify on a struct, list or map nullifies the whole. Hashes have no form for numbers and dates: next to text or bytes such leaves become
null, and a column without any text or bytes is refused, because nullify says better what happens.

sha256 has no key: anyone who guesses a value can check the guess. It is there because ORC has it; for identifiers take the keyed hash.

Raises ConfigurationError. Specification: Apache ORC v1, "Data Masks"; the masks are those of ORC's Java writer.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.types as pt
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from tablecrypt.arguments import checked_arguments
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError

MIN_HASH_KEY_LENGTH: Final = 16

# Years of the calendar are counted from March on here, so that the leap day is the last of its year and months have a regular rhythm:
# 153 days for each five months from March. Python's datetime does not cover all years of ORC.
_DAYS_PER_ERA: Final = 146097  # 400 years
_EPOCH: Final = 719468  # days from 0000-03-01 to 1970-01-01

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


class Mask(ABC):
    """A way to hide values. `name` and `parameters` are written into the file, for information."""

    name: ClassVar[str]

    @property
    def parameters(self) -> tuple[str, ...]:
        return ()

    def check(self, leaf_types: list[pa.DataType], column: str) -> None:  # noqa: B027 - most masks take every type
        """Raise ConfigurationError when the mask makes no sense for a column with these leaves."""

    @abstractmethod
    def apply(self, leaf: pa.Array) -> pa.Array:
        """Return an array of the same type and length. Leaves are arrays of a type that ORC has and that is not nested."""


class Nullify(Mask):
    """Every value is null. The default."""

    name = "nullify"

    def apply(self, leaf: pa.Array) -> pa.Array:
        return pa.nulls(len(leaf), leaf.type)


class _HashMask(Mask):
    def check(self, leaf_types: list[pa.DataType], column: str) -> None:
        if not any(map(_is_hashable, leaf_types)):
            raise ConfigurationError(f"column {column!r} has no text or bytes for {self.name} to hash: mask it with nullify or redact")

    def apply(self, leaf: pa.Array) -> pa.Array:
        if pt.is_binary(leaf.type):
            return map_values(leaf, self.digest)
        if pt.is_string(leaf.type):
            return map_values(leaf, lambda text: self.digest(text.encode()).hex().upper())
        return pa.nulls(len(leaf), leaf.type)

    @abstractmethod
    def digest(self, value: bytes) -> bytes: ...


class Sha256(_HashMask):
    """Has no key: anyone who can list the likely values can find the true ones."""

    name = "sha256"

    def digest(self, value: bytes) -> bytes:
        return hashlib.sha256(value).digest()


class KeyedHash(_HashMask):
    """HMAC-SHA256. Equal values have equal masks in all files under one key, so masked columns can still be joined.

    Args:
        key: 16 bytes or more. Readers do not need it. Keep it: new files need it to match the older ones.
    """

    name: ClassVar[str] = "hmac-sha256"

    @checked_arguments()
    def __init__(self, key: bytes | bytearray | Secret) -> None:
        # With a short key, anyone who knows one value and its mask can try all keys, and then look up every other value.
        if len(key) < MIN_HASH_KEY_LENGTH:
            raise ConfigurationError(f"the key of a keyed hash has {MIN_HASH_KEY_LENGTH} bytes or more, not {len(key)}")
        self.key = key if isinstance(key, Secret) else Secret(bytes(key))
        if self.key.is_zero:
            raise ConfigurationError(
                "the key of a keyed hash is all zeros, which everybody can guess: make one with secrets.token_bytes(32)"
            )
        self._keyed = HMAC(self.key.reveal(), SHA256())

    def digest(self, value: bytes) -> bytes:
        # finalize() ends an HMAC, and a copy costs less than setting the key up again for each value.
        hashing = self._keyed.copy()
        hashing.update(value)
        return hashing.finalize()

    def __repr__(self) -> str:
        return "KeyedHash()"


def map_values(array: pa.Array, change: Callable[[Any], Any]) -> pa.Array:
    """Change each distinct value once, and leave nulls alone."""
    encoded = array.dictionary_encode()
    changed = pa.array([change(value) for value in encoded.dictionary.to_pylist()], array.type)
    return changed.take(encoded.indices)


def _is_hashable(leaf_type: pa.DataType) -> bool:
    return bool(pt.is_string(leaf_type) or pt.is_binary(leaf_type))


@dataclass(frozen=True)
class Redact(Mask):
    """Characters replaced by one of their category, digits by nines, dates by the first of January.

        text       "Ada-7 ß"  → "Xxx.9 x"     each character by the replacement of its Unicode category
        integers   1234       → 9999          as many digits; beyond the type's range it wraps around, as Java's does
        floats     123.4      → 999.999       9.99999 at the value's power of ten
        decimals   12.50      → 99.9          each digit, without trailing zeros
        booleans   true       → true          false where digits are replaced by 0
        dates      2020-05-17 → 2020-01-01    year kept; times likewise to midnight, without fraction
        bytes                 → null

    What the type has no room for becomes null, such as 9.99 where all digits are behind the point. Positions count characters. Times with
    a zone are masked in UTC, and all dates are proleptic Gregorian. The rules are those of ORC's Java RedactMaskFactory.

    Args:
        characters: up to ten replacements, in this order: upper-case letter X, lower-case letter x, digit 9, symbol $, punctuation .,
            separator _, other letter ª, mark ः, other number ², other ۝; "_" keeps the character.
        time: up to six numbers or "_" (keep), separated by spaces: year _, month 1, day 1, hour 0, minute 0, second 0.
        unmasked: ranges of positions that are kept in text and numbers, both ends included, from the end where negative: "0:2,-4:-1".
    """

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
        # ORC has no redacted form of bytes: null is the only answer that shows nothing of them.
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
            masked = _as_long(int(self._numeric_text(str(value))))
            # Nines in place of digits may exceed a long. Java's writer falls back to eighteen digits then.
            return int("1" * 18) * self._digit if masked is None else masked

        digits = len(str(min(abs(value), _LONG_LIMIT)))
        if self._digit == 9:
            # Nineteen nines exceed a long, so Java's writer stops at eighteen.
            digits = min(digits, 18)
        magnitude = int("1" * digits) * self._digit

        return magnitude if value >= 0 else -magnitude

    def double(self, value: float) -> float:
        """Redact one floating-point number. NaN counts as the largest negative number."""
        if self._unmasked_ranges:
            return float(self._numeric_text(repr(value)))
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
        """The number that replaces every digit: the value of the digit's replacement if it has one, else 9."""
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

    def _number_rule(self, kind: pa.DataType) -> Callable[[Any], Any] | None:
        if pt.is_boolean(kind):
            return lambda _: self._digit != 0
        if pt.is_signed_integer(kind):
            return lambda value: _wrap(self.integer(value), kind.bit_width)
        if pt.is_floating(kind):
            return self.double
        return (lambda value: _fitting(self.decimal(value), kind)) if pt.is_decimal(kind) else None

    def _apply_to_times(self, leaf: pa.Array) -> pa.Array:
        if pt.is_date32(leaf.type):
            return map_values(leaf.cast(pa.int32()), self.date).cast(leaf.type)
        units = 10**3 if pt.is_date64(leaf.type) else _UNITS_PER_SECOND[leaf.type.unit]
        # The rule below drops fractions of a second, which a mask that keeps everything must not.
        if self._time_parts == (None,) * len(_TIME_FIELDS):
            return leaf
        return map_values(leaf.cast(pa.int64()), lambda value: _as_long(self.seconds(value // units) * units)).cast(leaf.type)


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
            raise ConfigurationError(f"redact cannot replace the {name} with {given[index]!r}: give a number up to {highest}, or {KEEP!r}")

    if 0 in (parts[1], parts[2]):
        raise ConfigurationError("redact cannot replace a month or day with 0: they begin at 1")

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
    """Wrap an integer around into a signed one of `bits` bits."""
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half


def _as_long(value: int) -> int | None:
    """Return an integer; None where a long has no room for it."""
    return value if -_LONG_LIMIT - 1 <= value <= _LONG_LIMIT else None


def _fitting(value: Decimal, kind: pa.DataType) -> Decimal | None:
    """Return a number; None where its type has fewer digits before the point: Java's writer stores one that is read as another."""
    return value if value.is_zero() or value.adjusted() < kind.precision - kind.scale else None


def to_civil(days: int) -> tuple[int, int, int]:
    """Return year, month (1 to 12) and day (1 to 31) of a day since 1970-01-01."""
    era, day_of_era = divmod(days + _EPOCH, _DAYS_PER_ERA)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9

    return era * 400 + year_of_era + (month <= 2), month, day


def from_civil(year: int, month: int, day: int) -> int:
    """Return days since 1970-01-01. A day beyond its month's end runs on into the next month."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    month_from_march = month - 3 if month > 2 else month + 9
    day_of_year = (153 * month_from_march + 2) // 5 + day - 1
    return era * _DAYS_PER_ERA + 365 * year_of_era + year_of_era // 4 - year_of_era // 100 + day_of_year - _EPOCH
