"""Protected columns in a file: where a column's values are, and what the file has where readers look for them.

A protected column is in its file twice. Its placeholder has the column's own name and field id and is under the file's DEK: a page that
nobody can decode, or masked values. Its hidden column holds the values. It comes after all other columns, has no field id at any level, and
is under a column key, as the specification has it:

    column        field id    path in the file            encrypted with
    ssn           4           ssn                         DEK           the placeholder
    person.email  7           person, email               DEK           the placeholder
    (ssn)                     __protected__.4             its key       the hidden column
    (email)                   __protected__.7, email      its key       the hidden column: a struct of the same shape with this field alone

So a reader that knows nothing of this reads, filters and counts every other column: the footer does not list hidden columns as it lists
those (columns_apart.py), and of files of early builds, whose footers list them, Iceberg's readers skip columns without a field id.

A hidden column has the levels of its placeholder, so its pages can be read in the placeholder's place (hidden_column_reader.py).

A hidden column is bound to the file, the field and its own schema by its key metadata, and to row group and column by the AAD of its
modules. Its nodes in the schema are those of its placeholder, but for field ids and the first name: `bound_schemas` compares them.

Specification: Apache Parquet, "Parquet Modular Encryption", section 5; parquet.thrift, SchemaElement.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from tablecrypt.errors import FormatError, TamperedFileError
from tablecrypt.keys.bound_schemas import BoundSchema, SchemaNode
from tablecrypt.parquet import thrift
from tablecrypt.parquet.chunk_modules import Page, StoredHeader, read_pages
from tablecrypt.parquet.columns_apart import end_of, left_out, set_apart
from tablecrypt.parquet.layout import Chunk, leaf_paths
from tablecrypt.parquet.structs import (
    LOGICAL_TYPE_SHAPE,
    DataPageHeader,
    DataPageHeaderV2,
    DecimalType,
    IntegerType,
    LogicalType,
    PageHeader,
    PhysicalType,
    Repetition,
    SchemaElement,
    TimeType,
)
from tablecrypt.parquet.thrift import FLAT, Struct

HIDDEN_PREFIX: Final = "__protected__."
_HIDDEN_NAME: Final = re.compile(re.escape(HIDDEN_PREFIX) + "([1-9][0-9]{0,9})")
_UNITS: Final = {1: "MILLIS", 2: "MICROS", 3: "NANOS"}
_LOGICAL: Final = {LogicalType.STRING: "STRING", LogicalType.DATE: "DATE", LogicalType.UNKNOWN: "UNKNOWN", LogicalType.UUID: "UUID"}
_CONVERTED: Final = {
    0: "STRING",
    6: "DATE",
    7: "TIME(MILLIS)",
    8: "TIME(MICROS)",
    9: "TIMESTAMP(MILLIS, UTC)",
    10: "TIMESTAMP(MICROS, UTC)",
    17: "INTEGER(32, signed)",
    18: "INTEGER(64, signed)",
}
_STATISTICS: Final = {
    PageHeader.DATA_PAGE_HEADER: DataPageHeader.STATISTICS,
    PageHeader.DATA_PAGE_HEADER_V2: DataPageHeaderV2.STATISTICS,
}
_CONVERTED_DECIMAL: Final = 5
_NOT_OF_A_HIDDEN_COLUMN: Final = (SchemaElement.NAME, SchemaElement.FIELD_ID)


def hidden_name(field_id: int) -> str:
    """Return the name of the column that holds the values of a protected one."""
    return f"{HIDDEN_PREFIX}{field_id}"


def hidden_field_id(name: str) -> int | None:
    """Return the field id of the column whose hidden column has this name; None for any other name."""
    # Without leading zeros, so that a field id has one name.
    found = _HIDDEN_NAME.fullmatch(name)
    return None if found is None else int(found[1])


def without_hidden_columns(footer: Struct) -> Struct:
    """Return a FileMetaData as files store it, which holds hidden columns apart."""
    return set_apart(footer, _is_hidden)


def of_shown_columns(footer: Struct) -> Struct:
    """Return a FileMetaData without hidden columns, apart or listed."""
    return left_out(footer, _is_hidden)


def _is_hidden(name: str) -> bool:
    return hidden_field_id(name) is not None


@dataclass(frozen=True)
class Leaf:
    """A leaf column of a file.

    Attributes:
        path: names from the top-level column down to it.
        field_ids: those that the nodes on this path have.
        max_definition, max_repetition: the highest levels of its values.
        physical_type: one of PhysicalType's.
        type_length: how many bytes each value has, if the type is FIXED_LENGTH; else 0.
    """

    path: tuple[str, ...]
    field_ids: tuple[int, ...]
    max_definition: int
    max_repetition: int
    physical_type: int | None
    type_length: int

    @property
    def levels(self) -> tuple[int, int]:
        """The highest definition and repetition level of its values."""
        return self.max_definition, self.max_repetition

    def is_encoded_as(self, other: Leaf) -> bool:
        """Whether pages of the one can stand in the place of the other's."""
        return (self.levels, self.physical_type, self.type_length) == (other.levels, other.physical_type, other.type_length)

    @property
    def hidden_field_id(self) -> int | None:
        """The field id of the column whose hidden column it is, or lies in."""
        return hidden_field_id(self.path[0])


