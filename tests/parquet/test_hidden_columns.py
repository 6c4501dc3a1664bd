"""Protected columns in single files: what is read with which keys, what the table's key opens, and files that its holder has changed."""

from __future__ import annotations

import datetime as dt
import io
import secrets
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tablecrypt import parquet
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, ConfigurationError, FormatError, KeyNotFoundError, TablecryptError, TamperedFileError
from tablecrypt.parquet import FileKeys, thrift
from tablecrypt.parquet.chunk_modules import decrypt_chunk
from tablecrypt.parquet.layout import encrypted_layout
from tablecrypt.parquet.protected.hidden_column_reader import ColumnAccess
from tablecrypt.parquet.protected.hidden_columns import hidden_name
from tablecrypt.parquet.protected.protected_layout import ProtectedLayout
from tablecrypt.parquet.storage import source_of
from tablecrypt.parquet.structs import ColumnChunk, FileMetaData, SchemaElement
from tablecrypt.parquet.thrift import Struct
from tablecrypt.parquet.uniform import ReadRequest, UniformParquetFile
from tests.support.hidden_column_files import (
    EMAIL,
    ID,
    NOTE,
    PAID,
    PHONES,
    PROTECTED,
    ROWS,
    SCHEMA,
    SECRET,
    SSN,
    TABLE,
    TAGS,
    ProtectedFile,
    field,
)
from tests.support.mutations import flipped


@pytest.fixture(scope="module")
def file() -> ProtectedFile:
    return ProtectedFile()


@pytest.mark.parametrize("small_file_length", [0, 1 << 20])
def test_with_all_column_keys_the_rows_are_those_that_were_written(file: ProtectedFile, small_file_length: int) -> None:
    opened = file.open(*PROTECTED, small_file_length=small_file_length)
    rows = pa.Table.from_batches(opened.batches(ReadRequest(SCHEMA.names)))
    assert opened.schema.names == SCHEMA.names
    assert opened.protected == set(PROTECTED)
    assert rows.to_pylist() == TABLE.to_pylist()


def test_the_order_in_which_columns_are_protected_is_not_that_of_the_file() -> None:
    file = ProtectedFile(protected=tuple(reversed(PROTECTED)))
    assert file.read(SCHEMA.names, *PROTECTED).to_pylist() == TABLE.to_pylist()
    assert parquet.verify(file.stored, file.all_keys).unauthenticated_pages == 0


@pytest.mark.parametrize(("field_id", "column"), [(SSN, "ssn"), (EMAIL, "person"), (PHONES, "phones"), (TAGS, "tags"), (PAID, "paid")])
def test_one_column_key_opens_one_column(file: ProtectedFile, field_id: int, column: str) -> None:
    assert file.read([column, "id"], field_id).to_pylist() == TABLE.select([column, "id"]).to_pylist()
    others = next(each for each in ("ssn", "phones") if each != column)
    with pytest.raises(TablecryptError):
        file.read([others], field_id)


def test_without_column_keys_other_columns_and_masks_are_read_and_filtered(file: ProtectedFile) -> None:
    rows = pa.Table.from_batches(file.open().batches(ReadRequest(["id", "note"], pc.field("id") >= 998)))
    assert rows.to_pylist() == [{"id": 998, "note": "masked"}, {"id": 999, "note": "masked"}]


def test_statistics_of_a_hidden_column_prune_for_those_who_have_its_key_alone(file: ProtectedFile) -> None:
    wanted = pc.field("ssn") == "top-secret-705"
    positions = [batch.positions[0].as_py() for batch in file.open(SSN).positioned_batches(ReadRequest(["ssn"], wanted))]
    assert positions == [0, 600]
    assert [row["ssn"] for batch in file.open(SSN).batches(ReadRequest(["ssn"], wanted)) for row in batch.to_pylist()] == ["top-secret-705"]


def test_a_part_of_the_file_has_the_same_rows_with_and_without_the_key_of_its_first_column(file: ProtectedFile) -> None:
    starts = [file.metadata.row_group(group).column(1).data_page_offset for group in range(4)]
    part = range(starts[0] + 1, starts[2])
    with_key = pa.Table.from_batches(file.open(SSN).batches(ReadRequest(["id"], part=part)))
    without = pa.Table.from_batches(file.open().batches(ReadRequest(["id"], part=part)))
    assert with_key.equals(without)
    assert 0 < with_key.num_rows < ROWS


