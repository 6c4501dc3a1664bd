"""Spark's predicates as Iceberg expressions: which data files and row groups a query may leave out.

The JVM sends predicates as JSON (java/SqlFilter.java):

    {"op": ">", "args": [{"column": ["s", "x"]}, {"value": 3, "type": "bigint"}]}

    column   the path of names down to the field, as in the schema of the query
    value    number, text or boolean; dates in days and timestamps in microseconds since 1970-01-01, decimals as text, binaries in base64
    op       Spark's names: = <> < <= > >= <=> IN IS_NULL IS_NOT_NULL STARTS_WITH AND OR NOT ALWAYS_TRUE ALWAYS_FALSE; those of the
             partition functions (partition_terms.py); "?" for all else, with the columns that it looks at

A pruning filter may keep rows that Spark's predicate drops, never the other way round: Spark evaluates all predicates again on the rows. A
predicate is translated whole or left out. An exact filter is the whole condition, or there is none: rows that it matches go unread.

Two differences of Spark decide what is translated. NaN is greater than all numbers in Spark, while the bounds of a file leave NaN out: so
`>`, `>=` and any negation on floating-point columns are left out. And `x <=> 5` is false for a null, so that its negation is true.

Names are those of the snapshot that is read. Planning binds a filter to the table's current schema: a column that was renamed since is
found by its field id, and a predicate on one that was dropped, or whose type changed, is left out.
"""

from __future__ import annotations

import base64
import binascii
import logging
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import reduce
from typing import Any, Final

import pyiceberg.expressions
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression
from pyiceberg.expressions.literals import Literal, literal
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from tablecrypt.spark.sql.messages import TableRequest
from tablecrypt.table._pyiceberg.stored_nulls import StoredIsNull, StoredNotNull

logger = logging.getLogger(__name__)

# PyIceberg's expressions take positional arguments, which their annotations do not show.
ice: Any = pyiceberg.expressions
Make = Callable[..., BooleanExpression]
_LOGIC: Final[Mapping[tuple[str, int], Make]] = {
    ("ALWAYS_TRUE", 0): AlwaysTrue,
    ("ALWAYS_FALSE", 0): AlwaysFalse,
    ("AND", 2): ice.And,
    ("OR", 2): ice.Or,
    ("NOT", 1): ice.Not,
}
_NULLS: Final[Mapping[str, Make]] = {"IS_NULL": StoredIsNull, "IS_NOT_NULL": StoredNotNull}
Predicate = Mapping[str, Any]
_FLOATING: Final = (FloatType, DoubleType)
_NUMBERS: Final = (IntegerType, LongType, DateType, TimestampType, TimestamptzType)
SWAPPED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}
_COMPARISONS: Final[Mapping[str, Callable[[str, Any], BooleanExpression]]] = {
    "=": ice.EqualTo,
    "<>": ice.NotEqualTo,
    "<": ice.LessThan,
    "<=": ice.LessThanOrEqual,
    ">": ice.GreaterThan,
    ">=": ice.GreaterThanOrEqual,
    "<=>": lambda name, value: ice.And(ice.NotNull(name), ice.EqualTo(name, value)),
}


class FilterRequest(TableRequest):
    """About the rows of a table that match all of some predicates."""

    filter: list[Predicate]


def looked_at(predicates: Sequence[Predicate], schema: Schema) -> set[int]:
    """Return the field ids of the columns that predicates look at, whether they are translated or not; metadata columns are left out."""
    found: set[int] = set()
    for predicate in predicates:
        # Otherwise `s IS NULL` would need the right to read every protected field in s.
        if not _asks_for_a_struct(predicate, schema):
            found |= looked_at(predicate.get("args", ()), schema)
        if "column" in predicate:
            try:
                found.add(field_at(schema, predicate["column"]).field_id)
            except UntranslatedError:
                continue

    return found


