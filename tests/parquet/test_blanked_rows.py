"""Files under another DEK in which some rows hold nothing, but for protected columns, whose keys nobody needs for it."""

from __future__ import annotations

import io
import math
import secrets
import struct
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tablecrypt import parquet
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, TablecryptError, TamperedFileError
from tablecrypt.parquet import thrift
from tablecrypt.parquet.protected.carried_over_columns import blank_rows_beside_hidden_columns
from tablecrypt.parquet.protected.protected_layout import ProtectedLayout
from tablecrypt.parquet.storage import source_of
from tablecrypt.parquet.structs import ColumnMetaData, FileMetaData, KeyValue, RowGroup
from tablecrypt.parquet.thrift import Struct
from tablecrypt.parquet.uniform import ReadRequest
from tests.support.hidden_column_files import EXTENSION, NOTE, PROTECTED, ROWS, SCHEMA, TABLE, ProtectedFile, field
from tests.support.mutations import flipped

COLUMNS: Final = SCHEMA.names
GONE: Final = (0, 1, 7, 299, 300, 305, 999)


class Blanked(ProtectedFile):
    """A protected file in which rows are blanked."""

    def __init__(self, file: ProtectedFile, positions: tuple[int, ...] = GONE) -> None:
        self.keys = file.keys
        self.key_metadata = StandardKeyMetadata(Secret(secrets.token_bytes(16)), file.key_metadata.aad_prefix)
        out = io.BytesIO()
        self.metadata, length = blank_rows_beside_hidden_columns(
            io.BytesIO(file.stored), out, file.key_metadata, self.key_metadata, positions, "old"
        )
        self.stored = out.getvalue()
        assert len(self.stored) == length


def rows_of(file: ProtectedFile, *opened: int) -> list[dict[str, Any]]:
    masks_of = tuple(each for each in file.keys if each not in opened)
    table = pa.Table.from_batches(file.open(*opened, masks_of=masks_of).batches(ReadRequest(file.metadata.schema.to_arrow_schema().names)))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


@pytest.fixture(scope="module")
def file() -> ProtectedFile:
    return ProtectedFile(compression="none", use_dictionary=False)


@pytest.fixture(scope="module")
def blanked(file: ProtectedFile) -> Blanked:
    return Blanked(file)


def test_visible_columns_hold_nothing_in_blanked_rows_and_the_others_are_as_they_were(file: ProtectedFile, blanked: Blanked) -> None:
    before, after = rows_of(file), rows_of(blanked)
    for position in range(ROWS):
        if position not in GONE:
            assert after[position] == before[position]
            continue
        person = None if before[position]["person"] is None else {"name": None, "email": None}
        assert after[position] == {"ssn": "", "id": None, "person": person, "phones": None, "tags": None, "paid": None, "note": None}


def test_whoever_has_the_column_keys_reads_the_hidden_columns_of_all_rows(blanked: Blanked) -> None:
    after = blanked.read(COLUMNS, *PROTECTED).to_pylist()
    for position, (row, old) in enumerate(zip(after, TABLE.to_pylist(), strict=True)):
        if position in GONE:
            old["id"] = None
            if old["person"] is not None:
                old["person"]["name"] = None
        assert row == old
    assert parquet.verify(blanked.stored, blanked.all_keys).complete


def test_one_column_key_opens_its_column_alone(blanked: Blanked) -> None:
    rows = rows_of(blanked, NOTE)
    assert [row["note"] for row in rows] == TABLE["note"].to_pylist()
    assert {row["ssn"] for row in rows} == {""}


def test_no_value_of_a_blanked_row_is_in_what_the_tables_key_opens(file: ProtectedFile, blanked: Blanked) -> None:
    names = [f"n{position}".encode() for position in GONE if position % 5]
    values = [struct.pack("<i", len(name)) + name for name in names] + [struct.pack("<q", ROWS - 1)]
    before, after = (b"".join(each.opened_by_the_table_key()) for each in (file, blanked))
    assert all(value in before for value in values)
    assert not any(value in after for value in values)


