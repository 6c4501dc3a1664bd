"""Works spread over tasks of about the same size."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def balanced(tasks: Sequence[T], size: Callable[[T], int], count: int) -> list[list[T]]:
    """Spread tasks over `count` lists, the largest first and each to the list with the fewest bytes. No list is empty if tasks suffice."""
    lists: list[list[T]] = [[] for _ in range(count)]
    loads = [(0, index) for index in range(count)]
    for task in sorted(tasks, key=size, reverse=True):
        load, index = heapq.heappop(loads)
        lists[index].append(task)
        # A size of 0 counts as 1: else all empty tasks would go to the list that is first in the heap.
        heapq.heappush(loads, (load + max(size(task), 1), index))

    return lists
