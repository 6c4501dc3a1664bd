"""A small file that changes whole or not at all, and by one process at a time.

The next content is written to <path>.new, created with O_EXCL and mode 0600, flushed to the disk and renamed over <path>; then the folder
is flushed too, without which a power cut could bring the old content back. The name is also the lock: of two processes that change the file
at once, one is refused.

Raises: ConfigurationError when the file is being changed by another, or cannot be written.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tablecrypt.errors import ConfigurationError


@contextmanager
def replacing(path: Path, what: str) -> Iterator[Callable[[bytes], object]]:
    """Hold <path>.new; what is written through the yielded function replaces the file on leaving, an error leaves it as it was.

    Args:
        path: the file; it need not be there yet.
        what: what messages call it, such as "key file".
    """
    beside = path.with_name(path.name + ".new")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IRUSR | stat.S_IWUSR)
    except FileExistsError as error:
        raise ConfigurationError(f"{beside} is there: another process is changing the {what}; if none is, remove it") from error
    except OSError as error:
        raise ConfigurationError(f"the {what} {path} cannot be written ({error.strerror})") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file.write
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        _flush_folder(path.absolute().parent)
    finally:
        beside.unlink(missing_ok=True)


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
