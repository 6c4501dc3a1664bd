"""An operation of tablecrypt.maintenance as a procedure: the function and its result say all that SQL has to know.

    def rewrap(table: Table, from_key_id: str | None = None, dry_run: bool = False, progress: …) -> Rewrapped
    CALL prod.system.rewrap(table => 'db.orders', from_key_id => 'alias/old')      a row of Rewrapped's fields

Parameters are those of the function (parameters.py). A result becomes one row: what every result says, the verdicts that it `also_says`,
and its other fields. Columns have the types that parameters have; a dataclass is a STRUCT, a mapping a MAP, and what has a JSON form as
text (a moment, an enum) a STRING.

A procedure that is no operation is a typed function too, whose first parameter may be the call itself:

    @procedure(columns(branch=pa.string(), snapshot_id=pa.int64()))
    def drop_branch(table: EncryptedTable, branch: str) -> Iterator[Row]:
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, get_args, get_origin, get_type_hints

import pyarrow as pa

from tablecrypt.maintenance.operation import OperationResult
from tablecrypt.maintenance.runner import Runner
from tablecrypt.spark.sql.calls import Call, Procedure, Row
from tablecrypt.spark.sql.parameters import kinds_of, parameters_of

Run = Callable[[Call], Iterable[Row]]
_COLUMNS: Final = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64(), dt.datetime: pa.string()}


def procedure_of(
    operation: Callable[..., Any], run: Run | None = None, *, but: Collection[str] = (), only_reads: bool = False
) -> Procedure:
    """Return the procedure of an operation.

    Args:
        operation: a function whose first parameter is a table, and whose result is a dataclass that says `to_json`.
        run: does it, where more is to be done than to call it.
        but: parameters, and fields that follow from them, which SQL does not have.
        only_reads: whether the table stays as it is.
    """
    hints = get_type_hints(operation)
    return Procedure(
        name=operation.__name__,
        description=str(inspect.getdoc(operation)).partition("\n")[0],
        parameters=parameters_of(operation, but),
        columns=pa.schema([(name, kind) for name, kind in _fields(hints["return"]) if name not in but]),
        run=run or _called(operation),
        # An operation that takes a runner reads or writes data files, for which executors are worth starting.
        runs_jobs=Runner in get_args(hints.get("runner")),
        only_reads=only_reads,
    )


def procedure(
    columns: pa.Schema, *, runs_jobs: bool = False, only_reads: bool = False, copies: str = "", copies_tables: bool = False
) -> Callable[[Callable[..., Iterable[Row]]], Procedure]:
    """Make a procedure of a typed function: its name, the first line of its text and its parameters are the procedure's.

    Args:
        columns: of the rows that it returns.
        runs_jobs, only_reads, copies, copies_tables: as in Procedure.
    """

    def made(function: Callable[..., Iterable[Row]]) -> Procedure:
        return Procedure(
            name=function.__name__,
            description=str(inspect.getdoc(function)).partition("\n")[0],
            parameters=parameters_of(function),
            columns=columns,
            run=lambda call: function(**call.options(function)),
            runs_jobs=runs_jobs,
            only_reads=only_reads,
            copies=copies,
            copies_tables=copies_tables,
        )

    return made


def _called(operation: Callable[..., OperationResult]) -> Run:
    def run(call: Call) -> Iterator[Row]:
        yield operation(**call.options(operation)).to_json()

    return run


def _fields(result: Any) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the columns of a result: what all results say first, and then its verdicts."""
    hints = get_type_hints(result)
    common = [each.name for each in dataclasses.fields(OperationResult) if each.name in hints]
    own = [each.name for each in dataclasses.fields(result) if each.name not in common]
    for name in common:
        yield name, _column(hints[name])
    for name, attribute in getattr(result, "also_says", {}).items():
        yield name, _column(get_type_hints(getattr(result, attribute).fget)["return"])
    for name in own:
        yield name, _column(hints[name])


def _column(kind: Any) -> pa.DataType:
    (known, *_) = kinds_of(kind)
    origin, inner = get_origin(known), get_args(known)
    if known in _COLUMNS:
        return _COLUMNS[known]
    if dataclasses.is_dataclass(known):
        return pa.struct(list(_fields(known)))
    if origin is not None and issubclass(origin, Mapping):
        return pa.map_(_column(inner[0]), _column(inner[1]))
    if origin is not None and issubclass(origin, Collection):
        return pa.list_(_column(inner[0]))
    if isinstance(known, type) and issubclass(known, Enum):
        return pa.string()

    raise TypeError(f"{kind} has no column type")
