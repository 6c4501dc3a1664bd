"""Parameters of a typed function, as SQL has them.

    def fast_forward(table: EncryptedTable, branch: str, to: str) -> …       table STRING, branch STRING, to STRING: all are required

type in Python           type in SQL             in a call, as JSON
EncryptedTable, Table    STRING                  a name
FileCondition            STRING                  a text, beside the predicates that Spark makes of it
str                      STRING                  a text
bool                     BOOLEAN                 a truth value
int                      BIGINT                  a number
float                    DOUBLE                  a number
datetime                 TIMESTAMP               microseconds since 1970 in UTC
a sequence               ARRAY of its items      a list
a mapping                MAP<STRING, STRING>     an object

Of several types that one parameter takes, that of a sequence or mapping counts, and else the first of these. What only a program can give
(OF_PROGRAMS), SQL does not have.
"""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from pyiceberg.table import Table

from tablecrypt.table.planning import FileCondition
from tablecrypt.table.table import EncryptedTable

OF_PROGRAMS: Final = ("call", "progress", "runner", "now")
"""Arguments that SQL does not have: the call itself, a listener, what runs work on files, and the clock."""
_TYPES: Final[Mapping[Any, str]] = {
    EncryptedTable: "STRING",
    Table: "STRING",
    FileCondition: "STRING",
    str: "STRING",
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE",
    dt.datetime: "TIMESTAMP",
}
_IN_JSON: Final[Mapping[str, tuple[type, ...]]] = {
    "STRING": (str,),
    "BOOLEAN": (bool,),
    "BIGINT": (int,),
    "DOUBLE": (float, int),
    "TIMESTAMP": (int,),
    "ARRAY": (list,),
    "MAP": (dict,),
}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a procedure.

    Attributes:
        name: as it is written before =>.
        type: in Spark's DDL.
        is_required: whether a call has to give it.
    """

    name: str
    type: str
    is_required: bool = False


def parameters_of(function: Callable[..., Any], but: Collection[str] = ()) -> tuple[Parameter, ...]:
    """Return the parameters of a function in its order, but what SQL does not have.

    Args:
        function: each of its parameters has a type.
        but: more that SQL does not have.
    """
    hints = get_type_hints(function)
    return tuple(
        Parameter(each.name, sql_type(hints[each.name]), each.default is each.empty)
        for each in inspect.signature(function).parameters.values()
        if each.name not in {*OF_PROGRAMS, *but}
    )


def sql_type(kind: Any) -> str:
    """Return the type that SQL has for a parameter of this one."""
    kinds = kinds_of(kind)
    for each in kinds:
        if (origin := get_origin(each)) is not None:
            inner = [sql_type(item) for item in get_args(each) if item is not Ellipsis]
            return f"MAP<{', '.join(inner)}>" if issubclass(origin, Mapping) else f"ARRAY<{inner[0]}>"
    return next(_TYPES[each] for each in kinds if each in _TYPES)


def json_types(kind: Any) -> tuple[type, ...]:
    """Return the types as which an argument of this one comes."""
    return _IN_JSON[sql_type(kind).partition("<")[0]]


def kinds_of(kind: Any) -> tuple[Any, ...]:
    """Return the types that a hint allows, but None."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return tuple(each for each in kinds if each is not NoneType)
