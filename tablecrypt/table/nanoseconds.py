"""Nanoseconds in filters: PyIceberg has no literal that binds to timestamp_ns and timestamptz_ns, so such columns get one here.

    column            literals that are taken
    timestamp_ns      '2026-01-31T12:00:00.123456789', whole nanoseconds since 1970
    timestamptz_ns    '2026-01-31T12:00:00.123456789+00:00', whole nanoseconds since 1970

A datetime is refused: PyIceberg cuts what is finer than microseconds from it before it is seen here.
"""

from __future__ import annotations

from typing import Any, Final

from pyiceberg.expressions import And, BooleanExpression, LiteralPredicate, Not, Or, Reference, SetPredicate
from pyiceberg.expressions.literals import Literal, LongLiteral, StringLiteral
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, TimestampNanoType, TimestamptzNanoType
from pyiceberg.utils.datetime import timestamp_to_nanos, timestamptz_to_nanos

_END: Final = 2**63


class NanosecondLiteral(LongLiteral):
    """Nanoseconds since 1970; a whole number wherever that is wanted."""

    def to(self, type_var: IcebergType) -> Literal[int]:
        """Return this literal for a column of nanoseconds, and what a LongLiteral gives for another."""
        return self if _is_nano(type_var) else super().to(type_var)


def with_nanoseconds(row_filter: BooleanExpression, schema: Schema, case_sensitive: bool = True) -> BooleanExpression:
    """Return an unbound filter in which columns of nanoseconds are compared with nanoseconds.

    Raises:
        TypeError: a literal is neither text nor a whole number.
        ValueError: a text is no timestamp of its column's type, or none that 64 bits hold (the years 1678 to 2261).
    """
    columns = {name: kind for name in schema.column_names if _is_nano(kind := schema.find_type(name))}
    if not columns:
        return row_filter
    if not case_sensitive:
        columns = {name.lower(): kind for name, kind in columns.items()}
    return _rewritten(row_filter, columns, case_sensitive)


def _rewritten(expression: BooleanExpression, columns: dict[str, IcebergType], case_sensitive: bool) -> BooleanExpression:
    if isinstance(expression, (And, Or)):
        sides = (_rewritten(side, columns, case_sensitive) for side in (expression.left, expression.right))
        return type(expression)(*sides)
    if isinstance(expression, Not):
        return Not(_rewritten(expression.child, columns, case_sensitive))
    if not isinstance(expression, (LiteralPredicate, SetPredicate)) or not isinstance(expression.term, Reference):
        return expression
    column = columns.get(expression.term.name if case_sensitive else expression.term.name.lower())
    if column is None:
        return expression
    predicate: Any = type(expression)
    if isinstance(expression, SetPredicate):
        return predicate(expression.term, {_nanoseconds(literal, column) for literal in expression.literals})  # type: ignore[no-any-return]
    return predicate(expression.term, _nanoseconds(expression.literal, column))  # type: ignore[no-any-return]


def _nanoseconds(literal: Any, column: IcebergType) -> Any:
    if isinstance(literal, StringLiteral):
        parse = timestamptz_to_nanos if isinstance(column, TimestamptzNanoType) else timestamp_to_nanos
        nanoseconds = parse(literal.value)
    elif isinstance(literal, LongLiteral):
        nanoseconds = literal.value
    else:
        raise TypeError(f"{literal} cannot be compared with a column of type {column}: write it as text or as whole nanoseconds")
    if not -_END <= nanoseconds < _END:
        raise ValueError(f"{literal} is beyond what a column of type {column} holds: 64 bits of nanoseconds end in 1677 and in 2262")
    return NanosecondLiteral(nanoseconds)


def _is_nano(kind: IcebergType) -> bool:
    return isinstance(kind, (TimestampNanoType, TimestamptzNanoType))
