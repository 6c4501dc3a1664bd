"""Footers that hold hidden columns apart: readers of the table's columns do not meet them, and they are read as if they were listed."""

from __future__ import annotations

import io
from base64 import b64decode, b64encode
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tablecrypt import parquet
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, FormatError, TablecryptError, TamperedFileError
from tablecrypt.parquet import FileKeys, thrift
from tablecrypt.parquet.columns_apart import ENTRY, set_apart, with_columns_apart
from tablecrypt.parquet.footer import plain_end, read_footer
from tablecrypt.parquet.protected.carried_over_columns import blank_rows_beside_hidden_columns, reencrypt_beside_hidden_columns
from tablecrypt.parquet.protected.hidden_columns import HIDDEN_PREFIX
from tablecrypt.parquet.storage import source_of
from tablecrypt.parquet.structs import FILE_META_DATA_SHAPE, FileMetaData, KeyValue, RowGroup, SchemaElement
from tablecrypt.parquet.thrift import Struct, structs_of
from tablecrypt.parquet.uniform import ReadRequest
from tests.parquet.test_hidden_column_rewriting import REPLACEMENTS, Rewritten
from tests.support.hidden_column_files import NOTE, PROTECTED, SCHEMA, SSN, TABLE, ProtectedFile, field


@pytest.fixture(scope="module")
def file() -> ProtectedFile:
    return ProtectedFile()


@pytest.fixture(scope="module")
def listed(file: ProtectedFile) -> ProtectedFile:
    """The file as releases wrote it that listed hidden columns among the others."""
    return ProtectedFile.of(file.changed(lambda _, __: None, listed=True), file.key_metadata, file.keys)


def lists_hidden_columns(file: ProtectedFile) -> bool:
    names = [element.binary(SchemaElement.NAME).decode() for element in file.stored_footer().structs(FileMetaData.SCHEMA)]
    return any(name.startswith(HIDDEN_PREFIX) for name in names)


def test_a_reader_of_parquet_meets_columns_of_the_table_alone_and_all_under_the_files_key(file: ProtectedFile) -> None:
    properties = pe.create_decryption_properties(
        footer_key=file.key_metadata.encryption_key.reveal(), aad_prefix=file.key_metadata.aad_prefix
    )
    opened = pq.ParquetFile(io.BytesIO(file.stored), decryption_properties=properties)

    assert opened.schema_arrow.names == SCHEMA.names
    for group in range(opened.metadata.num_row_groups):
        for column in range(opened.metadata.num_columns):
            # Arrow ends the process here over a column that is under a key of its own.
            assert not opened.metadata.row_group(group).column(column).path_in_schema.startswith(HIDDEN_PREFIX)
    assert opened.read(columns=["id", "note"])["id"].to_pylist() == TABLE["id"].to_pylist()


def test_arrow_reads_columns_in_the_types_that_were_written_with_and_without_the_keys() -> None:
    """It takes them from the Arrow schema in the footer, where that has as many columns as the footer lists."""
    text = pa.large_string()
    schema = pa.schema([field("secret", text, 1), field("shown", text, 2)])
    file = ProtectedFile(pa.table({"secret": ["a", "b"], "shown": ["c", "d"]}, schema=schema), protected=(1,))

    for opened in (file.open(1), file.open(masks_of=(1,)), file.open()):
        assert opened.schema.types == [text, text]
        assert ENTRY not in (opened.schema.metadata or {})
    assert file.read(["secret", "shown"], 1).to_pylist() == [{"secret": "a", "shown": "c"}, {"secret": "b", "shown": "d"}]


def test_what_is_set_apart_comes_back_as_it_was(file: ProtectedFile) -> None:
    stored = file.stored_footer()
    whole = with_columns_apart(stored)

    assert whole.encode() != stored.encode()
    assert set_apart(whole, lambda name: name.startswith(HIDDEN_PREFIX)).encode() == stored.encode()
    assert with_columns_apart(whole) is whole, "it holds nothing apart"
    assert set_apart(stored, lambda name: name.startswith(HIDDEN_PREFIX)) is stored


