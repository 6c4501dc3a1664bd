"""A scan's filter as a condition of Spark's SQL that keeps the rows which the Python path keeps, for nulls and NaN too.

There Arrow evaluates the filter, and Spark differs from it in two ways: NaN equals itself and is greater than all numbers in Spark, and
compares false in Arrow; `NOT IN` drops a null in Spark, and keeps it in Arrow.

For a file that lacks the column, the Python path decides each predicate on its own, so that one under a NOT, or a negative one, keeps
rows that a stored null would drop: `asks_for_stored_columns` says whether a filter has such a predicate.

The condition is text because the JVM gets it in one call (java/ProgramPlanner.java). Nothing in it depends on how a session reads literals:
numbers are digits in a CAST, text is hexadecimal.

Raises UnsupportedFilterError for a predicate that is not translated.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pyiceberg.expressions import And, BooleanExpression, BoundNotEqualTo, BoundNotIn, BoundNotNaN, BoundNotStartsWith, BoundTerm, Not, Or
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, visit
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

_EPOCH: Final = dt.datetime(1970, 1, 1)


class UnsupportedFilterError(Exception):
    """A predicate whose translation would not keep exactly the same rows."""


def spark_condition(bound: BooleanExpression, column: Callable[[int], str]) -> str:
    """Return the condition for a bound filter; `column` gives the quoted name of a field id."""
    return visit(bound, _ToSpark(column)).text


def asks_for_stored_columns(bound: BooleanExpression) -> bool:
    """Whether the filter keeps different rows of a file that lacks a column than of one that holds nulls in it."""
    if isinstance(bound, (And, Or)):
        return asks_for_stored_columns(bound.left) or asks_for_stored_columns(bound.right)
    return isinstance(bound, (Not, BoundNotEqualTo, BoundNotIn, BoundNotStartsWith, BoundNotNaN))


class _Condition(NamedTuple):
    """Text, and the operator that it has outside of all parentheses, if any."""

    text: str
    operator: str = ""

    def under(self, operator: str) -> str:
        # A OR B OR C needs none: Spark's parser takes as many of these as there are, but few parentheses inside of each other.
        return self.text if self.operator in ("", operator) else f"({self.text})"


class _ToSpark(BoundBooleanExpressionVisitor[_Condition]):
    def __init__(self, column: Callable[[int], str]) -> None:
        self._column_of = column

    def _column(self, term: BoundTerm) -> str:
        return self._column_of(term.ref().field.field_id)

    def _compared(self, term: BoundTerm, operator: str, literal: Literal[Any]) -> _Condition:
        column = self._column(term)
        condition = _Condition(f"{column} {operator} {_value(term, literal.value)}")
        # In Spark NaN is equal to itself and above all numbers; in Arrow every comparison with it is false.
        return _both(condition, _Condition(f"NOT isnan({column})")) if _is_floating(term) else condition

    def visit_in(self, term: BoundTerm, literals: set[Any]) -> _Condition:
        if _is_floating(term):
            raise UnsupportedFilterError("IN on floating-point numbers")
        values = ", ".join(sorted(_value(term, each) for each in literals))
        # Arrow says false for a null, which an OR or a NOT around it can see.
        return _Condition(f"coalesce({self._column(term)} IN ({values}), false)")

    def visit_not_in(self, term: BoundTerm, literals: set[Any]) -> _Condition:
        return _not(self.visit_in(term, literals))

    def visit_is_nan(self, term: BoundTerm) -> _Condition:
        return _both(self.visit_not_null(term), _Condition(f"isnan({self._column(term)})"))

    def visit_not_nan(self, term: BoundTerm) -> _Condition:
        return _both(self.visit_not_null(term), _Condition(f"NOT isnan({self._column(term)})"))

    def visit_is_null(self, term: BoundTerm) -> _Condition:
        return _Condition(f"{self._column(term)} IS NULL")

    def visit_not_null(self, term: BoundTerm) -> _Condition:
        return _Condition(f"{self._column(term)} IS NOT NULL")

    def visit_equal(self, term: BoundTerm, literal: Literal[Any]) -> _Condition:
        return self._compared(term, "=", literal)

    def visit_not_equal(self, term: BoundTerm, literal: Literal[Any]) -> _Condition:
        return _Condition(f"{self._column(term)} != {_value(term, literal.value)}")

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> _Condition:
        return self._compared(term, ">=", literal)

    def visit_greater_than(self, term: BoundTerm, literal: Literal[Any]) -> _Condition:
        return self._compared(term, ">", literal)

    def visit_less_than(self, term: BoundTerm, literal: Literal[Any]) -> _Condition:
        return self._compared(term, "<", literal)

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> _Condition:
        return self._compared(term, "<=", literal)

    def visit_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> _Condition:
        return _Condition(f"startswith({self._column(term)}, {_text(str(literal.value))})")

    def visit_not_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> _Condition:
        return _not(self.visit_starts_with(term, literal))

    def visit_true(self) -> _Condition:
        return _Condition("true")

    def visit_false(self) -> _Condition:
        return _Condition("false")

    def visit_not(self, child_result: _Condition) -> _Condition:
        return _not(child_result)

    def visit_and(self, left_result: _Condition, right_result: _Condition) -> _Condition:
        return _both(left_result, right_result)

    def visit_or(self, left_result: _Condition, right_result: _Condition) -> _Condition:
        return _Condition(f"{left_result.under('OR')} OR {right_result.under('OR')}", "OR")


def _both(one: _Condition, other: _Condition) -> _Condition:
    return _Condition(f"{one.under('AND')} AND {other.under('AND')}", "AND")


def _not(condition: _Condition) -> _Condition:
    return _Condition(f"NOT ({condition.text})")


def _is_floating(term: BoundTerm) -> bool:
    return isinstance(term.ref().field.field_type, (FloatType, DoubleType))


def _value(term: BoundTerm, value: Any) -> str:
    kind = term.ref().field.field_type
    # False of every value in Arrow; in Spark NaN is equal to itself and above all others.
    if isinstance(value, float) and math.isnan(value):
        raise UnsupportedFilterError("a comparison with NaN")
    if isinstance(kind, DateType):
        return f"date_from_unix_date({_whole(value)})"
    if isinstance(kind, TimestamptzType):
        return f"timestamp_micros({_cast(value, 'bigint')})"
    if isinstance(kind, TimestampType):
        return f"TIMESTAMP_NTZ'{_local_time(value)}'"

    return _number_or_text(kind, value)


def _number_or_text(kind: IcebergType, value: Any) -> str:
    match kind:
        case StringType():
            return _text(value)
        case BooleanType():
            return "true" if value else "false"
        case IntegerType():
            return _whole(value)
        case LongType():
            return _cast(value, "bigint")
        case FloatType():
            return f"CAST({_cast(float(value), 'double')} AS float)"
        case DoubleType():
            return _cast(float(value), "double")
        case DecimalType():
            return _cast(format(value, "f"), f"decimal({kind.precision},{kind.scale})")

    raise UnsupportedFilterError(f"a comparison of type {kind}")


def _whole(value: int) -> str:
    return _cast(value, "int")


def _cast(value: Any, kind: str) -> str:
    return f"CAST('{value}' AS {kind})"


def _text(value: str) -> str:
    return f"CAST(X'{value.encode().hex()}' AS string)"


def _local_time(microseconds: int) -> str:
    try:
        return (_EPOCH + dt.timedelta(microseconds=microseconds)).isoformat(" ")
    except OverflowError as error:
        raise UnsupportedFilterError("a timestamp outside the years 1 to 9999") from error
