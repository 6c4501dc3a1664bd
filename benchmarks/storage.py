"""What becomes of the ratios of shapes.py where files are stored otherwise: larger or smaller, under other codecs, by other writers, with
rows deleted.

It takes about a quarter of an hour, so `make bench` does not run it: `make bench-storage` does, keeps what it measured in
benchmarks/storage.json, and writes the part of docs/performance.md that shows it. A way that is measured alone takes the place of what was
kept of it. Each way is a run of shapes.py in a process of its own, over four of its shapes: the others are like one of these.

Java's files need Java 17 or newer.

Run: python benchmarks/storage.py RESULTS DOCS [--only "uncompressed"] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from _kept_parts import keep_measure
from _page import machine
from _paired import RESULTS
from _shapes_section import CASES, Shapes
from _storage_section import WAYS, write_section

SHAPES: Final = ("mixed", "wide", "nested", "small integers")


def main() -> None:
    """Measure the ways, keep them, write the page's part after each."""
    options = _options()
    for way in options.only:
        print(f"== {way}: shapes.py {WAYS[way]}", flush=True)
        cells = _cells(_measured(WAYS[way], options))
        measured = {"machine": machine(), "processes": os.getloadavg()[2], "rounds": options.rounds, "cells": cells}
        keep_measure(options.results, "ways", way, measured, WAYS)
        write_section(options.results, options.docs)


def _measured(arguments: str, options: argparse.Namespace) -> Shapes:
    """Run shapes.py, and return what it kept."""
    command = [sys.executable, str(Path(__file__).with_name("shapes.py")), "--rounds", str(options.rounds), *arguments.split()]
    command += ["--shapes", *options.shapes]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(command, check=True, env={**os.environ, RESULTS: folder})
        return Shapes(json.loads((Path(folder) / "shapes.json").read_text()))


def _cells(shapes: Shapes) -> dict[str, dict[str, list[float | None]]]:
    """Return of each case and shape the ratio of processor time to the floor, and how many milliseconds more where the floor takes few."""
    return {
        case: {
            shape: [round(ratio, 3), None if (more := shapes.more(shape, case)) is None else round(more, 2)]
            for shape in shapes.cases
            if (ratio := shapes.ratio(shape, case)) is not None
        }
        for case in CASES
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="where results are kept; they stay for ways that are not measured")
    parser.add_argument("docs", type=Path, help="the folder of performance.md")
    parser.add_argument("--only", nargs="*", default=list(WAYS), choices=WAYS, metavar="WAY", help=", ".join(WAYS))
    parser.add_argument("--shapes", nargs="*", default=SHAPES, metavar="NAME", help="shapes of shapes.py")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
