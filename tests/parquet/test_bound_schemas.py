"""What a footer says of a protected column is bound to its key: no other type, level, field id or structure opens it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    UUIDType,
)

from tablecrypt._arrow_types import empty_values
from tablecrypt.errors import FormatError, TablecryptError
from tablecrypt.keys.bound_schemas import BoundSchema
from tablecrypt.parquet import thrift
from tablecrypt.parquet.columns_apart import end_of
from tablecrypt.parquet.protected.hidden_columns import hidden_field_id, narrowed
from tablecrypt.parquet.protected.protected_layout import ProtectedLayout
from tablecrypt.parquet.storage import source_of
from tablecrypt.parquet.structs import FileMetaData, SchemaElement
from tablecrypt.parquet.thrift import Struct
from tests.support.hidden_column_files import ProtectedFile

INNER: Final = 5
OUTER: Final = 2
PRIMITIVES: Final[tuple[IcebergType, ...]] = tuple(
    NestedField(1, "value", name).field_type
    for name in (
        *("boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"),
        *("string", "binary", "fixed[5]", "uuid", "decimal(9, 2)", "decimal(18, 0)", "decimal(19, 4)", "decimal(38, 10)"),
    )
)


def fields(kinds: st.SearchStrategy[IcebergType]) -> st.SearchStrategy[IcebergType]:
    """Types with these inside. Their field ids are given later."""
    lists = st.builds(lambda kind, required: ListType(0, kind, required), kinds, st.booleans())
    maps = st.builds(lambda kind, required: MapType(0, StringType(), 0, kind, required), kinds, st.booleans())
    # The placeholder of an optional struct is null, and Arrow writes no null struct with required fields.
    structs = st.lists(kinds, min_size=1, max_size=3).map(
        lambda each: StructType(*(NestedField(0, f"f{at}", kind) for at, kind in enumerate(each)))
    )
    return st.one_of(lists, maps, structs)


# Arrow makes no array of a list or struct of uuids of Python values.
TYPES: Final = st.recursive(st.sampled_from([each for each in PRIMITIVES if not isinstance(each, UUIDType)]), fields, max_leaves=3)


def numbered(kind: IcebergType, ids: Any) -> IcebergType:
    if isinstance(kind, ListType):
        return ListType(next(ids), numbered(kind.element_type, ids), kind.element_required)
    if isinstance(kind, MapType):
        return MapType(next(ids), numbered(kind.key_type, ids), next(ids), numbered(kind.value_type, ids), kind.value_required)
    if isinstance(kind, StructType):
        return StructType(*(NestedField(next(ids), each.name, numbered(each.field_type, ids), each.required) for each in kind.fields))
    return kind


def schema_of(kind: IcebergType, required: bool = False, in_struct: bool = True) -> Schema:
    """A table's schema with a protected column of this type, in a struct or not."""
    inner = NestedField(INNER, "secret", numbered(kind, iter(range(10, 100))), required)
    outer = NestedField(OUTER, "person", StructType(NestedField(3, "name", "string"), inner)) if in_struct else inner
    return Schema(NestedField(1, "id", "long"), outer)


def value_of(kind: IcebergType) -> Any:
    """A value of a type that leaves nothing out."""
    if isinstance(kind, StructType):
        return {each.name: value_of(each.field_type) for each in kind.fields}
    if isinstance(kind, ListType):
        return [value_of(kind.element_type)]
    if isinstance(kind, MapType):
        return [(value_of(kind.key_type), value_of(kind.value_type))]
    return empty_values(schema_to_pyarrow(kind), 1)[0].as_py()


def file_of(schema: Schema) -> ProtectedFile:
    arrow = schema_to_pyarrow(schema)
    row = [pa.array([value_of(field.field_type)], column.type) for field, column in zip(schema.fields, arrow, strict=True)]
    return ProtectedFile(pa.Table.from_arrays(row, schema=arrow).take([0, 0]), (INNER,))


def stored_schema(file: ProtectedFile) -> BoundSchema:
    return ProtectedLayout(source_of(file.stored), file.key_metadata).schemas[INNER]


