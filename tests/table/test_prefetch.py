"""Sources read ahead come in order, within bounds, and stop when their consumer does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.table.prefetch import prefetched


def source(items: list[int]) -> Iterator[int]:
    yield from items


@given(st.lists(st.lists(st.integers(), max_size=8), max_size=8), st.integers(1, 4), st.integers(1, 3))
def test_items_come_in_order(lists: list[list[int]], workers: int, depth: int) -> None:
    sources: list[Callable[[], Iterator[int]]] = [partial(source, items) for items in lists]
    assert list(prefetched(sources, workers, depth)) == [item for items in lists for item in items]


def test_an_error_comes_in_the_place_of_the_next_item() -> None:
    def broken() -> Iterator[int]:
        yield 2
        raise ValueError("broken")

    seen: list[int] = []
    sources: list[Callable[[], Iterator[int]]] = [partial(source, [1]), broken, partial(source, [3])]
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

    reader = prefetched([counted], workers=1, depth=3)
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

    reader = prefetched([partial(noted, number) for number in range(10)], workers=2, depth=1)
    assert started == []
    assert next(reader) == 0
    assert set(started) <= {0, 1}
    assert list(reader) == list(range(1, 10))
