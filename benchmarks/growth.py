"""How costs grow with files, snapshots, columns and rows, for an encrypted table and PyIceberg's plain one.

    files       planning a scan of a table of so many data files
    snapshots   one more commit on a table with so many snapshots
    columns     an append of 2,000 rows in so many columns, and a scan of them
    rows        an append of so many rows in 6 columns, and a scan of them

The exponent is the slope of the line through the logarithms: 1 is as much more time as there is more to do, 0 is no more time.

Run: python benchmarks/growth.py [--most 1000] [--rounds 3]      (--most: files, snapshots and columns; rows are 1,000 times as many)
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
from _paired import OURS, keep
from _tables import ENCRYPTED, catalogs_in, rows_of
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

Curve = dict[str, list[tuple[int, float]]]
BOUNDS: Final = {
    "files: planning": "Up to a few hundred files, loading the table and reading the manifest list; then the task of each file.",
    "snapshots: one more commit": "metadata.json, which lists every snapshot: each commit parses, checks, hashes and writes it.",
    "columns: append": "Arrow encodes a chunk for each column; PyIceberg's checks of the schema, column by column, take a third.",
    "columns: scan": "Arrow opens and decodes a chunk for each column.",
    "rows: append": "Arrow's encoding and compression take four fifths, encryption included.",
    "rows: scan": "Arrow's decoding takes all of it, decryption included.",
}
"""What most of tablecrypt's time goes to, by a profile of 300 files, columns and thousand rows."""


def main() -> None:
    """Measure every curve, print and keep it."""
    options = _options()
    sizes = [size for size in (10, 30, 100, 300, 1000, 3000, 10_000) if size <= options.most]
    curves: dict[str, Curve] = {}
    for name, prepared in CURVES.items():
        with tempfile.TemporaryDirectory() as folder:
            catalogs = dict(zip((OURS, "PyIceberg"), catalogs_in(Path(folder)), strict=True))
            for size in sizes:
                steps = {side: prepared(catalog, side, size) for side, catalog in catalogs.items()}
                _measure(curves, name, size, steps, options.rounds)
    for name, curve in curves.items():
        print(f"  {name}")
        for side, points in curve.items():
            shown = "  ".join(f"{size:,}: {seconds * 1000:.0f} ms" for size, seconds in points)
            print(f"    {side:12}{shown}  exponent {exponent(points):.2f}")
    keep("curves", curves)


def exponent(points: list[tuple[int, float]]) -> float:
    """Return the slope of the line through the logarithms of sizes and times."""
    if len(points) < 2:
        return math.nan
    return statistics.linear_regression([math.log(size) for size, _ in points], [math.log(took) for _, took in points]).slope


def _measure(curves: dict[str, Curve], name: str, size: int, steps: dict[str, dict[str, Callable[[], object]]], rounds: int) -> None:
    for step in steps[OURS]:
        took: dict[str, list[float]] = {side: [] for side in steps}
        for _ in range(rounds):
            for side in steps:
                start = time.process_time()
                steps[side][step]()
                took[side].append(time.process_time() - start)
        curve = curves.setdefault(f"{name}: {step}", {side: [] for side in steps})
        for side, seconds in took.items():
            curve[side].append((size * (1000 if name == "rows" else 1), statistics.median(seconds)))


def _created(catalog: Catalog, side: str, rows: pa.Table, **properties: str) -> Table:
    if catalog.table_exists("db.t"):
        catalog.purge_table("db.t")
    return catalog.create_table("db.t", rows.schema, properties={**(ENCRYPTED if side == OURS else {}), **properties})


def _files(catalog: Catalog, side: str, size: int) -> dict[str, Callable[[], object]]:
    rows = rows_of(0, 10 * size)
    table = _created(catalog, side, rows, **{"write.target-file-size-bytes": str(rows.nbytes // size)})
    table.append(pa.Table.from_batches(rows.to_batches(max_chunksize=10)))
    return {"planning": lambda: len(list(catalog.load_table("db.t").scan("id >= 0").plan_files()))}


def _snapshots(catalog: Catalog, side: str, size: int) -> dict[str, Callable[[], object]]:
    rows = rows_of(0, 10)
    table = _created(catalog, side, rows)
    for _ in range(size):
        table.append(rows)
    return {"one more commit": lambda: catalog.load_table("db.t").append(rows)}


def _columns(catalog: Catalog, side: str, size: int) -> dict[str, Callable[[], object]]:
    values = rows_of(0, 2000)
    rows = pa.table({f"c{number}": values.column(number % 6) for number in range(size)})
    return _append_and_scan(_created(catalog, side, rows), rows)


def _rows(catalog: Catalog, side: str, size: int) -> dict[str, Callable[[], object]]:
    rows = rows_of(0, 1000 * size)
    return _append_and_scan(_created(catalog, side, rows), rows)


def _append_and_scan(table: Table, rows: pa.Table) -> dict[str, Callable[[], object]]:
    table.append(rows)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    first = snapshot.snapshot_id
    return {"append": lambda: table.append(rows), "scan": lambda: table.scan(snapshot_id=first).to_arrow().num_rows}


CURVES = {"files": _files, "snapshots": _snapshots, "columns": _columns, "rows": _rows}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
