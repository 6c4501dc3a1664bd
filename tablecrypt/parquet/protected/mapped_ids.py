"""Field ids for the columns of a file that names none, as readers find them: by a table's name mapping.

Programs that know nothing of Iceberg write such files, and `add_files` takes them into tables as they are. A protected column has to be
found in them as readers find it, or its values would pass for those of no column.

As in readers, the names count for every column where one of them has no field id. Iceberg calls the column in a list `element`, those in a
map `key` and `value`, whatever the file calls them.

Iceberg table spec, "Column Projection" and "Name Mapping Serialization"; parquet.thrift, SchemaElement; Apache Parquet, LogicalTypes.md,
"Nested Types".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from tablecrypt.errors import FormatError
from tablecrypt.parquet import thrift
from tablecrypt.parquet.columns_apart import end_of
from tablecrypt.parquet.layout import FileLayout
from tablecrypt.parquet.protected.hidden_columns import hidden_field_id
from tablecrypt.parquet.structs import FileMetaData, Repetition, SchemaElement
from tablecrypt.parquet.thrift import Struct


class MappedColumn(Protocol):
    """What a name mapping says of a column: its field id, the names that it has in files, and the same of the columns in it."""

    @property
    def field_id(self) -> int | None: ...

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def fields(self) -> Sequence[MappedColumn]: ...


def with_mapped_ids(elements: Sequence[Struct], mapping: Sequence[MappedColumn]) -> list[Struct]:
    """Return the nodes of a schema with field ids: their own, or where one of them has none, those of the mapping.

    Args:
        elements: the schema, which is a tree. Hidden columns in it keep having none.
        mapping: of the top-level columns.

    Raises:
        FormatError: the mapping has no field id for a column.
    """
    tops = [at for at in _children(elements, 0) if hidden_field_id(_name(elements[at])) is None]
    if all(_is_numbered(element) for at in tops for element in elements[at : end_of(elements, at)]):
        return list(elements)

    numbered = list(elements)
    # No recursion: a footer may nest nodes as it likes.
    waiting = [(at, _name(elements[at]), mapping) for at in tops]
    while waiting:
        at, name, known = waiting.pop()
        found = next((column for column in known if name in column.names), None)
        if found is None or found.field_id is None:
            raise FormatError(
                f"column {name!r} has no field id, and the table's property schema.name-mapping.default has none for its name: add it there"
            )

        numbered[at] = elements[at].copy()
        numbered[at].set(SchemaElement.FIELD_ID, thrift.I32, found.field_id)
        waiting += ((below, called, found.fields) for below, called in _columns_in(elements, at, found))

    return numbered


def number_columns(layout: FileLayout, mapping: Sequence[MappedColumn]) -> None:
    """Give the columns of a file that is to be written again the field ids of `with_mapped_ids`, whose errors this raises."""
    numbered = with_mapped_ids(layout.metadata.structs(FileMetaData.SCHEMA), mapping)
    layout.metadata.set(FileMetaData.SCHEMA, thrift.LIST, numbered)


def _columns_in(elements: Sequence[Struct], at: int, mapped: MappedColumn) -> Iterator[tuple[int, str]]:
    """Yield where the columns in a column are, and their names in a mapping."""
    below = list(_children(elements, at))
    names = {name for column in mapped.fields for name in column.names}
    # A list or a map has one node between itself and its columns, which is repeated.
    if len(below) != 1 or not _is_repeated(elements[below[0]]):
        yield from ((each, _name(elements[each])) for each in below)
        return

    inner = list(_children(elements, below[0]))
    if "key" in names:
        yield from zip(inner, ("key", "value"), strict=False)
    else:
        yield (below[0] if _is_itself_the_element(elements[below[0]], inner, of=elements[at]) else inner[0]), "element"


def _is_itself_the_element(repeated: Struct, inner: Sequence[int], of: Struct) -> bool:
    """Whether the repeated node of a list is its element: older writers leave the node between out.

    Parquet's logical types, "Lists", "Backward-compatibility rules".
    """
    return len(inner) != 1 or _name(repeated) in ("array", f"{_name(of)}_tuple")


def _children(elements: Sequence[Struct], at: int) -> Iterator[int]:
    child = at + 1
    for _ in range(elements[at].optional_integer(SchemaElement.NUM_CHILDREN) or 0):
        yield child
        child = end_of(elements, child)


def _is_numbered(element: Struct) -> bool:
    return SchemaElement.FIELD_ID in element or _is_repeated(element)


def _is_repeated(element: Struct) -> bool:
    return element.optional_integer(SchemaElement.REPETITION_TYPE) == Repetition.REPEATED


def _name(element: Struct) -> str:
    return element.binary(SchemaElement.NAME).decode()
