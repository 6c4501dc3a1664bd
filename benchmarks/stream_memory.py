"""Peak memory of a stream of rows: a table that grows, read in a process of its own that keeps no batch.

The rows are those of the shape `mixed` (_shapes.py), in files of as many. Each way to stream reads all of the table at each of its sizes.
The kernel says how far the process rises above what it held when the table was loaded, and how much it held in each quarter of the time.
What the stream gives out is a part of that: one batch, whose size is shown.

    batch reader      table.scan().to_arrow_batch_reader()
    filter            the same with a filter that one row in 100 passes
    dataset           table.scan().to_arrow_dataset().scanner().to_reader()
    deletes           the batch reader, where a deletion vector takes one row in 100

Run: python benchmarks/stream_memory.py [--rows 1000000] [--files 4 16 64]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, cast

import pyarrow as pa
from _shapes import SHAPES
from _tables import ENCRYPTED, catalogs_in

from tablecrypt.table.table import EncryptedTable

AIM_MB: Final = 300
_MOST_GROWTH_MB: Final = 120
"""Of the peak, from the second largest table to the largest. Those of one table differ by up to 100 between runs."""
_SAMPLES_A_SECOND: Final = 100
_MEGABYTE: Final = 1_000_000
WAYS: Final[dict[str, Callable[[EncryptedTable], pa.RecordBatchReader]]] = {
    "batch reader": lambda table: table.scan().to_arrow_batch_reader(),
    "filter": lambda table: table.scan("k = 7").to_arrow_batch_reader(),
    "dataset": lambda table: table.scan().to_arrow_dataset().scanner().to_reader(),
    "deletes": lambda table: table.scan().to_arrow_batch_reader(),
}
_KEPT: Final = "db.rows"
_DELETED: Final = "db.deleted"


def main() -> int:
    """Let the tables grow, read each size, print the figures; 1 where a stream takes too much or grows with the table."""
    options = _options()
    (shape,) = (each for each in SHAPES if each.name == "mixed")
    peaks: dict[str, list[float]] = {}

    with tempfile.TemporaryDirectory() as folder:
        catalog, _ = catalogs_in(Path(folder))
        tables = [catalog.create_table(name, shape.file(0, 1).schema, properties=ENCRYPTED) for name in (_KEPT, _DELETED)]
        written = 0
        for files in options.files:
            for table in tables:
                for number in range(written, files):
                    table.append(shape.file(number, options.rows))
            written = files
            tables[1].refresh().delete("k = 7")

            size = shape.file(0, options.rows).nbytes * files / _MEGABYTE
            print(f"{files} files of {options.rows:,} rows, {size:,.0f} MB in Arrow")
            for way in WAYS:
                told = _read_apart(Path(folder), way)
                peaks.setdefault(way, []).append(told["peak"])
                quarters = ", ".join(f"{each:.0f}" for each in told["quarters"])
                print(f"  {way:14} peak {told['peak']:4.0f} MB, a batch {told['batch']:3.0f} MB; in each quarter of the time {quarters} MB")

    missed = [way for way, each in peaks.items() if max(each) > AIM_MB or each[-1] - each[-2:][0] > _MOST_GROWTH_MB]
    print(f"aim {AIM_MB} MB, flat: {'MISSED by ' + ', '.join(missed) if missed else 'met'}")
    return 1 if missed else 0


def _read_apart(folder: Path, way: str) -> dict[str, Any]:
    """Read a table as a stream in a process of its own. Returns megabytes: the peak, the longest batch, and by quarters."""
    told = folder / "told.json"
    process = multiprocessing.get_context("spawn").Process(target=_read, args=(folder, way, told))
    process.start()
    process.join()
    answer: dict[str, Any] = json.loads(told.read_text())
    return answer


def _read(folder: Path, way: str, told: Path) -> None:
    catalog, _ = catalogs_in(folder)
    table = cast(EncryptedTable, catalog.load_table(_DELETED if way == "deletes" else _KEPT))
    # All modules are loaded by the first rows.
    WAYS[way](table).read_next_batch()
    before, over = _memory("VmRSS"), Event()
    samples: list[int] = []
    sampler = Thread(target=_sample, args=(samples, over), daemon=True)
    # The kernel counts the peak from here on.
    Path("/proc/self/clear_refs").write_text("5")
    sampler.start()

    longest = 0
    for batch in WAYS[way](table):
        longest = max(longest, batch.nbytes)

    over.set()
    sampler.join()
    quarter = max(1, len(samples) // 4)
    quarters = [statistics.mean(samples[start : start + quarter]) - before for start in range(0, 4 * quarter, quarter) if samples[start:]]
    peak = _memory("VmHWM") - before
    told.write_text(
        json.dumps({"peak": peak / _MEGABYTE, "batch": longest / _MEGABYTE, "quarters": [each / _MEGABYTE for each in quarters]})
    )


def _sample(samples: list[int], over: Event) -> None:
    while not over.is_set():
        samples.append(_memory("VmRSS"))
        time.sleep(1 / _SAMPLES_A_SECOND)


def _memory(name: str) -> int:
    """Bytes, as the kernel counts them."""
    line = next(each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(name))
    return int(line.split()[1]) * 1024


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of each file")
    parser.add_argument("--files", type=int, nargs="+", default=[4, 16, 64], help="how many there are, one size after another")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
