"""Rows of Spark, Ray and Daft as rows of a table: columns by name, in Arrow types that the table takes.

These engines call most columns nullable, and Ray and Daft give a column of nulls alone the type null. Whether a required column holds nulls
is known from its values; other types have to fit as they have to in `table.append`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import pyarrow as pa
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from tablecrypt._arrow_types import is_list
from tablecrypt.errors import ConfigurationError
from tablecrypt.parquet.text_columns import check_utf8
from tablecrypt.table._pyiceberg.arrow import check_pyarrow_schema_compatible


def stored_schema(given: pa.Schema, table: Schema) -> pa.Schema:
    """Return the Arrow schema in which rows are written.

    Args:
        given: of the rows.
        table: the table's.

    Raises:
        ConfigurationError: a column is missing, unknown, or of a type that does not fit.
    """
    wanted = schema_to_pyarrow(table, include_field_ids=False)
    checked = pa.schema([_checked_field(field, wanted) for field in given])
    try:
        check_pyarrow_schema_compatible(table, checked, format_version=3)
    except (ValueError, UnsupportedPyArrowTypeException) as error:
        raise ConfigurationError(f"the rows do not fit the table: {_misfit(checked, wanted) or str(error).splitlines()[0]}") from error

    # Nested columns of other blocks may have fields that are missing here.
    return pa.schema([wanted.field(field.name) if pa.types.is_nested(field.type) else field for field in checked])


def _misfit(stored: pa.Schema, wanted: pa.Schema) -> str:
    """What PyIceberg draws as a table, in a line."""
    types = {field.name: field.type for field in wanted}
    found = ((field.name, field.type, types[field.name]) for field in stored if field.name in types)
    return "; ".join(f"column {name!r} is {given}, and {own} in the table" for name, given, own in found if given != own)


def _checked_field(field: pa.Field, wanted: pa.Schema | pa.StructType) -> pa.Field:
    at = wanted.get_field_index(field.name)
    # PyIceberg's check of the whole schema names the column that the table lacks.
    if at < 0:
        return field
    own = wanted.field(at)
    return pa.field(field.name, _checked_type(field.type, own.type), own.nullable)


def _checked_type(given: pa.DataType, own: pa.DataType) -> pa.DataType:
    """The type that is compared with the table's own: nullable where that is, and of what holds nulls alone, that."""
    if pa.types.is_null(given):
        return own
    if pa.types.is_struct(given) and pa.types.is_struct(own):
        return pa.struct([_checked_field(field, own) for field in given])
    if pa.types.is_map(given) and pa.types.is_map(own):
        key, item = _checked_type(given.key_type, own.key_type), _checked_type(given.item_type, own.item_type)
        return pa.map_(own.key_field.with_type(key), own.item_field.with_type(item))
    if (is_list(given) or pa.types.is_fixed_size_list(given)) and is_list(own):
        return pa.large_list(own.value_field.with_type(_checked_type(given.value_type, own.value_type)))

    return given


def as_stored(rows: pa.Table, schema: pa.Schema, table: Schema) -> pa.Table:
    """Return rows in the schema that they are written in.

    Raises:
        ConfigurationError: a required column has nulls, a column is missing, or a value that its column cannot hold.
        FormatError: text is not UTF-8.
    """
    check_utf8(rows)
    columns = []
    for field in schema:
        # Engines do not promise that every block has the columns of the first, whose schema the file already has.
        if field.name not in rows.column_names:
            raise ConfigurationError(f"column {field.name!r} is in some parts of the rows and not in others")

        column = rows.column(field.name)
        for chunk in column.chunks:
            check_nulls(chunk, table.find_field(field.name), field.name)

        try:
            # The cast is a safe one: a value that overflows or loses digits is an error and is not stored changed.
            columns.append(column.cast(field.type))
        except pa.ArrowException as error:
            raise ConfigurationError(f"column {field.name!r} holds a value that {field.type} cannot hold: {error}") from error

    # Without this check the values of a column that only later blocks have would be dropped without an error.
    if unknown := set(rows.column_names) - set(schema.names):
        raise ConfigurationError(f"column {sorted(unknown)[0]!r} is in some parts of the rows and not in others")

    return pa.table(columns, schema=schema)


def stored_reader(tables: Iterable[pa.Table], table: Schema) -> pa.RecordBatchReader:
    """Return the rows of tables, of which there is one at least, in the schema that the first one's are written in.

    Raises:
        ConfigurationError, FormatError: rows do not fit the table; later ones as they are read.
    """
    tables = iter(tables)
    first = next(tables)
    schema = stored_schema(first.schema, table)
    return pa.RecordBatchReader.from_batches(
        schema, (batch for each in chain([first], tables) for batch in as_stored(each, schema, table).to_batches())
    )


def check_nulls(array: pa.Array, field: NestedField, path: str) -> None:
    """Check that a column and the fields in it hold no nulls where the table requires values, and no field that the table does not have.

    Raises:
        ConfigurationError: one does, by its name.
    """
    if field.required and array.null_count:
        raise ConfigurationError(f"column {path!r} is required in the table, but the DataFrame has nulls in it")
    # Of no lists, Java writes no offsets that could be followed to their values.
    if not len(array) or field.field_type.is_primitive or pa.types.is_null(array.type):
        return
    # Arrow stores children for null parents too, and those nulls violate nothing.
    for child, of_table, name in _children(array.drop_null(), field.field_type, path):
        check_nulls(child, of_table, f"{path}.{name}")


def _children(array: pa.Array, iceberg: IcebergType, path: str) -> list[tuple[pa.Array, NestedField, str]]:
    kind = array.type
    if isinstance(iceberg, StructType) and pa.types.is_struct(kind):
        fields = {field.name: field for field in iceberg.fields}
        # Arrow's cast would drop its values without an error.
        if unknown := [field.name for field in kind if field.name not in fields]:
            raise ConfigurationError(f"column {f'{path}.{unknown[0]}'!r} is in some parts of the rows, and not in the table")
        return [(child, fields[field.name], field.name) for child, field in zip(array.flatten(), kind, strict=True)]
    if isinstance(iceberg, ListType) and (is_list(kind) or pa.types.is_fixed_size_list(kind)):
        return [(array.flatten(), iceberg.element_field, "element")]
    if isinstance(iceberg, MapType) and pa.types.is_map(kind):
        # `items` of a slice are those of the whole map array: only the offsets say which ones belong to these rows.
        return [(pa.ListArray.from_arrays(array.offsets, array.items).flatten(), iceberg.value_field, "value")]

    # What is of another kind cannot be cast.
    return []
