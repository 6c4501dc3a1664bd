"""Random conditions on rows: their SQL, and what they are in SQL's three-valued logic (None is unknown)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

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


def equals(column: Column, value: Any, alias: str = "") -> Condition:
    """The column has this value, which is not null."""
    return _compare(operands([column], alias)[0], "=", value)


def _comparison(random: Random, operand: Operand) -> Condition:
    column, sql = operand.column, operand.sql
    shapes = ["compare", "compare", "compare", "in", "null", "not null", "safe", "between"]
    shapes += ["like"] if column.kind == "string" else ["modulo", "modulo"] if column.kind in ("int", "bigint") else []
    value, other = (_not_null(random, column) for _ in range(2))
    match random.choice(shapes):
        case "compare":
            return _compare(operand, random.choice(list(_COMPARISONS)), value)
        case "in":
            wanted = [order_key(each) for each in (value, other)]
            literals = f"{column.literal(value)}, {column.literal(other)}"
            return Condition(f"{sql} IN ({literals})", _of(operand, lambda found: order_key(found) in wanted))
        case "null":
            return Condition(f"{sql} IS NULL", lambda row: operand.value_of(row) is None)
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
        case _:
            divisor = random.randrange(2, 5)
            rest = random.randrange(divisor)
            return Condition(f"pmod({sql}, {divisor}) = {rest}", _of(operand, lambda found: found % divisor == rest))


def _compare(operand: Operand, sign: str, value: Any) -> Condition:
    compare = _COMPARISONS[sign]
    sql = f"{operand.sql} {sign} {operand.column.literal(value)}"
    return Condition(sql, _of(operand, lambda found: compare(order_key(found), order_key(value))))


def _of(operand: Operand, test: Callable[[Any], bool]) -> Callable[[Row], bool | None]:
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