def nodes_of(footer: Struct) -> tuple[list[Struct], list[Struct]]:
    """The nodes of the protected column: of the placeholder, with the struct around it, and of the hidden column."""
    placeholder: list[Struct] = []
    hidden: list[Struct] = []
    into: list[Struct] = []
    for element in footer.structs(FileMetaData.SCHEMA)[1:]:
        name = element.binary(SchemaElement.NAME).decode()
        if name in ("id", "name"):
            continue
        if name in ("person", "secret") and into is not hidden:
            into = placeholder
        elif hidden_field_id(name) is not None:
            into = hidden
        into.append(element)
    assert len(placeholder) == len(hidden)
    return placeholder, hidden


NUMBERS: Final = (
    *(SchemaElement.TYPE, SchemaElement.TYPE_LENGTH, SchemaElement.REPETITION_TYPE, SchemaElement.NUM_CHILDREN),
    *(SchemaElement.CONVERTED_TYPE, SchemaElement.SCALE, SchemaElement.PRECISION, SchemaElement.FIELD_ID),
)
UNKNOWN_TO_US: Final = 11
LOGICAL: Final = st.one_of(
    st.sampled_from([1, 2, 3, 4, 6, 11, 12, 13, 14]).map(lambda kind: Struct({kind: thrift.Field(thrift.STRUCT, Struct())})),
    st.builds(
        lambda kind, utc, unit: Struct(
            {
                kind: thrift.Field(
                    thrift.STRUCT,
                    Struct(
                        {
                            1: thrift.Field(thrift.TRUE if utc else thrift.FALSE, utc),
                            2: thrift.Field(thrift.STRUCT, Struct({unit: thrift.Field(thrift.STRUCT, Struct())})),
                        }
                    ),
                )
            }
        ),
        st.sampled_from([7, 8]),
        st.booleans(),
        st.integers(1, 3),
    ),
    st.builds(
        lambda scale, precision: Struct(
            {5: thrift.Field(thrift.STRUCT, Struct({1: thrift.Field(thrift.I32, scale), 2: thrift.Field(thrift.I32, precision)}))}
        ),
        st.integers(0, 38),
        st.integers(1, 38),
    ),
    st.builds(
        lambda width, signed: Struct(
            {
                10: thrift.Field(
                    thrift.STRUCT,
                    Struct(
                        {1: thrift.Field(thrift.BYTE, bytes([width])), 2: thrift.Field(thrift.TRUE if signed else thrift.FALSE, signed)}
                    ),
                )
            }
        ),
        st.sampled_from([8, 16, 32, 64]),
        st.booleans(),
    ),
)


def a_change(data: st.DataObject, element: Struct) -> Callable[[Struct], None]:
    """Draw another value of one field of a node."""
    field_id = data.draw(st.sampled_from([*NUMBERS, SchemaElement.LOGICAL_TYPE, UNKNOWN_TO_US]), "field")
    field = element.fields.get(field_id)
    if field is not None and data.draw(st.booleans(), "left out"):
        return lambda changed: changed.remove(field_id)
    if field_id == SchemaElement.LOGICAL_TYPE:
        logical = data.draw(LOGICAL, "logical type").encode()
        if field is not None and field.value == logical:
            return lambda changed: changed.remove(field_id)
        return lambda changed: changed.set(field_id, thrift.STRUCT, logical)
    kind, number = data.draw(st.sampled_from([thrift.I32, thrift.I64]), "kind"), data.draw(st.integers(0, 40), "number")
    if field is not None and field.value == number:
        number += 1
    return lambda changed: changed.set(field_id, kind, number)


@settings(max_examples=50, deadline=None)
@given(data=st.data(), kind=TYPES, required=st.booleans(), in_struct=st.booleans())
def test_no_single_field_of_a_footer_says_something_else_of_a_protected_column(
    data: st.DataObject, kind: IcebergType, required: bool, in_struct: bool
) -> None:
    file = file_of(schema_of(kind, required, in_struct))
    column = "person" if in_struct else "secret"
    assert file.read([column], INNER).num_rows == 2
    in_both = data.draw(st.booleans(), "in both")

    def change(footer: Struct, _: list[list[Struct]]) -> None:
        placeholder, hidden = nodes_of(footer)
        at = data.draw(st.integers(0, len(placeholder) - 1), "node")
        of_hidden_column = not in_both and data.draw(st.booleans(), "of the hidden column")
        changed = a_change(data, (hidden if of_hidden_column else placeholder)[at])
        for element in [placeholder[at], hidden[at]] if in_both else [hidden[at] if of_hidden_column else placeholder[at]]:
            changed(element)

    stored = file.changed(change)
    if stored == file.changed(lambda footer, chunks: None):
        return
    with pytest.raises(TablecryptError):
        file.read([column], INNER, stored=stored)


