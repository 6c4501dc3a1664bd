"""Whatever is done to an AGS1 file, a reader refuses it by name and hands out no byte that was not authenticated."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError, KeyMismatchError, PlaintextRefusedError, TablecryptError, TamperedFileError
from tablecrypt.files.ags1_streams import Ags1InputStream
from tests.support.ags1_files import ENCRYPTED_MIB, KEY, LOCATION, MIB, PREFIX, RecordingStore, ags1_file, key_metadata, opened, pattern
from tests.support.mutations import arbitrary

SMALL = b"a small plaintext"
SMALL_FILE = ags1_file(SMALL)
UNCHANGED = [SMALL_FILE, ags1_file(b""), ags1_file(pattern(5000))]
THREE_BLOCKS = ags1_file(pattern(2 * MIB + 99))
trusting = pytest.mark.parametrize("trusts", [True, False], ids=["trusted length", "length of the store"])


def refused(data: bytes, metadata: StandardKeyMetadata) -> TablecryptError:
    """The error of reading `data` whole. It names the file."""
    with pytest.raises(TablecryptError) as error:
        opened(data, metadata).read()
    assert LOCATION in str(error.value)
    assert isinstance(error.value, TamperedFileError | FormatError | PlaintextRefusedError)
    return error.value


@trusting
@pytest.mark.parametrize("plaintext", [SMALL, b""], ids=["small", "empty"])
def test_every_flipped_bit_is_refused(plaintext: bytes, trusts: bool) -> None:
    data = ags1_file(plaintext)
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        refused(bytes(flipped), key_metadata(len(data) if trusts else None))


@trusting
@pytest.mark.parametrize("plaintext", [SMALL, b""], ids=["small", "empty"])
def test_truncation_at_any_byte_is_refused(plaintext: bytes, trusts: bool) -> None:
    data = ags1_file(plaintext)
    for cut in range(len(data)):
        refused(data[:cut], key_metadata(len(data) if trusts else None))


@pytest.mark.parametrize("blocks", [1, 2])
def test_truncation_between_blocks_is_refused_by_the_trusted_length(blocks: int) -> None:
    cut = THREE_BLOCKS[: 8 + blocks * ENCRYPTED_MIB]
    error = refused(cut, key_metadata(len(THREE_BLOCKS)))
    assert isinstance(error, TamperedFileError)
    assert str(len(cut)) in str(error)
    assert str(len(THREE_BLOCKS)) in str(error)


@trusting
@pytest.mark.parametrize("rest", [b"\x00", b"\x00" * 28, b"\x00" * 29, SMALL_FILE[8:], SMALL_FILE])
def test_appended_bytes_are_refused(rest: bytes, trusts: bool) -> None:
    refused(SMALL_FILE + rest, key_metadata(len(SMALL_FILE) if trusts else None))


def test_a_block_appended_after_full_blocks_is_refused() -> None:
    full = ags1_file(pattern(MIB))
    for block in (full[8:], SMALL_FILE[8:]):
        refused(full + block, key_metadata(None))


def test_swapped_blocks_are_refused() -> None:
    first, second, rest = (
        THREE_BLOCKS[8 : 8 + ENCRYPTED_MIB],
        THREE_BLOCKS[8 + ENCRYPTED_MIB : 8 + 2 * ENCRYPTED_MIB],
        THREE_BLOCKS[8 + 2 * ENCRYPTED_MIB :],
    )
    error = refused(THREE_BLOCKS[:8] + second + first + rest, key_metadata(len(THREE_BLOCKS)))
    assert "block 0" in str(error)


def test_a_repeated_or_dropped_block_is_refused() -> None:
    first, rest = THREE_BLOCKS[8 : 8 + ENCRYPTED_MIB], THREE_BLOCKS[8 + ENCRYPTED_MIB :]
    error = refused(THREE_BLOCKS[:8] + first + first + rest[ENCRYPTED_MIB:], key_metadata(len(THREE_BLOCKS)))
    assert "block 1" in str(error)
    error = refused(THREE_BLOCKS[:8] + rest, key_metadata(None))
    assert "block 0" in str(error)


def test_swapped_files_are_refused_even_under_one_key() -> None:
    other = ags1_file(SMALL, prefix=b"another file's prefix"[:16])
    assert len(other) == len(SMALL_FILE)
    assert isinstance(refused(other, key_metadata(len(other))), TamperedFileError)


@given(st.binary(max_size=32).filter(lambda prefix: prefix != PREFIX))
def test_another_aad_prefix_is_refused(prefix: bytes) -> None:
    refused(SMALL_FILE, key_metadata(len(SMALL_FILE), prefix=prefix))


@given(st.sampled_from([16, 24, 32]).flatmap(lambda n: st.binary(min_size=n, max_size=n)).filter(lambda key: key != KEY))
def test_another_key_is_refused(key: bytes) -> None:
    refused(SMALL_FILE, key_metadata(len(SMALL_FILE), key=key))


@given(arbitrary(UNCHANGED).filter(lambda data: data not in UNCHANGED))
def test_arbitrary_bytes_and_changed_files_are_refused(data: bytes) -> None:
    refused(data, key_metadata(len(data)))
    refused(data, key_metadata(None))
    refused(b"AGS1\x00\x00\x10\x00" + data, key_metadata(len(data) + 8))


@trusting
@pytest.mark.parametrize("magic", [b"PAR1", b"Obj\x01", b"PFA1"])
@pytest.mark.parametrize("length", [4, 8, 36, 37, 5000])
def test_a_plaintext_file_is_refused_as_plaintext_whatever_its_length(magic: bytes, length: int, trusts: bool) -> None:
    data = magic + bytes(length - 4)
    error = refused(data, key_metadata(len(SMALL_FILE) if trusts else None))
    assert isinstance(error, PlaintextRefusedError)
    assert repr(magic) in str(error)


def test_another_block_length_is_refused_and_named() -> None:
    for block_length in (0, 1, 65_536, MIB - 1, 2 * MIB, 2**32 - 1):
        data = b"AGS1" + block_length.to_bytes(4, "little") + SMALL_FILE[8:]
        error = refused(data, key_metadata(len(data)))
        assert isinstance(error, FormatError)
        assert f"{block_length} bytes" in str(error)


def test_a_wrong_or_impossible_length_is_refused_before_any_block_is_read() -> None:
    for data, trusted in ((SMALL_FILE, 99), (SMALL_FILE[:30], None), (SMALL_FILE[:30], 30)):
        store = RecordingStore(data)
        with pytest.raises(TamperedFileError):
            Ags1InputStream(store, key_metadata(trusted), LOCATION, len(data))
        assert store.reads == [(0, 4)]


def test_a_store_that_has_fewer_bytes_than_it_says_is_refused() -> None:
    stream = Ags1InputStream(RecordingStore(SMALL_FILE[:-1]), key_metadata(len(SMALL_FILE)), LOCATION, len(SMALL_FILE))
    with pytest.raises(TamperedFileError, match=f"ends at byte {len(SMALL_FILE) - 1} instead of {len(SMALL_FILE)}") as refused:
        stream.read()
    assert refused.value.location == LOCATION


def test_the_header_is_checked_before_a_block_other_than_the_first() -> None:
    stream = opened(b"AGS2" + THREE_BLOCKS[4:])
    stream.seek(MIB)
    with pytest.raises(TamperedFileError, match="AGS2"):
        stream.read(1)


def test_an_empty_file_is_authenticated_by_any_read() -> None:
    forged = ags1_file(b"", key=bytes(16))
    for size in (-1, 0, 1):
        with pytest.raises(TamperedFileError, match="block 0"):
            opened(forged).read(size)


def test_once_refused_every_later_read_is_refused() -> None:
    damaged = bytearray(THREE_BLOCKS)
    damaged[8 + ENCRYPTED_MIB + 500] ^= 1
    stream = opened(bytes(damaged))
    assert stream.read(10) == pattern(10)
    stream.seek(MIB)
    with pytest.raises(TamperedFileError, match="block 1") as first:
        stream.read(1)
    for use in (lambda: stream.read(1), lambda: stream.read(0), lambda: stream.seek(0), stream.tell, lambda: stream.readinto(bytearray(5))):
        with pytest.raises(TamperedFileError) as later:
            use()
        assert str(later.value) == str(first.value)
    stream.close()
    assert stream.closed


def read_in_steps(stream: Ags1InputStream, target: bytearray, step: int) -> None:
    for start in range(0, len(target), step):
        stream.readinto(memoryview(target)[start : start + step])


@settings(max_examples=15, deadline=None)
@given(st.integers(8, len(THREE_BLOCKS) - 1), st.booleans())
def test_a_damaged_block_reaches_no_buffer(position: int, one_block_at_a_time: bool) -> None:
    damaged = bytearray(THREE_BLOCKS)
    damaged[position] ^= 0x80
    bad_block = (position - 8) // ENCRYPTED_MIB
    plaintext = pattern(2 * MIB + 99)
    target = bytearray(len(plaintext))
    stream = opened(bytes(damaged))
    step = MIB if one_block_at_a_time else len(target)
    with pytest.raises(TamperedFileError, match=f"block {bad_block}"):
        read_in_steps(stream, target, step)
    assert target[: bad_block * MIB] == plaintext[: bad_block * MIB]
    assert not any(target[bad_block * MIB :])


def test_a_key_that_may_not_fit_is_doubted_until_it_has_opened_a_block() -> None:
    """Of a file without a table nobody knows that the key is the right one; once a block has opened, the next one was changed."""
    wrong = Ags1InputStream(
        io.BytesIO(SMALL_FILE), key_metadata(len(SMALL_FILE), key=bytes(16)), LOCATION, len(SMALL_FILE), may_not_fit=True
    )
    with pytest.raises(KeyMismatchError, match="the key does not fit, or the file was changed") as refused:
        wrong.read()
    assert refused.value.location == LOCATION
    changed = bytearray(THREE_BLOCKS)
    changed[-1] ^= 1
    with pytest.raises(TamperedFileError) as tampered:
        Ags1InputStream(io.BytesIO(changed), key_metadata(len(changed)), LOCATION, len(changed), may_not_fit=True).read()
    assert not isinstance(tampered.value, KeyMismatchError)
