"""Work on many files, run on threads here or on a cluster's executors: the same function either way.

    FileWork   what to do with one file (no key in it) │ the keys for it
       │
    function(io, work, keys)                            a function of a module, so that its name is enough to find it elsewhere
       │
    FileDone   what came of it (no key in it)          │ keys that it made

Work and keys travel apart, so that a runner which crosses a network seals the keys and never pickles one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.files.encrypting_file_io import EncryptingFileIO

W = TypeVar("W")
R = TypeVar("R")


@dataclass(frozen=True)
class FileWork(Generic[W]):
    """One file's work: picklable values, and apart from them the key metadata that it needs, in an order the function knows."""

    work: W
    keys: tuple[StandardKeyMetadata, ...] = ()


@dataclass(frozen=True)
class FileDone(Generic[R]):
    """One file's result: picklable values, and apart from them the key metadata of what was written."""

    result: R
    keys: tuple[StandardKeyMetadata, ...] = ()


FileFunction = Callable[[EncryptingFileIO, W, tuple[StandardKeyMetadata, ...]], FileDone[R]]


class Runner(Protocol):
    """Runs one function over many files."""

    def run(self, function: FileFunction[W, R], works: Sequence[FileWork[W]]) -> Iterator[tuple[int, FileDone[R]]]:
        """Yield (index of the work, what came of it) as each is done, in any order.

        What the function raises is raised here once no other work is under way; work that was not begun is not begun any more.
        """
        ...


class LocalRunner:
    """Runs on threads of this process: ciphers and the store's client let others run meanwhile.

    Args:
        io: reads and writes the files.
        workers: how many files at once; by default one for each core.
    """

    def __init__(self, io: EncryptingFileIO, workers: int | None = None) -> None:
        self._io = io
        self._workers = workers or os.cpu_count() or 1

    def run(self, function: FileFunction[W, R], works: Sequence[FileWork[W]]) -> Iterator[tuple[int, FileDone[R]]]:
        """Yield what comes of each work. At most two works a worker are begun or waiting to be taken."""
        remaining = iter(enumerate(works))
        with ThreadPoolExecutor(self._workers, thread_name_prefix="tablecrypt-files") as pool:
            running: dict[Future[FileDone[R]], int] = {}
            try:
                while True:
                    while len(running) < 2 * self._workers and (following := next(remaining, None)) is not None:
                        index, each = following
                        running[pool.submit(function, self._io, each.work, each.keys)] = index
                    if not running:
                        return
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield running.pop(future), future.result()
            finally:
                for future in running:
                    future.cancel()
