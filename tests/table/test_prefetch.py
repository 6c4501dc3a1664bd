"""Sources read ahead come in order, within bounds, and stop when their consumer does."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.table.reader import MOST_AT_ONCE, SMALL_TOGETHER, RowSource, prefetched
from tests.support.interruptions import interrupted_in


def source(items: list[int]) -> Iterator[int]:
    yield from items


@given(
    st.lists(st.lists(st.integers(), max_size=8), max_size=8),
    st.integers(1, 4),
    st.integers(1, 3) | st.none(),
    st.sampled_from([1, SMALL_TOGETHER]),
)
def test_items_come_in_order(lists: list[list[int]], workers: int, depth: int | None, size: int) -> None:
    sources = [RowSource(partial(source, items), size) for items in lists]
    assert list(prefetched(sources, workers, depth)) == [item for items in lists for item in items]


def test_an_error_comes_in_the_place_of_the_next_item() -> None:
    def broken() -> Iterator[int]:
        yield 2
        raise ValueError("broken")

    seen: list[int] = []
    sources = [RowSource(partial(source, [1])), RowSource(broken), RowSource(partial(source, [3]))]
    with pytest.raises(ValueError, match="broken"):
        for item in prefetched(sources, workers=3, depth=2):
            seen.append(item)
    assert seen == [1, 2]


def test_no_source_runs_further_ahead_than_its_queue() -> None:
    drawn: list[int] = []
    taken = threading.Event()

    def counted() -> Iterator[int]:
        for each in range(100):
            drawn.append(each)
            if each == 4:
                taken.set()
            yield each

    reader = prefetched([RowSource(counted)], workers=1, depth=3)
    assert next(reader) == 0
    # One item was taken, three wait, and the fifth has been made but finds no room.
    assert taken.wait(60)
    assert len(drawn) == 5
    reader.close()  # type: ignore[attr-defined]
    assert len(drawn) == 5


def test_no_source_is_started_before_its_lane_is_free() -> None:
    started: list[int] = []

    def noted(number: int) -> Iterator[int]:
        started.append(number)
        yield number

    reader = prefetched([RowSource(partial(noted, number)) for number in range(10)], workers=2, depth=1)
    assert started == []
    assert next(reader) == 0
    assert set(started) <= {0, 1}
    assert list(reader) == list(range(1, 10))


@pytest.mark.parametrize(("size", "together"), [(1, MOST_AT_ONCE), (SMALL_TOGETHER // 5, 5), (SMALL_TOGETHER, 2)])
def test_small_sources_run_many_at_a_time_and_large_ones_do_not(size: int, together: int) -> None:
    released = threading.Event()
    started: list[int] = []
    all_started = threading.Event()

    def waiting(number: int) -> Iterator[int]:
        started.append(number)
        if len(started) == together:
            all_started.set()
        assert released.wait(60)
        yield number

    reader = prefetched([RowSource(partial(waiting, number), size) for number in range(100)], workers=2, depth=1)
    consumer = threading.Thread(target=lambda: items.extend(reader))
    items: list[int] = []
    consumer.start()
    assert all_started.wait(60)
    assert len(started) == together
    released.set()
    consumer.join(60)
    assert items == list(range(100))


def test_a_source_that_was_read_to_its_end_makes_room_where_all_items_are_kept() -> None:
    last_was_read = threading.Event()

    def first() -> Iterator[int]:
        assert last_was_read.wait(60), "the last source was not started while the first was being read"
        yield 0

    def later(number: int) -> Iterator[int]:
        yield number
        if number == 9:
            last_was_read.set()

    sources = [RowSource(first), *(RowSource(partial(later, number)) for number in range(1, 10))]
    assert list(prefetched(sources, workers=2, depth=None)) == list(range(10))


@pytest.mark.parametrize(("function", "event"), [("_Lane.__init__", "return"), ("_Lanes.stop", "call")])
def test_no_source_is_read_on_after_ctrl_c(function: str, event: str) -> None:
    """A thread that waits for ever keeps its file open, and rows in memory, for as long as a notebook runs."""
    before = set(threading.enumerate())

    def read() -> None:
        ahead = prefetched([RowSource(lambda: iter(range(1000)))], workers=1, depth=1)
        with closing(cast("Generator[int]", ahead)) as items:
            next(items)

    with pytest.raises(KeyboardInterrupt), interrupted_in(function, 1, event):
        read()

    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()
