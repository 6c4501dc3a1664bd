"""docs/performance.md and its plots, of the results that the benchmarks kept.

Run by `make bench` through _all.py; by itself, to write the page again: python benchmarks/_page.py RESULTS DOCS
"""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyiceberg
from _bars import Bar, bars_svg
from _growth_section import KEPT
from _growth_section import section as growth_section
from _paired import OURS, Case, Took
from _shapes_section import Shapes, kept_shapes
from _shapes_section import section as shapes_section
from _storage_section import KEPT as KEPT_OF_STORAGE
from _storage_section import section as storage_section

_HEAD: Final = """# Performance

![Processor time of appends, deletes, upserts and scans, divided by that of plain PyIceberg](images/speed.svg)
"""
_ANSWERS: Final = """- **What does reading cost me?** All columns take {full_scan} the processor time of Arrow alone,
  which is given the files and their key;
  one column takes {one_column}: a scan also finds, opens and checks its files, which counts where there is little to read. Beside plain
  PyIceberg, which decrypts nothing, all columns take {plain_scan} ([shapes](#reading-and-writing-data-of-many-shapes),
  [reading](#what-reading-costs)).
- **What does writing cost me?** An append takes {append} the processor time of Arrow alone with a key, and {plain_append} that of plain
  PyIceberg ([writing](#what-writing-costs)).
- **What do DuckDB and Polars cost me?** They read encrypted tables through Arrow, and so mostly slower than their own readers read
  plaintext files{engines} ([engines](#what-duckdb-and-polars-cost)).
- **What does Spark cost me?** It runs about as fast as encrypted Iceberg Java, and slower than on plain Parquet
  ([Spark](#what-spark-costs))."""
_HOW: Final = """`make bench` wrote this page; [benchmarks](../benchmarks/README.md) says what each script does. A ratio is
tablecrypt's time by the other side's in the same round, as a median of the rounds: below 1, tablecrypt is faster. Processor time is that of
all threads, which other work on the machine disturbs less than the clock. Figures of other machines differ; compare ratios, not
milliseconds. The commands, and every case with its lowest and highest round, stand [below](#commands-and-rows).

`pyarrow with the key` and `pyarrow, plaintext` are the floor: Arrow alone reads or writes the same columns, knowing the files and, with the
key, their keys, and checks and plans nothing. tablecrypt and PyIceberg both decode with Arrow, so no ratio to PyIceberg can go below that
of the floor; a ratio of 1 to `pyarrow with the key` would mean that all the time is Arrow's.
"""
TITLES: Final = {
    "shapes": "Data of many shapes",
    "engines": "DuckDB and Polars",
    "scans": "Reading",
    "writes": "Writing",
    "tpch_engines": "TPC-H in DuckDB and Polars",
    "small_files": "Many small files",
    "append_scan": "Appends and scans, with calls to the key service",
    "planning": "Planning a scan",
    "verify": "Verifying every byte",
    "stream_memory": "Memory of a stream",
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
    "spark_start": "A fresh Spark session",
    "tpch": "Spark SQL and TPC-H",
}
"""What each benchmark measures, in a reader's words."""
QUESTIONS: Final = {
    "What reading costs": ("scans", "small_files", "append_scan", "planning", "stream_memory"),
    "What writing costs": ("writes", "commit_cost"),
    "What DuckDB and Polars cost": ("engines", "tpch_engines"),
    "What Spark costs": ("spark_vs_java", "spark_start", "tpch"),
    "What protected columns cost": ("column_keys",),
    "What the formats cost": ("ags1_throughput", "parquet_columns", "orc_columns"),
    "What operations take": ("verify", "audit", "reencrypt_migrate", "shred", "import_time"),
}
"""The sections, and of which benchmarks they are."""


@dataclass(frozen=True)
class Row:
    """A case against one other side: tablecrypt's time, and its ratios (median, least, greatest) on the clock and of the processors."""

    case: str
    milliseconds: float
    against: str
    clock: tuple[float, float, float]
    processor: tuple[float, float, float]
    aim: float | None


@dataclass
class Found:
    """What is known of one benchmark.

    Attributes:
        command: as it ran.
        outcome: why there are no figures, if that is so.
        rows: empty where it only printed.
        printed: what it printed.
    """

    name: str
    command: str
    outcome: str = ""
    rounds: int = 0
    rows: list[Row] = field(default_factory=list)
    printed: str = ""


def write_page(results: Path, docs: Path) -> None:
    """Write docs/performance.md and its plots.

    Args:
        results: what each benchmark kept (NAME.json), and how `_all.py` saw it go (NAME.run.json); either may be missing.
        docs: where the page goes.
    """
    # _all.py wrote how each went in the order in which they ran.
    runs = {path.name.removesuffix(".run.json"): json.loads(path.read_text()) for path in _by_time(results.glob("*.run.json"))}
    kept = {path.stem: json.loads(path.read_text()) for path in _by_time(results.glob("*.json")) if not path.name.endswith(".run.json")}
    found = {name: _found(name, runs.get(name, {}), kept.get(name, {})) for name in dict.fromkeys([*runs, *kept])}
    measured = f"Measured with {machine()}; {os.getloadavg()[2]:.1f} processes ran on average in the last 15 minutes.\n"
    # What shapes.py has just measured names no machine: it is this one. What the repository keeps names its own.
    shapes = kept_shapes({"machine": machine(), **kept["shapes"]} if "shapes" in kept else None)
    (docs / "performance.md").write_text(page(found, shapes, docs, measured))


