"""What an operation tells its caller: how far it is, from the thread that called it, and at the end what it did."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from tablecrypt.printable import json_fields


@dataclass(frozen=True)
class OperationResult:
    """What every operation's result says.

    For people a result has a method `summary`, one sentence. Fields that have `printable.shown` follow it as details.

    Attributes:
        table: the table's name.
        dry_run: whether the operation only looked: then the rest says what it would have done.
        also_says: properties that follow from the fields and stand beside them in JSON and SQL, by their names there.
    """

    table: str
    dry_run: bool
    also_says: ClassVar[Mapping[str, str]] = {}

    def _did(self, done: str, planned: str) -> str:
        """Return the words for what was done, or for what a dry run says would be."""
        return planned if self.dry_run else done

    def to_json(self) -> dict[str, Any]:
        """Return all fields, and what the result `also_says`, as JSON's types."""
        return json_fields(self)


T = TypeVar("T")

Unit = Literal["files", "bytes", "keys", "snapshots"]


@dataclass(frozen=True)
class Progress:
    """How far an operation has come.

    Attributes:
        operation: name of the operation and, where it has several, of its phase: "verify", "migrate: files".
        done: how much is done, in `unit`. Only grows within a phase.
        total: how much there is, in `unit`.
    """

    operation: str
    done: int
    total: int
    unit: Unit


ProgressListener = Callable[[Progress], None]
"""A function that is called with each step. What it raises stops the operation, as a kill does."""


class Counted:
    """Tells a listener of a phase's steps, one by one.

    A phase that starts again because others committed meanwhile is reported again only after it passes its earlier mark.

    Args:
        operation, unit: as in `Progress`.
        listener: is called with each step.
    """

    def __init__(self, operation: str, unit: Unit, listener: ProgressListener) -> None:
        self._operation = operation
        self._unit: Unit = unit
        self._listener = listener
        self._furthest = -1

    def track(self, items: Collection[T]) -> Iterator[T]:
        """Yield each item; it counts as done when the next one is asked for."""
        self._tell(0, len(items))
        for done, item in enumerate(items, start=1):
            yield item
            self._tell(done, len(items))

    def _tell(self, done: int, total: int) -> None:
        if done > self._furthest:
            self._furthest = done
            self._listener(Progress(self._operation, done, total, self._unit))


def no_progress(progress: Progress) -> None:
    """Ignore progress."""
