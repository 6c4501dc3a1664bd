"""Bytes that are no ORC file, or are no more: only our errors come out, soon, and nothing grows without bound."""

from __future__ import annotations

import tracemalloc

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tablecrypt import orc
from tablecrypt.errors import FormatError, TablecryptError
from tablecrypt.orc.compression import Compression, CompressionKind
from tablecrypt.orc.plain_view import PlainView
from tablecrypt.orc.protobuf import blob_field, encode, integer_field, packed_field
from tablecrypt.orc.reader import open_view
from tablecrypt.orc.source import FileSource
from tablecrypt.orc.tail import read_tail
from tests.support.mutations import flipped, mutations
from tests.support.orc_files import CODECS, encrypted, local_keys, repeatable_keys, sample_rows

pytestmark = pytest.mark.slow

ROWS = sample_rows(40).drop_columns(["small", "big", "real", "raw"])
ENCRYPT = {"pii": ["text", "home.zip"], "pii256": ["tags"]}
FILES = [encrypted(ROWS, ENCRYPT, repeatable_keys(), compression=codec, stripe_size=3_000) for codec in CODECS]
BOUND = 64 * 1024 * 1024


def view_of(data: bytes) -> PlainView:
    source = FileSource(data)
    return open_view(read_tail(source), source, local_keys(), None, masked=True)


def read_all(data: bytes) -> int:
    """Open a file as pyarrow would see it and read every byte of it. The decoder itself is pyarrow's and not what is tried here."""
    view, length = view_of(data), 0
    while piece := view.read(1 << 20):
        length += len(piece)
    return length


def refused_or_read(data: bytes) -> None:
    tracemalloc.start()
    try:
        read_all(data)
    except TablecryptError as error:
        assert str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < BOUND


@settings(max_examples=300)
@given(st.binary(max_size=400))
@example(b"")
@example(b"ORC")
@example(b"ORC\x00")
@example(b"ORC" + b"\xff" * 300)
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        read_all(data)


@settings(max_examples=300)
@given(st.sampled_from(FILES), st.data())
def test_a_cut_file_is_refused(whole: bytes, data: st.DataObject) -> None:
    with pytest.raises(TablecryptError):
        read_all(whole[: data.draw(st.integers(0, len(whole) - 1))])


@settings(max_examples=250)
@given(mutations(FILES))
def test_changed_bytes_are_refused_or_read(data: bytes) -> None:
    refused_or_read(data)


@settings(max_examples=120)
@given(st.sampled_from(FILES), st.data())
def test_overwritten_ranges_are_refused_or_read(whole: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(whole) - 1))
    noise = data.draw(st.binary(min_size=1, max_size=200))
    refused_or_read(whole[:at] + noise + whole[at + len(noise) :])


def test_bits_of_every_byte_may_flip() -> None:
    whole = encrypted(sample_rows(5).select(["id", "text"]), {"pii": ["text"]}, repeatable_keys(), compression="uncompressed")
    for at in range(len(whole)):
        for bit in (at % 8, (at + 3) % 8):
            changed = flipped(whole, at, bit)
            try:
                read_all(changed)
            except TablecryptError as error:
                assert str(error)


def file_with(footer: bytes, *, kind: int = 0, lengths: dict[int, int] | None = None) -> bytes:
    """A file whose tail says what it likes."""
    numbers = {1: len(footer), 2: kind, 3: 65536, 5: 0, **(lengths or {})}
    postscript = encode([*(integer_field(number, value) for number, value in numbers.items()), blob_field(8000, b"ORC")])
    return b"ORC" + footer + postscript + bytes([len(postscript)])


ROOT = encode([integer_field(1, 12), packed_field(2, [1]), blob_field(3, b"a")])
LEAF = encode([integer_field(1, 3)])
KEY = encode([blob_field(1, b"pii"), integer_field(2, 0), integer_field(3, 1)])


def footer_with(*stripes: bytes, encryption: bytes | None = None) -> bytes:
    variant = encode([integer_field(1, 1), integer_field(2, 0), blob_field(3, bytes(16)), blob_field(5, b"")])
    whole = encode([blob_field(2, KEY), blob_field(3, variant)]) if encryption is None else encryption
    return encode([*(blob_field(3, stripe) for stripe in stripes), blob_field(4, ROOT), blob_field(4, LEAF), blob_field(10, whole)])


def stripe(*numbers: int, keys: int = 1, encrypt_id: int = 1) -> bytes:
    fields = [integer_field(number, value) for number, value in enumerate(numbers, start=1)]
    return encode([*fields, integer_field(6, encrypt_id), *(blob_field(7, bytes(16)) for _ in range(keys))])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (file_with(b"", lengths={1: 2**63}), "more than the file has"),
        (file_with(b"", lengths={5: 2**64 - 1}), "more than the file has"),
        (file_with(b"", lengths={7: 1000}), "more than the file has"),
        (file_with(b"", kind=77), "unknown compression 77"),
        (file_with(b"", kind=1, lengths={3: 2**40}), "block size"),
        (file_with(b"\x02\x00\x00x", kind=3), "LZO"),
        (file_with(b"\x02\x00\x00x", kind=6), "BROTLI"),
        (file_with(footer_with(stripe(3, 2**62, 2**62, 0, 1))), "outside"),
        (file_with(footer_with(stripe(0, 0, 0, 0, 1))), "outside"),
        (file_with(footer_with(stripe(3, 0, 0, 0, 2**64 - 1))), "outside"),
        (file_with(footer_with(stripe(3, 0, 0, 0, 1), stripe(2, 0, 0, 0, 1))), "outside"),
        (file_with(footer_with(stripe(3, 0, 0, 0, 1, keys=0))), "0 local keys for 1"),
        (file_with(footer_with(stripe(3, 0, 0, 0, 1, keys=2))), "2 local keys for 1"),
        (file_with(footer_with(stripe(3, 0, 0, 0, 1, encrypt_id=0))), "local keys"),
        (file_with(footer_with(stripe(3, 0, 0, 0, 1, encrypt_id=2**24))), "local keys"),
        (file_with(footer_with(encryption=encode([blob_field(3, encode([integer_field(1, 9)]))]))), "encrypts column 9"),
        (file_with(footer_with(encryption=encode([blob_field(2, encode([integer_field(3, 9)]))]))), "algorithm 9"),
    ],
)
def test_tails_that_contradict_the_file_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        read_all(data)


def test_a_footer_that_grows_when_decompressed_is_bounded() -> None:
    bomb = Compression(CompressionKind.ZLIB, 65536).compress(bytes(2**20)) * 300
    tracemalloc.start()
    with pytest.raises(FormatError, match=r"when decompressed.*: if long texts in its statistics made it so, write the file uncompressed"):
        read_all(file_with(bomb, kind=1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * 256 * 1024 * 1024


def test_what_pyarrow_cannot_decode_is_a_format_error() -> None:
    rows = pa.table({"text": ["a" * 100] * 50})
    whole = encrypted(rows, {"pii": ["text"]}, repeatable_keys(), compression="zlib")
    refused = 0
    for at in range(3, read_tail(FileSource(whole)).statistics_offset):
        changed = bytearray(whole)
        changed[at] ^= 0xFF
        try:
            orc.read_table(bytes(changed), local_keys())
        except FormatError:
            refused += 1
    assert refused > 5
