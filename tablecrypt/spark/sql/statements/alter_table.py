"""Iceberg's own ALTER TABLE statements, which Spark's parser does not know: their grammar, and what each does to a table.

    ADD PARTITION FIELD bucket(16, id) AS shard                 DROP PARTITION FIELD shard
    REPLACE PARTITION FIELD ts_day WITH hour(ts)
    WRITE [DISTRIBUTED BY PARTITION] [[LOCALLY] ORDERED BY region, days(ts) DESC NULLS LAST | UNORDERED]
    SET IDENTIFIER FIELDS id, region                            DROP IDENTIFIER FIELDS id
    CREATE [OR REPLACE] BRANCH [IF NOT EXISTS] audit [AS OF VERSION 4711] [RETAIN 30 DAYS]
        [WITH SNAPSHOT RETENTION [3 SNAPSHOTS] [2 DAYS]]        the same with TAG, which has no snapshots to retain
    REPLACE BRANCH audit AS OF VERSION 4711                     DROP BRANCH [IF EXISTS] audit

In the driver, TableStatements.java makes each of them a call of the procedure alter_table. Every statement is one commit, or none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.partitioning import PartitionField
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.sorting import NullOrder
from pyiceberg.transforms import IdentityTransform, Transform

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.sql.calls import TABLE, Call, Parameter, Procedure, Row, columns
from tablecrypt.spark.sql.partition_fields import SparkTransform, find_column, iceberg_transform
from tablecrypt.spark.sql.snapshot_procedures import head_of, snapshot_of
from tablecrypt.table.table import EncryptedTable

_TOKEN: Final = re.compile(r"(?:\s+|--[^\n]*(?:\n|$))|`((?:[^`]|``)+)`|(\w+)|([().,;])")
_DISTRIBUTION: Final = "write.distribution-mode"
_MILLISECONDS: Final = {"DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000}


@dataclass(frozen=True)
class Token:
    """A word, a name in backticks or a sign of a statement."""

    text: str
    is_quoted: bool = False


class Tokens:
    """What is left of a statement."""

    def __init__(self, statement: str) -> None:
        self._statement = statement
        self._tokens = list(_tokens(statement))
        self._next = 0

    def takes(self, *words: str) -> bool:
        """Pass these words if they are next."""
        following = self._tokens[self._next : self._next + len(words)]
        if [None if token.is_quoted else token.text.upper() for token in following] != list(words):
            return False
        self._next += len(words)
        return True

    def need(self, *words: str) -> None:
        """Pass these words. ConfigurationError if others are next."""
        if not self.takes(*words):
            raise self.error(" ".join(words))

    def name(self) -> str:
        """Pass a name."""
        if self._next == len(self._tokens) or (not self._here.is_quoted and not re.fullmatch(r"\w+", self._here.text)):
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
        return self._next < len(self._tokens) and not self._here.is_quoted and self._here.text.isdecimal()

    def end(self) -> None:
        """ConfigurationError unless this is the end."""
        while self.takes(";"):
            pass
        if self._next < len(self._tokens):
            raise self.error("the end")

    def error(self, expected: str) -> ConfigurationError:
        """Say what should be next."""
        found = repr(self._here.text) if self._next < len(self._tokens) else "the end"
        return ConfigurationError(f"ALTER TABLE … {' '.join(self._statement.split())}: expected {expected}, found {found}")

    @property
    def _here(self) -> Token:
        return self._tokens[self._next]


def alter(table: EncryptedTable, statement: str) -> None:
    """Do what a statement says behind ALTER TABLE and the table's name.

    Raises:
        ConfigurationError: it is no such statement, or names a column, field, branch, tag or snapshot that the table lacks.
        ValueError: the table has the partition field, branch or tag already, or PyIceberg refuses the change.
    """
    tokens = Tokens(statement)
    for words, change in _CHANGES.items():
        if tokens.takes(*words):
            change(table, tokens)
            return
    raise tokens.error("PARTITION FIELD, WRITE, IDENTIFIER FIELDS, BRANCH or TAG")


def _tokens(statement: str) -> Iterator[Token]:
    position = 0
    while position < len(statement):
        match = _TOKEN.match(statement, position)
        if match is None:
            raise ConfigurationError(f"ALTER TABLE … {statement}: {statement[position]!r} has no meaning here; put names into backticks")
        quoted, word, sign = match.groups()
        if quoted is not None:
            yield Token(quoted.replace("``", "`"), is_quoted=True)
        elif word or sign:
            yield Token(word or sign)
        position = match.end()


# Partition fields.


@dataclass(frozen=True)
class Term:
    """A column under a transform, as a statement has it."""

    names: tuple[str, ...]
    transform: Transform[Any, Any]


def _term(tokens: Tokens) -> Term:
    names = tokens.names()
    if len(names) > 1 or not tokens.takes("("):
        return Term(names, IdentityTransform())
    parameters: list[int] = []
    while tokens.has_number:
        parameters.append(tokens.number())
        tokens.need(",")
    column = tokens.names()
    tokens.need(")")
    return Term(column, iceberg_transform(SparkTransform(names[0].lower(), tuple(parameters), (column,)))[0])


def _column(table: EncryptedTable, term: Term) -> str:
    field = find_column(table.schema(), term.names)
    return table.schema().find_column_name(field.field_id) or field.name


def _field(table: EncryptedTable, term: Term) -> PartitionField:
    """The partition field of this name, or else of this column and transform."""
    fields = table.spec().fields
    is_name = isinstance(term.transform, IdentityTransform)
    named = [field for field in fields if is_name and field.name == ".".join(term.names)]
    if not named:
        source = find_column(table.schema(), term.names).field_id
        named = [field for field in fields if (field.source_id, field.transform) == (source, term.transform)]
    if not named:
        raise ConfigurationError(f"{'.'.join(table.name())} has no such partition field; it has {', '.join(each.name for each in fields)}")
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
    table.update_spec().remove_field(old.name).add_field(_column(table, term), term.transform, name).commit()


# The order and distribution of writes.


@dataclass(frozen=True)
class SortTerm:
    """One part of a sort order."""

    term: Term
    is_ascending: bool
    null_order: NullOrder


def _write(table: EncryptedTable, tokens: Tokens) -> None:
    """As in Iceberg, ORDERED BY alone sorts across tasks, and LOCALLY within each."""
    is_distributed = tokens.takes("DISTRIBUTED", "BY", "PARTITION")
    is_local = tokens.takes("LOCALLY")
    terms: list[SortTerm] | None = None
    if tokens.takes("ORDERED", "BY"):
        terms = [_sort_term(tokens)]
        while tokens.takes(","):
            terms.append(_sort_term(tokens))
    elif is_local:
        raise tokens.error("ORDERED BY")
    elif tokens.takes("UNORDERED"):
        terms = []
    elif not is_distributed:
        raise tokens.error("DISTRIBUTED BY PARTITION, ORDERED BY or UNORDERED")
    tokens.end()
    mode = "hash" if is_distributed else "range" if terms and not is_local else "none"
    with table.transaction() as transaction:
        transaction.set_properties({_DISTRIBUTION: mode})
        with transaction.update_sort_order() as update:
            for each in terms or []:
                add = update.asc if each.is_ascending else update.desc
                add(_column(table, each.term), each.term.transform, each.null_order)


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
    found = [_column(table, Term(tokens.names(), IdentityTransform()))]
    while tokens.takes(","):
        found.append(_column(table, Term(tokens.names(), IdentityTransform())))
    tokens.end()
    return found


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
        present = table.metadata.refs.get(name)
        if present is not None and is_optional:
            return
        if present is not None and not is_replaced:
            raise ConfigurationError(f"{'.'.join(table.name())} has a {present.snapshot_ref_type.value} {name} already")
        _point(table, kind, name, tokens)

    return change


def _replace(kind: SnapshotRefType) -> Callable[[EncryptedTable, Tokens], None]:
    def change(table: EncryptedTable, tokens: Tokens) -> None:
        name = tokens.name()
        _present(table, kind, name)
        _point(table, kind, name, tokens)

    return change


def _drop(kind: SnapshotRefType) -> Callable[[EncryptedTable, Tokens], None]:
    def change(table: EncryptedTable, tokens: Tokens) -> None:
        is_optional = tokens.takes("IF", "EXISTS")
        name = tokens.name()
        tokens.end()
        if is_optional and name not in table.metadata.refs:
            return
        _present(table, kind, name)
        management = table.manage_snapshots()
        (management.remove_branch(name) if kind == SnapshotRefType.BRANCH else management.remove_tag(name)).commit()

    return change


def _present(table: EncryptedTable, kind: SnapshotRefType, name: str) -> SnapshotRef:
    ref = table.metadata.refs.get(name)
    if ref is None or ref.snapshot_ref_type != kind:
        raise ConfigurationError(f"{'.'.join(table.name())} has no {kind.value} {name}")
    return ref


def _point(table: EncryptedTable, kind: SnapshotRefType, name: str, tokens: Tokens) -> None:
    """Take the rest of the statement, and let the branch or tag point to what it says."""
    snapshot_id = snapshot_of(table, tokens.number()).snapshot_id if tokens.takes("AS", "OF", "VERSION") else head_of(table)
    limits: dict[str, int] = {}
    if tokens.takes("RETAIN"):
        limits["max_ref_age_ms"] = _age(tokens, tokens.number())
    if kind == SnapshotRefType.BRANCH and tokens.takes("WITH", "SNAPSHOT", "RETENTION"):
        limits |= _snapshot_limits(tokens)
    tokens.end()
    if snapshot_id is None:
        raise ConfigurationError(f"{'.'.join(table.name())} has no snapshot yet that {name} could point to")
    if kind == SnapshotRefType.BRANCH:
        table.manage_snapshots().create_branch(snapshot_id, name, **limits).commit()
    else:
        table.manage_snapshots().create_tag(snapshot_id, name, **limits).commit()


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


_CHANGES: Final[Mapping[tuple[str, ...], Callable[[EncryptedTable, Tokens], None]]] = {
    ("ADD", "PARTITION", "FIELD"): _add_partition_field,
    ("DROP", "PARTITION", "FIELD"): _drop_partition_field,
    ("REPLACE", "PARTITION", "FIELD"): _replace_partition_field,
    ("WRITE",): _write,
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


def _alter_table(call: Call) -> Iterator[Row]:
    alter(call.encrypted_table(), call.text("change"))
    yield from ()


PROCEDURES: Final[Mapping[str, Procedure]] = {
    "alter_table": Procedure(
        "Change partition fields, the order of writes, identifier fields, branches or tags, as Iceberg's ALTER TABLE statements do.",
        (TABLE, Parameter("change", "STRING", is_required=True)),
        columns(),
        _alter_table,
    ),
}
