"""What SQL knows of an operation, it knows from the function and its result."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from tablecrypt.maintenance import ProgressListener, Runner
from tablecrypt.maintenance.operation import no_progress
from tablecrypt.printable import json_fields
from tablecrypt.spark.sql.calls import DRY_RUN, TABLE, WORKERS, Parameter, table_of
from tablecrypt.spark.sql.statements.operations import parameters_of, procedure_of


class Kind(Enum):
    LONG = "long"


@dataclass(frozen=True)
class Part:
    name: str
    kind: Kind


@dataclass(frozen=True)
class Trimmed:
    also_says: ClassVar = {"done": "is_done"}
    table: str
    dry_run: bool
    parts: tuple[Part, ...]
    at: dt.datetime
    ids: dict[str, tuple[int, ...]] = field(default_factory=dict)
    share: float | None = None

    @property
    def is_done(self) -> bool:
        """Whether nothing is left."""
        return not self.dry_run

    def to_json(self) -> dict[str, Any]:
        """Return the fields, and what it also says."""
        return json_fields(self)


def trim(
    table: Table,
    row_filter: str | int,
    ids: Sequence[int] = (),
    names: Sequence[str] | None = None,
    properties: Mapping[str, str] | None = None,
    before: dt.datetime | None = None,
    share: float = 0.5,
    count: int | None = None,
    dry_run: bool = False,
    progress: ProgressListener = no_progress,
    runner: Runner | None = None,
    workers: int | None = None,
    now: dt.datetime | None = None,
) -> Trimmed:
    """Trim a table.

    More is said here.
    """
    raise NotImplementedError


def test_parameters_are_those_of_the_function() -> None:
    assert parameters_of(trim, but=["names"]) == (
        TABLE,
        Parameter("row_filter", "STRING", is_required=True),
        Parameter("ids", "ARRAY<BIGINT>"),
        Parameter("properties", "MAP<STRING, STRING>"),
        Parameter("before", "TIMESTAMP"),
        Parameter("share", "DOUBLE"),
        Parameter("count", "BIGINT"),
        DRY_RUN,
        WORKERS,
    )


def test_a_result_is_one_row_with_its_verdicts_before_its_own_fields() -> None:
    procedure = procedure_of(trim, but=["share"])
    result = Trimmed("db.t", False, (Part("a", Kind.LONG),), dt.datetime(2026, 1, 2, tzinfo=dt.UTC), {"x": (1, 2)}, 0.5)

    assert procedure.description == "Trim a table."
    assert procedure.runs_jobs
    assert procedure.columns.names == ["table", "dry_run", "done", "parts", "at", "ids"]
    assert procedure.columns.field("parts").type == pa.list_(pa.struct([("name", pa.string()), ("kind", pa.string())]))
    assert table_of([result.to_json()], procedure.columns).to_pylist(maps_as_pydicts="strict") == [
        {
            "table": "db.t",
            "dry_run": False,
            "done": True,
            "parts": [{"name": "a", "kind": "long"}],
            "at": "2026-01-02T00:00:00+00:00",
            "ids": {"x": [1, 2]},
        }
    ]


def test_a_result_of_a_type_without_a_column_is_refused_when_the_package_is_made() -> None:
    def strange(table: Table) -> Strange:
        raise NotImplementedError

    strange.__annotations__["return"] = Strange
    with pytest.raises(TypeError, match=r"complex.* has no column type"):
        procedure_of(strange)


@dataclass(frozen=True)
class Strange:
    value: complex

    def to_json(self) -> dict[str, Any]:
        """Return the fields."""
        return vars(self)