def leaves_of(elements: list[Struct]) -> list[Leaf]:
    """Return the leaf columns of a schema in their order.

    Raises:
        FormatError: the schema is no tree.
    """
    paths = iter(leaf_paths(elements))
    leaves: list[Leaf] = []
    # The nodes around the next one: for each its field ids and levels, and how many of its children are still to come.
    around: list[tuple[tuple[int, ...], int, int, int]] = [((), 0, 0, elements[0].optional_integer(SchemaElement.NUM_CHILDREN) or 0)]

    for element in elements[1:]:
        ids, definition, repetition, _ = around[-1]
        kind = element.optional_integer(SchemaElement.REPETITION_TYPE)
        own = element.optional_integer(SchemaElement.FIELD_ID)
        ids = ids if own is None else (*ids, own)
        definition += kind in (Repetition.OPTIONAL, Repetition.REPEATED)
        repetition += kind == Repetition.REPEATED
        children = element.optional_integer(SchemaElement.NUM_CHILDREN) or 0
        if children:
            around.append((ids, definition, repetition, children))
            continue

        leaves.append(Leaf(next(paths), ids, definition, repetition, *_physical(element)))

        while len(around) > 1:
            *_, left = around[-1]
            if left > 1:
                around[-1] = (*around[-1][:3], left - 1)
                break
            around.pop()

    return leaves


def around_fields(elements: Sequence[Struct], field_ids: Collection[int]) -> frozenset[tuple[str, ...]]:
    """Return the paths of the structs around fields of a schema, which is a tree."""
    found: set[tuple[str, ...]] = set()
    # The root has no part in paths.
    for _, element, around in _with_nodes_around(elements[1:]):
        if element.optional_integer(SchemaElement.FIELD_ID) in field_ids:
            names = [each.binary(SchemaElement.NAME).decode() for each, _ in around]
            found.update(tuple(names[: depth + 1]) for depth in range(len(names)))

    return frozenset(found)


def _with_nodes_around(elements: Iterable[Struct]) -> Iterator[tuple[int, Struct, list[tuple[Struct, int]]]]:
    """Yield each node of a tree, its position, and the nodes around it, each with how many of its children are still to come.

    The list is the same one each time. No recursion: a footer may nest nodes as it likes.
    """
    around: list[tuple[Struct, int]] = []
    for at, element in enumerate(elements):
        yield at, element, around

        around.append((element, element.optional_integer(SchemaElement.NUM_CHILDREN) or 0))
        while around and around[-1][1] == 0:
            around.pop()
            if around:
                around[-1] = (around[-1][0], around[-1][1] - 1)


@dataclass(frozen=True)
class HiddenLeaf:
    """A leaf of a hidden column.

    Attributes:
        field_id: of the protected column, whose values it holds.
        placeholder: the ordinal of its placeholder in each row group.
        ordinal: its own.
    """

    field_id: int
    placeholder: int
    ordinal: int


