"""A server's row filter: the JSON of an Iceberg expression, as a function that says of each row whether it may be returned.

    predicate   true, false; and, or, not; is-null, not-null, is-nan, not-nan; eq, not-eq, lt, lt-eq, gt, gt-eq; starts-with,
                not-starts-with; in, not-in
    operand     a column by its field id, a literal, or a partition transform of iceberg_functions applied to an operand

Predicates are never null, as the specification says: null equals null and is neither less nor greater than anything, NaN likewise; a
negation is true where what it negates is false. PyIceberg's filters follow SQL there, so they are not used for this.

What is not listed, a column by its name, a literal that is not of its operand's type, and a key that has no meaning are refused.

Iceberg expressions specification; REST catalog specification, `required-row-filter`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import DoubleType, FloatType, IcebergType, IntegerType, LongType, NestedField, PrimitiveType, StringType, StructType

from tablecrypt.errors import ReadRestrictionError
from tablecrypt.keys.nested_columns import path_through_structs
from tablecrypt.table.arrow_filter import comparable
from tablecrypt.table.partitions import transformed
from tablecrypt.table.restrictions.json_values import primitive_type, value_in_json

Rows: TypeAlias = Callable[[pa.RecordBatch], Any]
"""From rows to an array, or to a scalar that stands for each of them."""

_FUNCTIONS: Final = "iceberg_functions"
_UNARY: Final = frozenset({"is-null", "not-null", "is-nan", "not-nan"})
_COMPARISONS: Final = frozenset({"lt", "lt-eq", "gt", "gt-eq", "eq", "not-eq"})
_PREFIXES: Final = frozenset({"starts-with", "not-starts-with"})
_SETS: Final = frozenset({"in", "not-in"})
_TRANSFORMS: Final[dict[str, Callable[[], Transform[Any, Any]]]] = {
    "identity": IdentityTransform,
    "year": YearTransform,
    "month": MonthTransform,
    "day": DayTransform,
    "hour": HourTransform,
}
_PARAMETRIC: Final[dict[str, Callable[[int], Transform[Any, Any]]]] = {"bucket": BucketTransform, "truncate": TruncateTransform}


@dataclass(frozen=True)
class _Operand:
    """An operand bound to a schema; a literal that waits for the type of the other side has none."""

    kind: IcebergType | None
    rows: Rows
    literal: Any = None


class RestrictingFilter:
    """A row filter, bound to the columns of the rows that it gets.

    Args:
        expression: the parsed JSON.
        schema: of the rows; holds every column that the expression names.
        table: the table's, which says the types to compare in; None where the rows have them.

    Raises:
        ReadRestrictionError: the expression cannot be evaluated.
    """

    def __init__(self, expression: object, schema: Schema, table: Schema | None = None) -> None:
        self._schema = schema
        self._table = table or schema
        self._predicate = self._bound(expression)

    def kept(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that the server lets through."""
        chosen = self._predicate(rows)
        if isinstance(chosen, pa.Scalar):
            return rows if chosen.as_py() else rows.slice(0, 0)
        return rows.filter(chosen)

    def _bound(self, expression: object) -> Rows:
        if isinstance(expression, bool):
            return _constant(expression)

        node = _object(expression, "an expression")
        kind = str(node.get("type"))
        if kind in ("true", "false"):
            _check_keys(node, {"type"})
            return _constant(kind == "true")
        if kind == "not":
            _check_keys(node, {"type", "child"})
            return _negated(self._bound(node["child"]))
        if kind in ("and", "or"):
            _check_keys(node, {"type", "left", "right"})
            return _both(pc.and_ if kind == "and" else pc.or_, self._bound(node["left"]), self._bound(node["right"]))
        if kind in _UNARY:
            return self._unary(node, kind)
        if kind in _COMPARISONS:
            return self._comparison(node, kind)
        if kind in _PREFIXES:
            return self._prefix(node, kind)
        if kind in _SETS:
            return self._membership(node, kind)

        # Taken for true, an unknown part would show hidden rows; taken for false, it would lose rows without a word.
        raise ReadRestrictionError(f"the row filter has an expression of type {kind!r}, which is not known here")

    def _unary(self, node: Mapping[str, Any], kind: str) -> Rows:
        _check_keys(node, {"type", "child"})
        tested = self._operand(node["child"])
        if tested.kind is None:
            raise ReadRestrictionError(f"{kind} tests a literal")

        if kind.endswith("null"):
            test: Rows = lambda rows: pc.is_null(tested.rows(rows))  # noqa: E731  one line of a table of cases
        elif isinstance(tested.kind, (FloatType, DoubleType)):
            test = lambda rows: _is_nan(tested.rows(rows))  # noqa: E731
        else:
            raise ReadRestrictionError(f"{kind} is for float and double, not {tested.kind}")

        return _negated(test) if kind.startswith("not-") else test

    def _comparison(self, node: Mapping[str, Any], kind: str) -> Rows:
        _check_keys(node, {"type", "left", "right"})
        left, right = _aligned(self._operand(node["left"]), self._operand(node["right"]))

        def compared(rows: pa.RecordBatch) -> Any:
            return _compare(kind, left(rows), right(rows))

        return compared

    def _prefix(self, node: Mapping[str, Any], kind: str) -> Rows:
        _check_keys(node, {"type", "left", "right"})
        text, prefix = self._operand(node["left"]), self._operand(node["right"])
        if not isinstance(text.kind, StringType) or prefix.kind is not None:
            raise ReadRestrictionError(f"{kind} compares a string with a literal")

        begin: str = prefix.literal(text.kind)

        def starts(rows: pa.RecordBatch) -> Any:
            return pc.fill_null(pc.starts_with(text.rows(rows), pattern=begin), False)

        return _negated(starts) if kind.startswith("not-") else starts

    def _membership(self, node: Mapping[str, Any], kind: str) -> Rows:
        _check_keys(node, {"type", "child", "values"})
        tested = self._operand(node["child"])
        if not isinstance(tested.kind, PrimitiveType):
            raise ReadRestrictionError(f"{kind} is for a column of a primitive type")

        equal = [_scalar_rows(each.literal(tested.kind), tested.kind) for each in self._literals(node["values"])]

        def member(rows: pa.RecordBatch) -> Any:
            values = tested.rows(rows)
            return reduce(pc.or_, (_compare("eq", values, one(rows)) for one in equal), pa.scalar(False))

        return _negated(member) if kind.startswith("not-") else member

    def _literals(self, values: object) -> list[_Operand]:
        if isinstance(values, list):
            found = [self._operand(value) for value in values]
        else:
            node = _object(values, "a set of literals")
            _check_keys(node, {"type", "values", "data-type"})
            if node["type"] != "literals" or not isinstance(node["values"], list):
                raise ReadRestrictionError("a set of literals is not written as one")
            found = [_typed_literal(value, node["data-type"]) for value in node["values"]]

        if any(each.kind is not None for each in found):
            raise ReadRestrictionError("a set of literals holds something that is not a literal")

        return found

    def _operand(self, value: object) -> _Operand:
        if not isinstance(value, dict):
            return _Operand(None, _unplaced, partial(value_in_json, value))

        kind = value.get("type")
        if kind == "reference":
            _check_keys(value, {"type", "id"})
            return self._column(value["id"])
        if kind == "literal":
            _check_keys(value, {"type", "value"}, {"data-type"})
            if value.get("data-type") is not None:
                return _typed_literal(value["value"], value["data-type"])
            return _Operand(None, _unplaced, partial(value_in_json, value["value"]))
        if kind == "apply":
            return self._applied(value)

        raise ReadRestrictionError(f"the row filter has an operand of type {kind!r}, which is not known here")

    def _column(self, field_id: object) -> _Operand:
        path = path_to(self._schema, field_id)
        at = [self._schema.fields.index(path[0])]
        for outer, inner in pairwise(path):
            assert isinstance(outer.field_type, StructType)
            at.append(outer.field_type.fields.index(inner))
        # Rows of an older snapshot may have a narrower type, in which a literal may have no place, or equal another value.
        kind = path_to(self._table, field_id)[-1].field_type
        widened = kind if kind.is_primitive and kind != path[-1].field_type else None

        def values(rows: pa.RecordBatch) -> pa.Array:
            column = reduce(pc.struct_field, at[1:], rows.column(at[0]))
            return comparable(column if widened is None else column.cast(schema_to_pyarrow(widened)))

        return _Operand(kind, values)

    def _applied(self, node: Mapping[str, Any]) -> _Operand:
        _check_keys(node, {"type", "function", "arguments"})
        arguments = node["arguments"]
        if not isinstance(arguments, list) or not arguments:
            raise ReadRestrictionError("the row filter applies a function to nothing")

        transform = _transform(node["function"], arguments[:-1])
        source = self._operand(arguments[-1])
        if source.kind is None or not transform.can_transform(source.kind):
            raise ReadRestrictionError(f"the transform {transform} is not for {source.kind or 'a literal'}")

        kind: IcebergType = transform.result_type(source.kind)
        typed = schema_to_pyarrow(kind)
        source_kind = source.kind

        def values(rows: pa.RecordBatch) -> pa.Array:
            return comparable(transformed(source.rows(rows), source_kind, transform).cast(typed))

        return _Operand(kind, values)


