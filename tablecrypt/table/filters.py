"""Filters of rows: what a scan and a delete make of the expression that they are given.

Nanoseconds: PyIceberg has no literal that binds to timestamp_ns and timestamptz_ns, so such columns get one here.

    column            literals that are taken
    timestamp_ns      '2026-01-31T12:00:00.123456789', whole nanoseconds since 1970
    timestamptz_ns    '2026-01-31T12:00:00.123456789+00:00', whole nanoseconds since 1970

A datetime is refused: PyIceberg cuts what is finer than microseconds from it before it is seen here.

Values that a column cannot hold: PyIceberg rounds a fraction to what a column of whole numbers or decimals has, and a moment to its day.
That is refused here. A number in a list that is beyond the column's it takes for the greatest or smallest of them, as it does infinity in a
column of floats. Such a list loses the number here, and infinity is compared as what it is.

Deletes: one rule holds for files that go whole, for files that are rewritten, and for rows marked in deletion vectors. A row goes where the
filter is true of it, as in SQL: a comparison with null is neither true nor false, `not in`, `!=` and `not like` among them, and then the
row stays. The same holds of NaN, unless the filter asks for it by `is nan` or `is not nan`. PyIceberg decides by statistics whether a file
goes whole and by Arrow whether a row goes, and the two disagree about null and NaN. So each comparison of the filter gets the conditions
under which they agree, before it is used for either.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from decimal import Context, Decimal, InvalidOperation
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundIsNaN,
    BoundNotEqualTo,
    BoundNotIn,
    BoundPredicate,
    EqualTo,
    IsNaN,
    IsNull,
    LiteralPredicate,
    Not,
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
from pyiceberg.expressions.literals import (
    AboveMax,
    BelowMin,
    DecimalLiteral,
    FloatLiteral,
    Literal,
    LongAboveMax,
    LongBelowMin,
    LongLiteral,
    StringLiteral,
    TimestampLiteral,
)
from pyiceberg.expressions.visitors import bind, extract_field_ids, rewrite_not
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.typedef import EMPTY_DICT, Record
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.datetime import timestamp_to_nanos, timestamptz_to_nanos

from tablecrypt.errors import ConfigurationError
from tablecrypt.keys.nested_columns import covering, fields_by_id
from tablecrypt.table._pyiceberg.stored_nulls import StoredIsNull, StoredNotNull
from tablecrypt.table.arrow_filter import arrow_filter, struct_of_default

_END: Final = 2**63
_WHOLE: Final = (IntegerType, LongType)
_FLOATS: Final = (FloatType, DoubleType)
_MOMENTS: Final = (TimestampType, TimestamptzType, TimeType)
_ASKING: Final = (IsNull, NotNull, IsNaN, NotNaN)
_FITTED: Final = (*_WHOLE, *_FLOATS, *_MOMENTS, DecimalType, DateType)
_DAY: Final = 24 * 60 * 60 * 1_000_000


def check_evaluable(schema: Schema, expression: pc.Expression) -> None:
    """Check that Arrow can evaluate a filter on the columns of a schema.

    Raises:
        ConfigurationError: it cannot; columns of type uuid are compared with nothing but null, for one.
    """
    try:
        # To make a scanner is enough: that binds the expression, and runs nothing.
        ds.dataset(pa.Table.from_batches([], schema_to_pyarrow(schema))).scanner(columns=[], filter=expression)
    # A column whose name holds a dot is no field of a struct, for which Arrow takes it.
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        first = str(error).partition("\n")[0]
        raise ConfigurationError(
            f"Arrow cannot evaluate the filter {expression}: {first}. Filter the result of the scan instead"
        ) from error


def pruned(schema: Schema, field_ids: set[int]) -> Schema:
    """Return the schema with these fields alone; of a struct, those of its fields that are named too, and a list or map whole."""
    # PyIceberg visits each column that it is given, and most tables have no nested ones.
    columns = [column for column in schema.fields if column.field_id in field_ids or not column.field_type.is_primitive]
    if not all(column.field_type.is_primitive for column in columns):
        field_ids = _with_what_lists_hold(schema, field_ids)
    identifiers = [each for each in schema.identifier_field_ids if each in field_ids]
    return prune_columns(Schema(*columns, schema_id=schema.schema_id, identifier_field_ids=identifiers), field_ids, select_full_types=False)


def _with_what_lists_hold(schema: Schema, field_ids: set[int]) -> set[int]:
    # PyIceberg refuses to keep a list or map by its own field id.
    lists = {each for each, field in fields_by_id(schema).items() if isinstance(field.field_type, (ListType, MapType))}
    return (field_ids | covering(dict.fromkeys(field_ids & lists), schema).keys()) - lists


class NanosecondLiteral(LongLiteral):
    """Nanoseconds since 1970; a whole number wherever that is wanted."""

    def to(self, type_var: IcebergType) -> Literal[int]:
        """Return this literal for a column of nanoseconds, and what a LongLiteral gives for another."""
        return self if is_nano(type_var) else super().to(type_var)


class BeyondLiteral(LongLiteral):
    """A number beyond the 64 bits of every column: greater than all values of one, or smaller than all."""

    def to(self, type_var: IcebergType) -> Literal[int]:
        """Return what PyIceberg makes of a number that a column of whole numbers cannot hold."""
        return LongAboveMax() if self.value > 0 else LongBelowMin()


def fitted(row_filter: BooleanExpression, schema: Schema, case_sensitive: bool = True) -> BooleanExpression:
    """Return an unbound filter in which columns of nanoseconds are compared with nanoseconds, and columns in structs may be null with them.

    Raises:
        ConfigurationError: a column is compared with a value that it cannot hold, and that would be rounded.
        TypeError: a literal is neither text nor a whole number.
        ValueError: a text is no timestamp of its column's type, or none that 64 bits hold (the years 1678 to 2261).
    """
    if isinstance(row_filter, (AlwaysTrue, AlwaysFalse)):
        return row_filter
    columns = {name: kind for name in schema.column_names if is_nano(kind := schema.find_type(name)) or isinstance(kind, _FITTED)}
    if not case_sensitive:
        columns = {name.lower(): kind for name, kind in columns.items()}
    return _rewritten(row_filter, columns, case_sensitive)


def _rewritten(expression: BooleanExpression, columns: dict[str, IcebergType], case_sensitive: bool) -> BooleanExpression:
    if isinstance(expression, (And, Or)):
        sides = (_rewritten(side, columns, case_sensitive) for side in (expression.left, expression.right))
        return type(expression)(*sides)
    if isinstance(expression, Not):
        return Not(_rewritten(expression.child, columns, case_sensitive))
    if isinstance(expression, (IsNull, NotNull)):
        return (StoredIsNull if isinstance(expression, IsNull) else StoredNotNull)(expression.term)  # type: ignore[call-arg]
    if not isinstance(expression, (LiteralPredicate, SetPredicate)) or not isinstance(expression.term, Reference):
        return expression

    column = columns.get(expression.term.name if case_sensitive else expression.term.name.lower())
    if column is None:
        return expression

    fit = _nanoseconds if is_nano(column) else partial(_held, expression.term.name)
    predicate: Any = type(expression)
    if isinstance(expression, LiteralPredicate):
        return predicate(expression.term, fit(expression.literal, column))  # type: ignore[no-any-return]

    literals = {fit(literal, column) for literal in expression.literals}
    beyond = {literal for literal in literals if isinstance(literal.to(column), (AboveMax, BelowMin))}
    # A list of none would be true or false of null too.
    return predicate(expression.term, literals - beyond or {next(iter(beyond))})  # type: ignore[no-any-return]


def _held(name: str, literal: Any, column: IcebergType) -> Any:
    """Return a literal that says of each value of a column what the given one does.

    Raises:
        ConfigurationError: PyIceberg would round it: a delete of `id = 1.5` would take the row 2.
    """
    value = literal.value
    if isinstance(column, FloatType) and isinstance(value, float) and math.isinf(value):
        return FloatLiteral(value)
    if isinstance(column, DecimalType) and isinstance(value, (int, float, Decimal, str)):
        return _decimal(name, value, column)
    if isinstance(column, _WHOLE) and _is_fraction(value):
        raise _rounded(name, f"a whole number ({column})", value, "a whole number")
    if isinstance(literal, TimestampLiteral) and isinstance(column, DateType) and value % _DAY:
        raise _rounded(name, f"a {column}", literal, f"a {column}")
    # PyIceberg takes any number for microseconds, and Arrow then has no room for it.
    if isinstance(literal, LongLiteral) and isinstance(column, (LongType, *_MOMENTS)) and not -_END <= value < _END:
        return BeyondLiteral(value)
    return literal


def _is_fraction(value: Any) -> bool:
    try:
        number = Decimal(value) if isinstance(value, (str, float, Decimal)) else Decimal()
    except InvalidOperation:
        return False
    return number.is_finite() and number != number.to_integral_value()


def _decimal(name: str, value: float | Decimal | str, column: DecimalType) -> DecimalLiteral:
    with suppress(InvalidOperation):
        exact = Decimal(str(value))
        held = exact.quantize(Decimal(1).scaleb(-column.scale), context=Context(prec=column.precision))
        if held == exact:
            return DecimalLiteral(held)
    raise _rounded(name, f"a {column}", value, "a number that it can hold")


def _rounded(name: str, column: str, value: object, instead: str) -> ConfigurationError:
    return ConfigurationError(f"the filter compares column {name!r}, {column}, with {value}: compare it with {instead}")


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


def is_nano(kind: IcebergType) -> bool:
    """Whether a column of this type holds nanoseconds."""
    return isinstance(kind, (TimestampNanoType, TimestamptzNanoType))


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
        return StoredIsNull(column)  # type: ignore[call-arg]
    if isinstance(value, float) and math.isnan(value):
        return IsNaN(column)  # type: ignore[call-arg]
    if isinstance(value, float) and math.isinf(value):
        return EqualTo(column, FloatLiteral(value))  # type: ignore[call-arg]
    whole = isinstance(value, int) and not isinstance(value, bool)
    return EqualTo(column, NanosecondLiteral(value) if whole else value)  # type: ignore[call-arg]


class RowFilter:
    """A scan's filter, for rows as they are stored, in columns that may have other names than the table's.

    Args:
        schema: the table's.
        row_filter: unbound.

    Attributes:
        bound: to the table's schema.
        columns: field ids of those that it looks at.
        read: these, and the structs without which a file that lacks one of them does not tell where its default stands.
        may_prune: whether the statistics of a file's row groups may rule them out by it.

    Raises:
        ConfigurationError: Arrow cannot evaluate it.
    """

    def __init__(self, schema: Schema, row_filter: BooleanExpression, case_sensitive: bool = True) -> None:
        # Files are planned without negations. With them, NaN would pass `not (x < 1)` in the files that other values leave in the plan.
        self.bound = bind(schema, rewrite_not(row_filter), case_sensitive=case_sensitive)
        self.columns = extract_field_ids(self.bound)
        nested = self.columns - {column.field_id for column in schema.fields}
        self.read = self.columns | {each for each in (struct_of_default(schema, one) for one in nested) if each is not None}
        self._schema = schema
        self.may_prune = _may_prune_row_groups(self.bound)
        if not isinstance(self.bound, AlwaysTrue):
            compared = pruned(schema, self.columns)
            check_evaluable(compared, arrow_filter(self.bound, schema, compared))

    def on(self, columns: Schema, values: dict[int, Any] = EMPTY_DICT) -> pc.Expression | None:
        """Return the filter for Arrow; None where all rows pass.

        Args:
            columns: as they are stored.
            values: of columns that are not, by field id.
        """
        if isinstance(self.bound, AlwaysTrue):
            return None
        return arrow_filter(self.bound, self._schema, columns, values)


def _may_prune_row_groups(bound: BooleanExpression) -> bool:
    """Whether no part of a bound filter without negations is about a uuid or can be true of NaN.

    Parquet's smallest and greatest values leave NaN out. Where both are 1.0, Arrow concludes that all values are, and so that none of them
    is NaN or differs from 1.0, and the scan would lose rows. Nor can Arrow compare a uuid with the statistics of its column.
    """
    if isinstance(bound, (And, Or)):
        return _may_prune_row_groups(bound.left) and _may_prune_row_groups(bound.right)
    if not isinstance(bound, BoundPredicate):
        return True

    field_type = bound.term.ref().field.field_type
    if isinstance(field_type, _FLOATS):
        return not isinstance(bound, (BoundIsNaN, BoundNotEqualTo, BoundNotIn))

    return not isinstance(field_type, UUIDType)


class DeleteFilter:
    """A filter on rows that have a table's columns, or at least `columns` of them.

    Args:
        schema: the table's.
        row_filter: unbound.

    Raises:
        ConfigurationError: Arrow cannot evaluate it.
    """

    def __init__(self, schema: Schema, row_filter: BooleanExpression, case_sensitive: bool = True) -> None:
        bound = bind(schema, with_sql_null_semantics(row_filter, schema, case_sensitive), case_sensitive)
        matches = arrow_filter(bound, schema, schema)
        check_evaluable(schema, matches)
        # Null is false for a filter and for its negation: without this, such a row would neither stay nor go, and a rewrite would lose it.
        self._deleted = pc.coalesce(matches, pc.scalar(False))
        self.columns = pruned(schema, extract_field_ids(bound))

    def deleted(self, rows: pa.Table) -> pa.Table:
        """Return the rows that go."""
        return rows.filter(self._deleted)


def with_sql_null_semantics(row_filter: BooleanExpression, schema: Schema, case_sensitive: bool = True) -> BooleanExpression:
    """Return an unbound filter that is true of a row, or of a whole file by its statistics, only where this one is true of all it takes.

    Args:
        schema: the table's.
        row_filter: unbound.
    """
    expression = rewrite_not(row_filter)
    asked = {schema.find_field(name, case_sensitive).field_id for name in _asked_for_nan(expression)}
    return _with_conditions(expression, schema, case_sensitive, asked)


def _with_conditions(expression: BooleanExpression, schema: Schema, case_sensitive: bool, asked_for_nan: set[int]) -> BooleanExpression:
    if isinstance(expression, (And, Or)):
        left, right = (_with_conditions(side, schema, case_sensitive, asked_for_nan) for side in (expression.left, expression.right))
        return type(expression)(left, right)
    if not isinstance(expression, UnboundPredicate) or not isinstance(expression.term, Reference):
        return expression

    column, conditions = expression.term, list[BooleanExpression]()
    field = schema.find_field(column.name, case_sensitive)
    # Binding folds `v < 3000000000`, for a column of 32 bits, into what is true of null too.
    is_folded = isinstance(expression.bind(schema, case_sensitive), AlwaysTrue)
    if is_folded or isinstance(expression, (NotEqualTo, NotIn, NotStartsWith, NotNaN)):
        conditions.append(StoredNotNull(column))  # type: ignore[call-arg]
    compares_floats = isinstance(expression, (LiteralPredicate, SetPredicate)) and isinstance(field.field_type, _FLOATS)
    if compares_floats and field.field_id not in asked_for_nan:
        conditions.append(NotNaN(column))  # type: ignore[call-arg]
    return And(expression, *conditions) if conditions else expression


def unsaid(row_filter: BooleanExpression, schema: Schema) -> tuple[str, str] | None:
    """Return the first column of whose `null` or `nan` rows a scan and a delete by an unbound filter think otherwise, and which of both.

    A scan finds such rows, as PyIceberg's do: nulls by `not in`, NaN by that and by `!=`. A delete leaves them, unless the filter asks.
    """
    predicates = list(_predicates(rewrite_not(row_filter)))
    asked = {(name, "null" if isinstance(each, (IsNull, NotNull)) else "nan") for name, each in predicates if isinstance(each, _ASKING)}
    for name, each in predicates:
        field = schema.find_field(name)
        if isinstance(each, NotIn) and not field.required and (name, "null") not in asked:
            return name, "null"
        if isinstance(each, (NotIn, NotEqualTo)) and isinstance(field.field_type, _FLOATS) and (name, "nan") not in asked:
            return name, "nan"
    return None


def _asked_for_nan(expression: BooleanExpression) -> Iterator[str]:
    return (name for name, each in _predicates(expression) if isinstance(each, (IsNaN, NotNaN)))


def names_in(row_filter: BooleanExpression) -> set[str]:
    """Return the names of the columns that an unbound filter looks at."""
    return {name for name, _ in _predicates(rewrite_not(row_filter))}


def _predicates(expression: BooleanExpression) -> Iterator[tuple[str, BooleanExpression]]:
    """Yield the parts of an expression without negations that compare a column, each with the column's name."""
    if isinstance(expression, (And, Or)):
        yield from _predicates(expression.left)
        yield from _predicates(expression.right)
    elif isinstance(expression, UnboundPredicate) and isinstance(expression.term, Reference):
        yield expression.term.name, expression
