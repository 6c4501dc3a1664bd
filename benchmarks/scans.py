"""Scans of an encrypted table into Arrow against plain PyIceberg: all of it, some columns, and filters of three kinds.

The table has files of 1,000,000 rows in 6 columns, sorted by the first. Both sides load their table and scan it; see _paired.py. Beside
them pyarrow alone scans the files of either table, which are known to it, and of the encrypted ones the keys: the floor of both sides.

Run: python benchmarks/scans.py [--files 4] [--rows 1000000] [--rounds 9]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from _paired import OURS, Case, run_rounds
from _tables import FLOOR, PLAINTEXT_FLOOR, catalogs_in, dataset_of, files_of, tables_in
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile


def main() -> None:
    """Make the tables, run the rounds, print the figures."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        catalogs = catalogs_in(Path(folder))
        tables_in(catalogs, "t", options.files, options.rows)

        middle = options.files * options.rows // 2
        scans = [
            ("full scan", 1.0, Scan()),
            ("stream of batches", 1.0, Scan(is_stream=True)),
            ("2 of 6 columns", 0.85, Scan(columns=("k", "v"))),
            ("filter k = 7", 0.9, Scan("k = 7", pc.field("k") == 7)),
            ("filter k = 7, 1 column", 0.9, Scan("k = 7", pc.field("k") == 7, ("v",))),
            ("filter v < 0.9", 0.9, Scan("v < 0.9", pc.field("v") < 0.9)),
            ("sorted column, 101 rows", 0.8, _between(middle, middle + 101)),
            ("sorted column, a half", 0.8, _between(middle // 2, middle * 3 // 2)),
        ]
        cases = [_case(catalogs, name, aim, scan) for name, aim, scan in scans]
        count = {side: partial(_count, catalog) for side, catalog in zip((OURS, "PyIceberg"), catalogs, strict=True)}
        run_rounds([*cases, Case("count of k = 7", {**count}, 0.9)], options.rounds)


@dataclass(frozen=True)
class Scan:
    """What is read: the filter is there for the tables and again for pyarrow."""

    row_filter: str = ""
    arrow_filter: pc.Expression | None = None
    columns: tuple[str, ...] | None = None
    is_stream: bool = False

    def of_table(self, catalog: Catalog) -> int:
        """Load the table and scan it; how many rows that gave."""
        scan = catalog.load_table("db.t").scan(selected_fields=self.columns or ("*",))
        if self.row_filter:
            scan = scan.filter(self.row_filter)
        if self.is_stream:
            return sum(len(batch) for batch in scan.to_arrow_batch_reader())
        return int(scan.to_arrow().num_rows)

    def of_files(self, files: list[DataFile]) -> int:
        """Let pyarrow alone scan the files, which it opens for this."""
        columns = None if self.columns is None else list(self.columns)
        dataset = dataset_of(files)
        if self.is_stream:
            return sum(len(batch) for batch in dataset.to_batches(columns=columns, filter=self.arrow_filter))
        return int(dataset.to_table(columns=columns, filter=self.arrow_filter).num_rows)


def _between(first: int, end: int) -> Scan:
    column = pc.field("id")
    return Scan(f"id >= {first} and id < {end}", (column >= first) & (column < end))


def _case(catalogs: tuple[Catalog, Catalog], name: str, aim: float, scan: Scan) -> Case:
    ours, plain = catalogs
    sides: dict[str, Callable[[], Any]] = {
        OURS: partial(scan.of_table, ours),
        "PyIceberg": partial(scan.of_table, plain),
        FLOOR: partial(scan.of_files, files_of(ours.load_table("db.t"))),
        PLAINTEXT_FLOOR: partial(scan.of_files, files_of(plain.load_table("db.t"))),
    }
    assert len({read() for read in sides.values()}) == 1, name
    return Case(name, sides, aim)


def _count(catalog: Catalog) -> int:
    return int(catalog.load_table("db.t").scan("k = 7").count())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of each file")
    parser.add_argument("--rounds", type=int, default=9)
    return parser.parse_args()


if __name__ == "__main__":
    main()
