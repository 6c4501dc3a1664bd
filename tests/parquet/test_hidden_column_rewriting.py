"""Files written again with other protected columns, or under another DEK beside hidden columns that stay as they are."""

from __future__ import annotations

import io
import secrets
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tablecrypt import parquet
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, ConfigurationError, TablecryptError, TamperedFileError
from tablecrypt.keys.bound_schemas import BoundSchema
from tablecrypt.parquet import FileKeys, thrift
from tablecrypt.parquet.footer import FileCiphers, read_footer
from tablecrypt.parquet.layout import FileLayout
from tablecrypt.parquet.protected.carried_over_columns import reencrypt_beside_hidden_columns
from tablecrypt.parquet.protected.hidden_arrays import Replacement
from tablecrypt.parquet.protected.hidden_column_reader import ColumnAccess
from tablecrypt.parquet.protected.hidden_column_rewriting import RewrittenFile, rewrite_protected
from tablecrypt.parquet.protected.hidden_columns import hidden_name
from tablecrypt.parquet.protected.protected_layout import ProtectedLayout
from tablecrypt.parquet.storage import source_of
from tablecrypt.parquet.structs import ColumnChunk, ColumnMetaData, FileMetaData, KeyValue, RowGroup
from tablecrypt.parquet.thrift import Struct
from tablecrypt.parquet.uniform import ReadRequest, UniformParquetFile
from tests.support.hidden_column_files import EMAIL, EXTENSION, NOTE, PROTECTED, ROWS, SCHEMA, SECRET, SSN, TABLE, ProtectedFile
from tests.support.mutations import flipped
from tests.support.uniform_files import encrypt_uniform

COLUMNS: Final = SCHEMA.names


def masked(field: pa.Field, values: pa.Array) -> pa.Array:
    return pa.array(["masked"] * len(values), field.type)


REPLACEMENTS: Final[dict[int, Replacement | None]] = {field_id: masked if field_id == NOTE else None for field_id in PROTECTED}


class Rewritten:
    """A new file that `rewrite_protected` makes of a stored one."""

    def __init__(
        self, old: ProtectedFile, stored: bytes, key_metadata: StandardKeyMetadata, placeholders: Mapping[int, Replacement | None]
    ) -> None:
        self.key_metadata = StandardKeyMetadata.generate(32, secrets.token_bytes)
        self.keys = {field_id: Secret(secrets.token_bytes(32)) for field_id in placeholders}
        new = FileKeys(
            self.key_metadata.encryption_key,
            {hidden_name(field_id): key for field_id, key in self.keys.items()},
            self.key_metadata.aad_prefix,
            column_key_metadata={hidden_name(field_id): b"new %d" % field_id for field_id in self.keys},
        )
        out = io.BytesIO()
        schemas = ProtectedLayout(source_of(stored), key_metadata).schemas
        opened = lambda field_id, stored: Secret(old.unwrap(field_id, stored, old.key_metadata.aad_prefix, schemas[field_id]))  # noqa: E731
        self.result: RewrittenFile = rewrite_protected(io.BytesIO(stored), out, key_metadata, new, placeholders, opened, "old", None)
        self.stored = out.getvalue()

    @property
    def layout(self) -> ProtectedLayout:
        return ProtectedLayout(source_of(self.stored), self.key_metadata)

    def open(self, opened: tuple[int, ...], masks_of: tuple[int, ...] = ()) -> UniformParquetFile:
        def unwrap(field_id: int, key_metadata: bytes, aad_prefix: bytes, schema: BoundSchema) -> bytes:
            assert (key_metadata, aad_prefix) == (b"new %d" % field_id, self.key_metadata.aad_prefix)
            return self.keys[field_id].reveal()

        access = ColumnAccess(frozenset(self.keys), frozenset(opened), frozenset(masks_of), unwrap)
        key_metadata = self.key_metadata.with_file_length(len(self.stored))
        return UniformParquetFile(pa.BufferReader(self.stored), key_metadata, "new", access=access if self.keys else None)

    def rows(self) -> list[dict[str, Any]]:
        return rows_of(self.open(tuple(self.keys)))

    def verified(self) -> parquet.Verification:
        keys = {hidden_name(field_id): key for field_id, key in self.keys.items()}
        return parquet.verify(self.stored, FileKeys(self.key_metadata.encryption_key, keys, self.key_metadata.aad_prefix))


