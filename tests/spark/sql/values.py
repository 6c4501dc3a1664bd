"""The types of the model's columns: what values they take, how SQL spells these, and how they order in Spark.

Spark orders NaN above every number and equal to itself; a null is neither equal nor unequal to anything.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any, Final

from tests.support.plaintext import CANARY

NULLS: Final = 0.12


@dataclass(frozen=True)
class Kind:
    """One type: its SQL, a value that is not null, and the SQL literal of a value."""

    sql: str
    draw: Callable[[Random], Any]
    literal: Callable[[Any], str]
    ordered: bool = True


@dataclass(frozen=True)
class Column:
    """A column or a field of a struct. Its key stays when it is renamed; `default` is what rows hold that were written before it."""

    key: int
    name: str
    kind: str
    fields: tuple[Column, ...] = ()
    default: Any = None
    required: bool = False
    values: tuple[Any, ...] = ()

    @property
    def sql_type(self) -> str:
        if self.kind == "struct":
            return f"struct<{', '.join(f'{quoted(field.name)}: {field.sql_type}' for field in self.fields)}>"
        return KINDS[self.kind].sql

    @property
    def ordered(self) -> bool:
        return self.kind != "struct" and KINDS[self.kind].ordered

    def draw(self, random: Random) -> Any:
        """A value of this column; a struct is a dictionary by its fields' keys."""
        if not self.required and random.random() < NULLS:
            return None
        if self.values:
            return random.choice(self.values)
        if self.kind == "struct":
            return {field.key: field.draw(random) for field in self.fields}
        return KINDS[self.kind].draw(random)

    def literal(self, value: Any) -> str:
        """SQL that has this value and exactly this type."""
        return f"CAST({self._literal(value)} AS {self.sql_type})"

    def _literal(self, value: Any) -> str:
        if value is None:
            return "NULL"
        if self.kind == "struct":
            return f"named_struct({', '.join(f'{text(field.name)}, {field.literal(value.get(field.key))}' for field in self.fields)})"
        return KINDS[self.kind].literal(value)

    def shown(self, value: Any) -> Any:
        """The value under today's names of its fields, as Arrow's to_pylist gives it."""
        if self.kind != "struct" or value is None:
            return value
        return {field.name: value.get(field.key, field.default) for field in self.fields}


def quoted(name: str) -> str:
    """A name as SQL takes it whatever is in it."""
    return f"`{name.replace('`', '``')}`"


def text(value: str) -> str:
    """A string as SQL takes it."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def order_key(value: Any) -> tuple[bool, Any]:
    """Sorts numbers as Spark does: NaN is one value, above all others."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return (is_nan, 0 if is_nan else value)


def comparable(value: Any) -> Any:
    """The value with NaN spelled so that it equals itself, and instants in UTC."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC)
    if isinstance(value, dict):
        return {name: comparable(each) for name, each in value.items()}
    return [comparable(each) for each in value] if isinstance(value, list) else value


_INSTANTS_AT_BORDERS: Final = [
    dt.datetime(1970, 1, 1, tzinfo=dt.UTC) - dt.timedelta(microseconds=1),
    dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2026, 1, 1, tzinfo=dt.UTC) - dt.timedelta(microseconds=1),
    dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2026, 1, 31, 18, 30, tzinfo=dt.UTC),
    dt.datetime(2026, 2, 1, tzinfo=dt.UTC),
]
_DAYS_AT_BORDERS: Final = [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(2025, 12, 31)]


def _instant(random: Random) -> dt.datetime:
    if random.random() < 0.3:
        return random.choice(_INSTANTS_AT_BORDERS)
    return dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=random.randrange(24 * 70), microseconds=random.randrange(10**6))


def _day(random: Random) -> dt.date:
    return random.choice(_DAYS_AT_BORDERS) if random.random() < 0.2 else dt.date(2026, 1, 1) + dt.timedelta(days=random.randrange(60))


KINDS: Final = {
    "int": Kind("int", lambda random: random.randrange(-50, 100), str),
    "bigint": Kind(
        "bigint", lambda random: random.choice([random.randrange(-50, 100), 2**40 + random.randrange(9)]), lambda value: f"{value}L"
    ),
    "string": Kind("string", lambda random: random.choice(["", *(f"{CANARY} {number}" for number in range(4))]), text),
    "decimal": Kind("decimal(9, 2)", lambda random: Decimal(random.randrange(-9999, 9999)) / 100, lambda value: f"{value}BD"),
    "wide decimal": Kind("decimal(14, 2)", lambda random: Decimal(random.randrange(-(10**11), 10**11)) / 100, lambda value: f"{value}BD"),
    "double": Kind(
        "double",
        lambda random: random.choice([math.nan, math.inf, -0.0, random.randrange(-40, 40) / 4]),
        lambda value: f"double('{str(value).replace('inf', 'Infinity')}')",
    ),
    "timestamp": Kind("timestamp", _instant, lambda value: f"timestamp'{value.isoformat()}'"),
    "date": Kind("date", _day, lambda value: f"date'{value}'"),
    "boolean": Kind("boolean", lambda random: random.random() < 0.5, lambda value: str(value).lower()),
    "binary": Kind("binary", lambda random: random.randbytes(random.randrange(3)), lambda value: f"x'{value.hex()}'", ordered=False),
    "strings": Kind(
        "array<string>",
        lambda random: [random.choice(["a", "b'", None, CANARY]) for _ in range(random.randrange(3))],
        lambda value: f"array({', '.join('NULL' if each is None else text(each) for each in value)})",
        ordered=False,
    ),
}
WIDENED: Final = {"int": "bigint", "decimal": "wide decimal"}