@pytest.mark.parametrize("column", ["ssn", "person", "phones", "tags", "paid"])
def test_an_error_placeholder_gives_no_rows(file: ProtectedFile, column: str) -> None:
    with pytest.raises(TablecryptError):
        file.read([column])


def test_a_hidden_column_is_read_as_nulls_beside_which_everything_is_as_it_was(file: ProtectedFile) -> None:
    opened = file.open(masks_of=PROTECTED)
    rows = pa.Table.from_batches(opened.batches(ReadRequest(SCHEMA.names))).to_pylist()
    assert opened.masks == {NOTE}
    assert [row["id"] for row in rows] == list(range(ROWS))
    assert {row["ssn"] for row in rows} == {""}, "a required column has empty values"
    assert [row["person"] for row in rows] == [None if number % 5 == 0 else {"name": f"n{number}", "email": None} for number in range(ROWS)]
    assert {(row["phones"], row["tags"], row["paid"], row["note"]) for row in rows} == {(None, None, None, "masked")}


def test_all_of_the_file_verifies_with_all_keys(file: ProtectedFile) -> None:
    checked = parquet.verify(file.stored, file.all_keys)
    assert checked.unauthenticated_pages == 0
    assert not checked.columns_in_the_clear


def test_every_byte_belongs_to_something_also_where_page_indexes_are_asked_for() -> None:
    file = ProtectedFile(write_page_index=True)
    assert parquet.verify(file.stored, file.all_keys).unauthenticated_pages == 0


def test_the_hidden_columns_are_columns_by_the_specification(file: ProtectedFile) -> None:
    rows = parquet.read_table(file.stored, file.all_keys, columns=[hidden_name(SSN), hidden_name(EMAIL)])
    assert rows[hidden_name(SSN)].to_pylist() == TABLE["ssn"].to_pylist()
    assert all(b"PARQUET:field_id" not in (field.metadata or {}) for field in rows.schema)


@pytest.mark.parametrize("options", [{}, {"compression": "none"}, {"use_dictionary": False}], ids=["zstd", "uncompressed", "plain pages"])
def test_the_key_of_the_table_opens_nothing_of_a_protected_column(options: dict[str, Any]) -> None:
    file = ProtectedFile(**options)
    keys = FileKeys(file.key_metadata.encryption_key, aad_prefix=file.key_metadata.aad_prefix)
    for chunk in encrypted_layout(source_of(file.stored), keys).chunks():
        if chunk.has_own_key:
            with pytest.raises(KeyNotFoundError):
                decrypt_chunk(chunk)
    opened = file.opened_by_the_table_key()
    assert not [each for each in opened if SECRET.search(each)]
    assert any(b"masked" in each or b"n7" in each for each in opened), "unprotected text is found, so the search finds text"


def test_a_reader_of_plain_tables_refuses_the_file(file: ProtectedFile) -> None:
    with pytest.raises(FormatError, match="with a key of its own"):
        UniformParquetFile(pa.BufferReader(file.stored), file.key_metadata, "memory")


def test_a_column_that_the_table_does_not_say_is_protected_is_refused(file: ProtectedFile) -> None:
    access = ColumnAccess(frozenset({SSN}), frozenset(), frozenset(), file.unwrap)
    with pytest.raises(FormatError, match="do not say that it is protected"):
        UniformParquetFile(pa.BufferReader(file.stored), file.key_metadata, "memory", access=access)


def test_a_column_named_like_a_hidden_column_is_not_written() -> None:
    table = TABLE.rename_columns([hidden_name(99), *SCHEMA.names[1:]])
    with pytest.raises(FormatError, match="names that begin with"):
        ProtectedFile(table, (EMAIL,))


def test_a_protected_field_that_rows_do_not_have_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not one of the columns"):
        ProtectedFile(TABLE, (99,))


def _hidden_column_ordinals(chunks: list[list[Struct]]) -> list[int]:
    return [at for at, chunk in enumerate(chunks[0]) if ColumnChunk.ENCRYPTED_COLUMN_METADATA in chunk]


def _swap_hidden_columns_of_two_row_groups(_: Struct, chunks: list[list[Struct]]) -> None:
    at = _hidden_column_ordinals(chunks)[0]
    chunks[0][at], chunks[1][at] = chunks[1][at], chunks[0][at]


