"""Partitions as a filter, whatever their values are: null, NaN and nanoseconds have no literal of PyIceberg's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from pyiceberg.expressions import AlwaysFalse, And, BooleanExpression, EqualTo, IsNaN, IsNull, Or, Reference
from pyiceberg.typedef import Record

from tablecrypt.table.nanoseconds import NanosecondLiteral


def partitions_filter(partitions: Iterable[Record], fields: Sequence[str]) -> BooleanExpression:
    """Return a filter that matches exactly these partitions.

    Args:
        partitions: their values as manifests hold them.
        fields: for each value, the name of the column that is compared with it.
    """
    each = [_all_of([_equals(name, record[position]) for position, name in enumerate(fields)]) for record in partitions] if fields else []
    if not each:
        return AlwaysFalse()
    return Or(*each) if len(each) > 1 else each[0]


def _all_of(expressions: list[BooleanExpression]) -> BooleanExpression:
    return And(*expressions) if len(expressions) > 1 else expressions[0]


def _equals(name: str, value: Any) -> BooleanExpression:
    column = Reference(name)
    if value is None:
        return IsNull(column)  # type: ignore[call-arg]
    if isinstance(value, float) and math.isnan(value):
        return IsNaN(column)  # type: ignore[call-arg]
    whole = isinstance(value, int) and not isinstance(value, bool)
    return EqualTo(column, NanosecondLiteral(value) if whole else value)  # type: ignore[call-arg]
