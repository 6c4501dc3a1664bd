"""The figure and the sentence on speed in README.md, from the results that `scans.py` and `writes.py` kept.

Run by `make bench`: python benchmarks/_readme_plot.py RESULTS ROOT

It writes the ratios that it shows to benchmarks/speed.json, and draws docs/images/speed.svg from that file alone. Results that lack one of
the cases leave all three files as they are. What `shapes.py` kept is kept in benchmarks/shapes.json, of which the sentence has its ranges.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import sys
import textwrap
from pathlib import Path
from typing import Any, Final

from _bars import Bar, bars_svg
from _page import machine
from _paired import Case, Took
from _shapes_section import PYICEBERG, keep_shapes, kept_shapes

SHOWN: Final = {
    "append, one file": "append 1 file",
    "append, 64 partitions": "append to 64 partitions",
    "upsert, scattered": "upsert",
    "delete of one in 100": "delete 1 row in 100",
    "full scan": "full scan",
    "2 of 6 columns": "scan 2 of 6 columns",
    "filter k = 7": "scan with a filter",
}
"""The cases of the benchmarks that the figure shows, in its order, and what it calls them."""
DATA: Final = "files of 1,000,000 rows in 6 columns (an id, small and large numbers, random floats, a name of 5,000 values)"
WHY: Final = (
    "Appends are faster because tablecrypt tries dictionaries only for columns whose values repeat, while PyIceberg lets Arrow try one for "
    "every column, which for ids, amounts and free text takes longer than all the rest of writing."
)
_SENTENCE: Final = re.compile(r"(?<=<!-- speed: begin -->\n).*?(?=\n<!-- speed: end -->)", re.DOTALL)


def main() -> None:
    """Read the results and write the three files."""
    results, root = Path(sys.argv[1]), Path(sys.argv[2])
    keep_shapes(results / "shapes.json", root / "benchmarks" / "shapes.json", machine())
    found = speeds(results)
    missing = [case for case in SHOWN if SHOWN[case] not in found["ratios"]]
    if missing:
        sys.exit(f"README.md keeps its figure: {results} has no results for {', '.join(missing)}")
    (root / "benchmarks" / "speed.json").write_text(json.dumps(found, indent=1) + "\n")
    (root / "docs" / "images" / "speed.svg").write_text(picture(found))
    readme = root / "README.md"
    readme.write_text(_SENTENCE.sub(sentence(found).replace("\\", "\\\\"), readme.read_text()))


def speeds(results: Path) -> dict[str, Any]:
    """Return for each case its ratio of processor time: median, lowest and highest round; the least number of rounds, the number of cores,
    and whether other work kept them busy in the last 15 minutes."""
    ratios: dict[str, list[float]] = {}
    rounds = []
    for name in ("writes", "scans"):
        path = results / f"{name}.json"
        for kept in json.loads(path.read_text())["cases"] if path.exists() else []:
            took = {side: [Took(*each) for each in times] for side, times in kept["took"].items()}
            each = Case(kept["name"], {}, took=took).ratios("PyIceberg", 1)
            rounds.append(len(each))
            if kept["name"] in SHOWN:
                ratios[SHOWN[kept["name"]]] = [round(value, 3) for value in (statistics.median(each), min(each), max(each))]
    ordered = {shown: ratios[shown] for shown in SHOWN.values() if shown in ratios}
    cores = os.cpu_count() or 1
    return {"cores": cores, "busy": os.getloadavg()[2] > 2 * cores, "rounds": min(rounds, default=0), "ratios": ordered}


def sentence(found: dict[str, Any]) -> str:
    """Return the sentence of README.md, in lines of at most 140 characters."""
    append, upsert = (found["ratios"][case][0] for case in ("append 1 file", "upsert"))
    scan, low, high = found["ratios"]["full scan"]
    shapes = kept_shapes()
    elsewhere = (
        f"Over {len(shapes.cases)} [shapes of data](docs/performance.md#reading-and-writing-data-of-many-shapes), a full scan takes "
        f"{shapes.range('full scan', PYICEBERG)}, and an append {shapes.range('append', PYICEBERG)}."
    )
    text = (
        f"**Speed.** In processor time, an append takes {append:.2f} times as long as with plain PyIceberg, an upsert {upsert:.2f} times "
        f"and a full scan {scan:.2f} times ({low:.2f} to {high:.2f}): medians of {found['rounds']} or more rounds of the "
        f"[benchmarks](benchmarks/README.md) on {found['cores']} cores"
        f"{', which other work kept busy' if found['busy'] else ''}, with {DATA}. {elsewhere} {WHY}"
    )
    return "\n".join(textwrap.wrap(text, 140, break_long_words=False, break_on_hyphens=False))


def picture(found: dict[str, Any]) -> str:
    """Return the figure."""
    bars = [Bar(name, *ratio) for name, ratio in found["ratios"].items()]
    return bars_svg(bars, "Processor time relative to plain PyIceberg", "plain PyIceberg")


if __name__ == "__main__":
    main()
