"""DuckDB and Polars on an encrypted table, against the same engines on plaintext: files of the same rows, and PyIceberg's plain table.

The table has files of 1,000,000 rows in 6 columns, sorted by the first. A round runs every query of every side once, in changing order, and
the first round is not counted. A ratio is of one round: tablecrypt's time by the other side's, on the clock and of all processors. Other
work on the machine disturbs the second less.

    native      DuckDB's or Polars' own Parquet reader on plaintext files

Then each way to aggregate a table runs in a process of its own on 4 files and on more, and shows how far its memory rises.

Run: python benchmarks/engines.py [--files 4] [--rows 1000000] [--rounds 9] [--memory-files 16]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from _paired import OURS, Case, run_rounds
from _tables import FLOOR, PLAINTEXT_FLOOR, dataset_of, files_of, rows_of
from pyiceberg.catalog import load_catalog as load_plain_catalog
from pyiceberg.table import Table

from tablecrypt import load_catalog
from tablecrypt.kms.memory import MemoryKeyManagementClient

KEY_ID = "benchmark"
KEY = bytes(range(32))
KMS = {"encryption.kms-type": "memory", "kms.memory.name": "engines"}
GROUP_BY = "SELECT k, count(*), sum(v) FROM {} GROUP BY k ORDER BY k"
NARROW = "SELECT sum(v), max(name) FROM {} WHERE id BETWEEN 1500000 AND 1500100"
WIDE = "SELECT sum(v) FROM {} WHERE k = 7"
EVERY = "SELECT max(name), max(v), max(w), max(id), max(k), max(z) FROM {}"
QUERIES: dict[str, tuple[str, float | None, str]] = {
    "group by": (GROUP_BY, 1.3, "native"),
    "narrow filter": (NARROW, 1.3, FLOOR),
    "filter k = 7": (WIDE, None, "native"),
    "all columns": (EVERY, None, "native"),
}


@dataclass(frozen=True)
class Sides:
    """The same rows in an encrypted table, in PyIceberg's, and in files; `floors` are datasets of pyarrow's over those of the tables."""

    encrypted: Table
    plain: Table
    files: str
    floors: dict[str, ds.Dataset]
    connection: duckdb.DuckDBPyConnection


def main() -> None:
    """Make the tables, run the rounds, print the figures."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        sides = _sides(Path(folder), options.files, options.rows)
        run_rounds(_cases(sides), options.rounds)
    with tempfile.TemporaryDirectory() as folder:
        _report_memory(Path(folder), options)


def _sides(folder: Path, files: int, count: int) -> Sides:
    MemoryKeyManagementClient(KMS).create_key(KEY_ID, KEY)
    encrypted = _encrypted_table(folder)
    catalog = load_plain_catalog("plain", type="sql", uri=f"sqlite:///{folder}/plain.db", warehouse=f"file://{folder}/plain")
    catalog.create_namespace("db")
    plain = catalog.create_table("db.t", rows_of(0, 1).schema)
    (folder / "files").mkdir()
    for number in range(files):
        rows = rows_of(number, count)
        encrypted.append(rows)
        plain.append(rows)
        pq.write_table(rows, folder / "files" / f"{number}.parquet", compression="zstd")
    connection = duckdb.connect()
    encrypted.scan().to_duckdb("encrypted", connection)
    floors = {FLOOR: dataset_of(files_of(encrypted)), PLAINTEXT_FLOOR: dataset_of(files_of(plain))}
    for name, dataset in floors.items():
        connection.register(name, dataset)
    return Sides(encrypted, plain, f"{folder}/files/*.parquet", floors, connection)


def _encrypted_table(folder: Path) -> Table:
    catalog = load_catalog(
        "ours", **{"type": "tablecrypt", "uri": f"sqlite:///{folder}/ours.db", "warehouse": f"file://{folder}/ours", **KMS}
    )
    catalog.create_namespace_if_not_exists("db")
    if catalog.table_exists("db.t"):
        return catalog.load_table("db.t")
    return catalog.create_table("db.t", rows_of(0, 1).schema, properties={"encryption.key-id": KEY_ID})


