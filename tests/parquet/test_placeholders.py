"""Error placeholders: made of blanks while pyarrow writes them, in whatever pieces it does."""

from __future__ import annotations

import io
import itertools
from typing import Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import FormatError
from tablecrypt.keys.bound_schemas import BoundSchema
from tablecrypt.parquet import thrift
from tablecrypt.parquet.modules import ModuleCipher, ModuleOrdinals, ModuleType, stated_length
from tablecrypt.parquet.protected.hidden_column_writer import ProtectedField, ProtectedParquetWriter
from tablecrypt.parquet.protected.placeholders import ErrorPlaceholderSink
from tablecrypt.parquet.structs import DataPageHeader, Encoding, PageHeader
from tablecrypt.parquet.thrift import FLAT
from tablecrypt.parquet.uniform import UniformParquetWriter

KEY_METADATA: Final = StandardKeyMetadata(Secret(bytes(range(16))), b"a prefix")
ROWS: Final = 50_000
BLANK: Final = (1, 3)
TABLE: Final = pa.table({"id": range(ROWS), "first": pa.nulls(ROWS, pa.string()), "k": [7] * ROWS, "second": pa.nulls(ROWS, pa.int64())})


def _written() -> tuple[bytes, ModuleCipher]:
    """A row group of pyarrow's, and the cipher of its file."""
    sink = io.BytesIO()
    writer = UniformParquetWriter(sink, TABLE.schema, KEY_METADATA, use_dictionary=["k"], store_schema=False)
    writer.write(TABLE, ROWS)
    row_group = sink.getvalue()[4:]
    numbers = itertools.count()
    aad_base = KEY_METADATA.aad_prefix + writer.aad_file_unique()
    cipher = ModuleCipher(
        KEY_METADATA.encryption_key, "the DEK", aad_base, False, "a file", lambda length: next(numbers).to_bytes(length, "big")
    )
    writer.close()
    return row_group, cipher


ROW_GROUP, CIPHER = _written()


def _placeholder(column: int) -> ModuleOrdinals:
    return ModuleOrdinals(0, column, TABLE.column_names[column])


def _modules(row_group: bytes) -> list[bytes]:
    found = []
    while row_group:
        length = stated_length(memoryview(row_group))
        found.append(row_group[:length])
        row_group = row_group[length:]
    return found


def _encodings(row_group: bytes, column: int) -> list[int]:
    """The encodings that a column's data pages say."""
    said: list[int] = []
    for module in _modules(row_group):
        suffix = _placeholder(column).suffix(ModuleType.DATA_PAGE_HEADER, len(said))
        if CIPHER.authenticates(suffix, memoryview(module)):
            header = thrift.decode(bytes(CIPHER.decrypt(suffix, memoryview(module), "")), {PageHeader.DATA_PAGE_HEADER: FLAT})
            said.append(header.struct(PageHeader.DATA_PAGE_HEADER).integer(DataPageHeader.ENCODING))
    return said


@given(cuts=st.lists(st.integers(0, len(ROW_GROUP)), max_size=20))
def test_blanks_become_error_placeholders_in_whatever_pieces_they_come(cuts: list[int]) -> None:
    out = io.BytesIO()
    sink = ErrorPlaceholderSink(out, CIPHER, [_placeholder(column) for column in BLANK])
    for start, end in itertools.pairwise([0, *sorted(cuts), len(ROW_GROUP)]):
        sink.write(memoryview(ROW_GROUP)[start:end])
    sink.finish()

    changed = out.getvalue()
    assert len(changed) == len(ROW_GROUP)
    for column in BLANK:
        assert set(_encodings(ROW_GROUP, column)) == {Encoding.PLAIN}
        assert _encodings(changed, column) == [Encoding.RLE_DICTIONARY] * 3
    differing = [one != other for one, other in zip(_modules(ROW_GROUP), _modules(changed), strict=True)]
    assert sum(differing) == 6, "nothing else is another"


@pytest.mark.parametrize("missing", [ModuleOrdinals(0, 4, "no_such_column"), ModuleOrdinals(1, 3, "no_such_column")], ids=str)
def test_blanks_that_are_not_there_are_an_error(missing: ModuleOrdinals) -> None:
    sink = ErrorPlaceholderSink(io.BytesIO(), CIPHER, [_placeholder(1), missing])
    sink.write(memoryview(ROW_GROUP))
    with pytest.raises(FormatError, match=f"the placeholder of {missing} is not among its modules"):
        sink.finish()


def test_a_row_group_that_ends_within_a_module_is_an_error() -> None:
    sink = ErrorPlaceholderSink(io.BytesIO(), CIPHER, [_placeholder(column) for column in BLANK])
    sink.write(memoryview(ROW_GROUP)[:-1])
    with pytest.raises(FormatError, match="is not among its modules"):
        sink.finish()


class _Stream(io.BytesIO):
    """Keeps the length of the longest piece that was written."""

    longest = 0

    def write(self, data: object) -> int:
        self.longest = max(self.longest, memoryview(data).nbytes)  # type: ignore[arg-type]
        return super().write(data)  # type: ignore[arg-type]


def test_no_row_group_is_held_in_memory() -> None:
    def key_metadata(_: BoundSchema) -> bytes:
        return b"key metadata"

    schema = pa.schema([field.with_metadata({"PARQUET:field_id": str(at)}) for at, field in enumerate(TABLE.schema, start=1)])
    sink = _Stream()
    protected = [ProtectedField(column + 1, Secret(bytes(range(32))), key_metadata) for column in BLANK]
    writer = ProtectedParquetWriter(sink, schema, KEY_METADATA, protected, use_dictionary=False, compression="none")
    writer.write(TABLE.cast(schema), ROWS)
    _, length = writer.close()
    assert len(sink.getvalue()) == length
    assert sink.longest < length / 4
