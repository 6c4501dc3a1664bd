"""Whatever a table's columns have been, a filter finds the rows of which it is true, in files from before and from after."""

from __future__ import annotations

import datetime as dt
import math
import operator
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg import expressions
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestamptzType,
    UUIDType,
)

from tablecrypt_catalog.sql import EncryptedInMemoryCatalog
from tests.support.plaintext import CANARY
from tests.support.tables import encrypted_table, ids, memory_catalog, new_table

pytestmark = pytest.mark.slow

# PyIceberg's expressions take positional arguments, which their annotations do not show.
ice: Any = expressions

VALUES: Final[dict[PrimitiveType, st.SearchStrategy[Any]]] = {
    IntegerType(): st.sampled_from([-(2**31), 2**31 - 1]) | st.integers(-3, 3),
    LongType(): st.sampled_from([-(2**63), 2**63 - 1, 2**40, -(2**31), 2**31 - 1]) | st.integers(-3, 3),
    FloatType(): st.sampled_from([0.0, -0.0, 0.125, math.inf, -math.inf, math.nan]),
    DoubleType(): st.sampled_from([0.0, -0.0, 0.1, 0.125, 1e300, math.inf, -math.inf, math.nan]),
    DecimalType(9, 2): st.sampled_from([Decimal("0.00"), Decimal("-0.01"), Decimal("9999999.99")]),
    DecimalType(11, 2): st.sampled_from([Decimal("0.00"), Decimal("-0.01"), Decimal("9999999.99"), Decimal("999999999.99")]),
    StringType(): st.sampled_from(["", "a", "ab", "\U0010ffff" * 17]),
    BooleanType(): st.booleans(),
    DateType(): st.sampled_from([dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2024, 2, 29)]),
    TimestamptzType(): st.sampled_from([dt.datetime(year, 12, 31, 23, 59, 59, 999_999, dt.UTC) for year in (1969, 2024)]),
    UUIDType(): st.sampled_from([uuid.UUID(int=number) for number in (0, 1, 2**127, 2**128 - 1)]),
}
WIDER: Final = {IntegerType(): LongType(), FloatType(): DoubleType(), DecimalType(9, 2): DecimalType(11, 2)}
COMPARED: Final[dict[str, tuple[Any, Callable[[Any, Any], bool]]]] = {
    "=": (ice.EqualTo, operator.eq),
    "!=": (ice.NotEqualTo, operator.ne),
    "<": (ice.LessThan, operator.lt),
    "<=": (ice.LessThanOrEqual, operator.le),
    ">": (ice.GreaterThan, operator.gt),
    ">=": (ice.GreaterThanOrEqual, operator.ge),
}
OPPOSITE: Final = {"=": "!=", "<": ">=", "<=": ">", "in": "not in", "null": "not null", "nan": "not nan"}
OPPOSITES: Final = OPPOSITE | {inverse: each for each, inverse in OPPOSITE.items()}


@dataclass
class Model:
    """What a table has, in Python's own values."""

    columns: dict[str, PrimitiveType]
    rows: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Condition:
    """A comparison of a column, or two conditions that are joined."""

    name: str
    column: str = ""
    values: tuple[Any, ...] = ()
    parts: tuple[Condition, ...] = ()

    def as_filter(self) -> BooleanExpression:
        """Return it as a scan takes it."""
        if self.parts:
            joined: dict[str, Any] = {"and": ice.And, "or": ice.Or, "not": ice.Not}
            return joined[self.name](*(part.as_filter() for part in self.parts))  # type: ignore[no-any-return]
        unary: dict[str, Any] = {"null": ice.IsNull, "not null": ice.NotNull, "nan": ice.IsNaN, "not nan": ice.NotNaN}
        if self.name in unary:
            return unary[self.name](self.column)  # type: ignore[no-any-return]
        if self.name in ("in", "not in"):
            return (ice.In if self.name == "in" else ice.NotIn)(self.column, self.values)  # type: ignore[no-any-return]
        return COMPARED[self.name][0](self.column, *self.values)  # type: ignore[no-any-return]

    def negated(self) -> Condition:
        """Return the opposite, in which nothing is negated."""
        if self.name == "not":
            return self.parts[0]
        if self.parts:
            return Condition("or" if self.name == "and" else "and", parts=tuple(part.negated() for part in self.parts))
        return Condition(OPPOSITES[self.name], self.column, self.values)

    def holds(self, row: dict[str, Any]) -> bool:
        """Whether a scan returns the row: a null is in no list, and equal to nothing and unequal to nothing."""
        if self.name == "not":
            return self.parts[0].negated().holds(row)
        if self.parts:
            return (all if self.name == "and" else any)(part.holds(row) for part in self.parts)
        value = row[self.column]
        if self.name in ("null", "not null"):
            return (value is None) is (self.name == "null")
        if self.name in ("in", "not in"):
            return (value in self.values) is (self.name == "in")
        if value is None:
            return False
        if self.name in ("nan", "not nan"):
            return math.isnan(value) is (self.name == "nan")
        return COMPARED[self.name][1](value, *self.values)


