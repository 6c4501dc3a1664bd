"""Re-encryption and migration of a table against reading and writing the same rows with PyIceberg, in turn, in one run.

The table is about 1 GB of Parquet in files of some 20 MB, on local disk. The peer reads the rows of a data file with PyIceberg's scan and
appends them to another plain table, a file at a time, so that both sides work within bounded memory. Both run on one thread, then on all
cores. Each step is a process of its own, whose peak memory, above that of a process that only imports the same, is printed beside its time.

Run: python benchmarks/reencrypt_migrate.py [--size-mb 1000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan

from tablecrypt import load_catalog
from tablecrypt.kms.local_file import create_key_file
from tablecrypt.maintenance import migrate, reencrypt

KEY_ID = "benchmark"
ROWS_PER_FILE = 400_000
STEPS = ("idle", "rewrite", "migrate", "reencrypt")


def main() -> None:
    """Make the table, run the rounds, print the figures."""
    options = _options()
    if options.step:
        _run_step(options.step, Path(options.folder), options.threads)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        create_key_file(folder / "keys.json", KEY_ID, 32)
        size, rows = _make_table(folder, options.size_mb)
        print(f"{rows:,} rows, {size / 1e6:.0f} MB of Parquet in files of {ROWS_PER_FILE:,} rows; {options.rounds} rounds, medians")
        for threads in sorted({1, os.cpu_count() or 1}):
            _compare(folder, threads, options.rounds, size)


def _compare(folder: Path, threads: int, rounds: int, size: int) -> None:
    figures: dict[str, list[dict[str, float]]] = {step: [] for step in STEPS}
    for _ in range(rounds):
        for step in STEPS:
            figures[step].append(_in_process(step, folder, threads))
    idle = statistics.median(each["memory"] for each in figures["idle"])
    peer = [each["seconds"] for each in figures["rewrite"]]
    print(f"{threads} thread{'s' if threads > 1 else ''}{'seconds':>26}{'MB/s':>10}{'times the peer':>16}{'memory':>10}")
    for step in STEPS[1:]:
        seconds = [each["seconds"] for each in figures[step]]
        memory = max(each["memory"] for each in figures[step]) - idle
        ratio = statistics.median(theirs / ours for theirs, ours in zip(peer, seconds, strict=True))
        median = statistics.median(seconds)
        print(f"  {step:24}{median:9.2f}{size / 1e6 / median:10.0f}{ratio:16.1f}{memory / 1e6:7.0f} MB")


def _in_process(step: str, folder: Path, threads: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--step", step, "--folder", str(folder), "--threads", str(threads)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    return dict(json.loads(answer.stdout.splitlines()[-1]))


def _run_step(step: str, folder: Path, threads: int) -> None:
    pa.set_cpu_count(threads)
    pa.set_io_thread_count(max(1, threads))
    catalog = _catalog(folder)
    plain = catalog.load_table("db.plain")
    begin = time.perf_counter()
    if step == "rewrite":
        _rewrite(catalog)
    elif step == "migrate":
        migrate(plain, KEY_ID, into="db.encrypted", workers=threads)
    elif step == "reencrypt":
        reencrypt(catalog.load_table("db.encrypted"), workers=threads)
    seconds = time.perf_counter() - begin
    memory = _peak_memory()
    if step == "reencrypt":
        catalog.purge_table("db.encrypted")
    elif step == "rewrite":
        catalog.purge_table("db.copy")
    print(json.dumps({"seconds": seconds, "memory": memory}))


def _peak_memory() -> int:
    """Return the most bytes that were resident at once. Linux only; getrusage would count the parent's before exec."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def _rewrite(catalog: Catalog) -> None:
    plain = catalog.load_table("db.plain")
    copy = catalog.create_table("db.copy", plain.schema())
    rows = plain.scan().count()
    for first in range(0, rows, ROWS_PER_FILE):
        portion = And(GreaterThanOrEqual(term="id", value=first), LessThan(term="id", value=first + ROWS_PER_FILE))
        copy.append(plain.scan(row_filter=portion).to_arrow())


def _make_table(folder: Path, size_mb: int) -> tuple[int, int]:
    catalog = _catalog(folder)
    catalog.create_namespace_if_not_exists("db")
    table = catalog.create_table("db.plain", _rows(0, 1).schema)
    size = rows = 0
    while size < size_mb * 1_000_000:
        table.append(_rows(rows, ROWS_PER_FILE))
        rows += ROWS_PER_FILE
        size += max(task.file.file_size_in_bytes for task in table.scan(row_filter=f"id >= {rows - ROWS_PER_FILE}").plan_files())
    return size, rows


def _rows(first: int, count: int) -> pa.Table:
    """What a table of orders holds, half of it poorly compressible."""

    def uniform(seed: int, high: float) -> pa.Array:
        return pc.multiply(pc.random(count, initializer=first + seed), high)

    def integers(seed: int, high: int) -> pa.Array:
        return pc.cast(pc.floor(uniform(seed, high)), pa.int64())

    return pa.table(
        {
            "id": pa.array(range(first, first + count), pa.int64()),
            "customer": pc.cast(integers(1, 200_000), pa.int32()),
            "price": uniform(2, 500),
            "weight": uniform(3, 80),
            "discount": uniform(4, 1),
            "at": pc.cast(pc.add(integers(5, 3 * 365 * 86_400), 1_600_000_000), pa.timestamp("s")).cast(pa.timestamp("us")),
            "status": pc.take(pa.array(["open", "paid", "packed", "sent", "returned"]), integers(6, 5)),
            "token": pc.cast(integers(7, 2**53), pa.string()),
            "note": pc.binary_join_element_wise(pc.cast(integers(8, 10_000), pa.string()), pa.scalar("pieces, wrapped"), " "),
        }
    )


def _catalog(folder: Path) -> Catalog:
    return load_catalog(
        "ours",
        **{
            "type": "tablecrypt",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
            "encryption.kms-type": "local",
            "kms.local.key-file": str(folder / "keys.json"),
        },
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mb", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
