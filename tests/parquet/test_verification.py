"""A verified file has no module that does not authenticate and no byte that belongs to nothing."""

from __future__ import annotations

import io
import secrets
from collections.abc import Callable

import pytest

from tablecrypt.errors import KeyNotFoundError, TamperedFileError
from tablecrypt.parquet import FileKeys, inspect, read_table, thrift, verify
from tablecrypt.parquet.footer import write_footer
from tablecrypt.parquet.layout import encrypted_layout
from tablecrypt.parquet.modules import ModuleCipher
from tablecrypt.parquet.storage import Sink, open_source
from tablecrypt.parquet.structs import COLUMN_CHUNK_SHAPE, ColumnChunk, ColumnMetaData, FileMetaData, RowGroup
from tablecrypt.parquet.thrift import Struct
from tablecrypt.parquet.verification import FileChecks, OwnedSpan, PieceLengths, Verification, coverage_gaps
from tests.support import uniform_files
from tests.support.modular_files import AAD_PREFIX, FOOTER_KEY, MODES, PARTLY_PLAIN, Mode, encrypted, every_module, plain_file, sample_table

pytestmark = pytest.mark.slow

TABLE = sample_table()
PLAINTEXT = plain_file(TABLE, **every_module())

every_mode = pytest.mark.parametrize("mode", MODES, ids=str)


@every_mode
def test_every_module_is_counted(mode: Mode) -> None:
    data = encrypted(PLAINTEXT, mode.keys)
    report = verify(data, mode.keys, location="part-0")
    listed = [module for module in inspect(data, mode.keys).modules() if module.cipher != "AES_CTR"]
    assert (report.location, report.length, report.algorithm) == ("part-0", len(data), mode.algorithm)
    assert report.modules == {label: sum(module.type == label for module in listed) for label in {module.type for module in listed}}
    assert report.unauthenticated_pages == (16 if mode.ctr else 0)
    assert report.complete is not mode.ctr


def test_columns_in_the_clear_are_in_the_report() -> None:
    report = verify(encrypted(PLAINTEXT, PARTLY_PLAIN.keys), PARTLY_PLAIN.keys)
    assert report.columns_in_the_clear == ("ratio",)
    assert not report.complete


def test_a_table_file_that_pyarrow_wrote_verifies() -> None:
    for options in ({}, {"write_page_index": True}, {"row_group_size": 7, "data_page_size": 50}):
        encrypted = uniform_files.encrypt_uniform(uniform_files.sample_table(), **options)
        assert verify(encrypted.data, FileKeys.of_table_file(encrypted.key_metadata)).complete


def test_all_keys_are_needed() -> None:
    data = encrypted(PLAINTEXT, MODES[1].keys)
    with pytest.raises(KeyNotFoundError, match="column id"):
        verify(data, FileKeys(FOOTER_KEY, aad_prefix=AAD_PREFIX))


@every_mode
def test_all_of_the_damage_is_told_at_once(mode: Mode) -> None:
    data = bytearray(encrypted(PLAINTEXT, mode.keys))
    headers = [module for module in inspect(bytes(data), mode.keys).modules() if module.type == "data page header"]
    assert len(headers) == 8
    for header in headers:
        assert header.offset is not None
        data[header.offset + 20] ^= 1
    with pytest.raises(TamperedFileError) as refused:
        verify(bytes(data), mode.keys)
    for column in ("id", "name", "ratio", "tags.list.element"):
        for group in (0, 1):
            assert f"data page header 0 of column {column} in row group {group} does not authenticate" in str(refused.value)


def test_each_damaged_page_of_a_chunk_is_named() -> None:
    keys = MODES[0].keys
    data = bytearray(encrypted(plain_file(TABLE.select(["id"]), data_page_size=1, write_batch_size=4, use_dictionary=False), keys))
    pages = [module for module in inspect(bytes(data), keys).modules() if module.type == "data page"]
    assert len(pages) > 4
    for page in (pages[1], pages[3]):
        assert page.offset is not None
        data[page.offset + 20] ^= 1
    with pytest.raises(TamperedFileError) as refused:
        verify(bytes(data), keys)
    named = [f"data page {number} of column id" in str(refused.value) for number in range(5)]
    assert named == [False, True, False, True, False]


@pytest.mark.parametrize("source", ["a local file", "s3://bucket/file"])
@pytest.mark.parametrize("piece", [1, 61, 4096])
def test_a_file_is_verified_wherever_the_pieces_end_in_which_it_is_read(source: str, piece: int) -> None:
    keys = MODES[0].keys
    data = bytearray(encrypted(PLAINTEXT, keys))
    assert _verified_in_pieces(bytes(data), keys, source, piece) == verify(bytes(data), keys, location=source)
    for page in [module for module in inspect(bytes(data), keys).modules() if module.type == "data page"]:
        assert page.offset is not None
        damaged = data.copy()
        damaged[page.offset + 20] ^= 1
        with pytest.raises(TamperedFileError, match=r"^[^;]*data page 0 of column [^;]*$"):
            _verified_in_pieces(bytes(damaged), keys, source, piece)


def _verified_in_pieces(data: bytes, keys: FileKeys, location: str, piece: int) -> Verification:
    with open_source(data, location) as opened:
        layout = encrypted_layout(opened, keys)
        checks = FileChecks(layout, keys, PieceLengths(piece, piece))
        for chunk in layout.chunks():
            checks.check_chunk(chunk)
        return checks.result()


