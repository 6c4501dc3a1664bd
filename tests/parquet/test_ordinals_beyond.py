"""Files of a writer that counts ordinals on beyond the two bytes which AADs have for them."""

from __future__ import annotations

import io
import secrets
import struct
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conformance.build.odd_files import with_wrapped_ordinal
from tablecrypt.errors import FormatError, TamperedFileError
from tablecrypt.parquet import FileKeys, decrypt, read_table, verify
from tablecrypt.parquet.layout import plain_layout
from tablecrypt.parquet.module_writer import FileEncryption, ModularWriter, NewChunk, PlacedChunk, write_pages
from tablecrypt.parquet.modules import MAX_ORDINAL, ModuleOrdinals, ModuleType
from tablecrypt.parquet.storage import Sink, open_source

KEYS = FileKeys(bytes(range(16)), aad_prefix=b"prefix")


@dataclass(frozen=True, slots=True)
class Wrapping(ModuleOrdinals):
    """Of pages it counts on from 32767 to -32768."""

    def suffix(self, module_type: ModuleType, page: int = 0) -> bytes:
        first = ModuleOrdinals.suffix(self, module_type)
        return first if not module_type.has_page else first[:-2] + struct.pack("<H", page % 2**16)


class WrappingWriter(ModularWriter):
    def _write_pages(self, placed: PlacedChunk, column: int) -> NewChunk:
        ordinals = Wrapping(0, column, ".".join(placed.path))
        return write_pages(self._sink, self._encryption.cipher(placed.path), placed, ordinals)


def file_of_pages(pages: int) -> bytes:
    plaintext, encrypted = io.BytesIO(), io.BytesIO()
    options = {"data_page_size": 1, "write_batch_size": 1, "use_dictionary": False, "write_statistics": False, "compression": "none"}
    pq.write_table(pa.table({"id": pa.array(range(pages), pa.int32())}), plaintext, **options)
    writer = WrappingWriter(Sink(encrypted), FileEncryption(KEYS, "wrapping", secrets.token_bytes))
    with open_source(plaintext.getvalue(), "plaintext") as source:
        writer.add(plain_layout(source))
    writer.finish()
    return encrypted.getvalue()


def test_a_row_group_that_says_a_negative_ordinal_is_no_format() -> None:
    stored = with_wrapped_ordinal(pa.table({"id": [1, 2]}), KEYS, secrets.token_bytes)

    for open_it in (verify, read_table):
        with pytest.raises(FormatError, match="it has a row group with ordinal -32768: modular encryption counts from 0 to 32767"):
            open_it(stored, KEYS)


@pytest.fixture(scope="module")
def one_page_too_many() -> bytes:
    return file_of_pages(MAX_ORDINAL + 2)


def test_a_page_too_many_of_a_chunk_is_no_format(one_page_too_many: bytes) -> None:
    cannot_be = "page 32768 of column id in row group 0 cannot be: modular encryption has pages 0 to 32767"
    with pytest.raises(FormatError, match=cannot_be):
        decrypt(one_page_too_many, io.BytesIO(), KEYS)
    # What a whole file is verified for is that nobody changed it.
    with pytest.raises(TamperedFileError, match=cannot_be):
        verify(one_page_too_many, KEYS)


def test_as_many_pages_as_aads_have_room_for_are_read() -> None:
    verify(file_of_pages(MAX_ORDINAL + 1), KEYS)
