"""What a table must hold, said without Iceberg: for each snapshot a list of rows in memory, for each branch and tag a snapshot.

Rows hold their values by field id, as data files do, so that a column may be renamed, dropped and added, and older rows read with its
default. A row keeps the name of the write that brought it (`born`) when it is moved or updated, as it must keep its `_row_id`.

Filters are Iceberg expressions and Python functions alike, with SQL's three truth values: a comparison with null is neither true nor false.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from hypothesis import strategies as st
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    Not,
    NotEqualTo,
    NotIn,
    NotNull,
    Or,
)

ID, TEAM, NOTE, VALUE = 1, 2, 3, 4
TEAMS: Final = ("north", "south", "west")

Truth = bool | None
Names = Mapping[int, str]


@dataclass(frozen=True)
class ModelColumn:
    """A column: what it is called now, and what rows have that were written before it was there."""

    field_id: int
    name: str
    kind: Literal["int", "long", "string"]
    default: int | str | None = None


@dataclass(frozen=True)
class Row:
    """One row: the write that brought it, and its values by field id."""

    born: str
    values: Mapping[int, Any]

    def value(self, column: ModelColumn) -> Any:
        """What a column of it reads as."""
        return self.values.get(column.field_id, column.default)


Columns = tuple[ModelColumn, ...]


@dataclass(frozen=True)
class Condition:
    """A filter on rows: as Iceberg's expression, and what it is of a row, or its negation is.

    A delete takes rows as SQL does. A scan is PyIceberg's, to which a null is `not in` any list; else it is as SQL, too.
    """

    expression: Callable[[Names], BooleanExpression]
    truth: Callable[[Row, bool, bool], Truth]
    text: str

    def __repr__(self) -> str:
        return self.text

    def takes(self, row: Row) -> bool:
        """Whether a delete takes the row."""
        return self.truth(row, False, False) is True

    def finds(self, row: Row) -> bool:
        """Whether a scan finds the row."""
        return self.truth(row, False, True) is True


@dataclass
class Snapshot:
    """The rows of one snapshot, the columns as they were, and the snapshot before it on its branch."""

    rows: list[Row]
    columns: Columns
    parent: int | None


@dataclass
class Model:
    """One table."""

    columns: Columns
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    branches: dict[str, int] = field(default_factory=dict)
    tags: dict[str, int] = field(default_factory=dict)

    def rows(self, branch: str) -> list[Row]:
        """The rows of a branch; none of one that has no snapshot yet."""
        return self.snapshots[self.branches[branch]].rows if branch in self.branches else []

    def ancestors(self, branch: str) -> list[int]:
        """The snapshots that a branch can be rolled back to."""
        found, at = list[int](), self.branches.get(branch)
        while at is not None and at in self.snapshots:
            found.append(at)
            at = self.snapshots[at].parent
        return found

    def unreferenced(self) -> list[int]:
        """The snapshots that no branch and no tag points to."""
        kept = {*self.branches.values(), *self.tags.values()}
        return [each for each in self.snapshots if each not in kept]

    def rename(self, field_id: int, name: str) -> None:
        """Rename a column."""
        self.columns = tuple(replace(each, name=name) if each.field_id == field_id else each for each in self.columns)

    def column(self, field_id: int) -> ModelColumn:
        """A column by its field id."""
        return next(each for each in self.columns if each.field_id == field_id)


def names_of(columns: Columns) -> dict[int, str]:
    """What columns are called, by field id."""
    return {each.field_id: each.name for each in columns}


def shown(rows: Iterable[Row], columns: Columns) -> Counter[tuple[Any, ...]]:
    """Rows as a reader sees them, each as often as it is there: the values, then the write that brought it."""
    return Counter((*(row.value(column) for column in columns), row.born) for row in rows)


def difference(found: Counter[tuple[Any, ...]], wanted: Counter[tuple[Any, ...]]) -> str:
    """Say in one line how two counts of rows differ, with a row of each kind."""
    missing, surplus = wanted - found, found - wanted
    parts = [
        f"{rows.total()} {what}, such as {min(rows, key=repr)}" for rows, what in ((missing, "missing"), (surplus, "too many")) if rows
    ]
    return "; ".join(parts)


_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": lambda left, right: left < right,
    ">=": lambda left, right: left >= right,
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "in": lambda left, right: left in right,
    "not in": lambda left, right: left not in right,
}
_EXPRESSIONS: Final[dict[str, Any]] = {
    "<": LessThan,
    ">=": GreaterThanOrEqual,
    "=": EqualTo,
    "!=": NotEqualTo,
    "in": In,
    "not in": NotIn,
}


_OPPOSITES: Final = {"<": ">=", ">=": "<", "=": "!=", "!=": "=", "in": "not in", "not in": "in"}


def comparison(field_id: int, operator: str, literal: Any) -> Condition:
    """A column compared with a value, or with several."""

    def truth(row: Row, negate: bool, scanned: bool) -> Truth:
        value, meant = row.values.get(field_id), _OPPOSITES[operator] if negate else operator
        # As PyIceberg's scans have it: null is in no list, and so `not in` every one.
        if value is None:
            return True if scanned and meant == "not in" else None
        return _COMPARE[meant](value, literal)

    return Condition(lambda names: _EXPRESSIONS[operator](names[field_id], literal), truth, f"#{field_id} {operator} {literal}")


def is_null(field_id: int, wanted: bool) -> Condition:
    """A column that is null, or is not."""
    made: Any = IsNull if wanted else NotNull

    def truth(row: Row, negate: bool, scanned: bool) -> Truth:
        return (row.values.get(field_id) is None) == (wanted != negate)

    return Condition(lambda names: made(names[field_id]), truth, f"#{field_id} is {'' if wanted else 'not '}null")


def negated(condition: Condition) -> Condition:
    """A filter that is true where another is false."""
    return Condition(
        lambda names: Not(condition.expression(names)),
        lambda row, negate, scanned: condition.truth(row, not negate, scanned),
        f"not ({condition})",
    )


def both(left: Condition, right: Condition) -> Condition:
    """A filter that is true where two are."""
    return _combined(left, right, And, decides=False, word="and")


def either(left: Condition, right: Condition) -> Condition:
    """A filter that is true where one of two is."""
    return _combined(left, right, Or, decides=True, word="or")


def _combined(left: Condition, right: Condition, made: Any, decides: bool, word: str) -> Condition:
    """Two filters, one of which decides alone where it is so; negated, where it is the opposite (De Morgan)."""

    def truth(row: Row, negate: bool, scanned: bool) -> Truth:
        found = (left.truth(row, negate, scanned), right.truth(row, negate, scanned))
        deciding = decides != negate
        return deciding if deciding in found else None if None in found else not deciding

    return Condition(lambda names: made(left.expression(names), right.expression(names)), truth, f"({left} {word} {right})")


IDS: Final = st.integers(0, 25)
SINGLE = ["<", ">=", "=", "!="]
SEVERAL = ["in", "not in"]

_simple = st.one_of(
    st.builds(comparison, st.sampled_from([ID, VALUE]), st.sampled_from(SINGLE), IDS),
    st.builds(comparison, st.sampled_from([ID, VALUE]), st.sampled_from(SEVERAL), st.frozensets(IDS, min_size=2, max_size=4).map(sorted)),
    st.builds(comparison, st.just(TEAM), st.sampled_from(SINGLE), st.sampled_from(TEAMS)),
    st.builds(is_null, st.sampled_from([TEAM, NOTE, VALUE]), st.booleans()),
)
CONDITIONS: Final = st.recursive(
    _simple,
    lambda inner: st.one_of(st.builds(negated, inner), st.builds(both, inner, inner), st.builds(either, inner, inner)),
    max_leaves=3,
)
"""Filters on the four columns that every table of the state machine has."""
