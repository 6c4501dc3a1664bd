"""`IS NULL` and `IS NOT NULL` of what is stored, whatever a schema says of nulls.

PyIceberg takes a required column for one without nulls when it binds such a predicate. But it may be null where a struct around it is
missing, in the value of a void partition field, and in rows from before it was required. Whoever writes metadata.json can have it say so
of any column: a scan would lose the rows where it is null, and a delete would take them.
"""

from __future__ import annotations

import builtins

from pyiceberg.expressions import BooleanExpression, BoundIsNull, BoundNotNull, BoundTerm, IsNull, NotNull


class StoredIsNull(IsNull):
    """IS NULL, of a column at any depth or of a partition's value."""

    def __invert__(self) -> StoredNotNull:
        """Return IS NOT NULL."""
        return StoredNotNull(self.term)  # type: ignore[call-arg]

    @property
    def as_bound(self) -> builtins.type[_BoundStoredIsNull]:
        """The class of the predicate on a schema's column."""
        return _BoundStoredIsNull


class StoredNotNull(NotNull):
    """IS NOT NULL, of a column at any depth."""

    def __invert__(self) -> StoredIsNull:
        """Return IS NULL."""
        return StoredIsNull(self.term)  # type: ignore[call-arg]

    @property
    def as_bound(self) -> builtins.type[_BoundStoredNotNull]:
        """The class of the predicate on a schema's column."""
        return _BoundStoredNotNull


class _BoundStoredIsNull(BoundIsNull):
    def __new__(cls, term: BoundTerm) -> BooleanExpression:  # type: ignore[misc]
        return object.__new__(cls)

    def __invert__(self) -> _BoundStoredNotNull:
        return _BoundStoredNotNull(self.term)  # type: ignore[call-arg]

    @property
    def as_unbound(self) -> type[StoredIsNull]:
        return StoredIsNull


class _BoundStoredNotNull(BoundNotNull):
    def __new__(cls, term: BoundTerm) -> BooleanExpression:  # type: ignore[misc]
        return object.__new__(cls)

    def __invert__(self) -> _BoundStoredIsNull:
        return _BoundStoredIsNull(self.term)  # type: ignore[call-arg]

    @property
    def as_unbound(self) -> type[StoredNotNull]:
        return StoredNotNull
