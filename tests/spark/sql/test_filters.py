"""Predicates of Spark as filters of files: no row that Spark would keep is lost, and an exact filter keeps exactly these."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, BooleanExpression, EqualTo, In, LessThan
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.typedef import EMPTY_DICT, Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from tablecrypt.manifests import EncryptedDataFile
from tablecrypt.manifests.entries import Entries
from tablecrypt.spark.sql.scans.filters import exact_filter, pruning_filter
from tablecrypt.spark.sql.scans.partition_terms import partition_filters
from tablecrypt.table._pyiceberg.whole_files import WholeFiles
from tablecrypt.table.filters import with_sql_null_semantics
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.planning.file_filter import FileFilter
from tests.support.manifest_bytes import entries_of_files

SCHEMA: Final = Schema(
    NestedField(1, "n", LongType()),
    NestedField(2, "x", DoubleType()),
    NestedField(3, "t", StringType()),
    NestedField(4, "d", DateType()),
    NestedField(5, "s", StructType(NestedField(6, "in.ner", IntegerType()))),
    NestedField(7, "b", BooleanType()),
)
PARTITIONED: Final = PartitionSpec(
    PartitionField(1, 1000, BucketTransform(3), "n_bucket"),
    PartitionField(2, 1001, IdentityTransform(), "x"),
    PartitionField(3, 1002, TruncateTransform(1), "t_trunc"),
    PartitionField(4, 1003, MonthTransform(), "d_month"),
)
BY_TERMS: Final = PartitionSpec(
    PartitionField(1, 1000, TruncateTransform(2), "n_trunc"),
    PartitionField(4, 1001, YearTransform(), "d_year"),
    PartitionField(4, 1002, DayTransform(), "d_day"),
)
COLUMNS: Final = {
    "n": (st.integers(-3, 3), "bigint"),
    "x": (st.sampled_from([math.nan, -math.inf, math.inf, -0.0, 0.0, 1.5]), "double"),
    "t": (st.sampled_from(["", "a", "ab", "b", "ü"]), "string"),
    "d": (st.integers(-40, 40), "date"),
    "b": (st.booleans(), "boolean"),
}
TERMS: Final[dict[tuple[str, ...], tuple[Transform[Any, Any], st.SearchStrategy[Any], str]]] = {
    ("bucket", "3", "n"): (BucketTransform(3), st.integers(0, 3), "int"),
    ("truncate", "2", "n"): (TruncateTransform(2), st.integers(-4, 4), "bigint"),
    ("truncate", "1", "t"): (TruncateTransform(1), st.sampled_from(["", "a", "b", "ü"]), "string"),
    ("years", "d"): (YearTransform(), st.integers(-1, 1), "int"),
    ("months", "d"): (MonthTransform(), st.integers(-2, 2), "int"),
    ("days", "d"): (DayTransform(), st.integers(-40, 40), "date"),
}
"""Partition functions of a column, and values to compare them with."""
Row = dict[str, Any]
rows: Final = st.fixed_dictionaries({name: st.none() | values for name, (values, _) in COLUMNS.items()})


def column(name: str) -> dict[str, Any]:
    return {"column": [name]}


def call(operator: str, *arguments: Any) -> dict[str, Any]:
    return {"op": operator, "args": list(arguments)}


def literal(value: Any, kind: str) -> dict[str, Any]:
    """A value as the JVM sends it: for Spark true and false are predicates."""
    if kind == "boolean" and value is not None:
        return call("ALWAYS_TRUE" if value else "ALWAYS_FALSE")
    return {"value": value, "type": kind}


def term(function: str, *arguments: str) -> dict[str, Any]:
    """A partition function of a column: its name, a number where it takes one, and the column's name."""
    return call(function, *(literal(int(each), "int") for each in arguments[:-1]), column(arguments[-1]))


