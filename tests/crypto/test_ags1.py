"""AGS1 arithmetic: one length of file for each length of plaintext, and no other."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tablecrypt.crypto import ags1
from tablecrypt.errors import FormatError, PlaintextRefusedError, TamperedFileError
from tests.support.mutations import arbitrary
from tests.support.parsers import seeds_of

MIB = 1024 * 1024


@given(st.integers(0, ags1.MAX_PLAINTEXT_LENGTH))
@example(0)
@example(1)
@example(MIB - 1)
@example(MIB)
@example(MIB + 1)
@example(ags1.MAX_PLAINTEXT_LENGTH)
def test_plaintext_length_is_the_inverse_of_file_length(length: int) -> None:
    assert ags1.plaintext_length(ags1.file_length(length)) == length


@given(st.integers(0, 4 * ags1.ENCRYPTED_BLOCK_LENGTH))
@example(8)
@example(35)
@example(36)
@example(37)
@example(8 + ags1.ENCRYPTED_BLOCK_LENGTH)
@example(8 + ags1.ENCRYPTED_BLOCK_LENGTH + 28)
@example(8 + ags1.ENCRYPTED_BLOCK_LENGTH + 29)
def test_a_length_that_the_arithmetic_accepts_is_one_that_it_makes(length: int) -> None:
    try:
        plaintext = ags1.plaintext_length(length)
    except FormatError:
        return
    assert ags1.file_length(plaintext) == length


@pytest.mark.parametrize("full_blocks", [0, 1, 2, 1000])
def test_no_length_between_two_blocks_is_possible(full_blocks: int) -> None:
    end = 8 + full_blocks * ags1.ENCRYPTED_BLOCK_LENGTH
    impossible = range(1 if full_blocks else 0, 29 if full_blocks else 28)
    for rest in impossible:
        with pytest.raises(FormatError):
            ags1.plaintext_length(end + rest)
    assert ags1.plaintext_length(end + 29) == full_blocks * MIB + 1


@pytest.mark.parametrize("length", [-1, ags1.MAX_FILE_LENGTH + 1, ags1.MAX_FILE_LENGTH + 30, 2**63])
def test_a_file_of_negative_length_or_more_than_2_31_minus_1_blocks_is_refused(length: int) -> None:
    with pytest.raises(FormatError):
        ags1.plaintext_length(length)


@pytest.mark.parametrize("length", [-1, ags1.MAX_PLAINTEXT_LENGTH + 1])
def test_a_plaintext_that_no_file_holds_is_refused(length: int) -> None:
    with pytest.raises(FormatError):
        ags1.file_length(length)


@given(st.integers(0, ags1.MAX_PLAINTEXT_LENGTH - 1))
def test_an_offset_lies_in_its_block(offset: int) -> None:
    block = ags1.block_of(offset)
    assert block * MIB <= offset < (block + 1) * MIB
    assert isinstance(block, int)
    assert ags1.block_offset(block) == 8 + block * (MIB + 28)


@pytest.mark.parametrize(("length", "blocks"), [(0, [0]), (1, [1]), (MIB, [MIB]), (MIB + 1, [MIB, 1]), (3 * MIB - 1, [MIB, MIB, MIB - 1])])
def test_blocks_are_full_but_for_the_last(length: int, blocks: list[int]) -> None:
    assert [ags1.block_plaintext_length(block, length) for block in range(ags1.block_count(length))] == blocks


@pytest.mark.parametrize("kept", range(4, 8))
def test_a_header_that_is_cut_names_its_file_and_length(kept: int) -> None:
    with pytest.raises(TamperedFileError, match=f"header has {kept} bytes") as refused:
        ags1.check_header(ags1.header()[:kept], "file://x")
    assert refused.value.location == "file://x"


@given(st.binary(max_size=20), st.integers(0, ags1.MAX_BLOCKS - 1))
def test_block_aad_is_the_prefix_and_the_little_endian_index(prefix: bytes, block: int) -> None:
    assert ags1.block_aad(prefix, block) == prefix + block.to_bytes(4, "little")


@pytest.mark.parametrize("block", [-1, 2**31 - 1, 2**32])
def test_a_block_beyond_2_31_minus_1_has_no_aad(block: int) -> None:
    with pytest.raises(FormatError):
        ags1.block_aad(b"", block)


def test_the_header_is_the_one_of_the_specification() -> None:
    assert ags1.header() == b"AGS1\x00\x00\x10\x00"
    ags1.check_header(ags1.header())


@pytest.mark.parametrize(("magic", "kind"), [(b"PAR1", "Parquet"), (b"Obj\x01", "Avro"), (b"PFA1", "Puffin")])
def test_the_header_of_a_plaintext_format_is_refused_as_plaintext(magic: bytes, kind: str) -> None:
    with pytest.raises(PlaintextRefusedError, match=f"file://x: .*{kind}"):
        ags1.check_header(magic + b"\x00\x00\x10\x00", "file://x")


@given(arbitrary(seeds_of("AGS1 header")).map(lambda data: data[:8]))
def test_any_other_header_is_refused(data: bytes) -> None:
    if data == ags1.header():
        return
    with pytest.raises((TamperedFileError, FormatError, PlaintextRefusedError), match="file://x"):
        ags1.check_header(data, "file://x")


@given(st.integers(0, 2**32 - 1).filter(lambda length: length != MIB))
def test_another_block_length_is_refused_and_named(block_length: int) -> None:
    with pytest.raises(FormatError, match=f"file://x: .*{block_length} bytes"):
        ags1.check_header(b"AGS1" + block_length.to_bytes(4, "little"), "file://x")
