"""Reading AGS1: the same bytes as the plaintext's, from few and only the needed reads of the store."""

from __future__ import annotations

import io
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Event

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tablecrypt.files.ags1_streams import Ags1InputStream
from tests.support.ags1_files import (
    ENCRYPTED_MIB,
    LOCATION,
    MIB,
    RecordingStore,
    ShortReadingStore,
    ags1_file,
    key_metadata,
    opened,
    pattern,
)

LENGTHS = [0, 1, 1000, MIB - 1, MIB, MIB + 1, 2 * MIB + 77, 3 * MIB]
BLOCKS = 9


@cache
def plaintext_of(length: int) -> bytes:
    return pattern(length)


@cache
def file_of(length: int) -> bytes:
    return ags1_file(plaintext_of(length))


def recording(length: int) -> tuple[RecordingStore, Ags1InputStream]:
    store = RecordingStore(file_of(length))
    size = len(file_of(length))
    return store, Ags1InputStream(store, key_metadata(size), LOCATION, size)


near_borders = st.builds(lambda block, offset: max(0, block * MIB + offset), st.integers(0, 3), st.integers(-3, 3))
offsets = near_borders | st.integers(0, 3 * MIB)
sizes = st.integers(0, 40) | near_borders | st.integers(0, 2 * MIB)


@pytest.mark.parametrize("length", LENGTHS)
def test_the_whole_file_reads_as_its_plaintext(length: int) -> None:
    with opened(file_of(length)) as stream:
        assert stream.size() == length
        assert stream.read() == plaintext_of(length)
        assert stream.read() == b""
        assert stream.tell() == length


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(LENGTHS), st.lists(st.tuples(offsets, sizes, st.booleans()), max_size=4))
def test_any_sequence_of_reads_equals_slices_of_the_plaintext(length: int, reads: list[tuple[int, int, bool]]) -> None:
    plaintext = plaintext_of(length)
    with opened(file_of(length)) as stream:
        for offset, size, into in reads:
            assert stream.seek(offset) == offset
            expected = plaintext[offset : offset + size]
            if into:
                target = bytearray(size)
                assert stream.readinto(target) == len(expected)
                assert target[: len(expected)] == expected
            else:
                assert stream.read(size) == expected
            assert stream.tell() == offset + len(expected)


@pytest.mark.parametrize("piece", [65_536, 100_003, MIB, MIB + 5])
def test_reading_in_pieces_gives_the_plaintext_and_reads_each_block_once(piece: int) -> None:
    length = 3 * MIB
    store, stream = recording(length)
    assert b"".join(iter(lambda: stream.read(piece), b"")) == plaintext_of(length)
    assert sum(size for _, size in store.reads) == len(file_of(length))


def test_seeking_works_from_start_position_and_end() -> None:
    with opened(file_of(1000)) as stream:
        assert stream.seek(10) == 10
        assert stream.seek(5, io.SEEK_CUR) == 15
        assert stream.seek(-1, io.SEEK_END) == 999
        assert stream.read() == plaintext_of(1000)[-1:]
        assert stream.seek(5000) == 5000
        assert stream.read() == b""
        for offset, whence in [(-1, io.SEEK_SET), (-5001, io.SEEK_CUR), (-1001, io.SEEK_END), (0, 7)]:
            with pytest.raises(ValueError, match=r"seek|whence"):
                stream.seek(offset, whence)


def test_a_small_file_costs_one_read_of_the_store() -> None:
    store, stream = recording(1000)
    stream.seek(500)
    assert store.reads == []
    stream.read(10)
    stream.seek(0)
    stream.read()
    assert store.reads == [(0, len(file_of(1000)))]


def test_a_range_fetches_only_the_blocks_that_it_touches() -> None:
    store, stream = recording(3 * MIB)
    stream.seek(MIB + 10)
    stream.read(20)
    stream.read(20)
    assert store.reads == [(0, 8), (8 + ENCRYPTED_MIB, ENCRYPTED_MIB)]


def test_neighbouring_blocks_are_fetched_together_within_a_bounded_window() -> None:
    store, stream = recording(BLOCKS * MIB)
    assert stream.read() == plaintext_of(BLOCKS * MIB)
    assert store.reads == [
        (0, 8 + 3 * ENCRYPTED_MIB),
        (8 + 3 * ENCRYPTED_MIB, 3 * ENCRYPTED_MIB),
        (8 + 6 * ENCRYPTED_MIB, 3 * ENCRYPTED_MIB),
    ]


@pytest.mark.parametrize("most", [1, 7, 1000, 700_000])
def test_a_store_that_reads_short_gives_the_same_bytes(most: int) -> None:
    length = 1000 if most < 100 else 2 * MIB + 77
    data = file_of(length)
    with Ags1InputStream(ShortReadingStore(data, most), key_metadata(len(data)), LOCATION, len(data)) as stream:
        assert stream.read() == plaintext_of(length)


