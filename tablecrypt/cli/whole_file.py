"""Writing a file that is there whole or not at all, and readable by its owner alone.

It has no name until it is whole, so that nothing is left of it when the process is killed (Linux, on file systems that know O_TMPFILE).
Elsewhere it has a hidden name until then, and a killed process leaves what it had written, which its owner alone can read.
"""

from __future__ import annotations

import errno
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from tablecrypt.errors import ConfigurationError

_MODE: Final = 0o600
_DESCRIPTORS: Final = "/proc/self/fd"


def check_target(source: Path, target: Path) -> None:
    """Refuse a target that is no file of its own.

    Raises:
        ConfigurationError: it is -, the source itself, or in a folder that is not there.
    """
    if str(target) == "-":
        raise ConfigurationError("- is no file: name one, since the key of an encrypted file is kept beside it")
    if not target.absolute().parent.is_dir():
        raise ConfigurationError(f"{target}: there is no folder {target.parent}")
    if target.exists() and target.samefile(source):
        raise ConfigurationError(f"{target} is the source, which stays as it is: name another file")


@contextmanager
def stdout_sink() -> Iterator[BinaryIO]:
    """Yield stdout for the bytes of a file.

    Raises:
        ConfigurationError: it is a terminal, which would obey what is in the file.
    """
    if sys.stdout.isatty():
        raise ConfigurationError("stdout is a terminal: send it to a file or a program")
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


@contextmanager
def whole_file(path: Path, replace: bool) -> Iterator[BinaryIO]:
    """Yield an open file that gets its name when the block ends without an error, and is gone when it does not.

    Args:
        path: the file's name in the end.
        replace: whether a file of that name may be there already.

    Raises:
        ConfigurationError: it is there.
    """
    if path.exists() and not replace:
        raise ConfigurationError(f"{path} is there already: name another file, or say --force")
    unnamed = _unnamed(path.absolute().parent)
    if unnamed is not None:
        try:
            # Who writes may close the file; it is there for as long as one descriptor is open.
            with os.fdopen(os.dup(unnamed), "wb") as file:
                yield file
            _give_name(unnamed, path, replace)
        finally:
            os.close(unnamed)
        return
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "wb") as file:
            yield file
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _unnamed(folder: Path) -> int | None:
    """Open a file without a name in a folder; None where the system or the file system has none."""
    if not hasattr(os, "O_TMPFILE") or not Path(_DESCRIPTORS).is_dir():
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY, _MODE)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
            return None
        raise


def _give_name(descriptor: int, path: Path, replace: bool) -> None:
    """Name a whole file. A link cannot replace one, so that a new name takes the old one's place."""
    try:
        _link(descriptor, path)
    except FileExistsError:
        if not replace:
            raise ConfigurationError(f"{path} is there already: name another file, or say --force") from None
        beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        _link(descriptor, beside)
        try:
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


def _link(descriptor: int, path: Path) -> None:
    # Python follows the link to the file only where a folder's descriptor is given too; the path is a whole one, and makes no use of it.
    os.link(f"{_DESCRIPTORS}/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)
