"""Scans of an encrypted table into Arrow against plain PyIceberg: all of it, some columns, and filters of three kinds.

The table has files of 1,000,000 rows in 6 columns, sorted by the first. Both sides load their table and scan it; see _paired.py.

Run: python benchmarks/scans.py [--files 4] [--rows 1000000] [--rounds 9]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from _paired import OURS, Case, run_rounds
from _tables import catalogs_in, tables_in
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table


def main() -> None:
    """Make the tables, run the rounds, print the figures."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        catalogs = catalogs_in(Path(folder))
        tables_in(catalogs, "t", options.files, options.rows)

        def case(name: str, aim: float, read: Callable[[Table], int]) -> Case:
            sides = {side: partial(_loaded, catalog, read) for side, catalog in zip((OURS, "PyIceberg"), catalogs, strict=True)}
            assert sides[OURS]() == sides["PyIceberg"](), name
            return Case(name, {**sides}, aim)

        middle = options.files * options.rows // 2
        cases = [
            case("full scan", 1.0, lambda table: table.scan().to_arrow().num_rows),
            case("stream of batches", 1.0, lambda table: sum(len(batch) for batch in table.scan().to_arrow_batch_reader())),
            case("2 of 6 columns", 0.85, lambda table: table.scan(selected_fields=("k", "v")).to_arrow().num_rows),
            case("filter k = 7", 0.9, lambda table: table.scan("k = 7").to_arrow().num_rows),
            case("filter k = 7, 1 column", 0.9, lambda table: table.scan("k = 7", selected_fields=("v",)).to_arrow().num_rows),
            case("filter v < 0.9", 0.9, lambda table: table.scan("v < 0.9").to_arrow().num_rows),
            case("sorted column, 101 rows", 0.8, lambda table: table.scan(f"id >= {middle} and id <= {middle + 100}").to_arrow().num_rows),
            case(
                "sorted column, a half",
                0.8,
                lambda table: table.scan(f"id >= {middle // 2} and id < {middle * 3 // 2}").to_arrow().num_rows,
            ),
            case("count of k = 7", 0.9, lambda table: table.scan("k = 7").count()),
        ]
        run_rounds(cases, options.rounds)


def _loaded(catalog: Catalog, read: Callable[[Table], int]) -> int:
    return read(catalog.load_table("db.t"))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of each file")
    parser.add_argument("--rounds", type=int, default=9)
    return parser.parse_args()


if __name__ == "__main__":
    main()
