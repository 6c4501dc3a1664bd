"""Procedures as SQL sees them: parameters of Spark's types, arguments of one call, and rows of declared columns.

CALL prod.system.rollback_to_snapshot(table => 'db.orders', snapshot_id => 4711)

parameters          those of a typed function: parameters.py
arguments           arrive as JSON: a TIMESTAMP as microseconds since 1970 in UTC, an absent one not at all
table names         as in SQL: parts between dots, each as it is or in backticks; the catalog's own name may stand before them
"""

from __future__ import annotations

import datetime as dt
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, get_type_hints

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.keys.nested_columns import path_through_structs
from tablecrypt.maintenance import Runner
from tablecrypt.spark.sql.parameters import OF_PROGRAMS, Parameter, json_types, kinds_of
from tablecrypt.spark.sql.partition_fields import find_column
from tablecrypt.spark.sql.scans.filters import Predicate, pruning_filter
from tablecrypt.spark.sql.scans.partition_terms import is_known, partition_filters
from tablecrypt.spark.sql.writes.copies import Copy
from tablecrypt.table.planning import FileCondition
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import name_of

Row = Mapping[str, Any]

_PART: Final = re.compile(r"(?:`((?:[^`]|``)+)`|([^`.]+))(?:\.|$)")
EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Procedure:
    """A procedure.

    Attributes:
        name: behind `system.`.
        description: one sentence.
        parameters: in the order in which arguments without a name are taken.
        columns: of the rows that it returns.
        run: does it, and returns the rows.
        runs_jobs: whether it reads or writes data files, which a cluster's executors share.
        only_reads: whether the table stays as it is.
        copies: the argument that names a source whose rows the session may have to copy, as Call.copies says; empty where there is none.
            `run` gets what the session knows of the source in arguments that SQL does not have (java/CopiedSource.java).
        copies_tables: whether only tables of Spark's session catalog are sources, so that other names are for `run` to find.
    """

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    columns: pa.Schema
    run: Callable[[Call], Iterable[Row]]
    runs_jobs: bool = False
    only_reads: bool = False
    copies: str = ""
    copies_tables: bool = False


@dataclass(frozen=True)
class CopyTarget:
    """A table that is created with the rows of a copy.

    Attributes:
        properties: of the table, and its location.
        partitions: names of the columns by which it is partitioned.
    """

    properties: Mapping[str, str]
    partitions: Sequence[str]


@dataclass(frozen=True)
class RenamedTable:
    """A table of the session catalog that is renamed before its rows are copied.

    Attributes:
        name: in SQL, without the catalog.
        backup: its new name.
        is_dropped: whether it is dropped once its rows are committed.
    """

    name: str
    backup: str
    is_dropped: bool


@dataclass(frozen=True)
class RowCopy:
    """Rows for the session to append, or to create a table with.

    Attributes:
        copy: what is remembered of them.
        target: the table.
        columns: expressions, one for each column of the table.
        condition: which of the source's rows.
        made: the table where it is new; None where it is there.
        renamed: what becomes of the source; None where it stays as it is.
    """

    copy: Copy
    target: Identifier
    columns: Sequence[str]
    condition: str
    made: CopyTarget | None = None
    renamed: RenamedTable | None = None


