"""Random conditions on rows: their SQL, and what they are in SQL's three-valued logic (None is unknown)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final
from zoneinfo import ZoneInfo

from tests.spark.conftest import TIME_ZONE
from tests.spark.sql.values import Column, order_key, quoted, text

Row = dict[int, Any]
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_SHAPES_OF_KINDS: Final = {
    "string": ["like", "contains"],
    "int": ["modulo", "modulo"],
    "bigint": ["modulo", "modulo"],
    "double": ["nan"],
    "timestamp": ["day"],
}
_ZONE: Final = ZoneInfo(TIME_ZONE)


@dataclass(frozen=True)
class Condition:
    """A condition of SQL, and whether a row satisfies it: True, False or None."""

    sql: str
    evaluate: Callable[[Row], bool | None]

    def holds(self, row: Row) -> bool:
        """As a WHERE clause takes it: unknown is not true."""
        return self.evaluate(row) is True


@dataclass(frozen=True)
class Operand:
    """A column, or a field of a struct, that a condition looks at."""

    sql: str
    column: Column
    value_of: Callable[[Row], Any]


def operands(columns: Sequence[Column], alias: str = "") -> list[Operand]:
    """Everything in the columns that has an order, by the columns' names of today."""
    prefix = f"{alias}." if alias else ""
    found = [Operand(prefix + quoted(column.name), column, _value(column)) for column in columns if column.ordered]
    for column in columns:
        fields = [field for field in column.fields if field.ordered]
        found += [Operand(f"{prefix}{quoted(column.name)}.{quoted(field.name)}", field, _field_value(column, field)) for field in fields]
    return found


def draw_condition(random: Random, columns: Sequence[Column], alias: str = "", depth: int = 2) -> Condition:
    """A condition of up to `depth` connectives on these columns; `alias` is how the statement calls the table."""
    connective = random.choice(["", "", "AND", "OR", "NOT"]) if depth else ""
    if not connective:
        return _comparison(random, random.choice(operands(columns, alias)))
    left = draw_condition(random, columns, alias, depth - 1)
    if connective == "NOT":
        return Condition(f"NOT ({left.sql})", lambda row: _not(left.evaluate(row)))
    right = draw_condition(random, columns, alias, depth - 1)
    join = _and if connective == "AND" else _or
    return Condition(f"({left.sql}) {connective} ({right.sql})", lambda row: join(left.evaluate(row), right.evaluate(row)))


def equals(column: Column, value: Any) -> Condition:
    """The column has this value, or is null if that is the value."""
    operand = operands([column])[0]
    return _is_null(operand) if value is None else _compare(operand, "=", value)


def is_in(column: Column, values: Sequence[Any], sql: str, *, negated: bool) -> Condition:
    """The column's value is one of the values, which `sql` lists or queries. With a null among them, no other value is surely absent."""
    operand = operands([column])[0]
    found = _listed(operand, values)
    return Condition(f"{operand.sql} {'NOT ' * negated}IN ({sql})", (lambda row: _not(found(row))) if negated else found)


def same(column: Column, one: str, other: str, *, with_nulls: bool) -> Condition:
    """The column is equal in two rows, known to hold the same values, of the tables so called; nulls are only if `with_nulls`."""
    name = quoted(column.name)
    value_of = _value(column)
    sql = f"{one}.{name} {'<=>' if with_nulls else '='} {other}.{name}"
    return Condition(sql, lambda row: True if with_nulls or value_of(row) is not None else None)


def _comparison(random: Random, operand: Operand) -> Condition:
    column, sql = operand.column, operand.sql
    shapes = ["compare", "compare", "compare", "in", "in or null", "null", "null", "not null", "safe", "safe to null", "between"]
    shapes += _SHAPES_OF_KINDS.get(column.kind, [])
    value, other = (_not_null(random, column) for _ in range(2))
    match shape := random.choice(shapes):
        case "compare":
            return _compare(operand, random.choice(list(_COMPARISONS)), value)
        case "in" | "in or null":
            listed = [value, other if shape == "in" else None]
            return Condition(f"{sql} IN ({', '.join(map(column.literal, listed))})", _listed(operand, listed))
        case "null":
            return _is_null(operand)
        case "safe to null":
            return Condition(f"{sql} <=> {column.literal(None)}", _is_null(operand).evaluate)
        case "not null":
            return Condition(f"{sql} IS NOT NULL", lambda row: operand.value_of(row) is not None)
        case "safe":
            return Condition(
                f"{sql} <=> {column.literal(value)}", lambda row: _of(operand, lambda v: order_key(v) == order_key(value))(row) is True
            )
        case "between":
            low, high = sorted((value, other), key=order_key)
            inside = _of(operand, lambda found: order_key(low) <= order_key(found) <= order_key(high))
            return Condition(f"{sql} BETWEEN {column.literal(low)} AND {column.literal(high)}", inside)
        case "like":
            start = value[: random.randrange(1, 4)]
            return Condition(f"{sql} LIKE {text(start + '%')}", _of(operand, lambda found: found.startswith(start)))
        case "contains":
            part = value[1:3]
            return Condition(f"{sql} LIKE {text(f'%{part}%')}", _of(operand, lambda found: part in found))
        case "nan":
            return Condition(f"isnan({sql})", lambda row: _of(operand, math.isnan)(row) is True)
        case "day":
            day = value.astimezone(_ZONE).date()
            return Condition(f"CAST({sql} AS DATE) = date'{day}'", _of(operand, lambda found: found.astimezone(_ZONE).date() == day))
        case _:
            divisor = random.randrange(2, 5)
            rest = random.randrange(divisor)
            return Condition(f"pmod({sql}, {divisor}) = {rest}", _of(operand, lambda found: found % divisor == rest))


def _is_null(operand: Operand) -> Condition:
    return Condition(f"{operand.sql} IS NULL", lambda row: operand.value_of(row) is None)


def _listed(operand: Operand, values: Sequence[Any]) -> Callable[[Row], bool | None]:
    wanted = [order_key(each) for each in values if each is not None]
    absent = None if None in values else False
    return _of(operand, lambda found: order_key(found) in wanted or absent)


def _compare(operand: Operand, sign: str, value: Any) -> Condition:
    compare = _COMPARISONS[sign]
    sql = f"{operand.sql} {sign} {operand.column.literal(value)}"
    return Condition(sql, _of(operand, lambda found: compare(order_key(found), order_key(value))))


def _of(operand: Operand, test: Callable[[Any], bool | None]) -> Callable[[Row], bool | None]:
    """The test, or unknown where the row holds a null."""

    def evaluate(row: Row) -> bool | None:
        value = operand.value_of(row)
        return None if value is None else test(value)

    return evaluate


def _value(column: Column) -> Callable[[Row], Any]:
    return lambda row: row.get(column.key, column.default)


def _field_value(column: Column, field: Column) -> Callable[[Row], Any]:
    def value(row: Row) -> Any:
        struct = row.get(column.key, column.default)
        return None if struct is None else struct.get(field.key, field.default)

    return value


def _not_null(random: Random, column: Column) -> Any:
    while (value := column.draw(random)) is None:
        pass
    return value


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _and(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _or(left: bool | None, right: bool | None) -> bool | None:
    return _not(_and(_not(left), _not(right)))