def _swap_two_fields(_: Struct, chunks: list[list[Struct]]) -> None:
    first, other = _hidden_column_ordinals(chunks)[0], _hidden_column_ordinals(chunks)[-1]
    for group in chunks:
        group[first], group[other] = group[other], group[first]


def _placeholder_in_place_of_a_hidden_column(_: Struct, chunks: list[list[Struct]]) -> None:
    at = _hidden_column_ordinals(chunks)[0]
    for group in chunks:
        group[at] = group[0]


def _drop_a_hidden_column(metadata: Struct, chunks: list[list[Struct]]) -> None:
    elements = metadata.structs(FileMetaData.SCHEMA)
    metadata.set(FileMetaData.SCHEMA, thrift.LIST, elements[:-1])
    metadata.remove(FileMetaData.COLUMN_ORDERS)
    elements[0].set(SchemaElement.NUM_CHILDREN, thrift.I32, elements[0].integer(SchemaElement.NUM_CHILDREN) - 1)
    for group in chunks:
        del group[-1]


def _give_a_placeholder_another_field_id(metadata: Struct, _: list[list[Struct]]) -> None:
    metadata.structs(FileMetaData.SCHEMA)[1].set(SchemaElement.FIELD_ID, thrift.I32, ID)


def _give_a_hidden_column_a_field_id(metadata: Struct, _: list[list[Struct]]) -> None:
    metadata.structs(FileMetaData.SCHEMA)[-1].set(SchemaElement.FIELD_ID, thrift.I32, NOTE)


@pytest.mark.parametrize(
    "change",
    [
        _swap_hidden_columns_of_two_row_groups,
        _swap_two_fields,
        _placeholder_in_place_of_a_hidden_column,
        _give_a_placeholder_another_field_id,
        _give_a_hidden_column_a_field_id,
    ],
)
@pytest.mark.parametrize("listed", [False, True], ids=["apart", "listed"])
def test_a_footer_changed_by_a_holder_of_the_tables_key_gives_no_values(
    change: Callable[[Struct, list[list[Struct]]], None], listed: bool
) -> None:
    file = ProtectedFile()
    stored = file.changed(change, listed=listed)
    with pytest.raises((TamperedFileError, AuthenticationError, FormatError)):
        file.read(["ssn", "note"], *PROTECTED, stored=stored)


def test_metadata_of_a_hidden_column_that_its_key_does_not_encrypt_is_refused(file: ProtectedFile) -> None:
    """It says where pages are, by which codec they are compressed, and which values row groups are left out by."""
    right = [[chunk.metadata for chunk in group] for group in encrypted_layout(source_of(file.stored), file.all_keys).row_groups]

    def in_the_clear(_: Struct, chunks: list[list[Struct]]) -> None:
        ordinals = _hidden_column_ordinals(chunks)
        for group, metadata in zip(chunks, right, strict=True):
            for at in ordinals:
                group[at].set(ColumnChunk.META_DATA, thrift.STRUCT, metadata[at])
                group[at].remove(ColumnChunk.ENCRYPTED_COLUMN_METADATA)

    stored = file.changed(in_the_clear)
    with pytest.raises(TamperedFileError, match="is not encrypted"):
        file.read(["ssn"], SSN, stored=stored)
    with pytest.raises(TamperedFileError, match="is not encrypted"):
        ProtectedLayout(source_of(stored), file.key_metadata.with_file_length(len(stored))).stored()
    with pytest.raises(TamperedFileError, match="is not encrypted"):
        parquet.verify(stored, file.all_keys)


def test_values_that_the_table_key_alone_encrypts_are_refused_beside_another_column_with_a_key_of_its_own() -> None:
    """As many chunks have a key of their own as hidden columns there are, but not these."""
    key_metadata = StandardKeyMetadata.generate(16, secrets.token_bytes)
    fields = [pa.field(name, pa.string(), metadata={b"PARQUET:field_id": str(at).encode()}) for at, name in enumerate(["ssn", "decoy"], 1)]
    schema = pa.schema([*fields, pa.field(hidden_name(1), pa.string())])
    rows = pa.table([pa.array(["mask"]), pa.array(["any"]), pa.array(["forged"])], schema=schema)
    stored = io.BytesIO()
    parquet.write_table(rows, stored, FileKeys(key_metadata.encryption_key, {"decoy": b"0123456789abcdef"}, key_metadata.aad_prefix))
    forged = ProtectedFile.of(stored.getvalue(), key_metadata, {1: Secret(b"k" * 16)})
    with pytest.raises(TamperedFileError, match="is not under the key that it has to be under"):
        forged.open(1)