@dataclass(frozen=True)
class Call:
    """One call of a procedure.

    Attributes:
        catalog: whose tables it is about.
        catalog_name: the catalog's name in Spark.
        namespace: where a table's name without a namespace is looked for; empty where the session has not chosen one in this catalog.
        arguments: those that were given, by name.
        predicates: the argument `where`, as Spark understands it; None where it was not given.
        is_case_sensitive: whether columns are named in the case that the table has them in.
        runner: runs work on files; None for threads of this process.
        statements: SQL that the session runs before it gets the rows; a procedure adds to it what only a session can do.
        copies: rows that the session copies, from whose commit the result comes (statements/add_files.py).
    """

    catalog: Catalog
    catalog_name: str
    namespace: Identifier
    arguments: Mapping[str, Any]
    predicates: Sequence[Predicate] | None = None
    is_case_sensitive: bool = True
    runner: Runner | None = None
    statements: list[str] = field(default_factory=list)
    copies: list[RowCopy] = field(default_factory=list)

    def identifier(self, name: str = "table") -> Identifier:
        """Return the table that an argument names, without the catalog. ConfigurationError where it names none of this catalog."""
        parts = name_parts(self.text(name))
        # `prod.orders` in the catalog prod means the table orders of a namespace prod, if there is one.
        if len(parts) > 1 and parts[0] == self.catalog_name and not (len(parts) == 2 and self.catalog.namespace_exists(parts[:1])):
            parts = parts[1:]
        identifier = parts if len(parts) > 1 else (*self.namespace, *parts)
        if len(identifier) < 2:
            raise ConfigurationError(f"{self.text(name)!r} is not a table's name: write namespace.table")
        return identifier

    def table(self, name: str = "table") -> Table:
        """Return the table that an argument names, encrypted or not."""
        return self.catalog.load_table(self.identifier(name))

    def encrypted_table(self, name: str = "table") -> EncryptedTable:
        """Return the encrypted table that an argument names. ConfigurationError where it is not encrypted."""
        table = self.table(name)
        if not isinstance(table, EncryptedTable):
            raise ConfigurationError(f"{name_of(table)} is not an encrypted table: CALL {self.catalog_name}.system.migrate encrypts it")
        return table

    def text(self, name: str) -> str:
        """Return a text argument."""
        value = self.optional_text(name)
        if value is None:
            raise missing(name)
        return value

    def optional_text(self, name: str) -> str | None:
        """Return a text argument; None where it was not given."""
        value = self._given(name, str)
        return None if value is None else str(value)

    def flag(self, name: str) -> bool:
        """Return a truth value; false where it was not given."""
        return bool(self._given(name, bool))

    def condition(self) -> FileCondition | None:
        """Return which files the argument `where` wants; None where it was not given.

        Raises:
            ConfigurationError: it does more than compare columns, or partition functions of them, with values.
        """
        if self.predicates is None:
            # Without its predicates the call would go on to all files of the table.
            if self.optional_text("where") is not None:
                raise FormatError("the argument where came without its predicates")
            return None
        # A part that is left out makes the condition match more files, and the procedure would rewrite those too.
        if not all(is_known(each) for each in self.predicates):
            raise ConfigurationError(
                f"where => {self.text('where')!r} does not only compare columns, or partition functions of them, with values"
            )

        metadata = self.table().metadata
        schema = metadata.schema()
        predicates = [_named_as_in(schema, each) for joined in self.predicates for each in _conjuncts(joined)]

        return FileCondition(pruning_filter(predicates, schema, schema), partition_filters(predicates, schema, metadata))

    def items(self, name: str) -> tuple[Any, ...]:
        """Return the items of an array; none where it was not given."""
        return tuple(self._given(name, list) or ())

    def mapping(self, name: str) -> dict[str, str]:
        """Return a map of texts; an empty one where it was not given."""
        return dict(self._given(name, dict) or {})

    def given(self, *names: str) -> dict[str, Any]:
        """Return those of some arguments that were given, by name, as they came."""
        return {name: self.arguments[name] for name in names if self.arguments.get(name) is not None}

    def options(self, function: Callable[..., Any], but: Collection[str] = ()) -> dict[str, Any]:
        """Return the arguments of a typed function, as it takes them: tables that are loaded, moments, conditions, and what runs jobs.

        What was not given is left out, so that a procedure has the defaults of its function.

        Args:
            function: its parameters are those of `parameters_of`.
            but: parameters that are not wanted.

        Raises:
            ConfigurationError: one that has no default was not given; or as `encrypted_table`, `condition` and `moment_of`.
            FormatError: one has come as another type than it was declared with.
        """
        hints = get_type_hints(function)
        options = {}
        for name, parameter in inspect.signature(function).parameters.items():
            if name in but:
                continue
            value = self._argument(name, hints[name])
            if value is not None:
                options[name] = value
            elif parameter.default is parameter.empty:
                raise missing(name)

        return options

    def _argument(self, name: str, kind: Any) -> Any:
        """Return an argument as a parameter of this type takes it; None where it was not given."""
        if name in OF_PROGRAMS:
            return {"call": self, "runner": self.runner}.get(name)
        kinds = kinds_of(kind)
        if FileCondition in kinds:
            return self.condition()

        value = self._given(name, *json_types(kind))
        if value is None:
            return None
        if dt.datetime in kinds:
            return moment_of(value, name)

        return self.encrypted_table(name) if Table in kinds or EncryptedTable in kinds else value

    def _given(self, name: str, *kinds: type) -> Any:
        value = self.arguments.get(name)
        # Not isinstance, for which true is an int.
        if value is not None and type(value) not in kinds:
            raise FormatError(f"the argument {name} came as a {type(value).__name__}, not as a {kinds[0].__name__}")
        return value


