"""A filter on a table's columns, as Arrow's expression on the columns that a file stores.

    column of the table             in the expression
    stored in the table's type      the stored column
    stored in another type          the stored column, cast to the table's
    stored as uuid                  its 16 bytes, which Arrow compares
    not stored                      its default, or the value of the file's partition; null without either
    not stored, in a struct         its default where the struct is there; else null

So one literal means the same in every file. PyIceberg binds a filter to each file's own types instead, where a number that a column had no
room for, before it was widened, becomes the greatest or smallest that it had; and to it a comparison with a column that a file lacks is
false, and its negation true.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression, BoundTerm
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, visit
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.types import DoubleType, FloatType, IcebergType, NestedField, UUIDType

from tablecrypt.keys.nested_columns import path_through_structs

_FLOATS: Final = (FloatType, DoubleType)
_UUID: Final = pa.binary(16)

Expression: TypeAlias = pc.Expression


def arrow_filter(bound: BooleanExpression, schema: Schema, stored: Schema, values: Mapping[int, Any] = EMPTY_DICT) -> pc.Expression:
    """Return a bound filter for rows in the stored columns.

    Args:
        bound: to the table's schema.
        schema: the table's.
        stored: the columns of a file, which may have other names and types than the table's.
        values: of columns that it does not store, by field id.
    """
    return visit(bound, _OnStored(schema, stored, values))


def struct_of_default(schema: Schema, field_id: int) -> int | None:
    """Return the field id of the struct around a column with a default, which the column has only where that struct is not null.

    None: the column has no default, or is in no struct.
    """
    path = path_through_structs(schema, field_id) or []
    return path[-2].field_id if len(path) > 1 and path[-1].initial_default is not None else None


class _OnStored(BoundBooleanExpressionVisitor[Expression]):
    def __init__(self, schema: Schema, stored: Schema, values: Mapping[int, Any]) -> None:
        self._schema = schema
        self._stored = stored
        self._at_the_top = {column.field_id: column for column in stored.fields}
        self._values = values

    def visit_in(self, term: BoundTerm, literals: set[Any]) -> Expression:
        column, kind = self._column(term), _kind_of(term)
        listed = column.isin(pa.array(literals, _compared_as(kind)))
        # In a list, Arrow tells -0.0 from 0.0. Of null, a list says that it is not in it, where a comparison says neither.
        return listed | pc.coalesce(column == 0.0, pc.scalar(False)) if 0.0 in literals and isinstance(kind, _FLOATS) else listed

    def visit_not_in(self, term: BoundTerm, literals: set[Any]) -> Expression:
        return ~self.visit_in(term, literals)

    def visit_is_nan(self, term: BoundTerm) -> Expression:
        return pc.is_nan(self._column(term))

    def visit_not_nan(self, term: BoundTerm) -> Expression:
        return ~self.visit_is_nan(term)

    def visit_is_null(self, term: BoundTerm) -> Expression:
        return self._column(term).is_null(nan_is_null=False)

    def visit_not_null(self, term: BoundTerm) -> Expression:
        return self._column(term).is_valid()

    def visit_equal(self, term: BoundTerm, literal: Literal[Any]) -> Expression:
        return self._column(term) == _scalar(literal.value, _kind_of(term))

    def visit_not_equal(self, term: BoundTerm, literal: Literal[Any]) -> Expression:
        return self._column(term) != _scalar(literal.value, _kind_of(term))

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> Expression:
        return self._column(term) >= _scalar(literal.value, _kind_of(term))

    def visit_greater_than(self, term: BoundTerm, literal: Literal[Any]) -> Expression:
        return self._column(term) > _scalar(literal.value, _kind_of(term))

    def visit_less_than(self, term: BoundTerm, literal: Literal[Any]) -> Expression:
        return self._column(term) < _scalar(literal.value, _kind_of(term))

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> Expression:
        return self._column(term) <= _scalar(literal.value, _kind_of(term))

    def visit_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> Expression:
        return pc.starts_with(self._column(term), literal.value)

    def visit_not_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> Expression:
        return ~self.visit_starts_with(term, literal)

    def visit_true(self) -> Expression:
        return pc.scalar(True)

    def visit_false(self) -> Expression:
        return pc.scalar(False)

    def visit_not(self, child_result: Expression) -> Expression:
        return ~child_result

    def visit_and(self, left_result: Expression, right_result: Expression) -> Expression:
        return left_result & right_result

    def visit_or(self, left_result: Expression, right_result: Expression) -> Expression:
        return left_result | right_result

    def _column(self, term: BoundTerm) -> Expression:
        field = term.ref().field
        top = self._at_the_top.get(field.field_id)
        path = path_through_structs(self._stored, field.field_id) if top is None else [top]
        if path is None:
            return self._not_stored(field)

        column = _at(path)
        # A cast hides the column from the statistics of row groups.
        is_same = path[-1].field_type == field.field_type and not isinstance(field.field_type, UUIDType)
        return column if is_same or not field.field_type.is_primitive else column.cast(_compared_as(field.field_type))

    def _not_stored(self, field: NestedField) -> Expression:
        value = pc.scalar(_scalar(self._values.get(field.field_id, field.initial_default), field.field_type))
        around = struct_of_default(self._schema, field.field_id)
        if around is None:
            return value

        struct, null = path_through_structs(self._stored, around), pc.scalar(_scalar(None, field.field_type))
        return null if struct is None else pc.if_else(_at(struct).is_valid(), value, null)


def _at(path: Sequence[NestedField]) -> Expression:
    # Not by a name with dots in it: a column's own name may hold one.
    return pc.field(tuple(each.name for each in path))


def _kind_of(term: BoundTerm) -> IcebergType:
    field: NestedField = term.ref().field
    return field.field_type


def _compared_as(kind: IcebergType) -> pa.DataType:
    return _UUID if isinstance(kind, UUIDType) else schema_to_pyarrow(kind)


def _scalar(value: Any, kind: IcebergType) -> pa.Scalar:
    return pa.scalar(value, _compared_as(kind))


def comparable(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return values in a type that Arrow compares, as Iceberg orders them: no dictionary or extension type, text and bytes of one kind."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.cast(values.type.storage_type)
    if pa.types.is_string(values.type):
        return values.cast(pa.large_string())

    is_bytes = pa.types.is_binary(values.type) or pa.types.is_fixed_size_binary(values.type)
    return values.cast(pa.large_binary()) if is_bytes else values
