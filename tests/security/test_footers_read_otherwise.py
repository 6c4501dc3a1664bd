"""Attacks on which column a reader takes for a protected one: footers that Arrow and PyIceberg read otherwise than they are checked.

The analyst may commit and has the table's key, so they can write any footer: beside hidden columns of the table, which stay as they are,
and under an entry of the manifest like that of an honest file. Each attack here had a right-holder read text of the analyst's as values of
a protected column, or values of it as text of an unprotected one, which the next compaction writes under the table's key.
"""

from __future__ import annotations

import json
import random
from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final, cast

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.types import LongType, NestedField, StringType, StructType

from tablecrypt import maintenance as m
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError, TablecryptError, TamperedFileError
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.parquet import thrift
from tablecrypt.parquet.structs import FileMetaData, KeyValue, SchemaElement
from tablecrypt.parquet.thrift import Struct, structs_of
from tablecrypt.table.reader import TaskReader
from tablecrypt.table.table import EncryptedTable
from tests.support.hidden_column_files import ProtectedFile
from tests.support.protected_tables import COLUMN_KEY, TABLE_KEY, Clients, add_once_more
from tests.support.tables import data_files, path_of

ID, NOTE, SECRET, PERSON, EMAIL, NAME = range(1, 7)
ROWS: Final = [
    {"id": number, "note": f"note {number}", "secret": f"secret {number}", "person": {"email": f"mail {number}", "name": f"name {number}"}}
    for number in range(3)
]
Footer = Callable[[Struct, list[list[Struct]]], None]


@pytest.fixture
def table(both: Clients) -> EncryptedTable:
    person = StructType(NestedField(EMAIL, "email", StringType()), NestedField(NAME, "name", StringType()))
    schema = Schema(
        NestedField(ID, "id", LongType()),
        NestedField(NOTE, "note", StringType()),
        NestedField(SECRET, "secret", StringType()),
        NestedField(PERSON, "person", person),
    )
    properties = {"encryption.key-id": TABLE_KEY, "encryption.column-keys": f"{COLUMN_KEY}: secret, person.email"}
    table = cast("EncryptedTable", both.payroll.create_table("db.t", schema, properties=properties))
    table.append(pa.Table.from_pylist(ROWS, schema=table.schema().as_arrow()))
    return table


def with_another_footer(table: EncryptedTable, change: Footer) -> str:
    """Add the table's file once more, with a footer that somebody wrote who has its key. Returns its location."""
    (file,) = data_files(table)
    stored = ProtectedFile.of(path_of(file.file_path).read_bytes(), key_metadata_of(file), {}).changed(change)
    return add_once_more(table, file, stored)


def node(footer: Struct, name: str) -> Struct:
    return next(each for each in footer.structs(FileMetaData.SCHEMA) if each.binary(SchemaElement.NAME) == name.encode())


def set_arrow_schema(footer: Struct, **ids: int | str) -> None:
    """Leave an Arrow schema in the footer that says these field ids, by the columns' names."""

    def field(name: str, kind: pa.DataType) -> pa.Field:
        honest = {"id": ID, "note": NOTE, "secret": SECRET, "person": PERSON, "email": EMAIL, "name": NAME}
        return pa.field(name, kind, metadata={"PARQUET:field_id": str({**honest, **ids}[name])})

    person = pa.struct([field("email", pa.string()), field("name", pa.string())])
    said = pa.schema([field("id", pa.int64()), field("note", pa.string()), field("secret", pa.string()), field("person", person)])
    entry = Struct()
    entry.set(KeyValue.KEY, thrift.BINARY, b"ARROW:schema")
    entry.set(KeyValue.VALUE, thrift.BINARY, b64encode(said.serialize().to_pybytes()))
    others = [each for each in structs_of(footer, FileMetaData.KEY_VALUE_METADATA) if each.binary(KeyValue.KEY) != b"ARROW:schema"]
    footer.set(FileMetaData.KEY_VALUE_METADATA, thrift.LIST, [*others, entry])


def id_in_the_arrow_schema(footer: Struct, _: list[list[Struct]]) -> None:
    node(footer, "note").remove(SchemaElement.FIELD_ID)
    set_arrow_schema(footer, note=SECRET)


def id_in_the_arrow_schema_inside_a_struct(footer: Struct, _: list[list[Struct]]) -> None:
    node(footer, "name").remove(SchemaElement.FIELD_ID)
    set_arrow_schema(footer, name=EMAIL)


def id_in_other_digits(footer: Struct, _: list[list[Struct]]) -> None:
    node(footer, "name").remove(SchemaElement.FIELD_ID)
    set_arrow_schema(footer, name=f"0{EMAIL}")


def id_of_no_column(footer: Struct, _: list[list[Struct]]) -> None:
    node(footer, "note").remove(SchemaElement.FIELD_ID)
    set_arrow_schema(footer, note=99)


