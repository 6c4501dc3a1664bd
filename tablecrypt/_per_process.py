"""What a process holds for itself: a value that it makes once, and what it keeps in memory to spare itself reading it again.

Connections and locks do not survive a fork: a child that inherits a socket answers its parent's requests, and a lock that another thread
held at the moment of the fork is never released. So in a forked child everything here starts empty, with a new lock. Where a library keeps
the locks, forks happen between its uses.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Condition, Lock, RLock
from time import monotonic
from typing import Final, Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_PATIENCE_S: Final = 5.0
"""How long a fork waits: as long as SQLite waits for another process."""
_LOOK_AGAIN_S: Final = 0.001


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


def _free_cached_properties() -> None:
    """Give each `functools.cached_property` a new lock: before Python 3.12 it has one, for all objects of a class, while it computes."""
    packages = ("tablecrypt", "tablecrypt_catalog", "pyiceberg")
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in packages:
            continue
        own = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == name]
        for attribute in (attribute for each in own for attribute in vars(each).values()):
            if isinstance(attribute, functools.cached_property):
                setattr(attribute, "lock", RLock())  # noqa: B010  not declared, since later Pythons have none


def _hold_all() -> None:
    for held in _held_at_forks():
        held.hold()


def _release_all() -> None:
    for held in _held_at_forks():
        held.release()


def _held_at_forks() -> list[HeldAtForks]:
    return [instance for instance in list(_instances) if isinstance(instance, HeldAtForks)]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_start_all_empty)
    if sys.version_info < (3, 12):
        os.register_at_fork(after_in_child=_free_cached_properties)


class InForkedChildren(_OfOneProcess):
    """Has each forked child do something before all else, as long as this object is kept. It must wait for no lock."""

    def __init__(self, do: Callable[[], object]) -> None:
        self._do = do
        _instances.add(self)

    def start_empty(self) -> None:
        self._do()


class HeldAtForks(InForkedChildren):
    """Has forks happen between uses of a library that keeps locks of its own in the process, where nobody can make them anew in a child.

    Args:
        uses: counts the uses that have begun, or are about to, in all threads.
        do: what a forked child does before all else.
    """

    def __init__(self, uses: Callable[[], int], do: Callable[[], object]) -> None:
        self._uses = uses
        self._make_new()
        super().__init__(do)

    def start_empty(self) -> None:
        self._make_new()
        super().start_empty()

    def _make_new(self) -> None:
        self._changed = Condition(Lock())
        self._forks = 0
        self._waiting = 0

    def begin_use(self, *_what: object) -> None:
        """Wait until no fork is under way. Each use calls this once it is counted, and before it asks the library for anything."""
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: self._forks == 0)
            self._waiting -= 1

    def hold(self) -> None:
        """Let no use begin, and wait for those that have. A fork goes ahead after some seconds: it may be that its own thread has one."""
        deadline = monotonic() + _PATIENCE_S
        with self._changed:
            self._forks += 1
            while self._uses() > self._waiting and monotonic() < deadline:
                self._changed.wait(_LOOK_AGAIN_S)

    def release(self) -> None:
        """Let uses begin again."""
        with self._changed:
            # One that was made while another thread forked has not been held.
            self._forks = max(0, self._forks - 1)
            self._changed.notify_all()


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
