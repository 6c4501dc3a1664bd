"""Which data files may hold rows that a filter matches: by partition, and by the statistics of their columns.

    partition     PyIceberg's evaluator says of each partition that occurs, once, whether the filter may match in it
    statistics    the filter is evaluated over the columns of all entries at once, each comparison as PyIceberg makes it for one file

A file whose bounds are NaN, or not what their type is stored as, is given to PyIceberg's evaluator by itself: it knows what such bounds
say. Unreadable ones are a FormatError, which names the file.

Iceberg table spec, "Scan Planning", "Column Metrics", appendix D "Single-value serialization".
"""

from __future__ import annotations

import math
import operator
import struct
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, BoundTerm, EqualTo, Or, Reference
from pyiceberg.expressions.visitors import (
    IN_PREDICATE_LIMIT,
    BoundBooleanExpressionVisitor,
    bind,
    expression_evaluator,
    extract_field_ids,
    inclusive_projection,
    rewrite_not,
    visit,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.transforms import TruncateTransform, VoidTransform
from pyiceberg.typedef import EMPTY_DICT, KeyDefaultDict, LiteralValue, Record
from pyiceberg.types import (
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from tablecrypt.errors import FormatError
from tablecrypt.keys.column_keys import not_told
from tablecrypt.manifests.avro_columns import NULL, Mask, Numbers
from tablecrypt.manifests.entries import Column, Entries, Statistics
from tablecrypt.manifests.records import EncryptedDataFile, in_literals
from tablecrypt.table._pyiceberg.arrow import InclusiveMetricsEvaluator

_Values: TypeAlias = npt.NDArray[Any]
_STORED: Final[dict[type[IcebergType], tuple[str, ...]]] = {
    IntegerType: ("<i4",),
    DateType: ("<i4",),
    LongType: ("<i4", "<i8"),
    TimeType: ("<i8",),
    TimestampType: ("<i8",),
    TimestamptzType: ("<i8",),
    TimestampNanoType: ("<i8",),
    TimestamptzNanoType: ("<i8",),
    FloatType: ("<f4",),
    DoubleType: ("<f4", "<f8"),
}
"""How bounds of numbers are stored: those of a column that was promoted may be of either type."""


@dataclass(frozen=True)
class FileCondition:
    """Which files may have rows that are wanted.

    Attributes:
        row_filter: unbound, with the names of the table's current schema.
        of_partitions: by the spec's id, a filter of partition values that has to match besides.
    """

    row_filter: BooleanExpression
    of_partitions: Mapping[int, BooleanExpression] = field(default_factory=dict)


def of_partitions(row_filter: BooleanExpression, spec: PartitionSpec, schema: Schema, case_sensitive: bool = True) -> BooleanExpression:
    """Return what a filter says of a spec's partitions, which is true of every one with rows that it keeps."""
    try:
        projected = inclusive_projection(schema, spec, case_sensitive)(row_filter)
    except OverflowError:
        # PyIceberg counts years and months by Python's dates: the moment beside the first or last of them is none. Nothing is ruled out.
        return AlwaysTrue()

    for name, value in overflowed(spec, schema).items():
        projected = Or(projected, EqualTo(Reference(name), value))  # type: ignore[call-arg]
    return projected


def overflowed(spec: PartitionSpec, schema: Schema) -> dict[str, int]:
    """Return, by name, what each field that truncates whole numbers has for the smallest of them: nearly the greatest of their type.

    Truncated, they would be smaller than all that the type holds. PyIceberg's filters of partitions know nothing of it.
    """
    found: dict[str, int] = {}
    for each in spec.fields:
        if not isinstance(each.transform, TruncateTransform) or schema.find_column_name(each.source_id) is None:
            continue
        kind = schema.find_type(each.source_id)
        if not isinstance(kind, (IntegerType, LongType)):
            continue

        bits = 32 if isinstance(kind, IntegerType) else 64
        least = -(2 ** (bits - 1))
        if beyond := least % each.transform.width:
            found[each.name] = least - beyond + 2**bits

    return found


class FileFilter:
    """A filter of one table's data files. Used by many threads.

    Args:
        schema: the table's current one, which the filter is bound to.
        specs: the table's partition specs by id.
        include_empty_files: whether a file without rows may match.
        of_partitions: by the spec's id, a filter of partition values that has to match besides.
        told_until: of protected columns, the data sequence number up to which entries tell of them.

    Attributes:
        partition_filters: by the spec's id, which partition values a file may have.
        telling_specs: by its id, each spec as `telling` returns it.
    """

    def __init__(
        self,
        schema: Schema,
        specs: dict[int, PartitionSpec],
        row_filter: BooleanExpression,
        case_sensitive: bool,
        include_empty_files: bool,
        of_partitions: Mapping[int, BooleanExpression] = EMPTY_DICT,
        told_until: Mapping[int, int | None] = EMPTY_DICT,
    ) -> None:
        self._schema = schema
        self._specs = specs
        self._row_filter = row_filter
        self._case_sensitive = case_sensitive
        self._include_empty_files = include_empty_files
        self._of_partitions = of_partitions
        self._told_until = told_until
        self._bound = bind(schema, rewrite_not(row_filter), case_sensitive)
        self._of_one_file = InclusiveMetricsEvaluator(schema, row_filter, case_sensitive, include_empty_files).eval
        self._of_partition: dict[int, Callable[[Record], bool] | None] = KeyDefaultDict(self._partition_evaluator)
        self.partition_filters: dict[int, BooleanExpression] = KeyDefaultDict(self._partition_filter)
        self.telling_specs: dict[int, PartitionSpec] = {spec_id: telling(spec, told_until) for spec_id, spec in specs.items()}
        self._overflowed = {spec_id: overflowed(spec, schema) for spec_id, spec in self.telling_specs.items()}

    def matching(self, entries: Entries) -> Numbers:
        """Return which of the entries are of files that may match."""
        rows = np.flatnonzero(self._not_ruled_out_by_size(entries))
        if isinstance(self._row_filter, AlwaysTrue) and not self._of_partitions:
            return rows
        rows = rows[self._in_partition(entries.only(rows))]
        return rows[self._by_statistics(entries.only(rows))]

    def is_overflowed(self, spec_id: int, partition: Record) -> bool:
        """Whether a partition's values may stand for numbers at the other end of their type; see `overflowed`."""
        odd = self._overflowed[spec_id]
        return bool(odd) and any(
            partition[at] == odd.get(each.name) for at, each in enumerate(self._specs[spec_id].fields) if each.name in odd
        )

    def _not_ruled_out_by_size(self, entries: Entries) -> Mask:
        if self._include_empty_files:
            return np.ones(len(entries), np.bool_)
        has_rows: Mask = entries.numbers[Column.RECORD_COUNT] != 0
        return has_rows

    def _in_partition(self, entries: Entries) -> Mask:
        spec_ids = {manifest.partition_spec_id for manifest in entries.manifests}
        if all(self._of_partition[spec_id] is None for spec_id in spec_ids):
            return np.ones(len(entries), np.bool_)
        partitions, places = entries.partitions()
        return np.array([self._may_match(spec_id, partition) for spec_id, partition in partitions], np.bool_)[places]

    def _may_match(self, spec_id: int, partition: Record) -> bool:
        evaluate = self._of_partition[spec_id]
        return evaluate is None or evaluate(in_literals(partition))

    def _by_statistics(self, entries: Entries) -> Mask:
        statistics = entries.statistics(frozenset(extract_field_ids(self._bound)), self._told_until)
        visitor = _Statistics(entries.records, statistics, len(entries))
        # Imported Avro files have a record count of -1: nothing is known of them, so nothing rules them out.
        matches: Mask = visit(self._bound, visitor) | (entries.numbers[Column.RECORD_COUNT] < 0)
        for odd in np.flatnonzero(visitor.odd).tolist():
            untold = not_told(self._told_until, entries.number(Column.SEQUENCE_NUMBER, odd))
            matches[odd] = self._may_hold(entries.file(odd).without_statistics_of(untold))
        return matches

    def _may_hold(self, file: EncryptedDataFile) -> bool:
        try:
            return self._of_one_file(file)
        except (struct.error, UnicodeDecodeError) as error:
            raise FormatError(
                f"{file.file_path}: its manifest entry has a bound that is not what its column's type is stored as"
            ) from error

    def _partition_filter(self, spec_id: int) -> BooleanExpression:
        projected = of_partitions(self._row_filter, self.telling_specs[spec_id], self._schema, self._case_sensitive)
        return And(projected, self._of_partitions.get(spec_id, ALWAYS_TRUE))

    def _partition_evaluator(self, spec_id: int) -> Callable[[Record], bool] | None:
        partition_filter = self.partition_filters[spec_id]
        if isinstance(partition_filter, AlwaysTrue):
            return None
        partition_schema = Schema(*self._specs[spec_id].partition_type(self._schema).fields)
        return expression_evaluator(partition_schema, partition_filter, self._case_sensitive)


def telling(spec: PartitionSpec, protected: Container[int]) -> PartitionSpec:
    """Return a partition spec in which the fields of protected columns say nothing of a file's rows.

    No file that is written while a column is protected has such a field. Whoever may commit can add a spec that has, and name files in it:
    their values in an entry are no more than a claim, of somebody who need not know those of the rows.

    Args:
        spec: as the table has it; positions and names of its fields stay.
        protected: field ids of protected columns, and of what lies in them.
    """
    if not any(field.source_id in protected for field in spec.fields):
        return spec

    silent: dict[str, Any] = {"transform": VoidTransform()}
    fields = [field.model_copy(update=silent) if field.source_id in protected else field for field in spec.fields]
    return PartitionSpec(*fields, spec_id=spec.spec_id)


class _Bounds:
    """One bound of one column in each entry: whether it is there, and what it is where it is."""

    def __init__(self, known: Mask, values: _Values) -> None:
        self.known = known
        self.values = values

    def where(self, holds: Callable[[Any], Any]) -> Mask:
        """Return where the bound is known and a comparison with it holds."""
        result = np.zeros(len(self.known), np.bool_)
        if self.values.dtype == object:
            result[self.known] = [bool(holds(value)) for value in self.values[self.known].tolist()]
        else:
            result[self.known] = holds(self.values[self.known])
        return result


class _Statistics(BoundBooleanExpressionVisitor[Mask]):
    """Evaluates a bound filter over the statistics of entries. `odd` are those whose bounds it cannot tell anything by."""

    def __init__(self, records: bytes, statistics: Statistics, entries: int) -> None:
        self._records = records
        self._statistics = statistics
        self._entries = entries
        self._bounds: dict[tuple[Column, int], _Bounds] = {}
        self.odd: Mask = np.zeros(entries, np.bool_)

    def visit_true(self) -> Mask:
        """Match every file."""
        return np.ones(self._entries, np.bool_)

    def visit_false(self) -> Mask:
        """Match no file."""
        return np.zeros(self._entries, np.bool_)

    def visit_not(self, child_result: Mask) -> Mask:
        """Never called: a filter has no negation when it comes here."""
        raise ValueError("NOT is to be written out before statistics are looked at")

    def visit_and(self, left_result: Mask, right_result: Mask) -> Mask:
        """Match where both sides may."""
        return left_result & right_result

    def visit_or(self, left_result: Mask, right_result: Mask) -> Mask:
        """Match where one of the sides may."""
        return left_result | right_result

    def visit_is_null(self, term: BoundTerm) -> Mask:
        """Rule out files that count no null."""
        matches: Mask = self._count(Column.NULL_VALUE_COUNTS, term) != 0
        return matches

    def visit_not_null(self, term: BoundTerm) -> Mask:
        """Rule out files of nulls alone."""
        return ~self._only(Column.NULL_VALUE_COUNTS, term)

    def visit_is_nan(self, term: BoundTerm) -> Mask:
        """Rule out files that count no NaN, or are of nulls alone."""
        may_have_nan: Mask = self._count(Column.NAN_VALUE_COUNTS, term) != 0
        return may_have_nan & ~self._only(Column.NULL_VALUE_COUNTS, term)

    def visit_not_nan(self, term: BoundTerm) -> Mask:
        """Rule out files of NaN alone."""
        return ~self._only(Column.NAN_VALUE_COUNTS, term)

    def visit_less_than(self, term: BoundTerm, literal: LiteralValue) -> Mask:
        """Rule out files whose least value is not less."""
        return self._has_values(term) & ~self._lower(term).where(lambda lower: lower >= literal.value)

    def visit_less_than_or_equal(self, term: BoundTerm, literal: LiteralValue) -> Mask:
        """Rule out files whose least value is greater."""
        return self._has_values(term) & ~self._lower(term).where(lambda lower: lower > literal.value)

    def visit_greater_than(self, term: BoundTerm, literal: LiteralValue) -> Mask:
        """Rule out files whose greatest value is not greater."""
        return self._has_values(term) & ~self._upper(term).where(lambda upper: upper <= literal.value)

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: LiteralValue) -> Mask:
        """Rule out files whose greatest value is less."""
        return self._has_values(term) & ~self._upper(term).where(lambda upper: upper < literal.value)

    def visit_equal(self, term: BoundTerm, literal: LiteralValue) -> Mask:
        """Rule out files between whose bounds the value is not."""
        return self.visit_less_than_or_equal(term, literal) & self.visit_greater_than_or_equal(term, literal)

    def visit_not_equal(self, term: BoundTerm, literal: LiteralValue) -> Mask:
        """Rule out nothing: bounds may be no value of the file."""
        return self.visit_true()

    def visit_in(self, term: BoundTerm, literals: set[Any]) -> Mask:
        """Rule out files between whose bounds none of the values is."""
        has_values = self._has_values(term)
        if len(literals) > IN_PREDICATE_LIMIT:
            return has_values

        lower, upper = self._lower(term), self._upper(term)
        ordered = sorted(value for value in literals if not _is_nan(value))
        # The least of the values that are not below the lower bound decides; behind the last of them there is none.
        first = np.zeros(self._entries, np.int64)
        if lower.known.any():
            first[lower.known] = [bisect_left(ordered, value) for value in lower.values[lower.known].tolist()]
        is_there = first < len(ordered)
        for at in np.unique(first[is_there & upper.known]).tolist():
            mine = upper.known & (first == at)
            is_there[mine] = _Bounds(mine, upper.values).where(partial(operator.le, ordered[at]))[mine]
        return has_values & (is_there | ~(lower.known | upper.known))

    def visit_not_in(self, term: BoundTerm, literals: set[Any]) -> Mask:
        """Rule out nothing: bounds may be no value of the file."""
        return self.visit_true()

    def visit_starts_with(self, term: BoundTerm, literal: LiteralValue) -> Mask:
        """Rule out files whose bounds, cut to the length of the prefix, are both on one side of it."""
        prefix = literal.value
        above = self._lower(term).where(lambda lower: lower and lower[: len(prefix)] > prefix)
        below = self._upper(term).where(lambda upper: upper[: len(prefix)] < prefix)
        return ~(self._only(Column.NULL_VALUE_COUNTS, term) | above | below)

    def visit_not_starts_with(self, term: BoundTerm, literal: LiteralValue) -> Mask:
        """Rule out files that have no null, and whose bounds both begin with the prefix."""
        prefix = literal.value
        begin = (bound.where(lambda value: value[: len(prefix)] == prefix) for bound in (self._lower(term), self._upper(term)))
        matches: Mask = (self._count(Column.NULL_VALUE_COUNTS, term) != NULL) | ~np.logical_and(*begin)
        return matches

    def _count(self, column: Column, term: BoundTerm) -> Numbers:
        return self._statistics.counts(column, term.ref().field.field_id)

    def _only(self, column: Column, term: BoundTerm) -> Mask:
        """Where all values are null, or NaN."""
        values, counted = self._count(Column.VALUE_COUNTS, term), self._count(column, term)
        only: Mask = (values == counted) & (values != NULL) & (values != 0)
        return only

    def _has_values(self, term: BoundTerm) -> Mask:
        return ~(self._only(Column.NULL_VALUE_COUNTS, term) | self._only(Column.NAN_VALUE_COUNTS, term))

    def _lower(self, term: BoundTerm) -> _Bounds:
        return self._bound(Column.LOWER_BOUNDS, term)

    def _upper(self, term: BoundTerm) -> _Bounds:
        return self._bound(Column.UPPER_BOUNDS, term)

    def _bound(self, column: Column, term: BoundTerm) -> _Bounds:
        field = term.ref().field
        key = column, field.field_id
        if key not in self._bounds:
            begins, ends = self._statistics.bounds(column, field.field_id)
            self._bounds[key] = self._decoded(field.field_type, begins, ends)
        return self._bounds[key]

    def _decoded(self, kind: IcebergType, begins: Numbers, ends: Numbers) -> _Bounds:
        if not isinstance(kind, PrimitiveType):
            raise ValueError(f"Expected PrimitiveType: {kind}")
        stored = begins >= 0
        formats = _STORED.get(type(kind))
        known, values = self._objects(kind, stored, begins, ends) if formats is None else self._numbers(formats, stored, begins, ends)
        self.odd |= stored & ~known
        return _Bounds(known, values)

    def _numbers(self, formats: Iterable[str], stored: Mask, begins: Numbers, ends: Numbers) -> tuple[Mask, _Values]:
        types = [np.dtype(each) for each in formats]
        values = np.zeros(len(begins), np.float64 if types[0].kind == "f" else np.int64)
        known = np.zeros(len(begins), np.bool_)
        array = np.frombuffer(self._records, np.uint8)

        for each in types:
            here = np.flatnonzero(stored & (ends - begins == each.itemsize))
            if len(here):
                values[here] = array[begins[here, None] + np.arange(each.itemsize)].view(each)[:, 0]
                known[here] = True

        # NaN says that nothing is known of the values: how, PyIceberg's evaluator says.
        return known & ~np.isnan(values), values

    def _objects(self, kind: PrimitiveType, stored: Mask, begins: Numbers, ends: Numbers) -> tuple[Mask, _Values]:
        values = np.full(len(begins), None, object)
        for row in np.flatnonzero(stored).tolist():
            try:
                values[row] = from_bytes(kind, self._records[begins[row] : ends[row]])
            except (ValueError, TypeError, ArithmeticError, LookupError, struct.error):
                continue
        return np.array([value is not None for value in values], np.bool_), values


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
