"""Arrow arrays of protected fields: taken out of the rows as hidden columns, and replaced in the rows by what the placeholder holds.

    rows      id | person {name, email}                        email is protected, field id 7
    replaced  id | person {name, blank or mask}
    hidden    __protected__.7 {email}                          null where person is null, without field ids

A field is found by its id in the metadata of the Arrow schema. It is a top-level column or lies in structs alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tablecrypt._arrow_types import empty_values
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.parquet.layout import Chunk, FileLayout, plain_layout
from tablecrypt.parquet.protected.hidden_columns import Leaf, hidden_name, leaves_of
from tablecrypt.parquet.storage import source_of
from tablecrypt.parquet.structs import FileMetaData, PhysicalType

FIELD_ID_KEY: Final = b"PARQUET:field_id"

Replacement = Callable[[pa.Field, pa.Array], pa.Array]
"""Makes the array that the placeholder holds of a field and its values."""


def path_to(schema: pa.Schema, field_id: int) -> tuple[int, ...]:
    """Return the positions of a field: that of its top-level column, then those in structs.

    Raises:
        ConfigurationError: the schema has no such field outside of lists and maps.
    """
    path = _path_among(list(schema), field_id)
    if path is None:
        raise ConfigurationError(
            f"the protected column with field id {field_id} is not one of the columns that are written, or is inside a list or map"
        )
    return path


def hidden_field(schema: pa.Schema, path: tuple[int, ...], field_id: int) -> pa.Field:
    """Return the field of a hidden column."""
    return _without_field_ids(_narrowed_field(schema.field(path[0]), path[1:])).with_name(hidden_name(field_id))


def hidden_column(table: pa.Table, path: tuple[int, ...]) -> pa.ChunkedArray:
    """Return the values of a protected field as its hidden column holds them, still with the field ids in its type."""
    column = table.column(path[0])
    if len(path) == 1:
        return column
    field = _narrowed_field(table.schema.field(path[0]), path[1:])
    return pa.chunked_array([_narrowed(chunk, path[1:]) for chunk in column.chunks], field.type)


def written_by_arrow(table: pa.Table, location: str, **options: Any) -> FileLayout:
    """Return the layout of what pyarrow writes of a table, in the clear and in memory, as one row group.

    Args:
        table: the rows.
        location: names the file in errors.
        options: pyarrow.parquet.ParquetWriter's.
    """
    plaintext = pa.BufferOutputStream()
    with pq.ParquetWriter(plaintext, table.schema, **options) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
    return plain_layout(source_of(plaintext.getvalue(), location))


def written_as(leaves: Sequence[Leaf], table: pa.Table, location: str, **options: Any) -> list[Chunk]:
    """Return the chunks that pyarrow makes of rows for the schema of a file.

    Other writers store decimals in bytes of fixed length, and timestamps in 12 bytes. Readers decode pages by the schema, which stays: of
    another type, or another length of it, they would be other values.

    Args:
        leaves: of the rows' one column, as the file has them.
        table, location, options: as for `written_by_arrow`.

    Raises:
        FormatError: pyarrow writes the column in other types or levels than the file has.
    """
    options["use_deprecated_int96_timestamps"] = any(leaf.physical_type == PhysicalType.INT96 for leaf in leaves)
    for decimals_as_integers in (True, False):
        layout = written_by_arrow(table, location, store_decimal_as_integer=decimals_as_integers, **options)
        made = leaves_of(layout.metadata.structs(FileMetaData.SCHEMA))
        if len(made) == len(leaves) and all(new.is_encoded_as(old) for new, old in zip(made, leaves, strict=True)):
            return list(layout.row_groups[0])

    path = ".".join(leaves[0].path)
    raise FormatError(
        f"{location}: Arrow writes column {path} otherwise than the file has it; compact the file instead, which writes its rows again"
    )


def replaced(table: pa.Table, path: tuple[int, ...], replacement: Replacement) -> pa.Table:
    """Return the rows with another array in the place of a field."""
    field = table.schema.field(path[0])
    chunks = [replaced_array(field, chunk, path[1:], replacement) for chunk in table.column(path[0]).chunks]
    return table.set_column(path[0], field, pa.chunked_array(chunks, field.type))


def replaced_array(field: pa.Field, array: pa.Array, path: tuple[int, ...], replacement: Replacement) -> pa.Array:
    """Return an array of a field with another one in the place of a field in its structs; an empty path is the field itself."""
    if not path:
        return replacement(field, array)
    fields = list(field.type)
    children = [array.field(position) for position in range(len(fields))]
    children[path[0]] = replaced_array(fields[path[0]], children[path[0]], path[1:], replacement)
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())


def blanked_column(field: pa.Field, column: pa.ChunkedArray, rows: Sequence[int], around: Collection[tuple[str, ...]]) -> pa.ChunkedArray:
    """Return a column that holds nothing at some rows: null, or the empty value of its type where it is required.

    A struct around a protected field stays null or not, and what else is in it holds nothing.

    Args:
        field: the column's.
        column: its values.
        rows: from 0, in ascending order.
        around: the paths of the structs around protected fields.
    """
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    arrays = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    blanked: list[pa.Array] = []
    start = 0
    for each in arrays:
        end = start + len(each)
        blanked.append(_blanked(field, each, [row - start for row in rows[bisect_left(rows, start) : bisect_left(rows, end)]], around))
        start = end

    return pa.chunked_array(blanked, field.type)


def _blanked(
    field: pa.Field, array: pa.Array, rows: Sequence[int], around: Collection[tuple[str, ...]], above: tuple[str, ...] = ()
) -> pa.Array:
    if not rows:
        return array

    path = (*above, field.name)
    if path in around:
        fields = list(field.type)
        children = [_blanked(child, array.field(position), rows, around, path) for position, child in enumerate(fields)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())

    taken = np.arange(len(array))
    if field.nullable:
        is_blank = np.zeros(len(array), np.bool_)
        is_blank[rows] = True
        return array.take(pa.array(taken, mask=is_blank))

    # A required column takes no null: its blank rows are the one empty value behind the others.
    taken[rows] = len(array)

    return pa.concat_arrays([array, empty_values(field.type, 1)]).take(pa.array(taken))


def _path_among(fields: list[pa.Field], field_id: int) -> tuple[int, ...] | None:
    for position, field in enumerate(fields):
        if (field.metadata or {}).get(FIELD_ID_KEY) == str(field_id).encode():
            return (position,)
        if pa.types.is_struct(field.type):
            below = _path_among(list(field.type), field_id)
            if below is not None:
                return (position, *below)

    return None


def _narrowed_field(field: pa.Field, path: tuple[int, ...]) -> pa.Field:
    if not path:
        return field
    return field.with_type(pa.struct([_narrowed_field(field.type.field(path[0]), path[1:])]))


def _narrowed(array: pa.Array, path: tuple[int, ...]) -> pa.Array:
    if not path:
        return array
    field = _narrowed_field(array.type.field(path[0]), path[1:])
    # StructArray.field leaves out the nulls of the struct itself: they are given again.
    return pa.StructArray.from_arrays([_narrowed(array.field(path[0]), path[1:])], fields=[field], mask=array.is_null())


def _without_field_ids(field: pa.Field) -> pa.Field:
    # An id that was left at any level would have readers of the format find the hidden column by it.
    return pa.field(field.name, _type_without_field_ids(field.type), field.nullable)


def _type_without_field_ids(kind: Any) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_without_field_ids(child) for child in kind])
    if pa.types.is_map(kind):
        return pa.map_(_without_field_ids(kind.key_field), _without_field_ids(kind.item_field), kind.keys_sorted)
    if pa.types.is_large_list(kind):
        return pa.large_list(_without_field_ids(kind.value_field))
    if pa.types.is_list(kind):
        return pa.list_(_without_field_ids(kind.value_field))

    return kind
