"""Several iterators, such as the rows of several files, read ahead, in order and within bounds.

    file 0 ──▶ [queue of a few batches] ──┐
    file 1 ──▶ [queue of a few batches] ──┼──▶ the consumer takes all of file 0, then all of file 1, ...
    file 2 ──▶ [queue of a few batches] ──┘         and file 3 starts once file 0 is used up

Each is read in its own thread, which waits when its queue is full. The threads are not from a shared pool, where waiting would keep
other work from running, and are daemons, so that a consumer that is never finished does not keep the process from ending.

A store takes its time for each request, however small the file is. So small files are read many at a time: more than `workers` run
together while all that run have at most SMALL_TOGETHER bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from threading import Condition, Thread, current_thread
from typing import Final, Generic, TypeVar

T = TypeVar("T")
SMALL_TOGETHER: Final = 32 * 1024 * 1024
MOST_AT_ONCE: Final = 32


@dataclass(frozen=True)
class RowSource(Generic[T]):
    """Something to read.

    Attributes:
        start: begins to read it.
        size: how many bytes reading it takes, estimated beforehand.
    """

    start: Callable[[], Iterator[T]]
    size: int = SMALL_TOGETHER


def prefetched(sources: Iterable[RowSource[T]], workers: int, depth: int | None) -> Iterator[T]:
    """Yield all items of all sources, in order.

    Args:
        sources: drawn when they are about to be started.
        workers: how many of them are read at once; more, if they are small.
        depth: how many items of each wait to be taken, at most. None: all; then a source that is read to its end gives way to another.

    Raises:
        Whatever a source raises, in the place of its next item. The others are stopped, also when the consumer stops early.
    """
    lanes = _Lanes(iter(sources), workers, depth)
    try:
        yield from lanes.items()
    finally:
        lanes.stop()


class _Lanes(Generic[T]):
    """The sources that are being read, in order."""

    def __init__(self, sources: Iterator[RowSource[T]], workers: int, depth: int | None) -> None:
        self._sources = sources
        self._following = next(sources, None)
        self._workers = workers
        self._depth = depth
        self._running: deque[_Lane[T]] = deque()
        self._changed = Condition()

    def items(self) -> Iterator[T]:
        while True:
            while self._following is not None and self._has_room_for(self._following):
                self._running.append(_Lane(self._following, self._depth, self._changed))
                self._following = next(self._sources, None)
            if not self._running:
                return

            first = self._running[0]

            with self._changed:
                self._changed.wait_for(partial(self._may_go_on, first))
                taken = [first.items.popleft()] if first.items else []
                ended = first.finished and not taken
                self._changed.notify_all()

            # Outside the lock: the consumer may take its time with a batch while the threads go on.
            yield from taken
            if ended:
                self._running.popleft()
                if first.error is not None:
                    raise first.error

    def stop(self) -> None:
        """Stop what runs, and wait for it."""
        with self._changed:
            for lane in self._running:
                lane.stopped = True
                lane.items.clear()
            self._changed.notify_all()

        for lane in self._running:
            lane.join()

    def _may_go_on(self, first: _Lane[T]) -> bool:
        return bool(first.items) or first.finished or (self._following is not None and self._has_room_for(self._following))

    def _has_room_for(self, source: RowSource[T]) -> bool:
        busy = [lane.size for lane in self._running if self._depth is not None or not lane.finished]
        return len(busy) < self._workers or (len(busy) < MOST_AT_ONCE and sum(busy) + source.size <= SMALL_TOGETHER)


class _Lane(Generic[T]):
    """One source, read by a thread into a bounded queue."""

    def __init__(self, source: RowSource[T], depth: int | None, changed: Condition) -> None:
        self.size = source.size
        self.items: deque[T] = deque()
        self.finished = False
        self.stopped = False
        self.error: BaseException | None = None
        self._source = source
        self._depth = depth
        self._changed = changed
        self._thread = Thread(target=self._run, name="tablecrypt-prefetch", daemon=True)
        self._thread.start()

    def join(self) -> None:
        # A forgotten consumer is finished by the garbage collector, which may run in this very thread.
        if self._thread is not current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            for item in self._source.start():
                if not self._put(item):
                    return
        except BaseException as error:  # noqa: BLE001  carried to the consumer's thread and raised there
            self.error = error
        finally:
            with self._changed:
                self.finished = True
                self._changed.notify_all()

    def _put(self, item: T) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self.stopped or self._depth is None or len(self.items) < self._depth)
            if self.stopped:
                return False
            self.items.append(item)
            self._changed.notify_all()
            return True
