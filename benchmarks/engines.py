"""DuckDB and Polars on an encrypted table, against the same engines on plaintext: files of the same rows, and PyIceberg's plain table.

The table has files of 1,000,000 rows in 6 columns, sorted by the first. A round runs every query of every side once, in changing order, and
the first round is not counted. A ratio is of one round: tablecrypt's time by the other side's, on the clock and of all processors. Other
work on the machine disturbs the second less.

    native      DuckDB's or Polars' own Parquet reader on plaintext files
    with keys   DuckDB on an Arrow dataset of the encrypted files, each opened beforehand with its key: no planning, no checks
    PyIceberg   `to_duckdb` and `to_polars` of PyIceberg's plain table

Then each way to aggregate a table runs in a process of its own on 4 files and on more, and shows how far its memory rises.

Run: python benchmarks/engines.py [--files 4] [--rows 1000000] [--rounds 9] [--memory-files 16]
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from pyarrow import fs
from pyiceberg.catalog import load_catalog as load_plain_catalog
from pyiceberg.table import Table

from tablecrypt import load_catalog
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.table.table_files import key_metadata_of

KEY_ID = "benchmark"
KEY = bytes(range(32))
KMS = {"encryption.kms-type": "memory", "kms.memory.name": "engines"}
GROUP_BY = "SELECT k, count(*), sum(v) FROM {} GROUP BY k ORDER BY k"
NARROW = "SELECT sum(v), max(name) FROM {} WHERE id BETWEEN 1500000 AND 1500100"
WIDE = "SELECT sum(v) FROM {} WHERE k = 7"
EVERY = "SELECT max(name), max(v), max(w), max(id), max(k), max(z) FROM {}"


class Took(NamedTuple):
    """How long a query took, in seconds."""

    clock: float
    processor: float


@dataclass(frozen=True)
class Sides:
    """The same rows four times."""

    encrypted: Table
    plain: Table
    files: str
    with_keys: ds.Dataset
    connection: duckdb.DuckDBPyConnection


def main() -> None:
    """Make the tables, run the rounds, print the figures."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        sides = _sides(Path(folder), options.files, options.rows)
        _report(_timed(_cases(sides), options.rounds))
    with tempfile.TemporaryDirectory() as folder:
        _report_memory(Path(folder), options)


def _sides(folder: Path, files: int, count: int) -> Sides:
    MemoryKeyManagementClient(KMS).create_key(KEY_ID, KEY)
    encrypted = _encrypted_table(folder)
    catalog = load_plain_catalog("plain", type="sql", uri=f"sqlite:///{folder}/plain.db", warehouse=f"file://{folder}/plain")
    catalog.create_namespace("db")
    plain = catalog.create_table("db.t", _rows(0, 1).schema)
    (folder / "files").mkdir()
    for number in range(files):
        rows = _rows(number, count)
        encrypted.append(rows)
        plain.append(rows)
        pq.write_table(rows, folder / "files" / f"{number}.parquet", compression="zstd")
    connection = duckdb.connect()
    encrypted.scan().to_duckdb("encrypted", connection)
    with_keys = _with_keys(encrypted)
    connection.register("with_keys", with_keys)
    return Sides(encrypted, plain, f"{folder}/files/*.parquet", with_keys, connection)


def _encrypted_table(folder: Path) -> Table:
    catalog = load_catalog(
        "ours", **{"type": "tablecrypt", "uri": f"sqlite:///{folder}/ours.db", "warehouse": f"file://{folder}/ours", **KMS}
    )
    catalog.create_namespace_if_not_exists("db")
    if catalog.table_exists("db.t"):
        return catalog.load_table("db.t")
    return catalog.create_table("db.t", _rows(0, 1).schema, properties={"encryption.key-id": KEY_ID})


def _with_keys(table: Table) -> ds.Dataset:
    fragments, local = [], fs.LocalFileSystem()
    for task in table.scan().plan_files():
        key = key_metadata_of(task.file)
        properties = pe.create_decryption_properties(key.encryption_key.reveal(), aad_prefix=key.aad_prefix)
        options = ds.ParquetFragmentScanOptions(pre_buffer=True, decryption_properties=properties)
        path = task.file.file_path.removeprefix("file://")
        fragments.append(ds.ParquetFileFormat(default_fragment_scan_options=options).make_fragment(path, local))
    return ds.FileSystemDataset(fragments, fragments[0].physical_schema, ds.ParquetFileFormat(), local)


