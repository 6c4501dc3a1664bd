"""Whether a filter may leave out row groups by their statistics.

Parquet's smallest and greatest values leave NaN out. Where both are 1.0, Arrow concludes that all values are, and so that none of them is
NaN or differs from 1.0: a filter that is true of NaN would lose rows. And Arrow cannot compare a uuid with the statistics of its column.
"""

from __future__ import annotations

from pyiceberg.expressions import And, BooleanExpression, BoundIsNaN, BoundNotEqualTo, BoundNotIn, BoundPredicate, Not, Or
from pyiceberg.types import DoubleType, FloatType, UUIDType


def may_prune_row_groups(bound: BooleanExpression, negated: bool = False) -> bool:
    """Whether no part of a bound filter is about a uuid or can be true of NaN.

    Args:
        negated: whether the filter stands under a `not`.
    """
    if isinstance(bound, (And, Or)):
        return may_prune_row_groups(bound.left, negated) and may_prune_row_groups(bound.right, negated)
    if isinstance(bound, Not):
        return may_prune_row_groups(bound.child, not negated)
    if not isinstance(bound, BoundPredicate):
        return True
    field_type = bound.term.ref().field.field_type
    if isinstance(field_type, (FloatType, DoubleType)):
        return not negated and not isinstance(bound, (BoundIsNaN, BoundNotEqualTo, BoundNotIn))
    return not isinstance(field_type, UUIDType)
