"""What the planner keeps between requests, each under a random handle that the driver's or an executor's JVM names.

    add ─▶ handle            values[handle]            pop(handle), the end that its owner asks for
     └── one too many: the value that was used longest ago is given up

A value that is given up is ended: a write or a staged table deletes its files, a read stops. It must not be dropped without a word, since
files would stay and rows end early. So its handle is remembered, and a later request for it gets an error that says so. Files that
tasks put there in the meantime go when the owner asks for the end, which it does after the last of its tasks.

Tables and plans hold nothing outside of memory, and no owner says when it needs them no longer: the oldest go all the time. Of these only
the handle is remembered, and no warning is logged.

The newest is not refused in place of the oldest: what crashed queries left open would soon refuse everybody.
"""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Final, Generic, TypeVar

from tablecrypt.errors import ConfigurationError

T = TypeVar("T")
_HANDLE_LENGTH: Final = 16
_REMEMBERED: Final = 1_000
"""How many values are remembered that were given up."""
_FORGOTTEN: Final = "the planner was restarted, or no longer has the plan of this query: run the query again"
logger = logging.getLogger(__name__)


class Handles(Generic[T]):
    """Values that later requests refer to, at most `most` of them.

    Args:
        what: they are, for errors.
        most: how many are kept.
        end: frees what a value holds outside of this object; may be called again. None where it holds nothing there.
        lost: what became of a value that was given up, for errors.
    """

    def __init__(self, what: str, most: int, end: Callable[[T], None] | None = None, lost: str = "nothing was changed") -> None:
        self._what = what
        self._most = most
        self._end = end
        self._lost = lost
        self._values: OrderedDict[str, T] = OrderedDict()
        self._given_up: OrderedDict[str, T | None] = OrderedDict()
        self._lock = Lock()

    def add(self, value: T) -> str:
        """Keep a value and return its handle. Where that is one too many, the value that was used longest ago is given up."""
        # Random and not counted: a handle from before the planner's restart must not name a newer value.
        handle = secrets.token_hex(_HANDLE_LENGTH)
        with self._lock:
            self._values[handle] = value
            given_up = dict(self._values.popitem(last=False) for _ in range(len(self._values) - self._most))
            self._given_up.update(given_up if self._end is not None else dict.fromkeys(given_up))
            while len(self._given_up) > _REMEMBERED:
                self._given_up.popitem(last=False)

        # Outside of the lock: ending deletes files, while other requests look handles up.
        for each in given_up.values() if self._end is not None else ():
            logger.warning("%s", self._loss)
            self._ended(each)
        return handle

    def __getitem__(self, handle: str) -> T:
        """Return the value. ConfigurationError where it is not kept any more."""
        with self._lock:
            if handle in self._values:
                self._values.move_to_end(handle)
                return self._values[handle]
            raise ConfigurationError(self._loss if handle in self._given_up else _FORGOTTEN)

    def pop(self, handle: str) -> T:
        """Return the value and keep it no longer. ConfigurationError where it is not kept any more.

        A value that was given up is ended again: what its tasks left since then goes too.
        """
        with self._lock:
            if handle in self._values:
                return self._values.pop(handle)
            if handle not in self._given_up:
                raise ConfigurationError(_FORGOTTEN)
            value = self._given_up[handle]

        self._ended(value)
        raise ConfigurationError(self._loss)

    def end_all(self) -> None:
        """End all values, also those that were given up, and keep none of them."""
        with self._lock:
            values = [*self._given_up.values(), *self._values.values()]
            self._given_up.clear()
            self._values.clear()
        for value in values:
            self._ended(value)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def _loss(self) -> str:
        return (
            f"the planner gave up this {self._what}, because {self._most:,} newer ones are open: {self._lost}. Run the statement again, "
            "with fewer at the same time"
        )

    def _ended(self, value: T | None) -> None:
        if value is None or self._end is None:
            return

        try:
            self._end(value)
        except Exception as error:  # noqa: BLE001  whoever asks here is not the value's owner, and has to go on
            logger.warning("a %s was not ended as a whole: %s", self._what, type(error).__name__)