@settings(max_examples=60)
@given(names=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True), data=st.data())
def test_any_last_columns_are_set_apart_and_come_back(names: list[str], data: st.DataObject) -> None:
    kinds = st.sampled_from([pa.int64(), pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))]), pa.map_(pa.string(), pa.int64())])
    schema = pa.schema([(name, data.draw(kinds)) for name in names], metadata=data.draw(st.sampled_from([None, {"of": "the user"}])))
    footer = footer_of(schema, data.draw(st.integers(0, 3)))
    apart = set(names[data.draw(st.integers(0, len(names))) :])

    stored = set_apart(footer, apart.__contains__)

    found = pq.read_metadata(pa.BufferReader(b"PAR1" + plain_end(stored)))
    assert found.schema.to_arrow_schema().names == [name for name in names if name not in apart]
    assert with_columns_apart(parsed(stored)).encode() == footer.encode()


def footer_of(schema: pa.Schema, row_groups: int) -> Struct:
    rows = pa.Table.from_batches([pa.RecordBatch.from_arrays([pa.nulls(row_groups, each) for each in schema.types], schema=schema)])
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema) as writer:
        for group in range(row_groups):
            writer.write_table(rows.slice(group, 1))
    stored = sink.getvalue().to_pybytes()
    source = source_of(stored)
    return read_footer(source).open(None)


def parsed(footer: Struct) -> Struct:
    """As a reader finds it in a file."""
    return read_footer(source_of(b"PAR1" + plain_end(footer))).open(None)


def test_columns_before_others_are_not_set_apart() -> None:
    footer = footer_of(pa.schema([("a", pa.int64()), ("b", pa.int64())]), 1)
    with pytest.raises(FormatError, match="come before others"):
        set_apart(footer, "a".__eq__)


def test_a_footer_without_a_schema_is_refused() -> None:
    stored = parsed(set_apart(footer_of(pa.schema({"a": pa.int64(), "b": pa.int64()}), 1), lambda name: name == "b"))
    stored.set(FileMetaData.SCHEMA, thrift.LIST, [])
    for take in (with_columns_apart, lambda footer: set_apart(footer, lambda name: False)):
        with pytest.raises(FormatError, match="its schema has no root"):
            take(stored)


def test_files_that_list_hidden_columns_are_read(listed: ProtectedFile) -> None:
    assert lists_hidden_columns(listed)
    assert listed.read(SCHEMA.names, *PROTECTED).to_pylist() == TABLE.to_pylist()
    assert listed.open(masks_of=PROTECTED).masks == {NOTE}
    assert parquet.verify(listed.stored, listed.all_keys).complete


def test_every_rewriting_of_such_a_file_sets_its_hidden_columns_apart(listed: ProtectedFile) -> None:
    """With the columns' keys, and without them: under another DEK, with and without blanked rows."""
    again = Rewritten(listed, listed.stored, listed.key_metadata, REPLACEMENTS)
    assert again.rows() == TABLE.to_pylist()
    assert not lists_hidden_columns(ProtectedFile.of(again.stored, again.key_metadata, again.keys))

    new = StandardKeyMetadata(Secret(b"n" * 16), listed.key_metadata.aad_prefix)
    for write in (carry_over, blank):
        carried = ProtectedFile.of(write(listed, new), new, listed.keys)
        assert not lists_hidden_columns(carried)
        assert carried.read(["ssn", "note"], *PROTECTED).to_pylist() == TABLE.select(["ssn", "note"]).to_pylist()


def carry_over(old: ProtectedFile, new: StandardKeyMetadata) -> bytes:
    out = io.BytesIO()
    length = reencrypt_beside_hidden_columns(io.BytesIO(old.stored), out, old.key_metadata, new, "old")
    assert length == len(out.getvalue())
    return out.getvalue()


def blank(old: ProtectedFile, new: StandardKeyMetadata) -> bytes:
    out = io.BytesIO()
    _, length = blank_rows_beside_hidden_columns(io.BytesIO(old.stored), out, old.key_metadata, new, [0], "old")
    assert length == len(out.getvalue())
    return out.getvalue()


def encrypted(rows: pa.Table, sink: io.BytesIO, keys: FileKeys) -> int:
    plain = io.BytesIO()
    pq.write_table(rows, plain)
    return parquet.encrypt(plain.getvalue(), sink, keys)


def twice(entry: Struct) -> list[Struct]:
    return [entry, entry]


def no_base64(entry: Struct) -> list[Struct]:
    entry.set(KeyValue.VALUE, thrift.BINARY, b"not base64!")
    return [entry]


def without_a_value(entry: Struct) -> list[Struct]:
    entry.remove(KeyValue.VALUE)
    return [entry]


def cut(entry: Struct) -> list[Struct]:
    entry.set(KeyValue.VALUE, thrift.BINARY, entry.binary(KeyValue.VALUE)[:-8])
    return [entry]


