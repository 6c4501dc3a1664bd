"""The Avro decoder never leaves its bytes, whatever lengths and counts they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder

from tablecrypt.errors import FormatError
from tablecrypt.manifests.avro_container import bounded_decoder
from tests.support.manifest_bytes import varint
from tests.support.mutations import arbitrary

SIZED: list[Callable[[BinaryDecoder], Any]] = [
    lambda decoder: decoder.read_bytes(),
    lambda decoder: decoder.read_utf8(),
    lambda decoder: decoder.skip_bytes(),
    lambda decoder: decoder.skip_utf8(),
    lambda decoder: decoder.read(decoder.read_int()),
    lambda decoder: decoder.skip(decoder.read_int()),
    lambda decoder: decoder.read_ints(decoder.read_int()),
    lambda decoder: decoder.read_int_bytes_dict(decoder.read_int(), {}),
]


@pytest.mark.parametrize("call", SIZED)
@pytest.mark.parametrize("size", [-1, -5, -(2**31), -(2**62), 9, 1000, 2**31, 2**40, 2**62])
def test_a_length_that_leaves_the_bytes_is_refused(call: Callable[[BinaryDecoder], Any], size: int) -> None:
    with pytest.raises(FormatError, match="8 bytes are left"):
        call(bounded_decoder(varint(size) + bytes(8)))


def test_a_length_inside_a_map_is_checked_too() -> None:
    with pytest.raises(FormatError, match="asks for 1000000"):
        bounded_decoder(varint(1) + varint(1_000_000) + bytes(8)).read_int_bytes_dict(1, {})


def test_what_is_inside_is_decoded_as_by_pyiceberg() -> None:
    data = varint(3) + b"abc" + varint(2) + "é".encode() + varint(-7) + b"\x01" + b"".join(map(varint, (5, 2))) + b"xy" + varint(9)
    for decoder in (bounded_decoder(data), new_decoder(data)):
        statistics: dict[int, bytes] = {}
        assert (decoder.read_bytes(), decoder.read_utf8(), decoder.read_int(), decoder.read_boolean()) == (b"abc", "é", -7, True)
        decoder.read_int_bytes_dict(1, statistics)
        assert statistics == {5: b"xy"}
        assert tuple(decoder.read_ints(1)) == (9,)
        assert decoder.tell() == len(data)


VALUES = varint(3) + b"abc" + varint(2) + "é".encode() + varint(1) + b"".join(map(varint, (5, 2))) + b"xy" + varint(9)


@given(data=arbitrary([VALUES], max_size=40), calls=st.lists(st.sampled_from(SIZED), max_size=5))
def test_no_bytes_raise_anything_but_a_format_or_unicode_error(data: bytes, calls: list[Callable[[BinaryDecoder], Any]]) -> None:
    decoder = bounded_decoder(data)
    try:
        for call in calls:
            call(decoder)
    except (FormatError, UnicodeDecodeError, EOFError):
        return
