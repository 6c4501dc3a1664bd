"""The part of docs/performance.md on files that are stored otherwise, of what storage.py kept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from _kept_parts import marked, replace_part
from _shapes_section import CASES

KEPT: Final = Path(__file__).with_name("storage.json")
PART: Final = "storage"
WAYS: Final = {
    "as they are": "",
    "a fifth of the rows": "--share 0.2",
    "ten times the rows": "--share 10 --files 2",
    "snappy": "--codec snappy",
    "uncompressed": "--codec uncompressed",
    "files of PyIceberg": "--written-by pyiceberg",
    "files of Iceberg Java": "--written-by java",
    "deletes, copy-on-write": "--deleted copy-on-write",
    "deletes, merge-on-read": "--deleted merge-on-read",
}
"""How files are stored, and what shapes.py is called with for that."""
_INTRODUCTION: Final = """### Files that are stored otherwise

The same cases over four of the shapes, one thing changed at a time. A cell is the range of tablecrypt's processor time by that of
`pyarrow with the key` over the shapes, and the shape of the greatest; where that shape's floor takes less than 30 ms, how much longer.
`make bench-storage` measures this apart from the rest, in about a quarter of an hour.
"""
Cells = Mapping[str, tuple[float, float | None]]
"""Of each shape the ratio, and how many milliseconds more where the floor takes few."""


def write_section(results: Path, docs: Path) -> None:
    """Write this part of a page that is there."""
    replace_part(docs, PART, section(results))


def section(results: Path) -> str:
    """Return this part of the page, with the marks around it; `results` is what storage.py kept, and may be missing."""
    ways = json.loads(results.read_text())["ways"] if results.exists() else {}
    measured = dict.fromkeys(f"Measured with {way['machine']}; {way['rounds']} rounds.\n" for way in ways.values())
    return marked(PART, "\n".join([_INTRODUCTION, *measured, *_table(ways)]))


def _table(ways: Mapping[str, Any]) -> Iterator[str]:
    yield f"| | {' | '.join(CASES)} |"
    yield "|---" * (len(CASES) + 1) + "|"
    for name, way in ways.items():
        yield f"| {name} | {' | '.join(_cell(way['cells'].get(case, {})) for case in CASES)} |"


def _cell(shapes: Cells) -> str:
    if not shapes:
        return "–"
    worst = max(shapes, key=lambda shape: shapes[shape][0])
    ratio, more = shapes[worst]
    least = min(each for each, _ in shapes.values())
    return f"{least:.2f} to {ratio:.2f}: {worst}" + ("" if more is None else f", {more:+.1f} ms")
