"""Errors of storage, the network and the catalog, in one line that says which server or database is meant and what to do."""

from __future__ import annotations

import os
from traceback import walk_tb
from typing import Final
from urllib.parse import urlsplit

_OF_CATALOGS: Final = ("pyiceberg", "sqlalchemy", "botocore", "hive_metastore", "thrift", "strictyaml")
"""Packages whose errors are a catalog's, its database's, its server's or its configuration's."""
_AZURE: Final = "azure"
_OF_STORES: Final = (_AZURE, "google", "gcsfs", "aiohttp")
"""Packages whose errors are a store's."""
_OF_SQLITE: Final = {
    "database is locked": "another process writes to it: try again",
    "disk is full": "free some space, and try again",
    "readonly database": "it cannot be written to: check the rights of its file and folder",
    "is malformed": "its file is damaged: restore it from a copy",
    "is not a database": "its file is damaged or another: check the catalog's uri, or restore it from a copy",
}
"""What to do, by what SQLite says."""
_NO_THREAD: Final = "can't start new thread"
_CONFIGURATION: Final = "pyiceberg.utils.config"


def is_external(error: Exception) -> bool:
    """Whether an error is one of storage, the network, the catalog or the machine rather than of this program."""
    return (
        isinstance(error, OSError | MemoryError)
        or _NO_THREAD in str(error)
        or _package(error) in {*_OF_CATALOGS, *_OF_STORES}
        or _is_of_configuration(error)
    )


def said_of(error: Exception) -> str:
    """Return what to say of an error of storage, the network or the catalog: which server or database it is of, where that is known."""
    url = getattr(getattr(error, "request", None), "url", None)
    if isinstance(error, ConnectionError | OSError) and isinstance(url, str):
        address = urlsplit(url)
        return (
            f"the server at {address.scheme}://{address.hostname}:{address.port or address.scheme} cannot be reached "
            f"({_root(error)}): check that it runs, and the catalog's uri"
        )

    if isinstance(error, MemoryError) or _NO_THREAD in str(error):
        what = "has no memory left" if isinstance(error, MemoryError) else "may start no more threads"
        return f"the process {what}: raise its limits (ulimit -v, ulimit -u), or give --workers 1 where a command has it"
    if _is_of_configuration(error):
        return ".pyiceberg.yaml is empty, or no YAML in UTF-8 that lists properties: write them below catalog: and the catalog's name"

    driver = getattr(error, "orig", None)
    if isinstance(driver, Exception):
        advice = next((advice for mark, advice in _OF_SQLITE.items() if mark in str(driver)), "check the catalog's uri")
        return f"the catalog's database refused ({type(driver).__name__}: {driver}): {advice}"
    if (mark := getattr(error, "problem_mark", None)) is not None:  # the rest of its text shows the line, which may be a password
        return f".pyiceberg.yaml is not YAML that PyIceberg reads: line {mark.line + 1}: {getattr(error, 'problem', None)}"
    if type(error).__name__ == "TTransportException":
        return f"the Hive metastore cannot be reached ({error}): check that it runs, and the catalog's uri"
    if isinstance(error, FileNotFoundError) and error.filename is None and _is_nowhere():  # where PyIceberg looks for its configuration
        return "the working directory was deleted: change to another one (cd)"
    if type(error) is OSError and error.strerror:  # the system's own, such as a full disk
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}"
    if _package(error) == _AZURE:  # it goes on for many lines on each way to log in
        advice = ": log in with az login, or set adls.* properties" if type(error).__name__ == "ClientAuthenticationError" else ""
        return f"Azure's storage refused ({next(iter(str(error).splitlines()), '').rstrip('.')}){advice}"

    return f"{type(error).__name__}: {error}"


def _is_nowhere() -> bool:
    """Whether the working directory is gone."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _is_of_configuration(error: Exception) -> bool:
    """Whether PyIceberg met its configuration file with what that holds. It reads it when it is imported, and has no error of its own."""
    frames = walk_tb(error.__traceback__) if isinstance(error, AttributeError | UnicodeDecodeError) else ()
    return any(frame.f_globals.get("__name__") == _CONFIGURATION for frame, _ in frames)


def _package(error: Exception) -> str:
    return type(error).__module__.partition(".")[0]


def _root(error: BaseException) -> str:
    """Return the reason at the end of a chain of errors, in a few words."""
    seen = error
    while (earlier := seen.__cause__ or seen.__context__) is not None:
        seen = earlier
    return getattr(seen, "strerror", None) or type(seen).__name__