def path_to(schema: Schema, field_id: object) -> list[NestedField]:
    """Return a column and the fields of structs through which a field id is reached.

    Raises:
        ReadRestrictionError: no field has the id, or it is inside a list or map.
    """
    if not isinstance(field_id, int) or isinstance(field_id, bool):
        raise ReadRestrictionError(f"{field_id!r} is not a field id")
    path = path_through_structs(schema, field_id)
    if path is None:
        raise ReadRestrictionError(f"the row filter names field id {field_id}, which no column of the table and no field of a struct has")
    return path


def referenced_ids(expression: object) -> frozenset[int]:
    """Return the field ids that an expression names, wherever it does."""
    if isinstance(expression, list):
        return frozenset().union(*(referenced_ids(each) for each in expression))
    if not isinstance(expression, dict):
        return frozenset()

    own = expression.get("id")
    if expression.get("type") == "reference" and isinstance(own, int):
        return frozenset({own})

    return frozenset().union(*(referenced_ids(each) for each in expression.values()))


def _transform(function: object, parameters: list[object]) -> Transform[Any, Any]:
    node = _object(function, "a function")
    _check_keys(node, {"catalog", "identifier"})
    identifier = node["identifier"]
    name = identifier[0] if isinstance(identifier, list) and len(identifier) == 1 else None
    if node["catalog"] != _FUNCTIONS or not isinstance(name, str):
        raise ReadRestrictionError(f"the row filter calls the function {function!r}; those of {_FUNCTIONS} are known here")
    if name in _TRANSFORMS and not parameters:
        return _TRANSFORMS[name]()
    if name in _PARAMETRIC and len(parameters) == 1:
        return _PARAMETRIC[name](_parameter(name, parameters[0]))

    raise ReadRestrictionError(f"{_FUNCTIONS}.{name} is not known here, or not with {len(parameters) + 1} arguments")


