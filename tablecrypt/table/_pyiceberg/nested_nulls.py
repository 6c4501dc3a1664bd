"""`IS NULL` and `IS NOT NULL` where a required column may be null: in a struct that is missing, and in the value of a void partition field.

PyIceberg takes a required column for one without nulls when it binds such a predicate, wherever the column stands. So it finds no row whose
struct is missing, or takes it for one with a value, and finds no manifest of files whose partition field no longer says anything.
"""

from __future__ import annotations

import builtins

from pyiceberg.expressions import BooleanExpression, BoundIsNull, BoundNotNull, BoundTerm, IsNull, NotNull


class NestedIsNull(IsNull):
    """IS NULL, of a column at any depth."""

    def __invert__(self) -> NestedNotNull:
        """Return IS NOT NULL."""
        return NestedNotNull(self.term)  # type: ignore[call-arg]

    @property
    def as_bound(self) -> builtins.type[_BoundNestedIsNull]:
        """The class of the predicate on a schema's column."""
        return _BoundNestedIsNull


class NestedNotNull(NotNull):
    """IS NOT NULL, of a column at any depth."""

    def __invert__(self) -> NestedIsNull:
        """Return IS NULL."""
        return NestedIsNull(self.term)  # type: ignore[call-arg]

    @property
    def as_bound(self) -> builtins.type[_BoundNestedNotNull]:
        """The class of the predicate on a schema's column."""
        return _BoundNestedNotNull


class PartitionIsNull(IsNull):
    """IS NULL, of a partition's value."""

    @property
    def as_bound(self) -> builtins.type[_BoundPartitionIsNull]:
        """The class of the predicate on a partition's schema."""
        return _BoundPartitionIsNull


class _BoundPartitionIsNull(BoundIsNull):
    def __new__(cls, term: BoundTerm) -> BooleanExpression:  # type: ignore[misc]
        return object.__new__(cls)


class _BoundNestedIsNull(BoundIsNull):
    def __new__(cls, term: BoundTerm) -> BooleanExpression:  # type: ignore[misc]
        return object.__new__(cls) if _is_nested(term) else super().__new__(cls, term)

    def __invert__(self) -> _BoundNestedNotNull:
        return _BoundNestedNotNull(self.term)  # type: ignore[call-arg]

    @property
    def as_unbound(self) -> type[NestedIsNull]:
        return NestedIsNull


class _BoundNestedNotNull(BoundNotNull):
    def __new__(cls, term: BoundTerm) -> BooleanExpression:  # type: ignore[misc]
        return object.__new__(cls) if _is_nested(term) else super().__new__(cls, term)

    def __invert__(self) -> _BoundNestedIsNull:
        return _BoundNestedIsNull(self.term)  # type: ignore[call-arg]

    @property
    def as_unbound(self) -> type[NestedNotNull]:
        return NestedNotNull


def _is_nested(term: BoundTerm) -> bool:
    return term.ref().accessor.inner is not None
