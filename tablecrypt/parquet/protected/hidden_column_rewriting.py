"""Files written again with other protected columns than they had, or with the same ones under fresh keys.

    the file has      the new one is to have   pages of the hidden column are   pages in the column's place are
    a column          the column protected     the column's                     a placeholder, made of the column's values
    a hidden column   the column protected     the hidden column's              the placeholder's; made again if its kind is another
    a hidden column   the column unprotected   (no hidden column)               the hidden column's
    another column    that column              (no hidden column)               its own

Pages go from the old file into the new one as they are, those of hidden columns without the statistics in their headers: decrypted, so
authenticated, and encrypted under the key of the column that they become part of. Indexes and bloom filters go with all but hidden columns.
Values are decoded for a placeholder that is made, of its column alone and one row group at a time.

    old    ssn                       note                                   __protected__.4    ssn protected so far
           placeholder               column                                 hidden column
    new    ssn                       note                                   __protected__.9    ssn unprotected, note (field id 9) protected
           pages of __protected__.4  placeholder, made of the old column    pages of the old column

A file without a column stays without it. The schema that Arrow leaves in a footer would not be that of the new file, and is dropped. So is
what else a writer may have left there about values: notes, the order of rows, and fields that the specification does not have, such as
extensions (field id 32767), in which a whole second footer may lie. Those in the schema stay, to which the keys of columns are bound.

Raises TamperedFileError for a file in which a hidden column is under the file's key, or something else under a key of its own; FormatError
for a column whose values Arrow writes in another physical type than the file has; and what tablecrypt.parquet.layout raises.

Specification: Apache Parquet, "Parquet Modular Encryption", section 5.2; parquet.thrift, SchemaElement and ColumnOrder.
"""

from __future__ import annotations

import io
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError
from tablecrypt.parquet import thrift
from tablecrypt.parquet.columns_apart import end_of
from tablecrypt.parquet.file_keys import FileKeys
from tablecrypt.parquet.footer import described
from tablecrypt.parquet.layout import RowGroupLayout
from tablecrypt.parquet.protected.hidden_arrays import Replacement, path_to, replaced, written_as
from tablecrypt.parquet.protected.hidden_columns import (
    hidden_field_id,
    hidden_name,
    narrowed,
    pages_of_hidden_column,
    subtree,
    without_hidden_columns,
)
from tablecrypt.parquet.protected.mapped_ids import MappedColumn
from tablecrypt.parquet.protected.placeholders import blanks, error_placeholder_pages
from tablecrypt.parquet.protected.protected_layout import KeyByField, ProtectedLayout
from tablecrypt.parquet.storage import Sink, source_of
from tablecrypt.parquet.structs import ARROW_SCHEMA, ColumnMetaData, FileMetaData, KeyValue, RowGroup, SchemaElement
from tablecrypt.parquet.thrift import Struct, structs_of
from tablecrypt.parquet.writing import STRIPPED, FileEncryption, ModularWriter, PlacedChunk

_COMPRESSION: Final = "zstd"


@dataclass(frozen=True)
class RewrittenFile:
    """The length of a new file in bytes, and at which byte each of its row groups begins."""

    length: int
    group_starts: tuple[int, ...]


def rewrite_protected(
    source: object,
    sink: object,
    old: StandardKeyMetadata,
    new: FileKeys,
    replacements: Mapping[int, Replacement | None],
    hidden_key: KeyByField,
    location: str,
    mapping: Sequence[MappedColumn] | None,
) -> RewrittenFile:
    """Write a file again, in which these columns are protected and no others.

    Args:
        source: a seekable binary file with the old one.
        sink: a binary file that is open for writing.
        old: of the old file.
        new: keys of the new one, of its hidden columns too, by their names.
        replacements: by field id, what is to be protected of the columns that the file has, and what makes the masked values; None for an
            error placeholder.
        hidden_key: opens the old hidden columns.
        location: names the old file in errors.
        mapping: the table's name mapping. The new file has the field ids that it gives to columns without one.

    Raises: the errors that the module lists, and what `hidden_key` raises.
    """
    rewriting = _Rewriting(ProtectedLayout(source_of(source, location), old, hidden_key, mapping=mapping), replacements)
    out = Sink(sink)
    writer = ModularWriter(out, FileEncryption(new, location, secrets.token_bytes))
    rewriting.write(writer)
    return RewrittenFile(writer.finish(without_hidden_columns), tuple(writer.group_starts))


