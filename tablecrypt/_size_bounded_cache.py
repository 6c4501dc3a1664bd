"""What a process keeps in memory to spare itself reading it again, up to a number of bytes: the longest unused goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SizeBoundedCache(Generic[K, V]):
    """Values by their keys, the longest unused first. Used by many threads.

    Attributes:
        size: how many bytes all values take, as the callers of `keep` said.
    """

    def __init__(self) -> None:
        self.start_empty()

    def start_empty(self) -> None:
        """Begin anew in a forked child, where the lock may be held by a thread that only the parent has."""
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = Lock()
        self.size = 0

    def find(self, key: K) -> V | None:
        """Return what is kept under this key."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def keep(self, key: K, value: V, size: int, limit: int) -> None:
        """Store a value of `size` bytes, evicting the least recently used until the total is at most `limit`."""
        # Kept, it would push out everything else and then itself.
        if size > limit:
            return

        with self._lock:
            # The size of an earlier value under this key must not count on.
            self._drop(key)
            self._kept[key] = value, size
            self.size += size
            while self.size > limit:
                self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept.clear()
            self.size = 0

    def _drop(self, key: K) -> None:
        if (dropped := self._kept.pop(key, None)) is not None:
            self.size -= dropped[1]