def _asks_for_a_struct(predicate: Predicate, schema: Schema) -> bool:
    """Whether a predicate is on a struct being null, which says nothing about its fields."""
    [*arguments] = predicate.get("args", ())
    if predicate.get("op") not in _NULLS or len(arguments) != 1 or not arguments[0].get("column"):
        return False

    try:
        return isinstance(field_at(schema, arguments[0]["column"]).field_type, StructType)
    except UntranslatedError:
        return False


_TRUTHS: Final = {"ALWAYS_TRUE": True, "ALWAYS_FALSE": False}


class UntranslatedError(Exception):
    """A predicate that has no expression with the same meaning."""


def pruning_filter(predicates: Sequence[Predicate], read: Schema, table: Schema) -> BooleanExpression:
    """Return what of a conjunction of predicates rules out files.

    Args:
        predicates: as drawn above; all of them hold for the rows that are wanted.
        read: the schema whose names the predicates have.
        table: the table's current schema, whose names the result has.
    """
    return reduce(ice.And, [each for each in (_translated(predicate, read, table) for predicate in predicates) if each], AlwaysTrue())


def exact_filter(predicates: Sequence[Predicate], schema: Schema) -> BooleanExpression | None:
    """Return the expression that is true of the same rows as all of the predicates; None where a part has no translation."""
    translated = [_translated(predicate, schema, schema) for predicate in predicates]
    if any(each is None for each in translated):
        return None
    return reduce(ice.And, [each for each in translated if each], AlwaysTrue())


def expression_of(predicate: Predicate, read: Schema, table: Schema) -> BooleanExpression:
    """Return the expression of one predicate; see `pruning_filter`. UntranslatedError if it has none."""
    return _Translation(read, table).expression(predicate, negated=False)


def _translated(predicate: Predicate, read: Schema, table: Schema) -> BooleanExpression | None:
    try:
        return expression_of(predicate, read, table)
    except UntranslatedError as reason:
        logger.debug("a predicate prunes nothing: %s", reason)
        return None


def parts_of(predicate: Predicate) -> tuple[str, Sequence[Predicate]]:
    """Return a predicate's operator and its arguments."""
    return str(predicate.get("op")), predicate.get("args", ())


class _Translation:
    def __init__(self, read: Schema, table: Schema) -> None:
        self._read = read
        self._table = table

    def expression(self, predicate: Predicate, *, negated: bool) -> BooleanExpression:
        operator, arguments = parts_of(predicate)
        if (operator, len(arguments)) in _LOGIC:
            # Carried down to the leaves: which of them may prune depends on whether they stand below a NOT.
            negated = negated != (operator == "NOT")
            return _LOGIC[operator, len(arguments)](*(self.expression(each, negated=negated) for each in arguments))
        if operator in _NULLS and len(arguments) == 1:
            return _NULLS[operator](self._field(arguments[0])[0])
        if operator in _COMPARISONS and len(arguments) == len(("left", "right")):
            return self._comparison(operator, arguments[0], arguments[1], negated)
        if operator == "STARTS_WITH" and len(arguments) == len(("column", "prefix")):
            return self._starts_with(*arguments)
        if operator == "IN" and arguments:
            return self._in(arguments[0], arguments[1:], negated)

        raise UntranslatedError(f"operation {operator} of {len(arguments)}")

    def _comparison(self, operator: str, left: Predicate, right: Predicate, negated: bool) -> BooleanExpression:
        if "column" not in left:
            operator, left, right = SWAPPED[operator], right, left
        name, field_type = self._field(left)
        # NaN matches these in Spark, and a file's bounds leave it out: its file would be skipped.
        if isinstance(field_type, _FLOATING) and (negated or operator in (">", ">=", "<>")):
            raise UntranslatedError(f"{operator} on {name}, which may be NaN")
        if isinstance(field_type, UUIDType) and operator not in ("=", "<=>"):
            raise UntranslatedError(f"{operator} on {name}, which Spark compares as text")

        return _COMPARISONS[operator](name, literal_of(right, field_type))

    def _in(self, column: Predicate, values: Sequence[Predicate], negated: bool) -> BooleanExpression:
        name, field_type = self._field(column)
        if isinstance(field_type, _FLOATING) and (negated or any(each.get("value") == 0 for each in values)):
            raise UntranslatedError(f"{name} may be NaN, or a zero of the other sign, which only Spark takes for the same")
        # NOT IN with a null is never true: without the null, a DELETE by metadata would drop files of which Spark keeps all rows.
        if negated and any(_is_null(each) for each in values):
            raise UntranslatedError("NOT IN with a null")

        make: Make = ice.In

        return make(name, {literal_of(each, field_type) for each in values if not _is_null(each)})

    def _starts_with(self, column: Predicate, prefix: Predicate) -> BooleanExpression:
        name, field_type = self._field(column)
        if not isinstance(field_type, StringType) or not isinstance(prefix.get("value"), str):
            raise UntranslatedError(f"a prefix of {name}, which is {field_type}")
        make: Make = ice.StartsWith
        return make(name, prefix["value"])

    def _field(self, argument: Predicate) -> tuple[str, PrimitiveType | IcebergType]:
        """Return a column's name and type in the table's current schema."""
        if "column" not in argument:
            raise UntranslatedError("a comparison without a column")

        field = field_at(self._read, argument["column"])
        name = self._table.find_column_name(field.field_id)
        # A column whose name has a dot may share it with a field of a struct, to which the filter would be bound.
        if name is None or self._table.find_field(name).field_id != field.field_id:
            raise UntranslatedError(f"column {field.name} is not in the table's current schema")
        if self._table.find_type(field.field_id) != field.field_type:
            raise UntranslatedError(f"column {field.name} has another type in the table's current schema")

        return name, field.field_type