@st.composite
def conditions(draw: st.DrawFn, columns: dict[str, PrimitiveType], depth: int = 2) -> Condition:
    if depth and draw(st.booleans()):
        name = draw(st.sampled_from(["and", "or", "not"]))
        return Condition(name, parts=tuple(draw(conditions(columns, depth - 1)) for _ in range(1 if name == "not" else 2)))

    column = draw(st.sampled_from(sorted(columns)))
    kind = columns[column]
    is_float = isinstance(kind, (FloatType, DoubleType))
    name = draw(st.sampled_from([*COMPARED, "in", "not in", "null", "not null", *(["nan", "not nan"] if is_float else [])]))
    values = VALUES[kind].filter(lambda value: not (is_float and math.isnan(value)))
    if name in COMPARED:
        return Condition(name, column, (draw(values),))
    if name in ("in", "not in"):
        return Condition(name, column, tuple(draw(st.lists(values, min_size=2, max_size=2, unique=True))))
    return Condition(name, column)


def stored(value: Any) -> Any:
    return value.bytes if isinstance(value, uuid.UUID) else value


def append(data: st.DataObject, table: Any, model: Model) -> None:
    first = len(model.rows)
    new = [
        {name: data.draw(st.none() | VALUES[kind]) if name != "id" else first + at for name, kind in model.columns.items()}
        for at in range(data.draw(st.integers(1, 5)))
    ]
    schema = table.schema().as_arrow()
    columns = [pa.array([CANARY if each.name == "text" else stored(row[each.name]) for row in new], each.type) for each in schema]
    table.append(pa.Table.from_arrays(columns, schema.names))
    model.rows += new


def change(data: st.DataObject, table: Any, model: Model) -> None:
    """Add, rename, drop or widen a column."""
    others = sorted(set(model.columns) - {"id"})
    how = data.draw(st.sampled_from(["add", "rename", "drop", "widen"] if others else ["add"]))
    new = data.draw(st.sampled_from(sorted({"a", "b", "c", "d.e", "f"} - set(model.columns))))
    with table.update_schema() as update:
        if how == "add":
            model.columns[new] = data.draw(st.sampled_from(list(VALUES)))
            update.add_column((new,), model.columns[new])
            for row in model.rows:
                row[new] = None
            return

        column = data.draw(st.sampled_from(others))
        if how == "rename":
            update.rename_column((column,), new)
        elif how == "drop":
            update.delete_column((column,))
        elif model.columns[column] in WIDER:
            update.update_column((column,), WIDER[model.columns[column]])

    kind = model.columns[column]
    if how == "widen":
        model.columns[column] = WIDER.get(kind, kind)
        return
    del model.columns[column]
    if how == "rename":
        model.columns[new] = kind
    for row in model.rows:
        value = row.pop(column)
        if how == "rename":
            row[new] = value


@pytest.fixture(scope="module")
def evolved(tmp_path_factory: pytest.TempPathFactory) -> EncryptedInMemoryCatalog:
    folder: Path = tmp_path_factory.mktemp("evolved")
    return memory_catalog(folder)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_a_filter_finds_the_rows_of_which_it_is_true(evolved: EncryptedInMemoryCatalog, data: st.DataObject) -> None:
    model = Model({"id": LongType(), "a": data.draw(st.sampled_from(list(VALUES))), "d.e": data.draw(st.sampled_from(list(VALUES)))})
    fields = [NestedField(number, name, kind) for number, (name, kind) in enumerate(model.columns.items(), 1)]
    name = f"db.t{len(evolved.list_tables('db'))}"
    table = new_table(evolved, name, Schema(*fields, NestedField(9, "text", StringType())))

    for _ in range(data.draw(st.integers(1, 3))):
        append(data, table, model)
        change(data, table, model)
    append(data, table, model)

    for _ in range(4):
        condition = data.draw(conditions(model.columns))
        row_filter, expected = condition.as_filter(), [row["id"] for row in model.rows if condition.holds(row)]
        assert ids(table, row_filter=row_filter) == expected
        assert sorted(encrypted_table(table).scan(row_filter).to_arrow_dataset().to_table()["id"].to_pylist()) == expected
        assert table.scan(row_filter).count() == len(expected)
