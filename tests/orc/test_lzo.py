"""LZO chunks and files: what is read of them, how much memory that takes, and that pyarrow's own decoder has no part in it."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lzallright import LZOCompressor, LZOError

from tablecrypt import orc
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import FormatError, MissingExtraError, TablecryptError
from tablecrypt.orc.column_keys import LocalColumnKeys
from tablecrypt.orc.compression import LZO_SHORT_CHUNK, Compression, CompressionKind, _LzoInstructions, decompress_lzo
from tablecrypt.orc.reader import open_view
from tablecrypt.orc.source import FileSource
from tablecrypt.orc.stream_cipher import crypt_stream
from tablecrypt.orc.tail import UNENCRYPTED, LocatedStream, locate_streams, read_tail
from tests.support.mutations import arbitrary
from tests.support.orc_files import vector, vector_keys, vector_rows

pytestmark = pytest.mark.slow

LIMIT: Final = 100_000
END: Final = b"\x11\x00\x00"
FILE: Final = vector("mixed_lzo").read_bytes()


both_ways = pytest.mark.parametrize("short_chunk", [LZO_SHORT_CHUNK, -1], ids=["short", "long"])
"""Chunks that are decompressed at once, and chunks whose instructions are added up beforehand."""


def compressed(contents: bytes) -> bytes:
    chunk: bytes = LZOCompressor().compress(contents)
    return chunk


# Each instruction of the format, behind 4000 literals, with what it appends to them.
START: Final = bytes(range(1, 251)) * 16
FIRST: Final = b"\x00" + bytes(15) + bytes([4000 - 18 - 15 * 255]) + START


def match(distance: int, length: int) -> bytes:
    made = bytearray(START)
    for _ in range(length):
        made.append(made[-distance])
    return bytes(made[len(START) :])


INSTRUCTIONS: Final[dict[str, tuple[bytes, bytes]]] = {
    "3 or 4 bytes, near": (b"\x64\x00", match(2, 4)),
    "5 to 8 bytes, near": (b"\xe0\x01", match(9, 8)),
    "near, with literals": (b"\x62\x00ab", match(1, 4) + b"ab"),
    "2 bytes behind literals": (b"\x61\x00a\x04\x00", match(1, 4) + b"a" + (match(1, 4) + b"a")[-2:]),
    "3 bytes behind more literals": (b"\x00\x00", match(2049, 3)),
    "long literals behind a match": (b"\x60\x00\x01abcd", match(1, 4) + b"abcd"),
    "middle": (b"\x3f\x0c\x00", match(4, 33)),
    "middle, long": (b"\x20\x00\x00\x05\x0c\x00", match(4, 2 + 31 + 2 * 255 + 5)),
    "middle, with literals": (b"\x21\x03\x00xyz", match(1, 3) + b"xyz"),
}


@pytest.mark.parametrize("name", INSTRUCTIONS)
@both_ways
def test_chunks_of_every_instruction_hold_what_they_say(name: str, short_chunk: int) -> None:
    instruction, appended = INSTRUCTIONS[name]
    chunk = FIRST + instruction + END
    wanted = START + appended
    assert decompress_lzo(chunk, len(wanted), "it", short_chunk) == wanted
    for end in range(len(chunk)):
        with pytest.raises(FormatError, match="it: an LZO chunk"):
            decompress_lzo(chunk[:end], LIMIT, "it", short_chunk)


@both_ways
def test_matches_from_far_back_are_read(short_chunk: int) -> None:
    noise = random.Random(1).randbytes(60_000)
    contents = noise + noise[20_000:20_700] + noise[40_000:40_300]
    assert decompress_lzo(compressed(contents), len(contents), "it", short_chunk) == contents
    assert len(compressed(contents)) < len(noise) + 500


@settings(max_examples=150)
@given(st.one_of(st.binary(max_size=600), st.tuples(st.binary(max_size=9), st.integers(0, 3_000)).map(lambda drawn: drawn[0] * drawn[1])))
def test_the_length_of_a_chunk_is_known_before_it_is_opened(contents: bytes) -> None:
    chunk = compressed(contents)
    assert _LzoInstructions(chunk, len(contents), "it").length() == len(contents)
    if contents:
        with pytest.raises(FormatError, match=f"more than the file's block size of {len(contents) - 1}"):
            _LzoInstructions(chunk, len(contents) - 1, "it").length()


CHUNKS: Final = [compressed(START), compressed(bytes(70_000)), FIRST + b"\x64\x00" + END, START]


@settings(max_examples=400)
@given(arbitrary(CHUNKS), st.sampled_from([b"", END]))
def test_any_chunk_is_opened_alike_in_both_ways_or_refused(chunk: bytes, end: bytes) -> None:
    edited = chunk + end
    try:
        opened: bytes | None = LZOCompressor.decompress(edited)
    except LZOError:
        opened = None
    try:
        length = _LzoInstructions(edited, LIMIT, "it").length()
    except FormatError as error:
        assert "it" in str(error)
        assert opened is None or len(opened) > LIMIT
    else:
        assert opened is None or len(opened) == length
    try:
        assert len(Compression(CompressionKind.LZO, 1000).decompress(section(edited), "it")) <= 1000
    except FormatError as error:
        assert "it" in str(error)


def section(chunk: bytes) -> bytes:
    return (len(chunk) << 1).to_bytes(3, "little") + chunk


@pytest.mark.parametrize("length", [2**18, 2**23 - 1])
def test_a_chunk_that_holds_more_than_a_block_is_refused(length: int) -> None:
    bomb = b"\x12a\x20" + bytes(length - 9) + b"\x01\x00\x00" + END
    with pytest.raises(FormatError, match="more than the file's block size of 262144"):
        Compression(CompressionKind.LZO, 2**18).decompress(section(bomb), "it")


def test_without_its_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lzallright", None)
    with pytest.raises(MissingExtraError, match=r'LZO.*pip install "…\[lzo\]"'):
        orc.read_table(FILE, vector_keys())


@pytest.mark.parametrize("columns", [["name"], ["tags", "id"], ["home.geo.lat", "ssn"]])
def test_a_projection_of_a_file_is_read(columns: list[str]) -> None:
    read = orc.read_table(FILE, vector_keys(), columns=columns)
    whole = orc.read_table(FILE, vector_keys())
    assert read.column_names == [name for name in whole.column_names if name in {column.partition(".")[0] for column in columns}]
    for name in set(columns) & set(whole.column_names):
        assert read[name].equals(whole[name])


def test_batches_are_those_of_the_whole_file() -> None:
    rows = [row for batch in orc.read_batches(FILE, vector_keys()) for row in batch.to_pylist()]
    assert rows == vector_rows("mixed_lzo").to_pylist()


def test_the_view_is_the_same_from_any_offset() -> None:
    source = FileSource(FILE)
    view = open_view(read_tail(source), source, vector_keys(), None, masked=False)
    whole = view.read()
    drawn = random.Random(2)
    for _ in range(300):
        begin, length = drawn.randrange(len(whole)), drawn.randrange(40_000)
        view.seek(begin)
        assert view.read(length) == whole[begin : begin + length]


@pytest.mark.parametrize("columns", [None, ["email", "home.zip"]])
def test_pyarrow_is_never_given_a_compressed_chunk(columns: list[str] | None) -> None:
    source = FileSource(FILE)
    view = open_view(read_tail(source), source, vector_keys(), columns, masked=False)
    seen = FileSource(view.read())
    tail = read_tail(seen)
    headers = 0
    for stripe in tail.stripes:
        for located in locate_streams(tail.read_stripe_footer(seen, stripe), stripe, "the view"):
            assert not located.stream.is_index
            raw = seen.read_at(located.offset, located.stream.length)
            while raw:
                header = int.from_bytes(raw[:3], "little")
                assert header & 1
                raw = raw[3 + (header >> 1) :]
                headers += 1
    assert headers > 10 if columns is None else headers > 3


def streams() -> list[tuple[LocatedStream, bytes, Callable[[bytes], bytes]]]:
    """Of each data stream of the file: where it stands, what it is decrypted, and what encrypts it again."""
    source = FileSource(FILE)
    tail = read_tail(source)
    keys = LocalColumnKeys(tail, vector_keys())

    def cipher(key: Secret, located: LocatedStream, stripe_id: int) -> Callable[[bytes], bytes]:
        return lambda data: crypt_stream(key, located.stream.column, located.stream.kind, stripe_id, data)

    found = []
    for stripe in tail.stripes:
        for located in locate_streams(tail.read_stripe_footer(source, stripe), stripe, "the file"):
            raw = source.read_at(located.offset, located.stream.length)
            crypt: Callable[[bytes], bytes] = bytes
            if located.group != UNENCRYPTED:
                crypt = cipher(keys.stripe_key(located.group, stripe), located, stripe.encrypt_id)
            if len(raw) > 3 and not located.stream.is_index:
                found.append((located, crypt(raw), crypt))
    return found


STREAMS: Final = streams()


@settings(max_examples=250)
@given(st.sampled_from(range(len(STREAMS))), st.data())
@example(0, None)
def test_changed_chunks_are_refused_or_read(number: int, data: st.DataObject | None) -> None:
    """Changed beneath the encryption, which anybody can do who can write, and decoded by pyarrow to the end."""
    located, plain, crypt = STREAMS[number]
    edited = bytearray(plain)
    if data is not None:
        at = data.draw(st.integers(0, len(plain) - 1))
        noise = data.draw(st.binary(min_size=1, max_size=12) | st.integers(1, 200).map(bytes))[: len(plain) - at]
        edited[at : at + len(noise)] = noise
    whole = bytearray(FILE)
    whole[located.offset : located.offset + len(plain)] = crypt(bytes(edited))
    try:
        read = orc.read_table(bytes(whole), vector_keys())
    except TablecryptError as error:
        assert str(error)
    else:
        assert len(read) == 400
