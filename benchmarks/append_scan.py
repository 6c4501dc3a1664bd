"""Append and scan of an encrypted table against plain PyIceberg, on the same rows, in the same run.

Ours is format version 3 through EncryptedSqlCatalog with an in-memory KMS, the other side format version 2 through SqlCatalog; both write
local files with PyIceberg's default properties. A round creates both tables, appends the rows to each in one commit, and scans each into
Arrow three times. Which side goes first changes from round to round, and between the scans of a round in mirrored order (A B, B A), because
whoever is first pays for the memory that the process takes; the first scan of each side and the first round are not counted.
Beside the time on the clock it shows the processor time of all threads, which other work on the machine disturbs less.

Then it counts what reaches the KMS: for an append and a scan, the first one and repeated ones, and for many commits of few rows.

Run: python benchmarks/append_scan.py [--rows 1000000] [--rounds 8] [--commits 20]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.catalog import load_catalog as load_plain_catalog

from tablecrypt import load_catalog
from tablecrypt.kms.factory import shared_kms
from tablecrypt.kms.memory import MemoryKeyManagementClient

CANARY = "c4nary-plaintext-must-not-appear"
KEY_ID = "benchmark"
KMS = {"encryption.kms-type": "memory", "kms.memory.name": "append-scan"}


class Took(NamedTuple):
    """How long a step took, in seconds."""

    clock: float
    processor: float


@dataclass
class Side:
    """One of the two catalogs, with what was measured on it."""

    name: str
    catalog: Catalog
    properties: dict[str, str]
    appends: list[Took] = field(default_factory=list)
    scans: list[Took] = field(default_factory=list)

    def append(self, table_name: str, rows: pa.Table) -> Took:
        """Create a table and return how long the append took."""
        table = self.catalog.create_table(f"db.{table_name}", rows.schema, properties=self.properties)
        return _timed(lambda: table.append(rows))

    def scan(self, table_name: str, expected: int) -> Took:
        """Return how long it took to load the table and scan all of it."""

        def scan() -> None:
            count = self.catalog.load_table(f"db.{table_name}").scan().to_arrow().num_rows
            assert count == expected, f"{self.name} returned {count} rows of {expected}"

        return _timed(scan)


def main() -> None:
    """Make the rows, run the rounds, count the calls, print the figures."""
    options = _options()
    rows = _rows(options.rows)
    with tempfile.TemporaryDirectory() as folder:
        ours, plain = _sides(Path(folder))
        for number in range(options.rounds + 1):
            _round(f"round_{number}", (ours, plain) if number % 2 else (plain, ours), rows)
            if number == 0:
                _forget_figures(ours, plain)
        _report_times(rows, ours, plain)
        _report_kms_calls(ours, rows.slice(0, 1000), options.commits)


def _sides(folder: Path) -> tuple[Side, Side]:
    MemoryKeyManagementClient(KMS).create_key(KEY_ID)
    ours = load_catalog(
        "ours",
        **{
            "type": "tablecrypt",
            "uri": f"sqlite:///{folder}/ours.db",
            "warehouse": f"file://{folder}/ours",
            **KMS,
        },
    )
    plain = load_plain_catalog("plain", type="sql", uri=f"sqlite:///{folder}/plain.db", warehouse=f"file://{folder}/plain")
    for catalog in (ours, plain):
        catalog.create_namespace("db")
    return Side("tablecrypt, encrypted v3", ours, {"encryption.key-id": KEY_ID}), Side("PyIceberg, plain v2", plain, {})


def _round(table_name: str, sides: tuple[Side, Side], rows: pa.Table) -> None:
    for side in sides:
        side.appends.append(side.append(table_name, rows))
    for side in sides:
        side.scan(table_name, rows.num_rows)
    for side in (*sides, *reversed(sides)):
        side.scans.append(side.scan(table_name, rows.num_rows))
    for side in sides:
        side.catalog.purge_table(f"db.{table_name}")


def _forget_figures(*sides: Side) -> None:
    for side in sides:
        side.appends.clear()
        side.scans.clear()


def _timed(step: Callable[[], None]) -> Took:
    gc.collect()
    clock, processor = time.perf_counter(), time.process_time()
    step()
    return Took(time.perf_counter() - clock, time.process_time() - processor)


def _report_times(rows: pa.Table, ours: Side, plain: Side) -> None:
    size = f"{rows.num_rows:,} rows, {rows.num_columns} columns, {rows.nbytes / 1e6:.0f} MB in Arrow"
    print(f"{size}; {len(ours.appends)} rounds, medians in seconds")
    print(f"  {'':28}{ours.name:>26}{plain.name:>22}{'ours / plain':>15}  lowest to highest")
    for step, our_times, plain_times in (("append", ours.appends, plain.appends), ("scan", ours.scans, plain.scans)):
        _report_step(f"{step}, on the clock", [took.clock for took in our_times], [took.clock for took in plain_times])
        _report_step(f"{step}, processor time", [took.processor for took in our_times], [took.processor for took in plain_times])


def _report_step(name: str, ours: list[float], plain: list[float]) -> None:
    ratios = [mine / theirs for mine, theirs in zip(ours, plain, strict=True)]
    medians = f"{statistics.median(ours):26.3f}{statistics.median(plain):22.3f}{statistics.median(ratios):15.2f}"
    print(f"  {name:28}{medians}  {min(ratios):.2f} to {max(ratios):.2f}")


def _report_kms_calls(ours: Side, rows: pa.Table, commits: int) -> None:
    kms = shared_kms(KMS)
    ours.catalog.create_table("db.calls", rows.schema, properties=ours.properties)

    def append() -> None:
        ours.catalog.load_table("db.calls").append(rows)

    def scan() -> None:
        ours.catalog.load_table("db.calls").scan().to_arrow()

    steps: list[tuple[str, bool, Callable[[], None]]] = [
        ("first append to a new table", True, append),
        ("second append", False, append),
        ("scan by the process that wrote", False, scan),
        ("another process: first scan", True, scan),
        ("another process: second scan", False, scan),
        ("another process: first append", True, append),
        (f"{commits} appends to a new table and a scan after each", True, lambda: _many_commits(ours, rows, commits)),
        (f"another process: {commits} scans of that table", True, lambda: _many_scans(ours, commits)),
    ]
    print("calls that reach the KMS")
    for name, with_empty_memory, step in steps:
        if with_empty_memory:
            # Closing the client forgets its keys and counters: the state in which a process begins.
            kms.close()
        before = kms.calls
        step()
        made = kms.calls - before
        print(f"  {name:52}{made.total()}  {', '.join(sorted(made))}".rstrip())


def _many_commits(ours: Side, rows: pa.Table, commits: int) -> None:
    table = ours.catalog.create_table("db.many_commits", rows.schema, properties=ours.properties)
    for number in range(1, commits + 1):
        table.append(rows)
        count = table.scan().to_arrow().num_rows
        assert count == number * rows.num_rows, f"{count} rows after {number} appends of {rows.num_rows}"


def _many_scans(ours: Side, scans: int) -> None:
    for _ in range(scans):
        ours.catalog.load_table("db.many_commits").scan().to_arrow()


def _rows(count: int) -> pa.Table:
    """Ten columns, the same on every run: what a table of orders holds, half of it poorly compressible."""

    def uniform(seed: int, low: float, high: float) -> pa.Array:
        return pc.add(pc.multiply(pc.random(count, initializer=seed), high - low), low)

    def integers(seed: int, high: int) -> pa.Array:
        return pc.cast(pc.floor(uniform(seed, 0, high)), pa.int64())

    seconds = pc.add(integers(5, 3 * 365 * 86_400), 1_600_000_000)
    statuses = pa.array(["open", "paid", "packed", "sent", "returned"])
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "customer": pc.cast(integers(1, 200_000), pa.int32()),
            "price": uniform(2, 1, 500),
            "weight": pc.cast(uniform(3, 0, 80), pa.float32()),
            "amount": pc.cast(pc.cast(integers(4, 10_000_000), pa.decimal128(19, 0)), pa.decimal128(21, 2)),
            "paid": pc.greater(pc.random(count, initializer=6), 0.3),
            "placed_at": pc.cast(pc.multiply(seconds, 1_000_000), pa.timestamp("us", tz="UTC")),
            "day": pc.cast(pc.cast(pc.divide(seconds, 86_400), pa.int32()), pa.date32()),
            "status": statuses.take(integers(7, len(statuses))),
            "note": pc.binary_join_element_wise(CANARY, pc.cast(integers(8, 2**40), pa.string()), " "),
        }
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--commits", type=int, default=20, help="appends in the count of KMS calls")
    return parser.parse_args()


if __name__ == "__main__":
    main()
