"""A pytest plugin: `--tier first` is what `make test` runs, `--tier rest` and `--tier all-examples` what `make test-all` adds.

    first          tests without marks, under Hypothesis's profile `quick`, and those with the mark `first`, which share one Spark session
    rest           tests marked slow, java or browser
    all-examples   once more, with all their examples, those that `quick` shortened

None of them runs those marked campaign, nightly, releases, services or trino, which have targets of their own. A test belongs to the first
tier by its time: who writes one that takes more than a few seconds marks it slow, and `make test-slowest` shows where a mark is missing, or
not earned any more.
"""

from __future__ import annotations

from typing import Final

import pytest

FIRST: Final = "first"
REST: Final = "rest"
ALL_EXAMPLES: Final = "all-examples"
"""Not `examples`: pytest would take the folder of that name for what it is to run, and load no conftest of tests/."""
LATER_MARKS: Final = ("browser", "java", "slow")
"""Tests with one of these wait for `make test-all`, but for those marked `first`."""
OWN_TARGETS: Final = ("campaign", "nightly", "releases", "services", "trino")


def is_in_first_tier(item: pytest.Item) -> bool:
    """Whether `make test` runs this test."""
    return item.get_closest_marker(FIRST) is not None or not _has_one(item, (*LATER_MARKS, *OWN_TARGETS))


def is_in_rest(item: pytest.Item) -> bool:
    """Whether `make test-rest` runs this test."""
    return not _has_one(item, OWN_TARGETS) and not is_in_first_tier(item)


def is_in_all_examples(item: pytest.Item) -> bool:
    """Whether `make test-examples` runs this test."""
    return is_in_first_tier(item) and bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


_TIERS: Final = {FIRST: is_in_first_tier, REST: is_in_rest, ALL_EXAMPLES: is_in_all_examples}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=tuple(_TIERS), help="what `make test` runs, or what is left of `make test-all`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tier = config.getoption("tier")
    if tier is None:
        return
    wanted = _TIERS[tier]
    left = [item for item in items if not wanted(item)]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if wanted(item)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("tier") == FIRST:
        terminalreporter.write_line(
            "Left to make test-all: tests that are slow, most with Java, those in a browser; all examples of Hypothesis"
        )


def _has_one(item: pytest.Item, marks: tuple[str, ...]) -> bool:
    return any(item.get_closest_marker(mark) for mark in marks)
