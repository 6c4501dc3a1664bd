"""A folder of this user that keeps compiled jars from one process to the next.

    ~/.cache/tablecrypt/                          the platform's folder (XDG_CACHE_HOME), or the one that TABLECRYPT_CACHE names: 0700
      <key>-<SHA-256 of the content>.jar          key: what it was compiled from, and by what; both in 32 hexadecimal digits

What lies here is loaded into the driver and sent to executors: a user who can write to it runs code with this user's rights. So the folder
and the file have to be this user's own, and writable for no other user. The content has to match the name, which damage does not. Where the
system does not say who owns a file, nothing is kept.

A jar gets its name in one step when it is whole, so that a killed process leaves none that counts, and of two that write at once either
may win: their bytes are the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tablecrypt._atomic_file import atomic_file
from tablecrypt.arguments import file_path
from tablecrypt.errors import ConfigurationError

VARIABLE: Final = "TABLECRYPT_CACHE"
_DIGITS: Final = 32
_MOST_FILES: Final = 16
_OURS: Final = re.compile(rf"\.?[0-9a-f]{{{_DIGITS}}}-[0-9a-f]{{{_DIGITS}}}\.jar.*")
"""Jars, and what a killed process left of one where no file can be without a name."""
_FOREIGN_WRITERS: Final = stat.S_IWGRP | stat.S_IWOTH
logger = logging.getLogger(__name__)


class _UnfitError(Exception):
    """Why a folder or file is not used."""


def jar_name(key: str, content: bytes) -> str:
    """Return the name under which a jar is kept, and shipped."""
    return f"{key}-{hashlib.sha256(content).hexdigest()[:_DIGITS]}.jar"


def jar_key(*origins: str) -> str:
    """Return the key of what jars are compiled from and by."""
    return hashlib.sha256("\n".join(origins).encode()).hexdigest()[:_DIGITS]


def is_intact(name: str, content: bytes) -> bool:
    """Return whether a jar is what its name says."""
    return name == jar_name(name.partition("-")[0], content)


def cache_folder() -> Path:
    """Return the folder, which need not exist.

    Raises:
        ConfigurationError: TABLECRYPT_CACHE names none.
    """
    from platformdirs import user_cache_path

    named = os.environ.get(VARIABLE)
    if named is None:
        return user_cache_path("tablecrypt", appauthor=False)
    # A relative folder, as a blank one is, would be another one in each working directory, perhaps one that others can write.
    if not named.strip() or not (folder := file_path(VARIABLE, named)).is_absolute():
        raise ConfigurationError(f"{VARIABLE} is {named!r}: name a folder by its whole path, or unset it")
    return folder


@dataclass(frozen=True)
class JarCache:
    """The jars in a folder. What prevents its use is logged, and is no error."""

    folder: Path

    def find(self, key: str) -> bytes | None:
        """Return the jar of a key; None where there is none that may be used."""
        try:
            with self._opened() as descriptor:
                names = sorted(name for name in os.listdir(descriptor) if name.startswith(f"{key}-") and _OURS.fullmatch(name))
                return next(filter(None, (self._read(name, descriptor) for name in names)), None)
        except FileNotFoundError:
            return None
        except (OSError, _UnfitError) as error:
            logger.info("no jar is taken from %s: %s", self.folder, error)
            return None

    def keep(self, key: str, content: bytes) -> None:
        """Store a jar, and drop the oldest ones beyond a few."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._opened() as descriptor:
                with atomic_file(self.folder / jar_name(key, content)) as file:
                    file.write(content)
                _drop_oldest(descriptor)
        except (OSError, _UnfitError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            logger.warning(
                "%s is no cache of Java classes (%s), and each process compiles them: name one in %s that this user alone can write to",
                self.folder,
                reason,
                VARIABLE,
            )

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the folder and check whose it is: what is opened below the descriptor cannot be moved elsewhere in between."""
        if not hasattr(os, "geteuid"):
            raise _UnfitError("this system does not say who owns a folder")
        if not self.folder.is_absolute():
            raise _UnfitError("this user has no home folder")

        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)

        try:
            _check_private(os.fstat(descriptor), "it")
            yield descriptor
        finally:
            os.close(descriptor)

    def _read(self, name: str, folder: int) -> bytes | None:
        """Return the content of a file of the folder if it is intact. One that is damaged is removed."""
        # O_NOFOLLOW, since a link may lead to a file that others write; O_NONBLOCK, since opening a pipe would wait for a writer.
        with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _UnfitError(f"{name} is no file")
            _check_private(status, name)
            content = file.read()

        if is_intact(name, content):
            return content

        logger.warning("%s is damaged, and is removed", self.folder / name)
        os.unlink(name, dir_fd=folder)

        return None


def _drop_oldest(folder: int) -> None:
    found = []
    for name in filter(_OURS.fullmatch, os.listdir(folder)):
        # Another process may have dropped it since.
        with contextlib.suppress(FileNotFoundError):
            found.append((os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime, name))

    for _, name in sorted(found, reverse=True)[_MOST_FILES:]:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)


def _check_private(status: os.stat_result, name: str) -> None:
    # Another user who owns the file can change it after this check, and its classes run with this user's rights.
    if status.st_uid != os.geteuid():
        raise _UnfitError(f"{name} belongs to another user")
    if status.st_mode & _FOREIGN_WRITERS:
        raise _UnfitError(f"other users can write to {name}")
