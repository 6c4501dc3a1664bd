"""Asking a key service again: exponential backoff with full jitter, inside a budget of time.

    attempt 0 ─ fails, retryable ─ wait random × min(5 s, 0.1 s) ─ attempt 1 ─ wait random × min(5 s, 0.2 s) ─ attempt 2 …

The last error is raised as it is when it is not retryable, or when the next wait would end outside the budget. The budget bounds the
waiting: an attempt that has begun is not cut off, each client gives its own requests a timeout. Pure but for the clock, the sleep and
the randomness that it is given.

Before each wait the policy tells its `heard` of it. By default that is a line of the log and every listener of `retries_heard`. Clients are
made deep inside of catalogs and asked from many threads, so that listeners are the process's, as handlers of the log are.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from tablecrypt.errors import KmsError

logger = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_WAIT_SECONDS: Final = 0.1
LONGEST_WAIT_SECONDS: Final = 5.0


@dataclass(frozen=True)
class Retry:
    """A key service that failed is about to be asked again.

    Attributes:
        problem: what it failed with.
        seconds_left: how much of the budget is left.
    """

    problem: KmsError
    seconds_left: float


RetryListener = Callable[[Retry], None]
"""Is called before each wait, from the thread that asks, so from several at once. What it raises ends the asking."""

_listeners: Final[list[RetryListener]] = []


@contextmanager
def retries_heard(listener: RetryListener) -> Iterator[None]:
    """Have a listener hear of every retry in this process while the block runs."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def announce(retry: Retry) -> None:
    """Tell the log and every listener of a retry."""
    logger.info("the key service is asked again, for %.0f s more: %s", retry.seconds_left, retry.problem)
    for listener in tuple(_listeners):
        listener(retry)


@dataclass(frozen=True)
class RetryPolicy:
    """How long to go on (`budget_seconds`; 0 asks once), what tells time, waits and draws from [0, 1), and who hears of retries."""

    budget_seconds: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = secrets.SystemRandom().random
    heard: RetryListener = announce

    def call(self, ask: Callable[[], T]) -> T:
        """Return what `ask()` returns, asking again after each retryable KmsError until the budget is spent."""
        deadline = self.clock() + self.budget_seconds
        ceiling = FIRST_WAIT_SECONDS
        while True:
            try:
                return ask()
            except KmsError as error:
                wait = self.random() * ceiling
                left = deadline - self.clock()
                if not error.retryable or wait >= left:
                    raise
                self.heard(Retry(error, left))
            self.sleep(wait)
            ceiling = min(ceiling * 2, LONGEST_WAIT_SECONDS)
