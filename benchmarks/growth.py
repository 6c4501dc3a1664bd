"""How costs grow with files, snapshots, columns, rows and writers, for an encrypted table and PyIceberg's plain one.

It takes about half an hour, so `make bench` does not run it: `make bench-growth` does, keeps what it measured in benchmarks/growth.json,
and writes the part of docs/performance.md that shows it. An axis that is measured alone takes the place of what was kept of it.
_growth_axes.py says what is done along each axis.

Sides take turns in each round; a point is the median of its rounds. What takes long is measured in fewer rounds: none begins when a step
has taken half a minute. The exponent is the slope of the line through the logarithms: 1 is as much more time as there is more to do, 0 is
no more time. It is given over all sizes and over the last tenfold, where what every operation costs weighs least.

Run: python benchmarks/growth.py RESULTS DOCS [--only files writers] [--most 10000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import tempfile
import warnings
from pathlib import Path

from _growth_axes import AXES, PYICEBERG, Axis, Step
from _growth_section import Curve, exponent, last_tenfold, write_section
from _kept_parts import keep_measure
from _page import machine
from _paired import OURS

_LONG_S = 30
"""No further round of a step is begun after so many seconds."""


def main() -> None:
    """Measure the axes, print and keep them, write the page's part."""
    options = _options()
    warnings.simplefilter("ignore")
    for name in options.only:
        measured = measure(name, AXES[name], options.most, options.rounds)
        for line in printed(measured):
            print(line, flush=True)
        kept = {"machine": machine(), "processes": os.getloadavg()[2], "curves": {each: curve.kept() for each, curve in measured.items()}}
        keep_measure(options.results, "axes", name, kept, AXES)
        write_section(options.results, options.docs)


def measure(name: str, axis: Axis, most: int, rounds: int) -> dict[str, Curve]:
    """Return a curve for each thing that is done along an axis."""
    curves: dict[str, Curve] = {}
    for size in (size for size in axis.sizes if size <= most):
        with tempfile.TemporaryDirectory() as folder:
            steps = {side: axis.steps(Path(folder), side, size) for side in (OURS, PYICEBERG)}
            for step in steps[OURS]:
                curve = curves.setdefault(f"{name}: {step}", Curve(axis.measured, {side: [] for side in steps}))
                for side, seconds in _rounds({side: steps[side][step] for side in steps}, rounds).items():
                    curve.points[side].append((size, statistics.median(seconds)))
    return curves


def _rounds(sides: dict[str, Step], rounds: int) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(rounds):
        if sum(map(sum, took.values())) > _LONG_S:
            break
        for side in list(sides) if number % 2 else reversed(list(sides)):
            gc.collect()
            took[side].append(sides[side]())
    return took


def printed(curves: dict[str, Curve]) -> list[str]:
    """Return the curves as lines of text."""
    lines = []
    for name, curve in curves.items():
        lines.append(f"  {name}, {curve.measured}")
        for side, points in curve.points.items():
            shown = "  ".join(f"{size:,}: {seconds * 1000:.1f} ms" for size, seconds in points)
            lines.append(f"    {side:12}{shown}  exponent {exponent(points):.2f}, of the last tenfold {exponent(last_tenfold(points)):.2f}")
    return lines


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="where results are kept; they stay for axes that are not measured")
    parser.add_argument("docs", type=Path, help="the folder of performance.md")
    parser.add_argument("--only", nargs="*", default=list(AXES), choices=AXES, help="the axes to measure")
    parser.add_argument("--most", type=int, default=10**9, help="leaves out larger sizes")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
