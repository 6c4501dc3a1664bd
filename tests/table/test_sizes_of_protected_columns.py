"""How long single values of a protected column are, and which are null, is not told by settings that leave few rows together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tablecrypt import maintenance as m
from tablecrypt import parquet
from tablecrypt.errors import ConfigurationError
from tablecrypt.keys.column_keys import ColumnKeys
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.parquet import FileKeys, decrypt
from tablecrypt.parquet.chunk_modules import Page, read_pages
from tablecrypt.parquet.layout import Chunk, FileLayout, encrypted_layout
from tablecrypt.parquet.protected.hidden_columns import hidden_name
from tablecrypt.parquet.protected.protected_layout import ProtectedLayout
from tablecrypt.parquet.storage import source_of
from tablecrypt.parquet.structs import ColumnMetaData, FileMetaData, PageHeader, RowGroup
from tablecrypt.parquet.thrift import I32, Number, decode
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.protection.policy import LEAST, LEAST_BYTES, column_keys
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.updates import check_commit
from tablecrypt.table.write import write_data_files
from tests.support.protected_tables import SSN, Clients, protected_table, write_as_java_does
from tests.support.tables import data_files, metadata_of, path_of

FEW = {name: str(least - 1) for name, least in LEAST.items()}
ROWS = pa.table({"id": range(4001), "ssn": [None if at % 3 == 0 else "x" * (at % 11) + str(at) for at in range(4001)]})


@pytest.mark.parametrize("name", FEW)
def test_a_setting_that_leaves_few_rows_together_is_refused_where_it_is_set(both: Clients, name: str) -> None:
    table = protected_table(both.payroll, **{name: str(LEAST[name])})
    said = f"{name} is {FEW[name]}.*protected columns.*Set {LEAST[name]} or more"
    with pytest.raises(ConfigurationError, match=said), table.transaction() as transaction:
        transaction.set_properties({name: FEW[name]})
    with pytest.raises(ConfigurationError, match=name):
        protected_table(both.payroll, "db.few", **{name: FEW[name]})
    with pytest.raises(ConfigurationError, match=name):
        both.analyst.load_table(table.name()).transaction().set_properties({name: FEW[name]}).commit_transaction()
    table.append(ROWS)


@pytest.mark.parametrize("name", FEW)
def test_a_declaration_is_refused_while_such_a_setting_is_there(both: Clients, name: str) -> None:
    table = protected_table(both.payroll, **{"encryption.column-keys": "", name: FEW[name]})
    with pytest.raises(ConfigurationError, match=name), table.transaction() as transaction:
        transaction.set_properties({"encryption.column-keys": "pii: ssn"})
    table.transaction().set_properties({"encryption.column-keys": "pii: ssn", name: str(LEAST[name])}).commit_transaction()


@pytest.mark.parametrize("rows", [ROWS, "stream"], ids=["table", "stream"])
@pytest.mark.parametrize("name", FEW)
def test_a_setting_that_was_edited_into_the_metadata_is_refused_by_the_writer(both: Clients, name: str, rows: Any) -> None:
    table = protected_table(both.payroll)
    metadata = metadata_of(table)
    edited = metadata_with(metadata, **{name: FEW[name]})
    arrow = pa.RecordBatchReader.from_batches(ROWS.schema, ROWS.to_batches()) if rows == "stream" else rows
    table_io = table.io
    with pytest.raises(ConfigurationError, match=name):
        write_data_files(edited, arrow, table_io, table_io.manager)


def test_a_table_with_such_a_setting_from_before_takes_other_changes_and_its_repair(both: Clients) -> None:
    table = protected_table(both.payroll)
    name = "write.parquet.row-group-limit"
    metadata = metadata_of(table)
    before, after = metadata_with(metadata, **{name: "1"}), metadata_with(metadata, **{name: "1", "owner": "hr"})
    check_commit(before, after)
    check_commit(before, metadata)
    for smaller in (metadata, before):
        with pytest.raises(ConfigurationError, match=f"{name} is 2"):
            check_commit(smaller, metadata_with(metadata, **{name: "2"}))


def test_compact_takes_no_smaller_files(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[ROWS])
    with pytest.raises(ConfigurationError, match=r"write\.target-file-size-bytes is 1"):
        m.compact(table, rewrite_all=True, target_file_size=1)
    assert m.compact(table, rewrite_all=True, target_file_size=LEAST_BYTES).added_files == 1


def test_a_table_without_protected_columns_is_written_as_it_says(both: Clients) -> None:
    table = protected_table(both.payroll, **{"encryption.column-keys": "", "write.parquet.row-group-limit": "7"})
    table.append(ROWS.slice(0, 70))
    (file,) = data_files(table)
    assert len(opened(table, file)[0].row_groups) == 10


def metadata_with(metadata: EncryptedTableMetadata, **properties: str) -> EncryptedTableMetadata:
    return metadata.model_copy(update={"properties": {**metadata.properties, **properties}})


def opened(table: EncryptedTable, file: Any) -> tuple[FileLayout, FileKeys]:
    """A file with all of its keys."""
    stored, key_metadata = path_of(file.file_path).read_bytes(), key_metadata_of(file)
    keys: ColumnKeys = column_keys(metadata_of(table), table.io)
    found = ProtectedLayout(source_of(stored), key_metadata).stored()
    own = {
        hidden_name(field_id): keys.unwrap(field_id, own, key_metadata.aad_prefix, found.schemas[field_id], 1)
        for field_id, own in found.keys
    }
    every = FileKeys(key_metadata.encryption_key, own, key_metadata.aad_prefix)
    return encrypted_layout(source_of(stored), every), every


def hidden_columns(layout: FileLayout) -> list[Chunk]:
    return [chunk for chunk in layout.chunks() if chunk.path[0] == hidden_name(SSN)]


def data_pages(chunk: Chunk) -> Iterator[Page]:
    return (page for page in read_pages(chunk) if not page.is_dictionary)


def values_in(page: Page) -> int:
    header = decode(page.header.encoded, {PageHeader.DATA_PAGE_HEADER: {}})
    return header.struct(PageHeader.DATA_PAGE_HEADER).integer(Number(1, I32))


def test_the_smallest_settings_leave_many_rows_in_each_row_group_and_page(both: Clients) -> None:
    small = {name: str(least) for name, least in LEAST.items()}
    table = protected_table(both.payroll, **small, **{"write.parquet.page-size-bytes": "1", "write.parquet.dict-size-bytes": "1"})
    table.append(ROWS)
    (file,) = data_files(table)
    layout, _ = opened(table, file)
    rows = [group.integer(RowGroup.NUM_ROWS) for group in layout.metadata.structs(FileMetaData.ROW_GROUPS)]
    assert rows == [801, 801, 801, 801, 797], "no row is left over for a group of its own"
    assert [[values_in(page) for page in data_pages(chunk)] for chunk in hidden_columns(layout)] == [[each] for each in rows]


def _appended(both: Clients) -> EncryptedTable:
    return protected_table(both.payroll, appends=[ROWS])


def _reencrypted(both: Clients) -> EncryptedTable:
    """A file from before its column was protected, as another engine wrote it."""
    table = protected_table(both.payroll)
    write_as_java_does(table, ROWS)
    m.reencrypt(table, accept_masks=True)
    return table.refresh()  # type: ignore[return-value]


@pytest.mark.parametrize("write", [_appended, _reencrypted])
def test_nothing_but_the_pages_tells_how_long_the_values_of_a_hidden_column_are(both: Clients, write: Any) -> None:
    table = write(both)
    (file,) = data_files(table)
    layout, keys = opened(table, file)
    for group, chunks in zip(layout.metadata.structs(FileMetaData.ROW_GROUPS), layout.row_groups, strict=True):
        shown = [chunk for chunk in chunks if not chunk.has_own_key]
        assert group.integer(RowGroup.TOTAL_BYTE_SIZE) == sum(
            chunk.metadata.integer(ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE) for chunk in shown
        )
        assert group.integer(RowGroup.TOTAL_COMPRESSED_SIZE) >= sum(chunk.pages.length for chunk in chunks)
    for chunk in layout.chunks():
        if chunk.has_own_key:
            assert chunk.column_index is None and chunk.offset_index is None
            assert ColumnMetaData.BLOOM_FILTER_OFFSET not in chunk.metadata
            for page in data_pages(chunk):
                header = decode(page.header.encoded, {PageHeader.DATA_PAGE_HEADER: {}}).struct(PageHeader.DATA_PAGE_HEADER)
                assert 5 not in header, "statistics"
            assert ColumnMetaData.STATISTICS in chunk.metadata, "readers with the key leave out row groups"

    stored = path_of(file.file_path).read_bytes()
    assert parquet.read_table(stored, keys, columns=[hidden_name(SSN)])[hidden_name(SSN)].to_pylist() == ROWS["ssn"].to_pylist()
    assert table.scan(selected_fields=("ssn",)).to_arrow()["ssn"].to_pylist() == ROWS["ssn"].to_pylist()
    assert table.scan("ssn = 'xxx3001'").to_arrow().num_rows == ROWS["ssn"].to_pylist().count("xxx3001")
    assert m.verify(table).is_good


def test_duckdb_reads_a_row_group_whose_total_leaves_hidden_columns_out(both: Clients, tmp_path: Path) -> None:
    table = _appended(both)
    (file,) = data_files(table)
    _, keys = opened(table, file)
    path = tmp_path / "plain.parquet"
    with path.open("wb") as sink:
        decrypt(path_of(file.file_path).read_bytes(), sink, keys)
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT count(*), count(\"{hidden_name(SSN)}\") FROM '{path}'").fetchall()
    assert found == [(ROWS.num_rows, ROWS.num_rows - ROWS["ssn"].null_count)]
    with table.scan().to_duckdb("people") as connection:
        assert connection.execute("SELECT count(*), count(ssn) FROM people").fetchall() == found
