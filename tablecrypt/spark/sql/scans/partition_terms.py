"""Conditions on partition functions, as in `prod.system.bucket(16, id) = 3`: which partitions may hold rows of which they are true.

    {"op": "=", "args": [{"op": "bucket", "args": [{"value": 16, "type": "int"}, {"column": ["id"]}]}, {"value": 3, "type": "int"}]}

PyIceberg's expressions have no functions, so that such a condition is no part of the filter of rows. In each partition spec that has this
function of this column it becomes a filter of the partition's value; in other specs it rules out nothing. Other conditions that AND, OR and
NOT join with it are projected on the spec as usual.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import pyiceberg.expressions
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform, MonthTransform, Transform, TruncateTransform, YearTransform
from pyiceberg.types import UUIDType

from tablecrypt.spark.sql.scans.filters import SWAPPED, Predicate, UntranslatedError, expression_of, field_at, literal_of, parts_of
from tablecrypt.table.planning.file_filter import of_partitions

# PyIceberg's expressions take positional arguments, which their annotations do not show.
ice: Any = pyiceberg.expressions
_TIMES: Final[Mapping[str, Transform[Any, Any]]] = {
    "years": YearTransform(),
    "months": MonthTransform(),
    "days": DayTransform(),
    "hours": HourTransform(),
}
_COMPARISONS: Final = {
    "=": (ice.EqualTo, ice.NotEqualTo),
    "<=>": (ice.EqualTo, ice.NotEqualTo),
    "<>": (ice.NotEqualTo, ice.EqualTo),
    "<": (ice.LessThan, ice.GreaterThanOrEqual),
    "<=": (ice.LessThanOrEqual, ice.GreaterThan),
    ">": (ice.GreaterThan, ice.LessThanOrEqual),
    ">=": (ice.GreaterThanOrEqual, ice.LessThan),
    "IN": (ice.In, ice.NotIn),
    "STARTS_WITH": (ice.StartsWith, ice.NotStartsWith),
}
"""How a condition on a partition's value is written, and its negation."""
_TRUTHS: Final = ("ALWAYS_TRUE", "ALWAYS_FALSE")
_NULLS: Final = {"IS_NULL": (ice.IsNull, ice.NotNull), "IS_NOT_NULL": (ice.NotNull, ice.IsNull)}


def is_term(argument: Predicate) -> bool:
    """Return whether an argument is a partition function of a column."""
    return argument.get("op") in ("bucket", "truncate", *_TIMES)


def part_of_term(term: Predicate, spec: PartitionSpec, read: Schema) -> tuple[int, PartitionField] | None:
    """Return the field of a spec that holds the values of a term, and its position there; None where the spec has none.

    Args:
        term: a function and its arguments.
        spec: the partition spec.
        read: the schema whose names the term has.

    Raises:
        UntranslatedError: the term is not one of a column, or a partition holds something else than Spark computes.
    """
    *numbers, source = term["args"]
    transform = _transform(str(term["op"]), numbers)
    field = field_at(read, source.get("column", ()))
    if isinstance(field.field_type, UUIDType):
        raise UntranslatedError(f"{term['op']} of {field.name}: Spark computes it of the text, and Iceberg of 16 bytes")

    for position, part in enumerate(spec.fields):
        if part.source_id == field.field_id and part.transform == transform:
            return position, part
    return None


def _transform(name: str, numbers: Sequence[Predicate]) -> Transform[Any, Any]:
    if name in _TIMES and not numbers:
        return _TIMES[name]
    number = numbers[0].get("value") if len(numbers) == 1 else None
    if name in _TIMES or type(number) is not int or number <= 0:
        raise UntranslatedError(f"{name} of {len(numbers)} numbers")
    return BucketTransform(number) if name == "bucket" else TruncateTransform(number)