def empty(entry: Struct) -> list[Struct]:
    entry.set(KeyValue.VALUE, thrift.BINARY, b64encode(Struct().encode()))
    return [entry]


def with_a_line_break(entry: Struct) -> list[Struct]:
    """Were it passed over, many texts would be one entry."""
    value = entry.binary(KeyValue.VALUE)
    entry.set(KeyValue.VALUE, thrift.BINARY, value[:4] + b"\n" + value[4:])
    return [entry]


def without_a_list_of_chunks(entry: Struct) -> list[Struct]:
    def without(apart: Struct) -> None:
        for group in apart.structs(FileMetaData.ROW_GROUPS):
            group.remove(RowGroup.COLUMNS)

    return changed_entry(entry, without)


def without_a_row_group(entry: Struct) -> list[Struct]:
    return changed_entry(entry, lambda apart: apart.structs(FileMetaData.ROW_GROUPS).pop())


def without_chunks(entry: Struct) -> list[Struct]:
    def empty_groups(apart: Struct) -> None:
        for group in apart.structs(FileMetaData.ROW_GROUPS):
            group.set(RowGroup.COLUMNS, thrift.LIST, [])

    return changed_entry(entry, empty_groups)


def without_a_column(entry: Struct) -> list[Struct]:
    return changed_entry(entry, lambda apart: apart.structs(FileMetaData.SCHEMA).pop())


def changed_entry(entry: Struct, change: Callable[[Struct], object]) -> list[Struct]:
    apart = thrift.decode(b64decode(entry.binary(KeyValue.VALUE)), FILE_META_DATA_SHAPE)
    change(apart)
    entry.set(KeyValue.VALUE, thrift.BINARY, b64encode(apart.encode()))
    return [entry]


def with_entry(file: ProtectedFile, change: Callable[[Struct], list[Struct]]) -> bytes:
    """The file with another entry, as somebody makes it who has the table's key."""
    footer = file.stored_footer()
    entries = structs_of(footer, FileMetaData.KEY_VALUE_METADATA)
    (entry,) = [each for each in entries if each.binary(KeyValue.KEY) == ENTRY]
    others = [each for each in entries if each is not entry]
    footer.set(FileMetaData.KEY_VALUE_METADATA, thrift.LIST, [*others, *change(entry)])
    return file.with_footer(footer)


@pytest.mark.parametrize(
    "change",
    [
        *(twice, no_base64, with_a_line_break, without_a_value, cut, empty),
        *(without_a_row_group, without_a_list_of_chunks, without_chunks, without_a_column),
    ],
    ids=lambda change: change.__name__,
)
def test_an_entry_that_no_writer_makes_gives_no_values(file: ProtectedFile, change: Callable[[Struct], list[Struct]]) -> None:
    with pytest.raises((FormatError, TamperedFileError)):
        file.read(["note"], NOTE, stored=with_entry(file, change))


def test_without_the_entry_the_file_has_no_protected_columns_and_says_so(file: ProtectedFile) -> None:
    """Then the table refuses it, or masks the columns, by when the column was declared."""
    opened = file.open(SSN, stored=with_entry(file, lambda _: []))
    assert opened.protected == frozenset()
    with pytest.raises(TablecryptError):
        list(opened.batches(ReadRequest(["ssn"])))


def test_hidden_columns_that_are_listed_and_apart_are_refused(file: ProtectedFile, listed: ProtectedFile) -> None:
    """Of two, the order would decide which values a reader gets."""
    footer = listed.stored_footer()
    footer.set(FileMetaData.KEY_VALUE_METADATA, thrift.LIST, structs_of(file.stored_footer(), FileMetaData.KEY_VALUE_METADATA))

    with pytest.raises(TamperedFileError, match="two hidden columns"):
        file.read(["ssn"], SSN, stored=listed.with_footer(footer))


@pytest.mark.parametrize("write", [parquet.write_table, encrypted], ids=["rows", "a file"])
def test_an_entry_of_the_users_own_by_that_name_is_refused_before_anything_is_written(write: Callable[..., object]) -> None:
    rows = pa.table({"a": [1]}).replace_schema_metadata({ENTRY: b"mine"})
    sink = io.BytesIO()
    with pytest.raises(ConfigurationError, match="rename that entry"):
        write(rows, sink, FileKeys(b"k" * 16))
    assert sink.getvalue() in (b"", b"PARE")
