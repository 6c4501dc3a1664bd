"""An operation of tablecrypt.maintenance as a procedure: the function and its result say all that SQL has to know.

    def rewrap(table: Table, from_key_id: str | None = None, dry_run: bool = False, progress: …) -> Rewrapped
    CALL prod.system.rewrap(table => 'db.orders', from_key_id => 'alias/old')      a row of Rewrapped's fields

Parameters are those of the function in its order, but what only a program can give. A result becomes one row: what every result says, the
verdicts that it `also_says`, and its other fields.

    parameters   str STRING, bool BOOLEAN, int BIGINT, float DOUBLE, datetime TIMESTAMP, a sequence ARRAY, a mapping MAP<STRING, STRING>
    columns      the same types; a dataclass is a STRUCT, a mapping a MAP, what has a JSON form as text (a moment, an enum) a STRING
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from tablecrypt.maintenance.operation import OperationResult
from tablecrypt.maintenance.runner import Runner
from tablecrypt.spark.sql.calls import TABLE, WORKERS, Call, Parameter, Procedure, Row

Run = Callable[[Call], Iterable[Row]]
OF_PROGRAMS: Final = ("progress", "runner", "now")
"""Arguments that SQL does not have: a listener, what runs work on files, and the clock."""
_PARAMETERS: Final = {str: "STRING", bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", dt.datetime: "TIMESTAMP"}
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
        description=str(inspect.getdoc(operation)).partition("\n")[0],
        parameters=parameters_of(operation, but),
        columns=pa.schema([(name, kind) for name, kind in _fields(hints["return"]) if name not in but]),
        run=run or _called(operation),
        # An operation that takes a runner reads or writes data files, for which executors are worth starting.
        runs_jobs=Runner in get_args(hints.get("runner")),
        only_reads=only_reads,
    )


def parameters_of(operation: Callable[..., Any], but: Collection[str] = ()) -> tuple[Parameter, ...]:
    """Return the parameters of an operation as SQL has them.

    Args:
        operation: as for `procedure_of`.
        but: those that SQL does not have.
    """
    _, *others = inspect.signature(operation).parameters.values()
    hints = get_type_hints(operation)
    without = {*OF_PROGRAMS, *but}
    table = () if TABLE.name in without else (TABLE,)
    return *table, *(_parameter(each, hints[each.name]) for each in others if each.name not in without)


def _called(operation: Callable[..., OperationResult]) -> Run:
    def run(call: Call) -> Iterator[Row]:
        yield operation(call.encrypted_table(), **call.options(operation)).to_json()

    return run


def _parameter(parameter: inspect.Parameter, kind: Any) -> Parameter:
    if parameter.name == WORKERS.name:
        return WORKERS
    return Parameter(parameter.name, _parameter_type(kind), parameter.default is parameter.empty)


def _parameter_type(kind: Any) -> str:
    """Return the type of a parameter that takes one of several kinds: that of a list where it takes lists, else of the text for it."""
    kinds = _alternatives(kind)
    for each in kinds:
        if get_origin(each) is not None:
            return _container(get_origin(each), get_args(each))
    return next(_PARAMETERS[each] for each in kinds if each in _PARAMETERS)


def _container(origin: Any, inner: tuple[Any, ...]) -> str:
    if issubclass(origin, Mapping):
        return f"MAP<{_parameter_type(inner[0])}, {_parameter_type(inner[1])}>"
    return f"ARRAY<{_parameter_type(inner[0])}>"


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
    (known, *_) = _alternatives(kind)
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


def _alternatives(kind: Any) -> tuple[Any, ...]:
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return tuple(each for each in kinds if each is not NoneType)
