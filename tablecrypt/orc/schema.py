"""The type tree of an ORC file: columns numbered in pre-order, found by their dotted names.

    struct<id:int, home:struct<zip:string>, tags:array<string>, attrs:map<string,int>>

    0 (root)  1 id  2 home  3 home.zip  4 tags  5 tags._elem  6 attrs  7 attrs._key  8 attrs._value

The columns below a column therefore have the ids that follow its own, without a gap. That holds for every file, and a file where it
does not is refused: everything else relies on it. A name may hold dots itself; the longest field name that fits is taken.

Raises FormatError for an invalid tree, ConfigurationError for a name that does not exist.
Specification: Apache ORC v1, "Type Information"; names of columns in lists and maps as in ORC's `orc.encrypt` option.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Final

from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.orc.protobuf import Message
from tablecrypt.printable import printable

LAST_KIND: Final = 18
"""TIMESTAMP_INSTANT, the highest number of a type that pyarrow reads."""

MAX_PRECISION: Final = 38
MAX_DEPTH: Final = 100
"""Of columns below each other: pyarrow calls itself for each, and some thousands more end the process."""

MAX_UNION: Final = 127
"""Columns of a union: pyarrow numbers them in a signed byte, and one more ends the process."""

_KIND: Final = 1
_SUBTYPES: Final = 2
_FIELD_NAMES: Final = 3
_PRECISION: Final = 5
_SCALE: Final = 6


class TypeKind(IntEnum):
    """The types that have columns below them, and those that matter to masks."""

    STRING = 7
    BINARY = 8
    LIST = 10
    MAP = 11
    STRUCT = 12
    UNION = 13
    DECIMAL = 14
    VARCHAR = 16
    CHAR = 17


@dataclass(frozen=True)
class OrcColumn:
    """One node of the tree. `last` is the highest column id below it, or its own."""

    id: int
    last: int
    message: Message
    kind: int
    children: tuple[int, ...]
    child_names: tuple[str, ...]

    @property
    def subtree(self) -> range:
        return range(self.id, self.last + 1)


class Schema:
    """The columns of a file, by id and by name.

    A footer of some kilobytes may have thousands of columns: nothing here looks through all of them for each of them.
    """

    def __init__(self, columns: list[OrcColumn]) -> None:
        self._columns = columns

    @classmethod
    def parse(cls, types: list[Message], what: str) -> Schema:
        columns: list[OrcColumn] = []
        last = list(range(len(types)))
        heights = [1] * len(types)
        # From the last column up: the subtrees of children have to be known before those of their parents.
        for column_id in range(len(types) - 1, -1, -1):
            message = types[column_id]
            children = tuple(message.integers(_SUBTYPES))
            expected = column_id + 1

            for child in children:
                # This also rules out cycles and columns with two parents, on which every walk through the tree would hang.
                if child != expected or child >= len(types):
                    raise FormatError(f"{what}: column {column_id} has a column {child} below it instead of {expected}")
                expected = last[child] + 1

            last[column_id] = expected - 1
            heights[column_id] += max((heights[child] for child in children), default=0)
            if heights[column_id] > MAX_DEPTH:
                raise FormatError(f"{what}: columns are nested deeper than {MAX_DEPTH}")
            columns.append(_column(column_id, last[column_id], message, children, what))

        columns.reverse()
        if not columns or columns[0].last != len(columns) - 1 or columns[0].kind != TypeKind.STRUCT:
            raise FormatError(f"{what}: the columns are not one struct")

        return cls(columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __getitem__(self, column_id: int) -> OrcColumn:
        return self._columns[column_id]

    def __iter__(self) -> Iterator[OrcColumn]:
        return iter(self._columns)

    @property
    def root(self) -> OrcColumn:
        return self._columns[0]

    def find(self, name: str) -> OrcColumn:
        """Return the column of a dotted name. ConfigurationError where it names none, or several."""
        found = list(self._named(self.root, name))
        if not found:
            raise ConfigurationError(f"there is no column {name!r}; the columns are {self._names_shown}")
        # A column "s.a" beside a struct "s" with a field "a": the key meant for one would be the other's, and that one stay in the clear.
        if len(found) > 1:
            raise ConfigurationError(f"{name!r} is the name of a column and of a field in a struct: rename one of them")
        return found[0]

    def find_for_reading(self, name: str) -> list[int]:
        """Return the ids of the columns that pyarrow.orc reads under a name: it leaves _elem, _key and _value out of names."""
        found = self._reading_names.get(name)
        if found is None:
            raise ConfigurationError(f"there is no column {name!r} to read; the columns are {self._names_shown}")
        return [below for column_id in found for below in self[column_id].subtree]

    def parent_of(self, column_id: int) -> int | None:
        """Return the column that a column lies directly below; None for the root."""
        return self._parents.get(column_id)

    def has_keys(self, column_id: int) -> bool:
        """Whether a column holds the keys of a map."""
        above = self.parent_of(column_id)
        return above is not None and self[above].kind == TypeKind.MAP and self[above].children[0] == column_id

    def at_or_above(self, column_ids: Collection[int]) -> list[int]:
        """Return these columns and all above them, in order."""
        sought = sorted(column_ids)
        # The first of them that does not come before the column lies below it, if any of them does.
        firsts = ((column, bisect_left(sought, column.id)) for column in self)
        return [column.id for column, first in firsts if first < len(sought) and sought[first] <= column.last]

    def at_or_below(self, column_ids: Collection[int]) -> set[int]:
        """Return these columns and all below them."""
        found = set(column_ids)
        for column in self:
            if self._parents.get(column.id) in found:
                found.add(column.id)
        return found

    def name_of(self, column_id: int) -> str:
        """Return the dotted name of a column."""
        parts: list[str] = []
        column = self.root
        while column.id != column_id:
            position = bisect_right(column.children, column_id) - 1
            parts.append(column.child_names[position])
            column = self[column.children[position]]

        return ".".join(parts)

    @property
    def _names_shown(self) -> str:
        return printable(", ".join(self.root.child_names) or "none")

    @cached_property
    def _parents(self) -> dict[int, int]:
        return {child: column.id for column in self for child in column.children}

    @cached_property
    def _reading_names(self) -> dict[str, list[int]]:
        names: dict[str, list[int]] = {}
        prefixes = [""] * len(self)
        for column in self:
            for child_name, child in zip(column.child_names, column.children, strict=True):
                prefixes[child] = prefixes[column.id]
                if column.kind == TypeKind.STRUCT:
                    name = prefixes[column.id] + child_name
                    prefixes[child] = name + "."
                    # One name may mean several columns, and pyarrow reads them all: the rights to all of them are asked for.
                    names.setdefault(name, []).append(child)

        return names

    def _named(self, column: OrcColumn, name: str) -> Iterator[OrcColumn]:
        for child_name, child in zip(column.child_names, column.children, strict=True):
            if name == child_name:
                yield self[child]
            elif name.startswith(child_name + "."):
                yield from self._named(self[child], name[len(child_name) + 1 :])


def _column(column_id: int, last: int, message: Message, children: tuple[int, ...], what: str) -> OrcColumn:
    kind = message.integer(_KIND)
    if kind > LAST_KIND:
        raise FormatError(f"{what}: column {column_id} has an unknown type {kind}")
    if kind == TypeKind.DECIMAL and max(message.integer(_PRECISION), message.integer(_SCALE)) > MAX_PRECISION:
        raise FormatError(f"{what}: column {column_id} is a decimal number of more than {MAX_PRECISION} digits")
    if kind == TypeKind.UNION and len(children) > MAX_UNION:
        raise FormatError(f"{what}: column {column_id} is a union of {len(children)} columns, more than {MAX_UNION}")

    match kind:
        case TypeKind.STRUCT:
            names = tuple(message.texts(_FIELD_NAMES))
        case TypeKind.LIST:
            names = ("_elem",)
        case TypeKind.MAP:
            names = ("_key", "_value")
        case TypeKind.UNION:
            names = tuple(str(index) for index in range(len(children)))
        case _:
            names = ()

    if len(names) != len(children):
        raise FormatError(f"{what}: column {column_id} has {len(children)} columns below it and {len(names)} names for them")

    return OrcColumn(column_id, last, message, kind, children, names)
