"""The pieces of the format, each by itself: wire format, compression, type tree, IVs, statistics."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.orc import read_table
from tablecrypt.orc.compression import Compression, CompressionKind
from tablecrypt.orc.messages import StreamKind
from tablecrypt.orc.protobuf import (
    BYTES,
    FIXED32,
    FIXED64,
    MAX_FIELDS,
    VARINT,
    Field,
    Message,
    blob_field,
    encode,
    integer_field,
    packed_field,
)
from tablecrypt.orc.schema import Schema
from tablecrypt.orc.source import FileSource
from tablecrypt.orc.statistics import merge_statistics
from tablecrypt.orc.stream_cipher import MAX_COLUMN, MAX_STRIPE_ID, crypt_stream, stream_iv
from tablecrypt.orc.tail import Tail, locate_streams, read_tail
from tablecrypt.orc.trusted_numbers import check_lengths
from tests.support.mutations import arbitrary
from tests.support.orc_files import CODECS, encrypted, local_keys, plain, sample_rows

pytestmark = pytest.mark.slow

READ_KINDS = (CompressionKind.NONE, CompressionKind.ZLIB, CompressionKind.SNAPPY, CompressionKind.LZ4, CompressionKind.ZSTD)
KEY = Secret(bytes(range(16)))

numbers = st.integers(1, 2**29 - 1)
fields = st.lists(
    st.one_of(
        st.tuples(numbers, st.just(VARINT), st.integers(0, 2**64 - 1)),
        st.tuples(numbers, st.just(BYTES), st.binary(max_size=300)),
        st.tuples(numbers, st.just(FIXED64), st.binary(min_size=8, max_size=8)),
        st.tuples(numbers, st.just(FIXED32), st.binary(min_size=4, max_size=4)),
    ),
    max_size=20,
)


def plain_tail(rows: pa.Table, **options: Any) -> Tail:
    return read_tail(FileSource(plain(rows, **options)))


@given(fields)
def test_messages_come_back_sorted_by_field_number(given_fields: list[Field]) -> None:
    assert Message.parse(encode(given_fields), "m").fields == sorted(given_fields, key=lambda field: field[0])


def test_a_message_of_millions_of_tiny_fields_is_refused() -> None:
    tiny = encode([integer_field(9, 0)])

    assert len(Message.parse(tiny * MAX_FIELDS, "m").fields) == MAX_FIELDS
    with pytest.raises(FormatError, match=f"m has more than {MAX_FIELDS} fields"):
        Message.parse(tiny * (MAX_FIELDS + 1), "m")


NESTED = encode([blob_field(1, b"text"), integer_field(2, 300)])
MESSAGE = encode([integer_field(1, 5), packed_field(2, [1, 2, 300]), blob_field(3, NESTED), blob_field(3, b"\xff")])


@given(arbitrary([MESSAGE, NESTED], max_size=100))
def test_arbitrary_bytes_are_a_message_or_a_format_error(data: bytes) -> None:
    try:
        message = Message.parse(data, "the message")
    except FormatError as error:
        assert "the message" in str(error)
        return
    for ask in (message.integer, message.integers, message.blobs, message.texts, message.messages):
        for number in range(1, 4):
            try:
                ask(number)
            except FormatError as error:
                assert "the message" in str(error)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_packed_and_unpacked_numbers_are_the_same(values: list[int]) -> None:
    packed = Message.parse(encode([packed_field(2, values)]), "m")
    unpacked = Message.parse(encode([integer_field(2, value) for value in values]), "m")
    assert packed.integers(2) == unpacked.integers(2) == values


@pytest.mark.parametrize(
    "data", [b"\x08" + b"\xff" * 10, b"\x08" + b"\xff" * 9 + b"\x02", b"\x12\x05abc", b"\x0b", b"\x00\x01", b"\x09\x01"]
)
def test_broken_fields_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        Message.parse(data, "m")


def test_a_wire_type_that_does_not_fit_is_refused() -> None:
    message = Message.parse(encode([integer_field(1, 5), blob_field(2, b"x")]), "m")
    for ask in (lambda: message.blob(1), lambda: message.integer(2), lambda: message.texts(1)):
        with pytest.raises(FormatError, match="wire type"):
            ask()
    with pytest.raises(FormatError, match="UTF-8"):
        Message.parse(encode([blob_field(2, b"\xff")]), "m").texts(2)


@settings(max_examples=40)
@given(st.binary(max_size=2_000) | st.integers(0, 9).map(lambda value: bytes([value]) * 5_000), st.integers(1, 3_000))
def test_every_codec_gives_back_what_it_was_given(contents: bytes, block_size: int) -> None:
    for kind in READ_KINDS:
        codec = Compression(kind, block_size)
        assert codec.decompress(codec.compress(contents), "it") == contents


@pytest.mark.parametrize("codec", CODECS)
def test_tails_that_pyarrow_wrote_are_read_with_every_codec(codec: str) -> None:
    wide = pa.table({f"a long name {number} " * 30: [number] for number in range(300)})
    tail = plain_tail(wide, compression=codec, compression_block_size=65536)
    assert len(tail.schema) == 301
    assert len(tail.stripe_statistics()[0]) == 301


SECTIONS = [Compression(kind, 1000).compress(contents) for kind in READ_KINDS for contents in (bytes(2500), bytes(range(256)))]


@settings(max_examples=200)
@given(st.sampled_from(READ_KINDS), arbitrary(SECTIONS, max_size=200))
def test_arbitrary_sections_decompress_or_are_a_format_error(kind: CompressionKind, section: bytes) -> None:
    try:
        opened = Compression(kind, 1000).decompress(section, "the section")
    except FormatError as error:
        assert "the section" in str(error)
    else:
        assert len(opened) <= 1000 * (1 + len(section) // 3)


@pytest.mark.parametrize("kind", READ_KINDS[1:])
def test_a_chunk_that_holds_more_than_a_block_is_refused(kind: CompressionKind) -> None:
    bomb = Compression(kind, 2**23 - 1).compress(bytes(2**22))
    assert len(bomb) < 2**18
    with pytest.raises(FormatError, match="block size of 1000"):
        Compression(kind, 1000).decompress(bomb, "it")


def test_a_section_of_many_blocks_is_bounded() -> None:
    codec = Compression(CompressionKind.ZLIB, 1000, max_section_length=10_000)
    assert len(codec.decompress(codec.compress(bytes(10_000)), "it")) == 10_000
    with pytest.raises(FormatError, match="more than 10000"):
        codec.decompress(codec.compress(bytes(10_001)), "it")


def test_brotli_is_refused_by_name() -> None:
    with pytest.raises(FormatError, match="BROTLI"):
        Compression(CompressionKind.BROTLI, 1000).decompress(b"\x08\x00\x00abcd", "it")


@pytest.mark.parametrize("block_size", [0, 2**23])
def test_impossible_block_sizes_are_refused(block_size: int) -> None:
    with pytest.raises(FormatError, match="block size"):
        Compression(CompressionKind.ZLIB, block_size)


def test_zlib_chunks_are_raw_deflate_behind_a_header_of_three_bytes() -> None:
    section = Compression(CompressionKind.ZLIB, 1000).compress(bytes(500))
    assert int.from_bytes(section[:3], "little") == len(section[3:]) << 1
    assert zlib.decompress(section[3:], -15) == bytes(500)


def test_columns_are_numbered_in_pre_order_and_found_by_name() -> None:
    schema = plain_tail(sample_rows(1)).schema
    for column in schema:
        if column.id:
            assert schema.find(schema.name_of(column.id)) is column
    home = schema.find("home")
    assert [schema.name_of(column) for column in home.subtree] == ["home", "home.zip", "home.geo", "home.geo.lat"]
    assert schema.find("attrs._key").id == schema.find("attrs").id + 1
    with pytest.raises(ConfigurationError, match=r"home\.nope"):
        schema.find("home.nope")


def test_columns_are_found_above_and_below_others() -> None:
    schema = plain_tail(sample_rows(1)).schema
    chosen = {schema.find("home.geo").id, schema.find("tags").id}
    above = [column.id for column in schema if not chosen.isdisjoint(column.subtree)]
    assert schema.at_or_above(chosen) == above
    assert schema.at_or_below(chosen) == {below for column in chosen for below in schema[column].subtree}
    assert (schema.at_or_above(()), schema.at_or_below(())) == ([], set())
    assert [schema.parent_of(column) for column in (0, 1)] == [None, 0]


def _type(kind: int, *children: int, names: tuple[str, ...] = ()) -> Message:
    named = [blob_field(3, name.encode()) for name in names]
    return Message.parse(encode([integer_field(1, kind), packed_field(2, children), *named]), "a type")


@pytest.mark.parametrize(
    "types",
    [
        [],
        [_type(3)],
        [_type(12, 1, names=("a",))],
        [_type(12, 0, names=("a",))],
        [_type(12, 2, names=("a",)), _type(3), _type(3)],
        [_type(12, 1, 1, names=("a", "b")), _type(3)],
        [_type(12, 1, 2, names=("a",)), _type(3), _type(3)],
        [_type(12, 1, names=("a",)), _type(10), _type(3)],
        [_type(12, 1, names=("a",)), _type(3), _type(3)],
        [_type(12, 2**63, names=("a",)), _type(3)],
    ],
)
def test_type_trees_that_are_none_are_refused(types: list[Message]) -> None:
    with pytest.raises(FormatError, match="the footer"):
        Schema.parse(types, "the footer")


def test_a_tree_of_many_columns_is_soon_read() -> None:
    """Nothing looks through all columns for each of them."""
    count = 20_000
    types = [_type(12, *range(1, count + 1), names=("a",) * count), *(_type(3) for _ in range(count))]
    assert Schema.parse(types, "the footer").name_of(count) == "a"


def test_an_iv_is_column_kind_and_stripe() -> None:
    assert stream_iv(0x010203, 0x0405, 0x060708).hex() == "01020304050607080000000000000000"
    for column, stripe_id in ((-1, 1), (MAX_COLUMN + 1, 1), (0, 0), (0, MAX_STRIPE_ID + 1)):
        with pytest.raises(FormatError, match="no IV"):
            stream_iv(column, 1, stripe_id)


def test_a_stream_whose_kind_an_iv_has_no_room_for_is_refused() -> None:
    assert len(stream_iv(1, 2**16 - 1, 1)) == 16
    with pytest.raises(FormatError, match="kind 65536"):
        stream_iv(1, 2**16, 1)


def test_a_footer_that_states_such_a_kind_for_statistics_is_refused() -> None:
    data = encrypted(sample_rows(12).select(["id", "text"]), {"pii": ["text"]}, compression=CODECS[0])
    tail = read_tail(FileSource(data))
    encryption = tail.require_encryption()
    (variant,) = encryption.variants
    hostile = replace(variant, stripe_statistics=tuple(replace(stream, kind=2**40) for stream in variant.stripe_statistics))
    fields = [*tail.footer.without(10), blob_field(10, replace(encryption, variants=(hostile,)).encode())]
    footer = tail.compression.compress(encode(fields))
    postscript = encode([*tail.postscript.without(1), integer_field(1, len(footer))])
    end = len(data) - 1 - data[-1] - tail.postscript.integer(1)
    with pytest.raises(FormatError, match=f"kind {2**40}"):
        read_table(data[:end] + footer + postscript + bytes([len(postscript)]), local_keys())


@given(st.binary(min_size=1, max_size=200), st.data())
def test_a_stream_opens_from_any_offset(plaintext: bytes, data: st.DataObject) -> None:
    ciphertext = crypt_stream(KEY, 5, 1, 7, plaintext)
    whole = Cipher(algorithms.AES(KEY.reveal()), modes.CTR(stream_iv(5, 1, 7))).decryptor()
    assert whole.update(ciphertext) == plaintext
    offset = data.draw(st.integers(0, len(plaintext)))
    assert crypt_stream(KEY, 5, 1, 7, ciphertext[offset:], offset) == plaintext[offset:]


@settings(max_examples=30)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=4))
def test_merged_statistics_are_those_of_all_rows_at_once(lengths: list[int]) -> None:
    parts, first = [], 0
    for length in lengths:
        parts.append(sample_rows(length, first))
        first += length
    merged = [merge_statistics(column) for column in zip(*(plain_tail(part).file_statistics for part in parts), strict=True)]
    wanted = [merge_statistics([column]) for column in plain_tail(pa.concat_tables(parts)).file_statistics]
    assert [_without_collections(column) for column in merged] == [_without_collections(column) for column in wanted]


def _without_collections(statistics: bytes) -> list[Field]:
    """pyarrow leaves the bounds of lists out of some parts, by rules of its own."""
    return Message.parse(statistics, "s").without(12)


def test_lengths_of_lists_are_merged() -> None:
    parts = [
        _statistics(2, 12, integer_field(1, 1), integer_field(2, 4), integer_field(3, 5)),
        _statistics(1, 12, integer_field(1, 0), integer_field(2, 0), integer_field(3, 0)),
    ]
    merged = Message.parse(Message.parse(merge_statistics(parts), "s").blob(12), "s")
    assert [merged.integer(number) for number in (1, 2, 3)] == [0, 4, 5]


def lengths_in(rows: pa.Table, **options: Any) -> list[bytes]:
    """The LENGTH streams of the lists in the column `lists` of a file that pyarrow wrote, decompressed."""
    source = FileSource(plain(rows, **options))
    tail = read_tail(source)
    column = tail.schema.find("lists").id
    found = []
    for stripe in tail.stripes:
        for located in locate_streams(tail.read_stripe_footer(source, stripe), stripe, "memory"):
            if (located.stream.column, located.stream.kind) == (column, StreamKind.LENGTH):
                found.append(tail.compression.decompress(source.read_at(located.offset, located.stream.length), "lengths"))
    return found


lengths_of_lists = st.one_of(
    st.lists(st.integers(0, 40), min_size=1, max_size=1500),
    st.tuples(st.integers(0, 30), st.integers(1, 600)).map(lambda drawn: [drawn[0]] * drawn[1]),
    st.integers(1, 120).map(lambda count: list(range(count))),
    st.integers(1, 120).map(lambda count: list(range(count, 0, -1))),
    st.integers(2, 60).map(lambda count: [number * number % 17 for number in range(count)] + [3000, *([1] * 40)]),
)


@settings(max_examples=80)
@given(lengths_of_lists, st.sampled_from(["0.11", "0.12"]))
def test_lengths_of_every_kind_of_run_add_up_exactly(counts: list[int], file_version: str) -> None:
    lists = pa.array([[1] * count for count in counts], pa.list_(pa.int8()))
    (lengths,) = lengths_in(pa.table({"lists": lists}), file_version=file_version)
    version = 1 if file_version == "0.11" else 2
    check_lengths(lengths, version, "the lengths", limit=sum(counts))
    if sum(counts):
        with pytest.raises(FormatError, match="the lengths claim to be more than"):
            check_lengths(lengths, version, "the lengths", limit=sum(counts) - 1)


# Runs of the specification's examples.
RUNS: Final = {
    "short repeat": (bytes([0x0A, 0x27, 0x10]), 50_000),
    "direct": (bytes([0x5E, 0x03, 0x5C, 0xA1, 0xAB, 0x1E, 0xDE, 0xAD, 0xBE, 0xEF]), 23_713 + 43_806 + 57_005 + 48_879),
    "delta": (bytes([0xC6, 0x09, 0x02, 0x02, 0x22, 0x42, 0x42, 0x46]), 129),
    "patched base": (
        bytes.fromhex("8e132b2107d01e00147028323c46505a646e78828c96a0aab4befce8"),
        1_000_000 + 2030 + 2000 + 2020 + sum(range(2040, 2200, 10)),
    ),
}


@pytest.mark.parametrize("kind", RUNS)
def test_the_runs_of_the_specification_add_up(kind: str) -> None:
    run, total = RUNS[kind]
    check_lengths(run, 2, "the lengths", limit=total)
    with pytest.raises(FormatError, match="more than"):
        check_lengths(run, 2, "the lengths", limit=total - 1)
    for end in range(1, len(run)):
        with pytest.raises(FormatError, match=r"ends (early|inside)"):
            check_lengths(run[:end], 2, "the lengths", limit=total)


@pytest.mark.parametrize(
    ("run", "version"),
    [
        (bytes([0xC0, 0x19, 0x06, 0x73]), 2),
        (bytes([0xC6, 0x09, 0x02, 0x03, 0x22, 0x42, 0x42, 0x46]), 2),
        (bytes([0x8E, 0x00, 0x2B, 0x20, 0x87, 0xD0, 0x01]), 2),
        (bytes([0x01, 0xF0, 0x05]), 1),
    ],
)
def test_lengths_below_none_are_refused(run: bytes, version: int) -> None:
    with pytest.raises(FormatError, match="fewer than 0"):
        check_lengths(run, version, "the lengths", limit=2**31)


@settings(max_examples=300)
@given(arbitrary([run for run, _ in RUNS.values()], max_size=60), st.sampled_from([1, 2]))
def test_arbitrary_lengths_are_within_the_limit_or_a_format_error(lengths: bytes, version: int) -> None:
    try:
        check_lengths(lengths, version, "the lengths", limit=1000)
    except FormatError as error:
        assert "the lengths" in str(error)


def _statistics(count: int, number: int, *typed: Field) -> bytes:
    return encode([integer_field(1, count), blob_field(number, encode(typed))])


def test_a_part_without_values_does_not_hide_the_bounds_of_others() -> None:
    empty, full = _statistics(0, 2), _statistics(3, 2, integer_field(1, 2), integer_field(2, 10), integer_field(3, 12))
    assert Message.parse(merge_statistics([empty, full]), "s").blob(2) == Message.parse(full, "s").blob(2)


def test_a_sum_that_is_missing_or_overflows_is_left_out() -> None:
    large = _statistics(1, 2, integer_field(1, 2**64 - 2), integer_field(2, 2**64 - 2), integer_field(3, 2**64 - 2))
    without = _statistics(1, 2, integer_field(1, 2), integer_field(2, 2))
    for parts in ([large, large], [large, without]):
        merged = Message.parse(Message.parse(merge_statistics(parts), "s").blob(2), "s")
        assert merged.optional_integer(3) is None
        assert merged.integer(2) == 2**64 - 2


def test_bounds_of_long_text_stay_bounds() -> None:
    exact = _statistics(1, 4, blob_field(1, b"b"), blob_field(2, b"c"))
    cut = _statistics(1, 4, blob_field(4, b"a"), blob_field(5, b"d"))
    merged = Message.parse(Message.parse(merge_statistics([exact, cut]), "s").blob(4), "s")
    assert merged.fields == [(4, BYTES, b"a"), (5, BYTES, b"d")]


def test_statistics_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(FormatError, match="decimal"):
        merge_statistics([_statistics(1, 6, blob_field(1, b"1e"))])