@pytest.mark.parametrize("short", [False, True], ids=["whole reads", "short reads"])
def test_reading_into_a_buffer_takes_no_more_than_8_mib_besides_it(short: bool) -> None:
    data = file_of(BLOCKS * MIB)
    target = bytearray(BLOCKS * MIB)
    raw = ShortReadingStore(data, 300_000) if short else io.BytesIO(data)
    stream = Ags1InputStream(raw, key_metadata(len(data)), LOCATION, len(data))
    stream.read(10)
    tracemalloc.start()
    stream.readinto(memoryview(target)[: -MIB - 10])
    stream.readinto(memoryview(target)[-MIB - 10 :])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 8 * MIB


@pytest.mark.parametrize("key_length", [16, 24, 32])
def test_every_key_length_reads(key_length: int) -> None:
    key = bytes(range(key_length))
    data = ags1_file(b"plaintext", key=key)
    assert opened(data, key_metadata(len(data), key=key)).read() == b"plaintext"


def test_without_a_trusted_length_the_length_of_the_store_counts() -> None:
    assert opened(file_of(1000), key_metadata(None)).read() == plaintext_of(1000)


def test_a_view_of_other_items_than_bytes_is_filled_by_its_bytes() -> None:
    target = memoryview(bytearray(80)).cast("q")
    assert opened(file_of(1000)).readinto(target) == 80
    assert target.tobytes() == plaintext_of(1000)[:80]


def test_a_closed_stream_refuses_and_has_closed_the_store() -> None:
    store, stream = recording(1000)
    with stream:
        stream.read(1)
    stream.close()
    assert stream.closed
    assert store.closed
    for use in (stream.read, stream.tell, lambda: stream.seek(0), lambda: stream.readinto(bytearray(1))):
        with pytest.raises(ValueError, match="closed"):
            use()


class FailingOnceStore(io.BytesIO):
    """Its first read of a block fails as a network does."""

    failed = False

    def read(self, size: int | None = -1) -> bytes:
        if not self.failed:
            self.failed = True
            raise ConnectionError("connection reset")
        return super().read(size)


def test_a_failure_of_the_store_passes_through_and_the_read_may_be_repeated() -> None:
    data = file_of(1000)
    stream = Ags1InputStream(FailingOnceStore(data), key_metadata(len(data)), LOCATION, len(data))
    stream.seek(10)
    with pytest.raises(ConnectionError):
        stream.read(5)
    assert stream.tell() == 10
    assert stream.read(5) == plaintext_of(1000)[10:15]


def test_pyarrow_and_python_wrappers_read_through_it() -> None:
    length = 2 * MIB + 77
    with pa.PythonFile(opened(file_of(length)), mode="r") as arrow:
        assert arrow.size() == length
        arrow.seek(MIB - 5)
        assert arrow.read(10) == plaintext_of(length)[MIB - 5 : MIB + 5]
    buffered = io.BufferedReader(opened(file_of(length)))  # type: ignore[type-var]
    assert buffered.read() == plaintext_of(length)


class YieldingStore(RecordingStore):
    """Lets other threads go on between a seek and the read that follows it."""

    def read(self, size: int | None = -1) -> bytes:
        time.sleep(0.001)
        return super().read(size)


def test_threads_that_share_a_stream_read_authentic_bytes_of_one_place_each() -> None:
    plaintext, stored = plaintext_of(3 * MIB), file_of(3 * MIB)
    stream = Ags1InputStream(YieldingStore(stored), key_metadata(len(stored)), LOCATION, len(stored))

    def parts(first: int) -> list[bytes]:
        found = []
        for number in range(first, first + 20):
            stream.seek(number * 150_011 % (3 * MIB))
            found.append(stream.read(4000))
        return found

    with ThreadPoolExecutor(4) as pool:
        found = [part for each in pool.map(parts, range(0, 400, 100)) for part in each]

    assert all(part in plaintext for part in found)


def test_a_stream_that_another_thread_closes_ends_no_read_in_the_middle() -> None:
    plaintext, stored = plaintext_of(3 * MIB), file_of(3 * MIB)
    store = RecordingStore(stored)
    stream, began = Ags1InputStream(store, key_metadata(len(stored)), LOCATION, len(stored)), Event()
    read = store.read

    def slow_read(size: int | None = -1) -> bytes:
        began.set()
        time.sleep(0.01)
        return read(size)

    store.read = slow_read  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(stream.read)
        began.wait()
        stream.close()
        assert reading.result() == plaintext

    with pytest.raises(ValueError, match="is closed"):
        stream.read(1)
