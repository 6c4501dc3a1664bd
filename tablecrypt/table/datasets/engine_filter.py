"""An engine's filter, given as an Arrow expression, in terms of a table: which columns it looks at, and which files it rules out.

Engines hand their filter to a dataset as a pyarrow.compute.Expression, which cannot be looked into. Its pickled form can: an Arrow IPC file
whose schema metadata lists the nodes in prefix order, and whose one row holds the literals and options.

    call "and_kleene" | call "greater" | field_ref "id" | literal "0" | end "greater" | ... | end "and_kleene"
    nested_field_ref "2" | field_ref "person" | field_ref "age"                             a field of a struct, and how deep it is

What is made of it never decides about a row. `row_filter` is true of every row that the expression keeps, and true of more where a part of
the expression is not understood: it rules out manifests, files and row groups, and Arrow evaluates the expression itself on what is left.

NaN is where engines differ from Arrow and from Iceberg's statistics, so nothing but a plain comparison of a column of floats is understood,
and of an engine for which NaN is the greatest number not even that.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotNull,
    Or,
    Reference,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    UUIDType,
)

from tablecrypt.table.filters import NanosecondLiteral

_COMPARISONS: Final[dict[str, Any]] = {
    "equal": EqualTo,
    "not_equal": NotEqualTo,
    "less": LessThan,
    "less_equal": LessThanOrEqual,
    "greater": GreaterThan,
    "greater_equal": GreaterThanOrEqual,
}
_MIRRORED: Final = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
_AND, _OR = ("and_kleene", "and"), ("or_kleene", "or")
_PLAIN: Final = (BooleanType, IntegerType, LongType, StringType, BinaryType, DecimalType)
_TEMPORAL: Final = (DateType, TimestampType, TimestamptzType)
_NANOSECONDS: Final = (TimestampNanoType, TimestamptzNanoType)
_FLOATS: Final = (FloatType, DoubleType)
_FEW_VALUES: Final = 200
"""Of a longer list of values, PyIceberg's evaluators look at none."""


@dataclass(frozen=True)
class _Column:
    name: str
    is_nested: bool = False


@dataclass(frozen=True)
class _Literal:
    value: pa.Scalar


@dataclass(frozen=True)
class _Call:
    name: str
    arguments: list[_Node] = field(default_factory=list)
    options: pa.Scalar | None = None


_Node: TypeAlias = _Column | _Literal | _Call


class EngineFilter:
    """One filter of an engine.

    Args:
        expression: on the columns of `schema`.
        schema: of the rows that the engine is given.
    """

    def __init__(self, expression: pc.Expression, schema: Schema) -> None:
        self.expression = expression
        self._schema = schema
        self._node = _parsed(expression)

    @property
    def columns(self) -> set[str] | None:
        """The names of the top-level columns that it looks at; None if that is not known."""
        return None if self._node is None else {column.name for column in _columns(self._node)}

    @property
    def prunes_safely(self) -> bool:
        """Whether Arrow may rule out row groups by it.

        Their statistics leave NaN out, and Arrow concludes that none is there. Nor can it compare a uuid with those of its column.
        """
        if self._node is None:
            return False
        return all(self._is_safe(each) for each in _predicates(self._node))

    def row_filter(self, table: Schema, nan_is_greatest: bool = False) -> BooleanExpression:
        """Return an unbound filter on a table's columns that is true of every row which the expression keeps.

        Args:
            table: its current schema. Columns are looked up in it by field id, since they may have had other names in a snapshot.
            nan_is_greatest: for an engine that takes NaN for greater than any number, and equal to itself.
        """
        if self._node is None:
            return ALWAYS_TRUE
        return _Translation(self._schema, table, nan_is_greatest).of(self._node)

    def _is_safe(self, node: _Node) -> bool:
        types = [self._type_of(column) for column in _columns(node)]
        if any(isinstance(kind, UUIDType) for kind in types):
            return False
        # Only floats have NaN, which the statistics of row groups leave out. An unknown type may be one.
        if not any(kind is None or isinstance(kind, _FLOATS) for kind in types):
            return True
        return isinstance(node, _Call) and node.name in _COMPARISONS and node.name != "not_equal"

    def _type_of(self, column: _Column) -> IcebergType | None:
        if column.is_nested or column.name not in self._schema.column_names:
            return None
        return self._schema.find_type(column.name)


