"""Asking a key service again: exponential backoff with full jitter, inside a budget of time.

    attempt 0 ─ fails, retryable ─ wait random × min(5 s, 0.1 s) ─ attempt 1 ─ wait random × min(5 s, 0.2 s) ─ attempt 2 …

The last error is raised as it is when it is not retryable, or when the next wait would end outside the budget. The budget bounds the
waiting: an attempt that has begun is not cut off, each client gives its own requests a timeout. Pure but for the clock, the sleep and
the randomness that it is given.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from tablecrypt.errors import KmsError

T = TypeVar("T")

FIRST_WAIT_SECONDS: Final = 0.1
LONGEST_WAIT_SECONDS: Final = 5.0


@dataclass(frozen=True)
class RetryPolicy:
    """How long to go on (`budget_seconds`; 0 asks once), and what tells time, waits and draws from [0, 1)."""

    budget_seconds: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = secrets.SystemRandom().random

    def call(self, ask: Callable[[], T]) -> T:
        """Return what `ask()` returns, asking again after each retryable KmsError until the budget is spent."""
        deadline = self.clock() + self.budget_seconds
        ceiling = FIRST_WAIT_SECONDS
        while True:
            try:
                return ask()
            except KmsError as error:
                wait = self.random() * ceiling
                if not error.retryable or self.clock() + wait >= deadline:
                    raise
            self.sleep(wait)
            ceiling = min(ceiling * 2, LONGEST_WAIT_SECONDS)
