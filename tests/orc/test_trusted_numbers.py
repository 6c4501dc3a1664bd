"""What pyarrow's decoder trusts of a file that anybody may have written is checked first: numbers that would crash it or keep it busy."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tablecrypt import orc
from tablecrypt._bytes import varint, zigzag
from tablecrypt.errors import FormatError
from tablecrypt.orc.messages import StreamKind
from tablecrypt.orc.protobuf import Field, blob_field, integer_field
from tablecrypt.orc.schema import MAX_DEPTH, MAX_UNION, TypeKind
from tablecrypt.orc.source import FileSource
from tablecrypt.orc.tail import locate_streams, read_tail
from tablecrypt.orc.trusted_numbers import MAX_ELEMENTS, check_scales
from tests.support.orc_files import EPOCH, encrypted, plain
from tests.support.orc_parts import STRUCT, TEXT, OrcParts, Part, encoding, file_of, type_of

pytestmark = pytest.mark.slow

INT: Final = 3
DICTIONARY_DATA: Final = 3
DIRECT, DIRECT_V2, DICTIONARY_V2 = 0, 2, 3
WIDTHS: Final = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)
BUFFER: Final = 128 * 1024
"""How many bytes of a stream pyarrow's decoder asks for at once."""


def read(data: bytes) -> pa.Table:
    return orc.read_table(data, masked=True, columns=["a"])


@pytest.mark.parametrize("size", [MAX_ELEMENTS + 1, 2**32 - 1, 2**64 - 1])
def test_a_dictionary_larger_than_any_is_refused(size: int) -> None:
    """Of 2^32 - 1 texts the decoder writes the lengths into memory of none."""
    streams = [Part(StreamKind.DATA, 1, b"\x07\x00"), Part(StreamKind.LENGTH, 1, b"\x00\x02"), Part(DICTIONARY_DATA, 1, b"ab")]
    with pytest.raises(FormatError, match=f"a dictionary of {size} texts"):
        read(file_of([type_of(TEXT)], streams, [encoding(DICTIONARY_V2, size)], 10))


def decimals(precision: int, scale: int) -> bytes:
    """A file of a decimal column with two digits behind the point, whose values 1 are stored with this scale."""
    fields: list[Field] = [integer_field(5, precision), integer_field(6, 2)]
    scales = bytes([97, 0]) + varint(zigzag(scale))
    streams = [Part(StreamKind.DATA, 1, b"\x02" * 100), Part(StreamKind.SECONDARY, 1, scales)]
    return file_of([type_of(TypeKind.DECIMAL, fields=fields)], streams, [encoding(DIRECT)], 100)


@pytest.mark.parametrize("precision", [0, 10, 38])
@pytest.mark.parametrize("scale", [-(2**63), -(2**31), -1, 39, 2**31, 2**62])
def test_a_scale_that_no_decimal_has_is_refused(precision: int, scale: int) -> None:
    """A wide decimal takes seconds for each value of a negative scale, and a narrow one the process for the lowest."""
    with pytest.raises(FormatError, match="the scales of column 'a' are not all from 0 to 38"):
        read(decimals(precision, scale))


@pytest.mark.parametrize("precision", [10, 38])
@pytest.mark.parametrize(("scale", "shown"), [(0, "1.00"), (1, "0.10"), (2, "0.01"), (3, "0.00")])
def test_values_of_another_scale_than_their_columns_are_read(precision: int, scale: int, shown: str) -> None:
    assert {str(value) for value in read(decimals(precision, scale))["a"].to_pylist()} == {shown}


def stored_numbers(numbers: Sequence[int], file_version: str) -> bytes:
    """Signed numbers as pyarrow writes them, which are encoded as scales are."""
    source = FileSource(plain(pa.table({"n": pa.array(numbers, pa.int64())}), file_version=file_version))
    tail = read_tail(source)
    (stripe,) = tail.stripes
    located = locate_streams(tail.read_stripe_footer(source, stripe), stripe, "memory")
    (data,) = (one for one in located if (one.stream.column, one.stream.kind) == (1, StreamKind.DATA))
    return tail.compression.decompress(source.read_at(data.offset, data.stream.length), "numbers")