def test_fields_of_a_protected_struct_do_not_change_places() -> None:
    file = file_of(schema_of(StructType(NestedField(0, "first", "string"), NestedField(0, "last", "string"))))

    def exchange(name: int, of: Callable[[tuple[list[Struct], list[Struct]]], list[Struct]]) -> bytes:
        def change(footer: Struct, _: list[list[Struct]]) -> None:
            one, other = of(nodes_of(footer))[-2:]
            one.fields[name], other.fields[name] = other.fields[name], one.fields[name]

        return file.changed(change)

    for stored in (
        exchange(SchemaElement.FIELD_ID, lambda nodes: nodes[0]),
        exchange(SchemaElement.NAME, lambda nodes: nodes[0]),
        exchange(SchemaElement.NAME, lambda nodes: nodes[1]),
    ):
        with pytest.raises(TablecryptError, match=r"does not have the shape|another type|is that of another file"):
            file.read(["person"], INNER, stored=stored)


def test_structs_that_are_nested_without_end_are_no_recursion() -> None:
    def node(children: int) -> Struct:
        return Struct({SchemaElement.NUM_CHILDREN: thrift.Field(thrift.I32, children)})

    inner = node(0)
    inner.set(SchemaElement.FIELD_ID, thrift.I32, INNER)
    schema = [*(node(1) for _ in range(50_000)), inner]
    assert len(narrowed(schema, INNER)) == len(schema)
    assert narrowed(schema, OUTER) == []
    with pytest.raises(FormatError, match="no tree"):
        end_of([node(2), inner], 0)


def test_other_names_in_placeholder_and_hidden_column_alike_change_nothing() -> None:
    file = file_of(schema_of(StructType(NestedField(0, "first", "string"))))

    def rename(footer: Struct, chunks: list[list[Struct]]) -> None:
        for nodes in nodes_of(footer):
            nodes[-1].set(SchemaElement.NAME, thrift.BINARY, b"given")

    renamed = ProtectedFile.of(file.changed(rename), file.key_metadata, file.keys)
    assert stored_schema(renamed).digest() == stored_schema(file).digest()


def test_the_encoding_is_as_documented() -> None:
    """A change of it makes every file unreadable: the bytes of one schema, by hand."""
    schema = stored_schema(file_of(schema_of(TimestampType(), in_struct=False)))

    def number(field_id: int, value: int) -> bytes:
        return field_id.to_bytes(2, "big") + b"\5" + value.to_bytes(8, "big")

    micros = b"\0\1" + b"\0\2\x0c" + b"\0\0"
    timestamp = b"\0\2" + b"\0\1\x02" + b"\0\2\x0c" + micros
    logical = b"\0\x0a\x0c" + b"\0\1" + b"\0\x08\x0c" + timestamp
    numbers = [number(1, 2), number(3, 1), number(6, 10), number(9, INNER)]
    assert schema.encoded == (b"\0\5" + b"".join(numbers) + logical,)
    assert schema.digest().hex() == "325096d4840411105c7e9e4856890389550f34fc13b5fdec27176514bfee7873"


@settings(max_examples=30, deadline=None)
@given(kind=TYPES, required=st.booleans(), in_struct=st.booleans())
def test_what_this_package_writes_is_what_files_of_version_1_are_held_against(kind: IcebergType, required: bool, in_struct: bool) -> None:
    schema = schema_of(kind, required, in_struct)
    assert stored_schema(file_of(schema)).is_of(lambda field_id: [schema.find_field(field_id)])


def test_a_file_of_version_1_is_of_its_type_or_a_narrower_one() -> None:
    widened = {
        *((LongType(), IntegerType()), (DoubleType(), FloatType())),
        *((TimestampType(), DateType()), (TimestampNanoType(), DateType())),
    }
    found = {said: stored_schema(file_of(schema_of(said, in_struct=False))) for said in PRIMITIVES}
    for stored in PRIMITIVES:
        field = schema_of(stored, in_struct=False).find_field(INNER)
        fitting = {said for said in PRIMITIVES if found[said].is_of({INNER: [field]}.__getitem__)}
        assert fitting == {stored, *(said for table, said in widened if table == stored)}


def test_a_file_of_version_1_is_refused_where_the_table_does_not_know_the_column() -> None:
    assert not stored_schema(file_of(schema_of(StringType(), in_struct=False))).is_of(lambda field_id: [])
