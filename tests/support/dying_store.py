"""A store whose client dies at a chosen step, as far as the store can tell: from then on nothing of that process reaches it any more.

Steps are counted at every open, creation, write, close and deletion. At the last one a write leaves half of its bytes. What runs afterwards
in the "dead" process, handlers and clean-up included, fails at its first touch of the store: what is left is what kill -9 would leave.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO


class StoreDiedError(BaseException):
    """The process was killed."""


class Life:
    """How many steps are left, for all FileIOs of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: int | None = None
        self.taken = 0

    def begin(self, steps: int | None) -> None:
        self._left, self.taken = steps, 0

    @property
    def is_over(self) -> bool:
        return self._left is not None and self.taken >= self._left

    def step(self) -> None:
        with self._lock:
            if self.is_over:
                raise StoreDiedError
            self.taken += 1


LIFE = Life()


@contextmanager
def dying_after(steps: int | None) -> Iterator[Life]:
    """Let the store's client die after so many steps; None: live, and count them."""
    LIFE.begin(steps)
    try:
        yield LIFE
    finally:
        LIFE.begin(None)


class _Output:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def write(self, content: Any) -> int:
        try:
            LIFE.step()
        except StoreDiedError:
            self._inner.write(memoryview(content).cast("B")[: memoryview(content).nbytes // 2])
            self._inner.close()
            raise
        return int(self._inner.write(content) or memoryview(content).nbytes)

    def close(self) -> None:
        LIFE.step()
        self._inner.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


class _File(PyArrowFile):
    def open(self, seekable: bool = True) -> Any:
        LIFE.step()
        return super().open(seekable)

    def create(self, overwrite: bool = False) -> Any:
        LIFE.step()
        return _Output(super().create(overwrite))


class DyingFileIO(PyArrowFileIO):
    """PyArrowFileIO under `LIFE`; chosen by py-io-impl."""

    def new_input(self, location: str) -> PyArrowFile:
        return self._file(super().new_input(location))

    def new_output(self, location: str) -> PyArrowFile:
        return self._file(super().new_output(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        LIFE.step()
        super().delete(location)

    @staticmethod
    def _file(file: PyArrowFile) -> _File:
        return _File(file.location, file._path, file._filesystem, file._buffer_size)