def negative_id(footer: Struct, _: list[list[Struct]]) -> None:
    node(footer, "note").set(SchemaElement.FIELD_ID, thrift.I32, -7)
    set_arrow_schema(footer, note=SECRET)


def id_of_another_kind(footer: Struct, _: list[list[Struct]]) -> None:
    node(footer, "note").set(SchemaElement.FIELD_ID, thrift.I64, NOTE)
    set_arrow_schema(footer, note=SECRET)


def no_id(footer: Struct, _: list[list[Struct]]) -> None:
    node(footer, "note").remove(SchemaElement.FIELD_ID)
    footer.remove(FileMetaData.KEY_VALUE_METADATA)


def node_that_arrow_passes_over(footer: Struct, _: list[list[Struct]]) -> None:
    """Without a type it is no column for Arrow, so that every column behind it is the one before."""
    root, first, note, *others = footer.structs(FileMetaData.SCHEMA)
    passed_over = note.copy(without=(SchemaElement.TYPE,))
    passed_over.set(SchemaElement.NAME, thrift.BINARY, b"another")
    passed_over.set(SchemaElement.FIELD_ID, thrift.I32, 99)
    footer.set(FileMetaData.SCHEMA, thrift.LIST, [root, passed_over, first, *others])
    footer.remove(FileMetaData.KEY_VALUE_METADATA)


def column_elsewhere(footer: Struct, _: list[list[Struct]]) -> None:
    """PyIceberg looks for a column by the name that its field id has anywhere in the file."""
    node(footer, "note").set(SchemaElement.FIELD_ID, thrift.I32, 99)
    moved = node(footer, "name")
    moved.set(SchemaElement.FIELD_ID, thrift.I32, NOTE)
    moved.set(SchemaElement.NAME, thrift.BINARY, b"secret")
    footer.remove(FileMetaData.KEY_VALUE_METADATA)


def name_twice(footer: Struct, _: list[list[Struct]]) -> None:
    node(footer, "note").set(SchemaElement.NAME, thrift.BINARY, b"secret")


def struct_twice(footer: Struct, _: list[list[Struct]]) -> None:
    """Two structs of a name, each with one of the fields."""
    root, *nodes = footer.structs(FileMetaData.SCHEMA)
    first, last = node(footer, "person"), node(footer, "name")
    again = first.copy()
    again.set(SchemaElement.FIELD_ID, thrift.I32, 99)
    for each in (first, again):
        each.set(SchemaElement.NUM_CHILDREN, thrift.I32, 1)
    root.set(SchemaElement.NUM_CHILDREN, thrift.I32, root.integer(SchemaElement.NUM_CHILDREN) + 1)
    at = nodes.index(last)
    footer.set(FileMetaData.SCHEMA, thrift.LIST, [root, *nodes[:at], again, *nodes[at:]])
    footer.remove(FileMetaData.KEY_VALUE_METADATA)


FOOTERS: Final[dict[str, Footer]] = {
    "an id that only the Arrow schema has": id_in_the_arrow_schema,
    "the same inside a struct": id_in_the_arrow_schema_inside_a_struct,
    "the same in other digits": id_in_other_digits,
    "the same of no column": id_of_no_column,
    "a negative id": negative_id,
    "an id of another kind of number": id_of_another_kind,
    "no id, and a name mapping": no_id,
    "a node that Arrow passes over": node_that_arrow_passes_over,
    "a column in a struct that it is not in": column_elsewhere,
    "a name twice": name_twice,
    "a name of a struct twice": struct_twice,
}


def map_names(table: EncryptedTable, **ids: int) -> None:
    """Set a name mapping by which columns without field ids have these."""
    honest = {"id": ID, "note": NOTE, "secret": SECRET}
    mapped: list[dict[str, Any]] = [{"field-id": field_id, "names": [name]} for name, field_id in {**honest, **ids}.items()]
    parts = [{"field-id": EMAIL, "names": ["email"]}, {"field-id": NAME, "names": ["name"]}]
    mapping = [*mapped, {"field-id": PERSON, "names": ["person"], "fields": parts}]
    table.transaction().set_properties({"schema.name-mapping.default": json.dumps(mapping)}).commit_transaction()


def test_a_file_that_is_added_once_more_is_read_as_it_was(table: EncryptedTable) -> None:
    with_another_footer(table, lambda footer, _: set_arrow_schema(footer))
    assert table.scan().to_arrow().to_pylist() == [*ROWS, *ROWS]
    assert m.verify(table).is_good


