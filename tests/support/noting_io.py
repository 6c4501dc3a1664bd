"""A FileIO that notes which files it is asked for, and everything else is as it was.

catalog = …, **{"py-io-impl": NOTING_IO}
with opened_files() as opened: table.scan().to_arrow()      opened has the locations, in their order
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

NOTING_IO: Final = f"{__name__}.NotingFileIO"
_listening: Final[list[list[str]]] = []


class NotingFileIO(PyArrowFileIO):
    """PyArrowFileIO that notes inputs for each `opened_files` that listens, in all threads."""

    def new_input(self, location: str) -> PyArrowFile:
        for opened in _listening:
            opened.append(location)
        return super().new_input(location)


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """Note what is asked for in this block."""
    opened: list[str] = []
    _listening.append(opened)
    try:
        yield opened
    finally:
        _listening[:] = [each for each in _listening if each is not opened]
