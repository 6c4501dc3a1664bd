"""Numbers and lengths in bytes: what was written is read, and nothing is read past the end or in two spellings."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt._bytes import ByteReader, frame, from_zigzag, read_varint, varint, zigzag
from tablecrypt.errors import FormatError

SIGNED = st.integers(-(2**63), 2**63 - 1)


@given(number=st.integers(0, 2**64 - 1), before=st.binary(max_size=3), after=st.binary(max_size=3))
def test_a_varint_is_read_where_it_lies_and_to_its_end(number: int, before: bytes, after: bytes) -> None:
    data = before + varint(number) + after
    for is_shortest in (True, False):
        assert read_varint(data, len(before), is_shortest) == (number, len(data) - len(after))


@given(number=SIGNED)
def test_zigzag_is_undone_and_is_never_negative(number: int) -> None:
    assert from_zigzag(zigzag(number)) == number
    assert 0 <= zigzag(number) < 2**64
    assert ByteReader(varint(zigzag(number)), "it").long(is_shortest=True) == number


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x80" * 11, "64 bits"),
        (b"\xff" * 9 + b"\x02", "64 bits"),
        (b"\xff" * 10 + b"\x00", "64 bits"),
        (b"\x80\x00", "longer than it needs"),
        (b"\x81\x80\x00", "longer than it needs"),
        (b"", "ends inside a number"),
        (b"\x80", "ends inside a number"),
    ],
    ids=["endless", "2^64", "eleven bytes", "overlong zero", "overlong one", "nothing", "cut"],
)
def test_what_is_no_varint_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(FormatError, match=f"^it[: ].*{said}"):
        ByteReader(data, "it").varint(is_shortest=True)


@pytest.mark.parametrize(("data", "number"), [(b"\x80\x00", 0), (b"\x81\x80\x00", 1), (b"\xff" * 9 + b"\x01", 2**64 - 1)])
def test_a_format_may_take_numbers_that_are_longer_than_they_need_to_be(data: bytes, number: int) -> None:
    reader = ByteReader(data, "it")
    assert (reader.varint(), reader.left) == (number, 0)


@given(contents=st.lists(st.binary(max_size=20)), size=st.sampled_from([1, 4, 8]), order=st.sampled_from(["little", "big"]))
def test_frames_follow_one_another(contents: list[bytes], size: int, order: str) -> None:
    reader = ByteReader(b"".join(frame(each, size, order) for each in contents), "it")  # type: ignore[arg-type]
    assert [reader.frame(size, order) for _ in contents] == contents  # type: ignore[arg-type]
    reader.check_exhausted()


@given(data=st.binary(max_size=40), calls=st.lists(st.sampled_from(["take", "negative", "frame", "varint", "number", "unpack", "long"])))
def test_no_bytes_are_read_past_the_end(data: bytes, calls: list[str]) -> None:
    reader = ByteReader(data, "it")
    steps: dict[str, Callable[[], object]] = {
        "take": lambda: reader.take(3),
        "negative": lambda: reader.take(-1),
        "frame": lambda: reader.frame(1),
        "varint": reader.varint,
        "number": lambda: reader.number(2, signed=True),
        "unpack": lambda: reader.unpack(struct.Struct("<HB")),
        "long": reader.long,
    }
    for call in calls:
        before = reader.position
        try:
            steps[call]()
        except FormatError as error:
            assert reader.position in (before, before + 1)
            assert str(error).startswith("it")
        assert 0 <= reader.left == len(data) - reader.position
    assert reader.rest() == data[len(data) - reader.left :] or reader.left == 0


def test_bytes_behind_the_last_are_refused_and_not_shown() -> None:
    reader = ByteReader(b"\x01secret", "the record")
    assert reader.number(1) == 1
    with pytest.raises(FormatError, match=r"^the record is followed by 6 bytes that do not belong to it$"):
        reader.check_exhausted()
    with pytest.raises(FormatError, match=r"^the record ends early: 7 bytes should follow byte 1, 6 do$"):
        reader.take(7)
