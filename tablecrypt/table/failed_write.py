"""What is left of a write that failed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tablecrypt.files.encrypting_file_io import EncryptingFileIO

logger = logging.getLogger(__name__)


def delete_written(io: EncryptingFileIO, locations: Iterable[str]) -> None:
    """Delete files that nothing names, as far as the store lets it be. One that stays holds only ciphertext."""
    for location in locations:
        try:
            io.delete_new(location)
        except Exception as error:  # noqa: BLE001  the error that made the write fail is the one to raise
            logger.warning("could not delete %s of a failed write: %s", location, type(error).__name__)


@contextmanager
def deleting_on_error(io: EncryptingFileIO, locations: Iterable[str]) -> Iterator[None]:
    """Delete files that nothing names yet when what is done meanwhile fails. They are looked up only then."""
    try:
        yield
    except BaseException:
        delete_written(io, locations)
        raise