def values_under_file_key(
    source: object, key_metadata: StandardKeyMetadata, field_id: int, location: str, mapping: Sequence[MappedColumn] | None
) -> Iterator[pa.ChunkedArray]:
    """Yield the values of a column under the file's own key, one row group at a time; null where a struct around it is null.

    Args:
        source: a seekable binary file.
        key_metadata: of the file.
        field_id: the column's, outside of lists and maps. Others are not read, nor is what lies beside it in a struct.
        location: names the file in errors.
        mapping: the table's name mapping, for a file without field ids.

    Raises: the errors that the module lists.
    """
    reading = _Rewriting(ProtectedLayout(source_of(source, location), key_metadata, mapping=mapping), {})
    yield from reading.values(field_id)


def decoded_columns(old: ProtectedLayout, group: Struct, chunks: RowGroupLayout, top: str, ordinals: Sequence[int]) -> pa.Table:
    """Return the values of some leaves below one top-level column, in one row group, and nothing of their siblings.

    Args:
        old: the file.
        group: the row group, as the footer has it.
        chunks: its columns.
        top: the name of the top-level column.
        ordinals: of the leaves.
    """
    leaves = iter([ordinal for ordinal, leaf in enumerate(old.leaves) if leaf.path[0] == top])
    schema = _with_leaves(subtree(old.schema, top), leaves, frozenset(ordinals))
    return _decoded(old, group, schema, [PlacedChunk(chunks[ordinal], chunks[ordinal].path, has_pages_alone=True) for ordinal in ordinals])


def footer_of(old: ProtectedLayout, shown: Sequence[int]) -> Struct:
    """Return the footer of a file with some of its columns, whole top-level ones, and without row groups."""
    tops = dict.fromkeys(old.leaves[ordinal].path[0] for ordinal in shown)
    footer = old.file.metadata.copy(without=(FileMetaData.COLUMN_ORDERS, FileMetaData.ROW_GROUPS))
    footer.set(FileMetaData.SCHEMA, thrift.LIST, [_root(old, len(tops)), *(each for top in tops for each in subtree(old.schema, top))])
    with described(old.file.location, "the footer"):
        orders = structs_of(old.file.metadata, FileMetaData.COLUMN_ORDERS)
    if len(orders) == len(old.leaves):
        footer.set(FileMetaData.COLUMN_ORDERS, thrift.LIST, [orders[ordinal] for ordinal in shown])
    return footer


@dataclass(frozen=True)
class _Column:
    """A column of the new file: its path, the old column whose pages or values it has, and the field whose placeholder is made for it."""

    path: tuple[str, ...]
    source: int
    placeholder_of: int | None = None


