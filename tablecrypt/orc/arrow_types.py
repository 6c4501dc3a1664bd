"""Arrow's types as ORC has them: it knows one kind of list, of text and of bytes, and no dictionaries.

    large_list, fixed_size_list → list      large_string, string_view → string      large_binary, fixed_size_binary, binary_view → binary
    dictionary → the type of its values     every field may be null

Other types stay; whether ORC has them at all, pyarrow's writer says.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt


def as_orc_has_it(schema: pa.Schema) -> pa.Schema:
    """Return the schema that rows are cast to before they are written. Names and metadata stay."""
    return pa.schema([_field(field) for field in schema], schema.metadata)


def _field(field: pa.Field) -> pa.Field:
    return field.with_type(_type(field.type)).with_nullable(True)


def _type(kind: pa.DataType) -> pa.DataType:
    if pt.is_dictionary(kind):
        return _type(kind.value_type)
    if pt.is_struct(kind):
        return pa.struct([_field(kind.field(index)) for index in range(kind.num_fields)])
    if pt.is_map(kind):
        return pa.map_(_type(kind.key_type), _type(kind.item_type))
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return pa.list_(_field(kind.value_field))
    if pt.is_large_string(kind) or pt.is_string_view(kind):
        return pa.string()
    if pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind) or pt.is_binary_view(kind):
        return pa.binary()
    return kind
