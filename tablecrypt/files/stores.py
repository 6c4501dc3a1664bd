"""The store of a location that a user or a catalog names: what cannot be one is refused before a library is asked; and its files.

    s3://bucket/x, gs://…, file:///x, /x      a FileIO of PyIceberg's, or the class that py-io-impl names
    foo://x                                   no FileIO knows it: ConfigurationError
    s3://, s3:///x                            no bucket: ConfigurationError
    gs://… without credentials                Google's library would ask for them for minutes: ConfigurationError
    abfss://… without adls.account-name       Arrow's FileIO needs it, where a table has that already: ConfigurationError

What a file of that location holds, and whether it is there, its reader finds out.

PyIceberg's FileIO has no call for listing, so files are listed through the file systems that it uses itself:

    PyArrowFileIO    local, S3, GCS, HDFS, Azure    pyarrow's FileSystem
    FsspecFileIO     local, S3, GCS, Azure          fsspec's
    another          ConfigurationError

What the store raises is passed on.
"""

from __future__ import annotations

import datetime as dt
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pyiceberg.io import ADLS_ACCOUNT_NAME, PY_IO_IMPL, SCHEMA_TO_FILE_IO, FileIO, load_file_io

from tablecrypt.arguments import check_text
from tablecrypt.errors import ConfigurationError
from tablecrypt.printable import bytes_shown
from tablecrypt.properties import GCS_OAUTH2_TOKEN

if TYPE_CHECKING:
    from pyiceberg.io.fsspec import FsspecFileIO
    from pyiceberg.io.pyarrow import PyArrowFileIO

_GOOGLE: Final = ("gs", "gcs")
_AZURE: Final = ("abfs", "abfss", "wasb", "wasbs")
_SCHEMES: Final = frozenset({*SCHEMA_TO_FILE_IO, *_GOOGLE})
_WITHOUT_BUCKETS: Final = frozenset({"file", "hdfs", "viewfs"})
_GCS_HOST: Final = "gcs.service.host"
_LOGIN: Final = Path("gcloud", "application_default_credentials.json")
_METADATA_SERVER: Final = "metadata.google.internal"
_ANSWERS_WITHIN_SECONDS: Final = 3
_MODIFIED: Final = ("LastModified", "last_modified", "mtime", "updated")


def file_io_for(properties: Mapping[str, Any], location: str) -> FileIO:
    """Return the FileIO of a location.

    Args:
        properties: the client's own.
        location: of a file.

    Raises:
        ConfigurationError: as `check_location`.
    """
    check_location(properties, location)
    return load_file_io(dict(properties), location)


def check_location(properties: Mapping[str, Any], location: str) -> None:
    """Refuse a location of which no file can be read.

    Args:
        properties: of its FileIO.
        location: of a file.

    Raises:
        ConfigurationError: it holds a NUL or what UTF-8 cannot, has a scheme that no FileIO knows or no bucket, or is Google's and there
            are no credentials.
    """
    check_text("a location", location)
    if "\0" in location:
        raise ConfigurationError(f"{location!r} holds a NUL, which no location can have")
    try:
        scheme, authority = urlsplit(location)[:2]
    except ValueError:
        raise ConfigurationError(f"{location!r} cannot be read as a location: write a path, or a URI without brackets") from None
    # A class of the user's own may know other schemes, and finds credentials elsewhere.
    if not scheme or properties.get(PY_IO_IMPL):
        return

    if scheme not in _SCHEMES:
        known = ", ".join(sorted(_SCHEMES))
        raise ConfigurationError(f"{location}: no FileIO knows the scheme {scheme!r}: write a path, or one of {known}")
    if scheme not in _WITHOUT_BUCKETS and not authority:
        raise ConfigurationError(f"{location} names no bucket: write {scheme}://bucket/path")

    is_configured = bool(properties.get(GCS_OAUTH2_TOKEN.name) or properties.get(_GCS_HOST))
    if scheme in _GOOGLE and not (is_configured or _has_google_credentials()):
        raise ConfigurationError(
            f"{location}: there are no credentials for Google Cloud Storage: set GOOGLE_APPLICATION_CREDENTIALS or "
            f"{GCS_OAUTH2_TOKEN.name}, or run gcloud auth application-default login"
        )


def check_reached(io: FileIO, location: str) -> None:
    """Refuse a location that a FileIO, which was made for others, does not reach.

    Args:
        io: the store's own.
        location: of a file.

    Raises:
        ConfigurationError: as `check_location`; or Arrow has to open Azure's storage, and does not know the account.
    """
    check_location(io.properties, location)
    # Arrow takes the account from the properties alone, and not from the location.
    if urlsplit(location).scheme in _AZURE and _is_arrows(io) and not io.properties.get(ADLS_ACCOUNT_NAME):
        raise ConfigurationError(f"{location}: the account of Azure's storage is not known: set {ADLS_ACCOUNT_NAME}")


def _is_arrows(io: FileIO) -> bool:
    # By its name: the import of Arrow's FileIO takes longer than all that most commands do.
    return any(each.__name__ == "PyArrowFileIO" for each in type(io).__mro__)


def _has_google_credentials() -> bool:
    """Whether Application Default Credentials may be found, where Google's library looks for them."""
    if any(os.environ.get(name) for name in ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUD_STORAGE_EMULATOR_ENDPOINT")):
        return True
    home = Path(os.environ.get("HOME") or "/")
    return (home / ".config" / _LOGIN).is_file() or _answers(os.environ.get("GCE_METADATA_ROOT") or _METADATA_SERVER)


@cache
def _answers(host: str) -> bool:
    """Whether the server that gives a machine of Google's its credentials is there; asked once in a process."""
    name, _, port = host.partition(":")
    try:
        with socket.create_connection((name, int(port or 80)), _ANSWERS_WITHIN_SECONDS):
            return True
    except (OSError, ValueError):
        return False


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
