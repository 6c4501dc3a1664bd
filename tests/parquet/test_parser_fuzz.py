"""Files of arbitrary and of damaged bytes: only our errors come out, and nothing grows beyond the file."""

from __future__ import annotations

import io
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import FormatError, KeyMismatchError, TablecryptError, TamperedFileError
from tablecrypt.parquet import FileKeys, decrypt, encrypt, inspect, read_table, thrift, verify
from tablecrypt.parquet.chunk_modules import StoredHeader
from tablecrypt.parquet.footer import Algorithm
from tablecrypt.parquet.modules import FOOTER_SUFFIX, ModuleCipher
from tablecrypt.parquet.structs import FileCryptoMetaData
from tablecrypt.parquet.thrift import Struct
from tests.support.modular_files import FOOTER_KEY, MODES, PARTLY_PLAIN, encrypted, every_module, plain_file, sample_table
from tests.support.mutations import arbitrary, mutations
from tests.support.parsers import seeds_of

pytestmark = pytest.mark.slow

TABLE = sample_table(10)
PLAINTEXT = plain_file(TABLE, **every_module(row_group_size=5, write_page_checksum=True))
# pyarrow may misread plaintext pages, which nothing authenticates, without our seeing it; it is not what is tried here.
ENCRYPTED = [(encrypted(PLAINTEXT, mode.keys), mode.keys) for mode in (*MODES[1::3], PARTLY_PLAIN)]


def _uses(keys: FileKeys) -> list[Callable[[bytes], Any]]:
    return [
        inspect,
        lambda data: inspect(data, keys),
        lambda data: verify(data, keys),
        lambda data: decrypt(data, io.BytesIO(), keys),
        lambda data: encrypt(data, io.BytesIO(), FileKeys(FOOTER_KEY)),
    ]


def _refuses_or_reads(uses: list[Callable[[bytes], Any]], data: bytes) -> None:
    for use in uses:
        try:
            use(data)
        except TablecryptError as error:
            assert str(error)


@settings(max_examples=150)
@given(mutations([data for data, _ in ENCRYPTED]), st.sampled_from([keys for _, keys in ENCRYPTED]))
def test_damaged_encrypted_files_give_our_errors_or_nothing(data: bytes, keys: FileKeys) -> None:
    _refuses_or_reads(_uses(keys), data)


@settings(max_examples=150)
@given(mutations([PLAINTEXT]))
def test_damaged_plaintext_files_give_our_errors_or_a_file(data: bytes) -> None:
    _refuses_or_reads(_uses(FileKeys(FOOTER_KEY)), data)


def _under_an_authentic_footer(metadata: bytes, plaintext_footer: bool) -> bytes:
    """The pages of the plaintext file and a footer of any bytes, encrypted or signed by somebody who has the key."""
    algorithm = Algorithm(False, b"identity", None, False)
    cipher = ModuleCipher(Secret(FOOTER_KEY), "the footer key", b"identity", False, "test", bytes)
    if plaintext_footer:
        signed = metadata[:-1] + b"\x1c" + algorithm.encode().encode() + b"\x00"  # field 8, after 7
        magic, footer = b"PAR1", signed + cipher.sign(signed)
    else:
        crypto = Struct()
        crypto.set(FileCryptoMetaData.ENCRYPTION_ALGORITHM, thrift.STRUCT, algorithm.encode())
        magic, footer = b"PARE", crypto.encode() + cipher.encrypt(FOOTER_SUFFIX, metadata)
    return magic + PLAINTEXT[4:FOOTER_START] + footer + struct.pack("<I", len(footer)) + magic


FOOTER_START = len(PLAINTEXT) - 8 - struct.unpack("<I", PLAINTEXT[-8:-4])[0]


@settings(max_examples=150)
@given(mutations([PLAINTEXT[FOOTER_START:-8]]), st.booleans())
def test_authentic_footers_that_are_malformed_give_our_errors(metadata: bytes, plaintext_footer: bool) -> None:
    data = _under_an_authentic_footer(metadata, plaintext_footer)
    _refuses_or_reads(_uses(FileKeys(FOOTER_KEY)), data)


@given(st.binary(max_size=400), st.sampled_from([b"PAR1", b"PARE"]), st.integers(0, 450))
def test_arbitrary_bytes_between_the_magics_give_our_errors(body: bytes, magic: bytes, footer_length: int) -> None:
    data = magic + body + struct.pack("<I", footer_length) + magic
    uses: list[Callable[[bytes], Any]] = [*_uses(FileKeys(FOOTER_KEY)), lambda data: read_table(data, FileKeys(FOOTER_KEY))]
    for use in uses:
        with pytest.raises(TablecryptError):
            use(data)


@given(arbitrary(seeds_of("page header")))
def test_arbitrary_bytes_are_a_page_header_or_a_format_error(data: bytes) -> None:
    try:
        header = StoredHeader.decode_at(data)
    except FormatError:
        return
    assert data.startswith(header.encoded)
    rewritten = StoredHeader.decode_at(header.of_body(bytes(77)))
    assert (rewritten.page_type, rewritten.body_length) == (header.page_type, 77)


@pytest.mark.parametrize("magic", [b"PAR1", b"PARE"])
@pytest.mark.parametrize("length", [0, 1, 2**31 - 1, 2**32 - 1])
def test_a_footer_longer_than_the_file_takes_no_memory(magic: bytes, length: int) -> None:
    data = magic + bytes(64) + struct.pack("<I", length) + magic
    tracemalloc.start()
    try:
        with pytest.raises((TamperedFileError, FormatError)):
            inspect(data)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_footer_of_empty_structs_grows_only_with_its_length() -> None:
    """A signed footer is parsed after its signature is checked; before that only its top level is looked at, and nothing is built."""
    count = 300_000
    footer = b"\x49\xfc" + bytes([count & 0x7F | 0x80, count >> 7 & 0x7F | 0x80, count >> 14]) + bytes(count)
    algorithm = b"\x4c\x1c\x28\x08" + bytes(8) + b"\x00\x00\x00"
    stored = footer + algorithm + bytes(28)
    data = b"PAR1" + stored + struct.pack("<I", len(stored)) + b"PAR1"
    tracemalloc.start()
    try:
        with pytest.raises(KeyMismatchError, match="signature"):
            verify(data, FileKeys(FOOTER_KEY))
        assert tracemalloc.get_traced_memory()[1] < 16 * len(data)
    finally:
        tracemalloc.stop()
