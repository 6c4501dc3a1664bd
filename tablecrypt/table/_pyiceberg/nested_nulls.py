"""`IS NULL` and `IS NOT NULL` of a column in a struct that may be missing: null where the struct is, though the column itself is required.

PyIceberg takes a required column for one without nulls when it binds such a predicate, wherever the column stands. So it finds no row whose
struct is missing, or takes it for one with a value.
"""

from __future__ import annotations

from typing import Any, cast

from pyiceberg.expressions import BoundIsNull, BoundNotNull, BoundTerm, BoundUnaryPredicate, IsNull, NotNull
from pyiceberg.schema import Schema


class NestedIsNull(IsNull):
    """IS NULL, of a column at any depth."""

    def __invert__(self) -> NestedNotNull:
        """Return IS NOT NULL."""
        return NestedNotNull(self.term)  # type: ignore[call-arg]

    def bind(self, schema: Schema, case_sensitive: bool = True) -> BoundUnaryPredicate:
        """Return the predicate on a schema's column. ValueError where there is none."""
        term = self.term.bind(schema, case_sensitive)
        kind: Any = _BoundNestedIsNull if _is_nested(term) else BoundIsNull
        return cast("BoundUnaryPredicate", kind(term))


class NestedNotNull(NotNull):
    """IS NOT NULL, of a column at any depth."""

    def __invert__(self) -> NestedIsNull:
        """Return IS NULL."""
        return NestedIsNull(self.term)  # type: ignore[call-arg]

    def bind(self, schema: Schema, case_sensitive: bool = True) -> BoundUnaryPredicate:
        """Return the predicate on a schema's column. ValueError where there is none."""
        term = self.term.bind(schema, case_sensitive)
        kind: Any = _BoundNestedNotNull if _is_nested(term) else BoundNotNull
        return cast("BoundUnaryPredicate", kind(term))


class _BoundNestedIsNull(BoundIsNull):
    def __new__(cls, term: BoundTerm) -> _BoundNestedIsNull:
        return object.__new__(cls)

    def __invert__(self) -> _BoundNestedNotNull:
        return _BoundNestedNotNull(self.term)  # type: ignore[call-arg]

    @property
    def as_unbound(self) -> type[NestedIsNull]:
        return NestedIsNull


class _BoundNestedNotNull(BoundNotNull):
    def __new__(cls, term: BoundTerm) -> _BoundNestedNotNull:
        return object.__new__(cls)

    def __invert__(self) -> _BoundNestedIsNull:
        return _BoundNestedIsNull(self.term)  # type: ignore[call-arg]

    @property
    def as_unbound(self) -> type[NestedNotNull]:
        return NestedNotNull


def _is_nested(term: BoundTerm) -> bool:
    return term.ref().accessor.inner is not None
