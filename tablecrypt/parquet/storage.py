"""Where Parquet bytes come from and go to: paths, URIs, buffers, and open files of Arrow, Python, fsspec or PyIceberg.

A Source gives exactly the bytes that are asked for, or says that the file ends early. A Sink counts what it was given; a path gets its file
only when all of it is written, so that a failure leaves what was there before.

Buffers that pyarrow still holds when a read is done are waited for. Arrow's own threads let go of a view, and of the bytes that it
gave them, some moments after the rows are there. They need the interpreter for that, and when one of them asks for an interpreter that is
ending, the process aborts. So its end waits until all is back.

Raises TamperedFileError for a file that is shorter than it was. What the store itself raises passes through.
"""

from __future__ import annotations

import atexit
import io
import itertools
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn
from weakref import WeakValueDictionary

import pyarrow as pa
from pyarrow import fs

from tablecrypt._atomic_file import atomic_file, named_file
from tablecrypt._bytes import flat_view, length_of, read_up_to, write_all
from tablecrypt._store_errors import reraise_naming
from tablecrypt.arguments import check_file
from tablecrypt.errors import ConfigurationError, TamperedFileError
from tablecrypt.files.encrypting_file_io import is_local

if TYPE_CHECKING:
    from typing_extensions import Buffer

UNNAMED: Final = "the Parquet file"
_PATIENCE_S: Final = 1.0
"""For what a caller holds on to, as for a scan that was not finished, no wait is long enough."""
_exported: Final[WeakValueDictionary[int, Any]] = WeakValueDictionary()
_numbers: Final = itertools.count()


class Source:
    """Random access to the bytes of one file, `length` of them.

    Args:
        file: any seekable binary file.
        location: names it in errors.
        owned: whether `close` closes it.
    """

    def __init__(self, file: Any, location: str, owned: bool = False) -> None:
        self._file = file
        self._owned = owned
        self.location = location
        self.length: int = length_of(file)

    def read_at(self, offset: int, length: int) -> memoryview:
        """`length` bytes from `offset` on; without a copy where the file is in memory."""
        if offset < 0 or length < 0 or offset + length > self.length:
            raise TamperedFileError(
                self.location, f"bytes {offset} to {offset + length} are outside the file, which has {self.length} bytes"
            )

        if isinstance(self._file, pa.NativeFile):
            data = self._buffer_of(self._file, offset, length)
        else:
            data = memoryview(read_up_to(self._file, offset, length, self.location))

        if data.nbytes != length:
            raise TamperedFileError(
                self.location, f"ends after {offset + data.nbytes} bytes, though it had {self.length} when it was opened"
            )

        return data

    def read_into(self, offset: int, memory: memoryview) -> None:
        """Fill `memory` with the bytes from `offset` on."""
        if isinstance(self._file, pa.NativeFile) and offset + memory.nbytes <= self.length:
            try:
                self._file.seek(offset)
                if self._file.readinto(memory) == memory.nbytes:
                    return
            except OSError as error:
                reraise_naming(error, self.location)
        # A file that is not Arrow's, or one that ends early: `read_at` says so.
        memory[:] = self.read_at(offset, memory.nbytes)

    @property
    def is_local(self) -> bool:
        """Whether reading a little at a time costs no request."""
        return is_local(self.location)

    @property
    def file(self) -> Any:
        """What the bytes are read from."""
        return self._file

    def close(self) -> None:
        """Close the file, if it was opened here."""
        if self._owned:
            self._file.close()

    def _buffer_of(self, file: pa.NativeFile, offset: int, length: int) -> memoryview:
        try:
            file.seek(offset)
            return memoryview(file.read_buffer(length)).cast("B")
        except OSError as error:
            reraise_naming(error, self.location)


class Sink:
    """Takes the bytes of one file in order, and counts them from `position` on, where the file is already that long."""

    def __init__(self, file: Any, position: int = 0) -> None:
        self._file = file
        self.position = position

    def write(self, data: Buffer) -> None:
        with flat_view(data) as view:
            del data
            self.position += view.nbytes
            write_all(self._file, view)


