"""A streaming query's own Python process gets ten seconds from Spark to start, and no setting changes that: on a busy machine too few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

_TOO_SLOW: Final = "Timed out while waiting for the Python worker to connect back"
_TRIES: Final = 30


def patiently(start: Callable[[], T]) -> T:
    """Do it again while it fails for that reason alone."""
    for _ in range(_TRIES):
        try:
            return start()
        except Exception as error:
            if _TOO_SLOW not in str(error):
                raise
    return start()
