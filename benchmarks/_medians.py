"""Timing of steps that run one after another in rounds, and the memory that one takes."""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable, Mapping


def medians(ways: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """Return median seconds of each way. One round before the first is not counted.

    Args:
        ways: what to do, by name.
        rounds: how often each is done and counted.
        clock: time.process_time for the time of all threads.
    """
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, work in ways.items():
            seconds = seconds_of(work, clock)
            if number > 0:
                taken[name].append(seconds)
    return {name: statistics.median(times) for name, times in taken.items()}


def seconds_of(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return how long something took, without throwing away what it made."""
    start = clock()
    result = work()
    elapsed = clock() - start
    del result
    return elapsed


def peak_bytes(work: Callable[[], object]) -> int:
    """Return the most memory that Python allocated meanwhile."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak
