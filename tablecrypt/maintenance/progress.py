"""What an operation tells its caller: how far it is, from the thread that called it, and at the end what it did."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from tablecrypt.printable import json_fields


@dataclass(frozen=True)
class VerbResult:
    """What every verb's result says.

    Attributes:
        table: the table's name.
        dry_run: whether the verb only looked: then the rest says what it would have done.
    """

    table: str
    dry_run: bool

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON's types."""
        return json_fields(self)


T = TypeVar("T")

Unit = Literal["files", "bytes", "keys", "snapshots"]


@dataclass(frozen=True)
class Progress:
    """A step of a verb that is done.

    Attributes:
        verb: name of the verb and, where it has several, of its phase: "verify", "migrate: files".
        done: how much is done, in `unit`. Only grows within a phase.
        total: how much there is, in `unit`.
    """

    verb: str
    done: int
    total: int
    unit: Unit


ProgressListener = Callable[[Progress], None]
"""Is called with each step. What it raises stops the verb, as a kill does."""


class Counted:
    """Tells a listener of a phase's steps, one by one.

    A phase that is gone through again, since others committed meanwhile, is told of where it comes further than before.

    Args:
        verb, unit: as in `Progress`.
        listener: hears of the steps.
    """

    def __init__(self, verb: str, unit: Unit, listener: ProgressListener) -> None:
        self._verb = verb
        self._unit: Unit = unit
        self._listener = listener
        self._furthest = -1

    def over(self, items: Collection[T]) -> Iterator[T]:
        """Yield each item; it counts as done when the next one is asked for."""
        self._tell(0, len(items))
        for done, item in enumerate(items, start=1):
            yield item
            self._tell(done, len(items))

    def _tell(self, done: int, total: int) -> None:
        if done > self._furthest:
            self._furthest = done
            self._listener(Progress(self._verb, done, total, self._unit))


def unheard(progress: Progress) -> None:
    """Listen to nothing."""
