"""A chunk that is opened whole is what the plaintext file had, wherever a header is longer or shorter than it was encrypted."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tablecrypt.errors import FormatError, TamperedFileError
from tablecrypt.parquet.chunk_modules import decrypt_chunk
from tablecrypt.parquet.layout import FileLayout, encrypted_layout, plain_layout
from tablecrypt.parquet.storage import source_of
from tests.support.modular_files import GCM_MODES, MODES, PARTLY_PLAIN, Mode, encrypted, every_module, plain_file, sample_table

TABLE = sample_table(60)
OPTIONS: dict[str, dict[str, Any]] = {
    "dictionaries": {},
    "checksums": {"write_page_checksum": True},
    "pages without a dictionary": {"write_page_checksum": True, "use_dictionary": False, "data_page_size": 64, "write_batch_size": 4},
    "long pages": {"use_dictionary": False, "compression": "none", "row_group_size": 60},
}
PLAINTEXTS = {name: plain_file(TABLE, **every_module(**options)) for name, options in OPTIONS.items()}

every_mode = pytest.mark.parametrize("mode", [*MODES, PARTLY_PLAIN], ids=str)


def _layout(data: bytes, mode: Mode) -> FileLayout:
    return encrypted_layout(source_of(data), mode.keys)


def _chunks_of(plaintext: bytes) -> list[bytes]:
    spans = [chunk.pages for chunk in plain_layout(source_of(plaintext)).chunks()]
    return [plaintext[span.start : span.end] for span in spans]


@every_mode
@pytest.mark.parametrize("plaintext", PLAINTEXTS.values(), ids=PLAINTEXTS)
def test_an_opened_chunk_is_that_of_the_plaintext_and_zeros(mode: Mode, plaintext: bytes) -> None:
    chunks = _layout(encrypted(plaintext, mode.keys), mode).chunks()
    for chunk, expected in zip(chunks, _chunks_of(plaintext), strict=True):
        opened = decrypt_chunk(chunk)
        assert bytes(opened) == expected + bytes(chunk.pages.length - len(expected))


@pytest.mark.parametrize("length", range(20, 80))
def test_a_header_that_gets_shorter_or_longer_moves_its_body(length: int) -> None:
    """Around 64 bytes the size of a page takes another number of bytes in its header; a checksum does so once in some lengths."""
    mode = MODES[0]
    table = pa.table({"id": pa.array(["x" * length])})
    plaintext = plain_file(table, use_dictionary=False, compression="none", write_page_checksum=True)
    (chunk,), (expected,) = _layout(encrypted(plaintext, mode.keys), mode).chunks(), _chunks_of(plaintext)
    assert bytes(decrypt_chunk(chunk)).rstrip(b"\0") == expected.rstrip(b"\0")


@pytest.mark.parametrize("mode", GCM_MODES, ids=str)
def test_nothing_of_a_chunk_is_given_when_its_last_page_is_damaged(mode: Mode) -> None:
    data = bytearray(encrypted(PLAINTEXTS["pages without a dictionary"], mode.keys))
    chunk = _layout(bytes(data), mode).chunks()[0]
    data[chunk.pages.end - 1] ^= 1
    with pytest.raises(TamperedFileError, match="column id in row group 0 does not authenticate"):
        decrypt_chunk(_layout(bytes(data), mode).chunks()[0])


def test_a_column_beyond_those_of_a_row_group_is_refused() -> None:
    group = _layout(encrypted(PLAINTEXTS["dictionaries"], MODES[0].keys), MODES[0]).row_groups[1]
    with pytest.raises(FormatError, match="column chunk 4 of row group 1 is malformed: it is not there"):
        group[len(group)]
