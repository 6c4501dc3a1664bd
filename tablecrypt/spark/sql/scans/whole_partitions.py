"""Predicates that partition values answer: of each file, either all rows match or none, so that Spark need not look at the rows.

    answered ─▶ one boolean for each predicate: whether Spark may leave it to the plan

A plan names the predicates that were left to it, and has only files of which they are true. Spark drops rows of which a predicate is false
or null. So tests here know null as Spark does: a comparison with null is neither true nor false, nor is its negation.

A predicate is answered if each part of it is, in each partition spec that the table ever had:

    column IS [NOT] NULL                any transform but void: null alone becomes null
    = <> < <= > >= <=> IN, a prefix     identity, of types whose values are the same if they compare the same
    < <= > >=                           years to hours, truncated whole numbers, where the value is the first or the last of its partition
    a prefix                            truncated text, where the prefix is no longer than what is left of the text
    any of these on a partition         the same function of the same column (partition_terms.py)
    function of a column

Never answered: values of floating-point columns, with NaN and two zeros, binaries and uuids; columns that are protected or changed their
type; tables whose rows the catalog's server restricts, and what changed between snapshots. Some writers rounded times before 1970 up: their
boundaries answer nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
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
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from tablecrypt.engines.protected_columns import protected_among
from tablecrypt.errors import FormatError
from tablecrypt.files.encrypting_file_io import read_restrictions_of
from tablecrypt.spark.sql.messages import Response, operation
from tablecrypt.spark.sql.planner import LoadedTable, Planner
from tablecrypt.spark.sql.scans.filters import SWAPPED, FilterRequest, Predicate, UntranslatedError, field_at, literal_of, parts_of
from tablecrypt.spark.sql.scans.partition_terms import is_term, part_of_term
from tablecrypt.table.planning import EncryptedFileScanTask

Truth = bool | None
Test = Callable[[Any], Truth]
_TIMES: Final = (YearTransform, MonthTransform, DayTransform, HourTransform)
_KEEP_NULLS: Final = (IdentityTransform, BucketTransform, TruncateTransform, *_TIMES)
_WHOLE_NUMBERS: Final = (IntegerType, LongType)
_COMPARED: Final = (BooleanType, *_WHOLE_NUMBERS, DateType, TimestampType, TimestamptzType, DecimalType, StringType)
_TESTS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": lambda value, wanted: bool(value == wanted),
    "<>": lambda value, wanted: bool(value != wanted),
    "<": lambda value, wanted: bool(value < wanted),
    "<=": lambda value, wanted: bool(value <= wanted),
    ">": lambda value, wanted: bool(value > wanted),
    ">=": lambda value, wanted: bool(value >= wanted),
    "IN": lambda value, wanted: value in wanted,
    "STARTS_WITH": lambda value, wanted: bool(value.startswith(wanted)),
}


@operation
def answered(planner: Planner, request: FilterRequest) -> Response:
    """Return which predicates partition values answer."""
    loaded = planner.tables[request.table]
    return Response({"answered": [_tests(predicate, loaded) is not None for predicate in request.filter]})


def of_whole_partitions(
    tasks: Sequence[EncryptedFileScanTask], predicates: Sequence[Predicate], loaded: LoadedTable
) -> list[EncryptedFileScanTask]:
    """Return the tasks of files of which predicates are true.

    Raises:
        FormatError: partition values do not answer one of them: Spark was not to leave it to the plan.
    """
    tests = [_tests(predicate, loaded) for predicate in predicates]
    # The table's specs may have changed since Spark was answered. Spark looks at no row again, so a guess would show wrong rows.
    if any(each is None for each in tests):
        raise FormatError(
            f"a condition on {loaded.located.name} was left to its plan, and its partitions do not answer it: run the query again"
        )
    return [task for task in tasks if all(each[task.file.spec_id](task.file.partition) for each in tests if each is not None)]


def _tests(predicate: Predicate, loaded: LoadedTable) -> Mapping[int, Test] | None:
    table = loaded.located.table
    if loaded.changes is not None or read_restrictions_of(table.io) is not None:
        return None
    return partition_tests(predicate, loaded.schema, table.metadata)


def partition_tests(predicate: Predicate, read: Schema, metadata: TableMetadata) -> Mapping[int, Test] | None:
    """Return a test of partition values for each spec, by its id; None where one of the specs has none.

    A test returns what the predicate is of all rows of a file: true, false, or None for null.

    Args:
        predicate: as filters.py draws it.
        read: the schema whose names it has.
        metadata: the table's.
    """
    try:
        return {spec.spec_id: _Tests(spec, read, metadata).of(predicate) for spec in metadata.partition_specs}
    except UntranslatedError:
        return None


class _Tests:
    """Tests of the partition values of one spec."""

    def __init__(self, spec: PartitionSpec, read: Schema, metadata: TableMetadata) -> None:
        self._spec = spec
        self._read = read
        self._metadata = metadata

    def of(self, predicate: Predicate) -> Test:
        operator, arguments = parts_of(predicate)
        if operator in ("AND", "OR") and len(arguments) == len(("left", "right")):
            return _decided_by([self.of(each) for each in arguments], decisive=operator == "OR")
        if operator == "NOT" and len(arguments) == 1:
            return _negated(self.of(arguments[0]))
        if not arguments:
            raise UntranslatedError(f"{operator} of nothing")

        if "column" not in arguments[0] and not is_term(arguments[0]):
            operator, arguments = SWAPPED.get(operator, "?"), arguments[::-1]
        if is_term(arguments[0]):
            return self._of_term(operator, arguments[0], arguments[1:])

        field = self._field(arguments[0])
        for position, part in enumerate(self._spec.fields):
            if part.source_id == field.field_id and (test := _of_value(operator, arguments[1:], part.transform, field.field_type)):
                return _at_position(test, position)
        raise UntranslatedError(f"{operator} on {field.name}, which partitions do not answer")

    def _of_term(self, operator: str, term: Predicate, values: Sequence[Predicate]) -> Test:
        source = self._field(term["args"][-1])
        found = part_of_term(term, self._spec, self._read)
        if found is not None:
            position, part = found
            test = _of_value(operator, values, IdentityTransform(), part.transform.result_type(source.field_type))
            if test is not None:
                return _at_position(test, position)

        raise UntranslatedError(f"{operator} on {term['op']} of {source.name}, which partitions do not answer")

    def _field(self, argument: Predicate) -> NestedField:
        field = field_at(self._read, argument.get("column", ()))
        known = [schema.find_type(field.field_id) for schema in self._metadata.schemas if schema.find_column_name(field.field_id)]
        # Older files have partition values of the former type.
        if any(each != field.field_type for each in known):
            raise UntranslatedError(f"column {field.name} had another type")
        # Partitions from before the protection have values, which a user who sees masks must not learn.
        if protected_among(self._metadata, Schema(field)) is not None:
            raise UntranslatedError(f"column {field.name} is protected")

        return field


def _of_value(operator: str, values: Sequence[Predicate], transform: Transform[Any, Any], source: IcebergType) -> Test | None:
    """Return a test of one partition value; None where it does not say what all of its rows are."""
    if operator in ("IS_NULL", "IS_NOT_NULL") and not values and isinstance(transform, _KEEP_NULLS):
        return lambda value: (value is None) == (operator == "IS_NULL")
    if operator == "IN" and isinstance(transform, IdentityTransform) and isinstance(source, _COMPARED):
        return _among(values, source)
    if len(values) != 1 or not isinstance(source, _COMPARED) or not isinstance(source, PrimitiveType):
        return None
    if operator == "<=>" and isinstance(transform, IdentityTransform):
        wanted = literal_of(values[0], source).value
        return lambda value: value is not None and _same_kind(value, wanted) == wanted
    if operator == "STARTS_WITH" and isinstance(source, StringType):
        prefix = values[0].get("value")
        is_left = isinstance(transform, TruncateTransform) and isinstance(prefix, str) and len(prefix) <= transform.width
        return _compared(operator, prefix) if isinstance(prefix, str) and (is_left or isinstance(transform, IdentityTransform)) else None
    if operator not in _TESTS or operator in ("IN", "STARTS_WITH"):
        return None

    wanted = literal_of(values[0], source).value

    return _compared(operator, wanted) if isinstance(transform, IdentityTransform) else _at_boundary(operator, wanted, transform, source)


def _compared(operator: str, wanted: Any) -> Test:
    holds = _TESTS[operator]
    return lambda value: None if value is None else holds(_same_kind(value, wanted), wanted)


def _among(values: Sequence[Predicate], source: IcebergType) -> Test:
    wanted = {literal_of(each, source).value for each in values if each.get("value", each) is not None}
    # `x IN (1, NULL)` is null for other values, and so is its negation: neither keeps the row.
    otherwise = None if any(each.get("value", each) is None for each in values) else False

    def test(value: Any) -> Truth:
        if value is None:
            return None
        return any(_same_kind(value, each) == each for each in wanted) or otherwise

    return test


def _at_boundary(operator: str, wanted: int, transform: Transform[Any, Any], source: PrimitiveType) -> Test | None:
    """Return a test of an order that a transform keeps, where a value is the first or the last one of its partition."""
    is_time = isinstance(transform, _TIMES) and isinstance(source, (DateType, TimestampType, TimestamptzType))
    if operator not in ("<", "<=", ">", ">=") or not (
        is_time or (isinstance(transform, TruncateTransform) and isinstance(source, _WHOLE_NUMBERS))
    ):
        return None

    first_above = wanted + 1 if operator in ("<=", ">") else wanted
    partition_of = transform.transform(source)
    try:
        below, above = partition_of(first_above - 1), partition_of(first_above)
    except (OverflowError, ValueError):
        return None

    # A value within its partition leaves rows on both sides of it; below 0 lie the times that some writers rounded up.
    if above is None or below == above or (is_time and above <= 0):
        return None

    return _compared("<" if operator in ("<", "<=") else ">=", above)


def _same_kind(value: Any, wanted: Any) -> Any:
    """Return a value from a manifest that compares with one of the query."""
    # Python would compare 1 with True and with 1.0 without an error.
    if type(value) is not type(wanted):
        raise FormatError(
            f"a manifest has a partition value of type {type(value).__name__}, where the table's columns give {type(wanted).__name__}"
        )
    return value


def _decided_by(tests: Sequence[Test], *, decisive: bool) -> Test:
    def test(values: Record) -> Truth:
        truths = [each(values) for each in tests]
        # Before null: false AND null is false, true OR null is true.
        if decisive in truths:
            return decisive
        return None if None in truths else not decisive

    return test


def _negated(test: Test) -> Test:
    def negated(values: Record) -> Truth:
        truth = test(values)
        return None if truth is None else not truth

    return negated


def _at_position(test: Test, position: int) -> Test:
    return lambda values: test(values[position])