class _Rewriting:
    def __init__(self, old: ProtectedLayout, replacements: Mapping[int, Replacement | None]) -> None:
        self._old = old
        self._replacements = replacements
        self._hidden_behind = {hidden.placeholder: hidden for hidden in old.hidden_leaves}
        self._shown = [ordinal for ordinal, leaf in enumerate(old.leaves) if leaf.hidden_field_id is None]
        protected = {ordinal: field_id for field_id in replacements for ordinal in self._leaves_of(field_id)}
        self._columns = [self._column(ordinal, protected.get(ordinal)) for ordinal in self._shown]
        # Where the old file has what the new columns' order is described by.
        self._described = [*self._shown, *protected]
        self._columns += [
            _Column((hidden_name(field_id), *old.leaves[ordinal].path[1:]), self._values_of(ordinal))
            for ordinal, field_id in protected.items()
        ]

    def write(self, writer: ModularWriter) -> None:
        metadata = self._old.file.metadata
        with described(self._old.file.location, "the footer"):
            rows = metadata.integer(FileMetaData.NUM_ROWS)
        writer.begin(self._footer(), [column.path for column in self._columns], rows)
        groups = zip(metadata.structs(FileMetaData.ROW_GROUPS), self._old.file.row_groups, strict=True)
        # Of a row group without rows nothing is protected: pyarrow makes no pages of it that could be placeholders.
        writer.add_groups(
            (without_order(group), self._placed(group, chunks)) for group, chunks in groups if group.integer(RowGroup.NUM_ROWS)
        )

    def values(self, field_id: int) -> Iterator[pa.ChunkedArray]:
        leaves = [(ordinal, self._old.leaves[ordinal].path) for ordinal in self._leaves_of(field_id)]
        for group, chunks in zip(self._old.file.metadata.structs(FileMetaData.ROW_GROUPS), self._old.file.row_groups, strict=True):
            decoded = self._decoded(field_id, group, [PlacedChunk(chunks[ordinal], path) for ordinal, path in leaves])
            top, *inner = path_to(decoded.schema, field_id)
            yield pc.struct_field(decoded.column(top), inner) if inner else decoded.column(top)

    def _leaves_of(self, field_id: int) -> list[int]:
        found = [ordinal for ordinal in self._shown if field_id in self._old.leaves[ordinal].field_ids]
        if not found:
            raise FormatError(f"{self._old.file.location}: has no column with field id {field_id} that could be protected")
        return found

    def _column(self, ordinal: int, field_id: int | None) -> _Column:
        leaf, hidden = self._old.leaves[ordinal], self._hidden_behind.get(ordinal)
        if field_id is None:
            return _Column(leaf.path, self._values_of(ordinal))

        masked = self._replacements[field_id] is not None
        # A placeholder of the right kind stays, so that no value is decoded. Another stored mask takes `compact`.
        if hidden is not None and hidden.field_id == field_id and self._old.has_masks(hidden) == masked:
            return _Column(leaf.path, ordinal)

        return _Column(leaf.path, self._values_of(ordinal), field_id)

    def _values_of(self, ordinal: int) -> int:
        hidden = self._hidden_behind.get(ordinal)
        return ordinal if hidden is None else hidden.ordinal

    def _placed(self, group: Struct, chunks: RowGroupLayout) -> list[PlacedChunk]:
        made: dict[int, Iterator[PlacedChunk]] = {}
        placed: list[PlacedChunk] = []
        for column in self._columns:
            if hidden_field_id(column.path[0]) is not None:
                # An index and a bloom filter tell of lengths and counts by their own length, as statistics in page headers do.
                chunk = chunks[column.source]
                placed.append(PlacedChunk(chunk, column.path, pages_of_hidden_column(chunk), has_pages_alone=True, is_hidden=True))
                continue
            if column.placeholder_of is None:
                chunk = chunks[column.source]
                placed.append(PlacedChunk(chunk, column.path, left_out=_notes_in(chunk.metadata)))
                continue

            if column.placeholder_of not in made:
                made[column.placeholder_of] = iter(self._made_placeholders(column.placeholder_of, group, chunks))
            placed.append(next(made[column.placeholder_of]))

        return placed

    def _made_placeholders(self, field_id: int, group: Struct, chunks: RowGroupLayout) -> list[PlacedChunk]:
        """Make the placeholder of a field in one row group: a chunk for each of its leaves."""
        columns = [column for column in self._columns if column.placeholder_of == field_id]
        make = self._replacements[field_id]
        values = self._decoded(field_id, group, [PlacedChunk(chunks[column.source], column.path) for column in columns])
        shown = replaced(values, path_to(values.schema, field_id), make or blanks)
        leaves = [leaf for column in columns for leaf in self._old.leaves if leaf.path == column.path]
        made = written_as(leaves, shown, self._old.file.location, compression=_COMPRESSION, use_dictionary=make is not None)
        if make is not None:
            return [PlacedChunk(chunk, column.path, has_pages_alone=True) for column, chunk in zip(columns, made, strict=True)]

        return [
            PlacedChunk(chunk, column.path, error_placeholder_pages(chunk), STRIPPED, has_pages_alone=True)
            for column, chunk in zip(columns, made, strict=True)
        ]

    def _decoded(self, field_id: int, group: Struct, columns: Sequence[PlacedChunk]) -> pa.Table:
        """Return the values of a field in one row group, and of its siblings nothing."""
        return _decoded(self._old, group, narrowed(subtree(self._old.schema, columns[0].path[0]), field_id), columns)

    def _footer(self) -> Struct:
        old = self._old
        footer = without_notes(old.file.metadata)
        if [column.path for column in self._columns] == [leaf.path for leaf in old.leaves]:
            return footer

        # What Arrow's writer notes of the columns' types is about those of before.
        footer.remove(FileMetaData.KEY_VALUE_METADATA)

        tops = dict.fromkeys(old.leaves[ordinal].path[0] for ordinal in self._shown)
        elements = [element for top in tops for element in subtree(old.schema, top)]
        for field_id in self._replacements:
            top = old.leaves[self._leaves_of(field_id)[0]].path[0]
            elements += _as_hidden_column(narrowed(subtree(old.schema, top), field_id), field_id)
        footer.set(FileMetaData.SCHEMA, thrift.LIST, [_root(old, len(tops) + len(self._replacements)), *elements])
        with described(old.file.location, "the footer"):
            self._describe(footer)
        return footer

    def _describe(self, footer: Struct) -> None:
        """Bring what the footer says of columns beside the schema into the new order."""
        orders = structs_of(footer, FileMetaData.COLUMN_ORDERS)
        # A list of another length orders no column. Without any, min_value and max_value are undefined (parquet.thrift), so unused.
        if len(orders) == len(self._old.leaves):
            footer.set(FileMetaData.COLUMN_ORDERS, thrift.LIST, [orders[ordinal] for ordinal in self._described])
        else:
            footer.remove(FileMetaData.COLUMN_ORDERS)


