"""TPC-H in DuckDB and Polars: encrypted tables against the same engines' own readers of plaintext files.

The tables are written to an encrypted and to a plain catalog, in files of the same rows and options. DuckDB runs the 22 queries of tpch.sql
and Polars those of `lineitem` and `orders` that its SQL knows; both have to give the same rows on both sides. A side's time is that of the
whole query: planning, opening files, decrypting, decoding and the engine's own work.

    tablecrypt             scan().to_duckdb(...) and to_polars() of the encrypted tables
    native                 read_parquet and scan_parquet of the plain table's files
    pyarrow with the key   DuckDB over Arrow datasets of the encrypted files, known to them with their keys: nothing is planned, opened or
                           checked for a query, and each file's footer is read once
    pyarrow, plaintext     the same of the plain table's files. (Polars cannot filter their text, which Arrow reads as views.)

Needs the generator `tpchgen-cli` (pip install tpchgen-cli).

Run: python benchmarks/tpch_engines.py [--scale 0.2] [--rounds 3]
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import duckdb
import polars as pl
import pyarrow.parquet as pq
from _paired import OURS, Case, run_rounds
from _tables import ENCRYPTED, FLOOR, PLAINTEXT_FLOOR, catalogs_in, dataset_of, files_of, local_path
from _tpch import TABLES, generate, generator, queries, same_rows
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

NATIVE: Final = "native"
FLOORS: Final = {FLOOR: OURS, PLAINTEXT_FLOOR: NATIVE}
"""Sides that let Arrow alone read, and whose files."""
SIDES: Final = (OURS, NATIVE, *FLOORS)
SHOWN: Final = {
    1: "lineitem by flags",
    4: "orders with late lines",
    6: "sum over lineitem",
    12: "late lines by priority",
    18: "large orders",
}
OF_POLARS: Final = (1, 6, 12)
FILES: Final = 4
"""Of the large tables."""


def main() -> int:
    """Make the tables, check the rows, run the rounds, print the figures."""
    options = _options()
    if (program := generator()) is None:
        print("no tpchgen-cli, which makes the tables: pip install tpchgen-cli")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        generate(program, Path(folder) / "generated", options.scale)
        tables = {
            side: _written(catalog, side, Path(folder)) for side, catalog in zip((OURS, NATIVE), catalogs_in(Path(folder)), strict=True)
        }
        run_rounds([*_cases_of_duckdb(tables), *_cases_of_polars(tables)], options.rounds)
    return 0


def _written(catalog: Catalog, side: str, folder: Path) -> dict[str, Table]:
    tables = {}
    for name in TABLES:
        rows = pq.read_table(folder / "generated" / f"{name}.parquet")
        tables[name] = catalog.create_table(f"db.{name}", rows.schema, properties=ENCRYPTED if side == OURS else {})
        portion = math.ceil(len(rows) / (FILES if name in ("lineitem", "orders") else 1))
        for first in range(0, len(rows), portion):
            tables[name].append(rows.slice(first, portion))
    return tables


def _cases_of_duckdb(tables: dict[str, dict[str, Table]]) -> list[Case]:
    connections = {side: duckdb.connect() for side in SIDES}
    for name in TABLES:
        tables[OURS][name].scan().to_duckdb(name, connections[OURS])
        connections[NATIVE].read_parquet(_files(tables[NATIVE][name])).create_view(name)
        for floor, side in FLOORS.items():
            connections[floor].register(name, dataset_of(files_of(tables[side][name])))

    def rows(numbers: list[int], side: str) -> list[list[Any]]:
        return [connections[side].execute(queries()[number]).fetchall() for number in numbers]

    every = sorted(queries())
    _check(every, rows(every, OURS), rows(every, NATIVE))
    shown = {f"DuckDB, query {number}: {what}": [number] for number, what in SHOWN.items()} | {"DuckDB, all 22 queries": every}
    return [_case(name, partial(rows, numbers), SIDES) for name, numbers in shown.items()]


def _frame(table: Table, side: str) -> pl.LazyFrame:
    return table.to_polars() if side == OURS else pl.scan_parquet(_files(table))


def _cases_of_polars(tables: dict[str, dict[str, Table]]) -> list[Case]:
    def rows(number: int, side: str) -> list[Any]:
        frames = {name: _frame(tables[side][name], side) for name in ("lineitem", "orders")}
        return pl.SQLContext(frames).execute(queries()[number].replace("date'", "DATE '"), eager=True).rows()

    _check(list(OF_POLARS), [rows(number, OURS) for number in OF_POLARS], [rows(number, NATIVE) for number in OF_POLARS])
    return [_case(f"Polars, query {number}: {SHOWN[number]}", partial(rows, number), (OURS, NATIVE)) for number in OF_POLARS]


def _files(table: Table) -> list[str]:
    return [local_path(file) for file in files_of(table)]


def _check(numbers: list[int], ours: list[list[Any]], native: list[list[Any]]) -> None:
    for number, found, expected in zip(numbers, ours, native, strict=True):
        if not same_rows(found, expected):
            raise SystemExit(f"query {number} gives other rows on the encrypted tables: {found[:3]}, expected {expected[:3]}")


def _case(name: str, rows: Callable[[str], Any], sides: tuple[str, ...]) -> Case:
    return Case(name, {side: partial(rows, side) for side in sides}, 1.3, NATIVE)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.2, help="1 is a gigabyte of text")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
