"""What was tried, what came of it, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any


class CheckState(Enum):
    """What came of a check."""

    WORKS = "works"
    NOTED = "noted"
    """Not tried, or not wrong: worth knowing."""
    FAILS = "fails"


@dataclass(frozen=True)
class Check:
    """One thing that was tried.

    Attributes:
        area: configuration, keys, table, storage, pins or versions.
        name: what was tried.
        state: what came of it.
        found: what was seen, or what the service, the store or the catalog said. Never a key.
        advice: what to do about it; empty where nothing needs doing.
    """

    area: str
    name: str
    state: CheckState
    found: str
    advice: str = ""


@dataclass(frozen=True)
class CheckUp:
    """All that was tried.

    Attributes:
        catalog: the catalog's name.
        table: the table that was tried; None where none was named.
        read_only: whether nothing was written and nothing wrapped.
        checks: in the order in which they were made.
    """

    catalog: str
    table: str | None
    read_only: bool
    checks: tuple[Check, ...]

    @property
    def is_well(self) -> bool:
        """Whether nothing fails."""
        return all(check.state != CheckState.FAILS for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON's types."""
        checks = [
            {"area": each.area, "name": each.name, "state": each.state.value, "found": each.found, "advice": each.advice}
            for each in self.checks
        ]
        return {"catalog": self.catalog, "table": self.table, "read_only": self.read_only, "well": self.is_well, "checks": checks}


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
    said = " ".join(str(error).split())
    return Check(area, name, CheckState.FAILS, f"{type(error).__name__}: {said}", advice)