def _parameter(name: str, parameter: object) -> int:
    value = parameter.get("value") if isinstance(parameter, dict) and parameter.get("type") == "literal" else parameter
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**31:
        raise ReadRestrictionError(f"{name} takes a positive int before its value, not {parameter!r}")
    return value


def _typed_literal(value: object, data_type: object) -> _Operand:
    told = primitive_type(data_type)
    return _Operand(None, _unplaced, partial(_as_told, value, told))


def _as_told(value: object, told: PrimitiveType, needed: IcebergType) -> Any:
    widened = (IntegerType, LongType), (FloatType, DoubleType)
    if told != needed and not any(isinstance(told, narrow) and isinstance(needed, wide) for narrow, wide in widened):
        integers = isinstance(told, LongType) and isinstance(needed, IntegerType)
        if not integers:
            raise ReadRestrictionError(f"a literal of type {told} is compared with a value of type {needed}")

    # The literal has to be of the type that it names before it is read as the type of the other side.
    value_in_json(value, told)
    return value_in_json(value, needed)


def _aligned(left: _Operand, right: _Operand) -> tuple[Rows, Rows]:
    """Return the two sides of a comparison, in types that Arrow compares as the specification says."""
    kind = left.kind or right.kind
    if not isinstance(kind, PrimitiveType):
        raise ReadRestrictionError("a comparison needs a column of a primitive type on one side")
    if left.kind is None:
        return _scalar_rows(left.literal(kind), kind), right.rows
    if right.kind is None:
        return left.rows, _scalar_rows(right.literal(kind), kind)

    numbers = (IntegerType, LongType), (FloatType, DoubleType)
    if left.kind != right.kind and not any(isinstance(left.kind, pair) and isinstance(right.kind, pair) for pair in numbers):
        raise ReadRestrictionError(f"a value of type {left.kind} is compared with one of type {right.kind}")

    return left.rows, right.rows


def _scalar_rows(value: Any, kind: IcebergType) -> Rows:
    if isinstance(kind, (IntegerType, LongType)):
        one = pa.array([value], pa.int64())
    else:
        one = comparable(pa.array([value], _storage(schema_to_pyarrow(kind))))
    scalar = one[0]
    return lambda rows: scalar


def _storage(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _compare(kind: str, left: Any, right: Any) -> Any:
    if kind == "not-eq":
        return pc.invert(_equal(left, right))
    if kind == "eq":
        return _equal(left, right)
    order = pc.fill_null((pc.less if kind.startswith("lt") else pc.greater)(left, right), False)
    return pc.or_(order, _equal(left, right)) if kind.endswith("-eq") else order


def _equal(left: Any, right: Any) -> Any:
    alike = pc.or_(pc.fill_null(pc.equal(left, right), False), pc.and_(pc.is_null(left), pc.is_null(right)))
    if pt.is_floating(left.type) and pt.is_floating(right.type):
        return pc.or_(alike, pc.and_(_is_nan(left), _is_nan(right)))
    return alike


def _is_nan(values: Any) -> Any:
    return pc.fill_null(pc.is_nan(values), False)


def _constant(value: bool) -> Rows:
    return lambda rows: pa.scalar(value)


def _negated(predicate: Rows) -> Rows:
    return lambda rows: pc.invert(predicate(rows))


def _both(combine: Callable[[Any, Any], Any], left: Rows, right: Rows) -> Rows:
    return lambda rows: combine(left(rows), right(rows))


def _unplaced(rows: pa.RecordBatch) -> Any:
    raise ReadRestrictionError("a literal of the row filter has nothing that says its type")


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ReadRestrictionError(f"the row filter has {value!r} where {what} belongs")
    return value


def _check_keys(node: Mapping[str, Any], needed: set[str], optional: frozenset[str] | set[str] = frozenset()) -> None:
    # A key that is not known here may narrow the filter: ignoring it would show rows that the server hides.
    if needed <= node.keys() <= needed | set(optional):
        return
    raise ReadRestrictionError(
        f"the row filter has an expression with the keys {', '.join(sorted(node))}; known here is one with {', '.join(sorted(needed))} "
        "(columns are named by field id)"
    )
