"""A value that belongs to one process: made on first use, once, and made anew in a forked child.

Connections and locks do not survive a fork: a child that inherits a socket answers its parent's requests, and a lock that another
thread held at the moment of the fork is never released. So in a child every value here starts empty, with a new lock.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_instances: weakref.WeakSet[PerProcess[Any]] = weakref.WeakSet()


class PerProcess(Generic[T]):
    """Holds what `make()` returns. Threads that ask at the same time get the same value, and `make` runs once."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.forget()
        _instances.add(self)

    def get(self) -> T:
        """Return the value, making it if this process has none."""
        with self._lock:
            if not self._held:
                self._held.append(self._make())
            return self._held[0]

    def drop(self) -> T | None:
        """Let the value go and return it, for the caller to close; None if there was none. A later `get` makes another."""
        with self._lock:
            return self._held.pop() if self._held else None

    def forget(self) -> None:
        """Start empty with a new lock. For construction and for the first moment of a forked child, when no other thread runs."""
        self._lock = threading.Lock()
        self._held: list[T] = []


def _forget_all_in_child() -> None:
    for instance in list(_instances):
        instance.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all_in_child)
