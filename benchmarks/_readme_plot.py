"""The figure and the sentence on speed in README.md, from the results that `scans.py` and `writes.py` kept.

Run by `make bench`: python benchmarks/_readme_plot.py RESULTS ROOT

It writes the ratios that it shows to benchmarks/speed.json, and draws docs/images/speed.svg from that file alone. Results that lack one of
the cases leave all three files as they are.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import sys
import textwrap
from html import escape
from pathlib import Path
from typing import Any, Final

from _paired import Case, Took

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
_SENTENCE: Final = re.compile(r"(?<=<!-- speed: begin -->\n).*?(?=\n<!-- speed: end -->)", re.DOTALL)
_WIDTH: Final = 640
_LEFT: Final = 190
_TOP: Final = 50
_ROW: Final = 26


def main() -> None:
    """Read the results and write the three files."""
    results, root = Path(sys.argv[1]), Path(sys.argv[2])
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
    append, upsert, scan = (found["ratios"][case][0] for case in ("append 1 file", "upsert", "full scan"))
    text = (
        f"**Speed.** In processor time, an append takes {append:.2f} times as long as with plain PyIceberg, an upsert {upsert:.2f} times "
        f"and a full scan {scan:.2f} times: medians of {found['rounds']} or more rounds of the [benchmarks](benchmarks/README.md) "
        f"on {found['cores']} cores{', which other work kept busy' if found['busy'] else ''}."
    )
    return "\n".join(textwrap.wrap(text, 140, break_long_words=False, break_on_hyphens=False))


def picture(found: dict[str, Any]) -> str:
    """Return the figure: a bar for each median, a line from the lowest to the highest round, and a line where both sides take as long."""
    ratios = found["ratios"]
    scale = (_WIDTH - _LEFT - 60) / max(1.2, *(high for _, _, high in ratios.values()))
    bottom, one = _TOP + len(ratios) * _ROW, _LEFT + scale
    body = [
        f'<rect width="{_WIDTH}" height="{bottom + 14}" rx="6" fill="#ffffff"/>',
        '<text x="14" y="22" font-size="14" font-weight="bold">Processor time relative to plain PyIceberg (less is faster)</text>',
        f'<line x1="{one:.1f}" x2="{one:.1f}" y1="{_TOP - 6}" y2="{bottom}" stroke="#b35900" stroke-dasharray="4 3"/>',
        f'<text x="{one:.1f}" y="{_TOP - 10}" text-anchor="middle" fill="#b35900">plain PyIceberg</text>',
    ]
    for at, (name, (median, low, high)) in enumerate(ratios.items()):
        y = _TOP + at * _ROW
        body.append(f'<text x="{_LEFT - 10}" y="{y + 17}" text-anchor="end">{escape(name)}</text>')
        body.append(f'<rect x="{_LEFT}" y="{y + 5}" width="{median * scale:.1f}" height="16" rx="2" fill="#00796b"/>')
        ends = f'x1="{_LEFT + low * scale:.1f}" x2="{_LEFT + high * scale:.1f}" y1="{y + 13}" y2="{y + 13}"'
        body.append(f'<line {ends} stroke="#1c2b33" stroke-width="1.5"/>')
        body.append(f'<text x="{_LEFT + max(median, high) * scale + 8:.1f}" y="{y + 17}">{median:.2f}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + 14}" width="{_WIDTH}" role="img"'
    style = 'font-family="sans-serif" font-size="12" fill="#1c2b33">'
    title = "<title>Processor time of tablecrypt divided by that of plain PyIceberg</title>"
    return "\n".join([f"{head} {style}", title, *body, "</svg>"]) + "\n"


if __name__ == "__main__":
    main()
