"""What SQL knows of an operation, it knows from the function and its result."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.maintenance import ProgressListener, Runner
from tablecrypt.maintenance.operation import no_progress
from tablecrypt.printable import json_fields
from tablecrypt.spark.sql.calls import Call, Row, columns, table_of
from tablecrypt.spark.sql.parameters import Parameter, parameters_of
from tablecrypt.spark.sql.statements.operations import procedure, procedure_of
from tablecrypt.table.planning import FileCondition


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
        Parameter("table", "STRING", is_required=True),
        Parameter("row_filter", "STRING", is_required=True),
        Parameter("ids", "ARRAY<BIGINT>"),
        Parameter("properties", "MAP<STRING, STRING>"),
        Parameter("before", "TIMESTAMP"),
        Parameter("share", "DOUBLE"),
        Parameter("count", "BIGINT"),
        Parameter("dry_run", "BOOLEAN"),
        Parameter("workers", "BIGINT"),
    )


def test_a_function_gets_arguments_as_it_takes_them_and_its_own_defaults_for_the_others() -> None:
    @procedure(columns(said=pa.string()), only_reads=True)
    def remember(
        call: Call, name: str, since: dt.datetime, ids: Sequence[int] = (), where: FileCondition | None = None, share: float = 0.5
    ) -> Iterator[Row]:
        """Remember a name.

        More is said here.
        """
        yield {"said": f"{name} {since.isoformat()} {ids} {where} {share} {call.catalog_name}"}

    def said(**arguments: Any) -> str:
        [row] = remember.run(Call(cast("Catalog", None), "prod", (), arguments))
        return str(row["said"])

    assert (remember.name, remember.description, remember.only_reads) == ("remember", "Remember a name.", True)
    assert [each.name for each in remember.parameters] == ["name", "since", "ids", "where", "share"]
    assert said(name="a", since=1_000_000, ids=None) == "a 1970-01-01T00:00:01+00:00 () None 0.5 prod"
    assert said(name="a", since=0, ids=[1], share=1) == "a 1970-01-01T00:00:00+00:00 [1] None 1 prod"
    with pytest.raises(ConfigurationError, match="the argument since is missing"):
        said(name="a", since=None)
    with pytest.raises(FormatError, match="the argument name came as a bool, not as a str"):
        said(name=True, since=0)
    with pytest.raises(FormatError, match="where came without its predicates"):
        said(name="a", since=0, where="id < 3")


def test_a_result_is_one_row_with_its_verdicts_before_its_own_fields() -> None:
    trimming = procedure_of(trim, but=["share"])
    result = Trimmed("db.t", False, (Part("a", Kind.LONG),), dt.datetime(2026, 1, 2, tzinfo=dt.UTC), {"x": (1, 2)}, 0.5)

    assert trimming.description == "Trim a table."
    assert trimming.runs_jobs
    assert trimming.columns.names == ["table", "dry_run", "done", "parts", "at", "ids"]
    assert trimming.columns.field("parts").type == pa.list_(pa.struct([("name", pa.string()), ("kind", pa.string())]))
    assert table_of([result.to_json()], trimming.columns).to_pylist(maps_as_pydicts="strict") == [
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
