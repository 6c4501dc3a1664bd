"""Names of files that may be made up: metadata.json has them, and any writer of the storage can edit it.

A store says of such a name what its client library raises, of any kind: that a path holds a NUL, that a scheme is not known, that there is
a folder and no file. Here that becomes one error that names the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tablecrypt.errors import FormatError, TablecryptError
from tablecrypt.files.deletion import DeletionScope


@contextmanager
def refusing_made_up(location: str, own_folders: DeletionScope) -> Iterator[None]:
    """Turn what a store raises for a name that is none of a table's files into FormatError.

    Args:
        location: what the block reads.
        own_folders: of the table. What the store says of a file there stays as it is: it may be that the store cannot be reached.

    Raises:
        FormatError: the file lies elsewhere, or is not named as a table's file, and cannot be read.
        FileNotFoundError, PermissionError: as the store says.
    """
    try:
        yield
    # These already say what is wrong, and callers tell a missing file from a denied one.
    except (TablecryptError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:
        # Whoever chose the name chose the store, the library that reads it, and so the kind of error.
        reason = own_folders.reason_against(location)
        if reason is None:
            raise
        raise FormatError(f"{location}: cannot be read ({type(error).__name__}), and as a file of the table it {reason}") from error
