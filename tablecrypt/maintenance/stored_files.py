"""Listing what a store holds under a location, which PyIceberg's FileIO has no call for: through the file systems that it uses itself.

    PyArrowFileIO    local, S3, GCS, HDFS, Azure    pyarrow's FileSystem
    FsspecFileIO     local, S3, GCS, Azure          fsspec's

Raises ConfigurationError for another FileIO, and for a store that it does not know. What the store raises is passed on.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow.fs as pafs
from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from tablecrypt.errors import ConfigurationError
from tablecrypt.files.deletion import store_of

_LOCAL: Final = "file"
_MODIFIED: Final = ("LastModified", "last_modified", "mtime", "updated")


@dataclass(frozen=True)
class StoredFile:
    """One file: its location, its length in bytes, and when it was last written, with a time zone; None where the store does not say."""

    location: str
    size: int
    modified: dt.datetime | None


def stored_files(io: FileIO, location: str) -> Iterator[StoredFile]:
    """Yield every file under a location, at any depth; none where there is no such folder.

    Args:
        io: the store's own FileIO, not one that encrypts.
        location: without a slash at the end.
    """
    if isinstance(io, PyArrowFileIO):
        yield from _of_pyarrow(io, location)
    elif isinstance(io, FsspecFileIO):
        yield from _of_fsspec(io, location)
    else:
        raise ConfigurationError(f"files under {location} cannot be listed through {type(io).__name__}")


def canonical(location: str) -> tuple[str, str, str]:
    """Return what is the same for all spellings of one location: s3a and s3, file:/a, file:///a and /a, a%20b and a b.

    Where two files differ in their spelling alone, both count as known.
    """
    parts = urlsplit(location)
    rest = location.partition(":")[2] if parts.scheme else location
    path = rest.lstrip("/").removeprefix(parts.netloc).lstrip("/")
    return store_of(parts.scheme), parts.netloc, unquote(path)


def delete_checksums(io: FileIO, location: str) -> None:
    """Delete the checksums that Hadoop keeps of a file on a local disk, in .<name>.crc beside it: the file is another one now, or gone.

    Java would take them for those of the new content, and they tell something about the old one.
    """
    if store_of(urlsplit(location).scheme) != _LOCAL:
        return
    folder, _, name = location.rpartition("/")
    with suppress(FileNotFoundError):
        io.delete(f"{folder}/.{name}.crc")


def _of_pyarrow(io: PyArrowFileIO, location: str) -> Iterator[StoredFile]:
    scheme, netloc, path = PyArrowFileIO.parse_location(location)
    try:
        file_system = io.fs_by_scheme(scheme, netloc)
    except ValueError as unknown:
        raise ConfigurationError(f"files under {location} cannot be listed: {unknown}") from unknown
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