def test_what_a_writer_noted_in_the_footer_goes_with_the_rows(file: ProtectedFile) -> None:
    def note(footer: Struct, chunks: list[list[Struct]]) -> None:
        told = Struct()
        told.set(KeyValue.KEY, thrift.BINARY, b"least record key: n7")
        footer.set(FileMetaData.KEY_VALUE_METADATA, thrift.LIST, [told])
        for each in (footer, *footer.structs(FileMetaData.ROW_GROUPS)):
            each.set(EXTENSION, thrift.BINARY, b"least record key: n7")

    noted = ProtectedFile.of(file.changed(note), file.key_metadata, file.keys)
    assert b"record key" in noted.opened_by_the_table_key()[0]
    blanked = Blanked(noted)

    assert not [text for text in blanked.opened_by_the_table_key() if b"record key" in text]
    assert rows_of(blanked)[1]["id"] is None


def test_a_byte_that_is_no_zero_where_columns_were_is_found(blanked: Blanked) -> None:
    stored = bytearray(blanked.stored)
    stored[8] = 1
    with pytest.raises(TamperedFileError, match="belong to nothing"):
        parquet.verify(bytes(stored), blanked.all_keys)


def test_bounds_come_from_what_the_file_holds_now(blanked: Blanked) -> None:
    first, last = (blanked.metadata.row_group(number).column(1) for number in (0, 3))
    assert last.path_in_schema == "id"
    assert (last.statistics.min, last.statistics.max) == (900, 998)
    assert (first.statistics.min, first.statistics.max, first.statistics.null_count) == (2, 298, 4)
    assert blanked.metadata.num_rows == ROWS
    assert [blanked.metadata.row_group(number).num_rows for number in range(4)] == [300, 300, 300, 100]
    assert not any("__protected__" in blanked.metadata.schema.column(each).path for each in range(blanked.metadata.num_columns))


def test_ciphertext_of_visible_columns_is_not_copied_and_hidden_columns_stay_where_they_are(file: ProtectedFile, blanked: Blanked) -> None:
    old, new = (ProtectedLayout(source_of(each.stored), each.key_metadata).file for each in (file, blanked))
    for before, after in zip(old.chunks(), new.chunks(), strict=True):
        if before.has_own_key:
            assert before.struct.encode() == after.struct.encode()
            continue
        assert file.stored[before.pages.start : before.pages.end] not in blanked.stored
        assert not any(blanked.stored[before.pages.start : before.pages.end])
    groups = new.metadata.structs(FileMetaData.ROW_GROUPS)
    ends = [group.integer(RowGroup.FILE_OFFSET) + group.integer(RowGroup.TOTAL_COMPRESSED_SIZE) for group in groups]
    assert ends == sorted(ends)
    assert ends[-1] <= new.footer.start, "parquet-java reads a row group where its middle lies"


def test_the_old_dek_opens_nothing_of_it(file: ProtectedFile, blanked: Blanked) -> None:
    with pytest.raises(TablecryptError):
        ProtectedLayout(source_of(blanked.stored), file.key_metadata)


def test_a_blanked_file_may_be_blanked_again(file: ProtectedFile, blanked: Blanked) -> None:
    again = Blanked(blanked, (2, 500))
    rows = again.read(COLUMNS, *PROTECTED).to_pylist()
    assert [position for position, row in enumerate(rows) if row["id"] is None] == sorted({*GONE, 2, 500})
    assert [row["note"] for row in rows] == TABLE["note"].to_pylist()
    assert parquet.verify(again.stored, again.all_keys).complete


@pytest.mark.parametrize("position", [-1, ROWS])
def test_positions_that_the_file_does_not_have_are_refused(file: ProtectedFile, position: int) -> None:
    with pytest.raises(ConfigurationError, match="has 1000 rows"):
        Blanked(file, (3, position))


def test_another_aad_prefix_and_the_same_dek_are_refused(file: ProtectedFile) -> None:
    for new, said in ((StandardKeyMetadata.generate(16, secrets.token_bytes), "AAD prefix"), (file.key_metadata, "another DEK")):
        with pytest.raises(ConfigurationError, match=said):
            blank_rows_beside_hidden_columns(io.BytesIO(file.stored), io.BytesIO(), file.key_metadata, new, [1], "old")