def partition_filters(predicates: Sequence[Predicate], read: Schema, metadata: TableMetadata) -> dict[int, BooleanExpression]:
    """Return a filter of partition values for each spec, by its id: it matches every partition with rows of which all predicates are true.

    Args:
        predicates: as filters.py draws them. Those without a term are left to the filter of rows.
        read: the schema whose names the predicates have.
        metadata: the table's.
    """
    asked = [predicate for predicate in predicates if _has_term(predicate)]
    if not asked:
        return {}
    return {spec.spec_id: reduce(ice.And, _of_spec(asked, spec, read, metadata.schema())) for spec in metadata.partition_specs}


def is_known(predicate: Predicate) -> bool:
    """Whether a predicate only compares columns, or partition functions of them, with values; AND, OR and NOT may join such."""
    operator, arguments = parts_of(predicate)
    if operator in ("AND", "OR", "NOT"):
        return all(is_known(each) for each in arguments)
    if operator in _TRUTHS:
        return True

    is_comparison = operator in _COMPARISONS or operator in _NULLS

    return is_comparison and all("op" not in each or is_term(each) or each["op"] in _TRUTHS for each in arguments)


def _has_term(predicate: Predicate) -> bool:
    return is_term(predicate) or any(_has_term(each) for each in predicate.get("args", ()))


def _of_spec(predicates: Sequence[Predicate], spec: PartitionSpec, read: Schema, table: Schema) -> Iterator[BooleanExpression]:
    projection = _Projection(spec, read, table)
    for predicate in predicates:
        yield projection.of(predicate, negated=False)


class _Projection:
    """What a predicate says of the partition values of one spec."""

    def __init__(self, spec: PartitionSpec, read: Schema, table: Schema) -> None:
        self._spec = spec
        self._read = read
        self._table = table

    def of(self, predicate: Predicate, *, negated: bool) -> BooleanExpression:
        operator, arguments = parts_of(predicate)
        if operator == "NOT" and len(arguments) == 1:
            return self.of(arguments[0], negated=not negated)

        if operator in ("AND", "OR") and len(arguments) == len(("left", "right")):
            # De Morgan: each side is projected negated, since the negation of a projection would drop partitions with matching rows.
            both: BooleanExpression = (ice.And if (operator == "AND") != negated else ice.Or)(
                *(self.of(each, negated=negated) for each in arguments)
            )
            return both

        try:
            return self._of_value(operator, arguments, negated) if _has_term(predicate) else self._of_column(predicate, negated)
        # True for every partition, on either side of a NOT, since `negated` has been carried down: it only reads more.
        except UntranslatedError:
            return AlwaysTrue()

    def _of_column(self, predicate: Predicate, negated: bool) -> BooleanExpression:
        expression = expression_of({"op": "NOT", "args": [predicate]} if negated else predicate, self._read, self._table)
        return of_partitions(expression, self._spec, self._table)

    def _of_value(self, operator: str, arguments: Sequence[Predicate], negated: bool) -> BooleanExpression:
        if not is_term(arguments[0]):
            operator, arguments = SWAPPED.get(operator, "?"), arguments[::-1]
        found = part_of_term(arguments[0], self._spec, self._read) if is_term(arguments[0]) else None
        if found is None or self._table.find_column_name(found[1].source_id) is None:
            raise UntranslatedError(f"the spec {self._spec.spec_id} has no such field")

        _, part = found
        if operator in _NULLS:
            of_null: BooleanExpression = _NULLS[operator][negated](part.name)
            return of_null
        if operator not in _COMPARISONS:
            raise UntranslatedError(f"operation {operator} of a partition function")

        kind = part.transform.result_type(self._table.find_type(part.source_id))
        values = [literal_of(each, kind) for each in arguments[1:] if each.get("value", each) is not None]
        if operator != "IN" and len(values) != 1:
            raise UntranslatedError("a comparison with null")

        compared: BooleanExpression = _COMPARISONS[operator][negated](part.name, set(values) if operator == "IN" else values[0])

        return compared