@pytest.mark.parametrize("attack", FOOTERS)
def test_a_footer_by_which_another_column_would_be_read_as_a_protected_one_is_refused(table: EncryptedTable, attack: str) -> None:
    if attack == "no id, and a name mapping":
        with pytest.raises(ConfigurationError, match="gives the name 'secret' of the protected column"):
            map_names(table, note=SECRET, secret=NOTE)
        map_names(table)
    location = with_another_footer(table, FOOTERS[attack])
    for columns in (("*",), ("secret",), ("note",), ("person.email",), ("id", "secret")):
        with pytest.raises((TamperedFileError, FormatError)):
            table.scan(selected_fields=columns).to_arrow()
    with pytest.raises((TamperedFileError, FormatError)):
        table.scan("secret = 'note 1'").to_arrow()
    with pytest.raises((TamperedFileError, FormatError)):
        m.compact(table, rewrite_all=True)
    assert [each.location for each in m.verify(table).bad] == [location]
    # It reads no rows and copies the columns as they are: what the copy says, readers refuse as before.
    if attack != "a column in a struct that it is not in":
        with pytest.raises((TamperedFileError, FormatError)):
            m.reencrypt(table)


def test_a_filter_that_ignores_case_compares_the_column_that_it_names_by_whatever_names_a_file_has(table: EncryptedTable) -> None:
    with_another_footer(table, lambda footer, _: node(footer, "name").set(SchemaElement.NAME, thrift.BINARY, b"EMAIL"))
    found = table.scan("Person.Email = 'mail 1'", case_sensitive=False).to_arrow().to_pylist()
    assert found == [ROWS[1], ROWS[1]]
    assert not table.scan("Person.Email = 'name 1'", case_sensitive=False).to_arrow().num_rows


def changed_at_random(choices: random.Random) -> Footer:
    """A few changes of what a footer says of columns, by somebody who knows what it means."""
    names, ids = [b"id", b"note", b"secret", b"person", b"email", b"name"], [*range(-1, 8), 99]

    def change(footer: Struct, chunks: list[list[Struct]]) -> None:
        elements = footer.structs(FileMetaData.SCHEMA)
        for _ in range(choices.randrange(1, 5)):
            element, at = choices.choice(elements[1:]), choices.randrange(1, len(elements))
            match choices.randrange(9):
                case 0:
                    element.remove(choices.choice([*element.fields]))
                case 1:
                    element.set(SchemaElement.FIELD_ID, choices.choice([thrift.I32, thrift.I64]), choices.choice(ids))
                case 2:
                    element.set(SchemaElement.NAME, thrift.BINARY, choices.choice(names))
                case 3:
                    element.set(SchemaElement.REPETITION_TYPE, thrift.I32, choices.randrange(3))
                case 4:
                    element.set(SchemaElement.NUM_CHILDREN, choices.choice([thrift.I32, thrift.I64]), choices.randrange(-1, 3))
                case 5:
                    elements.insert(at, element.copy())
                case 6 if len(elements) > 3:
                    del elements[at]
                case 7:
                    one, other = choices.randrange(len(chunks[0])), choices.randrange(len(chunks[0]))
                    chunks[0][one], chunks[0][other] = chunks[0][other], chunks[0][one]
                case _:
                    set_arrow_schema(footer, **{name.decode(): choices.choice(ids) for name in choices.sample(names, 2)})
        if choices.random() < 0.5:
            inside = sum(max(0, each.optional_integer(SchemaElement.NUM_CHILDREN) or 0) for each in elements[1:])
            elements[0].set(SchemaElement.NUM_CHILDREN, thrift.I32, len(elements) - 1 - inside)

    return change


def is_right(row: dict[str, Any]) -> bool:
    """Whether values of protected columns are nowhere else, and nothing else is in their place."""
    person = row["person"] or {"email": None, "name": None}
    protected, others = (row["secret"], person["email"]), (row["note"], person["name"])
    own = str(row["secret"]).startswith("secret") and str(person["email"] or "mail").startswith("mail")
    return own and not any(str(other).startswith(("secret", "mail")) for other in others) and protected != others


@pytest.mark.parametrize("count", [100, pytest.param(5_000, marks=pytest.mark.campaign)])
def test_values_of_protected_columns_are_read_as_theirs_alone_whatever_a_footer_says(table: EncryptedTable, count: int) -> None:
    (file,) = data_files(table)
    honest = ProtectedFile.of(path_of(file.file_path).read_bytes(), key_metadata_of(file), {})
    key_metadata = StandardKeyMetadata(honest.key_metadata.encryption_key, honest.key_metadata.aad_prefix)
    location = add_once_more(table, file, honest.stored, key_metadata=key_metadata.encode())
    (task,) = (task for task in table.scan().plan_files() if task.file.file_path == location)
    choices, read, refused = random.Random(count), 0, 0

    for _ in range(count):
        try:
            path_of(location).write_bytes(honest.changed(changed_at_random(choices), listed=choices.random() < 0.3))
        except FormatError:
            # Not even the helper finds its way in it.
            continue
        try:
            rows = pa.Table.from_batches(TaskReader(table.metadata, table.io, table.schema(), ALWAYS_TRUE).batches(task)).to_pylist()
        except TablecryptError:
            refused += 1
            continue

        read += 1
        assert all(map(is_right, rows)), rows

    assert read > count / 50
    assert refused > count / 4