def missing(name: str) -> ConfigurationError:
    """Return the error of a call without an argument that it needs."""
    return ConfigurationError(f"the argument {name} is missing")


def name_parts(name: str) -> Identifier:
    """Return the parts of a name as SQL writes it: `db`.`my table` or db.orders. ConfigurationError where it is not one."""
    parts, position = [], 0
    while position < len(name):
        match = _PART.match(name, position)
        if match is None:
            raise ConfigurationError(f"{name!r} is not a table's name: write namespace.table, parts with other characters in backticks")
        parts.append(match[1].replace("``", "`") if match[1] is not None else match[2])
        position = match.end()

    if not parts or name.endswith("."):
        raise ConfigurationError(f"{name!r} is not a table's name: write namespace.table")

    return tuple(parts)


def moment_of(microseconds: int, what: str) -> dt.datetime:
    """Return the moment that is this many microseconds after the beginning of 1970, in UTC.

    Args:
        microseconds: as Spark counts them, whose timestamps reach 290,000 years in both directions.
        what: names the value in the error.

    Raises:
        ConfigurationError: it is not in the years 1 to 9999, which Python's moments are in.
    """
    try:
        return EPOCH + dt.timedelta(microseconds=microseconds)
    except OverflowError:
        raise ConfigurationError(f"{what} is a timestamp outside of the years 1 to 9999: give one of these years") from None


def _conjuncts(predicate: Predicate) -> Iterator[Predicate]:
    if predicate.get("op") != "AND":
        yield predicate
        return
    for each in predicate["args"]:
        yield from _conjuncts(each)


def _named_as_in(schema: Schema, predicate: Predicate) -> Predicate:
    """Return a predicate with the schema's names of columns. Spark has found them, and kept the case in which they were written."""
    if "column" in predicate:
        found = path_through_structs(schema, find_column(schema, predicate["column"]).field_id) or ()
        return {"column": [field.name for field in found]}
    return {**predicate, "args": [_named_as_in(schema, each) for each in predicate["args"]]} if "args" in predicate else predicate


def columns(**types: pa.DataType) -> pa.Schema:
    """Return the schema of a procedure's rows. Every column may be null."""
    return pa.schema(types)


def table_of(rows: Iterable[Row], schema: pa.Schema) -> pa.Table:
    """Return rows in their columns. What a row has beside these is left out."""
    return pa.Table.from_pylist([{field.name: _cell(row.get(field.name), field.type) for field in schema} for row in rows], schema=schema)


def _cell(value: Any, kind: pa.DataType) -> Any:
    """Arrow takes a map as a list of pairs."""
    return list(value.items()) if pa.types.is_map(kind) and isinstance(value, Mapping) else value
