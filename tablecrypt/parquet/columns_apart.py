"""Columns that a footer holds apart: they are in the file, and readers that look at the schema and the row groups do not meet them.

Iceberg Java skips a column without a field id and asks nothing of it. Other readers do not: Trino opens the metadata of every column of
a row group with the footer's key, and fails on one that is under a key of its own. So the hidden columns of a table's file
(protected/hidden_columns.py) are not among the columns that its footer lists. They are in an entry of its key-value metadata, which a
reader passes over that does not know its name:

    in memory                                          as it is stored
    schema      ssn, note, __protected__.4             schema      ssn, note
    row group   chunk 0, chunk 1, chunk 2       ◀──▶   row group   chunk 0, chunk 1
                                                       key-value   tablecrypt.columns-apart = base64 of { schema: __protected__.4,
                                                                   row groups: [chunk 2], column orders }

All else is as if they were listed, behind all other columns: the AAD of their modules has the ordinal that they have in memory, and the
schema that is bound by their key metadata is the one in memory. The entry is in the encrypted footer. Whoever may open that, and nobody
else, can list or change it, as it would be if the columns were in their places. Files from before list them there; both are read.

Raises FormatError for an entry that no writer makes.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Sequence
from typing import Final

from tablecrypt.errors import FormatError
from tablecrypt.parquet import thrift
from tablecrypt.parquet.structs import FileMetaData, KeyValue, RowGroup, SchemaElement
from tablecrypt.parquet.thrift import DEFERRED, FLAT, Shape, Struct, structs_of

ENTRY: Final = b"tablecrypt.columns-apart"
_SHAPE: Final[Shape] = {
    FileMetaData.SCHEMA: FLAT,
    FileMetaData.ROW_GROUPS: {RowGroup.COLUMNS: DEFERRED},
    FileMetaData.COLUMN_ORDERS: FLAT,
}


def set_apart(footer: Struct, is_apart: Callable[[str], bool]) -> Struct:
    """Return a FileMetaData that holds some top-level columns apart; the same one where it has none of them.

    Args:
        footer: lists all of its columns. Those that are to be apart come last.
        is_apart: says it of the name of a top-level column.
    """
    listed, apart = _divided(footer, is_apart)
    if apart is None:
        return footer

    entry = Struct()
    entry.set(KeyValue.KEY, thrift.BINARY, ENTRY)
    # A string by Parquet's own definition, and some readers refuse bytes that are none.
    entry.set(KeyValue.VALUE, thrift.BINARY, b64encode(apart.encode()))
    listed.set(FileMetaData.KEY_VALUE_METADATA, thrift.LIST, [*structs_of(footer, FileMetaData.KEY_VALUE_METADATA), entry])

    return listed


def left_out(footer: Struct, is_apart: Callable[[str], bool]) -> Struct:
    """Return what `set_apart` does, without the columns that are apart."""
    return _divided(footer, is_apart)[0]


def with_columns_apart(footer: Struct) -> Struct:
    """Return a FileMetaData that lists what it holds apart behind its other columns; the same one where it holds nothing apart."""
    entries = structs_of(footer, FileMetaData.KEY_VALUE_METADATA)
    others = [each for each in entries if each.binary(KeyValue.KEY) != ENTRY]
    found = [each for each in entries if each.binary(KeyValue.KEY) == ENTRY]
    if not found:
        return footer
    if len(found) > 1:
        raise FormatError(f"it has {ENTRY.decode()} {len(found)} times")

    apart = _decoded(found[0].binary(KeyValue.VALUE))
    root, elements = _root_and_nodes(footer)
    groups, added = footer.structs(FileMetaData.ROW_GROUPS), apart.structs(FileMetaData.ROW_GROUPS)
    if len(groups) != len(added):
        raise FormatError(f"it has {len(groups)} row groups, and {ENTRY.decode()} has {len(added)}")

    listed = footer.copy(without=(FileMetaData.KEY_VALUE_METADATA,))
    hidden = apart.structs(FileMetaData.SCHEMA)
    children = len(_starts_of_columns(elements)) + len(_starts_of_columns(hidden))
    listed.set(FileMetaData.SCHEMA, thrift.LIST, [_with_children(root, children), *elements, *hidden])
    joined = [
        _with_chunks(
            group, thrift.Field(thrift.LIST, [*group.deferred_structs(RowGroup.COLUMNS), *more.deferred_structs(RowGroup.COLUMNS)])
        )
        for group, more in zip(groups, added, strict=True)
    ]
    listed.set(FileMetaData.ROW_GROUPS, thrift.LIST, joined)
    if FileMetaData.COLUMN_ORDERS in apart:
        orders = [*structs_of(footer, FileMetaData.COLUMN_ORDERS), *apart.structs(FileMetaData.COLUMN_ORDERS)]
        listed.set(FileMetaData.COLUMN_ORDERS, thrift.LIST, orders)
    if others:
        listed.set(FileMetaData.KEY_VALUE_METADATA, thrift.LIST, others)

    return listed


def _divided(footer: Struct, is_apart: Callable[[str], bool]) -> tuple[Struct, Struct | None]:
    """Return the footer with the columns that it is to list, and one with the others; None where there are no others."""
    root, elements = _root_and_nodes(footer)
    starts = _starts_of_columns(elements)
    shown = [start for start in starts if not is_apart(elements[start].binary(SchemaElement.NAME).decode())]
    if len(shown) == len(starts):
        return footer, None
    # Chunks have no names of their own: they are told apart by their places.
    if shown != starts[: len(shown)]:
        raise FormatError("hidden columns come before others")

    first = starts[len(shown)]
    leaves = _leaves_among(elements[:first])
    apart, listed = Struct(), footer.copy()
    apart.set(FileMetaData.SCHEMA, thrift.LIST, elements[first:])
    listed.set(FileMetaData.SCHEMA, thrift.LIST, [_with_children(root, len(shown)), *elements[:first]])
    groups = footer.structs(FileMetaData.ROW_GROUPS)
    apart.set(FileMetaData.ROW_GROUPS, thrift.LIST, [Struct({RowGroup.COLUMNS: _chunks(group, leaves, None)}) for group in groups])
    listed.set(FileMetaData.ROW_GROUPS, thrift.LIST, [_with_chunks(group, _chunks(group, 0, leaves)) for group in groups])
    if orders := structs_of(footer, FileMetaData.COLUMN_ORDERS):
        apart.set(FileMetaData.COLUMN_ORDERS, thrift.LIST, orders[leaves:])
        listed.set(FileMetaData.COLUMN_ORDERS, thrift.LIST, orders[:leaves])

    return listed, apart


def _decoded(value: bytes) -> Struct:
    try:
        return thrift.decode(b64decode(value, validate=True), _SHAPE)
    except NotBase64:
        raise FormatError(f"{ENTRY.decode()} is not base64") from None


def _root_and_nodes(footer: Struct) -> tuple[Struct, list[Struct]]:
    elements = footer.structs(FileMetaData.SCHEMA)
    # Whoever has the file's key may have written a footer whose schema is an empty list.
    if not elements:
        raise FormatError("its schema has no root")
    return elements[0], elements[1:]


def _starts_of_columns(elements: Sequence[Struct]) -> list[int]:
    """Return where each top-level column begins among nodes without their root. FormatError where they are no trees."""
    starts: list[int] = []
    at = 0
    while at < len(elements):
        starts.append(at)
        at = end_of(elements, at)

    return starts


def end_of(elements: Sequence[Struct], at: int) -> int:
    """Return where the nodes of a column end that begins at a position. FormatError where the schema ends before."""
    left = 1
    while left:
        if at >= len(elements):
            raise FormatError("its schema is no tree")
        left += (elements[at].optional_integer(SchemaElement.NUM_CHILDREN) or 0) - 1
        at += 1

    return at


def _leaves_among(elements: list[Struct]) -> int:
    return sum(not element.optional_integer(SchemaElement.NUM_CHILDREN) for element in elements)


def _with_children(root: Struct, count: int) -> Struct:
    copy = root.copy()
    copy.set(SchemaElement.NUM_CHILDREN, thrift.I32, count)
    return copy


def _chunks(group: Struct, start: int, end: int | None) -> thrift.Field:
    """Some chunks of a row group, each a struct or its bytes."""
    field = group.fields.get(RowGroup.COLUMNS)
    if field is None or not isinstance(field.value, list):
        raise FormatError("a row group has no columns")
    return thrift.Field(thrift.LIST, field.value[start:end])


def _with_chunks(group: Struct, chunks: thrift.Field) -> Struct:
    copy = group.copy()
    copy.fields[RowGroup.COLUMNS] = chunks
    return copy
