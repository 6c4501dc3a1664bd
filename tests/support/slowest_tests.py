"""What the tests of the last runs took, as tests/support/durations.py keeps it: what `make test-slowest` shows.

    python -m tests.support.slowest_tests [--count 25]     the slowest tests and modules, the share of each folder, the sum of each tier
    python -m tests.support.slowest_tests --commit         write tests/durations.json again

tests/durations.json says how it is laid out at its head. Its numbers are 1, 2 or 5 times a power of ten, and one stays as it is until a new
measurement lies farther from it than its neighbours do, so that another machine or a busy hour does not rewrite the file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from tests.support.durations import COMMITTED, KEPT, ROOT, Duration, Durations, committed_seconds, module_of, read

TIERS: Final[dict[str, Callable[[frozenset[str]], bool]]] = {
    "without Java, and quick": lambda marks: not marks & {"slow", "java", "campaign", "nightly", "releases"},
    "without Java, and slow": lambda marks: "slow" in marks and not marks & {"java", "campaign", "nightly", "releases"},
    "tools of the suite": lambda marks: "nightly" in marks and not marks & {"campaign", "releases"},
    "with Java": lambda marks: "java" in marks and not marks & {"campaign", "nightly", "releases"},
    "releases of Spark": lambda marks: "releases" in marks and "campaign" not in marks,
    "campaign": lambda marks: "campaign" in marks,
}
"""Each test is in one of them."""
ABOUT: Final = (
    "Seconds that the tests of each module take, by kind: `java` for those marked java, else `slow` for those marked slow, else `fast`. "
    "Without the campaign; kinds that take less than half a second are left out. `python -m tests.support.slowest_tests --commit`, after "
    "`make test-all`, writes this file; a number changes only when the new one is less than half of it or more than twice."
)
_LEAST_S: Final = 0.5
_STEPS: Final = tuple(digit * 10**power for power in range(-1, 6) for digit in (1, 2, 5))


def report(durations: Mapping[str, Duration], count: int) -> Iterator[str]:
    """The lines that `make test-slowest` prints."""
    days = sorted({each.day for each in durations.values()})
    yield f"{len(durations)} tests, {_clock(sum(each.seconds for each in durations.values()))} of one process, measured {_span(days)}"
    by_module, by_folder, by_tier = _sums(durations)
    yield from _table(f"Slowest {count} tests", {test: each.seconds for test, each in durations.items()}, count)
    yield from _table(f"Slowest {count} modules", by_module, count)
    yield from _table("Folders", by_folder, len(by_folder))
    yield from _table("Tiers", by_tier, len(by_tier))


def _sums(durations: Mapping[str, Duration]) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    by_module: dict[str, float] = defaultdict(float)
    by_folder: dict[str, float] = defaultdict(float)
    by_tier: dict[str, float] = defaultdict(float)
    for test, each in durations.items():
        module = module_of(test)
        by_module[module] += each.seconds
        by_folder[str(PurePosixPath(module).parent)] += each.seconds
        by_tier[tier_of(each.marks)] += each.seconds
    return by_module, by_folder, by_tier


def tier_of(marks: Iterable[str]) -> str:
    """The tier of TIERS that a test with these marks belongs to."""
    own = frozenset(marks)
    return next(name for name, holds in TIERS.items() if holds(own))


def _span(days: Sequence[str]) -> str:
    return f"on {days[0]}" if days[0] == days[-1] else f"from {days[0]} to {days[-1]}"


def _table(title: str, seconds: Mapping[str, float], count: int) -> Iterator[str]:
    whole = sum(seconds.values()) or 1.0
    yield ""
    yield title
    for name, each in sorted(seconds.items(), key=lambda pair: (-pair[1], pair[0]))[:count]:
        yield f"{_clock(each):>9}  {each / whole:4.0%}  {name}"


def _clock(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)}:{int(seconds % 60):02} min"


def table_of_modules(durations: Mapping[str, Duration], former: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """What tests/durations.json is to hold: rounded, near what it held, and with the modules that no run has measured as they were."""
    measured: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for test, each in durations.items():
        if "campaign" not in each.marks:
            kind = next((mark for mark in ("java", "slow") if mark in each.marks), "fast")
            measured[module_of(test)][kind] += each.seconds
    table: dict[str, dict[str, float]] = {}
    for module in sorted(measured.keys() | former.keys()):
        known = former.get(module, {})
        kinds = {kind: rounded(seconds, known.get(kind)) for kind, seconds in measured[module].items()} if module in measured else known
        kept = {kind: kinds[kind] for kind in sorted(kinds) if kinds[kind] >= _LEAST_S}
        if kept:
            table[module] = kept
    return table


def rounded(seconds: float, former: float | None) -> float:
    """The nearest 1, 2 or 5 times a power of ten, or `former` as long as it is within a factor of two."""
    if former is not None and former / 2 <= seconds <= former * 2:
        return former
    return min(_STEPS, key=lambda step: max(step / seconds, seconds / step)) if seconds > 0 else 0.0


def commit(root: Path) -> None:
    """Write tests/durations.json from what is kept; a module that is gone leaves it."""
    former = {module: kinds for module, kinds in committed_seconds(root).items() if (root / module).exists()}
    table = table_of_modules(read(root), former)
    (root / COMMITTED).write_text(json.dumps({"about": ABOUT, "modules": table}, indent=1) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Show, or write; 1 where nothing was measured yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=25, help="how many tests and modules to show (25)")
    parser.add_argument("--commit", action="store_true", help=f"write {COMMITTED}")
    known = parser.parse_args(arguments)
    durations: Durations = read(root)
    if not durations:
        sys.stderr.write(f"{KEPT} is not there yet: `make test` writes it\n")
        return 1
    if known.commit:
        commit(root)
    else:
        sys.stdout.write("\n".join(report(durations, known.count)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
