"""Iceberg's own ALTER TABLE statements, which Spark's parser does not know: their grammar, and what each does to a table.

    ADD PARTITION FIELD bucket(16, id) AS shard                 DROP PARTITION FIELD shard
    REPLACE PARTITION FIELD ts_day WITH hour(ts)
    WRITE [DISTRIBUTED BY PARTITION] [[LOCALLY] ORDERED BY region, days(ts) DESC NULLS LAST | UNORDERED]
                                                                the two clauses in either sequence, the order in parentheses or not
    SET IDENTIFIER FIELDS id, region                            DROP IDENTIFIER FIELDS id
    CREATE [OR REPLACE] BRANCH [IF NOT EXISTS] audit [AS OF VERSION 4711] [RETAIN 30 DAYS]
        [WITH SNAPSHOT RETENTION [3 SNAPSHOTS] [2 DAYS]]        the same with TAG, which has no snapshots to retain
    REPLACE BRANCH audit AS OF VERSION 4711                     DROP BRANCH [IF EXISTS] audit
    ALTER COLUMN measurement TYPE double COMMENT 'in seconds'   one change of a column alone is Spark's own statement

In the driver, TableStatements.java makes each of them a call of the procedure alter_table. Every statement is one commit, or none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.partitioning import PartitionField
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.sorting import NullOrder
from pyiceberg.transforms import IdentityTransform, Transform
from pyiceberg.types import NestedField

from tablecrypt.errors import ConfigurationError
from tablecrypt.iceberg_properties import DISTRIBUTION
from tablecrypt.keys.nested_columns import path_through_structs
from tablecrypt.printable import one_line
from tablecrypt.spark.sql.alterations import alter as alter_columns
from tablecrypt.spark.sql.branches_and_tags import check_is_new, drop, point, ref_of
from tablecrypt.spark.sql.calls import Call, Row, columns
from tablecrypt.spark.sql.partition_fields import SparkTransform, find_column, iceberg_transform
from tablecrypt.spark.sql.spark_types import JSON_NAMES
from tablecrypt.spark.sql.statements.operations import procedure
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import name_of

_BY_PARTITION: Final = ("DISTRIBUTED", "BY", "PARTITION")
_MILLISECONDS: Final = {"DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000}
_TOKEN: Final = re.compile(
    r"""(?:\s+|--[^\n]*(?:\n|$)|/\*.*?\*/)|`((?:[^`]|``)+)`|('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(\w+)|([().,;])""", re.DOTALL
)
_NAME: Final = re.compile(r"(?!\d+$)\w+")
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|[0-3][0-7]{2}|.)", re.DOTALL)
_CONTROL: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


def alter(table: EncryptedTable, statement: str, is_case_sensitive: bool = False) -> None:
    """Do what a statement says behind ALTER TABLE and the table's name.

    Args:
        is_case_sensitive: as `Tokens`.

    Raises:
        ConfigurationError: it is no such statement, or names a column, field, branch, tag or snapshot that the table lacks.
        ValueError: the table has the partition field, branch or tag already, or PyIceberg refuses the change.
    """
    tokens = Tokens(statement, is_case_sensitive)
    for words, change in _CHANGES.items():
        if tokens.takes(*words):
            change(table, tokens)
            return
    raise tokens.error("PARTITION FIELD, WRITE, IDENTIFIER FIELDS, ALTER COLUMN, BRANCH or TAG")


# Partition fields.


@dataclass(frozen=True)
class Term:
    """A column under a transform, as a statement has it."""

    names: tuple[str, ...]
    transform: Transform[Any, Any]
    is_case_sensitive: bool

    def column(self, table: EncryptedTable) -> NestedField:
        """The table's column. ConfigurationError where there is none."""
        return find_column(table.schema(), self.names, self.is_case_sensitive)


def _term(tokens: Tokens) -> Term:
    names = tokens.names()
    if len(names) > 1 or not tokens.takes("("):
        return Term(names, IdentityTransform(), tokens.is_case_sensitive)
    parameter, column = _arguments(tokens)
    transform, _ = iceberg_transform(SparkTransform(names[0].lower(), parameter, (column,)))
    return Term(column, transform, tokens.is_case_sensitive)


def _arguments(tokens: Tokens) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """A transform's number, if it has one, and its column, which stand in either order."""
    if not tokens.has_number:
        column = tokens.names()
        parameter = (tokens.number(),) if tokens.takes(",") else ()
        tokens.need(")")
        return parameter, column

    number = tokens.number()
    tokens.need(",")
    column = tokens.names()
    tokens.need(")")

    return (number,), column


def _column(table: EncryptedTable, term: Term) -> str:
    field = term.column(table)
    return table.schema().find_column_name(field.field_id) or field.name


def _field(table: EncryptedTable, term: Term) -> PartitionField:
    """The partition field of this name, or else of this column and transform."""
    fields = table.spec().fields
    is_name = isinstance(term.transform, IdentityTransform)
    # The field's own name comes first: a column may have the name of a field on another column.
    named = [field for field in fields if is_name and field.name == ".".join(term.names)]
    if not named:
        source = term.column(table).field_id
        named = [field for field in fields if (field.source_id, field.transform) == (source, term.transform)]
    if not named:
        raise ConfigurationError(f"{name_of(table)} has no such partition field; it has {', '.join(each.name for each in fields)}")

    return named[0]


def _optional_name(tokens: Tokens) -> str | None:
    name = tokens.name() if tokens.takes("AS") else None
    tokens.end()
    return name


def _add_partition_field(table: EncryptedTable, tokens: Tokens) -> None:
    term, name = _term(tokens), _optional_name(tokens)
    table.update_spec().add_field(_column(table, term), term.transform, name).commit()


def _drop_partition_field(table: EncryptedTable, tokens: Tokens) -> None:
    term = _term(tokens)
    tokens.end()
    table.update_spec().remove_field(_field(table, term).name).commit()


def _replace_partition_field(table: EncryptedTable, tokens: Tokens) -> None:
    old = _field(table, _term(tokens))
    tokens.need("WITH")
    term, name = _term(tokens), _optional_name(tokens)
    update = table.update_spec()
    # The field keeps its id, as in Iceberg: under another one, files from before would have no value of it.
    if (term.column(table).field_id, term.transform) == (old.source_id, old.transform):
        update.rename_field(old.name, name or old.name).commit()
        return

    # One update, so that no snapshot is written in a spec with neither field, or with both.
    update.remove_field(old.name).add_field(_column(table, term), term.transform, name).commit()


# The order and distribution of writes.


@dataclass(frozen=True)
class SortTerm:
    """One part of a sort order."""

    term: Term
    is_ascending: bool
    null_order: NullOrder


@dataclass(frozen=True)
class WriteOrder:
    """What a statement says of the order of rows.

    Attributes:
        mode: the distribution that comes with it where the statement names none; None for the one that the table has.
    """

    terms: tuple[SortTerm, ...]
    mode: str | None


def _write(table: EncryptedTable, tokens: Tokens) -> None:
    """As in Iceberg, ORDERED BY alone sorts across tasks; LOCALLY sorts within each, and leaves the distribution as it is."""
    # Asked before and after the order, since the two clauses may come in either sequence.
    is_distributed = tokens.takes(*_BY_PARTITION)
    order = _write_order(tokens)
    is_distributed = is_distributed or tokens.takes(*_BY_PARTITION)
    if order is None and not is_distributed:
        raise tokens.error("DISTRIBUTED BY PARTITION, ORDERED BY or UNORDERED")

    tokens.end()

    mode = "hash" if is_distributed or order is None else order.mode

    with table.transaction() as transaction:
        if mode is not None:
            transaction.set_properties({DISTRIBUTION.name: mode})
        with transaction.update_sort_order() as update:
            for each in order.terms if order else ():
                add = update.asc if each.is_ascending else update.desc
                add(_column(table, each.term), each.term.transform, each.null_order)


def _write_order(tokens: Tokens) -> WriteOrder | None:
    if tokens.takes("UNORDERED"):
        return WriteOrder((), "none")

    is_local = tokens.takes("LOCALLY")
    if not tokens.takes("ORDERED", "BY"):
        if is_local:
            raise tokens.error("ORDERED BY")
        return None

    is_enclosed = tokens.takes("(")
    terms = [_sort_term(tokens)]
    while tokens.takes(","):
        terms.append(_sort_term(tokens))
    if is_enclosed:
        tokens.need(")")
    return WriteOrder(tuple(terms), None if is_local else "range")


def _sort_term(tokens: Tokens) -> SortTerm:
    term = _term(tokens)
    is_ascending = not tokens.takes("DESC")
    if is_ascending:
        tokens.takes("ASC")
    if tokens.takes("NULLS", "FIRST"):
        return SortTerm(term, is_ascending, NullOrder.NULLS_FIRST)
    if tokens.takes("NULLS", "LAST"):
        return SortTerm(term, is_ascending, NullOrder.NULLS_LAST)

    return SortTerm(term, is_ascending, NullOrder.NULLS_FIRST if is_ascending else NullOrder.NULLS_LAST)


# Identifier fields.


def _columns(table: EncryptedTable, tokens: Tokens) -> list[str]:
    names = [tokens.names()]
    while tokens.takes(","):
        names.append(tokens.names())
    tokens.end()
    return [_column(table, Term(each, IdentityTransform(), tokens.is_case_sensitive)) for each in names]


def _set_identifier_fields(table: EncryptedTable, tokens: Tokens) -> None:
    names = _columns(table, tokens)
    with table.update_schema() as update:
        update.set_identifier_fields(*names)


def _drop_identifier_fields(table: EncryptedTable, tokens: Tokens) -> None:
    names, present = _columns(table, tokens), table.schema().identifier_field_names()
    if missing := [name for name in names if name not in present]:
        raise ConfigurationError(f"{', '.join(missing)}: not among the identifier fields, which are {', '.join(sorted(present)) or 'none'}")
    with table.update_schema() as update:
        update.set_identifier_fields(*(present - set(names)))


# Branches and tags.


def _create(kind: SnapshotRefType, is_replaced: bool) -> Callable[[EncryptedTable, Tokens], None]:
    """CREATE, and CREATE OR REPLACE."""

    def change(table: EncryptedTable, tokens: Tokens) -> None:
        is_optional = tokens.takes("IF", "NOT", "EXISTS")
        name = tokens.name()
        if is_optional and name in table.metadata.refs:
            return
        if not is_replaced:
            check_is_new(table, name)
        _point(table, kind, name, tokens)

    return change


def _replace(kind: SnapshotRefType) -> Callable[[EncryptedTable, Tokens], None]:
    def change(table: EncryptedTable, tokens: Tokens) -> None:
        name = tokens.name()
        ref_of(table, name, kind)
        _point(table, kind, name, tokens)

    return change


def _drop(kind: SnapshotRefType) -> Callable[[EncryptedTable, Tokens], None]:
    def change(table: EncryptedTable, tokens: Tokens) -> None:
        is_optional = tokens.takes("IF", "EXISTS")
        name = tokens.name()
        tokens.end()
        if not is_optional or name in table.metadata.refs:
            drop(table, kind, name)

    return change


def _point(table: EncryptedTable, kind: SnapshotRefType, name: str, tokens: Tokens) -> None:
    """Take the rest of the statement, and let the branch or tag point to what it says."""
    snapshot_id = tokens.number() if tokens.takes("AS", "OF", "VERSION") else None
    limits: dict[str, int] = {}
    if tokens.takes("RETAIN"):
        limits["max_ref_age_ms"] = _age(tokens, tokens.number())
    if kind == SnapshotRefType.BRANCH and tokens.takes("WITH", "SNAPSHOT", "RETENTION"):
        limits |= _snapshot_limits(tokens)
    tokens.end()
    point(table, kind, name, snapshot_id, limits)


def _snapshot_limits(tokens: Tokens) -> dict[str, int]:
    limits: dict[str, int] = {}
    number = tokens.number()
    if tokens.takes("SNAPSHOTS"):
        limits["min_snapshots_to_keep"] = number
        if not tokens.has_number:
            return limits
        number = tokens.number()

    return limits | {"max_snapshot_age_ms": _age(tokens, number)}


def _age(tokens: Tokens, number: int) -> int:
    for unit, milliseconds in _MILLISECONDS.items():
        if tokens.takes(unit) or tokens.takes(f"{unit}S"):
            return number * milliseconds
    raise tokens.error("DAYS, HOURS or MINUTES")


# Columns.


def _alter_column(table: EncryptedTable, tokens: Tokens) -> None:
    tokens.takes("COLUMN")
    column = _column_path(table, Term(tokens.names(), IdentityTransform(), tokens.is_case_sensitive))
    tokens.need("TYPE")
    kind = _type(tokens)
    tokens.need("COMMENT")
    comment = tokens.text()
    tokens.end()
    alter_columns(
        table,
        [
            {"change": "UpdateColumnType", "column": column, "type": json.dumps({"fields": [{"type": kind}]})},
            {"change": "UpdateColumnComment", "column": column, "comment": comment},
        ],
    )


def _column_path(table: EncryptedTable, term: Term) -> tuple[str, ...]:
    return tuple(field.name for field in path_through_structs(table.schema(), term.column(table).field_id) or ())


def _type(tokens: Tokens) -> str:
    """Pass a type that is no struct, list or map, and return it as Spark's JSON has it."""
    name = tokens.name().lower()
    if not tokens.takes("("):
        return JSON_NAMES.get(name, name)

    numbers = [tokens.number()]
    while tokens.takes(","):
        numbers.append(tokens.number())
    tokens.need(")")

    return f"{name}({','.join(map(str, numbers))})"


_CHANGES: Final[Mapping[tuple[str, ...], Callable[[EncryptedTable, Tokens], None]]] = {
    ("ADD", "PARTITION", "FIELD"): _add_partition_field,
    ("DROP", "PARTITION", "FIELD"): _drop_partition_field,
    ("REPLACE", "PARTITION", "FIELD"): _replace_partition_field,
    ("WRITE",): _write,
    ("ALTER",): _alter_column,
    ("CHANGE",): _alter_column,
    ("SET", "IDENTIFIER", "FIELDS"): _set_identifier_fields,
    ("DROP", "IDENTIFIER", "FIELDS"): _drop_identifier_fields,
    **{
        (*words, kind.value.upper()): change
        for kind in SnapshotRefType
        for words, change in (
            (("CREATE",), _create(kind, is_replaced=False)),
            (("CREATE", "OR", "REPLACE"), _create(kind, is_replaced=True)),
            (("REPLACE",), _replace(kind)),
            (("DROP",), _drop(kind)),
        )
    },
}


@procedure(columns())
def alter_table(call: Call, table: EncryptedTable, change: str) -> Iterator[Row]:
    """Change partition fields, the order of writes, identifier fields, a column, branches or tags, as ALTER TABLE does."""
    alter(table, change, call.is_case_sensitive)
    yield from ()


PROCEDURES: Final = (alter_table,)


@dataclass(frozen=True)
class Token:
    """A word, a name in backticks, a text in quotes or a sign of a statement."""

    text: str
    is_quoted: bool = False
    is_text: bool = False

    @property
    def word(self) -> str | None:
        """The word or sign in capitals; None for text in quotes or backticks."""
        return None if self.is_quoted or self.is_text else self.text.upper()


class Tokens:
    """What is left of a statement.

    Attributes:
        is_case_sensitive: whether it names columns in the case that the table has them in.
    """

    def __init__(self, statement: str, is_case_sensitive: bool = False) -> None:
        self.is_case_sensitive = is_case_sensitive
        self._statement = statement
        self._tokens = list(_tokens(statement))
        self._next = 0

    def takes(self, *words: str) -> bool:
        """Pass these words if they are next."""
        following = self._tokens[self._next : self._next + len(words)]
        if [token.word for token in following] != list(words):
            return False
        self._next += len(words)
        return True

    def need(self, *words: str) -> None:
        """Pass these words. ConfigurationError if others are next."""
        if not self.takes(*words):
            raise self.error(" ".join(words))

    def name(self) -> str:
        """Pass a name. Digits alone are a name only in backticks, as in Spark."""
        if self._next == len(self._tokens) or not (self._here.is_quoted or _NAME.fullmatch(self._here.word or "")):
            raise self.error("a name")
        self._next += 1
        return self._tokens[self._next - 1].text

    def names(self) -> tuple[str, ...]:
        """Pass a name of several parts between dots."""
        parts = [self.name()]
        while self.takes("."):
            parts.append(self.name())
        return tuple(parts)

    def number(self) -> int:
        """Pass a whole number."""
        if not self.has_number:
            raise self.error("a number")
        self._next += 1
        return int(self._tokens[self._next - 1].text)

    @property
    def has_number(self) -> bool:
        """Whether a whole number is next."""
        return self._next < len(self._tokens) and (self._here.word or "").isdecimal()

    def text(self) -> str:
        """Pass a text in quotes; several that follow each other are one, as in Spark."""
        start = self._next
        while self._next < len(self._tokens) and self._here.is_text:
            self._next += 1
        if start == self._next:
            raise self.error("a text in quotes")
        return "".join(token.text for token in self._tokens[start : self._next])

    def end(self) -> None:
        """ConfigurationError unless this is the end."""
        while self.takes(";"):
            pass
        if self._next < len(self._tokens):
            raise self.error("the end")

    def error(self, expected: str) -> ConfigurationError:
        """Say what should be next."""
        found = repr(self._here.text) if self._next < len(self._tokens) else "the end"
        return ConfigurationError(f"ALTER TABLE … {one_line(self._statement)}: expected {expected}, found {found}")

    @property
    def _here(self) -> Token:
        return self._tokens[self._next]


def _tokens(statement: str) -> Iterator[Token]:
    position = 0
    while position < len(statement):
        match = _TOKEN.match(statement, position)
        if match is None:
            raise ConfigurationError(f"ALTER TABLE … {statement}: {statement[position]!r} has no meaning here; put names into backticks")

        quoted, text, word, sign = match.groups()

        if quoted is not None:
            yield Token(quoted.replace("``", "`"), is_quoted=True)
        elif text is not None:
            yield Token(_ESCAPED.sub(_unescaped, text[1:-1]), is_text=True)
        elif word or sign:
            yield Token(word or sign)

        position = match.end()


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16) if escape.startswith("u") else int(escape, 8))
    # Spark leaves the backslash to LIKE.
    return f"\\{escape}" if escape in "%_" else _CONTROL.get(escape, escape)
