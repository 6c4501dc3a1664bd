"""What the planner tells of a scan: its files, why Python reads some of them, and nothing for a request that it does not understand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import FixedType, LongType, NestedField, StringType, StructType

from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.spark.sql.messages import Response
from tablecrypt.spark.sql.planner import Planner
from tablecrypt.spark.sql.scans.python_reads import portable_tasks
from tests.spark.conftest import Lake
from tests.spark.test_jvm_path import KEY
from tests.support.planner_requests import respond
from tests.support.tables import BY_REGION

SCHEMA: Final = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "region", StringType()),
    NestedField(3, "s", StructType(NestedField(4, "x", LongType()), NestedField(5, "code", FixedType(2)))),
)
ID: Final = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
ONLY_ID: Final = {"type": "struct", "fields": [ID]}


class Asked:
    """A planner that has one table loaded."""

    def __init__(self, lake: Lake, name: str) -> None:
        self.planner = Planner()
        settings = {"spark.master": "local[2]"}
        opened = self("open_catalog", name="sparktest", properties=lake.properties, spark=settings, in_spark=[], of_session=[])
        self.catalog = opened.fields["catalog"]
        namespace, _, table = name.partition(".")
        self.table = self("load_table", catalog=self.catalog, namespace=[namespace], name=table).fields["table"]

    def __call__(self, operation: str, **fields: Any) -> Response:
        return respond(self.planner, operation, **fields)

    def plan(
        self,
        predicates: Sequence[Any] = (),
        columns: Any = ONLY_ID,
        limit: int | None = None,
        grouped: bool = False,
        answered: Sequence[Any] = (),
    ) -> Mapping[str, Any]:
        asked = {"columns": json.dumps(columns), "filter": list(predicates), "answered": list(answered), "limit": limit, "grouped": True}
        settings = {"planning.preserve-data-grouping": str(grouped)}
        return self("plan", table=self.table, row_level=False, options={}, settings=settings, **asked).fields


def call(operator: str, column: str, *values: Any) -> dict[str, Any]:
    return {"op": operator, "args": [{"column": [column]}, *({"value": value, "type": "?"} for value in values)]}


@pytest.fixture
def asked(lake: Lake) -> Asked:
    """A table of four files of ten rows, the last with deleted rows."""
    table = lake.catalog.create_table("db.t", SCHEMA, partition_spec=BY_REGION, properties=KEY)
    for first, region in ((0, "eu"), (10, "us"), (20, "eu"), (30, None)):
        rows = [{"id": each, "region": region, "s": {"x": each, "code": b"ab"}} for each in range(first, first + 10)]
        struct = pa.struct([("x", pa.int64()), ("code", pa.binary(2))])
        types = pa.schema([("id", pa.int64()), ("region", pa.string()), ("s", struct)])
        table.append(pa.Table.from_pylist(rows, schema=types).cast(table.schema().as_arrow()))
    table.delete("id = 31")
    return Asked(lake, "db.t")


def test_a_plan_has_the_files_that_may_match_and_a_limit_those_that_suffice(asked: Asked) -> None:
    assert (asked.plan()["rows"], len(asked.plan()["lengths"]), sorted(asked.plan()["deletes"])) == (40, 4, [False, False, False, True])
    assert asked.plan([call("=", "region", "eu")])["rows"] == 20
    assert asked.plan([call(">", "id", 25)])["rows"] == 20
    assert [asked.plan(limit=wanted)["rows"] for wanted in (1, 10, 11, 30, 31)] == [10, 10, 20, 30, 40]
    groups = asked.plan(columns={"type": "struct", "fields": [ID, {**ID, "name": "region", "type": "string"}]}, grouped=True)["grouping"]
    assert (groups["groups"], sorted(map(str, groups["keys"]))) == (3, ["['eu']", "['eu']", "['us']", "[None]"])
    assert groups["keys"].index(["eu"]) + 1 == len(groups["keys"]) - 1 - groups["keys"][::-1].index(["eu"])
    assert asked.plan(grouped=True)["grouping"] is None


def test_a_filter_found_while_the_query_runs_leaves_files_by_name_and_by_value(asked: Asked) -> None:
    plan = asked.plan()
    numbers = {location: number for number, location in enumerate(plan["locations"])}
    names = sorted(numbers)[:2]

    def left(*predicates: Any) -> list[int]:
        return list(asked("prune", plan=plan["plan"], filter=list(predicates)).fields["files"])

    assert left(call("IN", "_file", *names)) == sorted(numbers[name] for name in names)
    assert left(call("IN", "_file")) == []
    assert len(left(call("IN", "region", "eu"))) == 2
    assert len(left(call("IN", "region", "eu"), call("IN", "_file", *names))) <= 2
    assert left(call("?", "region", "eu")) == [0, 1, 2, 3]


def test_columns_that_spark_does_not_ask_for_are_no_reason_to_read_with_python(asked: Asked) -> None:
    x, code = {**ID, "name": "x"}, {**ID, "name": "code", "type": "binary"}

    def reasons(*fields: Any) -> set[str | None]:
        struct = {"name": "s", "type": {"type": "struct", "fields": list(fields)}, "nullable": True, "metadata": {}}
        return set(asked.plan(columns={"type": "struct", "fields": [ID, struct]})["portable"])

    assert reasons(x) == {None}
    assert reasons(x, code) == {"s.code: fixed[2] is translated by Python"}


def test_keys_are_in_no_plan_and_in_the_files_that_were_opened(asked: Asked) -> None:
    plan = asked.plan()
    opened = asked("open_files", plan=plan["plan"], portable=[0], with_deleted=False)
    keys = [bytes(task.file.key_metadata or b"") for task in asked.planner.plans[plan["plan"]].tasks]

    assert opened.fields == {}
    assert all(plan["locations"][number].encode() in opened.content for number in range(4))
    assert not [key for key in keys if key.hex() in json.dumps(dict(plan))]
    with pytest.raises(ConfigurationError, match="run the query again"):
        asked("open_files", plan="0" * 32, portable=[], with_deleted=False)


@pytest.mark.parametrize("columns", ["", "{", "[]", "{}", '{"fields": [{}]}', "null", "3"], ids=str)
def test_columns_in_another_form_are_refused(asked: Asked, columns: str) -> None:
    fields = {"table": asked.table, "options": {}, "filter": [], "answered": [], "limit": None, "grouped": False, "row_level": False}
    with pytest.raises(FormatError, match="not a Spark schema"):
        asked("plan", columns=columns, **fields)


def test_a_task_that_is_cut_off_is_refused(asked: Asked) -> None:
    known = asked.planner.plans[asked.plan()["plan"]]
    [content] = portable_tasks(known.loaded, known.projected, known.readable, {0: known.tasks[0]}, with_deleted=False).values()

    for cut in {*range(0, len(content), 101), len(content) - 1}:
        fields = {"row_ids": False, "last_updated": False, "positions": False}
        reader = respond(asked.planner, "start_reading", content[:cut], **fields).fields["reader"]
        with pytest.raises(FormatError):
            asked("next_rows", reader=reader)
