"""Tasks are spread so that no partition has much more to read than another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.spark.balance import balanced, partition_count

SIZES = st.lists(st.integers(0, 10**9), min_size=1, max_size=200)


@given(sizes=SIZES, count=st.integers(1, 20))
def test_every_task_is_in_one_partition_and_loads_differ_by_one_task_at_most(sizes: list[int], count: int) -> None:
    tasks = list(enumerate(sizes))
    count = min(count, len(tasks))

    parts = balanced(tasks, lambda task: task[1], count)

    assert sorted(task for part in parts for task in part) == tasks
    assert all(parts)
    loads = [sum(max(size, 1) for _, size in part) for part in parts]
    assert max(loads) - min(loads) <= max(*sizes, 1)


@given(sizes=SIZES, cores=st.integers(1, 64))
def test_there_are_never_more_partitions_than_tasks(sizes: list[int], cores: int) -> None:
    count = partition_count(sizes, cores=cores, partition_bytes=2**27, open_cost=2**22)

    assert 1 <= count <= len(sizes)
    assert count >= min(cores, len(sizes))


def test_large_files_get_partitions_of_their_own() -> None:
    assert partition_count([2**27] * 10, cores=2, partition_bytes=2**27, open_cost=0) == 10


def test_small_files_share_partitions() -> None:
    assert partition_count([1000] * 1000, cores=2, partition_bytes=2**27, open_cost=2**22) == 32