def rows_of(file: UniformParquetFile) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.Table.from_batches(file.batches(ReadRequest(COLUMNS))).to_pylist()
    return rows


@pytest.fixture(scope="module")
def file() -> ProtectedFile:
    return ProtectedFile()


@pytest.fixture(scope="module")
def uniform() -> tuple[bytes, StandardKeyMetadata]:
    """The same rows as a writer leaves them that knows nothing of protected columns."""
    plain = encrypt_uniform(TABLE, row_group_size=300, compression="none", write_page_index=True)
    return plain.data, StandardKeyMetadata(plain.key_metadata.encryption_key, plain.key_metadata.aad_prefix)


def test_the_same_columns_come_under_fresh_keys(file: ProtectedFile) -> None:
    new = Rewritten(file, file.stored, file.key_metadata, REPLACEMENTS)
    assert new.rows() == TABLE.to_pylist()
    assert new.verified().complete
    hidden = new.open((), PROTECTED)
    assert rows_of(hidden) == rows_of(file.open(masks_of=PROTECTED))
    assert new.layout.stored().masked == {NOTE}
    assert new.key_metadata.aad_prefix != file.key_metadata.aad_prefix
    assert len(new.result.group_starts) == 4
    assert new.result.length == len(new.stored)


def test_columns_of_a_file_from_before_are_protected_and_the_others_are_as_they_were(
    file: ProtectedFile, uniform: tuple[bytes, StandardKeyMetadata]
) -> None:
    new = Rewritten(file, *uniform, REPLACEMENTS)
    assert new.rows() == TABLE.to_pylist()
    assert new.verified().complete
    assert rows_of(new.open((), PROTECTED)) == rows_of(file.open(masks_of=PROTECTED)), "placeholders are those that a writer makes"
    opened = ProtectedFile.of(new.stored, new.key_metadata, new.keys).opened_by_the_table_key()
    assert not [text for text in opened if SECRET.search(text)]
    assert any(b"n7" in text for text in opened), "unprotected text is found, so the search finds text"


def test_what_a_writer_noted_where_the_specification_knows_no_field_goes(
    file: ProtectedFile, uniform: tuple[bytes, StandardKeyMetadata]
) -> None:
    """As extensions of Parquet's structures are, with all bounds once more; or notes on a column, or by what the rows were sorted."""

    def note(footer: Struct, chunks: list[list[Struct]]) -> None:
        groups = footer.structs(FileMetaData.ROW_GROUPS)
        every = [chunk for each in chunks for chunk in each]
        told = Struct()
        told.set(KeyValue.KEY, thrift.BINARY, b"top-secret 7")
        for chunk in every:
            chunk.struct(ColumnChunk.META_DATA).set(ColumnMetaData.KEY_VALUE_METADATA, thrift.LIST, [told])
        for struct in [footer, *groups, *every, *(chunk.struct(ColumnChunk.META_DATA) for chunk in every)]:
            struct.set(EXTENSION, thrift.BINARY, b"top-secret 7")
        for group in groups:
            group.set(RowGroup.SORTING_COLUMNS, thrift.LIST, [Struct()])

    stored, key_metadata = uniform
    noted = ProtectedFile.of(stored, key_metadata, {}).changed(note)
    new = Rewritten(file, noted, key_metadata, REPLACEMENTS)

    assert new.rows() == TABLE.to_pylist()
    opened = ProtectedFile.of(new.stored, new.key_metadata, new.keys).opened_by_the_table_key()
    assert not [text for text in opened if b"top-secret" in text]
    assert not [group for group in new.layout.file.metadata.structs(FileMetaData.ROW_GROUPS) if RowGroup.SORTING_COLUMNS in group]


def test_error_placeholders_fail_in_readers_that_know_nothing_of_them(
    file: ProtectedFile, uniform: tuple[bytes, StandardKeyMetadata]
) -> None:
    new = Rewritten(file, *uniform, REPLACEMENTS)
    keys = FileKeys(new.key_metadata.encryption_key, aad_prefix=new.key_metadata.aad_prefix)
    assert parquet.read_table(new.stored, keys, columns=["id"]).num_rows == ROWS
    with pytest.raises(TablecryptError):
        parquet.read_table(new.stored, keys, columns=["ssn"])