def without_notes(footer: Struct) -> Struct:
    """Return a footer without what the file's writer noted there beside the types that Arrow's writer notes of its columns."""
    # Notes hold values, and the table's key opens the footer: Hudi notes the least and the greatest record key there.
    kept = [each for each in structs_of(footer, FileMetaData.KEY_VALUE_METADATA) if each.binary(KeyValue.KEY) == ARROW_SCHEMA]
    without = footer.copy(without=(FileMetaData.KEY_VALUE_METADATA, *footer.beyond(FileMetaData.SPECIFIED)))
    if kept:
        without.set(FileMetaData.KEY_VALUE_METADATA, thrift.LIST, kept)

    return without


def _notes_in(metadata: Struct) -> tuple[int, ...]:
    """The fields of a ColumnMetaData in which a writer may have noted anything: the table's key opens it, and a note knows no columns."""
    return (ColumnMetaData.KEY_VALUE_METADATA, *metadata.beyond(ColumnMetaData.SPECIFIED))


def without_order(group: Struct) -> Struct:
    """Return a row group without what its writer noted of the order of rows, or where the specification has no field."""
    # By a column that is protected now, the order of the placeholders would be another one.
    return group.copy(without=(RowGroup.SORTING_COLUMNS, *group.beyond(RowGroup.SPECIFIED)))


def _decoded(old: ProtectedLayout, group: Struct, schema: Sequence[Struct], columns: Sequence[PlacedChunk]) -> pa.Table:
    """Return the values of the leaves of one top-level column in one row group."""
    footer = Struct({FileMetaData.VERSION: old.file.metadata.fields[FileMetaData.VERSION]})
    footer.set(FileMetaData.SCHEMA, thrift.LIST, [_root(old, 1), *schema])
    out = io.BytesIO()
    # In the clear, and so in memory alone.
    writer = ModularWriter(Sink(out), FileEncryption(None, old.file.location, secrets.token_bytes))
    writer.begin(footer, [column.path for column in columns], group.integer(RowGroup.NUM_ROWS))
    # Sorting columns are ordinals, which mean other columns in this file.
    writer.add_groups([(group.copy(without=(RowGroup.SORTING_COLUMNS,)), columns)])
    writer.finish()

    # In nanoseconds, moments that a table may hold would come out as others.
    return pq.ParquetFile(pa.BufferReader(out.getvalue()), coerce_int96_timestamp_unit="us").read()


def _root(old: ProtectedLayout, children: int) -> Struct:
    root = old.schema[0].copy()
    root.set(SchemaElement.NUM_CHILDREN, thrift.I32, children)
    return root


def _with_leaves(elements: Sequence[Struct], leaves: Iterator[int], kept: Collection[int]) -> list[Struct]:
    """Return a column with some of its leaves; no node if it has none of them. `leaves` yields the ordinals of all, in their order."""
    if not elements[0].optional_integer(SchemaElement.NUM_CHILDREN):
        return list(elements) if next(leaves) in kept else []

    at, children = 1, []
    while at < len(elements):
        end = end_of(elements, at)
        children.append(_with_leaves(elements[at:end], leaves, kept))
        at = end

    there = [child for child in children if child]
    if not there:
        return []

    around = elements[0].copy()
    around.set(SchemaElement.NUM_CHILDREN, thrift.I32, len(there))

    return [around, *(node for child in there for node in child)]


def _as_hidden_column(elements: Sequence[Struct], field_id: int) -> list[Struct]:
    nodes = [element.copy(without=(SchemaElement.FIELD_ID,)) for element in elements]
    nodes[0].set(SchemaElement.NAME, thrift.BINARY, hidden_name(field_id).encode())
    return nodes