def hidden_leaves_among(leaves: Sequence[Leaf], location: str) -> list[HiddenLeaf]:
    """Return the leaves of hidden columns, each with its placeholder.

    Args:
        leaves: of a file, all of them.
        location: names the file in errors.

    Raises:
        TamperedFileError: hidden columns and placeholders do not match, or a hidden column has a field id.
    """
    placeholders: dict[tuple[int, tuple[str, ...]], int] = {}
    for ordinal, leaf in enumerate(leaves):
        if leaf.hidden_field_id is None:
            placeholders.update({(field_id, leaf.path[1:]): ordinal for field_id in leaf.field_ids})
    hidden_leaves: list[HiddenLeaf] = []

    for ordinal, leaf in enumerate(leaves):
        field_id = leaf.hidden_field_id
        if field_id is None:
            continue

        placeholder = placeholders.get((field_id, leaf.path[1:]))
        # Other levels would give the values other nulls and lists. A field id would have every reader find the column.
        if placeholder is None or leaf.field_ids or leaf.levels != leaves[placeholder].levels:
            raise TamperedFileError(
                location, f"the hidden column of field id {field_id} does not have the shape of the column with this field id"
            )

        hidden_leaves.append(HiddenLeaf(field_id, placeholder, ordinal))

    _check_complete(leaves, hidden_leaves, location)

    return hidden_leaves


def bound_schemas(elements: Sequence[Struct], hidden_leaves: Iterable[HiddenLeaf], location: str) -> dict[int, BoundSchema]:
    """Return what a footer says of each hidden column, by field id: what its key metadata binds.

    Args:
        elements: the schema, which is a tree.
        hidden_leaves: as `hidden_leaves_among` found them.
        location: names the file in errors.

    Raises:
        TamperedFileError: it says something else of a hidden column than of its placeholder.
    """
    first = {hidden.field_id: hidden for hidden in reversed(list(hidden_leaves))}
    if not first:
        return {}

    tops = _top_of_each_leaf(elements)
    return {
        field_id: _schema_of_hidden_column(tops[hidden.placeholder], tops[hidden.ordinal], field_id, location)
        for field_id, hidden in first.items()
    }


def schema_of_field(elements: Sequence[Struct], top: str, field_id: int, location: str) -> BoundSchema:
    """Return what key metadata is to bind of a column that is to be protected.

    Args:
        elements: the schema, which is a tree.
        top: the top-level column that the field is, or lies in.
        field_id: of the field.
        location: names the file in errors.
    """
    return _bound_schema(narrowed(subtree(elements, top), field_id), location)


def subtree(elements: Sequence[Struct], top: str) -> list[Struct]:
    """Return the nodes of a top-level column."""
    at = 1
    while at < len(elements):
        end = end_of(elements, at)
        if elements[at].binary(SchemaElement.NAME) == top.encode():
            return list(elements[at:end])
        at = end

    raise FormatError(f"its schema has no column {top}")


def narrowed(elements: Sequence[Struct], field_id: int) -> list[Struct]:
    """Return a column with one field in it and nothing beside that; no node if the field is not there."""
    for at, element, around in _with_nodes_around(elements):
        if element.optional_integer(SchemaElement.FIELD_ID) == field_id:
            outer = [each.copy() for each, _ in around]
            for each in outer:
                each.set(SchemaElement.NUM_CHILDREN, thrift.I32, 1)
            return [*outer, *elements[at : end_of(elements, at)]]

    return []


def pages_of_hidden_column(chunk: Chunk) -> Iterator[Page]:
    """Yield a chunk's pages as a hidden column has them: without statistics in their headers, whose length would tell that of values.

    Those of the whole chunk are in its metadata, by which readers leave out row groups.
    """
    for page in read_pages(chunk):
        header = thrift.decode(page.header.encoded, {PageHeader.DATA_PAGE_HEADER: FLAT, PageHeader.DATA_PAGE_HEADER_V2: FLAT})
        told = [(kind, field) for kind, field in _STATISTICS.items() if kind in header and field in header.struct(kind)]
        for kind, field in told:
            header.struct(kind).remove(field)
        yield replace(page, header=StoredHeader.decode_at(header.encode())) if told else page


