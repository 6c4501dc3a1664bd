"""Errors of file systems and object stores: how they differ from those about bytes, and which file they are of.

Of a file that is open already, Arrow's errors say what the store said, and not of which file: `AWS Error ACCESS_DENIED during GetObject
operation`, or `[Errno 28] Error writing bytes to file`.
"""

from __future__ import annotations

from typing import Final, NoReturn, TypeGuard

_MARKS: Final = ("AWS Error", "google::cloud", "Azure", "curlCode", "HDFS")


def is_store_error(error: BaseException) -> TypeGuard[OSError]:
    """Whether an error came from the file system or object store rather than from the bytes it gave."""
    if not isinstance(error, OSError):
        return False
    # Arrow raises OSError for bytes that do not decrypt as well, without an errno.
    return error.errno is not None or any(mark in str(error) for mark in _MARKS)


def reraise_naming(error: OSError, location: str) -> NoReturn:
    """Raise the error that is being handled again, with the file's location where it names no file."""
    name = location.rpartition("/")[2]
    # One of a class of its own, such as FileNotFoundError, says more to who catches it than a location does.
    if type(error) is not OSError or error.filename is not None or name in str(error):
        raise error

    if error.errno is None:
        raise OSError(f"{location}: {error}") from error
    raise OSError(error.errno, error.strerror, location) from error
