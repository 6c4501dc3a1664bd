"""docs/performance.md and its plots, of the results that the benchmarks kept.

Run by `make bench` through _all.py; by itself, to write the page again: python benchmarks/_page.py RESULTS DOCS
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import sys
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg
from _paired import OURS, Case, Took
from growth import BOUNDS, exponent

COLORS = {OURS: "#1f6feb", "PyIceberg": "#b35900"}
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 560, 300, 60, 40, 34, 110
PREAMBLE = """# Performance

`make bench` wrote this page; [benchmarks](../benchmarks/README.md) says what each script does. A ratio is tablecrypt's time by the other
side's in the same round, as a median with the lowest and the highest round: below 1, tablecrypt is faster. Processor time is that of all
threads, which other work on the machine disturbs less than the clock. Figures of other machines differ; compare ratios, not milliseconds.
"""


def write_page(results: Path, docs: Path) -> None:
    """Write docs/performance.md and its plots.

    Args:
        results: what each benchmark kept (NAME.json), and how `_all.py` saw it go (NAME.run.json); either may be missing.
        docs: where the page goes.
    """
    # _all.py wrote how each went in the order in which they ran.
    runs = {path.name.removesuffix(".run.json"): json.loads(path.read_text()) for path in _by_time(results.glob("*.run.json"))}
    found = {path.stem: json.loads(path.read_text()) for path in _by_time(results.glob("*.json")) if not path.name.endswith(".run.json")}
    parts = [PREAMBLE, f"Measured with {_machine()}.\n"]
    for name in dict.fromkeys([*runs, *found]):
        parts += _section(docs, name, runs.get(name, {}), found.get(name, {}))
    (docs / "performance.md").write_text("\n".join(parts))


def _by_time(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: path.stat().st_mtime_ns)


def _section(docs: Path, name: str, run: dict[str, Any], kept: dict[str, Any]) -> Iterator[str]:
    """One benchmark: its ratios and curves where it kept any, else what it printed."""
    arguments = run["arguments"].split() if run else kept["arguments"]
    yield f"## {' '.join([f'{name}.py', *arguments])}\n"
    if run and run["outcome"] not in ("done", "missed an aim"):
        yield f"This benchmark {run['outcome']}.\n"
    cases = [Case(each["name"], {}, each["aim"], each["against"], took=_took(each["took"])) for each in kept.get("cases", [])]
    curves = kept.get("curves", {})
    if cases:
        yield f"{len(cases[0].took[OURS])} rounds.\n"
        yield "\n".join(_table(cases)) + "\n"
        yield _figure(docs, name, _bars(cases), f"processor time of tablecrypt by the other side's, {name}.py")
    if curves:
        yield "Processor time; the exponent says how cost grows (1: in proportion, 0: not at all).\n"
    for curve, sides in curves.items():
        said = ", ".join(f"{side} {exponent([(size, took) for size, took in points]):.2f}" for side, points in sides.items())
        yield f"**{curve}**: exponents {said}. {BOUNDS.get(curve, '')}".strip() + "\n"
        yield _figure(docs, curve.replace(": ", "-").replace(" ", "-"), _lines(curve, sides), f"growth with {curve}")
    if run and not cases and not curves and run["printed"].strip():
        yield f"```text\n{run['printed'].strip()}\n```\n"


def _machine() -> str:
    versions = f"Python {platform.python_version()}, pyarrow {pa.__version__}, PyIceberg {pyiceberg.__version__}"
    load = os.getloadavg()[2]
    return f"{os.cpu_count()} cores ({platform.machine()}), {versions}; {load:.1f} processes ran on average in the last 15 minutes"


def _took(kept: dict[str, Any]) -> dict[str, list[Took]]:
    return {side: [Took(*each) for each in times] for side, times in kept.items()}


def _table(cases: Iterable[Case]) -> Iterator[str]:
    yield "| | tablecrypt | against | on the clock | processors | aim |"
    yield "|---|---|---|---|---|---|"
    for case in cases:
        ours = statistics.median(took.clock for took in case.took[OURS]) * 1000
        for side in list(case.took)[1:]:
            ratios = [
                f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})" for each in (case.ratios(side, at) for at in (0, 1))
            ]
            aim = f"{case.aim:g}" if case.aim is not None and side == case.against else ""
            yield f"| {case.name} | {ours:.0f} ms | {side} | {ratios[0]} | {ratios[1]} | {aim} |"


def _figure(docs: Path, name: str, svg: str, text: str) -> str:
    (docs / "performance").mkdir(exist_ok=True)
    (docs / "performance" / f"{name}.svg").write_text(svg)
    return f"![{text}](performance/{name}.svg)\n"


def _bars(cases: list[Case]) -> str:
    """The median ratio of each case with its lowest and highest, the line at 1, and the aims."""
    rows = [
        (f"{case.name} / {side}", case.ratios(side, 1), case.aim if side == case.against else None)
        for case in cases
        for side in list(case.took)[1:]
    ]
    most = max(2.0, *(max(ratios) for _, ratios, _ in rows))
    left, height = 230, 22
    scale = (WIDTH - left - 20) / most
    body = []
    for at, (name, ratios, aim) in enumerate(rows):
        y, median = TOP + at * height, statistics.median(ratios)
        body.append(f'<text x="{left - 6}" y="{y + 13}" text-anchor="end">{escape(name)}</text>')
        body.append(f'<rect x="{left}" y="{y + 3}" width="{median * scale:.1f}" height="12" fill="{COLORS[OURS]}"/>')
        ends = (left + min(ratios) * scale, left + max(ratios) * scale)
        body.append(f'<line x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{y + 9}" y2="{y + 9}" stroke="#222"/>')
        if aim is not None:
            x = left + aim * scale
            body.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 18}" stroke="#c0182b" stroke-width="2"/>')
    bottom = TOP + len(rows) * height
    one = left + scale
    body.append(f'<line x1="{one:.1f}" x2="{one:.1f}" y1="{TOP - 8}" y2="{bottom}" stroke="#888" stroke-dasharray="3"/>')
    body.append(f'<text x="{one:.1f}" y="{TOP - 12}" text-anchor="middle">1.0</text>')
    return _svg(bottom + 10, body)


def _lines(name: str, curve: dict[str, list[tuple[int, float]]]) -> str:
    """Times by sizes, both on logarithmic axes."""
    sizes = [math.log10(size) for points in curve.values() for size, _ in points]
    times = [math.log10(took * 1000) for points in curve.values() for _, took in points]
    low, high = math.floor(min(times)), math.ceil(max(times))

    def x(size: float) -> float:
        return LEFT + (math.log10(size) - min(sizes)) / max(max(sizes) - min(sizes), 1e-9) * (WIDTH - LEFT - RIGHT)

    def y(milliseconds: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(milliseconds) - low) / max(high - low, 1) * (HEIGHT - BOTTOM - TOP)

    body = [f'<text x="{LEFT}" y="18" font-weight="bold">{escape(name)}, milliseconds</text>']
    for power in range(low, high + 1):
        body.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(10**power):.1f}" y2="{y(10**power):.1f}" stroke="#ddd"/>')
        body.append(f'<text x="{LEFT - 6}" y="{y(10**power) + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    for side, points in curve.items():
        path = " ".join(f"{x(size):.1f},{y(took * 1000):.1f}" for size, took in points)
        body.append(f'<polyline points="{path}" fill="none" stroke="{COLORS[side]}" stroke-width="2"/>')
        body.append(f'<text x="{x(points[-1][0]) + 6:.1f}" y="{y(points[-1][1] * 1000) + 4:.1f}" fill="{COLORS[side]}">{side}</text>')
    for size, _ in next(iter(curve.values())):
        body.append(f'<text x="{x(size):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{size:,}</text>')
    return _svg(HEIGHT, body)


def _svg(height: int, body: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>', *body, "</svg>"]) + "\n"


if __name__ == "__main__":
    write_page(Path(sys.argv[1]), Path(sys.argv[2]))
