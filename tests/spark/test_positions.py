"""Row positions as bytes: they come back as they were, and other bytes are a format error."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from tablecrypt.errors import FormatError
from tablecrypt.spark.positions import decode_positions, encode_positions, merge_positions, positions_by_file

pytestmark = pytest.mark.java

numbers = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
bitmaps = st.sets(st.integers(0, 2**40), max_size=20).map(BitMap64)


@given(positions=st.dictionaries(numbers, bitmaps, max_size=5))
def test_positions_come_back(positions: dict[tuple[int, int], BitMap64]) -> None:
    assert decode_positions(encode_positions(positions)) == positions


@given(content=st.binary(max_size=60))
def test_other_bytes_are_a_format_error_or_positions(content: bytes) -> None:
    try:
        decode_positions(content)
    except FormatError as error:
        assert str(error)


def test_bytes_after_the_last_bitmap_are_refused() -> None:
    with pytest.raises(FormatError):
        decode_positions(encode_positions({(0, 1): BitMap64([1])}) + b"\x00")


def test_rows_are_grouped_by_file_and_those_of_no_file_left_out() -> None:
    task, index, position = (pa.array(values, pa.int64()) for values in ([0, 0, None, 1], [2, 2, None, 0], [5, 7, None, 9]))

    found = positions_by_file(task, index, position)

    assert found == {(0, 2): BitMap64([5, 7]), (1, 0): BitMap64([9])}
    assert merge_positions(found, {(0, 2): BitMap64([6])})
    assert not merge_positions(found, {(0, 2): BitMap64([6, 8])})
    assert found[0, 2] == BitMap64([5, 6, 7, 8])