@every_mode
def test_bytes_that_belong_to_nothing_are_refused(mode: Mode) -> None:
    data = encrypted(PLAINTEXT, mode.keys)
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    changed = data[:footer] + b"smuggled" + data[footer:]
    with pytest.raises(TamperedFileError, match=f"bytes {footer} to {footer + 8} belong to nothing"):
        verify(changed, mode.keys)
    assert read_table(changed, mode.keys) == TABLE, "nobody reads them"


def _with_first_chunk(data: bytes, keys: FileKeys, edit: Callable[[Struct], None]) -> bytes:
    """The same modules under a footer in which the owner of the key changed the first column chunk."""
    with open_source(data) as source:
        layout = encrypted_layout(source, keys)
        algorithm = layout.footer.algorithm
        assert algorithm is not None and keys.footer_key is not None
        group = layout.metadata.structs(FileMetaData.ROW_GROUPS)[0]
        first, *others = group.deferred_structs(RowGroup.COLUMNS)
        chunk = thrift.decode(first, COLUMN_CHUNK_SHAPE)
        edit(chunk)
        group.set(RowGroup.COLUMNS, thrift.LIST, [chunk.encode(), *others])
        base = algorithm.admit(keys, "test")
        cipher = ModuleCipher(keys.footer_key, "the footer key", base, algorithm.ctr, "test", secrets.token_bytes)
        out = io.BytesIO()
        write_footer(Sink(out), layout.metadata, algorithm, cipher, None, plaintext=False)
        return data[: layout.footer.start] + out.getvalue()


def test_a_module_that_the_footer_does_not_name_belongs_to_nothing() -> None:
    data = encrypted(PLAINTEXT, MODES[0].keys)
    forgetful = _with_first_chunk(
        data, MODES[0].keys, lambda chunk: chunk.remove(ColumnChunk.COLUMN_INDEX_OFFSET, ColumnChunk.COLUMN_INDEX_LENGTH)
    )
    with pytest.raises(TamperedFileError, match="between the bloom filter bitset of column name in row group 1 and the column index"):
        verify(forgetful, MODES[0].keys)


def test_bytes_that_belong_to_two_modules_are_refused() -> None:
    data = encrypted(PLAINTEXT, MODES[0].keys)

    def longer(chunk: Struct) -> None:
        chunk.set(ColumnChunk.OFFSET_INDEX_LENGTH, thrift.I32, chunk.integer(ColumnChunk.OFFSET_INDEX_LENGTH) + 1)

    with pytest.raises(
        TamperedFileError, match="belong to the offset index of column name in row group 0 and to the offset index of column id"
    ):
        verify(_with_first_chunk(data, MODES[0].keys, longer), MODES[0].keys)


@pytest.mark.parametrize(("offset", "length"), [(0, 10), (-5, 10), (4, -1), (4, 2**31 - 1), (2**62, 5), (10**6, 1)])
def test_modules_outside_of_the_file_are_refused_before_anything_is_read(offset: int, length: int) -> None:
    def outside(chunk: Struct) -> None:
        chunk.set(ColumnChunk.COLUMN_INDEX_OFFSET, thrift.I64, offset)
        chunk.set(ColumnChunk.COLUMN_INDEX_LENGTH, thrift.I32, length)
        pages = chunk.struct(ColumnChunk.META_DATA)
        pages.set(ColumnMetaData.BLOOM_FILTER_OFFSET, thrift.I64, offset or 1)
        pages.set(ColumnMetaData.BLOOM_FILTER_LENGTH, thrift.I32, length)
        pages.set(ColumnMetaData.TOTAL_COMPRESSED_SIZE, thrift.I64, length)
        pages.set(ColumnMetaData.DATA_PAGE_OFFSET, thrift.I64, offset)
        pages.remove(ColumnMetaData.DICTIONARY_PAGE_OFFSET)

    changed = _with_first_chunk(encrypted(PLAINTEXT, MODES[0].keys), MODES[0].keys, outside)
    for work in (verify, inspect):
        with pytest.raises(TamperedFileError, match="are not between byte 4 and the footer"):
            work(changed, MODES[0].keys)


def no_zeros(_start: int, _end: int) -> bool:
    return False


def test_every_byte_has_one_owner() -> None:
    spans = [OwnedSpan(0, 4, "a"), OwnedSpan(4, 10, "b"), OwnedSpan(10, 12, "c")]
    assert list(coverage_gaps(spans, 12, no_zeros)) == []
    assert list(coverage_gaps(reversed(spans), 12, no_zeros)) == []
    assert list(coverage_gaps(spans, 15, no_zeros)) == ["bytes 12 to 15, the end of the file, belong to nothing"]
    assert list(coverage_gaps([spans[0], spans[2]], 12, lambda start, end: (start, end) == (4, 10))) == []
    assert list(coverage_gaps([spans[0], spans[2]], 12, no_zeros)) == ["bytes 4 to 10 belong to nothing: they are between a and c"]
    assert list(coverage_gaps([*spans, OwnedSpan(3, 5, "d")], 12, no_zeros)) == [
        "bytes 3 to 4 belong to d and to a",
        "bytes 4 to 5 belong to b and to d",
    ]
    assert list(coverage_gaps([OwnedSpan(0, 12, "a"), spans[1]], 12, no_zeros)) == ["bytes 4 to 10 belong to b and to a"]
