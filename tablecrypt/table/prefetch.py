"""Several iterators, such as the rows of several files, read ahead, in order and within bounds.

    file 0 ──▶ [queue of a few batches] ──┐
    file 1 ──▶ [queue of a few batches] ──┼──▶ the consumer takes all of file 0, then all of file 1, ...
    file 2 ──▶ [queue of a few batches] ──┘         and file 3 starts once file 0 is used up

Each is read in a thread of its own that waits when its queue is full. The threads are not from a shared pool, where waiting would keep
other work from running, and are daemons, so that a consumer that is never finished does not keep the process from ending.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from threading import Condition, Thread, current_thread
from typing import Generic, TypeVar

T = TypeVar("T")


def prefetched(sources: Iterable[Callable[[], Iterator[T]]], workers: int, depth: int) -> Iterator[T]:
    """Yield all items of all sources, in order.

    Args:
        sources: functions that start an iterator.
        workers: how many of them are read at once.
        depth: how many items of each wait to be taken, at most.

    Raises:
        Whatever a source raises, in the place of its next item. The others are stopped, also when the consumer stops early.
    """
    remaining = iter(sources)
    running: deque[_Worker[T]] = deque()
    try:
        while True:
            while len(running) < workers and (source := next(remaining, None)) is not None:
                running.append(_Worker(source, depth))
            if not running:
                return
            yield from running[0].items()
            running.popleft()
    finally:
        for worker in running:
            worker.stop()
        for worker in running:
            worker.join()


class _Worker(Generic[T]):
    """One source, read by a thread into a bounded queue."""

    def __init__(self, source: Callable[[], Iterator[T]], depth: int) -> None:
        self._source = source
        self._depth = depth
        self._items: deque[T] = deque()
        self._changed = Condition()
        self._stopped = False
        self._finished = False
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="tablecrypt-prefetch", daemon=True)
        self._thread.start()

    def items(self) -> Iterator[T]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._finished)
                if not self._items:
                    break
                item = self._items.popleft()
                self._changed.notify_all()
            yield item
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._items.clear()
            self._changed.notify_all()

    def join(self) -> None:
        # A forgotten consumer is finished by the garbage collector, which may run in this very thread.
        if self._thread is not current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            for item in self._source():
                if not self._put(item):
                    return
        except BaseException as error:  # noqa: BLE001  carried to the consumer's thread and raised there
            self._error = error
        finally:
            with self._changed:
                self._finished = True
                self._changed.notify_all()

    def _put(self, item: T) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or len(self._items) < self._depth)
            if self._stopped:
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True
