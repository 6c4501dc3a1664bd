"""Every benchmark in turn, within a time, the most telling first. What they print and keep becomes docs/performance.md.

A benchmark that fails, or takes longer than it may, does not keep the others from running; the page says so. Spark's come last: they need
Java and take the longest.

Run: python benchmarks/_all.py RESULTS DOCS [--minutes 25] [--only scans engines]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from _page import write_page
from _paired import RESULTS

FOLDER: Final = Path(__file__).parent
_LEAST_S: Final = 20
"""With less time left no benchmark is begun."""


@dataclass(frozen=True)
class Run:
    """One benchmark as `make bench` runs it.

    Attributes:
        seconds: that it may take.
    """

    name: str
    arguments: str = ""
    seconds: int = 180


RUNS: Final = (
    Run("engines", "--rounds 5 --memory-files 8", 240),
    Run("scans", "--rounds 5"),
    Run("shapes", "--rounds 3", 300),
    Run("writes", "--rounds 3", 240),
    Run("tpch_engines", "--scale 1 --rounds 2", 420),
    Run("small_files", "--rounds 3"),
    Run("append_scan", "--rounds 6 --commits 10"),
    Run("planning", "--rounds 5"),
    Run("verify", "--size-mb 768 --rounds 5"),
    Run("stream_memory", "--files 4 16 32"),
    Run("column_keys", "--rounds 5", 120),
    Run("commit_cost", "--snapshots 500", 120),
    Run("import_time", "--rounds 5", 60),
    Run("ags1_throughput", "", 60),
    Run("parquet_columns", "--size-mib 256 --rounds 3", 120),
    Run("orc_columns", "--rounds 3", 120),
    Run("audit", "--files 5000 --rounds 2", 120),
    Run("reencrypt_migrate", "--size-mb 200 --rounds 1", 150),
    Run("shred", "--files 50", 60),
    Run("spark_vs_java", "--rows 3000000 --rounds 3", 300),
    Run("spark_start", "--rounds 3", 180),
    Run("tpch", "--scale 0.05 --rounds 1", 300),
)


def main() -> int:
    """Run them, keep how each went, write the page; 1 if one failed or missed its aim."""
    options = _options()
    shutil.rmtree(options.results, ignore_errors=True)
    options.results.mkdir(parents=True)
    end = time.monotonic() + options.minutes * 60
    went_well = True
    for run in RUNS:
        if options.only and run.name not in options.only:
            continue
        print(f"== {run.name}.py {run.arguments}", flush=True)
        left = min(run.seconds, end - time.monotonic())
        kept = {"outcome": "was not begun: no time was left", "printed": ""} if left < _LEAST_S else _ran(run, left, options.results)
        went_well &= kept["outcome"] == "done"
        (options.results / f"{run.name}.run.json").write_text(json.dumps({**asdict(run), **kept}))
    write_page(options.results, options.docs)
    return 0 if went_well else 1


def _ran(run: Run, seconds: float, results: Path) -> dict[str, str]:
    """Run one benchmark, and end it with all that it began when its time is over."""
    command = [sys.executable, str(FOLDER / f"{run.name}.py"), *run.arguments.split()]
    environment = {**os.environ, RESULTS: str(results)}
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True)
    try:
        printed, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed, said = process.communicate()
        outcome = f"was stopped after {seconds:.0f} s"
    else:
        outcome = "done" if process.returncode == 0 else "missed an aim" if "MISSED" in printed else f"failed with {process.returncode}"
    print(printed, end="")
    if outcome not in ("done", "missed an aim"):
        print(said, file=sys.stderr, end="")
    print(f"   {outcome}, {time.monotonic() - begin:.0f} s", flush=True)
    return {"outcome": outcome, "printed": printed}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("docs", type=Path)
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
