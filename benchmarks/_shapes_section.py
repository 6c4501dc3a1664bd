"""The part of docs/performance.md on data of many shapes, with the ranges that the page and README.md name, of what shapes.py kept.

`make bench` measures them again; a page that is written without new results shows those in benchmarks/shapes.json.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from _bars import Bar, bars_svg
from _paired import OURS, Case, Took

KEPT: Final = Path(__file__).with_name("shapes.json")
PYICEBERG: Final = "PyIceberg"
CASES: Final = ("full scan", "one column", "one value", "half of a sorted column", "append")
_SHORT_MS: Final = 30
"""Where the floor takes less, what counts is how many milliseconds more tablecrypt takes: a ratio of small numbers says little."""
_INTRODUCTION: Final = """## Reading and writing data of many shapes

What a table holds decides what reading and writing cost, with and without encryption. So the same cases run over shapes to which the code
was not tuned. A cell is tablecrypt's time by that of `pyarrow with the key`, as a median of the rounds: **processor time / time on the
clock**, and where the floor takes less than 30 ms, how much longer in processor time.
"""


class Range(NamedTuple):
    """The least and the greatest ratio, and of which shape the greatest is."""

    least: float
    greatest: float
    worst: str

    def __str__(self) -> str:
        return f"{self.least:.2f} to {self.greatest:.2f} times (the most: {self.worst})"


@dataclass
class Shapes:
    """What shapes.py kept: of each shape what it is, and its cases by their names without the shape's."""

    kept: dict[str, Any]

    def __post_init__(self) -> None:
        self.said: dict[str, str] = self.kept["shapes"]
        self.cases: dict[str, dict[str, Case]] = {}
        for each in self.kept["cases"]:
            shape, name = each["name"].split(": ")
            took = {side: [Took(*one) for one in times] for side, times in each["took"].items()}
            self.cases.setdefault(shape, {})[name] = Case(name, {}, each["aim"], each["against"], took=took)

    def ratio(self, shape: str, case: str, side: str | None = None, at: int = 1) -> float | None:
        """Return the median of tablecrypt's time by the other side's, the floor's by default: of the processors, or on the clock (0)."""
        found = self.cases[shape].get(case)
        return None if found is None else statistics.median(found.ratios(side or found.against, at))

    def range(self, case: str, side: str | None = None) -> Range:
        """Return the range of processor time over the shapes."""
        found = {shape: ratio for shape in self.cases if (ratio := self.ratio(shape, case, side)) is not None}
        worst = max(found, key=lambda shape: found[shape])
        return Range(min(found.values()), found[worst], worst)

    def more(self, shape: str, case: str) -> float | None:
        """Return how many milliseconds of processor time tablecrypt takes more than a floor of few; None for a floor of more."""
        found = self.cases[shape][case]
        ours, floor = (statistics.median(each.processor for each in found.took[side]) * 1000 for side in (OURS, found.against))
        return ours - floor if floor < _SHORT_MS else None

    @property
    def rounds(self) -> int:
        """The least number of rounds."""
        return min(len(case.took[OURS]) for cases in self.cases.values() for case in cases.values())


def kept_shapes(results: dict[str, Any] | None = None) -> Shapes:
    """Return the results, or those in the repository."""
    return Shapes(results or json.loads(KEPT.read_text()))


def keep_shapes(results: Path, kept: Path, machine: str) -> None:
    """Keep what shapes.py measured on this machine in the repository, if it ran."""
    if not results.exists():
        return
    found = json.loads(results.read_text())
    for case in found["cases"]:
        case["took"] = {side: [[round(seconds, 5) for seconds in one] for one in times] for side, times in case["took"].items()}
    cases = ",\n".join(json.dumps(case) for case in found.pop("cases"))
    # A line for each case: a later run is compared with an earlier one.
    kept.write_text(json.dumps({**found, "machine": machine})[:-1] + f', "cases": [\n{cases}\n]}}\n')


def section(shapes: Shapes, docs: Path) -> Iterator[str]:
    """Write the figure, and yield the part of the page."""
    yield _INTRODUCTION
    yield "\n".join(_table(shapes)) + "\n"
    yield f"Measured with {shapes.kept['machine']}; {shapes.rounds} rounds. The shapes:\n" if "machine" in shapes.kept else "The shapes:\n"
    yield "\n".join(f"- **{name}**: {said}" for name, said in shapes.said.items()) + "\n"

    (docs / "performance").mkdir(exist_ok=True)
    (docs / "performance" / "shapes.svg").write_text(_figure(shapes))
    yield "![processor time of full scans, of one column and of appends by that of pyarrow with the key](performance/shapes.svg)\n"

    yield "Beside plain PyIceberg, in processor time:\n"
    yield "\n".join(_beside_pyiceberg(shapes)) + "\n"


def _table(shapes: Shapes) -> Iterator[str]:
    yield f"| | {' | '.join(CASES)} |"
    yield "|---" * (len(CASES) + 1) + "|"
    for shape in shapes.cases:
        yield f"| {shape} | {' | '.join(_cell(shapes, shape, case) for case in CASES)} |"


def _cell(shapes: Shapes, shape: str, case: str) -> str:
    processor, clock = (shapes.ratio(shape, case, at=at) for at in (1, 0))
    if processor is None or clock is None:
        return "–"
    more = shapes.more(shape, case)
    return f"{processor:.2f} / {clock:.2f}" + ("" if more is None else f", {more:+.1f} ms")


def _beside_pyiceberg(shapes: Shapes) -> Iterator[str]:
    yield f"| | {' | '.join(CASES)} |"
    yield "|---" * (len(CASES) + 1) + "|"
    for shape in shapes.cases:
        ratios = [shapes.ratio(shape, case, PYICEBERG) for case in CASES]
        yield f"| {shape} | {' | '.join('–' if ratio is None else f'{ratio:.2f}' for ratio in ratios)} |"


def _figure(shapes: Shapes) -> str:
    bars = []
    for case in ("full scan", "one column", "append"):
        for shape, cases in shapes.cases.items():
            if case in cases:
                ratios = cases[case].ratios(cases[case].against, 1)
                bars.append(Bar(f"{case}, {shape}", statistics.median(ratios), min(ratios), max(ratios), cases[case].aim))
    return bars_svg(bars, "Processor time relative to pyarrow with the key", "as long")
