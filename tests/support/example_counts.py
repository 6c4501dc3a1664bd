"""The profiles of Hypothesis, one of which `pytest --hypothesis-profile=NAME` chooses, and how a test's own number of examples follows it.

    tests      the same examples in every run, as many as each test says (100 unless it does)
    quick      of the same examples a fifth, but 5 at least and 20 at most: for the first tier
    nightly    other examples in every run, and twenty times as many; what fails is kept in a database of examples, tried first next time

A profile alone reaches only tests that leave `max_examples` to it. About half of ours say their own, so that `settings` is wrapped where
it decorates a test: also one inside another test, or of a state machine.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

ROOT: Final = Path(__file__).parents[2]
DATABASE: Final = ROOT / "build" / "nightly" / "examples"
USUAL: Final = "tests"
_UNSAID: Final = 100
"""The examples of a test that says no number, as in Hypothesis itself."""


def quick_count(examples: int) -> int:
    """How many of its own examples a test runs in the profile `quick`."""
    return min(examples, max(5, min(20, examples // 5)))


def nightly_count(examples: int) -> int:
    """How many examples a test with this number of its own runs in the profile `nightly`."""
    return examples * 20


_COUNTS: Final[dict[str, Callable[[int], int]]] = {"quick": quick_count, "nightly": nightly_count}


def register_profiles(database: Path = DATABASE) -> None:
    """Make the profiles known, and load that of every day. No deadline, which a busy machine could miss."""
    settings.register_profile(USUAL, max_examples=_UNSAID, derandomize=True, deadline=None)
    settings.register_profile("quick", settings.get_profile(USUAL), max_examples=quick_count(_UNSAID))
    settings.register_profile(
        "nightly",
        max_examples=nightly_count(_UNSAID),
        derandomize=False,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
        database=DirectoryBasedExampleDatabase(database),
    )
    settings.load_profile(USUAL)
    _count_by_profile()


def counted(own: settings) -> settings:
    """The settings of a test in the profile that is loaded."""
    profile = settings.get_current_profile_name()
    if profile not in _COUNTS:
        return own
    usual = settings.get_profile(profile)
    said = own.max_examples != usual.max_examples
    return settings(
        own,
        max_examples=_COUNTS[profile](own.max_examples) if said else own.max_examples,
        suppress_health_check={*own.suppress_health_check, *usual.suppress_health_check},
    )


def _count_by_profile() -> None:
    """Wrap `settings(...)` as a decorator, once. A state machine's class keeps its own: its test is decorated when it runs."""
    decorate = settings.__call__
    if hasattr(decorate, "__wrapped__"):
        return

    @functools.wraps(decorate)
    def counting(own: settings, test: Any) -> Any:
        return decorate(own if isinstance(test, type) else counted(own), test)

    setattr(settings, "__call__", counting)  # noqa: B010 (mypy refuses the assignment of a method)
