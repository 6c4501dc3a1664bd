"""A FileIO whose process is killed while it writes: `py-io-impl: tests.programs.dying_io.DyingFileIO` in the configuration of a catalog.

TABLECRYPT_TESTS_DIE_AT is a part of a file's location. The first write to such a file leaves its first half, and SIGKILL ends the process.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO


class DyingFileIO(PyArrowFileIO):
    """PyArrowFileIO, up to that write."""

    def new_output(self, location: str) -> PyArrowFile:
        file = super().new_output(location)
        return _DyingFile(file) if os.environ["TABLECRYPT_TESTS_DIE_AT"] in location else file  # type: ignore[return-value]


class _DyingFile(OutputFile):
    def __init__(self, inner: PyArrowFile) -> None:
        super().__init__(inner.location)
        self._inner = inner

    def __len__(self) -> int:
        return len(self._inner)

    def exists(self) -> bool:
        return self._inner.exists()

    def to_input_file(self) -> InputFile:
        return self._inner.to_input_file()

    def create(self, overwrite: bool = False) -> Any:
        return _DyingStream(self._inner.create(overwrite=overwrite))


class _DyingStream:
    closed = False

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def write(self, data: bytes) -> int:
        self._inner.write(bytes(data)[: len(data) // 2])
        self._inner.close()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("a killed process goes on")

    def tell(self) -> int:
        return 0

    def flush(self) -> None:
        self._inner.flush()

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> _DyingStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