def check_names(names: Sequence[str]) -> None:
    """FormatError for a column that has the name of a hidden column."""
    for name in names:
        if name.startswith(HIDDEN_PREFIX):
            raise FormatError(
                f"no column can be called {name!r}: names that begin with {HIDDEN_PREFIX!r} are those of protected columns' values"
            )


def _top_of_each_leaf(elements: Sequence[Struct]) -> list[Sequence[Struct]]:
    """Return the nodes of the top-level column that each leaf is, or lies in."""
    tops: list[Sequence[Struct]] = []
    at = 1
    while at < len(elements):
        end = end_of(elements, at)
        top = elements[at:end]
        tops += [top] * sum(not element.optional_integer(SchemaElement.NUM_CHILDREN) for element in top)
        at = end

    return tops


def _schema_of_hidden_column(placeholder: Sequence[Struct], hidden: Sequence[Struct], field_id: int, location: str) -> BoundSchema:
    column = narrowed(placeholder, field_id)
    # What is bound is the placeholder's. The hidden column has nothing that could say otherwise: not even where a part of a struct belongs.
    alike = len(column) == len(hidden) and all(
        _is_hidden_copy(one, other) and (depth == 0 or _name(one) == _name(other))
        for depth, (one, other) in enumerate(zip(column, hidden, strict=True))
    )
    if not alike:
        raise TamperedFileError(location, f"the hidden column of field id {field_id} has another type than the column with this field id")

    return _bound_schema(column, location)


def _is_hidden_copy(placeholder: Struct, hidden: Struct) -> bool:
    """Whether a node says the same of a hidden column as of its placeholder, whose field id it lacks."""
    one, other = placeholder.copy(without=_NOT_OF_A_HIDDEN_COLUMN), hidden.copy(without=(SchemaElement.NAME,))
    # Thrift writes one logical type in several ways, so stored bytes that differ are compared in their canonical form.
    return one.fields == other.fields or _encoded(one) == _encoded(other)


def _bound_schema(column: Sequence[Struct], location: str) -> BoundSchema:
    stored = tuple(tuple((field_id, field.kind, field.value) for field_id, field in element.fields.items()) for element in column)
    nodes, encoded = _read_nodes(stored)
    return BoundSchema(nodes, encoded, location)


@lru_cache(maxsize=256)
def _read_nodes(stored: tuple[tuple[tuple[int, int, thrift.Value], ...], ...]) -> tuple[tuple[SchemaNode, ...], tuple[bytes, ...]]:
    """Return what is bound of a column, by all that the footer says of it: the files of a table say the same."""
    column = [Struct({field_id: thrift.Field(kind, value) for field_id, kind, value in fields}) for fields in stored]
    return tuple(map(_node, column)), tuple(_encoded(element, (SchemaElement.NAME,)) for element in column)


def _name(element: Struct) -> bytes:
    return element.binary(SchemaElement.NAME)


def _encoded(struct: Struct, without: tuple[int, ...] = ()) -> bytes:
    """Return a struct as `keys/bound_schemas.py` says."""
    kept = sorted(field_id for field_id in struct.fields if field_id not in without)
    return b"".join((len(kept).to_bytes(2, "big"), *(_encoded_field(field_id, struct.fields[field_id]) for field_id in kept)))


def _encoded_field(field_id: int, field: thrift.Field) -> bytes:
    head, value = field_id.to_bytes(2, "big") + bytes([field.kind]), field.value
    if isinstance(value, bool):
        return head
    if isinstance(value, int):
        return head + value.to_bytes(8, "big", signed=True)
    if isinstance(value, Struct):
        return head + _encoded(value)

    assert isinstance(value, bytes), "no list in a schema is decoded"
    # Thrift writes one struct in several ways: whether the bytes differ says nothing.
    if field_id == SchemaElement.LOGICAL_TYPE and field.kind == thrift.STRUCT:
        return head + _encoded(_logical_type(value))

    return head + len(value).to_bytes(4, "big") + value


