"""Bytes of a file at an offset, whatever the file is: a path, bytes in memory, an Arrow file, any seekable binary stream."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pyarrow as pa

from tablecrypt._bytes import length_of
from tablecrypt._store_errors import reraise_naming
from tablecrypt.arguments import check_file
from tablecrypt.errors import FormatError

UNNAMED = "the ORC file"


class OrcSource(Protocol):
    """A file of known length. `location` names it in errors."""

    location: str
    length: int

    def read_at(self, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes. Raises FormatError when the file ends before, and any error of its store."""
        ...


class FileSource:
    """An open file. Leaving the `with` block closes what was opened here: a path, never a file that the caller opened.

    Args:
        source: the file.
        location: names it in errors, where it does not say its name itself.
    """

    def __init__(self, source: Any, location: str = UNNAMED) -> None:
        self._stack = ExitStack()
        self.location = os.fspath(source) if isinstance(source, str | os.PathLike) else str(getattr(source, "name", location))
        self._file = self._open(source)
        self.length = length_of(self._file)

    @property
    def name(self) -> str:
        """The last part of the file's path, empty when it has none."""
        return "" if self.location == UNNAMED else os.path.basename(self.location)

    def read_at(self, offset: int, length: int) -> bytes:
        if length <= 0:
            return b""
        # Ranges come from footers that nothing authenticates: one past the end is a broken file, not a short read.
        if offset + length > self.length:
            raise FormatError(f"{self.location}: needs bytes up to {offset + length}, but the file has {self.length}")

        data = b"".join(self._pieces(offset, length))
        # Another writer may cut the file while it is open: fewer bytes must not pass for the section that was named.
        if len(data) != length:
            raise FormatError(f"{self.location}: ended at byte {offset + len(data)} while it was read; it had {self.length} bytes before")

        return data

    def _pieces(self, offset: int, length: int) -> Iterator[bytes]:
        # Unbuffered files and some stores answer with less than was asked for.
        try:
            while length and (piece := self._file.read_at(length, offset)):
                yield piece
                offset, length = offset + len(piece), length - len(piece)
        except OSError as error:
            reraise_naming(error, self.location)

    def __enter__(self) -> FileSource:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def _open(self, source: Any) -> pa.NativeFile:
        if isinstance(source, str | os.PathLike):
            return self._stack.enter_context(pa.OSFile(os.fspath(source), mode="r"))
        if isinstance(source, bytes | bytearray | memoryview | pa.Buffer):
            return pa.BufferReader(source)
        if isinstance(source, pa.NativeFile):
            return source

        check_file(source, "read", "seek", "tell")

        return pa.PythonFile(source, mode="r")