def field_at(schema: Schema, path: Sequence[str]) -> NestedField:
    """Return the field at a path through structs."""
    inside: IcebergType = schema.as_struct()
    field: NestedField | None = None
    for name in path:
        fields = inside.fields if isinstance(inside, StructType) else ()
        field = next((each for each in fields if each.name == name), None)
        if field is None:
            raise UntranslatedError(f"no column {'.'.join(path)}")
        inside = field.field_type

    if field is None:
        raise UntranslatedError("a column without a name")

    return field


def _is_null(argument: Predicate) -> bool:
    return "value" in argument and argument["value"] is None


def literal_of(argument: Predicate, field_type: IcebergType) -> Literal[Any]:
    """Return a value as a literal of the column's type. Spark gives true and false as predicates that hold always and never."""
    value = _TRUTHS.get(argument["op"]) if "op" in argument else argument.get("value")
    if value is None or not isinstance(field_type, PrimitiveType):
        raise UntranslatedError(f"a comparison of {field_type} with {'null' if value is None else 'a value'}")

    try:
        made: Literal[Any] = literal(_python_value(value, field_type)).to(field_type)
    except (ValueError, TypeError, AttributeError, OverflowError, InvalidOperation, binascii.Error) as error:
        raise UntranslatedError(f"a value that is no {field_type}") from error

    # A number beyond the column's range becomes a bound that compares, which a set of values cannot have.
    if type(made).__name__.endswith(("AboveMax", "BelowMin")):
        raise UntranslatedError(f"a value beyond {field_type}")

    return made


def _python_value(value: Any, field_type: PrimitiveType) -> Any:
    if isinstance(field_type, (BinaryType, FixedType)):
        return base64.b64decode(value, validate=True)
    if isinstance(field_type, DecimalType):
        return Decimal(value)
    # Spark compares text: capitals match no row there, and would match one here.
    if isinstance(field_type, UUIDType) and value != str(uuid.UUID(value)):
        raise ValueError("text that Spark does not give a uuid")

    wanted: tuple[type, ...] = (str,)

    if isinstance(field_type, BooleanType):
        wanted = (bool,)
    elif isinstance(field_type, _FLOATING):
        wanted = (int, float)
    elif isinstance(field_type, _NUMBERS):
        wanted = (int,)

    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
        raise ValueError(f"{type(value).__name__} for {field_type}")
    if isinstance(field_type, _FLOATING):
        return _number(value)

    return value


def _number(value: Any) -> float:
    if math.isnan(value):
        raise ValueError("NaN")
    return float(value)
