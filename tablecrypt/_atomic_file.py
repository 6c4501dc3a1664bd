"""A file that is there whole or not at all: the one place where a file of this machine gets new content.

    unnamed           the content goes to a file without a name (Linux, file systems that know O_TMPFILE): a killed process leaves nothing
    hidden            elsewhere to .<name>.<random> beside it: a killed process leaves that
    exclusive         to <name>.new beside it, a name that only one process can hold: of two that change the file at once, one is refused

When the block ends without an error the file gets its name, in one step. `durable` flushes the content to the disk before that and the
folder after it: without the second, a power cut could bring the old content back.

`named_file` is for a path that somebody has named, who may mean a link, a pipe or a device.

What the system raises passes through, with the file's name where the disk is full; FileExistsError names the file that was there.
`check_folder_of` says beforehand, and what to do.
"""

from __future__ import annotations

import errno
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, Literal

from tablecrypt.errors import ConfigurationError

Place = Literal["unnamed", "hidden", "exclusive"]
_PRIVATE: Final = 0o600
_SHARED: Final = 0o666
_DESCRIPTORS: Final = "/proc/self/fd"
_NO_ROOM: Final = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
_NO_UNNAMED_FILES: Final = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)


def check_folder_of(path: Path) -> None:
    """Refuse a path in whose folder no file can be written. ConfigurationError: it is missing, or cannot be written to."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise ConfigurationError(f"{path}: there is no folder {folder}")

    # By trying: permission bits say nothing of a read-only or full file system.
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ConfigurationError(f"{path}: no file can be written in {folder} ({error.strerror}): name a file in another folder") from error


@contextmanager
def atomic_file(
    path: Path, *, replace: bool = True, durable: bool = False, private: bool = True, until_named: Place = "unnamed"
) -> Iterator[BinaryIO]:
    """Yield an open file that becomes `path` when the block ends without an error, and is gone when it ends with one.

    Args:
        path: the file's name in the end.
        replace: whether a file of that name may be there already; if not, it is a FileExistsError.
        durable: flush file and folder to the disk.
        private: readable by its owner alone, whatever the process's umask; else by whomever the umask lets.
        until_named: where the content is before that, as drawn above. "unnamed" is "hidden" where the system has no files without a name;
            "exclusive" refuses with FileExistsError while another process changes the file in this way.
    """
    # As of an empty variable: Path("") is the current folder.
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    # Found out before the content is made, of a link that leads nowhere too. _give_name checks again, for a file that comes meanwhile.
    if not replace and os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))

    mode = _PRIVATE if private else _SHARED
    folder = path.absolute().parent
    unnamed = _open_unnamed(folder, mode) if until_named == "unnamed" else None

    try:
        if unnamed is not None:
            with _unnamed(unnamed, path, replace, durable) as file:
                yield file
        else:
            beside = path.with_name(f"{path.name}.new") if until_named == "exclusive" else _hidden(path)
            with _named(beside, path, replace, mode, durable) as file:
                yield file

        if durable:
            _flush(folder)
    except OSError as error:
        # The system knows a descriptor alone. Only these are certain to be about what is written.
        if error.errno in _NO_ROOM and error.filename is None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


@contextmanager
def named_file(
    path: Path, *, replace: bool = True, durable: bool = False, private: bool = True, until_named: Place = "unnamed"
) -> Iterator[BinaryIO]:
    """As `atomic_file`, where a link stays and leads to the new content, and a pipe or a device takes it as it comes.

    Not for a folder in which others may have put a link.
    """
    if replace and path.exists() and not (path.is_file() or path.is_dir()):
        with path.open("wb") as file:
            yield file
        return

    # Path("") leads to the current folder, which `atomic_file` refuses by that name alone.
    at = Path(os.path.realpath(path)) if replace and path.name else path
    with atomic_file(at, replace=replace, durable=durable, private=private, until_named=until_named) as file:
        yield file


@contextmanager
def _unnamed(descriptor: int, path: Path, replace: bool, durable: bool) -> Iterator[BinaryIO]:
    try:
        # It exists for as long as one descriptor is open.
        with _written(descriptor, durable) as file:
            yield file
        _give_name(descriptor, path, replace)
    finally:
        os.close(descriptor)


@contextmanager
def _written(descriptor: int, durable: bool) -> Iterator[BinaryIO]:
    """Yield a file, which the writer may close, for the content of one that is open."""
    with os.fdopen(os.dup(descriptor), "wb") as file:
        yield file
    # The content first, then the name: after a power cut the name must not lead to an empty file.
    if durable:
        os.fsync(descriptor)


@contextmanager
def _named(beside: Path, path: Path, replace: bool, mode: int, durable: bool) -> Iterator[BinaryIO]:
    # O_EXCL follows no link that lies there already, and the mode is set before the first byte: no moment to read a key file.
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileNotFoundError as error:
        # Whoever named the file knows no name beside it.
        raise FileNotFoundError(error.errno, error.strerror, str(path)) from None
    try:
        try:
            with _written(descriptor, durable) as file:
                yield file
        finally:
            os.close(descriptor)

        _move(beside, path, replace)
    # Only now: once the file has its name, what is here is the next writer's.
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _move(beside: Path, path: Path, replace: bool) -> None:
    # A move takes the place of whatever came meanwhile, so the name is made first, for a moment of an empty file. Not every file system
    # without unnamed files has links.
    if not replace:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE))
    beside.replace(path)


def _open_unnamed(folder: Path, mode: int) -> int | None:
    """Open a file without a name in a folder; None where the system or the file system has none."""
    if not hasattr(os, "O_TMPFILE") or not Path(_DESCRIPTORS).is_dir():
        return None

    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY, mode)
    except OSError as error:
        # File systems without O_TMPFILE say so in several ways. Any other error is the caller's.
        if error.errno in _NO_UNNAMED_FILES:
            return None
        raise


def _give_name(descriptor: int, path: Path, replace: bool) -> None:
    """Name a whole file. A link cannot replace one, so that a hidden name takes the old one's place."""
    try:
        _link(descriptor, path)
    except FileExistsError:
        if not replace:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None

        beside = _hidden(path)
        _link(descriptor, beside)
        try:
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


def _hidden(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}")


def _link(descriptor: int, path: Path) -> None:
    # Python follows the link to the file only where a folder's descriptor is given too; the path is a whole one, and makes no use of it.
    os.link(f"{_DESCRIPTORS}/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
