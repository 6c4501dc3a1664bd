"""Work on many files, run on threads here or on a cluster's executors: the same function either way.

    FileWork   what to do with one file (no key in it) │ the keys for it
       │
    function(io, work, keys)                            a function of a module, so that its name is enough to find it elsewhere
       │
    FileDone   what came of it (no key in it)          │ keys that it made

Work and keys travel apart, so that a runner which crosses a network encrypts the keys and never pickles one.

    LocalRunner                       threads of this process
    tablecrypt.spark's SparkRunner    executors of a Spark cluster

Callers pass a runner in, so this package knows of none but its own. docs/adr/0005-callers-pass-the-runner-in.md
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.maintenance.operation import Progress, ProgressListener
from tablecrypt.table.table import EncryptedTable

W = TypeVar("W")
R = TypeVar("R")
T = TypeVar("T")

_CHECKS_AT_ONCE: Final = 16
"""They wait for the store, and hardly compute."""


@dataclass(frozen=True)
class FileWork(Generic[W]):
    """One file's work: picklable values, and apart from them the key metadata that it needs, in an order the function knows.

    Attributes:
        size: about how many bytes the work reads, by which works are spread; 0 where that is not known.
    """

    work: W
    keys: tuple[StandardKeyMetadata, ...] = ()
    size: int = 0


@dataclass(frozen=True)
class FileDone(Generic[R]):
    """One file's result, and apart from it the key metadata of what was written.

    The result is made of plain values, of dates, decimals and uuids, and of dataclasses and enums of this package: a driver takes no other
    class from an executor.
    """

    result: R
    keys: tuple[StandardKeyMetadata, ...] = ()

    @property
    def key(self) -> StandardKeyMetadata:
        """The key of the one file that was written, which knows the file's length. FormatError where there is no such key, or another."""
        if len(self.keys) != 1 or self.keys[0].file_length is None:
            raise FormatError(f"a worker that writes one file reports {len(self.keys)} keys, or does not report the file's length")
        return self.keys[0]


FileFunction = Callable[[EncryptingFileIO, W, tuple[StandardKeyMetadata, ...]], FileDone[R]]
"""A function of a module, or a functools.partial of one with picklable arguments.

On a cluster it may run more than once for one work, twice at the same time too, and one of the runs counts. So what it writes has a name
and a DEK of its own in every run, and it deletes nothing that another run needs.
"""


class Runner(Protocol):
    """Runs one function over many files of a table."""

    def run(self, table: EncryptedTable, function: FileFunction[W, R], works: Sequence[FileWork[W]]) -> Iterator[tuple[int, FileDone[R]]]:
        """Yield (index of the work, what came of it) as each is done, in any order.

        The function gets a FileIO of the table's storage, which reads and writes ciphertext.

        When the function raises, work that was not begun is not begun any more; what came of other works is yielded, then the error is
        raised.
        """
        ...


class LocalRunner:
    """Runs on threads of this process: ciphers and the store's client let others run meanwhile.

    Args:
        workers: how many files at once; by default one for each core.
    """

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise ConfigurationError(f"workers is {workers}; it must be 1 or more")
        self._workers = workers or os.cpu_count() or 1

    def run(self, table: EncryptedTable, function: FileFunction[W, R], works: Sequence[FileWork[W]]) -> Iterator[tuple[int, FileDone[R]]]:
        """Yield what comes of each work, the largest begun first. At most two works a worker are begun or waiting to be taken."""
        io = table.io

        def run_one(index: int) -> tuple[int, FileDone[R]]:
            each = works[index]
            return index, function(io, each.work, each.keys)

        # A large file that is begun last would keep one worker busy while the others have nothing to do.
        largest_first = sorted(range(len(works)), key=lambda index: works[index].size, reverse=True)
        with ThreadPoolExecutor(self._workers, thread_name_prefix="tablecrypt-files") as pool:
            yield from completed(pool, (partial(run_one, index) for index in largest_first), 2 * self._workers)


def completed(pool: Executor, calls: Iterable[Callable[[], T]], limit: int) -> Iterator[T]:
    """Yield what calls return, as they are done; at most `limit` of them are begun or wait to be taken.

    When a call raises, no other is begun; what the others that run return is yielded, and then the error is raised. Nothing that was done
    is lost so. When the consumer stops, no other call is begun either.
    """
    remaining = iter(calls)
    running: set[Future[T]] = set()
    failures: list[BaseException] = []

    try:
        while True:
            # Bounded: results wait in memory, with the keys that they made, until the consumer takes them.
            while not failures and len(running) < limit and (call := next(remaining, None)) is not None:
                running.add(pool.submit(call))
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)

            for future in done:
                error = future.exception()
                if error is None:
                    yield future.result()
                else:
                    failures.append(error)
                    # What is running cannot be cancelled, and its result counts: the caller may have to commit or delete what it wrote.
                    running = {other for other in running if not other.cancel()}
    finally:
        for future in running:
            future.cancel()

    for failure in failures:
        raise failure


def passed(results: Generator[T, None, None], check: Callable[[T], object]) -> Iterator[T]:
    """Yield results in their order, each once it has passed a check; several checks run at a time.

    Where one does not pass, or the results end in an error, no other is asked for. Those that had come are yielded first, as `Runner.run`
    does: what a worker has written is not lost by the check of another's. Results that are not asked for any more are closed here: the
    error would keep them, with their threads and Spark jobs, until one of those threads perhaps collects them and waits for itself.
    """
    failures: list[BaseException] = []
    ended: list[Exception] = []
    checked: deque[tuple[T, Future[object]]] = deque()

    def first_if_passed() -> Iterator[T]:
        result, check_of_it = checked.popleft()
        if (failure := check_of_it.exception()) is None:
            yield result
        else:
            failures.append(failure)

    with ThreadPoolExecutor(_CHECKS_AT_ONCE, thread_name_prefix="tablecrypt-checks") as pool, closing(results):
        try:
            for each in results:
                checked.append((each, pool.submit(check, each)))
                while checked and (len(checked) > _CHECKS_AT_ONCE or checked[0][1].done()):
                    yield from first_if_passed()
                if failures:
                    break
        except Exception as error:  # noqa: BLE001  it is raised behind the results that came before it
            ended.append(error)

        while checked:
            yield from first_if_passed()

    for failure in (*failures, *ended):
        raise failure


def run_counted(
    runner: Runner,
    table: EncryptedTable,
    function: FileFunction[W, R],
    works: Sequence[FileWork[W]],
    operation: str,
    progress: ProgressListener,
    done_before: int | None = None,
) -> Iterator[tuple[int, FileDone[R]]]:
    """Run work as `Runner.run` does, and tell a listener how many bytes are done once the caller has taken in what came of a work.

    Args:
        runner, table, function, works: as `Runner.run` has them; each work's size is what it counts.
        operation, progress: the name of the phase, and the listener.
        done_before: bytes that need no work any more, which are reported first; with None, finished works alone are reported.
    """
    done = done_before or 0
    total = done + sum(work.size for work in works)
    if done_before is not None:
        progress(Progress(operation, done, total, "bytes"))

    for index, each in runner.run(table, function, works):
        yield index, each
        done += works[index].size
        progress(Progress(operation, done, total, "bytes"))


def runner_or_threads(runner: Runner | None, workers: int | None) -> Runner:
    """Return the runner that a caller gave, or one of threads here.

    Raises:
        ConfigurationError: both are given.
    """
    if runner is None:
        return LocalRunner(workers)
    if workers is not None:
        raise ConfigurationError("workers counts threads of this process: leave it out where runner= is given, which has its own workers")
    return runner
