"""How far a long verb is: what it tells whoever listens, from the thread that called it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

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


def unheard(progress: Progress) -> None:
    """Listen to nothing."""
