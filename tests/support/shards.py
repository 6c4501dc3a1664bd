"""A pytest plugin: `--shard 2/4` runs the second of four parts of the selected tests.

Every test is in exactly one part, and the same selection is cut the same way everywhere. All tests of a file are in one part, since what
they share is made once. The longest file goes first, each to the part that is shortest until then. How long a file takes says the committed
table tests/durations.json; what is not in it is estimated by the number of tests.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest

DURATIONS: Final = Path("tests", "durations.json")
ESTIMATED_MS: Final = {"java": 3000, "slow": 2000, "fast": 100}
"""Milliseconds of a test of each kind: marked java, else marked slow, else neither."""

Table = Mapping[str, Mapping[str, float]]
"""Seconds of the tests of each kind, by file."""


class Shard(NamedTuple):
    """Part `number`, from 1, of `total`."""

    number: int
    total: int


def parse_shard(text: str) -> Shard:
    """Read `2/4`. Raises argparse.ArgumentTypeError for anything else."""
    number, slash, total = text.partition("/")
    if not (slash and number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total)):
        raise argparse.ArgumentTypeError(f"--shard takes a part and how many there are, such as 2/4, and not {text!r}")
    return Shard(int(number), int(total))


def weights_of(tests: Iterable[tuple[str, str]], measured: Table) -> dict[str, int]:
    """Return the milliseconds of each file, from the file and the kind of every test."""
    weights: Counter[str] = Counter()
    for (file, kind), count in Counter(tests).items():
        seconds = measured.get(file, {}).get(kind)
        weights[file] += count * ESTIMATED_MS[kind] if seconds is None else round(seconds * 1000)
    return weights


def cut(weights: Mapping[str, int], total: int) -> list[set[str]]:
    """The files of each part."""
    parts: list[set[str]] = [set() for _ in range(total)]
    loads = [0] * total

    for file in sorted(weights, key=lambda file: (-weights[file], file)):
        lightest = loads.index(min(loads))
        parts[lightest].add(file)
        loads[lightest] += weights[file]

    return parts


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shard", type=parse_shard, metavar="K/N", help="run part K of N of the selected tests")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    shard: Shard | None = config.getoption("shard")
    if shard is None:
        return

    weights = weights_of(((_file(item), _kind(item)) for item in items), _measured(config.rootpath))
    files = cut(weights, shard.total)[shard.number - 1]

    config.hook.pytest_deselected(items=[item for item in items if _file(item) not in files])
    items[:] = [item for item in items if _file(item) in files]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A part without tests, of a selection with fewer files than parts, is no failure."""
    if session.config.getoption("shard") and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


def _measured(root: Path) -> Table:
    path = root / DURATIONS
    table: Table = json.loads(path.read_text(encoding="utf-8"))["modules"] if path.exists() else {}
    return table


def _kind(item: pytest.Item) -> str:
    return next((mark for mark in ("java", "slow") if item.get_closest_marker(mark)), "fast")


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
