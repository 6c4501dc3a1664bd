"""A scan's filter as a Spark condition that keeps the rows which the Python path keeps, for nulls and NaN too.

There Arrow evaluates the filter, and Spark differs from it in two ways: NaN equals itself and is greater than all numbers in Spark, and
compares false in Arrow; `NOT IN` drops a null in Spark, and keeps it in Arrow.

For a file that lacks the column, the Python path decides each predicate on its own, so that one under a NOT, or a negative one, keeps
rows that a stored null would drop: `asks_for_stored_columns` says whether a filter has such a predicate.

Raises UnsupportedFilterError for a predicate that is not translated.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

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
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

_EPOCH: Final = dt.datetime(1970, 1, 1)
_SPARK_TYPES: Final[dict[type[IcebergType], str]] = {
    BooleanType: "boolean",
    IntegerType: "int",
    LongType: "bigint",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
}


class UnsupportedFilterError(Exception):
    """A predicate whose translation would not keep exactly the same rows."""


def spark_condition(bound: BooleanExpression, column: Callable[[int], Column]) -> Column:
    """Return the condition for a bound filter; `column` gives the Spark column of a field id."""
    return visit(bound, _ToSpark(column))


def asks_for_stored_columns(bound: BooleanExpression) -> bool:
    """Whether the filter keeps different rows of a file that lacks a column than of one that holds nulls in it."""
    if isinstance(bound, (And, Or)):
        return asks_for_stored_columns(bound.left) or asks_for_stored_columns(bound.right)
    return isinstance(bound, (Not, BoundNotEqualTo, BoundNotIn, BoundNotStartsWith, BoundNotNaN))


class _ToSpark(BoundBooleanExpressionVisitor["Column"]):
    def __init__(self, column: Callable[[int], Column]) -> None:
        self._column_of = column

    def _column(self, term: BoundTerm) -> Column:
        return self._column_of(term.ref().field.field_id)

    def _compared(self, term: BoundTerm, literal: Literal[Any], compare: Callable[[Column, Column], Column]) -> Column:
        from pyspark.sql import functions

        column = self._column(term)
        condition = compare(column, _literal(literal.value, term.ref().field.field_type))
        return condition & ~functions.isnan(column) if _is_floating(term) else condition

    def visit_in(self, term: BoundTerm, literals: set[Any]) -> Column:
        if _is_floating(term):
            raise UnsupportedFilterError("IN on floating-point numbers")
        field_type = term.ref().field.field_type
        # Arrow says false for a null, which an OR or a NOT around it can see.
        from pyspark.sql import functions

        return functions.coalesce(self._column(term).isin(*[_literal(each, field_type) for each in literals]), functions.lit(False))

    def visit_not_in(self, term: BoundTerm, literals: set[Any]) -> Column:
        return ~self.visit_in(term, literals)

    def visit_is_nan(self, term: BoundTerm) -> Column:
        from pyspark.sql import functions

        column = self._column(term)
        return column.isNotNull() & functions.isnan(column)

    def visit_not_nan(self, term: BoundTerm) -> Column:
        from pyspark.sql import functions

        column = self._column(term)
        return column.isNotNull() & ~functions.isnan(column)

    def visit_is_null(self, term: BoundTerm) -> Column:
        return self._column(term).isNull()

    def visit_not_null(self, term: BoundTerm) -> Column:
        return self._column(term).isNotNull()

    def visit_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._compared(term, literal, lambda column, value: column == value)

    def visit_not_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term) != _literal(literal.value, term.ref().field.field_type)

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._compared(term, literal, lambda column, value: column >= value)

    def visit_greater_than(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._compared(term, literal, lambda column, value: column > value)

    def visit_less_than(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._compared(term, literal, lambda column, value: column < value)

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._compared(term, literal, lambda column, value: column <= value)

    def visit_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term).startswith(str(literal.value))

    def visit_not_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return ~self._column(term).startswith(str(literal.value))

    def visit_true(self) -> Column:
        from pyspark.sql import functions

        return functions.lit(True)

    def visit_false(self) -> Column:
        from pyspark.sql import functions

        return functions.lit(False)

    def visit_not(self, child_result: Column) -> Column:
        return ~child_result

    def visit_and(self, left_result: Column, right_result: Column) -> Column:
        return left_result & right_result

    def visit_or(self, left_result: Column, right_result: Column) -> Column:
        return left_result | right_result


def _is_floating(term: BoundTerm) -> bool:
    return isinstance(term.ref().field.field_type, (FloatType, DoubleType))


def _literal(value: Any, iceberg: PrimitiveType | IcebergType) -> Column:
    from pyspark.sql import functions

    if isinstance(value, float) and math.isnan(value):
        raise UnsupportedFilterError("a comparison with NaN")
    if isinstance(iceberg, DateType):
        return functions.date_from_unix_date(functions.lit(value))
    if isinstance(iceberg, TimestamptzType):
        return functions.timestamp_micros(functions.lit(value))
    if isinstance(iceberg, TimestampType):
        return functions.expr(f"TIMESTAMP_NTZ'{_local_time(value)}'")
    if isinstance(iceberg, DecimalType):
        return functions.lit(value).cast(f"decimal({iceberg.precision},{iceberg.scale})")
    if type(iceberg) not in _SPARK_TYPES:
        raise UnsupportedFilterError(f"a comparison of type {iceberg}")
    return functions.lit(value).cast(_SPARK_TYPES[type(iceberg)])


def _local_time(microseconds: int) -> str:
    try:
        return (_EPOCH + dt.timedelta(microseconds=microseconds)).isoformat(" ")
    except OverflowError as error:
        raise UnsupportedFilterError("a timestamp outside the years 1 to 9999") from error
