"""The part of docs/performance.md that shows how cost grows, and its plots, of what benchmarks/growth.py kept.

`make bench` writes the page with this part as it was kept, `make bench-growth` measures and writes this part alone.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

from _bars import BAR_COLOR, OTHER_COLOR
from _kept_parts import marked, replace_part
from _paired import OURS

Points = list[tuple[int, float]]
KEPT: Final = Path(__file__).with_name("growth.json")
COLORS: Final = {OURS: BAR_COLOR, "PyIceberg": OTHER_COLOR}
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 560, 300, 60, 40, 34, 110
_TASKS: Final = "making a task of each file, most of which is Python's garbage collector, as its objects are kept"
BOUNDS: Final = {
    "files: planning": f"Two thirds are decoding the manifests in columns, a third is {_TASKS}.",
    "files: planning again": f"Nothing is read: all of it is {_TASKS}.",
    "files: planning for one file": "Decoding the manifests in columns; comparing their bounds with the filter takes next to nothing.",
    "snapshots: loading the table": (
        "Parsing metadata.json and making its models takes nine tenths; half of that was Python's garbage collector, which rests since. "
        "PyIceberg's file has no keys."
    ),
    "snapshots: a commit of a new process": "Loading the table, as above. The commit itself parses nothing again.",
    "snapshots: one more commit": (
        "Nothing is parsed: writing metadata.json, giving each snapshot the keys that it can be read with, and holding all of them against "
        "pins and rules take about a third each."
    ),
    "columns: append": (
        "Arrow's encoding of a chunk for each column takes about half, PyIceberg's checks of the schema, column by column, the rest."
    ),
    "columns: scan": (
        "Arrow's opening and decoding of a chunk for each column takes about half, PyIceberg's projection of the schema, column by column, "
        "the rest."
    ),
    "rows: append": "Arrow's encoding and compression, encryption included.",
    "rows: scan": "Arrow's decoding, decryption included.",
    "writers: a commit": (
        "48 appends of 100 rows are shared out among so many processes, on one table and a SQLite database. One commit lands at a "
        "time, so more writers cannot go faster than one; what grows are the attempts that come too late and are made again. Both sides "
        "retry by PyIceberg's own loop with the same waits, and begin an append again whose retries are used up."
    ),
}
"""What most of tablecrypt's time goes to at the largest size, by a profile."""
PART: Final = "growth"
_INTRODUCTION = """## How cost grows

`make bench-growth` measures this apart from the rest, in about half an hour, and `make bench` leaves it as it is. The exponent is the slope
of the line through the logarithms of sizes and times (1: in proportion, 0: not at all), over all sizes and over the last tenfold. The times
are those at the largest size; a point is the median of one to three rounds.
"""


@dataclass
class Curve:
    """How long something takes by size.

    Attributes:
        measured: what the seconds are of.
        points: for each side the sizes, ascending, and the seconds.
    """

    measured: str
    points: dict[str, Points]

    def kept(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return {"measured": self.measured, "points": self.points}


def exponent(points: Points) -> float:
    """Return the slope of the line through the logarithms of sizes and times; NaN of fewer than two points."""
    if len(points) < 2:
        return math.nan
    return statistics.linear_regression([math.log(size) for size, _ in points], [math.log(took) for _, took in points]).slope


def last_tenfold(points: Points) -> Points:
    """Return the points from a tenth of the largest size on."""
    return [point for point in points if point[0] * 10 >= points[-1][0]]


def write_section(results: Path, docs: Path) -> None:
    """Write this part of a page that is there, and the plots."""
    replace_part(docs, PART, section(results, docs))


def section(results: Path, docs: Path) -> str:
    """Write the plots, and return this part of the page, with the marks around it.

    Args:
        results: what growth.py kept; may be missing.
        docs: the page's folder.
    """
    parts = [_INTRODUCTION]
    axes = json.loads(results.read_text())["axes"] if results.exists() else {}
    for machine in dict.fromkeys(axis["machine"] for axis in axes.values()):
        load = ", ".join(f"{name} {axis['processes']:.1f}" for name, axis in axes.items() if axis["machine"] == machine)
        parts.append(f"Measured with {machine}. Processes that ran on average in the 15 minutes before the end: {load}.\n")
    curves = {name: Curve(**kept) for axis in axes.values() for name, kept in axis["curves"].items()}
    if curves:
        parts.append("\n".join(_table(curves)) + "\n")
    for name, curve in curves.items():
        parts += _shown(docs, name, curve)
    return marked(PART, "\n".join(parts))


def _table(curves: dict[str, Curve]) -> Iterator[str]:
    yield "| | sizes | tablecrypt | exponents | PyIceberg | exponents | tablecrypt / PyIceberg |"
    yield "|---|---|---|---|---|---|---|"
    for name, curve in curves.items():
        ours, other = curve.points.values()
        sizes = f"{ours[0][0]:,} to {ours[-1][0]:,}"
        yield f"| {name} | {sizes} | {_at_end(ours)} | {_at_end(other)} | {ours[-1][1] / other[-1][1]:.2f} |"


def _at_end(points: Points) -> str:
    return f"{_time(points[-1][1])} | {exponent(points):.2f}, {exponent(last_tenfold(points)):.2f}"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds * 1000:,.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"


def _shown(docs: Path, name: str, curve: Curve) -> Iterator[str]:
    yield f"**{name}** ({curve.measured}). {BOUNDS.get(name, '')}".strip() + "\n"
    path = docs / "performance" / f"{name.replace(': ', '-').replace(' ', '-')}.svg"
    path.parent.mkdir(exist_ok=True)
    path.write_text(_lines(f"{name}, milliseconds", curve.points))
    yield f"![growth with {name}](performance/{path.name})\n"


def _lines(title: str, curve: dict[str, Points]) -> str:
    """Times by sizes, both on logarithmic axes."""
    sizes = [math.log10(size) for points in curve.values() for size, _ in points]
    times = [math.log10(took * 1000) for points in curve.values() for _, took in points]
    low, high = math.floor(min(times)), math.ceil(max(times))

    def x(size: float) -> float:
        return LEFT + (math.log10(size) - min(sizes)) / max(max(sizes) - min(sizes), 1e-9) * (WIDTH - LEFT - RIGHT)

    def y(milliseconds: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(milliseconds) - low) / max(high - low, 1) * (HEIGHT - BOTTOM - TOP)

    body = [f'<text x="{LEFT}" y="18" font-weight="bold">{escape(title)}</text>']
    for power in range(low, high + 1):
        body.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(10**power):.1f}" y2="{y(10**power):.1f}" stroke="#ddd"/>')
        body.append(f'<text x="{LEFT - 6}" y="{y(10**power) + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    for side, points in curve.items():
        path = " ".join(f"{x(size):.1f},{y(took * 1000):.1f}" for size, took in points)
        body.append(f'<polyline points="{path}" fill="none" stroke="{COLORS[side]}" stroke-width="2"/>')
        body.append(f'<text x="{x(points[-1][0]) + 6:.1f}" y="{y(points[-1][1] * 1000) + 4:.1f}" fill="{COLORS[side]}">{side}</text>')
    for size, _ in next(iter(curve.values())):
        body.append(f'<text x="{x(size):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{size:,}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>', *body, "</svg>"]) + "\n"
