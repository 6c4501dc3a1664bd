"""The filter of an erasure: on whole rows, on the part of a row that a file holds, and as it may be shown, without its values.

Files may hold some columns of a row only, as equality deletes do. Then each comparison of another column counts as true: what is left is
true of every row of which the filter may be true.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    Reference,
    StartsWith,
    UnboundPredicate,
)
from pyiceberg.expressions.visitors import bind, extract_field_ids, rewrite_not
from pyiceberg.schema import Schema

from tablecrypt.errors import ConfigurationError
from tablecrypt.keys.nested_columns import name_or_id
from tablecrypt.table.filters import DeleteFilter, fitted, unsaid

if TYPE_CHECKING:
    from tablecrypt.table.scan import EncryptedDataScan
    from tablecrypt.table.table import EncryptedTable

WHOLE_TABLE: Final = "to destroy a whole table, use shred with whole_table, or tablecrypt shred --whole-table"
_OPERATORS: Final[dict[type[BooleanExpression], str]] = {
    EqualTo: "= ?",
    NotEqualTo: "!= ?",
    LessThan: "< ?",
    LessThanOrEqual: "<= ?",
    GreaterThan: "> ?",
    GreaterThanOrEqual: ">= ?",
    In: "in (?)",
    NotIn: "not in (?)",
    StartsWith: "like ?",
    NotStartsWith: "not like ?",
    IsNull: "is null",
    NotNull: "is not null",
    IsNaN: "is nan",
    NotNaN: "is not nan",
}


class ErasureFilter:
    """Which rows are erased: those of which the filter is true, as a delete decides it.

    Args:
        schema: the table's.
        expression: unbound; it fits the schema.

    Raises:
        ConfigurationError: it is true of every row or can be of none, leaves open what becomes of nulls or NaN, compares whole numbers with
            a fraction, or Arrow cannot evaluate it.
    """

    def __init__(self, schema: Schema, expression: BooleanExpression) -> None:
        self._schema = schema
        self.expression = fitted(expression, schema)
        # Binding folds a comparison with a value that the column's type cannot have into true or false.
        bound = bind(schema, self.expression, case_sensitive=True)
        if isinstance(bound, AlwaysTrue):
            # More likely a slip than a wish. `shred` takes a whole table, and only when the caller repeats its name.
            raise ConfigurationError(f"the filter is true of every row: {WHOLE_TABLE}")
        if isinstance(bound, AlwaysFalse):
            raise ConfigurationError("the filter is true of no row, whatever the table holds: no column of its type can have such a value")

        # What a scan by this filter goes on to find would pass for rows that the proof says are gone.
        if (open_question := unsaid(self.expression, schema)) is not None:
            column, what = open_question
            raise ConfigurationError(
                f"the filter leaves open what becomes of rows whose {column!r} is {what}, which a scan by it finds and a delete leaves: "
                f"add `or {column} is {what}` to erase them, or `and {column} is not {what}` to keep them"
            )

        self.on_rows = DeleteFilter(schema, self.expression)
        self.field_ids = frozenset(extract_field_ids(bound))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that it compares, in the schema's order."""
        return tuple(name_or_id(self._schema, each) for each in sorted(self.field_ids))

    def scan(self, table: EncryptedTable, ref: str) -> EncryptedDataScan:
        """Return a scan of the matching rows of a branch or tag. Of both, the filter names the columns that the table has now."""
        snapshot = table.metadata.refs[ref].snapshot_id
        return table.scan(row_filter=self.expression).update(snapshot_id=snapshot, as_now=True)

    @property
    def shape(self) -> str:
        """The filter with a question mark in place of each value: "customer_id = ?"."""
        return shape_of(self.expression)

    def matching(self, rows: pa.Table) -> int:
        """Return how many rows of a table that has all of the filter's columns are erased."""
        return int(self.on_rows.deleted(rows).num_rows)

    def on(self, columns: Iterable[str]) -> PartialFilter | None:
        """Return the filter on rows that have some top-level columns of the table only; None where it compares none of these."""
        return self.on_part(Schema(*(field for field in self._schema.fields if field.name in set(columns))))

    def on_part(self, known: Schema) -> PartialFilter | None:
        """Return the filter on rows that have a part of the table's schema only; None where it compares none of its columns."""
        # Taking a comparison as true makes the filter true of more rows only where no NOT stands above it.
        possible = _possible(rewrite_not(self.expression), frozenset(known.column_names))
        return None if isinstance(possible, AlwaysTrue) else PartialFilter(known, possible)


class PartialFilter:
    """True of each row of which the whole filter may be true."""

    def __init__(self, schema: Schema, expression: BooleanExpression) -> None:
        self._on_rows = DeleteFilter(schema, expression)

    def may_match(self, rows: pa.Table) -> int:
        """Return of how many rows it is true."""
        return int(self._on_rows.deleted(rows).num_rows)


def _possible(expression: BooleanExpression, names: frozenset[str]) -> BooleanExpression:
    if isinstance(expression, (And, Or)):
        left, right = (_possible(side, names) for side in (expression.left, expression.right))
        return type(expression)(left, right)
    if isinstance(expression, UnboundPredicate) and isinstance(expression.term, Reference):
        return expression if expression.term.name in names else AlwaysTrue()
    return expression


def shape_of(expression: BooleanExpression, outer: type[BooleanExpression] | None = None) -> str:
    """Return an unbound filter with a question mark in place of each value: "customer_id = ?".

    Args:
        expression: the filter.
        outer: And or Or, if the filter is a side of one; the text has parentheses where they differ.
    """
    if isinstance(expression, (And, Or)):
        kind = And if isinstance(expression, And) else Or
        text = f"{shape_of(expression.left, kind)} {'and' if kind is And else 'or'} {shape_of(expression.right, kind)}"
        return text if outer in (None, kind) else f"({text})"
    if isinstance(expression, Not):
        return f"not ({shape_of(expression.child)})"
    if isinstance(expression, UnboundPredicate) and isinstance(expression.term, Reference):
        return f"{expression.term.name} {next(_OPERATORS[kind] for kind in type(expression).__mro__ if kind in _OPERATORS)}"

    return "false" if isinstance(expression, AlwaysFalse) else "true"
