"""What a process holds for itself: a value that it makes once, and what it keeps in memory to spare itself reading it again.

Connections and locks do not survive a fork: a child that inherits a socket answers its parent's requests, and a lock that another thread
held at the moment of the fork is never released. So in a forked child everything here starts empty, with a new lock.
"""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _OfOneProcess(ABC):
    """Something that a forked child does not inherit."""

    def __init__(self) -> None:
        self.start_empty()
        _instances.add(self)

    @abstractmethod
    def start_empty(self) -> None:
        """Begin with nothing and a new lock: when it is made, and at the first moment of a forked child, when no other thread runs."""


_instances: weakref.WeakSet[_OfOneProcess] = weakref.WeakSet()


def _start_all_empty() -> None:
    for instance in list(_instances):
        instance.start_empty()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_all_empty)


class InForkedChildren(_OfOneProcess):
    """Has each forked child do something before all else, as long as this object is kept. It must wait for no lock."""

    def __init__(self, do: Callable[[], object]) -> None:
        self._do = do
        _instances.add(self)

    def start_empty(self) -> None:
        self._do()


class PerProcess(_OfOneProcess, Generic[T]):
    """Holds what `make()` returns. Threads that ask at the same time get the same value, and `make` runs once."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        super().__init__()

    def start_empty(self) -> None:
        self._lock = Lock()
        self._held: list[T] = []

    def get(self) -> T:
        """Return the value, making it if this process has none."""
        with self._lock:
            if not self._held:
                self._held.append(self._make())
            return self._held[0]

    def hold(self, value: T) -> None:
        """Have this process use a value that is there already; a forked child makes another."""
        with self._lock:
            self._held = [value]

    def drop(self) -> T | None:
        """Let the value go and return it, for the caller to close; None if there was none. A later `get` makes another."""
        with self._lock:
            return self._held.pop() if self._held else None


class SizeBoundedCache(_OfOneProcess, Generic[K, V]):
    """Values by their keys, up to a number of bytes: the longest unused goes first. Used by many threads.

    Attributes:
        size: how many bytes all values take, as the callers of `keep` said.
    """

    def start_empty(self) -> None:
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