def test_columns_that_are_protected_no_more_stand_in_their_own_place(file: ProtectedFile) -> None:
    new = Rewritten(file, file.stored, file.key_metadata, {})
    assert new.rows() == TABLE.to_pylist()
    assert new.verified().complete
    assert [leaf.path[0] for leaf in new.layout.leaves if leaf.hidden_field_id is not None] == []


def test_protection_moves_from_one_column_to_another(file: ProtectedFile) -> None:
    new = Rewritten(
        ProtectedFile(protected=(SSN,), key_metadata=file.key_metadata, keys=file.keys), file.stored, file.key_metadata, {EMAIL: None}
    )
    assert new.rows() == TABLE.to_pylist()
    assert new.layout.stored().protected == {EMAIL}
    shown = pa.Table.from_batches(new.open((), (EMAIL,)).batches(ReadRequest(["person"]))).to_pylist()
    assert {row["person"] and row["person"]["email"] for row in shown} == {None}


@pytest.mark.parametrize("masks", [True, False], ids=["error to mask", "mask to error"])
def test_a_placeholder_of_another_kind_is_made_of_the_hidden_column(file: ProtectedFile, masks: bool) -> None:
    placeholders: dict[int, Replacement | None] = {**REPLACEMENTS, SSN: masked if masks else None, NOTE: masked if masks else None}
    new = Rewritten(file, file.stored, file.key_metadata, placeholders)
    assert new.layout.stored().masked == ({SSN, NOTE} if masks else frozenset())
    assert new.rows() == TABLE.to_pylist()
    shown = pa.Table.from_batches(new.open((), (SSN, NOTE)).batches(ReadRequest(["ssn", "note"]))).to_pylist()
    assert {row["ssn"] for row in shown} == {"masked" if masks else ""}
    assert {row["note"] for row in shown} == {"masked" if masks else None}


def test_a_new_file_may_be_written_again_in_every_way(file: ProtectedFile, uniform: tuple[bytes, StandardKeyMetadata]) -> None:
    protected = Rewritten(file, *uniform, REPLACEMENTS)
    again = beside_hidden_columns(protected.stored, protected.key_metadata)
    assert len(again[0]) == len(protected.stored)
    with pytest.raises(TablecryptError):
        ProtectedLayout(source_of(again[0]), protected.key_metadata)
    kept = Rewritten.__new__(Rewritten)
    kept.stored, kept.key_metadata, kept.keys = again[0], again[1], protected.keys
    assert kept.rows() == TABLE.to_pylist()
    assert kept.verified().complete


def test_a_file_whose_hidden_column_is_under_the_tables_key_is_refused(file: ProtectedFile) -> None:
    def under_the_table_key(metadata: Struct, chunks: list[list[Struct]]) -> None:
        for group in chunks:
            placeholders = [chunk for chunk in group if ColumnChunk.ENCRYPTED_COLUMN_METADATA not in chunk]
            group[-1].fields[ColumnChunk.CRYPTO_METADATA] = placeholders[0].fields[ColumnChunk.CRYPTO_METADATA]
            group[-1].fields[ColumnChunk.META_DATA] = placeholders[0].fields[ColumnChunk.META_DATA]
            group[-1].remove(ColumnChunk.ENCRYPTED_COLUMN_METADATA)

    with pytest.raises(TamperedFileError):
        Rewritten(file, file.changed(under_the_table_key), file.key_metadata, REPLACEMENTS)
    with pytest.raises(TamperedFileError):
        beside_hidden_columns(file.changed(under_the_table_key), file.key_metadata)