class _Translation:
    """From Arrow's functions to Iceberg's predicates. What has no counterpart is true of every row."""

    def __init__(self, schema: Schema, table: Schema, nan_is_greatest: bool) -> None:
        self._schema = schema
        self._table = table
        self._nan_is_greatest = nan_is_greatest

    def of(self, node: _Node) -> BooleanExpression:
        if not isinstance(node, _Call):
            return ALWAYS_TRUE
        if node.name in _AND:
            return And(*(self.of(each) for each in node.arguments))
        if node.name in _OR:
            return Or(*(self.of(each) for each in node.arguments))

        # A part that is not understood may keep any row: taken for true, it rules out no file.
        return self._predicate(node) or ALWAYS_TRUE

    def _predicate(self, node: _Call) -> BooleanExpression | None:
        match node.name, node.arguments:
            case name, [_Column() as column, _Literal(value)] if name in _COMPARISONS:
                return self._comparison(name, column, value)
            case name, [_Literal(value), _Column() as column] if name in _COMPARISONS:
                return self._comparison(_MIRRORED.get(name, name), column, value)
            case "is_in", [_Column() as column]:
                return self._membership(column, node.options)
            case "if_else", [_Call("is_valid"), _Call("is_in") as among, _Literal(other)] if not other.is_valid:
                return self._predicate(among)  # As DuckDB says it, so that null is in no list.
            case (("is_null" | "is_valid"), [_Column() as column]) if (found := self._found(column)) is not None:
                return self._presence(node.name, *found)
            case "invert", [_Call("is_null" | "is_valid") as presence] if (inverted := self._predicate(presence)) is not None:
                return Not(inverted)

        return None

    def _presence(self, name: str, reference: Reference, kind: IcebergType) -> BooleanExpression | None:
        predicate: Any = IsNull if name == "is_null" else NotNull
        return None if isinstance(kind, _FLOATS) else predicate(reference)

    def _comparison(self, name: str, column: _Column, scalar: pa.Scalar) -> BooleanExpression | None:
        found = self._found(column)
        if found is None:
            return None

        reference, kind = found
        if isinstance(kind, _FLOATS) and (self._nan_is_greatest or name == "not_equal"):
            return None

        value = _value(scalar, kind)

        return None if value is None else _COMPARISONS[name](reference, value)

    def _membership(self, column: _Column, options: pa.Scalar | None) -> BooleanExpression | None:
        found = self._found(column)
        if found is None or options is None or isinstance(found[1], _FLOATS):
            return None

        scalars = options["value_set"].values
        # PyIceberg's evaluators read every file for a longer list, so the filter would only cost time.
        if not 0 < len(scalars) <= _FEW_VALUES:
            return None

        values = [_value(each, found[1]) for each in scalars]
        # A value without a literal may match rows too, as null does in Arrow: the others alone would rule out their files.
        if any(value is None for value in values):
            return None

        # PyIceberg's predicates take positional arguments, which their annotations do not show.
        is_in: Any = In

        return cast("BooleanExpression", is_in(found[0], set(values)))

    def _found(self, column: _Column) -> tuple[Reference, IcebergType] | None:
        """The column in the table as it is now, and its type."""
        if column.is_nested or column.name not in {each.name for each in self._schema.fields}:
            return None

        shown = self._schema.find_field(column.name)
        name = self._table.find_column_name(shown.field_id)
        # A column that was dropped or promoted since the snapshot: a literal of one type must not meet bounds of the other.
        if name is None or self._table.find_type(shown.field_id) != shown.field_type:
            return None

        return Reference(name), shown.field_type


def _value(scalar: pa.Scalar, kind: IcebergType) -> Any:
    """A literal for a column of that type; None where there is none that says the same."""
    if not scalar.is_valid or not isinstance(kind, (*_PLAIN, *_TEMPORAL, *_NANOSECONDS, *_FLOATS)):
        return None

    try:
        cast = scalar.cast(schema_to_pyarrow(kind))
        # Arrow rounds: 0.1 to the nearest float of 32 bits, a moment to its day. It compares with the value itself.
        exact = pa.float64() if isinstance(kind, FloatType) else scalar.type
        if not cast.cast(exact).equals(scalar.cast(exact)):
            return None
    except pa.ArrowException:
        return None

    if isinstance(kind, _TEMPORAL):
        return cast.value
    if isinstance(kind, _NANOSECONDS):
        return NanosecondLiteral(cast.value)

    value = cast.as_py()

    # Iceberg's statistics know nothing of NaN: no file may be ruled out by a comparison with it.
    return None if isinstance(value, float) and math.isnan(value) else value


def _predicates(node: _Node) -> Iterator[_Node]:
    """The parts that `and` and `or` join."""
    if isinstance(node, _Call) and node.name in (*_AND, *_OR):
        for each in node.arguments:
            yield from _predicates(each)
    else:
        yield node


def _columns(node: _Node) -> Iterator[_Column]:
    if isinstance(node, _Column):
        yield node
    elif isinstance(node, _Call):
        for each in node.arguments:
            yield from _columns(each)


def _parsed(expression: pc.Expression) -> _Node | None:
    """The expression as a tree; None if it is not in the form that is known here."""
    try:
        _, (serialized,) = expression.__reduce__()
        literals = pa.ipc.open_file(serialized).get_batch(0)
        nodes = iter(_metadata(literals.schema))
        node = _read(next(nodes), nodes, literals)
    except (pa.ArrowException, ValueError, TypeError, LookupError, StopIteration, RecursionError):
        return None

    return node if next(nodes, None) is None else None


def _read(first: tuple[str, str], rest: Iterator[tuple[str, str]], literals: pa.RecordBatch) -> _Node:
    kind, value = first
    if kind == "field_ref":
        return _Column(value)
    if kind == "nested_field_ref":
        path = [next(rest)[1] for _ in range(int(value))]
        return _Column(path[0], is_nested=True)
    if kind == "literal":
        return _Literal(literals.column(int(value))[0])
    if kind != "call":
        raise ValueError(kind)

    return _read_call(value, rest, literals)


def _read_call(name: str, rest: Iterator[tuple[str, str]], literals: pa.RecordBatch) -> _Call:
    arguments: list[_Node] = []
    options = None
    while (following := next(rest))[0] != "end":
        if following[0] == "options":
            options = literals.column(int(following[1]))[0]
        else:
            arguments.append(_read(following, rest, literals))

    return _Call(name, arguments, options)


class _ArrowSchema(ctypes.Structure):
    """The beginning of the C data interface's ArrowSchema."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


def _metadata(schema: pa.Schema) -> list[tuple[str, str]]:
    """The pairs of a schema's metadata in their order. pyarrow gives them as a dictionary, which keeps one of each key."""
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    at = _ArrowSchema.from_address(pointer(capsule, b"arrow_schema")).metadata or 0

    def taken(length: int) -> bytes:
        nonlocal at
        at += length
        return ctypes.string_at(at - length, length)

    def number() -> int:
        return int.from_bytes(taken(4), sys.byteorder)

    return [(taken(number()).decode(), taken(number()).decode()) for _ in range(number() if at else 0)]