def _cases(sides: Sides) -> dict[str, dict[str, Callable[[], Any]]]:
    """By query, by side; tablecrypt's is first."""

    def sql(query: str, source: str) -> Callable[[], Any]:
        return lambda: sides.connection.execute(query.format(source)).fetchall()

    native = f"read_parquet('{sides.files}')"
    cases: dict[str, dict[str, Callable[[], Any]]] = {}
    for name, query in {"group by": GROUP_BY, "narrow filter": NARROW, "filter k = 7": WIDE, "all columns": EVERY}.items():
        cases[f"DuckDB, {name}"] = {
            "tablecrypt": sql(query, "encrypted"),
            "native": sql(query, native),
            "with keys": sql(query, "with_keys"),
            "PyIceberg": lambda query=query: sides.plain.scan().to_duckdb("t").execute(query.format("t")).fetchall(),  # type: ignore[misc]
        }
    for name, filtered in {"narrow filter": pl.col("id").is_between(1_500_000, 1_500_100), "filter k = 7": pl.col("k") == 7}.items():
        cases[f"Polars, {name}, sum"] = {
            "tablecrypt": lambda filtered=filtered: _summed(sides.encrypted.to_polars(), filtered),  # type: ignore[misc]
            "native": lambda filtered=filtered: _summed(pl.scan_parquet(sides.files), filtered),  # type: ignore[misc]
            "PyIceberg": lambda filtered=filtered: _summed(sides.plain.to_polars(), filtered),  # type: ignore[misc]
        }
    return cases


def _summed(frame: pl.LazyFrame, filtered: pl.Expr) -> float:
    return float(frame.filter(filtered).select(pl.col("v").sum()).collect().item())


def _timed(cases: dict[str, dict[str, Callable[[], Any]]], rounds: int) -> dict[str, dict[str, list[Took]]]:
    times: dict[str, dict[str, list[Took]]] = {case: {side: [] for side in sides} for case, sides in cases.items()}
    for number in range(rounds + 1):
        for case, sides in cases.items():
            for side in list(sides) if number % 2 else list(reversed(sides)):
                gc.collect()
                clock, processor = time.perf_counter(), time.process_time()
                sides[side]()
                took = Took(time.perf_counter() - clock, time.process_time() - processor)
                if number:
                    times[case][side].append(took)
    return times


def _report(times: dict[str, dict[str, list[Took]]]) -> None:
    print("  medians in milliseconds, and tablecrypt / the other side: median (lowest to highest)")
    print(f"  {'':42}{'on the clock':32}processors")
    for case, sides in times.items():
        for side, took in sides.items():
            shown = [_shown([each[at] for each in sides["tablecrypt"]], [each[at] for each in took]) for at in range(2)]
            print(f"  {case if side == 'tablecrypt' else '':30}{side:12}{shown[0]:32}{shown[1]}".rstrip())


def _shown(ours: list[float], theirs: list[float]) -> str:
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    ratio = "" if ours == theirs else f"  {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return f"{statistics.median(theirs) * 1000:6.0f}{ratio}"


def _report_memory(folder: Path, options: argparse.Namespace) -> None:
    MemoryKeyManagementClient(KMS).create_key(KEY_ID, KEY)
    table = _encrypted_table(folder)
    risen: dict[str, list[int]] = {}
    sizes = (4, options.memory_files)
    written = 0
    for files in sizes:
        while written < files:
            table.append(_rows(written, options.rows))
            written += 1
        for way in ("DuckDB, group by", "DuckDB, all columns", "Polars, filter k = 7, sum", "to_arrow"):
            risen.setdefault(way, []).append(_peak_of(folder, way))
    size = _rows(0, options.rows).nbytes * options.memory_files / 1e6
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
        "Polars, filter k = 7, sum": lambda: _summed(table.to_polars(), pl.col("k") == 7),
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


def _rows(number: int, count: int) -> pa.Table:
    """Six columns, the same in every run: a sorted id, a key of 100 values, two of floats, a name of 5,000 values, and large numbers."""

    def uniform(seed: int) -> pa.Array:
        return pc.random(count, initializer=seed + 10 * number)

    names = pa.array([f"name {each}" for each in range(5000)])
    return pa.table(
        {
            "id": pa.array(range(number * count, (number + 1) * count), pa.int64()),
            "k": pc.cast(pc.floor(pc.multiply(uniform(1), 100)), pa.int64()),
            "v": uniform(2),
            "name": names.take(pc.cast(pc.floor(pc.multiply(uniform(3), 5000)), pa.int64())),
            "w": uniform(4),
            "z": pc.cast(pc.floor(pc.multiply(uniform(5), 2**40)), pa.int64()),
        }
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of each file")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--memory-files", type=int, default=16)
    return parser.parse_args()


if __name__ == "__main__":
    main()
