"""The result of a check-up: each thing that was tried, its outcome and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from tablecrypt.printable import AsJson, one_line


class CheckState(Enum):
    """The outcome of a check."""

    WORKS = "works"
    NOTED = "noted"
    """Not wrong, and worth knowing."""
    UNTRIED = "untried"
    """Not tried, so that nothing is known."""
    FAILS = "fails"


@dataclass(frozen=True)
class Check:
    """One thing that was tried.

    Attributes:
        area: configuration, keys, table, storage, pins or versions.
        name: what was tried.
        state: the outcome.
        found: what was seen, or what the service, the store or the catalog said. Never a key.
        advice: what to do about it; empty where nothing needs doing.
    """

    area: str
    name: str
    state: CheckState
    found: str
    advice: str = ""


@dataclass(frozen=True)
class CheckUp(AsJson):
    """The results of all checks.

    Attributes:
        catalog: the catalog's name.
        table: the table that was tried; None where none was named.
        read_only: whether nothing was written and nothing wrapped.
        refuses_plaintext: whether the catalog neither makes nor opens a plain table; None where it could not be loaded.
        checks: in the order in which they were made.
    """

    also_says: ClassVar = {"well": "is_well"}
    catalog: str
    table: str | None
    read_only: bool
    refuses_plaintext: bool | None
    checks: tuple[Check, ...]

    @property
    def is_well(self) -> bool:
        """Whether nothing fails."""
        return all(check.state != CheckState.FAILS for check in self.checks)

    @property
    def untried(self) -> tuple[Check, ...]:
        """What was not tried: of it nothing is known, whatever `is_well` says."""
        return tuple(check for check in self.checks if check.state == CheckState.UNTRIED)


def tried(area: str, name: str, attempt: Callable[[], str], advice: str) -> Check:
    """Make one attempt.

    Args:
        area, name: as in `Check`.
        attempt: says what it found, or raises.
        advice: what to do when it raises.
    """
    try:
        return Check(area, name, CheckState.WORKS, attempt())
    except Exception as error:  # noqa: BLE001  what a catalog, a store or a service raises is what a check-up is to tell
        return failed(area, name, error, advice)


def failed(area: str, name: str, error: Exception, advice: str) -> Check:
    """Return the check of an attempt that raised."""
    # On one line: the text of a service could otherwise look like further checks.
    said = one_line(error)
    return Check(area, name, CheckState.FAILS, f"{type(error).__name__}: {said}", advice)