@lru_cache(maxsize=256)
def _logical_type(stored: bytes) -> Struct:
    return thrift.decode(stored, LOGICAL_TYPE_SHAPE)


def _physical(element: Struct) -> tuple[int | None, int]:
    kind = element.optional_integer(SchemaElement.TYPE)
    return kind, element.optional_integer(SchemaElement.TYPE_LENGTH) or 0 if kind == PhysicalType.FIXED_LENGTH else 0


def _node(element: Struct) -> SchemaNode:
    repetition = element.optional_integer(SchemaElement.REPETITION_TYPE)
    return SchemaNode(
        element.optional_integer(SchemaElement.FIELD_ID),
        not element.optional_integer(SchemaElement.NUM_CHILDREN),
        Repetition.REQUIRED if repetition is None else repetition,
        *_physical(element),
        _meaning(element),
    )


def _meaning(element: Struct) -> str:
    """Return what values mean: by the logical type, as Arrow has it, and by the older converted type where there is none."""
    field = element.fields.get(SchemaElement.LOGICAL_TYPE)
    if field is not None:
        return _meaning_of(field.value) if isinstance(field.value, bytes) else "another"

    converted = element.optional_integer(SchemaElement.CONVERTED_TYPE)
    if converted == _CONVERTED_DECIMAL:
        scale = element.optional_integer(SchemaElement.SCALE) or 0
        return f"DECIMAL({element.optional_integer(SchemaElement.PRECISION)}, {scale})"

    return "" if converted is None else _CONVERTED.get(converted, "another")


@lru_cache(maxsize=256)
def _meaning_of(stored: bytes) -> str:
    logical = _logical_type(stored)
    # A union has one member. Of several, readers may take different ones.
    if len(logical.fields) != 1:
        return "another"

    ((kind, field),) = logical.fields.items()
    if kind in _LOGICAL or not isinstance(field.value, Struct):
        return _LOGICAL.get(kind, "another")

    details = field.value
    if kind == LogicalType.DECIMAL:
        return f"DECIMAL({details.integer(DecimalType.PRECISION)}, {details.integer(DecimalType.SCALE)})"
    if kind == LogicalType.INTEGER:
        width = details.fields[IntegerType.BIT_WIDTH].value if IntegerType.BIT_WIDTH in details else b""
        sign = "signed" if details.flag(IntegerType.IS_SIGNED) else "unsigned"
        return f"INTEGER({width[0] if isinstance(width, bytes) and width else 0}, {sign})"
    if kind in (LogicalType.TIME, LogicalType.TIMESTAMP):
        unit = next((name for number, name in _UNITS.items() if number in details.struct(TimeType.UNIT)), "another")
        # Arrow reads times of day alike, whether UTC or not.
        in_utc = ", UTC" if kind == LogicalType.TIMESTAMP and details.flag(TimeType.IS_ADJUSTED_TO_UTC) else ""
        return f"{'TIME' if kind == LogicalType.TIME else 'TIMESTAMP'}({unit}{in_utc})"

    return "another"


def _check_complete(leaves: Sequence[Leaf], hidden_leaves: Sequence[HiddenLeaf], location: str) -> None:
    protected = {hidden.field_id for hidden in hidden_leaves}
    replaced = {(hidden.field_id, hidden.placeholder) for hidden in hidden_leaves}
    for ordinal, leaf in enumerate(leaves):
        # A leaf without a hidden one would be read from its placeholder, which anyone with the table's key can write.
        missing = sorted(protected.intersection(leaf.field_ids) - {field_id for field_id in protected if (field_id, ordinal) in replaced})
        if leaf.hidden_field_id is None and missing:
            raise TamperedFileError(
                location, f"column {'.'.join(leaf.path)} has no hidden column, though another part of column {missing[0]} has one"
            )

    # Of two, the order of columns would decide which values a reader gets.
    if len({(hidden.field_id, hidden.placeholder) for hidden in hidden_leaves}) != len(hidden_leaves):
        raise TamperedFileError(location, "a column has two hidden columns")
