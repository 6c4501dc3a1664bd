"""Writing AGS1: a file that an independent reader opens, with bounded memory, and never one that only looks finished."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Callable
from itertools import count

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from tablecrypt.crypto import ags1
from tablecrypt.errors import ConfigurationError, FormatError, TablecryptError
from tablecrypt.files.ags1_streams import Ags1OutputStream
from tests.support.ags1_files import ENCRYPTED_MIB, KEY, LOCATION, MIB, PREFIX, KeepingSink, ags1_file, key_metadata, opened, pattern


def independent_plaintext(data: bytes) -> bytes:
    """Opens `data` by the layout of the specification, with the cipher alone."""
    assert data[:8] == b"AGS1\x00\x00\x10\x00"
    cipher = AESGCM(KEY)
    blocks = [data[start : start + ENCRYPTED_MIB] for start in range(8, len(data), ENCRYPTED_MIB)]
    return b"".join(cipher.decrypt(block[:12], block[12:], PREFIX + index.to_bytes(4, "little")) for index, block in enumerate(blocks))


def written(*pieces: bytes) -> bytes:
    sink = KeepingSink()
    with Ags1OutputStream(sink, key_metadata()) as stream:
        for piece in pieces:
            assert stream.write(piece) == len(piece)
    assert stream.file_length == len(sink.content)
    return sink.content


piece_lengths = st.lists(st.integers(0, 50) | st.integers(MIB - 2, MIB + 2) | st.integers(0, 2 * MIB), max_size=4)


@settings(max_examples=30, deadline=None)
@given(piece_lengths)
def test_an_independent_reader_opens_what_was_written_in_any_pieces(lengths: list[int]) -> None:
    plaintext = pattern(sum(lengths))
    ends = [sum(lengths[: index + 1]) for index in range(len(lengths))]
    data = written(*(plaintext[end - length : end] for end, length in zip(ends, lengths, strict=True)))
    assert independent_plaintext(data) == plaintext
    assert len(data) == ags1.file_length(len(plaintext))
    assert opened(data).read() == plaintext


@pytest.mark.parametrize("length", [0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB])
def test_the_bytes_are_those_of_the_specification(length: int) -> None:
    sink = KeepingSink()
    numbers = count()
    with Ags1OutputStream(sink, key_metadata(), lambda _: b"nonce" + next(numbers).to_bytes(7, "big")) as stream:
        stream.write(pattern(length))
    assert sink.content == ags1_file(pattern(length))


def test_an_empty_file_is_one_empty_block() -> None:
    assert len(written()) == 36
    assert opened(written()).read() == b""


def test_every_block_of_every_file_has_its_own_nonce() -> None:
    files = [written(pattern(3 * MIB)) for _ in range(3)]
    nonces = {data[start : start + 12] for data in files for start in range(8, len(data), ENCRYPTED_MIB)}
    assert len(nonces) == 9


def test_a_buffer_of_other_items_than_bytes_is_written_by_its_bytes() -> None:
    sink = KeepingSink()
    with Ags1OutputStream(sink, key_metadata()) as stream:
        assert stream.write(memoryview(pattern(80)).cast("q")) == 80
    assert opened(sink.content).read() == pattern(80)


def test_a_store_that_keeps_what_it_was_given_keeps_unchanged_bytes() -> None:
    sink = KeepingSink()
    with Ags1OutputStream(sink, key_metadata()) as stream:
        for _ in range(3):
            stream.write(pattern(MIB))
    assert all(type(data) is bytes and data == then for data, then in sink.kept)


class PartialSink(KeepingSink):
    """Takes at most 1000 bytes a time, as an unbuffered file may."""

    def write(self, data: bytes) -> int:  # type: ignore[override]
        return super().write(data[:1000])


class SilentSink(KeepingSink):
    """Does not say how much it took."""

    def write(self, data: bytes) -> None:  # type: ignore[override]
        super().write(data)


@pytest.mark.parametrize("kind", [PartialSink, SilentSink])
def test_a_store_that_takes_less_or_does_not_say_gets_all_bytes(kind: Callable[[], KeepingSink]) -> None:
    sink = kind()
    with Ags1OutputStream(sink, key_metadata()) as stream:
        stream.write(pattern(10_000))
    assert opened(sink.content).read() == pattern(10_000)


def test_tell_counts_plaintext_and_the_length_is_known_only_after_close() -> None:
    stream = Ags1OutputStream(KeepingSink(), key_metadata())
    stream.write(b"12345")
    stream.flush()
    assert stream.tell() == 5
    with pytest.raises(ValueError, match="not finished"):
        _ = stream.file_length
    stream.close()
    assert stream.finished
    assert stream.file_length == 8 + 28 + 5


def test_closing_twice_is_fine_and_writes_nothing_more() -> None:
    sink = KeepingSink()
    stream = Ags1OutputStream(sink, key_metadata())
    stream.write(b"12345")
    stream.close()
    stream.close()
    stream.abandon()
    assert stream.closed
    assert opened(sink.content).read() == b"12345"
    with pytest.raises(ValueError, match="closed"):
        stream.write(b"more")


def write_and_interrupt(stream: Ags1OutputStream, data: bytes) -> None:
    with stream:
        stream.write(data)
        raise KeyboardInterrupt


@pytest.mark.parametrize("length", [0, 1, MIB - 1, MIB, MIB + 1, 2 * MIB])
def test_a_file_abandoned_by_an_exception_is_refused_even_without_a_trusted_length(length: int) -> None:
    sink = KeepingSink()
    stream = Ags1OutputStream(sink, key_metadata())
    with pytest.raises(KeyboardInterrupt):
        write_and_interrupt(stream, pattern(length))
    assert sink.closed
    assert stream.closed
    assert not stream.finished
    with pytest.raises(TablecryptError, match=LOCATION):
        opened(sink.content, key_metadata(None)).read()


class FullSink(KeepingSink):
    """A disk with space for `space` bytes."""

    space = ENCRYPTED_MIB + 1000

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if self.tell() + len(data) > self.space:
            raise OSError(28, "No space left on device")
        return super().write(data)


def test_after_a_failed_write_the_file_cannot_be_finished() -> None:
    sink = FullSink()
    stream = Ags1OutputStream(sink, key_metadata())
    with pytest.raises(OSError, match="No space"):
        stream.write(pattern(3 * MIB))
    with pytest.raises(OSError, match="earlier write"):
        stream.write(b"more")
    with pytest.raises(OSError, match="file is incomplete"):
        stream.close()
    assert sink.closed
    assert not stream.finished


def test_a_failure_to_write_the_last_block_abandons_the_file() -> None:
    sink = FullSink()
    stream = Ags1OutputStream(sink, key_metadata())
    stream.write(pattern(MIB + 2000))
    with pytest.raises(OSError, match="No space"):
        stream.close()
    assert sink.closed
    assert not stream.finished


class UncloseableSink(KeepingSink):
    """Fails when it is closed, and not again when Python forgets it: Python 3.13 would report that."""

    has_failed = False

    def close(self) -> None:
        if self.has_failed:
            super().close()
            return
        self.has_failed = True
        raise ConnectionError("upload lost")


def test_a_file_whose_store_fails_to_close_is_not_finished() -> None:
    stream = Ags1OutputStream(UncloseableSink(), key_metadata())
    with pytest.raises(ConnectionError):
        stream.close()
    assert not stream.finished


def test_the_callers_exception_is_seen_even_when_the_store_fails_too() -> None:
    with pytest.raises(ZeroDivisionError) as error, Ags1OutputStream(UncloseableSink(), key_metadata()):
        raise ZeroDivisionError
    assert any("upload lost" in note for note in error.value.__notes__)


def test_more_than_2_31_minus_1_blocks_are_refused() -> None:
    sink = KeepingSink()
    stream = Ags1OutputStream(sink, key_metadata())
    # Writing that many would take two petabytes.
    stream._blocks_written = ags1.MAX_BLOCKS - 1
    stream.write(pattern(MIB))
    with pytest.raises(FormatError):
        stream.write(pattern(MIB))
    stream.abandon()


def test_a_source_of_randomness_that_gives_too_little_is_refused() -> None:
    stream = Ags1OutputStream(KeepingSink(), key_metadata(), lambda length: bytes(length - 1))
    with pytest.raises(ConfigurationError, match="nonce"):
        stream.close()


class ForgettingSink(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        return len(data)


@pytest.mark.parametrize("piece", [100_000, 8 * MIB])
def test_memory_does_not_grow_with_the_file(piece: int) -> None:
    data = pattern(piece)
    tracemalloc.start()
    with Ags1OutputStream(ForgettingSink(), key_metadata()) as stream:
        for _ in range(24 * MIB // piece):
            stream.write(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 4 * MIB


def test_a_file_that_is_given_up_before_its_first_block_is_stored_without_a_mark() -> None:
    sink = KeepingSink()
    stream = Ags1OutputStream(sink, key_metadata())
    before = len(sink.kept)
    stream.abandon()
    assert len(sink.kept) == before
    assert sink.closed


def test_a_broken_file_is_given_up_without_another_write() -> None:
    sink = FullSink()
    stream = Ags1OutputStream(sink, key_metadata())
    with pytest.raises(OSError, match="No space"):
        stream.write(pattern(3 * MIB))
    stream.abandon()
    assert sink.closed