def test_a_changed_byte_of_a_visible_column_is_refused(file: ProtectedFile) -> None:
    layout = ProtectedLayout(source_of(file.stored), file.key_metadata).file
    for chunk in layout.row_groups[1]:
        if chunk.has_own_key:
            continue
        stored = flipped(file.stored, chunk.pages.start + chunk.pages.length // 2)
        with pytest.raises(TamperedFileError):
            Blanked(ProtectedFile.of(stored, file.key_metadata, file.keys))


def test_columns_that_lie_over_one_another_are_refused(file: ProtectedFile) -> None:
    def moved(metadata: Struct, chunks: list[list[Struct]]) -> None:
        first, second = (chunk.struct(3) for chunk in chunks[0][:2])
        second.set(ColumnMetaData.DATA_PAGE_OFFSET, thrift.I64, first.integer(ColumnMetaData.DATA_PAGE_OFFSET))

    with pytest.raises(TamperedFileError):
        Blanked(ProtectedFile.of(file.changed(moved), file.key_metadata, file.keys))


NANS: Final = tuple(struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in (0x7FF8000000000001, 0xFFF8000000000002, 1 << 63))
ROW: Final = st.fixed_dictionaries(
    {
        "key": st.text(max_size=6),
        "value": st.none() | st.floats() | st.sampled_from(NANS),
        "inner": st.none() | st.fixed_dictionaries({"secret": st.none() | st.text(max_size=4), "open": st.none() | st.integers(0, 99)}),
        "many": st.none() | st.lists(st.none() | st.fixed_dictionaries({"x": st.integers(0, 9)}), max_size=3),
        "_row_id": st.integers(0, 1 << 40),
    }
)
GENERATED: Final = pa.schema(
    [
        field("key", pa.string(), 1, nullable=False),
        field("value", pa.float64(), 2),
        field("inner", pa.struct([field("secret", pa.string(), 4), field("open", pa.int64(), 5)]), 3),
        field("many", pa.list_(field("element", pa.struct([field("x", pa.int32(), 8, nullable=False)]), 7)), 6),
        field("_row_id", pa.int64(), 2147483540),
    ]
)


def as_bits(value: Any) -> Any:
    return struct.pack("<d", value) if isinstance(value, float) else value


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(ROW, min_size=1, max_size=25),
    protected=st.sets(st.sampled_from([1, 2, 3, 4, 6]), min_size=1),
    group=st.integers(1, 20),
    data=st.data(),
)
def test_all_other_rows_are_exactly_as_they_were(rows: list[dict[str, Any]], protected: set[int], group: int, data: st.DataObject) -> None:
    if 3 in protected:
        protected -= {4}
    gone = data.draw(st.sets(st.integers(0, len(rows) - 1)))
    table = pa.Table.from_pylist(rows, schema=GENERATED)
    file = ProtectedFile(table, tuple(sorted(protected)), row_group_size=group)
    blanked = Blanked(file, tuple(gone))
    names = {1: "key", 2: "value", 3: "inner", 6: "many"}

    everything = blanked.read(GENERATED.names, *sorted(protected)).to_pylist()
    assert len(everything) == len(rows)
    for position, (row, old) in enumerate(zip(everything, table.to_pylist(), strict=True)):
        for name in GENERATED.names:
            if position not in gone or name in {names.get(each) for each in protected}:
                assert as_bits(row[name]) == as_bits(old[name])
            elif name == "inner" and 4 in protected:
                assert row[name] == (None if old[name] is None else {"secret": old[name]["secret"], "open": None})
            else:
                assert row[name] == ("" if name == "key" else None)
    assert parquet.verify(blanked.stored, blanked.all_keys).complete
    values = blanked.metadata.row_group(0).column(1).statistics
    kept = [row["value"] for position, row in enumerate(rows[:group]) if position not in gone and row["value"] is not None]
    if 2 not in protected and values is not None and values.has_min_max:
        assert any(values.min == each for each in kept if not math.isnan(each))
