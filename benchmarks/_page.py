"""docs/performance.md and its plots, of the results that the benchmarks kept.

Run by `make bench` through _all.py; by itself, to write the page again: python benchmarks/_page.py RESULTS DOCS
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyiceberg
from _bars import Bar, bars_svg
from _growth_section import KEPT, section
from _paired import OURS, Case, Took

PREAMBLE = """# Performance

![Processor time of appends, deletes, upserts and scans, divided by that of plain PyIceberg](images/speed.svg)

- **Writing** takes less processor time than plain PyIceberg, mostly because only columns whose values repeat get a dictionary
  ([writes](#writing)).
- **Reading** all columns takes as long as Arrow takes to read the same files with their key, a few columns somewhat longer; beside plain
  PyIceberg that is faster or slower, by what the table holds ([scans](#reading)).
- **DuckDB and Polars** read encrypted tables through Arrow, and so mostly slower than their own readers read plaintext files
  ([engines](#duckdb-and-polars)).
- **Spark** runs about as fast as encrypted Iceberg Java, and slower than on plain Parquet ([Spark](#spark-sql-and-tpc-h)).

`make bench` wrote this page; [benchmarks](../benchmarks/README.md) says what each script does. A ratio is tablecrypt's time by the other
side's in the same round, as a median with the lowest and the highest round: below 1, tablecrypt is faster. Processor time is that of all
threads, which other work on the machine disturbs less than the clock. Figures of other machines differ; compare ratios, not milliseconds.

`pyarrow with the key` and `pyarrow, plaintext` are the floor: Arrow alone reads or writes the same columns, knowing the files and, with the
key, their keys, and checks and plans nothing. tablecrypt and PyIceberg both decode with Arrow, so no ratio to PyIceberg can go below that
of the floor; a ratio of 1 to `pyarrow with the key` would mean that all the time is Arrow's.
"""

TITLES: Final = {
    "engines": "DuckDB and Polars",
    "scans": "Reading",
    "writes": "Writing",
    "tpch_engines": "TPC-H in DuckDB and Polars",
    "small_files": "Many small files",
    "append_scan": "Appends and scans, with calls to the key service",
    "planning": "Planning a scan",
    "verify": "Verifying every byte",
    "column_keys": "Protected columns",
    "commit_cost": "Commits to a table with a long history",
    "import_time": "Importing the package",
    "ags1_throughput": "Encrypting a stream",
    "parquet_columns": "Encrypting Parquet columns",
    "orc_columns": "Encrypting ORC columns",
    "audit": "Auditing",
    "reencrypt_migrate": "Re-encrypting and migrating",
    "shred": "Shredding",
    "spark_vs_java": "Spark jobs beside Iceberg Java",
    "tpch": "Spark SQL and TPC-H",
}
"""What each benchmark measures, in a reader's words."""


def write_page(results: Path, docs: Path) -> None:
    """Write docs/performance.md and its plots.

    Args:
        results: what each benchmark kept (NAME.json), and how `_all.py` saw it go (NAME.run.json); either may be missing.
        docs: where the page goes.
    """
    # _all.py wrote how each went in the order in which they ran.
    runs = {path.name.removesuffix(".run.json"): json.loads(path.read_text()) for path in _by_time(results.glob("*.run.json"))}
    found = {path.stem: json.loads(path.read_text()) for path in _by_time(results.glob("*.json")) if not path.name.endswith(".run.json")}
    parts = [PREAMBLE, f"Measured with {machine()}; {os.getloadavg()[2]:.1f} processes ran on average in the last 15 minutes.\n"]
    for name in dict.fromkeys([*runs, *found]):
        parts += _section(docs, name, runs.get(name, {}), found.get(name, {}))
    (docs / "performance.md").write_text("\n".join([*parts, section(KEPT, docs)]) + "\n")


def _by_time(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: path.stat().st_mtime_ns)


def _section(docs: Path, name: str, run: dict[str, Any], kept: dict[str, Any]) -> Iterator[str]:
    """One benchmark: its ratios where it kept any, else what it printed."""
    arguments = run["arguments"].split() if run else kept["arguments"]
    yield f"## {TITLES.get(name, name)}\n"
    yield f"`{' '.join([f'{name}.py', *arguments])}`\n"
    if run and run["outcome"] not in ("done", "missed an aim"):
        yield f"This benchmark {run['outcome']}.\n"
    cases = [Case(each["name"], {}, each["aim"], each["against"], took=_took(each["took"])) for each in kept.get("cases", [])]
    if cases:
        yield f"{len(cases[0].took[OURS])} rounds.\n"
        yield "\n".join(_table(cases)) + "\n"
        yield _figure(docs, name, _bars(cases), f"processor time of tablecrypt by the other side's, {name}.py")
    if run and not cases and run["printed"].strip():
        yield f"```text\n{run['printed'].strip()}\n```\n"


def machine() -> str:
    """Return what measured: processors and versions."""
    versions = f"Python {platform.python_version()}, pyarrow {pa.__version__}, PyIceberg {pyiceberg.__version__}"
    return f"{os.cpu_count()} cores ({platform.machine()}), {versions}"


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
    return bars_svg(bars, "Processor time relative to the other side", "as long")


if __name__ == "__main__":
    write_page(Path(sys.argv[1]), Path(sys.argv[2]))
