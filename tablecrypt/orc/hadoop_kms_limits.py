"""How often somebody may ask: a token bucket for each name.

A name starts with `burst` tokens, gets `per_second` back each second up to `burst`, and pays one for each request. Names that were not
heard of for longest are forgotten beyond `_MOST_NAMES`: a forgotten name starts with a full bucket again.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_MOST_NAMES: Final = 10_000


class RateLimit:
    """Safe to use from many threads. `clock` returns seconds that never run backwards."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def allows(self, name: str) -> bool:
        """Take a token from the name's bucket; False when there is none."""
        with self._lock:
            now = self._clock()
            tokens, filled_at = self._buckets.pop(name, (self._burst, now))
            tokens = min(self._burst, tokens + (now - filled_at) * self._per_second)
            allowed = tokens >= 1
            self._buckets[name] = (tokens - 1 if allowed else tokens, now)
            if len(self._buckets) > _MOST_NAMES:
                self._buckets.popitem(last=False)
            return allowed
