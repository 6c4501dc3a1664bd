"""Files of a write that failed: deleted as far as the store lets it be. What stays is ciphertext that no metadata names."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pyiceberg.io import FileIO

logger = logging.getLogger(__name__)


def delete_abandoned(io: FileIO, locations: Iterable[str]) -> None:
    """Delete files, and log those that cannot be deleted: the error that made the write fail is the one to raise."""
    for location in locations:
        try:
            io.delete(location)
        except Exception as error:  # noqa: BLE001  every store has errors of its own
            logger.warning("could not delete %s of a failed write: %s", location, type(error).__name__)


@contextmanager
def deleting_on_error(io: FileIO, locations: Iterable[str]) -> Iterator[None]:
    """Delete files that nothing names yet when what is done meanwhile fails. They are looked up only then."""
    try:
        yield
    except BaseException:
        delete_abandoned(io, locations)
        raise