def test_a_changed_byte_of_a_hidden_column_ends_the_rewriting(file: ProtectedFile) -> None:
    layout = FileLayout(source := source_of(file.stored), footer := read_footer(source), FileCiphers(footer, file.all_keys))
    hidden = next(chunk for chunk in layout.chunks() if chunk.path[0] == hidden_name(SSN))
    stored = flipped(file.stored, hidden.pages.start + hidden.pages.length // 2)
    for placeholders in (REPLACEMENTS, {}):
        with pytest.raises(TamperedFileError):
            Rewritten(file, stored, file.key_metadata, placeholders)


def test_a_hidden_column_of_another_file_is_not_taken_over(file: ProtectedFile) -> None:
    other = ProtectedFile(keys=file.keys)
    with pytest.raises((AuthenticationError, TamperedFileError)):
        Rewritten(file, other.stored, other.key_metadata, REPLACEMENTS)


@pytest.mark.parametrize("options", [{}, {"data_page_size": 512, "compression": "none"}], ids=["few pages", "many pages"])
def test_a_file_comes_under_another_dek_without_its_column_keys_and_its_hidden_columns_stay(options: dict[str, Any]) -> None:
    file = ProtectedFile(**options)
    stored, key_metadata = beside_hidden_columns(file.stored, file.key_metadata)
    assert len(stored) == len(file.stored)
    moved = ProtectedFile.of(stored, key_metadata, file.keys)
    assert moved.read(COLUMNS, *PROTECTED).to_pylist() == TABLE.to_pylist()
    assert rows_of(moved.open(masks_of=PROTECTED)) == rows_of(file.open(masks_of=PROTECTED))
    assert parquet.verify(stored, moved.all_keys).complete
    with pytest.raises(TablecryptError):
        parquet.verify(stored, file.all_keys)


def test_hidden_columns_that_stay_need_the_aad_prefix_of_the_file(file: ProtectedFile) -> None:
    with pytest.raises(ConfigurationError, match="AAD prefix"):
        reencrypt_beside_hidden_columns(
            io.BytesIO(file.stored), io.BytesIO(), file.key_metadata, StandardKeyMetadata.generate(16, secrets.token_bytes), "old"
        )


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.tuples(st.none() | st.text(max_size=8), st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3)), max_size=30),
    before=st.sets(st.sampled_from([1, 2])),
    after=st.sets(st.sampled_from([1, 2])),
    group=st.integers(1, 20),
)
@example(rows=[], before=set(), after={1}, group=1)
def test_rows_are_the_same_whatever_is_protected_before_and_after(
    rows: list[tuple[str | None, list[int | None] | None]], before: set[int], after: set[int], group: int
) -> None:
    element = pa.field("element", pa.int64(), metadata={"PARQUET:field_id": "3"})
    schema = pa.schema(
        [
            pa.field("a", pa.string(), metadata={"PARQUET:field_id": "1"}),
            pa.field("b", pa.list_(element), metadata={"PARQUET:field_id": "2"}),
            pa.field("c", pa.int64(), metadata={"PARQUET:field_id": "4"}),
        ]
    )
    table = pa.Table.from_pylist([{"a": a, "b": b, "c": at} for at, (a, b) in enumerate(rows)], schema=schema)
    stored, key_metadata, old = _written(table, tuple(sorted(before)), group)
    new = Rewritten(old, stored, key_metadata, dict.fromkeys(sorted(after)))
    read = pa.Table.from_batches(new.open(tuple(after)).batches(ReadRequest(["a", "b", "c"])), schema) if rows else table
    assert read.to_pylist() == table.to_pylist()
    assert new.verified().complete
    assert new.layout.stored().protected == after


def _written(table: pa.Table, protected: tuple[int, ...], group: int) -> tuple[bytes, StandardKeyMetadata, ProtectedFile]:
    if protected:
        file = ProtectedFile(table, protected, row_group_size=group)
        return file.stored, file.key_metadata, file
    plain = encrypt_uniform(table, row_group_size=group)
    key_metadata = StandardKeyMetadata(plain.key_metadata.encryption_key, plain.key_metadata.aad_prefix)
    return plain.data, key_metadata, ProtectedFile.of(plain.data, key_metadata, {})


def beside_hidden_columns(stored: bytes, key_metadata: StandardKeyMetadata) -> tuple[bytes, StandardKeyMetadata]:
    new = StandardKeyMetadata(Secret(secrets.token_bytes(32)), key_metadata.aad_prefix)
    out = io.BytesIO()
    assert reencrypt_beside_hidden_columns(io.BytesIO(stored), out, key_metadata, new, "old") == len(stored)
    return out.getvalue(), new
