"""Spreading scan tasks over Spark partitions of about the same number of bytes.

As many partitions as Spark itself would make for files of that size: at least one per core while there are tasks, none larger than
spark.sql.files.maxPartitionBytes where a single file is not, each file counted with spark.sql.files.openCostInBytes on top.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def partition_count(sizes: Sequence[int], *, cores: int, partition_bytes: int, open_cost: int) -> int:
    """Return how many partitions to make of tasks with these sizes in bytes."""
    total = sum(size + open_cost for size in sizes)
    wanted = max(-(-total // max(partition_bytes, 1)), cores)
    return min(wanted, len(sizes))


def balanced(tasks: Sequence[T], size: Callable[[T], int], count: int) -> list[list[T]]:
    """Spread tasks over `count` lists, the largest first and each to the list with the fewest bytes. No list is empty if tasks suffice."""
    lists: list[list[T]] = [[] for _ in range(count)]
    loads = [(0, index) for index in range(count)]
    for task in sorted(tasks, key=size, reverse=True):
        load, index = heapq.heappop(loads)
        lists[index].append(task)
        heapq.heappush(loads, (load + max(size(task), 1), index))
    return lists