def test_chunks_that_are_counted_to_another_row_group_are_refused(file: ProtectedFile) -> None:
    """The keys of all chunks are in the order that they have to be in, but not those of each row group."""
    stored = file.changed(lambda _, chunks: chunks[0].append(chunks[1].pop(0)))
    with pytest.raises(TamperedFileError, match="is not under the key that it has to be under"):
        file.open(SSN, stored=stored)


def test_a_column_whose_hidden_column_was_dropped_is_not_among_the_protected_ones_of_the_file(file: ProtectedFile) -> None:
    opened = file.open(*PROTECTED, stored=file.changed(_drop_a_hidden_column))
    assert opened.protected == set(PROTECTED) - {NOTE}


def test_a_hidden_column_of_another_file_does_not_open_though_the_table_key_is_the_same() -> None:
    one = ProtectedFile()
    other = ProtectedFile(key_metadata=StandardKeyMetadata(one.key_metadata.encryption_key, secrets.token_bytes(16)), keys=one.keys)
    foreign: list[list[Struct]] = []
    other.changed(lambda _, chunks: foreign.extend(chunks))

    def exchange(_: Struct, chunks: list[list[Struct]]) -> None:
        at = _hidden_column_ordinals(chunks)[0]
        for group, theirs in zip(chunks, foreign, strict=True):
            group[at] = theirs[at]

    with pytest.raises((AuthenticationError, TamperedFileError)):
        one.read(["ssn"], SSN, stored=one.changed(exchange))


def test_a_changed_byte_of_a_hidden_column_gives_no_values(file: ProtectedFile) -> None:
    hidden = next(chunk for chunk in encrypted_layout(source_of(file.stored), file.all_keys).chunks() if chunk.path[0] == hidden_name(SSN))
    stored = flipped(file.stored, hidden.pages.start + hidden.pages.length // 2)
    with pytest.raises(TamperedFileError):
        file.read(["ssn"], SSN, stored=stored)


_VALUES: Final[dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]]] = {
    "boolean": (pa.bool_(), st.booleans()),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us"), st.datetimes(min_value=dt.datetime(1900, 1, 1))),
    "binary": (pa.binary(), st.binary(max_size=20)),
    "fixed": (pa.binary(4), st.binary(min_size=4, max_size=4)),
    "list of structs": (
        pa.list_(
            field("element", pa.struct([field("a", pa.int32(), 21), field("b", pa.list_(field("element", pa.string(), 23)), 22)]), 20)
        ),
        st.lists(
            st.one_of(
                st.none(), st.fixed_dictionaries({"a": st.none() | st.integers(0, 9), "b": st.none() | st.lists(st.text(max_size=3))})
            ),
            max_size=3,
        ),
    ),
}


@pytest.mark.parametrize("nullable", [True, False], ids=["optional", "required"])
@pytest.mark.parametrize("kind", sorted(_VALUES))
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_values_of_every_type_are_the_same_in_the_place_of_the_placeholder(kind: str, nullable: bool, data: st.DataObject) -> None:
    arrow, values = _VALUES[kind]
    column = data.draw(st.lists(values if not nullable else st.none() | values, min_size=1, max_size=30))
    schema = pa.schema([field("v", arrow, SSN, nullable), field("id", pa.int64(), ID)])
    table = pa.Table.from_arrays([pa.array(column, arrow), pa.array(range(len(column)), pa.int64())], schema=schema)
    file = ProtectedFile(table, (SSN,), row_group_size=7)
    assert file.read(["v", "id"], SSN).to_pylist() == table.to_pylist()
    assert file.read(["id"]).num_rows == len(column)
    with pytest.raises(TablecryptError):
        file.read(["v"])
    hidden = pa.Table.from_batches(file.open(masks_of=(SSN,)).batches(ReadRequest(["v", "id"])))
    assert hidden.num_rows == len(column)
    assert len({repr(value) for value in hidden["v"].to_pylist()}) == 1