def page(found: dict[str, Found], shapes: Shapes, docs: Path, measured: str) -> str:
    """Return the page, and write its plots."""
    parts = [_opening(found, shapes), measured, *shapes_section(shapes, docs), storage_section(KEPT_OF_STORAGE), ""]
    for question, names in QUESTIONS.items():
        parts += _answer(question, [found[name] for name in names if name in found], docs)
    parts += [growth_section(KEPT, docs), "", "## Commands and rows\n", *(line for each in found.values() for line in _rows(each))]
    return "\n".join(parts).rstrip() + "\n"


def _by_time(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: path.stat().st_mtime_ns)


def _found(name: str, run: dict[str, Any], kept: dict[str, Any]) -> Found:
    arguments = run["arguments"].split() if run else kept["arguments"]
    cases = [Case(each["name"], {}, each["aim"], each["against"], took=_took(each["took"])) for each in kept.get("cases", [])]
    outcome = run.get("outcome", "done")
    return Found(
        name,
        " ".join([f"{name}.py", *arguments]),
        "" if outcome in ("done", "missed an aim") else outcome,
        len(cases[0].took[OURS]) if cases else 0,
        [row for case in cases for row in _rows_of(case)],
        run.get("printed", "").strip(),
    )


def _rows_of(case: Case) -> Iterator[Row]:
    milliseconds = statistics.median(took.clock for took in case.took[OURS]) * 1000
    for side in list(case.took)[1:]:
        clock, processor = ((statistics.median(each), min(each), max(each)) for each in (case.ratios(side, at) for at in (0, 1)))
        yield Row(case.name, milliseconds, side, clock, processor, case.aim if side == case.against else None)


def _opening(found: dict[str, Found], shapes: Shapes) -> str:
    native = _range(found["engines"].rows, "native") if "engines" in found else ""
    answers = _ANSWERS.format(
        full_scan=shapes.range("full scan"),
        one_column=shapes.range("one column"),
        plain_scan=shapes.range("full scan", "PyIceberg"),
        append=shapes.range("append"),
        plain_append=shapes.range("append", "PyIceberg"),
        engines=f", {native} the processor time" if native else "",
    )
    # The lines are filled in, so they are wrapped again.
    wrap = partial(textwrap.fill, width=140, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    wrapped = [wrap(" ".join(answer.split())) for answer in re.split(r"\n(?=- )", answers)]
    return "\n".join([_HEAD, *wrapped, "", _HOW])


def _answer(question: str, found: list[Found], docs: Path) -> Iterator[str]:
    """One section: of each benchmark in what range its ratios are, with the plot."""
    if not found:
        return
    yield f"## {question}\n"
    for each in found:
        title = TITLES[each.name]
        rows = f"(#rows-{title.lower().replace(' ', '-').replace(',', '')})"
        if not each.rows:
            yield f"**{title}**: [figures]{rows}.\n"
            continue

        sides = dict.fromkeys(row.against for row in each.rows)
        yield f"**{title}**, in processor time ([every case]{rows}):\n"
        yield "\n".join(f"- beside {side}: {_range(each.rows, side)}" for side in sides) + "\n"
        yield _figure(docs, each.name, _bars(each.rows), f"processor time of tablecrypt by the other side's: {title}")


def _range(rows: list[Row], side: str) -> str:
    """In what range the medians of processor time against a side are."""
    medians = {row.case: row.processor[0] for row in rows if row.against == side}
    if not medians:
        return ""
    worst = max(medians, key=lambda case: medians[case])
    if len(medians) == 1:
        return f"{medians[worst]:.2f} times"
    return f"{min(medians.values()):.2f} to {medians[worst]:.2f} times (the most: {worst})"


def _rows(found: Found) -> Iterator[str]:
    """One benchmark: how it ran, and its ratios where it kept any, else what it printed."""
    yield f"### Rows: {TITLES.get(found.name, found.name)}\n"
    yield f"`{found.command}`\n"
    if found.outcome:
        yield f"This benchmark {found.outcome}.\n"
    if found.rows:
        yield f"{found.rounds} rounds.\n"
        yield "\n".join(_table(found.rows)) + "\n"
    elif found.printed:
        yield f"```text\n{found.printed}\n```\n"


def machine() -> str:
    """Return what measured: processors and versions."""
    versions = f"Python {platform.python_version()}, pyarrow {pa.__version__}, PyIceberg {pyiceberg.__version__}"
    return f"{os.cpu_count()} cores ({platform.machine()}), {versions}"


def _took(kept: dict[str, Any]) -> dict[str, list[Took]]:
    return {side: [Took(*each) for each in times] for side, times in kept.items()}


def _table(rows: Iterable[Row]) -> Iterator[str]:
    yield "| | tablecrypt | against | on the clock | processors | aim |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        clock, processor = (f"{median:.2f} ({low:.2f} to {high:.2f})" for median, low, high in (row.clock, row.processor))
        aim = "" if row.aim is None else f"{row.aim:g}"
        yield f"| {row.case} | {row.milliseconds:.0f} ms | {row.against} | {clock} | {processor} | {aim} |"


def _figure(docs: Path, name: str, svg: str, text: str) -> str:
    (docs / "performance").mkdir(exist_ok=True)
    (docs / "performance" / f"{name}.svg").write_text(svg)
    return f"![{text}](performance/{name}.svg)\n"


def _bars(rows: list[Row]) -> str:
    """The bars of each case against each other side."""
    bars = [Bar(f"{row.case} / {row.against}", *row.processor, row.aim) for row in rows]
    return bars_svg(bars, "Processor time relative to the other side", "as long")


if __name__ == "__main__":
    write_page(Path(sys.argv[1]), Path(sys.argv[2]))