def _cases(sides: Sides) -> list[Case]:
    def sql(query: str, source: str) -> Callable[[], Any]:
        return lambda: sides.connection.execute(query.format(source)).fetchall()

    def plain(query: str) -> Callable[[], Any]:
        return lambda: sides.plain.scan().to_duckdb("t").execute(query.format("t")).fetchall()

    native = f"read_parquet('{sides.files}')"
    cases: list[Case] = []
    for name, (query, aim, against) in QUERIES.items():
        ways = {OURS: sql(query, "encrypted"), "native": sql(query, native), "PyIceberg": plain(query)}
        floors = {floor: sql(query, f'"{floor}"') for floor in sides.floors}
        cases.append(Case(f"DuckDB, {name}", {**ways, **floors}, aim, against))
    for name, filtered in {"narrow filter": pl.col("id").is_between(1_500_000, 1_500_100), "filter k = 7": pl.col("k") == 7}.items():
        frames: dict[str, Callable[[], pl.LazyFrame]] = {
            OURS: sides.encrypted.to_polars,
            "native": partial(pl.scan_parquet, sides.files),
            "PyIceberg": sides.plain.to_polars,
            **{floor: partial(pl.scan_pyarrow_dataset, dataset) for floor, dataset in sides.floors.items()},
        }
        cases.append(Case(f"Polars, {name}, sum", {side: partial(_summed, frame, filtered) for side, frame in frames.items()}))
    return cases


def _summed(frame: Callable[[], pl.LazyFrame], filtered: pl.Expr) -> float:
    return float(frame().filter(filtered).select(pl.col("v").sum()).collect().item())


def _report_memory(folder: Path, options: argparse.Namespace) -> None:
    MemoryKeyManagementClient(KMS).create_key(KEY_ID, KEY)
    table = _encrypted_table(folder)
    risen: dict[str, list[int]] = {}
    sizes = (4, options.memory_files)
    written = 0
    for files in sizes:
        while written < files:
            table.append(rows_of(written, options.rows))
            written += 1
        for way in ("DuckDB, group by", "DuckDB, all columns", "Polars, filter k = 7, sum", "to_arrow"):
            risen.setdefault(way, []).append(_peak_of(folder, way))
    size = rows_of(0, options.rows).nbytes * options.memory_files / 1e6
    print(f"  peak memory above the idle process, with {sizes[0]} and with {sizes[1]} files ({size:.0f} MB in Arrow)")
    for way, peaks in risen.items():
        print(f"  {way:28}{peaks[0] / 1e6:8.0f} MB{peaks[1] / 1e6:8.0f} MB")


def _peak_of(folder: Path, way: str) -> int:
    told = folder / "peak.json"
    process = multiprocessing.get_context("spawn").Process(target=_read_alone, args=(folder, way, told))
    process.start()
    process.join()
    return int(json.loads(told.read_text()))


def _read_alone(folder: Path, way: str, told: Path) -> None:
    MemoryKeyManagementClient(KMS).create_key(KEY_ID, KEY)
    table = _encrypted_table(folder)
    reads: dict[str, Callable[[], Any]] = {
        "DuckDB, group by": lambda: table.scan().to_duckdb("t").execute(GROUP_BY.format("t")).fetchall(),
        "DuckDB, all columns": lambda: table.scan().to_duckdb("t").execute(EVERY.format("t")).fetchall(),
        "Polars, filter k = 7, sum": lambda: _summed(table.to_polars, pl.col("k") == 7),
        "to_arrow": lambda: table.scan().to_arrow().num_rows,
    }
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    reads[way]()
    told.write_text(json.dumps(_memory("VmHWM") - before))


def _memory(name: str) -> int:
    """Bytes, as the kernel counts them."""
    line = next(each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(name))
    return int(line.split()[1]) * 1024


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of each file")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--memory-files", type=int, default=16)
    return parser.parse_args()


if __name__ == "__main__":
    main()
