"""A pytest plugin: how long each test took, kept between runs in build/durations.json.

    {"tests/keys/test_key_ring.py::test_name[id]": {"seconds": 0.41, "marks": ["slow"], "day": "2026-11-23"}, …}

Setup, call and teardown are counted together. A run updates the tests that it ran and leaves the others as they were, so that after
`make test-all` all are there, and after half of it half are new. The process that hears of all workers writes the file every minute
and at the end, always the whole of it; runs side by side wait for each other. A test that no run has had for a month, or whose file is
gone, is forgotten.

tests/durations.json is the part of it that is committed: seconds of each module, from which the tests of the first tier are chosen.
tests/support/slowest_tests.py shows both and writes the second.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from filelock import FileLock

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = Path("build", "durations.json")
"""Below the folder of pytest's configuration."""
COMMITTED: Final = Path("tests", "durations.json")
MARKS: Final = ("browser", "campaign", "java", "nightly", "releases", "slow")
"""By which the tiers choose."""
_WRITTEN_EVERY_S: Final = 60
_FORGOTTEN_AFTER: Final = timedelta(days=30)


@dataclass(frozen=True)
class Duration:
    """What one test took when it last ran, with its marks among MARKS and the day (UTC)."""

    seconds: float
    marks: tuple[str, ...]
    day: str


Durations = dict[str, Duration]


def read(root: Path) -> Durations:
    """What is kept below this folder; nothing where no run was."""
    path = root / KEPT
    if not path.exists():
        return {}
    kept = json.loads(path.read_text(encoding="utf-8"))
    return {test: Duration(each["seconds"], tuple(each["marks"]), each["day"]) for test, each in kept.items()}


def keep(root: Path, fresh: Mapping[str, Duration], today: date) -> None:
    """Put what a run measured over what is kept. Whoever reads meanwhile sees the file before or after, never half of it."""
    path = root / KEPT
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        oldest = (today - _FORGOTTEN_AFTER).isoformat()
        merged = {**read(root), **fresh}
        lasting = {test: each for test, each in merged.items() if each.day >= oldest and (root / module_of(test)).exists()}
        written = path.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps({test: asdict(lasting[test]) for test in sorted(lasting)}, indent=0), encoding="utf-8")
        written.replace(path)


def module_of(test: str) -> str:
    """The file of a test, as its node id says it."""
    return test.partition("::")[0]


def known_seconds(modules: Iterable[str], root: Path = ROOT) -> float:
    """How long these files of tests take together, without the campaign, as far as build/durations.json or tests/durations.json knows."""
    wanted = set(modules)
    measured: dict[str, float] = defaultdict(float)
    for test, each in read(root).items():
        if "campaign" not in each.marks:
            measured[module_of(test)] += each.seconds
    committed = {module: sum(by_kind.values()) for module, by_kind in committed_seconds(root).items()}
    return sum({**committed, **measured}.get(module, 0.0) for module in wanted)


def committed_seconds(root: Path = ROOT) -> dict[str, dict[str, float]]:
    """The table of tests/durations.json: for each module the seconds of its tests of each kind, which are `fast`, `slow` and `java`."""
    path = root / COMMITTED
    table: dict[str, dict[str, float]] = json.loads(path.read_text(encoding="utf-8"))["modules"] if path.exists() else {}
    return table


class _Keeper:
    """Adds up what the workers report; registered in the process that hears of all of them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._running: dict[str, float] = defaultdict(float)
        self._fresh: Durations = {}
        self._written = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._running[report.nodeid] += report.duration
        if report.when != "teardown":
            return
        seconds = self._running.pop(report.nodeid)
        marks = tuple(mark for mark in MARKS if mark in report.keywords)
        self._fresh[report.nodeid] = Duration(round(seconds, 3), marks, datetime.now(UTC).date().isoformat())
        if time.monotonic() - self._written >= _WRITTEN_EVERY_S:
            self._write()

    def pytest_sessionfinish(self) -> None:
        self._write()

    def _write(self) -> None:
        if self._fresh:
            keep(self._root, self._fresh, datetime.now(UTC).date())
        self._fresh = {}
        self._written = time.monotonic()


def pytest_configure(config: pytest.Config) -> None:
    nightly = config.getoption("--hypothesis-profile", None) == "nightly"  # twenty times the examples: no measure of the suite
    if not nightly and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Keeper(config.rootpath), "durations_keeper")
