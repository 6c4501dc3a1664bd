"""What a store holds below a location: its files, with their lengths and when they were last written.

PyIceberg's FileIO has no call for listing, so files are listed through the file systems that it uses itself:

    PyArrowFileIO    local, S3, GCS, HDFS, Azure    pyarrow's FileSystem
    FsspecFileIO     local, S3, GCS, Azure          fsspec's

Raises ConfigurationError for another FileIO, and for a store that it does not know. What the store raises is passed on.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.io import FileIO

from tablecrypt.errors import ConfigurationError
from tablecrypt.printable import bytes_shown

if TYPE_CHECKING:
    from pyiceberg.io.fsspec import FsspecFileIO
    from pyiceberg.io.pyarrow import PyArrowFileIO

_MODIFIED: Final = ("LastModified", "last_modified", "mtime", "updated")


@dataclass(frozen=True)
class StoredFile:
    """One file: its location, its length in bytes, and when it was last written, with a time zone; None where the store does not say."""

    location: str
    size: int
    modified: dt.datetime | None

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.location} ({bytes_shown(self.size)})"


def stored_files(io: FileIO, location: str) -> Iterator[StoredFile]:
    """Yield every file under a location, at any depth; none where there is no such folder.

    Args:
        io: the store's own FileIO, not one that encrypts.
        location: without a slash at the end.
    """
    # Only here: whoever loads a table lists nothing, and need not load the libraries of all stores.
    from pyiceberg.io.fsspec import FsspecFileIO
    from pyiceberg.io.pyarrow import PyArrowFileIO

    if isinstance(io, PyArrowFileIO):
        yield from _of_pyarrow(io, location)
    elif isinstance(io, FsspecFileIO):
        yield from _of_fsspec(io, location)
    else:
        raise ConfigurationError(f"files under {location} cannot be listed through {type(io).__name__}")


def _of_pyarrow(io: PyArrowFileIO, location: str) -> Iterator[StoredFile]:
    import pyarrow.fs as pafs

    scheme, netloc, path = io.parse_location(location)
    try:
        file_system = io.fs_by_scheme(scheme, netloc)
    except ValueError as unknown:
        raise ConfigurationError(f"files under {location} cannot be listed: {unknown}") from unknown

    # A table without files has no folder yet.
    selector = pafs.FileSelector(path, recursive=True, allow_not_found=True)
    for info in file_system.get_file_info(selector):
        if info.type == pafs.FileType.File:
            yield StoredFile(location + _below(info.path, path), info.size, info.mtime)


def _of_fsspec(io: FsspecFileIO, location: str) -> Iterator[StoredFile]:
    scheme, separator, rest = location.partition("://")
    file_system: Any = io.get_fs(scheme if separator else "file")
    root = rest if separator else location
    for path, info in file_system.find(root, detail=True).items():
        if info.get("type") == "file":
            yield StoredFile(location + _below(path, root), int(info.get("size") or 0), _modified(info))


def _below(path: str, root: str) -> str:
    """Return the part of a path that follows a root. Stores differ in whether they begin paths with a slash."""
    path, root = path.lstrip("/"), root.strip("/")
    if not path.startswith(f"{root}/"):
        # Files that a store lists from elsewhere would look like this table's, and be deleted as its orphans.
        raise ConfigurationError(f"the store listed {path!r} below {root!r}")
    return path[len(root) :]


def _modified(info: dict[str, Any]) -> dt.datetime | None:
    value = next((info[name] for name in _MODIFIED if info.get(name) is not None), None)
    if isinstance(value, (int, float)):
        return dt.datetime.fromtimestamp(value, dt.UTC)

    if isinstance(value, str):
        value = dt.datetime.fromisoformat(value)
    if not isinstance(value, dt.datetime):
        return None

    return value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
