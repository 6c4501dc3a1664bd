"""What a delete by a filter takes: one rule for files that go whole, for files that are rewritten, and for rows marked in deletion vectors.

A row goes where the filter is true of it, as in SQL: a comparison with null is neither true nor false, `not in`, `!=` and `not like` among
them, and then the row stays. The same holds of NaN, unless the filter asks for it by `is nan` or `is not nan`.

PyIceberg decides by statistics whether a file goes whole and by Arrow whether a row goes, and the two disagree about null and NaN. So each
comparison of the filter gets the conditions under which they agree, before it is used for either.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    IsNaN,
    LiteralPredicate,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    Reference,
    SetPredicate,
    UnboundPredicate,
)
from pyiceberg.expressions.visitors import bind, extract_field_ids, rewrite_not
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.types import DoubleType, FloatType

from tablecrypt.table.evaluable import check_evaluable


class DeleteFilter:
    """A filter on rows that have a table's columns, or at least `columns` of them.

    Args:
        schema: the table's.
        row_filter: unbound.

    Raises:
        ConfigurationError: Arrow cannot evaluate it.
    """

    def __init__(self, schema: Schema, row_filter: BooleanExpression, case_sensitive: bool = True) -> None:
        bound = bind(schema, certain(row_filter, schema, case_sensitive), case_sensitive)
        matches = expression_to_pyarrow(bound, schema)
        check_evaluable(schema, matches)
        self._deleted = pc.coalesce(matches, pc.scalar(False))
        self.columns = prune_columns(schema, extract_field_ids(bound), select_full_types=False)

    def remaining(self, rows: pa.Table) -> pa.Table:
        """Return the rows that stay."""
        return rows.filter(~self._deleted)

    def deleted(self, rows: pa.Table) -> pa.Table:
        """Return the rows that go."""
        return rows.filter(self._deleted)


def certain(row_filter: BooleanExpression, schema: Schema, case_sensitive: bool = True) -> BooleanExpression:
    """Return an unbound filter that is true of a row, or of a whole file by its statistics, only where this one is true of all it takes.

    Args:
        schema: the table's.
        row_filter: unbound.
    """
    expression = rewrite_not(row_filter)
    asked = {schema.find_field(name, case_sensitive).field_id for name in _asked_for_nan(expression)}
    return _certain(expression, schema, case_sensitive, asked)


def _certain(expression: BooleanExpression, schema: Schema, case_sensitive: bool, asked_for_nan: set[int]) -> BooleanExpression:
    if isinstance(expression, (And, Or)):
        left, right = (_certain(side, schema, case_sensitive, asked_for_nan) for side in (expression.left, expression.right))
        return type(expression)(left, right)
    if not isinstance(expression, UnboundPredicate) or not isinstance(expression.term, Reference):
        return expression
    column, conditions = expression.term, list[BooleanExpression]()
    field = schema.find_field(column.name, case_sensitive)
    if isinstance(expression, (NotEqualTo, NotIn, NotStartsWith, NotNaN)):
        conditions.append(NotNull(column))  # type: ignore[call-arg]
    compares_floats = isinstance(expression, (LiteralPredicate, SetPredicate)) and isinstance(field.field_type, (FloatType, DoubleType))
    if compares_floats and field.field_id not in asked_for_nan:
        conditions.append(NotNaN(column))  # type: ignore[call-arg]
    return And(expression, *conditions) if conditions else expression


def _asked_for_nan(expression: BooleanExpression) -> Iterator[str]:
    if isinstance(expression, (And, Or)):
        yield from _asked_for_nan(expression.left)
        yield from _asked_for_nan(expression.right)
    elif isinstance(expression, (IsNaN, NotNaN)) and isinstance(expression.term, Reference):
        yield expression.term.name