class RefusingFileSystem(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """A file system for pyarrow that refuses everything; a subclass gives what it has.

    Args:
        why: what the OSError says.
    """

    PATH: Final = "file"

    def __init__(self, why: str) -> None:
        self._why = why

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None  # type: ignore[assignment]

    def get_type_name(self) -> str:
        return "tablecrypt"

    def normalize_path(self, path: str) -> str:
        return path

    def _refuse(self, *arguments: Any, **more: Any) -> NoReturn:
        raise OSError(self._why)

    open_input_file = open_input_stream = open_output_stream = open_append_stream = _refuse
    get_file_info = get_file_info_selector = create_dir = delete_dir = delete_dir_contents = _refuse
    delete_root_dir_contents = delete_file = move = copy_file = _refuse


def source_of(source: Any, location: str | None = None) -> Source:
    """Open a path, a URI or a buffer, or take a seekable file that is open already.

    Args:
        source: see above.
        location: names the file in errors; found from `source` by itself where that has a name.
    """
    name = location or _name_of(source)
    if isinstance(source, bytes | bytearray | memoryview | pa.Buffer):
        return Source(pa.BufferReader(source), name, owned=True)
    if isinstance(source, str | os.PathLike):
        return Source(_open_for_reading(source), name, owned=True)

    check_file(source, "read", "seek", "tell")

    return Source(source, name)


@contextmanager
def open_source(source: Any, location: str | None = None) -> Iterator[Source]:
    """As `source_of`; what was opened is closed at the end, a file that was open stays so."""
    opened = source_of(source, location)
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def open_sink(sink: Any, source: Any = None) -> Iterator[Sink]:
    """Open a path or a URI, or take a file that is open for writing; the last stays open, for the caller to close.

    Args:
        sink: see above.
        source: what is read while the sink is written. ConfigurationError where both are one open file; a path may be both.
    """
    if not isinstance(sink, str | os.PathLike):
        check_file(sink, "write")
        # Each write would change what is still to be read: the rows of both would be lost.
        if source is not None and _is_one_file(source, sink):
            raise ConfigurationError("the source and the sink are one open file: write into another one, or give its path as both")
        yield Sink(sink)
        return

    filesystem, path = fs.FileSystem.from_uri(sink) if _is_uri(sink) else (fs.LocalFileSystem(), os.fspath(sink))
    # Through a link: in its place, a file that is encrypted where it lies would leave its plaintext behind.
    named = named_file(Path(path), private=False) if isinstance(filesystem, fs.LocalFileSystem) else whole_file(filesystem, path)
    with named as file:
        yield Sink(file)


@contextmanager
def whole_file(filesystem: fs.FileSystem, path: str) -> Iterator[Any]:
    """Yield an open file that gets its name when the block ends without an error; an earlier file of that name stays until then."""
    # A stream of Arrow gives a local file its name at once, and a failure would leave a part of it. Object stores do so at the end.
    if isinstance(filesystem, fs.LocalFileSystem):
        with atomic_file(Path(path), private=False) as file:
            yield file
    else:
        with filesystem.open_output_stream(path) as stream:
            yield stream


def _is_one_file(source: Any, sink: Any) -> bool:
    if source is sink:
        return True
    try:
        opened = os.fstat(sink.fileno())
        return os.path.samestat(opened, os.stat(source) if isinstance(source, str | os.PathLike) else os.fstat(source.fileno()))
    # What is no file of this machine has no number: it is in memory, or in a store.
    except (AttributeError, OSError, ValueError, pa.ArrowException):
        return False


def _open_for_reading(source: str | os.PathLike[str]) -> pa.NativeFile:
    if _is_uri(source):
        filesystem, path = fs.FileSystem.from_uri(source)
        return filesystem.open_input_file(path)
    return pa.OSFile(os.fspath(source))


def _is_uri(path: str | os.PathLike[str]) -> bool:
    return isinstance(path, str) and "://" in path


def _name_of(source: Any) -> str:
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    name = getattr(source, "location", None) or getattr(source, "name", None)
    return name if isinstance(name, str) else UNNAMED


def export_buffer(data: Buffer) -> memoryview:
    """Return a view of the bytes for pyarrow. The process does not end while pyarrow holds it."""
    view = memoryview(data)
    await_release(view)
    return view


def await_release(exported: object) -> None:
    """Have the process wait at its end until nothing holds this object any more."""
    _exported[next(_numbers)] = exported


@atexit.register
def wait_until_released(patience_s: float = _PATIENCE_S) -> None:
    """Return when no exported buffer is held any more, or after so many seconds."""
    deadline = time.monotonic() + patience_s
    while _exported and time.monotonic() < deadline:
        time.sleep(0.001)


class FileView(ABC):
    """A read-only, seekable binary file, put together when it is read. Not for two threads at a time; pyarrow takes care of that."""

    closed: Final = False
    mode: Final = "rb"

    def __init__(self) -> None:
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    @abstractmethod
    def size(self) -> int:
        """Bytes of the view."""

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to an offset and return it."""
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size()}[whence]
        self._position = origin + offset
        return self._position

    def read(self, size: int | None = -1) -> memoryview:
        """Return `size` bytes, fewer at the end."""
        left = max(0, self.size() - self._position)
        length = left if size is None or size < 0 else min(size, left)
        data = self._read_at(self._position, length)
        self._position += length
        return export_buffer(data)

    def close(self) -> None:  # noqa: B027 - a file has one; nothing of a view is to be closed
        """Does nothing: the caller that opened the encrypted file closes it."""

    def flush(self) -> None:  # noqa: B027 - as above
        """Does nothing."""

    @abstractmethod
    def _read_at(self, offset: int, length: int) -> bytes | memoryview:
        """Return the bytes of a range that ends in the view."""