scales_of_decimals = st.one_of(
    st.lists(st.integers(0, 38), min_size=1, max_size=1500),
    st.lists(st.integers(-2, 40), min_size=1, max_size=20),
    st.tuples(st.integers(-1, 39), st.integers(1, 600)).map(lambda drawn: [drawn[0]] * drawn[1]),
    st.integers(2, 41).map(lambda count: list(range(count))),
    st.integers(1, 39).map(lambda first: list(range(first, -2, -1))),
    st.tuples(st.integers(0, 38), st.integers(-(2**63), 2**63 - 1)).map(lambda drawn: [drawn[0], 3, 1, 2] * 30 + [drawn[1]]),
)


@settings(max_examples=150)
@given(scales_of_decimals, st.sampled_from(["0.11", "0.12"]))
def test_exactly_the_scales_that_decimals_have_pass(scales: list[int], file_version: str) -> None:
    stored, version = stored_numbers(scales, file_version), 1 if file_version == "0.11" else 2
    if min(scales) >= 0 and max(scales) <= 38:
        check_scales(stored, version, "the scales")
        return
    with pytest.raises(FormatError, match="the scales are not all from 0 to 38"):
        check_scales(stored, version, "the scales")


def union(tags: bytes) -> bytes:
    """A file of a union of one column of numbers, whose 10 values have these tags."""
    streams = [Part(StreamKind.DATA, 1, tags), Part(StreamKind.DATA, 2, b"\x07\x00\x00")]
    return file_of([type_of(TypeKind.UNION, 2), type_of(INT)], streams, [encoding(DIRECT), encoding(DIRECT)], 10)


@pytest.mark.parametrize("tags", [b"\x07\x01", b"\x07\xff", b"\xf6" + bytes(9) + b"\x01"])
def test_a_tag_of_no_column_of_a_union_is_refused(tags: bytes) -> None:
    """The decoder counts such values in memory that is not its own."""
    with pytest.raises(FormatError, match="the tags of column 'a' name a column beyond the 1"):
        read(union(tags))


@pytest.mark.parametrize("tags", [b"\x07\x00", b"\xf6" + bytes(10)])
def test_a_union_of_its_own_columns_is_read(tags: bytes) -> None:
    assert read(union(tags))["a"].to_pylist() == [0] * 10


def test_a_union_of_more_columns_than_pyarrow_can_number_is_refused() -> None:
    def of(count: int) -> bytes:
        streams = [Part(StreamKind.DATA, 1, b"\x07\x00"), *(Part(StreamKind.DATA, number + 2, b"\x07\x00\x00") for number in range(count))]
        types = [type_of(TypeKind.UNION, *range(2, count + 2)), *[type_of(INT)] * count]
        return file_of(types, streams, [encoding(DIRECT)] * (count + 1), 10)

    assert read(of(MAX_UNION))["a"].to_pylist() == [0] * 10
    with pytest.raises(FormatError, match=f"column 1 is a union of {MAX_UNION + 1} columns"):
        read(of(MAX_UNION + 1))


