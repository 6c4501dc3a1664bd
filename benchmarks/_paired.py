"""Paired, interleaved timing: every side of a case runs in each round, in changing order, so that other work on the machine slows all.

A ratio is of one round: the first side's time by another's. Beside the time on the clock there is the processor time of all threads, which
other work on the machine disturbs less. The first round is not counted.

Results are printed, and kept as JSON in the folder that BENCHMARK_RESULTS names, for benchmarks/_page.py.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

OURS: Final = "tablecrypt"
RESULTS: Final = "BENCHMARK_RESULTS"
_earlier: Final[list[Case]] = []
"""What this script ran before the rounds that run now; it is kept beside them."""


class Took(NamedTuple):
    """How long a step took, in seconds."""

    clock: float
    processor: float


@dataclass
class Case:
    """One thing to do, by each side.

    Attributes:
        sides: what each side does; the first is tablecrypt.
        aim: the ratio to the side `against` that is aimed at; None where there is none.
        before: makes ready what one run of a side needs, and is not timed.
        warms_up: whether the side that is first in a round runs once more before, untimed. For cases so short, or so unlike the one before,
            that getting the process its memory would decide: of three sides, one is never the first.
    """

    name: str
    sides: dict[str, Callable[[], Any]]
    aim: float | None = None
    against: str = "PyIceberg"
    before: Callable[[str], None] | None = None
    warms_up: bool = False
    took: dict[str, list[Took]] = field(default_factory=dict)

    def run(self, number: int) -> None:
        """Run every side once; odd rounds in the order of the sides, even ones in the other. Round 0 is not counted."""
        order = list(self.sides) if number % 2 else list(reversed(self.sides))
        if self.warms_up:
            self.sides[order[0]]()
        for side in order:
            if self.before is not None:
                self.before(side)
            gc.collect()
            clock, processor = time.perf_counter(), time.process_time()
            self.sides[side]()
            took = Took(time.perf_counter() - clock, time.process_time() - processor)
            if number:
                self.took.setdefault(side, []).append(took)

    def ratios(self, side: str, at: int = 0) -> list[float]:
        """Return tablecrypt's times by another side's, round by round: on the clock (0) or of the processors (1)."""
        return [mine[at] / other[at] for mine, other in zip(self.took[OURS], self.took[side], strict=True)]


def run_rounds(cases: list[Case], rounds: int) -> None:
    """Run all cases in each round, keep each round, and print them at the end."""
    for number in range(rounds + 1):
        for case in cases:
            case.run(number)
        if number:
            keep("cases", [_kept(case) for case in [*_earlier, *cases]])
    _earlier.extend(cases)
    for line in report(cases):
        print(line)


def report(cases: list[Case]) -> list[str]:
    """Return the lines of a table: medians in milliseconds, and tablecrypt / the other side with its spread."""
    width = max(len(case.name) for case in cases) + 2
    sides = max(len(side) for case in cases for side in case.took) + 2
    lines = [f"  {'':{width + sides}}{'on the clock':38}processors"]
    for case in cases:
        for side in case.took:
            shown = [_shown(case, side, at) for at in range(2)]
            aim = f"  aim {case.aim:g}" if case.aim is not None and side == case.against else ""
            lines.append(f"  {case.name if side == OURS else '':{width}}{side:{sides}}{shown[0]:38}{shown[1]}{aim}".rstrip())
    return lines


def keep(name: str, value: Any) -> None:
    """Keep a result of the script that runs, where results are kept."""
    folder = os.environ.get(RESULTS)
    if folder is None:
        return
    import __main__

    path = Path(folder) / f"{Path(str(__main__.__file__)).stem}.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**known, "arguments": sys.argv[1:], name: value}))


def _shown(case: Case, side: str, at: int) -> str:
    median = statistics.median(took[at] for took in case.took[side]) * 1000
    if side == OURS:
        return f"{median:7.0f}"
    ratios = case.ratios(side, at)
    return f"{median:7.0f}  {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _kept(case: Case) -> dict[str, Any]:
    return {"name": case.name, "aim": case.aim, "against": case.against, "took": case.took}
