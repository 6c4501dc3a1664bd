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
from _bars import BAR_COLOR, Bar, bars_svg
from _paired import OURS, Case, Took
from growth import BOUNDS, exponent

COLORS = {OURS: BAR_COLOR, "PyIceberg": "#b35900"}
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 560, 300, 60, 40, 34, 110
PREAMBLE = """# Performance

`make bench` wrote this page; [benchmarks](../benchmarks/README.md) says what each script does. A ratio is tablecrypt's time by the other
side's in the same round, as a median with the lowest and the highest round: below 1, tablecrypt is faster. Processor time is that of all
threads, which other work on the machine disturbs less than the clock. Figures of other machines differ; compare ratios, not milliseconds.

`pyarrow with the key` and `pyarrow, plaintext` are the floor: Arrow alone reads or writes the same columns, knowing the files and, with the
key, their keys, and checks and plans nothing. tablecrypt and PyIceberg both decode with Arrow, so no ratio to PyIceberg can go below that
of the floor; a ratio of 1 to `pyarrow with the key` would mean that all the time is Arrow's.
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
    """The bars of each case against each other side."""
    bars = []
    for case in cases:
        for side in list(case.took)[1:]:
            ratios = case.ratios(side, 1)
            aim = case.aim if side == case.against else None
            bars.append(Bar(f"{case.name} / {side}", statistics.median(ratios), min(ratios), max(ratios), aim))
    return bars_svg(bars, "Processor time relative to the other side (less is faster)", "as long")


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