@st.composite
def leaves(draw: st.DrawFn, operands: Sequence[tuple[str, ...]], operators: Sequence[str]) -> dict[str, Any]:
    named = draw(st.sampled_from(operands))
    if named in TERMS:
        _, values, kind = TERMS[named]
        operand = term(*named)
    else:
        values, kind = COLUMNS[named[0]]
        operand = column(*named)
    literals = st.builds(literal, st.one_of(values, values, values, values, st.none()), st.just(kind))
    operator = draw(st.sampled_from(operators))
    if operator.startswith("IS_"):
        return call(operator, operand)
    if operator == "IN":
        return call(operator, operand, *draw(st.lists(literals, min_size=1, max_size=3)))
    if operator == "STARTS_WITH":
        return call(operator, column("t"), {"value": draw(st.sampled_from(["a", "ab", "ü"])), "type": "string"})
    if operator == "?":
        return call("?", operand)
    arguments = [operand, draw(literals)]
    return call(operator, *(reversed(arguments) if draw(st.booleans()) else arguments))


def predicates_over(operands: Sequence[tuple[str, ...]], operators: Sequence[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Predicates of columns, each by its name, and of partition functions, each by its key in TERMS."""
    return st.recursive(
        leaves(operands, operators),
        lambda inner: st.builds(lambda each: call("NOT", each), inner) | st.builds(call, st.sampled_from(["AND", "OR"]), inner, inner),
        max_leaves=5,
    )


OPERATORS: Final = ["=", "<>", "<", "<=", ">", ">=", "<=>", "IN", "IS_NULL", "IS_NOT_NULL"]
NAMES: Final = [(name,) for name in COLUMNS]
predicates: Final = predicates_over([*NAMES, *NAMES, *TERMS], [*OPERATORS, "STARTS_WITH", "?"])
exact_predicates: Final = predicates_over([*NAMES, *(each for each in NAMES if each != ("x",))], [*OPERATORS, "STARTS_WITH"])
"""Predicates of columns alone: most of them have an exact filter."""


def spark(predicate: Any, row: Row) -> Any:
    """What Spark says: True, False, or None for unknown."""
    if "column" in predicate:
        return row[predicate["column"][0]]
    if "value" in predicate:
        return predicate["value"]
    operator = predicate["op"]
    if operator in ("?", "ALWAYS_TRUE", "ALWAYS_FALSE"):
        return operator != "ALWAYS_FALSE"
    values = [spark(each, row) for each in predicate["args"]]
    if operator in ("bucket", "truncate", "years", "months", "days"):
        [(source, transform)] = [(named[-1], each) for named, (each, *_) in TERMS.items() if term(*named) == predicate]
        return transform.transform(SCHEMA.find_type(source))(values[-1])
    if operator in ("AND", "OR"):
        deciding = operator == "OR"
        return deciding if deciding in values else None if None in values else not deciding
    if operator == "NOT":
        return None if values[0] is None else not values[0]
    if operator.startswith("IS_"):
        return (values[0] is None) == (operator == "IS_NULL")
    if operator == "<=>":
        return values[0] is values[1] is None or (None not in values and _order(*values) == 0)
    if operator == "IN":
        return _any(None if None in (values[0], each) else _order(values[0], each) == 0 for each in values[1:])
    if None in values:
        return None
    if operator == "STARTS_WITH":
        return values[0].startswith(values[1])
    order = _order(*values)
    return {"=": order == 0, "<>": order != 0, "<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[operator]


def _any(found: Any) -> bool | None:
    known = list(found)
    return True if True in known else None if None in known else False


def _order(left: Any, right: Any) -> int:
    """NaN equals itself and is greater than all numbers."""
    if isinstance(left, float) and (math.isnan(left) or math.isnan(right)):
        return int(math.isnan(left)) - int(math.isnan(right))
    return int(left > right) - int(left < right)


def metadata(spec: PartitionSpec, schema: Schema = SCHEMA) -> TableMetadata:
    made = new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, "file:///lake", {"format-version": "3"})
    kept = schema.model_copy(update={"schema_id": made.current_schema_id})
    return made.model_copy(update={"schemas": [kept], "partition_specs": [spec], "default_spec_id": spec.spec_id})


def data_file(held: Sequence[Row], spec: PartitionSpec) -> EncryptedDataFile:
    """A file with these rows, by its statistics and partition."""
    fields = [field for field in SCHEMA.fields if field.name in COLUMNS]
    values = {field.field_id: [row[field.name] for row in held] for field in fields}
    present = {each: [value for value in found if value is not None and value == value] for each, found in values.items()}  # noqa: PLR0124
    kinds: dict[int, Any] = {field.field_id: field.field_type for field in fields}
    partition = [field.transform.transform(SCHEMA.find_type(field.source_id))(values[field.source_id][0]) for field in spec.fields]
    file = EncryptedDataFile.from_args(
        content=DataFileContent.DATA,
        file_path="file:///lake/f",
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=len(held),
        key_metadata=b"key",
        file_size_in_bytes=1,
        value_counts={each: len(found) for each, found in values.items()},
        null_value_counts={each: found.count(None) for each, found in values.items()},
        nan_value_counts={2: sum(value is not None and math.isnan(value) for value in values[2])},
        lower_bounds={each: to_bytes(kinds[each], min(found)) for each, found in present.items() if found},
        upper_bounds={each: to_bytes(kinds[each], max(found)) for each, found in present.items() if found},
    )
    file.spec_id = spec.spec_id
    return file


def matching(
    row_filter: BooleanExpression, entries: Entries, spec: PartitionSpec, of_partitions: Mapping[int, BooleanExpression] = EMPTY_DICT
) -> set[int]:
    """The numbers of the files that may match."""
    specs = metadata(spec).specs()
    planned = FileFilter(SCHEMA, specs, row_filter, case_sensitive=True, include_empty_files=False, of_partitions=of_partitions)
    return set(planned.matching(entries).tolist())


def read_with(row_filter: BooleanExpression, held: Sequence[Row]) -> set[int]:
    """The numbers of the rows that a reader with this filter gives."""
    if isinstance(row_filter, AlwaysTrue):
        return set(range(len(held)))
    types = {"n": pa.int64(), "x": pa.float64(), "t": pa.string(), "d": pa.date32(), "b": pa.bool_()}
    columns = {name: pa.array([row[name] for row in held], pa.int32() if name == "d" else kind) for name, kind in types.items()}
    columns["d"] = columns["d"].cast(pa.date32())
    table = pa.table({**columns, "at": pa.array(range(len(held)), pa.int64())})
    found = table.filter(expression_to_pyarrow(bind(SCHEMA, row_filter, case_sensitive=True), SCHEMA))
    return set(found.column("at").to_pylist())


def may_match(predicates: Sequence[Any], file: EncryptedDataFile, spec: PartitionSpec) -> bool:
    of_partitions = partition_filters(predicates, SCHEMA, metadata(spec))
    return matching(pruning_filter(predicates, SCHEMA, SCHEMA), entries_of_files([file], SCHEMA, spec), spec, of_partitions) == {0}


VALUES: Final[dict[str, list[Any]]] = {
    "n": [None, -1, 0, 1],
    "x": [None, math.nan, math.inf, -0.0, 0.0, 1.5],
    "t": [None, "", "a", "ab", "b"],
    "d": [None, -32, 0, 31],
    "b": [None, False, True],
}


def comparisons(name: str) -> Iterator[dict[str, Any]]:
    """All predicates on one column and one or two of its values, and what they become under NOT."""
    literals = [literal(value, COLUMNS[name][1]) for value in VALUES[name]]
    for value in literals:
        for operator in ("=", "<>", "<", "<=", ">", ">=", "<=>", "IN"):
            yield call(operator, column(name), value)
        yield call("IN", column(name), value, literals[0])
        yield call("IN", column(name), value, literals[-1])
    yield call("IS_NULL", column(name))
    yield call("IS_NOT_NULL", column(name))


@pytest.mark.parametrize("name", COLUMNS)
def test_no_single_row_is_lost_to_any_comparison_or_its_negation(name: str) -> None:
    empty = dict.fromkeys(COLUMNS)
    held = [empty | {name: value} for value in VALUES[name]]
    alone, pairs = [[row] for row in held], [[row, other] for row in held for other in held]
    files = [(PARTITIONED, alone), (UNPARTITIONED_PARTITION_SPEC, [*alone, *pairs])]
    entries = [entries_of_files([data_file(each, spec) for each in mine], SCHEMA, spec) for spec, mine in files]
    for wanted in (each for bare in comparisons(name) for each in (bare, call("NOT", bare), call("NOT", call("NOT", bare)))):
        for (spec, mine), of_files in zip(files, entries, strict=True):
            hold = {number for number, rows_of_file in enumerate(mine) if any(spark(wanted, row) is True for row in rows_of_file)}
            assert hold <= matching(pruning_filter([wanted], SCHEMA, SCHEMA), of_files, spec), wanted
        kept = {number for number, row in enumerate(held) if spark(wanted, row) is True}
        assert kept <= read_with(pruning_filter([wanted], SCHEMA, SCHEMA), held), wanted


@given(held=st.lists(rows, min_size=1, max_size=4), wanted=st.lists(predicates, min_size=1, max_size=2))
def test_no_file_with_a_row_that_spark_keeps_is_left_out(held: list[Row], wanted: list[Any]) -> None:
    kept = [row for row in held if all(spark(each, row) is True for each in wanted)]

    if kept:
        assert may_match(wanted, data_file(held, UNPARTITIONED_PARTITION_SPEC), UNPARTITIONED_PARTITION_SPEC)
    for row in kept:
        for spec in (PARTITIONED, BY_TERMS):
            assert may_match(wanted, data_file([row], spec), spec)


@pytest.mark.parametrize(
    ("predicate", "rules_out"),
    [
        (call("=", term("bucket", "3", "n"), literal(1, "int")), {1}),
        (call("<>", literal(1, "int"), term("bucket", "3", "n")), {0}),
        (call("NOT", call("IN", term("bucket", "3", "n"), literal(1, "int"), literal(None, "int"))), {0}),
        (call("=", term("bucket", "4", "n"), literal(0, "int")), set()),
        (call(">", term("months", "d"), literal(0, "int")), {0}),
        (call("NOT", call("STARTS_WITH", term("truncate", "1", "t"), literal("a", "string"))), {0}),
        (call("AND", call("<", term("months", "d"), literal(5, "int")), call("=", term("bucket", "3", "n"), literal(9, "int"))), {0, 1}),
        (call("OR", call("=", term("months", "d"), literal(9, "int")), call("=", column("n"), literal(0, "bigint"))), {1}),
        (call("OR", call("=", term("months", "d"), literal(9, "int")), call("?", column("n"))), set()),
        (call("=", term("months", "d"), term("months", "d")), set()),
        (call("=", term("bucket", "3", "n"), literal(None, "int")), set()),
        (call("=", {"op": "bucket", "args": [literal(0, "int"), column("n")]}, literal(0, "int")), set()),
    ],
    ids=str,
)
def test_a_condition_on_a_partition_function_rules_out_the_partitions_that_it_is_not_true_of(predicate: Any, rules_out: set[int]) -> None:
    empty = dict.fromkeys(COLUMNS)
    held = [empty | {"n": 0, "t": "ab", "d": 3}, empty | {"n": 1, "t": "b", "d": 50}]

    assert {at for at, row in enumerate(held) if not may_match([predicate], data_file([row], PARTITIONED), PARTITIONED)} == rules_out


@given(held=st.lists(rows, max_size=5), wanted=predicates | exact_predicates)
def test_no_row_that_spark_keeps_is_lost_and_an_exact_filter_keeps_no_other(held: list[Row], wanted: Any) -> None:
    kept = {number for number, row in enumerate(held) if spark(wanted, row) is True}

    assert kept <= read_with(pruning_filter([wanted], SCHEMA, SCHEMA), held)
    exact = exact_filter([wanted], SCHEMA)
    if exact is not None:
        assert read_with(exact, held) == kept


@given(held=st.lists(rows, min_size=1, max_size=1) | st.lists(rows, min_size=2, max_size=3), wanted=exact_predicates)
def test_a_file_goes_unread_only_where_spark_keeps_all_of_its_rows(held: list[Row], wanted: Any) -> None:
    exact = exact_filter([wanted], SCHEMA)
    whole = WholeFiles(SCHEMA, with_sql_null_semantics(exact or AlwaysFalse(), SCHEMA), told_until={})

    is_whole = whole.has(EncryptedFileScanTask(data_file(held, UNPARTITIONED_PARTITION_SPEC), residual=AlwaysFalse()))
    assert not is_whole or all(spark(wanted, row) is True for row in held)


def test_a_bucket_of_a_uuid_which_spark_computes_of_its_text_rules_out_nothing() -> None:
    schema = Schema(NestedField(1, "u", UUIDType()))
    by_bucket = PartitionSpec(PartitionField(1, 1000, BucketTransform(3), "u_bucket"))

    assert partition_filters([call("=", term("bucket", "3", "u"), literal(9, "int"))], schema, metadata(by_bucket, schema)) == {
        0: AlwaysTrue()
    }


def test_names_are_those_of_the_snapshot_and_types_those_of_both() -> None:
    read = Schema(NestedField(1, "a", IntegerType()), NestedField(2, "b", LongType()), NestedField(3, "gone", LongType()))
    table = Schema(NestedField(1, "a", LongType()), NestedField(2, "a.b", LongType()), NestedField(4, "b", LongType()))
    three = {"value": 3, "type": "bigint"}

    assert pruning_filter([call("=", column("b"), three)], read, table) == EqualTo("a.b", 3)  # type: ignore[call-arg]
    for name in ("a", "gone", "never"):
        assert pruning_filter([call("=", column(name), three)], read, table) == AlwaysTrue()
    nested = {"column": ["s", "in.ner"]}
    assert pruning_filter([call(">", three, nested)], SCHEMA, SCHEMA) == LessThan("s.in.ner", 3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("field_type", "value", "translated"),
    [
        (IntegerType(), 2**31, False),
        (IntegerType(), True, False),
        (BooleanType(), True, True),
        (BooleanType(), 1, False),
        (LongType(), "3", False),
        (DecimalType(9, 2), "1.50", True),
        (DecimalType(9, 2), "1.5", False),
        (DecimalType(9, 2), "x", False),
        (BinaryType(), "YWI=", True),
        (BinaryType(), "not base64!", False),
        (UUIDType(), "f79c3e09-677c-4bbd-a479-3f349cb785e7", True),
        (UUIDType(), "F79C3E09-677C-4BBD-A479-3F349CB785E7", False),
        (UUIDType(), "f79c3e09677c4bbda4793f349cb785e7", False),
        (TimestamptzType(), 2**62, True),
        (StringType(), 3, False),
        (StringType(), None, False),
        (StructType(NestedField(9, "x", LongType())), "{}", False),
    ],
    ids=str,
)
def test_a_value_is_of_the_column_s_type_or_prunes_nothing(field_type: Any, value: Any, translated: bool) -> None:
    schema = Schema(NestedField(1, "c", field_type))
    known = pruning_filter([call("=", column("c"), {"value": value, "type": "?"})], schema, schema)

    assert isinstance(known, AlwaysTrue) != translated
    assert (exact_filter([call("=", column("c"), {"value": value, "type": "?"})], schema) is not None) == translated


@pytest.mark.parametrize(
    "malformed",
    [{}, {"op": "="}, {"op": "=", "args": []}, {"op": "IN", "args": []}, {"op": "NOT", "args": [{}]}, {"op": "=", "args": [{}, {}]}],
    ids=str,
)
def test_what_is_not_understood_prunes_nothing_and_leaves_the_rest(malformed: Any) -> None:
    three = {"value": 3, "type": "bigint"}
    known = [malformed, call("=", column("n"), three), call("IN", column("n"), three, {"value": 4, "type": "bigint"})]

    is_in: Any = In
    assert pruning_filter(known, SCHEMA, SCHEMA) == And(EqualTo("n", 3), is_in("n", {3, 4}))  # type: ignore[call-arg]
    assert exact_filter(known, SCHEMA) is None