def patched(count: int, width: int, patch_width: int, patches: Sequence[tuple[int, int]]) -> bytes:
    """A run of patched base: `count` zeros, and of each patch its gap and high bits."""
    bits = next(each for each in WIDTHS if each >= patch_width + 8)
    packed = int("".join(f"{gap << patch_width | high:0{bits}b}" for gap, high in patches), 2)
    head = [0x80 | WIDTHS.index(width) << 1 | count - 1 >> 8, count - 1 & 0xFF, WIDTHS.index(patch_width), 7 << 5 | len(patches), 0]
    return bytes(head) + bytes(count * width // 8) + packed.to_bytes(bits * len(patches) // 8, "big")


@pytest.mark.parametrize("width", [8, 32])
def test_a_run_whose_last_patch_is_none_is_refused(width: int) -> None:
    """The decoder goes on with the second patch of the run before, which means another number here: a length of 2^50, or below 0."""
    lengths = patched(304, 8, 24, [(1, 1), (128, 1)]) + patched(304, width, 40, [(255, 0)])
    with pytest.raises(FormatError, match="the lengths of column 'a' have a run whose last patch is none"):
        read(file_of([type_of(TEXT)], [Part(StreamKind.LENGTH, 1, lengths), Part(StreamKind.DATA, 1, b"")], [encoding(DIRECT_V2)], 608))


def deflated(contents: bytes) -> bytes:
    deflate = zlib.compressobj(wbits=-15)
    return deflate.compress(contents) + deflate.flush()


@pytest.mark.parametrize("between", [b"", bytes(BUFFER - 3 - len(deflated(b"\x07\x00")))])
def test_a_chunk_with_more_behind_its_contents_is_refused(between: bytes) -> None:
    """At the end of its buffer the decoder takes what follows for more contents of the chunk: for lengths that nobody checked."""
    chunk = deflated(b"\x07\x00") + between + deflated(b"\x3f" + struct.pack(">Q", 2**40))
    streams = [Part(StreamKind.LENGTH, 1, (len(chunk) << 1).to_bytes(3, "little") + chunk), Part(StreamKind.DATA, 1, b"\x03\x00\x00a")]
    with pytest.raises(FormatError, match="the lengths of column 'a': a ZLIB chunk does not end where its contents do"):
        read(file_of([type_of(TEXT)], streams, [encoding(DIRECT_V2)], 20, codec="zlib"))


def test_a_chunk_that_ends_before_its_contents_is_refused() -> None:
    chunk = deflated(bytes(range(200)))[:-20]
    streams = [Part(StreamKind.LENGTH, 1, (len(chunk) << 1).to_bytes(3, "little") + chunk), Part(StreamKind.DATA, 1, b"\x03\x00\x00a")]
    with pytest.raises(FormatError, match="does not end where its contents do"):
        read(file_of([type_of(TEXT)], streams, [encoding(DIRECT_V2)], 20, codec="zlib"))


@pytest.mark.parametrize("zone", ["../../../../../../dev/zero", "Europe/../../pipe", ".."])
def test_a_time_zone_that_names_a_file_elsewhere_is_refused(zone: str) -> None:
    """The decoder opens the file, and a pipe to which nobody writes would hold it up for good."""
    parts = OrcParts.of(encrypted(pa.table({"a": [EPOCH], "ssn": ["1"]}), {"pii": ["ssn"]}))
    parts.stripes[0].rest = [blob_field(3, zone.encode())]
    with pytest.raises(FormatError, match="names a time zone outside of the folder"):
        read(parts.file())


def map_of_numbers(*more: Part) -> bytes:
    """A file of 8 maps of one entry, whose keys are 1 to 8."""
    streams = [
        Part(StreamKind.LENGTH, 1, b"\x05\x00\x01"),
        Part(StreamKind.DATA, 2, b"\x05\x01\x02"),
        Part(StreamKind.DATA, 3, b"\x05\x00\x00"),
    ]
    return file_of([type_of(TypeKind.MAP, 2, 3), type_of(INT), type_of(INT)], [*streams, *more], [encoding(DIRECT)] * 3, 8)


@pytest.mark.parametrize("present", [0x00, 0xFE, 0xFF])
def test_nulls_among_the_keys_of_a_map_are_refused(present: int) -> None:
    """Arrow ends the process at the first of them."""
    with pytest.raises(FormatError, match=r"the nulls of column 'a\._key' are among the keys of a map"):
        read(map_of_numbers(Part(StreamKind.PRESENT, 2, bytes([0xFF, present]))))


def test_nulls_among_the_values_of_a_map_are_read() -> None:
    rows = read(map_of_numbers(Part(StreamKind.PRESENT, 3, b"\xff\xaa")))
    assert rows["a"].to_pylist()[:2] == [[(1, 0)], [(2, None)]]


@pytest.mark.parametrize("kind", [STRUCT, TypeKind.LIST])
def test_columns_nested_deeper_than_any_are_refused(kind: int) -> None:
    """pyarrow ends the process at some ten thousands."""
    fields = [blob_field(3, b"x")] if kind == STRUCT else []
    types = [type_of(kind, number + 2, fields=fields) for number in range(MAX_DEPTH)]
    with pytest.raises(FormatError, match=f"nested deeper than {MAX_DEPTH}"):
        read(file_of([*types, type_of(INT)], [], [encoding(DIRECT)] * (MAX_DEPTH + 1), 0))


def test_columns_nested_as_deep_as_may_be_are_read() -> None:
    depth = MAX_DEPTH - 2
    types = [type_of(STRUCT, number + 2, fields=[blob_field(3, b"x")]) for number in range(depth)]
    value = read(file_of([*types, type_of(INT)], [Part(StreamKind.DATA, depth + 1, b"\x07\x00\x0a")], [encoding(DIRECT)] * (depth + 1), 10))
    (one,) = {str(each) for each in value["a"].to_pylist()}
    assert one.count("x") == depth and "5" in one
