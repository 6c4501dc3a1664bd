"""Files of a writer that counts ordinals on beyond the two bytes which AADs have for them."""

from __future__ import annotations

import io
import secrets

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conformance.build.odd_files import AFTER_THE_LAST, with_wrapped_ordinals
from tablecrypt.errors import FormatError, TamperedFileError
from tablecrypt.parquet import FileKeys, decrypt, read_table, verify
from tablecrypt.parquet.modules import MAX_ORDINAL

KEYS = FileKeys(bytes(range(16)), aad_prefix=b"prefix")


def file_of_pages(pages: int) -> bytes:
    plaintext = io.BytesIO()
    options = {"data_page_size": 1, "write_batch_size": 1, "use_dictionary": False, "write_statistics": False, "compression": "none"}
    pq.write_table(pa.table({"id": pa.array(range(pages), pa.int32())}), plaintext, **options)
    return with_wrapped_ordinals(plaintext.getvalue(), KEYS, secrets.token_bytes)


def test_a_row_group_that_says_a_negative_ordinal_is_no_format() -> None:
    plaintext = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2]}), plaintext)
    stored = with_wrapped_ordinals(plaintext.getvalue(), KEYS, secrets.token_bytes, AFTER_THE_LAST)

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
