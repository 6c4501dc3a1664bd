"""Conditions that are left to the plan: partition values say of each row of a file what Spark would, or Spark is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, NestedField

from tablecrypt.errors import FormatError
from tablecrypt.spark.sql.scans.whole_partitions import partition_tests
from tests.spark.sql.test_filters import (
    COLUMNS,
    OPERATORS,
    SCHEMA,
    Row,
    call,
    column,
    literal,
    metadata,
    predicates,
    predicates_over,
    rows,
    spark,
    term,
)
from tests.spark.sql.test_plan import Asked, asked
from tests.spark.sql.test_plan import call as compared

__all__ = ["asked"]


def partitioned(spec_id: int, **transforms: Transform[Any, Any]) -> PartitionSpec:
    ids = {field.name: field.field_id for field in SCHEMA.fields}
    named = enumerate(transforms.items(), 1000 + 10 * spec_id)
    return PartitionSpec(*(PartitionField(ids[name], at, each, f"{name}_part") for at, (name, each) in named), spec_id=spec_id)


IDENTITY: Final = partitioned(1, **{name: IdentityTransform() for name in COLUMNS})
BY_TIME: Final = partitioned(2, d=MonthTransform(), t=TruncateTransform(1), n=TruncateTransform(2), b=IdentityTransform())
BUCKETED: Final = partitioned(3, n=BucketTransform(3), t=TruncateTransform(2), d=YearTransform())
VOID: Final = partitioned(4, n=VoidTransform(), t=IdentityTransform(), d=DayTransform(), b=VoidTransform())


def evolved(specs: Sequence[PartitionSpec]) -> TableMetadata:
    return metadata(specs[-1]).model_copy(update={"partition_specs": list(specs)})


def partition(row: Row, spec: PartitionSpec) -> Record:
    sources = ((field, SCHEMA.find_field(field.source_id)) for field in spec.fields)
    return Record(*(field.transform.transform(source.field_type)(row[source.name]) for field, source in sources))


SPECS: Final = {spec.spec_id: spec for spec in (IDENTITY, BY_TIME, BUCKETED, VOID)}
TOLD: Final[dict[int, list[tuple[str, ...]]]] = {
    1: [("n",), ("t",), ("d",), ("b",)],
    2: [("b",), ("months", "d"), ("truncate", "1", "t"), ("truncate", "2", "n")],
    3: [("bucket", "3", "n"), ("years", "d")],
    4: [("t",), ("days", "d")],
}
"""By the id of a spec, the columns and partition functions whose values its partitions tell."""


@st.composite
def specs_and_predicates(draw: st.DrawFn) -> tuple[list[PartitionSpec], dict[str, Any]]:
    """One spec and a condition that its partitions mostly answer, or one or two specs and any condition."""
    if draw(st.booleans()):
        spec_id = draw(st.sampled_from(sorted(SPECS)))
        return [SPECS[spec_id]], draw(predicates_over(TOLD[spec_id], OPERATORS))
    return draw(st.lists(st.sampled_from(list(SPECS.values())), min_size=1, max_size=2, unique_by=lambda spec: spec.spec_id)), draw(
        predicates
    )


@given(asked_of=specs_and_predicates(), held=st.lists(rows, min_size=1, max_size=4))
def test_what_partitions_answer_is_true_of_the_rows_that_spark_keeps_and_of_no_other(
    asked_of: tuple[list[PartitionSpec], Any], held: list[Row]
) -> None:
    specs, wanted = asked_of
    tests = partition_tests(wanted, SCHEMA, evolved(specs))

    for spec in specs if tests is not None else ():
        for row in held:
            assert tests is not None
            assert tests[spec.spec_id](partition(row, spec)) is spark(wanted, row)


def of(operator: str, name: str, *values: Any) -> dict[str, Any]:
    return call(operator, column(name), *(literal(value, COLUMNS[name][1]) for value in values))


ALIKE: Final = [IDENTITY, partitioned(5, t=IdentityTransform(), d=DayTransform())]
NOT_IDENTITY: Final = [IDENTITY, BUCKETED]


@pytest.mark.parametrize(
    ("predicate", "specs", "is_answered"),
    [
        *((of(operator, "t", "a"), ALIKE, True) for operator in ("=", "<>", "<", "<=", ">", ">=", "<=>", "IN", "STARTS_WITH")),
        (call("NOT", of("IN", "t", "a", None)), ALIKE, True),
        (call("OR", of("=", "t", "a"), of("IS_NULL", "d")), ALIKE, True),
        (call("OR", of("=", "t", "a"), of("=", "n", 1)), ALIKE, False),
        (of("IS_NOT_NULL", "n"), NOT_IDENTITY, True),
        (of("=", "n", 1), NOT_IDENTITY, False),
        (of("STARTS_WITH", "t", "ab"), NOT_IDENTITY, True),
        (of("STARTS_WITH", "t", "abc"), NOT_IDENTITY, False),
        (of("=", "t", "a"), NOT_IDENTITY, False),
        (of("=", "t", "a"), [*ALIKE, UNPARTITIONED_PARTITION_SPEC], False),
        (of("IS_NULL", "n"), [VOID], False),
        (of("IS_NULL", "x"), [IDENTITY], True),
        (of("=", "x", 1.5), [IDENTITY], False),
        (of("<", "n", 2), [BY_TIME], True),
        (of("<=", "n", 1), [BY_TIME], True),
        (of("<", "n", 1), [BY_TIME], False),
        (of("<", "d", 31), [BY_TIME], True),
        (of(">", "d", 30), [BY_TIME], True),
        (of("<", "d", 32), [BY_TIME], False),
        (of("<=", "d", 31), [BY_TIME], False),
        (of("<", "d", -31), [BY_TIME], False),
        (of("<", "d", 0), [BY_TIME], False),
        (call("=", column("s"), literal(1, "bigint")), [IDENTITY], False),
        (call("=", column("_file"), literal("a", "string")), [IDENTITY], False),
        (call("?", column("t")), [IDENTITY], False),
        *(
            (call(operator, term("bucket", "3", "n"), literal(1, "int")), [BUCKETED], True)
            for operator in ("=", "<>", "<", ">=", "<=>", "IN")
        ),
        (call("IS_NULL", term("bucket", "3", "n")), [BUCKETED], True),
        (call("NOT", call("=", literal(1, "int"), term("years", "d"))), [BUCKETED], True),
        (call("STARTS_WITH", term("truncate", "2", "t"), literal("ab", "string")), [BUCKETED], True),
        (call("=", term("bucket", "4", "n"), literal(1, "int")), [BUCKETED], False),
        (call("=", term("bucket", "3", "n"), literal(1, "int")), NOT_IDENTITY, False),
        (call("=", term("months", "d"), term("months", "d")), [BY_TIME], False),
    ],
)
def test_partitions_answer_a_condition_only_where_each_spec_of_the_table_does(
    predicate: Any, specs: list[PartitionSpec], is_answered: bool
) -> None:
    assert (partition_tests(predicate, SCHEMA, evolved(specs)) is not None) == is_answered


def test_a_column_that_had_another_type_is_asked_of_spark() -> None:
    known = evolved([IDENTITY])
    before = Schema(NestedField(1, "n", IntegerType()), schema_id=7)

    assert partition_tests(of("=", "n", 1), SCHEMA, known.model_copy(update={"schemas": [before, *known.schemas]})) is None
    same = Schema(NestedField(1, "n", LongType()), schema_id=7)
    assert partition_tests(of("=", "n", 1), SCHEMA, known.model_copy(update={"schemas": [same, *known.schemas]})) is not None


def test_a_partition_value_of_another_type_stops_the_query() -> None:
    tests = partition_tests(of("=", "n", 1), SCHEMA, evolved([partitioned(1, n=IdentityTransform())]))

    assert tests is not None
    with pytest.raises(FormatError, match="partition value of type str"):
        tests[1](Record("1"))


def test_a_plan_has_whole_partitions_and_refuses_conditions_that_they_do_not_answer(asked: Asked) -> None:
    eu, low = compared("=", "region", "eu"), compared("<", "id", 5)
    rows_of = [{"function": "count", "column": None}]

    assert asked("answered", table=asked.table, filter=[eu, low]).fields == {"answered": [True, False]}
    assert asked.plan([eu, low], answered=[eu])["rows"] == 10
    assert asked.plan([eu], answered=[eu], limit=11)["rows"] == 20
    assert asked("aggregate", table=asked.table, options={}, functions=rows_of, filter=[eu]).fields == {"values": [20]}
    assert asked("aggregate", table=asked.table, options={}, functions=rows_of, filter=[compared("IS_NULL", "region")]).fields == {}
    with pytest.raises(FormatError, match="left to its plan"):
        asked.plan([low], answered=[low])
    with pytest.raises(FormatError, match="left to its plan"):
        asked("aggregate", table=asked.table, options={}, functions=rows_of, filter=[low])
